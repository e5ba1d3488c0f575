// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/fanin"
	"liqo.io/liqo/internal/offloading/podplan"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch;delete
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch

// podKind is the name of pods in metrics and events.
const podKind = "Pod"

var shadowPod = vkv1alpha1.GroupVersion.WithKind("ShadowPod")

// pods sends local pods to the peer as ShadowPods (podoutbound.go) and brings their status back (podinbound.go). It collects the facts (podfacts.go), and package
// podplan decides. Each direction has workers of its own, and new pods wait while the status of others is late (lateness.go).
type pods struct {
	engine            *Engine
	workers           int
	outbound, inbound *queue
	// local caches the pods of the node in all namespaces, shadows the metadata of their ShadowPods, remote the pods that the peer runs for them.
	local, shadows, remote *fanin.Source

	// unreachable receives a value when the peer becomes unreachable.
	unreachable chan struct{}

	mu       sync.Mutex
	compared map[*mapping]bool
	memories map[types.UID]*memory
}

// memory is what we remember of a local pod beyond its object.
type memory struct {
	podplan.Memory
	restarts project.Restarts
	// resizeRefused is when the peer refused to resize the pod, and the generation of the local pod that asked for it.
	resizeRefused    time.Time
	resizeGeneration int64
}

func newPods(e *Engine, workers int) *pods {
	p := &pods{
		engine: e, workers: workers, outbound: newQueue(workers), inbound: newQueue(workers + 2), // so that one namespace may use all workers
		compared: map[*mapping]bool{}, memories: map[types.UID]*memory{}, unreachable: make(chan struct{}, 1),
	}
	p.outbound.pause() // until the peer is reachable
	p.inbound.observed = &lateness{onTime: p.outbound.recheck}
	p.outbound.yieldsTo = p.inbound.observed
	p.local = fanin.New(fanin.Options{
		Object: &corev1.Pod{}, List: func() client.ObjectList { return &corev1.PodList{} }, Trim: trimLocal,
		Client:  func(context.Context) (client.WithWatch, error) { return e.local, nil },
		Select:  []client.ListOption{client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", e.options.Mapping.NodeName)}},
		Changed: p.localChanged,
		Synced:  func(string) { p.enqueueAll() },
		Resumed: func(string) { p.retry("") },
	})
	p.shadows = fanin.New(fanin.Options{
		Object: &metav1.PartialObjectMetadata{}, List: metadata(shadowPod), Trim: trimRemote(shadowPod),
		Client: e.remote.waitForClient, Changed: p.shadowChanged, Synced: p.synced, Resumed: p.resumed,
	})
	p.remote = fanin.New(fanin.Options{
		Object: &corev1.Pod{}, List: func() client.ObjectList { return &corev1.PodList{} }, Trim: trimRemotePod,
		Client: e.remote.waitForClient, Changed: p.remoteChanged, Synced: p.synced, Resumed: p.resumed,
	})
	return p
}

// trimRemotePod keeps what we read of a remote pod: its owner and its status.
func trimRemotePod(object client.Object) {
	if pod, ok := object.(*corev1.Pod); ok {
		pod.ManagedFields, pod.Spec = nil, corev1.PodSpec{}
		pod.Annotations = map[string]string{labels.Fence: pod.Annotations[labels.Fence]}
		pod.Labels = map[string]string{labels.Origin: pod.Labels[labels.Origin]}
	}
}

func (p *pods) isCompared(mapping *mapping) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.compared[mapping]
}

func (p *pods) run(ctx context.Context, working *sync.WaitGroup) {
	for range p.workers {
		working.Go(func() { work(ctx, p.outbound, p.engine, podKind, p.syncOutbound) })
	}
	for range p.workers {
		working.Go(func() { work(ctx, p.inbound, p.engine, podKind, p.syncInbound) })
	}
	working.Go(func() { p.keepPods(ctx) })
	p.local.Add(ctx, fanin.Every)
}

func (p *pods) start(mapping *mapping) {
	p.shadows.Add(mapping.ctx, mapping.Remote)
	p.remote.Add(mapping.ctx, mapping.Remote)
	p.engine.events.source.Add(mapping.ctx, mapping.Remote)
	if p.engine.tokens != nil {
		p.engine.tokens.start(mapping)
	}
}

