// SPDX-License-Identifier: Apache-2.0

// Package engine is what all loops of the reflection to one peer share: the clients of both clusters, the offloaded namespaces with their
// remote ones, the workers, the events and the metrics.
//
//	NamespaceMap ──► Namespaces ──► Start, Freeze, Stop of each loop, namespace by namespace    namespaces.go
//	keys of the loops' queues ──► their workers, paused while the peer is unreachable           engine.go
//
// It does not know what a loop reflects. A loop is a value of Loop, which the packages objects, pods and tokens make. An object counts as absent only while its
// namespace is being watched; stopping a mapping or the process deletes nothing. The tests of package reflection cover it.
package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/internal/kube/fairqueue"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/offloading/reflection/events"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

var (
	// ErrNotSynced means that a cache is not filled yet, or does not follow its API server at the moment.
	ErrNotSynced = errors.New("a cache is not synced yet")
	// ErrUnmanaged means that the peer has an object of that name which is not ours.
	ErrUnmanaged = errors.New("an object of that name exists in the remote cluster and is not managed by this one; rename or delete one of the two")
)

// Options of an engine.
type Options struct {
	// Namespace is the tenant namespace of the peer, NamespaceMap the name of the object in it that lists the namespaces offloaded to the peer.
	Namespace, NamespaceMap string
	// Mapping holds the identities of the two clusters. Its namespaces are empty.
	Mapping project.NamespaceMapping
	// RemoteName is the name of the peer, for metrics and events.
	RemoteName string
}

// Engine runs the loops of the reflection to one peer.
type Engine struct {
	// Local is the client of this cluster.
	Local client.WithWatch
	// Remote is the client of the peer, and whether the peer is reachable.
	Remote     *remote.Access
	Namespaces *Namespaces
	Recorder   *events.Recorder
	Log        logr.Logger

	options  Options
	statuses *rate.Limiter // see SpendStatus
	// mu is held while loops are added, paused and resumed.
	mu sync.Mutex
	// loops is replaced, and never changed.
	loops   atomic.Pointer[[]*Loop]
	running context.Context // nil before Run
	working sync.WaitGroup
}

// Loop reflects something of each offloaded namespace. Functions that it does not need are nil.
type Loop struct {
	// Name is the kind of its objects, in metrics, logs and events. Loops of one name share an applier.
	Name string
	// Workers process the keys of Queue, which are local objects. Process returns after how long to process the key again, 0: on the next event. A loop without
	// Queue has no workers.
	Workers int
	Queue   *fairqueue.Queue
	Process func(context.Context, types.NamespacedName) (time.Duration, error)
	// Inbound: the workers write to this cluster, so that they also work while the peer is unreachable.
	Inbound bool
	// Run does what else the loop does, until ctx ends.
	Run func(context.Context)
	// Start is called when a namespace is mapped, Freeze when its remote namespace is being deleted: nothing is written there any more. Stop is called when the
	// mapping ends.
	Start, Freeze, Stop func(*Mapping)
	// Changed is called when the NamespaceMap has changed, after Start and Stop.
	Changed func()
	// PolicyChanged is called when Mapping.APIServer has changed, ReferencesChanged when Mapping.ReferencedOnly has.
	PolicyChanged, ReferencesChanged func(*Mapping)
	// Reachable is called for each mapping when the peer has become reachable, Unreachable once when it has become unreachable.
	Reachable   func(*Mapping)
	Unreachable func()
	// Translate looks at all addresses again.
	Translate func()
	// Reflected returns how many objects of ours the peer has in a namespace, according to the caches.
	Reflected func(*Mapping) int
}

// New returns an engine without loops.
func New(local client.WithWatch, access *remote.Access, o Options) *Engine {
	e := &Engine{
		Local: local, Remote: access, Recorder: events.NewRecorder(local, o.Mapping.NodeName, o.RemoteName), Log: log.Log.WithName("reflection"),
		options: o, statuses: newStatusBudget(),
	}
	e.Namespaces = newNamespaces(e)
	return e
}

