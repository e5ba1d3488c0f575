// SPDX-License-Identifier: Apache-2.0

// Package replicate copies the objects of a peering that a consumer keeps for a provider into its tenant namespace
// there, and brings their status back: spec there, status back. Only the consumer dials (docs/adr/0010-one-way-control-plane.md),
// so of kinds that both clusters write for each other it carries the provider's, too: spec here, status there.
// Each peer has goroutines, a queue and a cache of its own, so that a slow or dead one delays no other.
//
// It must not know how an identity is obtained, nor what the objects mean: catalog.go lists the kinds. Its proof is
// replicate_test.go, against two real API servers.
//
//	catalog.go        which kinds, and what of them crosses
//	decide.go         labels of the copy, deadlines
//	replicator.go     all peers; events of local objects
//	desk.go           one peer: its queue, and what is done with one object
//	fetch.go          one object of the provider that is addressed to us
//	ending.go         an object on its way out
//	link.go           the connection: probes, state
//	session.go        its cache
//	untyped.go        what the provider says, looked at before it is understood
package replicate

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/kube/ssa"
)

// Finalizers are patched on the object, the provider's answer on its status.
// +kubebuilder:rbac:groups=sharing.liqo.io,resources=resourceslices,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=sharing.liqo.io,resources=resourceslices/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// +kubebuilder:rbac:groups=virtualkubelet.liqo.io,resources=namespacemaps,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=virtualkubelet.liqo.io,resources=namespacemaps/status,verbs=patch

// What a peer tells of its network is written down in its tenant namespace only.
// +kubebuilder:rbac:groups=net.liqo.io,resources=networkconfigs,verbs=get;list;watch
// +kubebuilder:rbac:namespace=liqo-tenant,groups=net.liqo.io,resources=networkconfigs,verbs=create;patch;delete
// +kubebuilder:rbac:namespace=liqo-tenant,groups=net.liqo.io,resources=networkconfigs/status,verbs=patch

const (
	probeInterval = 15 * time.Second
	probeTimeout  = 5 * time.Second
	retryInterval = 2 * time.Second
)

// Peer is a provider and how it is reached.
type Peer struct {
	ClusterID string
	// LocalNamespace is the tenant namespace in this cluster: only objects in it are copied.
	LocalNamespace string
	Identity       remote.Identity
}

// Options is what differs between the replicator of a cluster and one in a test.
type Options struct {
	LocalClusterID string
	// Network: the clusters tell each other about their networks.
	Network bool
	// ProbeInterval and ProbeTimeout default to 15 s and 5 s; RetryInterval, between probes of a peer that is not ready, to 2 s.
	ProbeInterval, ProbeTimeout, RetryInterval time.Duration
	// Now is the clock of deadlines; by default that of the system.
	Now func() time.Time
}

