// SPDX-License-Identifier: Apache-2.0

// Package pods sends the pods of a virtual node to the peer as ShadowPods, and brings their status back.
//
//	local pod, ShadowPod, remote pod ──► podplan.Plan (pure) ──► steps    facts.go
//	step outbound ──► create, amend or delete the ShadowPod               outbound.go
//	step inbound ──► write the status of the local pod, or remove it      inbound.go
//
// It decides nothing about a pod: podplan does, and package project knows what a field becomes. The tests of package reflection cover it.
package pods

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/fairqueue"
	"liqo.io/liqo/internal/kube/fanin"
	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/offloading/podplan"
	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/pods/failures"
	"liqo.io/liqo/internal/offloading/reflection/pods/intent"
	"liqo.io/liqo/internal/offloading/reflection/pods/tolerations"
	"liqo.io/liqo/internal/offloading/reflection/project/podstatus"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch;delete
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch

const (
	// Kind is the name of pods in metrics and events.
	Kind = "Pod"
	// Flag is the part of the flag of their workers, whose default is DefaultWorkers.
	Flag           = "pod"
	DefaultWorkers = 10
)

var shadowPod = vkv1alpha1.GroupVersion.WithKind("ShadowPod")

// Pods sends local pods to the peer as ShadowPods (outbound.go) and brings their status back (inbound.go). It collects the facts (facts.go), and package
// podplan decides. Each direction has workers of its own.
type Pods struct {
	Outbound, Inbound *fairqueue.Queue
	// Local caches the pods of the node in all namespaces, Shadows the metadata of their ShadowPods, Remote the pods that the peer runs for them.
	Local, Shadows, Remote *fanin.Source

	engine   *engine.Engine
	options  Options
	tokens   Tokens // nil: pods get none
	claims   Claims // nil: there are none
	failures failures.Breaker
	// unreachable receives a value when the peer becomes unreachable.
	unreachable chan struct{}
	network     atomic.Int32 // a podplan.Network
	// peerKeeps: a ShadowPod of the peer had the finalizer that keeps it until its pod is gone.
	peerKeeps atomic.Bool
	// noGenerations: the API server of this cluster did not keep observed generations of pods when a status was written last. Then they are written with what else
	// differs, so that the API server of a later version is noticed, and that of an earlier one gets no write more.
	noGenerations atomic.Bool

	mu       sync.Mutex
	memories map[types.UID]*memory
	// forced are local pods that others have removed while the peer ran them; deleted is when we deleted ShadowPods.
	forced  map[types.UID]struct{}
	deleted map[types.UID]time.Time
}

// memory is what we remember of a local pod beyond its object.
type memory struct {
	podplan.Memory
	restarts podstatus.Restarts
	// policy is that of its ShadowPod; nil: it was neither sent nor compared.
	policy *policy
	// applied is which generation of the pod the peer has.
	applied applied
	// stuck is what was last seen of the remote pod with this UID, and since when.
	stuck      podplan.Stuck
	stuckUID   types.UID
	stuckSince time.Time
	// refused are the parts of a change that the peer has refused.
	refused map[intent.Part]refusal
}

