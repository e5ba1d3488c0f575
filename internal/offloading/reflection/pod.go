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
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch;delete
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch

// podKind is what metrics and events call pods.
const podKind = "Pod"

var shadowPod = vkv1alpha1.GroupVersion.WithKind("ShadowPod")

// pods cross in both directions: forth as ShadowPods (podforth.go), back as statuses (podback.go). Each has its own workers, so that a
// burst of new pods does not hold up the news of those that run.
type pods struct {
	engine      *Engine
	workers     int
	forth, back *queue
	// local are the pods of the node, in whatever namespace; shadows the metadata of their wishes; remote the pods that came of them.
	local, shadows, remote *fanin.Source

	// silent tells that the peer has ceased to answer.
	silent chan struct{}

	mu       sync.Mutex
	opened   map[*pair]bool
	memories map[types.UID]*memory
}

// memory is what is kept of a local pod besides what its object says.
type memory struct {
	restarts project.Restarts
	// sent: a ShadowPod was, or may have been, written and has not been seen since.
	sent bool
	// last is the remote pod as it was at its end.
	last *corev1.Pod
	// version of the local pod that our last write made, and when that was.
	version string
	told    time.Time
	// tokens is when its tokens were issued last.
	tokens time.Time
	// news is since when there is something to tell that can wait.
	news time.Time
}

