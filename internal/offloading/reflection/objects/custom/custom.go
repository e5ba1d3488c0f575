// SPDX-License-Identifier: Apache-2.0

// Package custom copies custom resources: further kinds that users list, per namespace, and whose status may come back.
//
//	kinds that a user lists ──► loops of package objects, once both clusters serve the kind    custom.go
//	copies ──► kinds (pure) ──► status of the local object                                     status.go
//
// It must not know what a field means. The tests of package reflection cover it.
package custom

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	"liqo.io/liqo/internal/kube/fairqueue"
	"liqo.io/liqo/internal/offloading/kinds"
	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/events"
	"liqo.io/liqo/internal/offloading/reflection/objects"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// +kubebuilder:rbac:namespace=liqo-offloaded,groups=offloading.liqo.io,resources=namespaceoffloadings,resourceNames=offloading,verbs=get

// The rows that users add to those of package kinds, per namespace, with spec.customResources of its NamespaceOffloading. The administrators of both
// clusters grant the rights. A row is added once both clusters turned out to serve its kind in a namespace, and then works as any other.

const (
	workers = 3
	// Waits between two attempts to find a kind in both clusters: the first one, and the longest.
	firstAttempt, lastAttempt = time.Second, time.Minute
	// reportAgain is after how long an unchanged failure to find a kind is reported again.
	reportAgain = 10 * time.Minute
)

// Served returns the resources of a group and version that this cluster serves.
type Served func(context.Context, schema.GroupVersion) (*metav1.APIResourceList, error)

// Kinds are the rows for custom resources, and which mappings have them.
type Kinds struct {
	engine  *engine.Engine
	objects *objects.Objects
	served  Served

	mu   sync.Mutex
	rows map[schema.GroupVersionKind]*loop
	// wanted are the kinds of each mapping, with whether their status comes back.
	wanted map[*engine.Mapping]map[schema.GroupVersionKind]bool
}

// loop is what one kind has.
type loop struct {
	*objects.Reflector
	statuses *statuses // nil: the kind has no status of its own
}

// Add adds the loop that adds the others.
func Add(e *engine.Engine, o *objects.Objects, served Served) {
	c := &Kinds{engine: e, objects: o, served: served, rows: map[schema.GroupVersionKind]*loop{}, wanted: map[*engine.Mapping]map[schema.GroupVersionKind]bool{}}
	e.Add(&engine.Loop{Name: "CustomResource", Freeze: c.freeze, Stop: c.stop, Changed: func() { e.Namespaces.Each(c.follow) }})
}

// follow looks for the kinds that a mapping has not had before.
func (c *Kinds) follow(mapping *engine.Mapping) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if mapping.Terminating() || mapping.Context.Err() != nil {
		return
	}
	was, now := c.wanted[mapping], map[schema.GroupVersionKind]bool{}
	for _, resource := range mapping.CustomResources() {
		kind := schema.FromAPIVersionAndKind(resource.APIVersion, resource.Kind)
		now[kind] = resource.Status
		if _, ok := was[kind]; !ok && c.rows[kind].runs(mapping) {
			c.rows[kind].enqueue(mapping)
		} else if !ok {
			go c.find(mapping, kind)
		}
	}
	c.wanted[mapping] = now
	for kind, row := range c.rows {
		status, has := now[kind]
		if before, had := was[kind]; (had != has || before != status) && row.runs(mapping) {
			row.enqueue(mapping)
		}
	}
}

// wants reports whether a mapping has a kind now, and whether the status comes back.
func (c *Kinds) wants(mapping *engine.Mapping, kind schema.GroupVersionKind) (wanted, status bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	status, wanted = c.wanted[mapping][kind]
	return wanted, status
}

// freeze takes back the status of all copies of a mapping, which are going with their namespace.
func (c *Kinds) freeze(mapping *engine.Mapping) {
	c.leave(mapping, func(row *loop) { row.enqueue(mapping) })
}

// stop stops all kinds of a mapping.
func (c *Kinds) stop(mapping *engine.Mapping) {
	c.leave(mapping, func(row *loop) { row.Local.Remove(mapping.Local) })
}

// leave stops following the remote namespace of a mapping, and calls then with each row.
func (c *Kinds) leave(mapping *engine.Mapping, then func(*loop)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.wanted, mapping)
	for _, row := range c.rows {
		row.Remote.Remove(mapping.Remote)
		if row.statuses != nil {
			row.statuses.remote.Remove(mapping.Remote)
		}
		then(row)
	}
}

// find starts a kind in a mapping once both clusters serve it and let us read it. Until then it reports why not.
func (c *Kinds) find(mapping *engine.Mapping, kind schema.GroupVersionKind) {
	var reported string
	var at time.Time
	for wait := firstAttempt; ; wait = min(2*wait, lastAttempt) {
		hasStatus, err := c.probe(mapping, kind)
		if wanted, _ := c.wants(mapping, kind); !wanted {
			return
		}
		if err == nil {
			c.start(mapping, kind, hasStatus)
			return
		}
		if text := err.Error(); mapping.Context.Err() == nil && (text != reported || time.Since(at) > reportAgain) {
			reported, at = text, time.Now()
			c.report(mapping, err)
		}
		select {
		case <-mapping.Context.Done():
			return
		case <-time.After(wait):
		}
	}
}

