// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/offloading/reflection/engine"
)

// enqueueElsewhere reconciles the local objects whose copies may name another remote namespace.
func (r *Reflector) enqueueElsewhere(mapping *engine.Mapping) {
	for _, object := range r.Local.All(mapping.Local) {
		if r.kind.elsewhere(object) {
			r.Queue.Add(client.ObjectKeyFromObject(object))
		}
	}
}

// remoteOf returns the remote namespace of a local one; false if it has none that works.
func (o *Objects) remoteOf(local string) (string, bool) {
	if one, _ := o.engine.Namespaces.Local(local); one != nil && !one.Terminating() {
		return one.Remote, true
	}
	return "", false
}
