// SPDX-License-Identifier: Apache-2.0

// Package replicate copies the objects of a peering from the consumer to its tenant namespace in the provider, and copies
// their status back. Only the consumer dials (docs/adr/0010-one-way-control-plane.md). So for kinds that both clusters
// write for each other, it also copies the provider's objects to the consumer, and their status to the provider.
// Each peer has its own goroutines, queue and cache, so that a slow or dead peer delays no other.
//
// It must not know how an identity is obtained, nor what the objects mean: package kinds decides which there are and what of them is carried. The proof is
// replicate_test.go, against two real API servers.
//
//	replicator.go     all peers; events of local objects
//	worker.go         one peer: its queue, and the reconciliation of one object
//	fetch.go          one object of the provider that is addressed to us
//	ending.go         an object that is being deleted
//	deadline.go       how long that waits for the provider
//	connection.go     the connection: probes, state
//	peercache.go      the cache of the provider's objects
//	reader.go         reads for other controllers, without a cache
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
	"liqo.io/liqo/internal/kube/informer"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/peering/replicate/changes"
	"liqo.io/liqo/internal/peering/replicate/kinds"
)

// Finalizers are patched on the object, the provider's answer on its status.
// +kubebuilder:rbac:groups=sharing.liqo.io,resources=resourceslices,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=sharing.liqo.io,resources=resourceslices/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// +kubebuilder:rbac:groups=virtualkubelet.liqo.io,resources=namespacemaps,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=virtualkubelet.liqo.io,resources=namespacemaps/status,verbs=patch

// NetworkConfigs of peers are copied into their tenant namespaces only.
// +kubebuilder:rbac:groups=net.liqo.io,resources=networkconfigs,verbs=get;list;watch
// +kubebuilder:rbac:namespace=liqo-tenant,groups=net.liqo.io,resources=networkconfigs,verbs=create;patch;delete
// +kubebuilder:rbac:namespace=liqo-tenant,groups=net.liqo.io,resources=networkconfigs/status,verbs=patch

const (
	probeInterval = 15 * time.Second
	probeTimeout  = 5 * time.Second
	retryInterval = 2 * time.Second
)

// Peer is a provider and our identity there.
type Peer struct {
	ClusterID string
	// LocalNamespace is the tenant namespace in this cluster: only objects in it are copied.
	LocalNamespace string
	Identity       remote.Identity
}

// Options configure a replicator.
type Options struct {
	LocalClusterID string
	// Network: the clusters exchange NetworkConfigs.
	Network bool
	// ProbeInterval and ProbeTimeout default to 15 s and 5 s; RetryInterval, between probes of a peer that is not ready, to 2 s.
	ProbeInterval, ProbeTimeout, RetryInterval time.Duration
	// PeerBytes bounds what is cached of the objects of one peer, as JSON. 0: 16 MiB.
	PeerBytes int
	// Now is the clock of deadlines and rate limits. Nil means the system clock.
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
	if o.PeerBytes == 0 {
		o.PeerBytes = peerBytes
	}
}

// Replicator holds the connections to all peers.
type Replicator struct {
	options Options
	kinds   []kinds.Kind
	mgr     manager.Manager
	// client writes, and reads from the manager's cache; live reads from our API server.
	client  client.Client
	live    client.Reader
	applier *ssa.Applier // of objects in this cluster
	events  recorder.EventRecorder

	changes changes.Feed
	// life ends with Start. Connect works before Start.
	life context.Context
	end  context.CancelFunc

	mu      sync.Mutex
	workers map[string]*worker
	working sync.WaitGroup
}

// New adds a replicator to the manager.
func New(mgr manager.Manager, o Options) (*Replicator, error) {
	if o.LocalClusterID == "" {
		return nil, fmt.Errorf("a replicator needs the cluster ID of its own cluster")
	}
	o.complete()
	r := &Replicator{
		options: o, kinds: kinds.All(o.Network), mgr: mgr,
		client: mgr.GetClient(), live: mgr.GetAPIReader(), applier: ssa.NewApplier(mgr.GetClient(), labels.OwnerReplicate),
		events:  mgr.GetEventRecorder(labels.OwnerReplicate),
		workers: map[string]*worker{},
	}
	r.life, r.end = context.WithCancel(context.Background())
	return r, mgr.Add(r)
}