func (p *pods) stop(mapping *mapping) {
	p.shadows.Remove(mapping.Remote)
	p.remote.Remove(mapping.Remote)
	p.engine.events.source.Remove(mapping.Remote)
	if p.engine.tokens != nil {
		p.engine.tokens.stop(mapping)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.compared, mapping)
}

// Pods calls do with each pod of the node. do must not change it.
func (e *Engine) Pods(do func(*corev1.Pod)) {
	if e.pods == nil {
		return
	}
	for _, object := range e.pods.local.All(fanin.Every) {
		if pod, ok := object.(*corev1.Pod); ok {
			do(pod)
		}
	}
}

// enqueueAll enqueues all pods in both directions.
func (p *pods) enqueueAll() {
	for _, pod := range p.local.All(fanin.Every) {
		p.outbound.add(client.ObjectKeyFromObject(pod))
		p.inbound.add(client.ObjectKeyFromObject(pod))
	}
}

func (p *pods) enqueueInbound() {
	for _, pod := range p.local.All(fanin.Every) {
		p.inbound.add(client.ObjectKeyFromObject(pod))
	}
}

// retry requeues at once what has failed in a local namespace; "": in all.
func (p *pods) retry(namespace string) {
	p.outbound.retry(namespace)
	p.inbound.retry(namespace)
	if p.engine.tokens != nil {
		p.engine.tokens.queue.retry(namespace)
	}
}

// resumeDelay leaves a resumed watch the time to deliver the events that it has missed.
const resumeDelay = 200 * time.Millisecond

// resumed requeues all pods of a mapping once its watches have resumed: meanwhile Kubernetes may have set them to not Ready.
func (p *pods) resumed(remote string) {
	mapping := p.engine.mappings.remote(remote)
	if mapping == nil {
		return
	}
	p.retry(mapping.Local)
	for _, pod := range p.local.All(mapping.Local) {
		key := client.ObjectKeyFromObject(pod)
		p.inbound.addAfter(key, resumeDelay)
		if p.finished(key) {
			p.outbound.addAfter(key, resumeDelay)
		}
	}
}

func (p *pods) localChanged(before, after client.Object) {
	old, _ := before.(*corev1.Pod)
	now, _ := after.(*corev1.Pod)
	if now == nil || old != nil && old.UID != now.UID {
		p.mu.Lock()
		delete(p.memories, old.UID)
		p.mu.Unlock()
		if p.engine.tokens != nil {
			p.engine.tokens.forget(old.UID)
		}
		p.engine.recorder.succeeded(old)
	}
	object := after
	if now == nil {
		object = before
	}
	p.engine.referrerChanged(before, after)
	key := client.ObjectKeyFromObject(object)
	p.inbound.add(key)
	if old == nil || now == nil || old.UID != now.UID || affectsOutbound(old, now) {
		p.outbound.add(key)
		if p.engine.tokens != nil {
			p.engine.tokens.queue.add(key)
		}
	}
}

// affectsOutbound reports whether a change concerns the outbound direction. The status that we write ourselves does not.
func affectsOutbound(old, now *corev1.Pod) bool {
	return old.Generation != now.Generation || now.Generation == 0 || project.Finished(old.Status.Phase) != project.Finished(now.Status.Phase) || (old.DeletionTimestamp == nil) != (now.DeletionTimestamp == nil) ||
		!equalExcept(old.Labels, now.Labels, labels.ShadowPod) || !equalExcept(old.Annotations, now.Annotations, "")
}

func equalExcept(a, b map[string]string, except string) bool {
	count := func(all map[string]string) int {
		if _, has := all[except]; has {
			return len(all) - 1
		}
		return len(all)
	}
	for key, value := range a {
		if other, has := b[key]; key != except && (!has || other != value) {
			return false
		}
	}
	return count(a) == count(b)
}