// RemoteName is the name of the peer.
func (e *Engine) RemoteName() string { return e.options.RemoteName }

// Identities returns the identities of the two clusters.
func (e *Engine) Identities() project.NamespaceMapping { return e.options.Mapping }

// Add adds a loop. Namespaces start and stop in the order of the loops. One that is added while the engine runs has to start the mappings that exist already.
func (e *Engine) Add(l *Loop) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l.Queue != nil && !l.Inbound && !e.Remote.Reachable() {
		l.Queue.Pause()
	}
	e.loops.Store(new(append(slices.Clip(e.all()), l)))
	if e.running != nil {
		e.start(l)
	}
}

func (e *Engine) all() []*Loop {
	if all := e.loops.Load(); all != nil {
		return *all
	}
	return nil
}

// start starts the workers of a loop, unless the engine has ended. The lock is held.
func (e *Engine) start(l *Loop) {
	if e.running.Err() != nil {
		return
	}
	for range l.Workers {
		e.working.Go(func() { e.work(e.running, l) })
	}
	if l.Run != nil {
		e.working.Go(func() { l.Run(e.running) })
	}
}

// Run reflects until ctx ends. Stopping deletes nothing.
func (e *Engine) Run(ctx context.Context) error {
	e.mu.Lock()
	e.running = ctx
	for _, l := range e.all() {
		e.start(l)
	}
	e.mu.Unlock()
	defer registered().observe(e)()
	e.working.Go(func() { e.Recorder.Run(ctx) })
	e.Namespaces.run(ctx)
	<-ctx.Done()
	e.mu.Lock() // no loop is added any more
	for _, q := range e.Queues() {
		q.Close()
	}
	e.mu.Unlock()
	e.working.Wait()
	return nil
}

// work processes the keys of a loop until its queue is closed.
func (e *Engine) work(ctx context.Context, l *Loop) {
	l.Queue.Work(func(key types.NamespacedName) (time.Duration, error) {
		wait, err := l.Process(ctx, key)
		switch {
		case err == nil:
		case ctx.Err() != nil || errors.Is(err, context.Canceled) || errors.Is(err, ErrNotSynced) || errors.Is(err, remote.ErrUnreachable):
		default:
			e.CountFailure(key.Namespace, l.Name)
			log.FromContext(ctx).V(1).Info("object not reflected; it is retried", "kind", l.Name, "object", key, "reason", err.Error())
		}
		return wait, err
	})
}

// Queues returns the queues of all loops.
func (e *Engine) Queues() (all []*fairqueue.Queue) {
	for _, l := range e.all() {
		if l.Queue != nil {
			all = append(all, l.Queue)
		}
	}
	return all
}

// SetConnection records the connection to the peer and whether the peer is reachable. While it is not, the outbound queues are paused; once it is, they
// retry at once whatever has failed.
func (e *Engine) SetConnection(connection *remote.Connection, reachable bool) {
	e.mu.Lock()
	changed, err := e.Remote.Set(connection, reachable)
	if changed {
		for _, l := range e.all() {
			switch {
			case l.Queue == nil || l.Inbound:
			case reachable:
				l.Queue.Resume()
			default:
				l.Queue.Pause()
			}
		}
	}
	e.mu.Unlock()
	if err != nil {
		e.Log.Error(err, "could not create the client of the remote cluster: nothing is reflected")
	}
	if !changed {
		return
	}
	for _, l := range e.all() {
		if !reachable && l.Unreachable != nil {
			l.Unreachable()
		}
		if reachable && l.Reachable != nil {
			e.Namespaces.Each(l.Reachable)
		}
	}
}

// TranslationChanged makes the loops translate all addresses again.
func (e *Engine) TranslationChanged() {
	for _, l := range e.all() {
		if l.Translate != nil {
			l.Translate()
		}
	}
}