func newPods(e *Engine, workers int) *pods {
	p := &pods{
		engine: e, workers: workers, forth: newQueue(workers), back: newQueue(workers + 2), // the share of one namespace is all workers
		opened: map[*pair]bool{}, memories: map[types.UID]*memory{}, silent: make(chan struct{}, 1),
	}
	p.forth.pause() // until the peer answers
	p.local = fanin.New(fanin.Options{
		Object: &corev1.Pod{}, List: func() client.ObjectList { return &corev1.PodList{} }, Trim: trimLocal,
		Client:  func(context.Context) (client.WithWatch, error) { return e.local, nil },
		Select:  []client.ListOption{client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", e.options.Mapping.NodeName)}},
		Changed: p.changedHere,
		Synced:  func(string) { p.mapped() },
		Resumed: func(string) { p.retry("") },
	})
	p.shadows = fanin.New(fanin.Options{
		Object: &metav1.PartialObjectMetadata{}, List: metadata(shadowPod), Trim: trimRemote(shadowPod),
		Client: e.remote.wait, Changed: p.shadowChanged, Synced: p.synced, Resumed: p.watched,
	})
	p.remote = fanin.New(fanin.Options{
		Object: &corev1.Pod{}, List: func() client.ObjectList { return &corev1.PodList{} }, Trim: trimRemotePod,
		Client: e.remote.wait, Changed: p.changedThere, Synced: p.synced, Resumed: p.watched,
	})
	return p
}

// trimRemotePod keeps what is told of a remote pod: whose it is, and how it stands.
func trimRemotePod(object client.Object) {
	if pod, ok := object.(*corev1.Pod); ok {
		pod.ManagedFields, pod.Spec = nil, corev1.PodSpec{}
		pod.Annotations = map[string]string{labels.Fence: pod.Annotations[labels.Fence]}
		pod.Labels = map[string]string{labels.Origin: pod.Labels[labels.Origin]}
	}
}

func (p *pods) run(ctx context.Context, working *sync.WaitGroup) {
	for range p.workers {
		working.Go(func() { work(ctx, p.forth, p.engine, podKind, p.send) })
	}
	for range p.workers {
		working.Go(func() { work(ctx, p.back, p.engine, podKind, p.tell) })
	}
	working.Go(func() { p.keep(ctx) })
	p.local.Add(ctx, fanin.Every)
}

func (p *pods) begin(pair *pair) {
	p.shadows.Add(pair.ctx, pair.link.Remote)
	p.remote.Add(pair.ctx, pair.link.Remote)
	p.engine.events.source.Add(pair.ctx, pair.link.Remote)
	if p.engine.tokens != nil {
		p.engine.tokens.begin(pair)
	}
}

func (p *pods) end(pair *pair) {
	p.shadows.Remove(pair.link.Remote)
	p.remote.Remove(pair.link.Remote)
	p.engine.events.source.Remove(pair.link.Remote)
	if p.engine.tokens != nil {
		p.engine.tokens.end(pair)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.opened, pair)
}

// Pods calls do with each pod of the node, which must not be changed.
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

// mapped looks at all pods: what is offloaded has changed.
func (p *pods) mapped() {
	for _, pod := range p.local.All(fanin.Every) {
		p.forth.add(client.ObjectKeyFromObject(pod))
		p.back.add(client.ObjectKeyFromObject(pod))
	}
}

// again looks at all pods: what they are translated with has changed.
func (p *pods) again() { p.mapped() }

// retry looks at once at what has failed in a local namespace.
func (p *pods) retry(namespace string) {
	p.forth.retry(namespace)
	p.back.retry(namespace)
	if p.engine.tokens != nil {
		p.engine.tokens.queue.retry(namespace)
	}
}

// settling is how long what was missed may take to come, once a peer is watched again.
const settling = 200 * time.Millisecond

// watched looks at all pods of a pair again that is watched again: meanwhile they may have been taken for lost here.
func (p *pods) watched(remote string) {
	pair := p.engine.pairs.remote(remote)
	if pair == nil {
		return
	}
	p.retry(pair.link.Local)
	for _, pod := range p.local.All(pair.link.Local) {
		p.back.addAfter(client.ObjectKeyFromObject(pod), settling)
	}
}

func (p *pods) changedHere(before, after client.Object) {
	old, _ := before.(*corev1.Pod)
	now, _ := after.(*corev1.Pod)
	if now == nil || old != nil && old.UID != now.UID {
		p.mu.Lock()
		delete(p.memories, old.UID)
		p.mu.Unlock()
		p.engine.said.settled(old)
	}
	object := after
	if now == nil {
		object = before
	}
	key := client.ObjectKeyFromObject(object)
	p.back.add(key)
	if old == nil || now == nil || old.UID != now.UID || crossed(old, now) {
		p.forth.add(key)
		if p.engine.tokens != nil {
			p.engine.tokens.queue.add(key)
		}
	}
}

// crossed says whether something changed that concerns the other direction: not so what we tell of the pod ourselves.
func crossed(old, now *corev1.Pod) bool {
	return old.Generation != now.Generation || now.Generation == 0 || finished(old) != finished(now) || (old.DeletionTimestamp == nil) != (now.DeletionTimestamp == nil) ||
		!sameBut(old.Labels, now.Labels, labels.ShadowPod) || !sameBut(old.Annotations, now.Annotations, "")
}

func sameBut(a, b map[string]string, but string) bool {
	count := func(all map[string]string) int {
		if _, has := all[but]; has {
			return len(all) - 1
		}
		return len(all)
	}
	for key, value := range a {
		if other, has := b[key]; key != but && (!has || other != value) {
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
			known.sent = false
		}
		p.mu.Unlock()
	}
	if pair := p.engine.pairs.remote(object.GetNamespace()); pair != nil && after == nil {
		pair.appliers[podKind].Forget(client.ObjectKeyFromObject(object))
	}
	p.both(object, after == nil || before != nil)
}

func (p *pods) changedThere(before, after client.Object) {
	object := after
	if object == nil {
		object = before
	}
	p.keepEnd(object) // as soon as it is seen: once the pod is gone, a worker may miss it before we are told
	pair := p.engine.pairs.remote(object.GetNamespace())
	if pair == nil {
		return
	}
	key := types.NamespacedName{Namespace: pair.link.Local, Name: object.GetName()}
	p.back.add(key)
	if after == nil {
		p.forth.add(key) // the next of that name may be waiting
	}
}

func (p *pods) both(object client.Object, back bool) {
	if pair := p.engine.pairs.remote(object.GetNamespace()); pair != nil {
		key := types.NamespacedName{Namespace: pair.link.Local, Name: object.GetName()}
		p.forth.add(key)
		if back {
			p.back.add(key)
		}
	}
}

// synced opens a pair when all of it is known.
func (p *pods) synced(remote string) {
	if pair := p.engine.pairs.remote(remote); pair != nil && p.shadows.Synced(remote) && p.remote.Synced(remote) {
		go p.open(pair)
	}
}

// open compares the ShadowPods that are there with what is wanted, once, as reflector.open does. The news of them need not wait for that.
func (p *pods) open(pair *pair) {
	locals := func(then func(types.NamespacedName)) {
		for _, object := range p.local.All(pair.link.Local) {
			then(client.ObjectKeyFromObject(object))
		}
		for _, object := range p.shadows.All(pair.link.Remote) {
			then(types.NamespacedName{Namespace: pair.link.Local, Name: object.GetName()})
		}
	}
	locals(p.back.add)
	err := p.engine.remote.recall(pair, p.shadows, func() client.ObjectList { return &vkv1alpha1.ShadowPodList{} }, func(remote client.Object) error {
		if !p.local.Synced(fanin.Every) {
			return errNotSynced
		}
		local, _ := p.local.Get(types.NamespacedName{Namespace: pair.link.Local, Name: remote.GetName()}).(*corev1.Pod)
		if local == nil || remote.GetAnnotations()[labels.Fence] != string(local.UID) {
			return nil
		}
		wish, tokens, err := p.wish(pair, local)
		if err != nil {
			return err
		}
		held, err := pair.appliers[podKind].Recall(wish, remote)
		if other := p.otherwise(pair, local, tokens); other != nil && err == nil && !held {
			held, err = pair.appliers[podKind].Recall(other, remote)
		}
		if full, ok := remote.(*vkv1alpha1.ShadowPod); ok && err == nil && !held {
			_, err = pair.appliers[podKind].Recall(amended(wish, full), remote)
		}
		return err
	})
	if err != nil {
		return // the pair has ended
	}
	p.mu.Lock()
	if pair.ctx.Err() == nil {
		p.opened[pair] = true
	}
	p.mu.Unlock()
	locals(p.forth.add)
}
