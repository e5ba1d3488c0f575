// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/offloading/kinds"
	"liqo.io/liqo/internal/offloading/reflection/engine"
)

// liveObject returns the remote object to compare an intent with. Its metadata suffices if the applier remembers what we wrote; otherwise the whole
// object is read.
func (r *Reflector) liveObject(mapping *engine.Mapping, remote *metav1.PartialObjectMetadata) (client.Object, error) {
	if remote == nil {
		return nil, nil
	}
	key := client.ObjectKeyFromObject(remote)
	if mapping.Applier(r.kind.Name()).Remembers(r.kind.Remote.GroupVersionKind, key) {
		return remote, nil
	}
	c, err := r.engine.Remote.Client()
	if err != nil {
		return nil, err
	}
	full := Empty(r.kind.Remote)
	switch err := c.Get(mapping.Context, key, full); {
	case apierrors.IsNotFound(err):
		return remote, nil // the event of its deletion requeues the object
	case err != nil:
		return nil, fmt.Errorf("read %s %s in the remote cluster: %w", r.kind.Name(), key, err)
	case full.GetUID() != remote.UID:
		return nil, engine.ErrNotSynced // it has been replaced by another object
	}
	return full, nil
}

// readAgain makes the whole copy of an object be read before it is written: the object is another one, which may have the name of the last one at once.
func (r *Reflector) readAgain(key types.NamespacedName) {
	mapping, _ := r.engine.Namespaces.Local(key.Namespace)
	if mapping == nil {
		return
	}
	if copied := r.RemoteKey(mapping.NamespaceMapping, key.Name); r.Remote.Get(copied) != nil {
		mapping.Applier(r.kind.Name()).Forget(copied)
	}
}

// Empty returns an object of a kind to read into.
func Empty(of kinds.Resource) client.Object { return of.Empty().(client.Object) }

// EmptyList returns what makes a list of a kind to read into.
func EmptyList(of kinds.Resource) func() client.ObjectList {
	return func() client.ObjectList { return of.EmptyList().(client.ObjectList) }
}

// enqueueElsewhere reconciles the local objects whose copies may name another remote namespace.
func (r *Reflector) enqueueElsewhere(mapping *engine.Mapping) {
	for _, object := range r.Local.All(mapping.Local) {
		if r.kind.Elsewhere(object) {
			r.Queue.Add(client.ObjectKeyFromObject(object))
		}
	}
}
