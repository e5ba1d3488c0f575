// SPDX-License-Identifier: Apache-2.0

package objects

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
	"liqo.io/liqo/internal/offloading/kinds"
	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/events"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// +kubebuilder:rbac:namespace=liqo-offloaded,groups=offloading.liqo.io,resources=namespaceoffloadings,resourceNames=offloading,verbs=get

// Custom resources: the rows that users add to the catalogue, per namespace, with spec.customResources of its NamespaceOffloading. The administrators of both
// clusters grant the rights. A row is added once both clusters turned out to serve its kind in a namespace, and then works as any other.

const (
	customWorkers = 3
	// Waits between two attempts to find a kind in both clusters: the first one, and the longest.
	firstAttempt, lastAttempt = time.Second, time.Minute
	// reportAgain is after how long an unchanged failure to find a kind is reported again.
	reportAgain = 10 * time.Minute
)

// Served returns the resources of a group and version that this cluster serves.
type Served func(context.Context, schema.GroupVersion) (*metav1.APIResourceList, error)

// customKinds are the rows for custom resources, and which mappings have them.
type customKinds struct {
	objects *Objects

	mu   sync.Mutex
	rows map[schema.GroupVersionKind]*customKind
	// wanted are the kinds of each mapping, with whether their status comes back.
	wanted map[*engine.Mapping]map[schema.GroupVersionKind]bool
}

// customKind is the row of one kind.
type customKind struct {
	*Reflector
	statuses *statuses // nil: the kind has no status of its own
}

// addCustom adds the loop that adds the others.
func (o *Objects) addCustom() {
	c := &customKinds{objects: o, rows: map[schema.GroupVersionKind]*customKind{}, wanted: map[*engine.Mapping]map[schema.GroupVersionKind]bool{}}
	o.custom = c
	o.engine.Add(&engine.Loop{Name: "CustomResource", Freeze: c.freeze, Stop: c.stop, Changed: func() { o.engine.Namespaces.Each(c.follow) }})
}

// follow looks for the kinds that a mapping has not had before.
func (c *customKinds) follow(mapping *engine.Mapping) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if mapping.Terminating() || mapping.Context.Err() != nil {
		return
	}
	was, is := c.wanted[mapping], map[schema.GroupVersionKind]bool{}
	for _, one := range mapping.CustomResources() {
		kind := schema.FromAPIVersionAndKind(one.APIVersion, one.Kind)
		is[kind] = one.Status
		if _, known := was[kind]; !known && c.rows[kind].runs(mapping) {
			c.rows[kind].enqueue(mapping)
		} else if !known {
			go c.find(mapping, kind)
		}
	}
	c.wanted[mapping] = is
	for kind, row := range c.rows {
		now, has := is[kind]
		if before, had := was[kind]; (had != has || before != now) && row.runs(mapping) {
			row.enqueue(mapping)
		}
	}
}

// wants reports whether a mapping has a kind now, and whether the status comes back.
func (c *customKinds) wants(mapping *engine.Mapping, kind schema.GroupVersionKind) (is, status bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	status, is = c.wanted[mapping][kind]
	return is, status
}

// freeze takes back the status of all copies of a mapping, which are going with their namespace.
func (c *customKinds) freeze(mapping *engine.Mapping) {
	c.leave(mapping, func(row *customKind) { row.enqueue(mapping) })
}

// stop stops all kinds of a mapping.
func (c *customKinds) stop(mapping *engine.Mapping) {
	c.leave(mapping, func(row *customKind) { row.Local.Remove(mapping.Local) })
}

