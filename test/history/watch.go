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

// source watches the objects of one kind in one cluster.
type source struct {
	cluster   string
	resource  schema.GroupVersionResource
	namespace string // empty: all
	options   metav1.ListOptions
	client    dynamic.Interface
	record    func(Fact)

	known   map[string]*Pod // by UID
	version string          // resource version up to which no event was missed
	seen    time.Time       // time of the last event
}

// watchFor bounds a watch in seconds, so that a connection that died silently is detected.
const watchFor = 60

func connect(kubeconfig string) (dynamic.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	config.QPS, config.Burst, config.WarningHandler = -1, 0, rest.NoWarnings{}
	return dynamic.NewForConfig(config)
}

// follow watches until the context ends. A watch that broke resumes from the last version, so that no event is missed. If the API server
// does not know that version any more, follow lists the objects and records the gap.
func (s *source) follow(ctx context.Context) {
	s.known = map[string]*Pod{}
	why := ""
	for ctx.Err() == nil {
		if s.version == "" {
			if err := s.list(ctx, why); err != nil {
				why = err.Error()
				retryDelay(ctx)
				continue
			}
		}
		err := s.watch(ctx)
		switch {
		case apierrors.IsGone(err) || apierrors.IsResourceExpired(err):
			s.version, why = "", err.Error()
		case err != nil:
			retryDelay(ctx)
		}
	}
}

// retryDelay keeps the recorder from flooding an API server that is away.
func retryDelay(ctx context.Context) {
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
		s.record(Fact{Cluster: s.cluster, Gap: &Gap{Kind: s.resource.Resource, Since: s.seen, Why: why}})
	}
	listed := map[string]bool{}
	for i := range all.Items {
		listed[string(all.Items[i].GetUID())] = true
		if err := s.observe(&all.Items[i], false); err != nil {
			return err
		}
	}
	for uid, last := range s.known {
		if !listed[uid] {
			delete(s.known, uid)
			s.record(Fact{Cluster: s.cluster, Pod: last, Gone: true})
		}
	}
	s.version, s.seen = all.GetResourceVersion(), now()
	return nil
}

func (s *source) observe(object *unstructured.Unstructured, gone bool) error {
	seen, err := pod(s.cluster, object)
	if err != nil {
		return err
	}
	if s.known[seen.UID] = seen; gone {
		delete(s.known, seen.UID)
	}
	s.record(Fact{Cluster: s.cluster, Pod: seen, Gone: gone})
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
			if err := s.observe(object, event.Type == watch.Deleted); err != nil {
				return err
			}
		}
		s.version, s.seen = object.GetResourceVersion(), now()
	}
	return nil
}

// current lists the objects, independently of the watch.
func (s *source) current(ctx context.Context) ([]Fact, error) {
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