func (o *Options) complete() {
	for value, fallback := range map[*time.Duration]time.Duration{
		&o.ProbeInterval: probeInterval, &o.ProbeTimeout: probeTimeout, &o.RetryInterval: retryInterval,
	} {
		if *value == 0 {
			*value = fallback
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// Replicator keeps the links to all peers.
type Replicator struct {
	options Options
	kinds   []kind
	mgr     manager.Manager
	// here reads the manager's cache and writes; live asks our own API server.
	here   client.Client
	live   client.Reader
	own    *ssa.Applier // writes here
	events recorder.EventRecorder

	changes changes
	// life ends with Start; what is asked for before Start works, too.
	life context.Context
	end  context.CancelFunc

	mu      sync.Mutex
	desks   map[string]*desk
	working sync.WaitGroup
}

// New adds a replicator to the manager.
func New(mgr manager.Manager, o Options) (*Replicator, error) {
	if o.LocalClusterID == "" {
		return nil, fmt.Errorf("a replicator needs the cluster ID of its own cluster")
	}
	o.complete()
	r := &Replicator{
		options: o, kinds: catalog(o), mgr: mgr,
		here: mgr.GetClient(), live: mgr.GetAPIReader(), own: ssa.NewApplier(mgr.GetClient(), labels.OwnerReplicate),
		events: mgr.GetEventRecorder(labels.OwnerReplicate),
		desks:  map[string]*desk{},
	}
	r.life, r.end = context.WithCancel(context.Background())
	return r, mgr.Add(r)
}

// NeedLeaderElection makes one replica talk to the peers.
func (r *Replicator) NeedLeaderElection() bool { return true }

// Start runs until ctx ends.
func (r *Replicator) Start(ctx context.Context) error {
	defer func() {
		r.mu.Lock()
		r.end()
		r.mu.Unlock()
		r.working.Wait()
	}()
	for i, kind := range r.kinds {
		informer, err := r.mgr.GetCache().GetInformer(ctx, kind.object())
		if err != nil {
			return fmt.Errorf("watch %s: %w", kind.name, err)
		}
		registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { r.seen(i, object) },
			UpdateFunc: func(_, object any) { r.seen(i, object) },
			DeleteFunc: func(object any) { r.seen(i, object) },
		})
		if err != nil {
			return fmt.Errorf("watch %s: %w", kind.name, err)
		}
		defer func() { _ = informer.RemoveEventHandler(registration) }()
	}
	<-ctx.Done()
	return nil
}

// seen hands an event to the desk of its peer.
func (r *Replicator) seen(kind int, event any) {
	if unseen, ok := event.(toolscache.DeletedFinalStateUnknown); ok {
		event = unseen.Obj
	}
	object, ok := event.(client.Object)
	if !ok {
		return
	}
	id, ours := peerOf(object)
	if !ours && !r.kinds[kind].mutual {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var desk *desk
	if ours {
		desk = r.desk(id)
	} else {
		desk = r.linked(object.GetNamespace())
	}
	if desk != nil {
		desk.queue.Add(key{kind: kind, name: client.ObjectKeyFromObject(object)})
	}
}

// linked finds the desk of the peer whose tenant namespace it is, if there is a link. What labels of a copy say may be the
// peer's wish. r.mu is held.
func (r *Replicator) linked(namespace string) *desk {
	for _, d := range r.desks {
		if l := d.current(); l != nil && l.namespace == namespace {
			return d
		}
	}
	return nil
}

// desk returns the desk of a peer, connected or not: objects must end also if there is no link. r.mu is held. It is
// nil once the replicator ends.
func (r *Replicator) desk(id string) *desk {
	if r.life.Err() != nil {
		return nil
	}
	d, ok := r.desks[id]
	if !ok {
		d = newDesk(r, id)
		r.desks[id] = d
		r.working.Go(d.run)
	}
	return d
}

// Connect opens the link to a peer, or takes a changed identity over: a new token without interruption, a new
// address by connecting again. It sends nothing itself and may be called as often as one likes.
func (r *Replicator) Connect(_ context.Context, p Peer) error {
	if p.ClusterID == "" || p.LocalNamespace == "" {
		return fmt.Errorf("a peer needs a cluster ID and a tenant namespace, got %q and %q", p.ClusterID, p.LocalNamespace)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.desk(p.ClusterID)
	if d == nil {
		return context.Canceled
	}
	if old := d.current(); old != nil {
		if old.namespace == p.LocalNamespace {
			return old.update(p.Identity)
		}
		d.unplug()
	}
	connection, err := remote.NewConnection(p.Identity, r.mgr.GetScheme())
	if err != nil {
		return fmt.Errorf("connect to peer %s: %w", p.ClusterID, err)
	}
	d.plug(newLink(d, p, connection))
	r.changes.tell(p.ClusterID)
	return nil
}

// Disconnect closes the link. Nothing is deleted, here or there.
func (r *Replicator) Disconnect(clusterID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d, ok := r.desks[clusterID]; ok && d.unplug() {
		r.changes.tell(clusterID)
	}
}

// State tells how the link to a peer stands.
func (r *Replicator) State(clusterID string) State {
	r.mu.Lock()
	d, ok := r.desks[clusterID]
	r.mu.Unlock()
	if !ok {
		return State{}
	}
	link := d.current()
	if link == nil {
		return State{}
	}
	return link.State()
}

// Changed returns a new subscription: the cluster ID of each peer whose state changed. It is made for source.Channel.
func (r *Replicator) Changed() <-chan event.TypedGenericEvent[string] {
	return r.changes.subscribe(r.life)
}

// key names one object of one kind.
type key struct {
	kind int
	name types.NamespacedName
}
