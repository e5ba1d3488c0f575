// SPDX-License-Identifier: Apache-2.0

package services

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/offloading/reflection/engine"
)

// isExternalName reports whether an object is a Service that names another server.
func isExternalName(object client.Object) bool {
	local, ok := object.(*corev1.Service)
	return ok && local.Spec.Type == corev1.ServiceTypeExternalName
}

// remoteOf returns the remote namespace of a local one; false if it has none that works.
func (s *Services) remoteOf(local string) (string, bool) {
	if mapping, _ := s.engine.Namespaces.Local(local); mapping != nil && !mapping.Terminating() {
		return mapping.Remote, true
	}
	return "", false
}

// outdated reports whether the copy of a Service that names another server now has to go, if the peer refuses that name, or this cluster knows none for it
// there: clients there would go on to use what the Service was before. A name that is not known at the moment is no reason to remove an earlier name.
func (s *Services) outdated(mapping *engine.Mapping, local client.Object, remote *metav1.PartialObjectMetadata, refused bool) (bool, error) {
	if !isExternalName(local) || refused {
		return isExternalName(local), nil
	}
	c, err := s.engine.Remote.Client()
	if err != nil {
		return false, err
	}
	there := &corev1.Service{}
	err = c.Get(mapping.Context, client.ObjectKeyFromObject(remote), there)
	return err == nil && !isExternalName(there), client.IgnoreNotFound(err)
}