// leave stops following the remote namespace of a mapping, and calls then with each row.
func (c *customKinds) leave(mapping *engine.Mapping, then func(*customKind)) {
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

// kind returns the reflector of a kind, nil if there is none.
func (c *customKinds) kind(of schema.GroupKind) *Reflector {
	c.mu.Lock()
	defer c.mu.Unlock()
	for kind, row := range c.rows {
		if kind.GroupKind() == of {
			return row.Reflector
		}
	}
	return nil
}

// find starts a kind in a mapping once both clusters serve it and let us read it. Until then it reports why not.
func (c *customKinds) find(mapping *engine.Mapping, kind schema.GroupVersionKind) {
	var reported string
	var at time.Time
	for wait := firstAttempt; ; wait = min(2*wait, lastAttempt) {
		hasStatus, err := c.probe(mapping, kind)
		if is, _ := c.wants(mapping, kind); !is {
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
func (c *customKinds) probe(mapping *engine.Mapping, kind schema.GroupVersionKind) (hasStatus bool, err error) {
	ctx, e := mapping.Context, c.objects.engine
	if e.Local.Scheme().IsGroupRegistered(kind.Group) {
		return false, fmt.Errorf("%s: kinds of the group %s are not reflected as custom resources", kind.Kind, kind.Group)
	}
	served, err := c.objects.options.Served(ctx, kind.GroupVersion())
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("could not ask this cluster whether it serves %s: %w", kind.GroupVersion(), err)
	}
	var resource *metav1.APIResource
	if err == nil {
		if i := slices.IndexFunc(served.APIResources, func(one metav1.APIResource) bool { return one.Kind == kind.Kind && !isSubresource(one.Name) }); i >= 0 {
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
	one := func() *metav1.PartialObjectMetadataList {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		return list
	}
	switch err := e.Local.List(ctx, one(), client.InNamespace(mapping.Local), client.Limit(1)); {
	case apierrors.IsForbidden(err):
		return false, fmt.Errorf("virtual kubelets may not read %s: an administrator of this cluster has to add it to the value virtualKubelet.customResources", name)
	case err != nil:
		return false, fmt.Errorf("list %s in this cluster: %w", name, err)
	}
	peer, err := e.Remote.WaitForClient(ctx)
	if err != nil {
		return false, err
	}
	switch err := peer.List(ctx, one(), client.InNamespace(mapping.Remote), client.Limit(1)); {
	case apierrors.IsForbidden(err):
		return false, fmt.Errorf("cluster %q grants no rights on %s: its administrator has to add it to the value peers.customResources", e.RemoteName(), name)
	case apierrors.IsNotFound(err):
		return false, fmt.Errorf("cluster %q serves no %s of %s: its administrator has to install the CustomResourceDefinition", e.RemoteName(), kind.Kind, kind.GroupVersion())
	case err != nil:
		return false, fmt.Errorf("list %s in cluster %q: %w", name, e.RemoteName(), err)
	}
	return slices.ContainsFunc(served.APIResources, func(one metav1.APIResource) bool { return one.Name == resource.Name+"/status" }), nil
}

func isSubresource(name string) bool { return strings.Contains(name, "/") }

// report writes an event about the NamespaceOffloading, which names the kind.
func (c *customKinds) report(mapping *engine.Mapping, err error) {
	log.FromContext(mapping.Context).Info("a kind of custom resources is not reflected yet", "reason", err.Error())
	offloading := &metav1.PartialObjectMetadata{}
	offloading.SetGroupVersionKind(offloadingv1alpha1.GroupVersion.WithKind("NamespaceOffloading"))
	key := types.NamespacedName{Namespace: mapping.Local, Name: offloadingv1alpha1.NamespaceOffloadingName}
	if c.objects.engine.Local.Get(mapping.Context, key, offloading) == nil {
		c.objects.engine.Recorder.Failed(offloading, "CustomResource", events.ReasonFailed, err)
	}
}

// start starts a kind in a mapping, and adds its row before if it is the first one.
func (c *customKinds) start(mapping *engine.Mapping, kind schema.GroupVersionKind, hasStatus bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, is := c.wanted[mapping][kind]; !is || mapping.Terminating() || mapping.Context.Err() != nil {
		return
	}
	row := c.rows[kind]
	if row == nil {
		row = &customKind{Reflector: c.objects.newReflector(c.row(kind), customWorkers)}
		if hasStatus {
			row.statuses = c.newStatuses(row.Reflector)
		}
		c.rows[kind] = row
	}
	if row.statuses != nil {
		row.statuses.remote.Add(mapping.Context, mapping.Remote)
	}
	row.Reflector.start(mapping)
}

// runs reports whether the row was started in a mapping. The row may be nil.
func (k *customKind) runs(mapping *engine.Mapping) bool {
	return k != nil && k.Local.Has(mapping.Local)
}

// enqueue looks again at all objects of a mapping.
func (k *customKind) enqueue(mapping *engine.Mapping) {
	k.Reflector.enqueue(mapping)
	if k.statuses != nil {
		for _, object := range k.Local.All(mapping.Local) {
			k.statuses.queue.Add(client.ObjectKeyFromObject(object))
		}
	}
}

// row returns the row of a kind.
func (c *customKinds) row(of schema.GroupVersionKind) *kind {
	return &kind{
		Kind: kinds.CustomResource(of), trim: c.trimLocal,
		project: func(r *Reflector, mapping project.NamespaceMapping, object client.Object) (runtime.ApplyConfiguration, error) {
			local, ok := object.(*unstructured.Unstructured)
			if !ok {
				return nil, nil
			}
			if one, _ := r.engine.Namespaces.Local(mapping.Local); one != nil {
				if is, _ := c.wants(one, of); !is {
					return nil, nil
				}
			}
			copied := kinds.CopyCustomResource(mapping, local)
			if copied == nil {
				return nil, nil
			}
			return client.ApplyConfigurationFromUnstructured(copied), nil
		},
	}
}
