// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/kube/ssa"
)

// The rights of a new tenant take a moment to be known to the authorizer over there.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = 2 * time.Second
	// absentPause is between two looks for a kind that the provider does not know or does not let us read.
	absentPause = 30 * time.Second
)

// session is the time from a peer's answer to its next silence: a client, and a cache of our tenant namespace there.
type session struct {
	link      *link
	client    client.WithWatch
	namespace string
	there     *ssa.Applier
	cache     cache.Cache
	// filled: all kinds that every provider has are known; known says it of each kind.
	filled atomic.Bool
	known  []atomic.Bool
	life   context.Context
	end    context.CancelFunc
}

// newSession is called with the link locked.
func newSession(l *link) *session {
	s := &session{link: l, client: l.connection.Client(), namespace: l.connection.Namespace(), known: make([]atomic.Bool, len(l.desk.r.kinds))}
	s.there = ssa.NewApplier(s.client, labels.OwnerReplicate)
	s.life, s.end = context.WithCancel(l.life)
	return s
}

// knowing is the session if it knows the provider's objects of a kind, else nil. It is safe on a session that is not there.
func (s *session) knowing(kind int) *session {
	if s == nil || !s.known[kind].Load() {
		return nil
	}
	return s
}

// name is what the object is called there.
func (s *session) name(k key) client.ObjectKey {
	return client.ObjectKey{Namespace: s.namespace, Name: k.name.Name}
}

// close is safe on a session that is not there. It does not wait: run may be about to hand something to the worker.
func (s *session) close() {
	if s != nil {
		s.end()
	}
}

// run fills the cache and keeps it until the session ends.
func (s *session) run() {
	defer s.end()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := s.follow()
		if err == nil || s.life.Err() != nil {
			return
		}
		s.link.suspect(err)
		s.link.desk.log.Info("objects at the peer cannot be watched", "reason", err.Error())
		if pause >= lastPause { // it is not that a new right has not got around yet
			s.link.complain("the provider's API server answers, but does not let us read our requests there: " + shortest(err))
		}
		select {
		case <-time.After(pause):
		case <-s.life.Done():
			return
		}
	}
}

func (s *session) follow() error {
	ctx, cancel := context.WithCancel(s.life)
	defer cancel()
	kinds := s.link.desk.r.kinds
	// Asked before the cache does, because the cache pauses long after a refusal.
	for i, kind := range kinds {
		if kind.optional {
			continue
		}
		if err := s.ask(ctx, i); err != nil {
			return err
		}
	}
	made, err := cache.New(s.link.connection.Config(), cache.Options{
		HTTPClient: s.link.connection.HTTPClient(), Mapper: s.link.connection.Mapper(), Scheme: s.link.desk.r.mgr.GetScheme(),
		DefaultNamespaces: map[string]cache.Config{s.namespace: {}},
		DefaultTransform:  kubemanager.Trim,
		// Never filled by accident: what is not listed in the catalog may not be read there.
		ReaderFailOnMissingInformer: true,
		DefaultWatchErrorHandler:    s.interrupted,
	})
	if err != nil {
		return err
	}
	s.cache = made
	var filled []toolscache.DoneChecker
	for i, kind := range kinds {
		if kind.optional {
			continue
		}
		known, err := s.watch(ctx, made, i)
		if err != nil {
			return err
		}
		filled = append(filled, known)
	}
	go func() {
		// The cache's own WaitForCacheSync looks every 100 ms, which would be most of the time that a new link takes.
		if !toolscache.WaitFor(ctx, "", filled...) {
			return
		}
		for i, kind := range kinds {
			if !kind.optional {
				s.known[i].Store(true)
			}
		}
		s.filled.Store(true)
		s.link.complain("")
		s.link.desk.log.V(1).Info("objects at the peer are known")
		s.lookAtAll()
	}()
	for i, kind := range kinds {
		if kind.optional {
			go s.await(ctx, made, i)
		}
	}
	return made.Start(ctx)
}

// ask tells whether the objects of a kind can be listed.
func (s *session) ask(ctx context.Context, kind int) error {
	list, err := s.link.desk.r.kinds[kind].untypedList(s.link.desk.r.mgr.GetScheme())
	if err != nil {
		return err
	}
	return s.client.List(ctx, list, client.InNamespace(s.namespace), client.Limit(1))
}

// watch begins to fill the cache with the objects of a kind.
func (s *session) watch(ctx context.Context, made cache.Cache, kind int) (filled toolscache.DoneChecker, err error) {
	object, err := s.link.desk.r.kinds[kind].untyped(s.link.desk.r.mgr.GetScheme())
	if err != nil {
		return nil, err
	}
	informer, err := made.GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { s.seen(kind, object) },
		UpdateFunc: func(_, object any) { s.seen(kind, object) },
		DeleteFunc: func(object any) { s.seen(kind, object) },
	}); err != nil {
		return nil, err
	}
	return informer.HasSyncedChecker(), nil
}

// await looks for a kind that a provider need not have, and watches it from when it has. Nothing else waits for that.
func (s *session) await(ctx context.Context, made cache.Cache, kind int) {
	desk := s.link.desk
	for pause := firstPause; ; pause = min(2*pause, absentPause) {
		err := s.ask(ctx, kind)
		if err == nil {
			var filled toolscache.DoneChecker
			if filled, err = s.watch(ctx, made, kind); err == nil {
				if toolscache.WaitFor(ctx, "", filled) {
					s.known[kind].Store(true)
					s.lookAtAll()
				}
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
		if !apimeta.IsNoMatchError(err) {
			s.link.suspect(err)
		}
		desk.log.V(1).Info("a kind cannot be read at the peer", "kind", desk.r.kinds[kind].name, "reason", err.Error())
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// lookAtAll puts all objects into the queue, those here and those there.
func (s *session) lookAtAll() {
	desk := s.link.desk
	desk.look(s.life, s.link.namespace, true)
	for i, kind := range desk.r.kinds {
		list, err := kind.untypedList(desk.r.mgr.GetScheme())
		if err != nil || !s.known[i].Load() {
			continue // run would have failed before, or there is nothing yet
		}
		if err := s.cache.List(s.life, list, client.InNamespace(s.namespace)); err == nil {
			eachItem(list, func(object client.Object) { s.seen(i, object) })
		}
	}
}

// seen puts the local object of a copy into the queue.
func (s *session) seen(kind int, event any) {
	if unseen, ok := event.(toolscache.DeletedFinalStateUnknown); ok {
		event = unseen.Obj
	}
	if object, ok := event.(client.Object); ok && s.known[kind].Load() {
		s.link.desk.queue.Add(key{kind: kind, name: types.NamespacedName{Namespace: s.link.namespace, Name: object.GetName()}})
	}
}

// interrupted hears of a watch that broke. The cache resumes by itself; whether the peer is gone, a probe tells.
func (s *session) interrupted(_ context.Context, _ *toolscache.Reflector, err error) {
	if s.life.Err() == nil {
		s.link.desk.log.V(1).Info("watch at the peer broke", "reason", err.Error())
		s.link.suspect(err)
	}
}

// shortest keeps the words of an API server within what a condition should hold.
func shortest(err error) string {
	text := strings.ToValidUTF8(err.Error(), "")
	if len(text) > mostText {
		return short(text) + " ..."
	}
	return text
}
