// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
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
	full := empty(r.kind.Remote)
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
	if copied := r.remoteKey(mapping.NamespaceMapping, key.Name); r.Remote.Get(copied) != nil {
		mapping.Applier(r.kind.Name()).Forget(copied)
	}
}

// dropOutdated removes the copy of a Service that names another server now, if the peer refuses that name, or this cluster knows none for it there: clients there would go on
// to use what the Service was before. A name that is not known at the moment is no reason to remove an earlier name.
func (r *Reflector) dropOutdated(mapping *engine.Mapping, local client.Object, remote *metav1.PartialObjectMetadata, refused bool) error {
	if !isExternalName(local) || remote == nil || remote.DeletionTimestamp != nil || !r.manages(mapping, remote) {
		return nil
	}
	if !refused {
		c, err := r.engine.Remote.Client()
		if err != nil {
			return err
		}
		there := &corev1.Service{}
		if err := c.Get(mapping.Context, client.ObjectKeyFromObject(remote), there); err != nil || isExternalName(there) {
			return client.IgnoreNotFound(err)
		}
	}
	return r.remove(mapping, remote)
}

// empty returns an object of a kind to read into.
func empty(of kinds.Resource) client.Object { return of.Empty().(client.Object) }

// emptyList returns what makes a list of a kind to read into.
func emptyList(of kinds.Resource) func() client.ObjectList {
	return func() client.ObjectList { return of.EmptyList().(client.ObjectList) }
}