// NeedLeaderElection: only one replica connects to the peers.
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
		informer, err := r.mgr.GetCache().GetInformer(ctx, kind.Object())
		if err != nil {
			return fmt.Errorf("watch %s: %w", kind.Name, err)
		}
		registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { r.enqueue(i, object) },
			UpdateFunc: func(_, object any) { r.enqueue(i, object) },
			DeleteFunc: func(object any) { r.enqueue(i, object) },
		})
		if err != nil {
			return fmt.Errorf("watch %s: %w", kind.Name, err)
		}
		defer func() { _ = informer.RemoveEventHandler(registration) }()
	}
	<-ctx.Done()
	return nil
}

// enqueue adds the object of an event to the queue of its peer.
func (r *Replicator) enqueue(kind int, event any) {
	object, ok := informer.Object(event).(client.Object)
	if !ok {
		return
	}
	id, ours := kinds.PeerOf(object)
	if !ours && !r.kinds[kind].Mutual {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var w *worker
	if ours {
		w = r.worker(id)
	} else {
		w = r.workerOf(object.GetNamespace())
	}
	if w != nil {
		w.queue.Add(key{kind: kind, name: client.ObjectKeyFromObject(object)})
	}
}

// workerOf returns the worker of the connected peer with this tenant namespace, or nil. It ignores labels: the peer
// chooses those of its copies. r.mu is held.
func (r *Replicator) workerOf(namespace string) *worker {
	for _, w := range r.workers {
		if c := w.current(); c != nil && c.namespace == namespace {
			return w
		}
	}
	return nil
}

// worker returns the worker of a peer, connected or not: deleted objects need one without a connection as well. It
// returns nil once the replicator ends. r.mu is held.
func (r *Replicator) worker(id string) *worker {
	if r.life.Err() != nil {
		return nil
	}
	w, ok := r.workers[id]
	if !ok {
		w = newWorker(r, id)
		r.workers[id] = w
		r.working.Go(w.run)
	}
	return w
}

// Connect opens the connection to a peer, or updates its identity: a new token without interruption, a new address by
// connecting again. It is idempotent and sends nothing before it returns.
func (r *Replicator) Connect(_ context.Context, p Peer) error {
	if p.ClusterID == "" || p.LocalNamespace == "" {
		return fmt.Errorf("a peer needs a cluster ID and a tenant namespace, got %q and %q", p.ClusterID, p.LocalNamespace)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.worker(p.ClusterID)
	if w == nil {
		return context.Canceled
	}
	if old := w.current(); old != nil {
		if old.namespace == p.LocalNamespace {
			return old.update(p.Identity)
		}
		w.disconnect()
	}
	connection, err := remote.NewConnection(p.Identity, r.mgr.GetScheme())
	if err != nil {
		return fmt.Errorf("connect to peer %s: %w", p.ClusterID, err)
	}
	w.connect(newConnection(w, p, connection))
	r.changes.Notify(p.ClusterID)
	return nil
}

// Disconnect closes the connection. It deletes no object in either cluster.
func (r *Replicator) Disconnect(clusterID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w, ok := r.workers[clusterID]; ok && w.disconnect() {
		w.queue.Add(look)
		r.changes.Notify(clusterID)
	}
}

// retire ends a worker that has nothing to do, and reports whether it has. The next object of its peer starts another one: clusters that come and go
// leave nothing behind.
func (r *Replicator) retire(w *worker) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !w.idle() {
		return false
	}
	delete(r.workers, w.id)
	w.queue.ShutDown()
	return true
}

// State returns the state of the connection to a peer; the zero value if there is none.
func (r *Replicator) State(clusterID string) State {
	r.mu.Lock()
	w, ok := r.workers[clusterID]
	r.mu.Unlock()
	if !ok {
		return State{}
	}
	conn := w.current()
	if conn == nil {
		return State{}
	}
	return conn.State()
}

// Changed returns a new subscription to the cluster IDs of peers whose state changed, for source.Channel.
func (r *Replicator) Changed() <-chan event.TypedGenericEvent[string] {
	return r.changes.Subscribe(r.life)
}

// key names one object of one kind.
type key struct {
	kind int
	name types.NamespacedName
}
