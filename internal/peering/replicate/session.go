// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

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
)

// session is the time from a peer's answer to its next silence: a client, and a cache of our tenant namespace there.
type session struct {
	link      *link
	client    client.WithWatch
	namespace string
	there     *ssa.Applier
	cache     cache.Cache
	filled    atomic.Bool
	life      context.Context
	end       context.CancelFunc
}

// newSession is called with the link locked.
func newSession(l *link) *session {
	s := &session{link: l, client: l.connection.Client(), namespace: l.connection.Namespace()}
	s.there = ssa.NewApplier(s.client, labels.OwnerReplicate)
	s.life, s.end = context.WithCancel(l.life)
	return s
}

// name is what the copy is called.
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
	desk := s.link.desk
	// Asked before the cache does, because the cache pauses long after a refusal.
	scheme := desk.r.mgr.GetScheme()
	for _, kind := range desk.r.kinds {
		list, err := kind.untypedList(scheme)
		if err != nil {
			return err
		}
		if err := s.client.List(s.life, list, client.InNamespace(s.namespace), client.Limit(1)); err != nil {
			return err
		}
	}
	made, err := cache.New(s.link.connection.Config(), cache.Options{
		HTTPClient: s.link.connection.HTTPClient(), Mapper: s.link.connection.Mapper(), Scheme: scheme,
		DefaultNamespaces: map[string]cache.Config{s.namespace: {}},
		DefaultTransform:  kubemanager.Trim,
		// Never filled by accident: what is not listed in the catalog may not be read there.
		ReaderFailOnMissingInformer: true,
		DefaultWatchErrorHandler:    s.interrupted,
	})
	if err != nil {
		return err
	}
	var filled []toolscache.DoneChecker
	for i, kind := range desk.r.kinds {
		object, err := kind.untyped(scheme)
		if err != nil {
			return err
		}
		informer, err := made.GetInformer(s.life, object, cache.BlockUntilSynced(false))
		if err != nil {
			return err
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { s.seen(i, object) },
			UpdateFunc: func(_, object any) { s.seen(i, object) },
			DeleteFunc: func(object any) { s.seen(i, object) },
		}); err != nil {
			return err
		}
		filled = append(filled, informer.HasSyncedChecker())
	}
	go func() {
		// The cache's own WaitForCacheSync looks every 100 ms, which would be most of the time that a new link takes.
		if !toolscache.WaitFor(s.life, "", filled...) {
			return
		}
		s.cache = made
		s.filled.Store(true)
		s.link.complain("")
		desk.log.V(1).Info("objects at the peer are known")
		s.lookAtAll()
	}()
	return made.Start(s.life)
}

// lookAtAll puts all objects into the queue, those here and those there.
func (s *session) lookAtAll() {
	desk := s.link.desk
	desk.look(s.life, s.link.namespace, true)
	for i, kind := range desk.r.kinds {
		list, err := kind.untypedList(desk.r.mgr.GetScheme())
		if err != nil {
			continue // run would have failed before
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
	if object, ok := event.(client.Object); ok && s.filled.Load() {
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
