// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/offloading/kinds"
	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// kind is a row of the catalogue: a kind that is copied to the peer. Pods have files of their own, since they also bring their status back.
type kind struct {
	*kinds.Kind
	// trim drops what is not needed of local objects; nil: engine.TrimLocal.
	trim func(client.Object)
	// project returns the desired remote object; nil: there must be none.
	project func(*Reflector, project.NamespaceMapping, client.Object) (runtime.ApplyConfiguration, error)
	// hold returns for how long an object whose copy exists must not be written yet; nil: it may be.
	hold func(*Reflector, project.NamespaceMapping, client.Object) time.Duration
	// stale reports whether a whole copy has what the API server keeps of an earlier object of that name, so that no write makes it right; nil: it keeps nothing.
	stale func(intent runtime.ApplyConfiguration, there client.Object) bool
	// elsewhere reports whether the copy of an object may name another remote namespace; nil: none does.
	elsewhere func(client.Object) bool
	// follows returns, by the name of another kind, the objects of this kind to reconcile when an object of the other one changes.
	follows map[string]func(*Reflector, client.Object) []types.NamespacedName
	// lacks returns what the copy of an object cannot do in the peer; nil: nothing, or that is known of all.
	lacks func(*Reflector, client.Object) error
	// optional: a peer may grant no rights on the kind, or take them back. Then its users learn it, and nothing stays there that is not corrected any more.
	optional bool
}

// hooks are what some kinds have besides their row.
var hooks = []kind{
	{
		Kind: kinds.Service,
		project: func(r *Reflector, mapping project.NamespaceMapping, object client.Object) (runtime.ApplyConfiguration, error) {
			local, ok := object.(*corev1.Service)
			if !ok {
				return nil, nil
			}
			if mapping.Skips(local) {
				return nil, nil
			}
			named, err := kinds.ExternalName(mapping, local, r.remoteOf)
			if err != nil {
				return nil, err
			}
			served, err := r.served(named)
			if err != nil {
				return nil, err
			}
			return orNil(kinds.CopyService(mapping, r.lowered.now(served, time.Now()))), nil
		},
		stale: func(intent runtime.ApplyConfiguration, there client.Object) bool {
			service, is := intent.(*coreapply.ServiceApplyConfiguration)
			whole, read := there.(*corev1.Service)
			return is && read && kinds.Stale(service, whole)
		},
		elsewhere: isExternalName,
		hold: func(r *Reflector, mapping project.NamespaceMapping, object client.Object) time.Duration {
			local, ok := object.(*corev1.Service)
			if !ok {
				return 0
			}
			served, err := r.served(local)
			if err != nil {
				return 0 // it was known a moment ago
			}
			there := kinds.SelectsThere(mapping, served)
			wait := r.handovers.observe(client.ObjectKeyFromObject(local), there, time.Now())
			if there || r.onlyGated(local) {
				return 0
			}
			return wait // until the endpoints that this selector does not find there are there by name
		},
	},
	{
		Kind:    kinds.EndpointSlice,
		project: endpointSlice,
		follows: map[string]func(*Reflector, client.Object) []types.NamespacedName{"Service": slicesOf},
	},
	{
		Kind: kinds.PodDisruptionBudget, optional: true,
		project: budget, lacks: sharedPods,
	},
}

// catalogue returns the kinds that are copied.
func catalogue() (all []kind) {
	for _, row := range kinds.Where(func(row *kinds.Kind) bool { return row.Workers > 0 }) {
		copied := kind{Kind: row, project: fromRow}
		if i := slices.IndexFunc(hooks, func(with kind) bool { return with.Kind == row }); i >= 0 {
			copied = hooks[i]
		}
		all = append(all, copied)
	}
	return all
}

// fromRow projects an object of a kind without hooks.
func fromRow(r *Reflector, mapping project.NamespaceMapping, object client.Object) (runtime.ApplyConfiguration, error) {
	if r.kind.ByReference {
		if withheld, err := r.withheld(mapping, object); err != nil || withheld {
			return nil, err
		}
	}
	return r.kind.Copy(mapping, object), nil
}

// endpointSlice also obeys the annotations of its Service.
func endpointSlice(r *Reflector, mapping project.NamespaceMapping, object client.Object) (runtime.ApplyConfiguration, error) {
	local, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		return nil, nil
	}
	if services := r.Kind("Service"); services != nil {
		if !services.Local.Synced(mapping.Local) {
			return nil, engine.ErrNotSynced
		}
		if services.skipped(mapping, local) {
			return nil, nil
		}
	}
	there, wait, err := r.there(mapping, local)
	if err != nil {
		return nil, err
	}
	shadow, err := kinds.ShadowEndpointSlice(mapping, local, there, r.options.Translator)
	if err != nil {
		return nil, err
	}
	if wait > 0 {
		r.Queue.AddAfter(client.ObjectKeyFromObject(local), wait)
	}
	return orNil(shadow), nil
}

// there returns what is known about the endpoints of a slice that run in the peer, and for how long that holds; 0: until something changes.
func (o *Objects) there(mapping project.NamespaceMapping, slice *discoveryv1.EndpointSlice) (kinds.There, time.Duration, error) {
	there := kinds.There{Found: kinds.BySelector(slice), Pod: func(address netip.Addr) string { return o.places.at(slice.Namespace, address) }}
	services := o.Kind("Service")
	if services == nil {
		return there, 0, nil
	}
	key := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
	service, ok := services.Local.Get(key).(*corev1.Service)
	if !ok {
		return there, 0, nil // its event reconciles the slice
	}
	there.Near = service.Spec.TrafficDistribution != nil
	if !there.Found {
		return there, 0, nil
	}
	served, err := o.served(service)
	if err != nil {
		return there, 0, err
	}
	there.Found = kinds.SelectsThere(mapping, served)
	wait := o.handovers.observe(key, there.Found, time.Now())
	if !there.Found || wait == 0 {
		return there, 0, nil
	}
	there.Found = false // the peer's controller may not have found them yet
	return there, wait, nil
}

// isExternalName reports whether an object is a Service that names another server.
func isExternalName(object client.Object) bool {
	local, ok := object.(*corev1.Service)
	return ok && local.Spec.Type == corev1.ServiceTypeExternalName
}

// skipped reports whether the Service of a slice is not reflected to this peer.
func (r *Reflector) skipped(mapping project.NamespaceMapping, slice *discoveryv1.EndpointSlice) bool {
	service := r.Local.Get(types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]})
	return service != nil && mapping.Skips(service)
}

func slicesOf(r *Reflector, service client.Object) (all []types.NamespacedName) {
	for _, slice := range r.Local.All(service.GetNamespace()) {
		if slice.GetLabels()[discoveryv1.LabelServiceName] == service.GetName() {
			all = append(all, client.ObjectKeyFromObject(slice))
		}
	}
	return all
}

// orNil turns a nil pointer into a nil interface.
func orNil[T any, P interface {
	*T
	runtime.ApplyConfiguration
}](of P) runtime.ApplyConfiguration {
	if of == nil {
		return nil
	}
	return of
}
