// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// source is one kind of one cluster.
type source struct {
	cluster   string
	resource  schema.GroupVersionResource
	namespace string // empty: all
	options   metav1.ListOptions
	client    dynamic.Interface
	tell      func(Fact)

	known   map[string]*Pod // by UID
	version string          // up to which nothing was missed
	seen    time.Time       // when that was
}

// watchFor bounds a watch, so that a connection that died in silence is found out.
const watchFor = 60

func connect(kubeconfig string) (dynamic.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	config.QPS, config.Burst, config.WarningHandler = -1, 0, rest.NoWarnings{}
	return dynamic.NewForConfig(config)
}

// follow watches for as long as the context lasts. A watch that ended goes on from the version it had come to, so that nothing is
// missed; if the API server does not know that version any more, what is there is listed, and the gap is written down.
func (s *source) follow(ctx context.Context) {
	s.known = map[string]*Pod{}
	why := ""
	for ctx.Err() == nil {
		if s.version == "" {
			if err := s.list(ctx, why); err != nil {
				why = err.Error()
				pause(ctx)
				continue
			}
		}
		err := s.watch(ctx)
		switch {
		case apierrors.IsGone(err) || apierrors.IsResourceExpired(err):
			s.version, why = "", err.Error()
		case err != nil:
			pause(ctx)
		}
	}
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(250 * time.Millisecond):
	}
}

func (s *source) api() dynamic.ResourceInterface {
	if s.namespace == "" {
		return s.client.Resource(s.resource)
	}
	return s.client.Resource(s.resource).Namespace(s.namespace)
}

func (s *source) list(ctx context.Context, why string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	all, err := s.api().List(ctx, s.options)
	if err != nil {
		return err
	}
	if !s.seen.IsZero() {
		s.tell(Fact{Cluster: s.cluster, Gap: &Gap{Kind: s.resource.Resource, Since: s.seen, Why: why}})
	}
	there := map[string]bool{}
	for i := range all.Items {
		there[string(all.Items[i].GetUID())] = true
		if err := s.take(&all.Items[i], false); err != nil {
			return err
		}
	}
	for uid, last := range s.known {
		if !there[uid] {
			delete(s.known, uid)
			s.tell(Fact{Cluster: s.cluster, Pod: last, Gone: true})
		}
	}
	s.version, s.seen = all.GetResourceVersion(), now()
	return nil
}

func (s *source) take(object *unstructured.Unstructured, gone bool) error {
	seen, err := pod(s.cluster, object)
	if err != nil {
		return err
	}
	if s.known[seen.UID] = seen; gone {
		delete(s.known, seen.UID)
	}
	s.tell(Fact{Cluster: s.cluster, Pod: seen, Gone: gone})
	return nil
}

func (s *source) watch(ctx context.Context) error {
	options := s.options
	seconds := int64(watchFor)
	options.ResourceVersion, options.AllowWatchBookmarks, options.TimeoutSeconds = s.version, true, &seconds
	ctx, cancel := context.WithTimeout(ctx, (watchFor+10)*time.Second)
	defer cancel()
	stream, err := s.api().Watch(ctx, options)
	if err != nil {
		return err
	}
	defer stream.Stop()
	for event := range stream.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		object, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			return errors.New("the watch sent no object")
		}
		if event.Type != watch.Bookmark {
			if err := s.take(object, event.Type == watch.Deleted); err != nil {
				return err
			}
		}
		s.version, s.seen = object.GetResourceVersion(), now()
	}
	return nil
}

// now lists what is there, apart from what is followed.
func (s *source) now(ctx context.Context) ([]Fact, error) {
	all, err := s.api().List(ctx, s.options)
	if err != nil {
		return nil, err
	}
	if all.GetResourceVersion() == "" {
		return nil, apierrors.NewGenericServerResponse(http.StatusServiceUnavailable, "list", s.resource.GroupResource(), "", "no version", 0, true)
	}
	var facts []Fact
	for i := range all.Items {
		seen, err := pod(s.cluster, &all.Items[i])
		if err != nil {
			return nil, err
		}
		facts = append(facts, Fact{Cluster: s.cluster, Pod: seen})
	}
	return facts, nil
}