// New adds the loops of both directions to the engine.
func New(e *engine.Engine, o Options) *Pods {
	if o.UnreachableTimeout == 0 {
		o.UnreachableTimeout = tolerations.DefaultTimeout
	}
	if o.StuckTimeout == 0 {
		o.StuckTimeout = defaultStuckTimeout
	}
	if o.FailureLimit == 0 {
		o.FailureLimit = failures.DefaultLimit
	}
	p := &Pods{
		engine: e, options: o, Outbound: fairqueue.NewQueue(o.Workers), Inbound: fairqueue.NewQueue(o.Workers + 2), // so that one namespace may use all workers
		memories: map[types.UID]*memory{}, forced: map[types.UID]struct{}{}, deleted: map[types.UID]time.Time{}, failures: failures.Breaker{Limit: o.FailureLimit},
		unreachable: make(chan struct{}, 1),
	}
	if o.CheckNetwork {
		p.network.Store(int32(podplan.NetworkUnknown))
	}
	p.Local = fanin.New(fanin.Options{
		Object: &corev1.Pod{}, List: func() client.ObjectList { return &corev1.PodList{} }, Trim: trimLocalPod,
		Client:  func(context.Context) (client.WithWatch, error) { return e.Local, nil },
		Select:  []client.ListOption{client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", o.NodeName)}},
		Changed: p.localChanged,
		Synced:  func(string) { p.enqueueAll() },
		Resumed: func(string) { p.retry("") },
	})
	p.Shadows = fanin.New(fanin.Options{
		Object: &metav1.PartialObjectMetadata{}, List: engine.Metadata(shadowPod), Trim: engine.TrimRemote(shadowPod),
		Client: e.Remote.WaitForClient, Changed: p.shadowChanged, Synced: p.synced, Resumed: p.resumed,
	})
	p.Remote = fanin.New(fanin.Options{
		Object: &corev1.Pod{}, List: func() client.ObjectList { return &corev1.PodList{} }, Trim: trimRemotePod,
		Select: []client.ListOption{client.MatchingLabels{labels.Origin: e.Identities().LocalID}}, // the provider's controller sets it on the pods of our ShadowPods
		Client: e.Remote.WaitForClient, Changed: p.remoteChanged, Synced: p.synced, Resumed: p.resumed,
	})
	e.Add(&engine.Loop{
		Name: Kind, Workers: o.Workers, Queue: p.Outbound, Process: p.syncOutbound, Run: p.run, Start: p.start, Stop: p.stop, Changed: p.enqueueAll,
		Translate: p.enqueueAll,
		Reachable: func(mapping *engine.Mapping) { p.resumed(mapping.Remote) }, Unreachable: p.becameUnreachable,
		Reflected: func(mapping *engine.Mapping) int {
			return engine.Amount(p.Shadows.All(mapping.Remote), func(shadow client.Object) bool { return mapping.Reflected(shadow) })
		},
	})
	e.Add(&engine.Loop{Name: Kind, Workers: o.Workers, Queue: p.Inbound, Process: p.syncInbound, Inbound: true})
	return p
}

// SetTokens gives remote pods tokens for the API server of this cluster. Call it before Run of the engine, as SetClaims.
func (p *Pods) SetTokens(tokens Tokens) { p.tokens = tokens }

// SetClaims sets what keeps the data of pods.
func (p *Pods) SetClaims(claims Claims) { p.claims = claims }

// run follows the pods of the node until ctx ends.
func (p *Pods) run(ctx context.Context) {
	p.Local.Add(ctx, fanin.Every)
	keeper := tolerations.Keeper{Engine: p.engine, Local: p.Local, Timeout: p.options.UnreachableTimeout, Unreachable: p.unreachable, Extended: p.enqueueInbound}
	keeper.Run(ctx)
}

func (p *Pods) start(mapping *engine.Mapping) {
	p.Shadows.Add(mapping.Context, mapping.Remote)
	p.Remote.Add(mapping.Context, mapping.Remote)
}

func (p *Pods) stop(mapping *engine.Mapping) {
	p.Shadows.Remove(mapping.Remote)
	p.Remote.Remove(mapping.Remote)
}

func (p *Pods) becameUnreachable() {
	select {
	case p.unreachable <- struct{}{}:
	default:
	}
}

// SetNetwork records whether the pods of the two clusters reach each other.
func (p *Pods) SetNetwork(up bool) {
	now := podplan.NetworkDown
	if up {
		now = podplan.NetworkUp
	}
	if p.network.Swap(int32(now)) != int32(now) {
		p.enqueueInbound()
	}
}

// Synced reports whether the cache of the node's pods is filled.
func (p *Pods) Synced() bool { return p.Local.Synced(fanin.Every) }

// All calls do with each pod of the node. do must not change it.
func (p *Pods) All(do func(*corev1.Pod)) {
	for _, object := range p.Local.All(fanin.Every) {
		if pod, ok := object.(*corev1.Pod); ok {
			do(pod)
		}
	}
}

// Requeue looks at the pods of a namespace again: what keeps their data has changed.
func (p *Pods) Requeue(namespace string) {
	for _, pod := range p.Local.All(namespace) {
		p.Outbound.Add(client.ObjectKeyFromObject(pod))
	}
}

// enqueueAll enqueues all pods in both directions.
func (p *Pods) enqueueAll() {
	for _, pod := range p.Local.All(fanin.Every) {
		p.Outbound.Add(client.ObjectKeyFromObject(pod))
		p.Inbound.Add(client.ObjectKeyFromObject(pod))
	}
}

func (p *Pods) enqueueInbound() {
	for _, pod := range p.Local.All(fanin.Every) {
		p.Inbound.Add(client.ObjectKeyFromObject(pod))
	}
}

// retry requeues at once what has failed in a local namespace; "": in all.
func (p *Pods) retry(namespace string) {
	p.Outbound.Retry(namespace)
	p.Inbound.Retry(namespace)
	if p.tokens != nil {
		p.tokens.Retry(namespace)
	}
}

// resumeDelay leaves a resumed watch the time to deliver the events that it has missed.
const resumeDelay = 200 * time.Millisecond

// resumed requeues all pods of a mapping once its watches have resumed: meanwhile Kubernetes may have set them to not Ready.
func (p *Pods) resumed(remote string) {
	mapping := p.engine.Namespaces.Remote(remote)
	if mapping == nil {
		return
	}
	p.retry(mapping.Local)
	for _, pod := range p.Local.All(mapping.Local) {
		key := client.ObjectKeyFromObject(pod)
		p.Inbound.AddAfter(key, resumeDelay)
		if p.finished(key) {
			p.Outbound.AddAfter(key, resumeDelay)
		}
	}
}

func (p *Pods) localChanged(before, after client.Object) {
	old, _ := before.(*corev1.Pod)
	now, _ := after.(*corev1.Pod)
	if now == nil || old != nil && old.UID != now.UID {
		p.rememberForced(old)
		p.mu.Lock()
		delete(p.memories, old.UID)
		p.mu.Unlock()
		if p.tokens != nil {
			p.tokens.Forget(old.UID)
		}
		p.engine.Recorder.Resolved(old)
	}
	if p.options.Referrers != nil {
		p.options.Referrers(before, after)
	}
	key := client.ObjectKeyFromObject(engine.Either(before, after))
	p.Inbound.Add(key)
	if old == nil || now == nil || old.UID != now.UID || intent.Affects(old, now) {
		p.Outbound.Add(key)
		if p.tokens != nil {
			p.tokens.Changed(key)
		}
	}
}

func (p *Pods) shadowChanged(before, after client.Object) {
	object := engine.Either(before, after)
	if fence := object.GetAnnotations()[labels.Fence]; after != nil && fence != "" {
		p.mu.Lock()
		if known := p.memories[types.UID(fence)]; known != nil {
			known.Sent = false
		}
		p.mu.Unlock()
	}
	if after == nil {
		p.forgetDeletion(object)
	}
	if after != nil && isKept(after) {
		p.peerKeeps.Store(true)
	}
	if mapping := p.engine.Namespaces.Remote(object.GetNamespace()); mapping != nil && after == nil {
		mapping.Applier(Kind).Forget(client.ObjectKeyFromObject(object))
	}
	p.enqueueShadow(object, after == nil || before != nil)
	p.arrived(before, after)
	if remote := p.Remote.Get(client.ObjectKeyFromObject(object)); remote != nil && before == nil {
		p.arrived(nil, remote) // without its ShadowPod, it was of no local pod
	}
}

func (p *Pods) remoteChanged(before, after client.Object) {
	object := engine.Either(before, after)
	p.rememberEnd(object) // now: a worker that runs later may find the pod gone already
	mapping := p.engine.Namespaces.Remote(object.GetNamespace())
	if mapping == nil {
		return
	}
	key := types.NamespacedName{Namespace: mapping.Local, Name: object.GetName()}
	p.Inbound.Add(key)
	p.arrived(before, after)
	if after == nil || p.finished(key) {
		p.Outbound.Add(key) // a successor of the same name may be waiting, or the pod must end
	}
}

func (p *Pods) arrived(before, after client.Object) {
	if p.options.Arrived != nil {
		p.options.Arrived(before, after)
	}
}

// finished reports whether the local pod is in a terminal phase.
func (p *Pods) finished(key types.NamespacedName) bool {
	local, _ := p.Local.Get(key).(*corev1.Pod)
	return local != nil && podphase.Final(local.Status.Phase)
}

// enqueueShadow enqueues the local pod of a ShadowPod for the outbound direction, and for the inbound one if that is asked.
func (p *Pods) enqueueShadow(object client.Object, inbound bool) {
	if mapping := p.engine.Namespaces.Remote(object.GetNamespace()); mapping != nil {
		key := types.NamespacedName{Namespace: mapping.Local, Name: object.GetName()}
		p.Outbound.Add(key)
		if inbound {
			p.Inbound.Add(key)
		}
	}
}

// synced starts the first comparison of a mapping once both remote caches are filled.
func (p *Pods) synced(remote string) {
	if mapping := p.engine.Namespaces.Remote(remote); mapping != nil && p.Shadows.Synced(remote) && p.Remote.Synced(remote) {
		go p.compareAll(mapping)
	}
}

// compareAll compares the ShadowPods of the peer with their intents, once per mapping, as reflector.compareAll does. Their status does not wait for that.
func (p *Pods) compareAll(mapping *engine.Mapping) {
	locals := func(then func(types.NamespacedName)) {
		for _, object := range p.Local.All(mapping.Local) {
			then(client.ObjectKeyFromObject(object))
		}
		for _, object := range p.Shadows.All(mapping.Remote) {
			then(types.NamespacedName{Namespace: mapping.Local, Name: object.GetName()})
		}
	}
	locals(p.Inbound.Add)
	err := p.engine.Visit(mapping, p.Shadows, func() client.ObjectList { return &vkv1alpha1.ShadowPodList{} }, func(remote client.Object) error {
		if !p.Local.Synced(fanin.Every) {
			return engine.ErrNotSynced
		}
		local, _ := p.Local.Get(types.NamespacedName{Namespace: mapping.Local, Name: remote.GetName()}).(*corev1.Pod)
		if local == nil || remote.GetAnnotations()[labels.Fence] != string(local.UID) {
			return nil
		}
		full, ok := remote.(*vkv1alpha1.ShadowPod)
		if !ok {
			return nil
		}
		want, err := p.intent(mapping, asApplied(local, full), p.comparedPolicy(mapping, local, full))
		if err != nil {
			return err
		}
		held, err := intent.Recall(mapping.Applier(Kind), want, full)
		if err == nil && !held {
			err = intent.RecallAmended(mapping.Applier(Kind), want, full)
		}
		return err
	})
	if err != nil {
		return // the mapping was stopped
	}
	if mapping.Context.Err() == nil {
		mapping.SetCompared(Kind)
	}
	locals(func(key types.NamespacedName) {
		p.Outbound.Add(key)
		p.Inbound.Add(key) // what vanished is reported only now
	})
}