// probe asks both clusters for one object of a kind.
func (c *Kinds) probe(mapping *engine.Mapping, kind schema.GroupVersionKind) (hasStatus bool, err error) {
	ctx, e := mapping.Context, c.engine
	if e.Local.Scheme().IsGroupRegistered(kind.Group) {
		return false, fmt.Errorf("%s: kinds of the group %s are not reflected as custom resources", kind.Kind, kind.Group)
	}
	served, err := c.served(ctx, kind.GroupVersion())
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("could not ask this cluster whether it serves %s: %w", kind.GroupVersion(), err)
	}
	var resource *metav1.APIResource
	if err == nil {
		if i := slices.IndexFunc(served.APIResources, func(resource metav1.APIResource) bool {
			return resource.Kind == kind.Kind && !isSubresource(resource.Name)
		}); i >= 0 {
			resource = &served.APIResources[i]
		}
	}
	if resource == nil {
		return false, fmt.Errorf("this cluster serves no %s of %s: install its CustomResourceDefinition", kind.Kind, kind.GroupVersion())
	}
	if !resource.Namespaced {
		return false, fmt.Errorf("a %s of %s is in no namespace: only kinds in namespaces can be reflected", kind.Kind, kind.GroupVersion())
	}
	name := resource.Name + "." + kind.Group
	first := func() *metav1.PartialObjectMetadataList {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		return list
	}
	switch err := e.Local.List(ctx, first(), client.InNamespace(mapping.Local), client.Limit(1)); {
	case apierrors.IsForbidden(err):
		return false, fmt.Errorf("virtual kubelets may not read %s: an administrator of this cluster has to add it to the value virtualKubelet.customResources", name)
	case err != nil:
		return false, fmt.Errorf("list %s in this cluster: %w", name, err)
	}
	peer, err := e.Remote.WaitForClient(ctx)
	if err != nil {
		return false, err
	}
	switch err := peer.List(ctx, first(), client.InNamespace(mapping.Remote), client.Limit(1)); {
	case apierrors.IsForbidden(err):
		return false, fmt.Errorf("cluster %q grants no rights on %s: its administrator has to add it to the value peers.customResources", e.RemoteName(), name)
	case apierrors.IsNotFound(err):
		return false, fmt.Errorf("cluster %q serves no %s of %s: its administrator has to install the CustomResourceDefinition", e.RemoteName(), kind.Kind,
			kind.GroupVersion())
	case err != nil:
		return false, fmt.Errorf("list %s in cluster %q: %w", name, e.RemoteName(), err)
	}
	return slices.ContainsFunc(served.APIResources, func(other metav1.APIResource) bool { return other.Name == resource.Name+"/status" }), nil
}

func isSubresource(name string) bool { return strings.Contains(name, "/") }

// report writes an event about the NamespaceOffloading, which names the kind.
func (c *Kinds) report(mapping *engine.Mapping, err error) {
	log.FromContext(mapping.Context).Info("a kind of custom resources is not reflected yet", "reason", err.Error())
	offloading := &metav1.PartialObjectMetadata{}
	offloading.SetGroupVersionKind(offloadingv1alpha1.GroupVersion.WithKind("NamespaceOffloading"))
	key := types.NamespacedName{Namespace: mapping.Local, Name: offloadingv1alpha1.NamespaceOffloadingName}
	if c.engine.Local.Get(mapping.Context, key, offloading) == nil {
		c.engine.Recorder.Failed(offloading, "CustomResource", events.ReasonFailed, err)
	}
}

// start starts a kind in a mapping, and adds its row before if it is the first one.
func (c *Kinds) start(mapping *engine.Mapping, kind schema.GroupVersionKind, hasStatus bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.wanted[mapping][kind]; !ok || mapping.Terminating() || mapping.Context.Err() != nil {
		return
	}
	row := c.rows[kind]
	if row == nil {
		row = c.add(kind, hasStatus)
		c.rows[kind] = row
	}
	if row.statuses != nil {
		row.statuses.remote.Add(mapping.Context, mapping.Remote)
	}
	row.Start(mapping)
}

// runs reports whether the row was started in a mapping. The row may be nil.
func (k *loop) runs(mapping *engine.Mapping) bool {
	return k != nil && k.Local.Has(mapping.Local)
}

// enqueue looks again at all objects of a mapping.
func (k *loop) enqueue(mapping *engine.Mapping) {
	k.Enqueue(mapping)
	if k.statuses != nil {
		for _, object := range k.Local.All(mapping.Local) {
			k.statuses.queue.Add(client.ObjectKeyFromObject(object))
		}
	}
}

// add adds the loop of a kind, and that of its status.
func (c *Kinds) add(of schema.GroupVersionKind, hasStatus bool) *loop {
	hooks := objects.Hooks{Kind: kinds.CustomResource(of), Trim: c.trimLocal}
	hooks.Project = func(mapping project.NamespaceMapping, object client.Object) (runtime.ApplyConfiguration, error) {
		local, ok := object.(*unstructured.Unstructured)
		if !ok {
			return nil, nil
		}
		if known, _ := c.engine.Namespaces.Local(mapping.Local); known != nil {
			if wanted, _ := c.wants(known, of); !wanted {
				return nil, nil
			}
		}
		copied := kinds.CopyCustomResource(mapping, local)
		if copied == nil {
			return nil, nil
		}
		return client.ApplyConfigurationFromUnstructured(copied), nil
	}
	if !hasStatus {
		return &loop{Reflector: c.objects.Add(hooks, workers)}
	}
	queue := fairqueue.NewQueue(workers)
	hooks.Changed = func(before, after client.Object) { queue.Add(client.ObjectKeyFromObject(engine.Either(before, after))) }
	copies := c.objects.Add(hooks, workers)
	return &loop{Reflector: copies, statuses: c.newStatuses(hooks.Kind, copies, queue)}
}