func (p *pods) shadowChanged(before, after client.Object) {
	object := after
	if object == nil {
		object = before
	}
	if fence := object.GetAnnotations()[labels.Fence]; after != nil && fence != "" {
		p.mu.Lock()
		if known := p.memories[types.UID(fence)]; known != nil {
			known.Sent = false
		}
		p.mu.Unlock()
	}
	if mapping := p.engine.mappings.remote(object.GetNamespace()); mapping != nil && after == nil {
		mapping.appliers[podKind].Forget(client.ObjectKeyFromObject(object))
	}
	p.enqueueShadow(object, after == nil || before != nil)
	p.engine.events.arrived(before, after)
	if remote := p.remote.Get(client.ObjectKeyFromObject(object)); remote != nil && before == nil {
		p.engine.events.arrived(nil, remote) // without its ShadowPod, it was of no local pod
	}
}

func (p *pods) remoteChanged(before, after client.Object) {
	object := after
	if object == nil {
		object = before
	}
	p.rememberEnd(object) // now: a worker that runs later may find the pod gone already
	mapping := p.engine.mappings.remote(object.GetNamespace())
	if mapping == nil {
		return
	}
	key := types.NamespacedName{Namespace: mapping.Local, Name: object.GetName()}
	p.inbound.add(key)
	p.engine.events.arrived(before, after)
	if after == nil || p.finished(key) {
		p.outbound.add(key) // a successor of the same name may be waiting, or the pod must end
	}
}

// finished reports whether the local pod is in a terminal phase.
func (p *pods) finished(key types.NamespacedName) bool {
	local, _ := p.local.Get(key).(*corev1.Pod)
	return local != nil && project.Finished(local.Status.Phase)
}

// enqueueShadow enqueues the local pod of a ShadowPod for the outbound direction, and for the inbound one if that is asked.
func (p *pods) enqueueShadow(object client.Object, inbound bool) {
	if mapping := p.engine.mappings.remote(object.GetNamespace()); mapping != nil {
		key := types.NamespacedName{Namespace: mapping.Local, Name: object.GetName()}
		p.outbound.add(key)
		if inbound {
			p.inbound.add(key)
		}
	}
}

// synced starts the first comparison of a mapping once both remote caches are filled.
func (p *pods) synced(remote string) {
	if mapping := p.engine.mappings.remote(remote); mapping != nil && p.shadows.Synced(remote) && p.remote.Synced(remote) {
		go p.compareAll(mapping)
	}
}

// compareAll compares the ShadowPods of the peer with their intents, once per mapping, as reflector.compareAll does. Their status does not wait for that.
func (p *pods) compareAll(mapping *mapping) {
	locals := func(then func(types.NamespacedName)) {
		for _, object := range p.local.All(mapping.Local) {
			then(client.ObjectKeyFromObject(object))
		}
		for _, object := range p.shadows.All(mapping.Remote) {
			then(types.NamespacedName{Namespace: mapping.Local, Name: object.GetName()})
		}
	}
	locals(p.inbound.add)
	err := p.engine.remote.visitRemote(mapping, p.shadows, func() client.ObjectList { return &vkv1alpha1.ShadowPodList{} }, func(remote client.Object) error {
		if !p.local.Synced(fanin.Every) {
			return errNotSynced
		}
		local, _ := p.local.Get(types.NamespacedName{Namespace: mapping.Local, Name: remote.GetName()}).(*corev1.Pod)
		if local == nil || remote.GetAnnotations()[labels.Fence] != string(local.UID) {
			return nil
		}
		intent, tokens, err := p.intent(mapping, local)
		if err != nil {
			return err
		}
		held, err := mapping.appliers[podKind].Recall(intent, remote)
		if other := p.intentOfOtherPolicy(mapping, local, tokens); other != nil && err == nil && !held {
			held, err = mapping.appliers[podKind].Recall(other, remote)
		}
		if full, ok := remote.(*vkv1alpha1.ShadowPod); ok && err == nil && !held {
			_, err = mapping.appliers[podKind].Recall(amended(intent, full), remote)
		}
		return err
	})
	if err != nil {
		return // the mapping was stopped
	}
	p.mu.Lock()
	if mapping.ctx.Err() == nil {
		p.compared[mapping] = true
	}
	p.mu.Unlock()
	locals(func(key types.NamespacedName) {
		p.outbound.add(key)
		p.inbound.add(key) // what vanished is reported only now
	})
}
