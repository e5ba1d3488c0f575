// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// +kubebuilder:rbac:namespace=liqo-offloaded,groups="",resources=services;configmaps;secrets,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo-offloaded,groups=discovery.k8s.io,resources=endpointslices,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo-offloaded,groups=networking.k8s.io,resources=ingresses,verbs=list;watch

// kind is a row of the catalogue: what crosses by itself, from here to there. Pods cross in both directions and have their own file.
type kind struct {
	// name is what metrics and events call it, and flag its flag: --<flag>-reflection-workers.
	name, flag string
	workers    int
	// here is the kind that is read, there the kind that is written.
	here, there schema.GroupVersionKind
	object      client.Object
	list        func() client.ObjectList
	full        func() client.ObjectList
	// project says what is to be there; nil means nothing is.
	project func(*reflector, project.NamespaceMapping, client.Object) (runtime.ApplyConfiguration, error)
	// remoteName and localName, if names differ.
	remoteName, localName func(project.NamespaceMapping, string) string
	// follows are further objects to look at when one of another kind changes.
	follows map[string]func(*reflector, client.Object) []types.NamespacedName
	// needsIPs: without addresses of the other cluster there is nothing to reflect.
	needsIPs bool
}

// The flags of the worker counts: --<flag>-reflection-workers.
const (
	podFlag   = "pod"
	tokenFlag = "service-account"
)

// Workers, unless a flag says otherwise.
const (
	podWorkers     = 10
	sliceWorkers   = 10
	tokenWorkers   = 3
	defaultWorkers = 3
)

var catalog = []kind{
	{
		name: "Service", flag: "service", workers: defaultWorkers,
		here: corev1.SchemeGroupVersion.WithKind("Service"), there: corev1.SchemeGroupVersion.WithKind("Service"),
		object: &corev1.Service{}, list: func() client.ObjectList { return &corev1.ServiceList{} }, full: func() client.ObjectList { return &corev1.ServiceList{} },
		project: func(_ *reflector, link project.NamespaceMapping, object client.Object) (runtime.ApplyConfiguration, error) {
			local, ok := object.(*corev1.Service)
			if !ok {
				return nil, nil
			}
			return intent(project.Service(link, local)), nil
		},
	},
	{
		name: "EndpointSlice", flag: "endpointslice", workers: sliceWorkers, needsIPs: true,
		here: discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), there: vkv1alpha1.GroupVersion.WithKind("ShadowEndpointSlice"),
		object: &discoveryv1.EndpointSlice{}, list: func() client.ObjectList { return &discoveryv1.EndpointSliceList{} },
		full:    func() client.ObjectList { return &vkv1alpha1.ShadowEndpointSliceList{} },
		project: endpointSlice,
		follows: map[string]func(*reflector, client.Object) []types.NamespacedName{"Service": slicesOf},
	},
	{
		name: "Ingress", flag: "ingress", workers: defaultWorkers,
		here: networkingv1.SchemeGroupVersion.WithKind("Ingress"), there: networkingv1.SchemeGroupVersion.WithKind("Ingress"),
		object: &networkingv1.Ingress{}, list: func() client.ObjectList { return &networkingv1.IngressList{} }, full: func() client.ObjectList { return &networkingv1.IngressList{} },
		project: func(_ *reflector, link project.NamespaceMapping, object client.Object) (runtime.ApplyConfiguration, error) {
			local, ok := object.(*networkingv1.Ingress)
			if !ok {
				return nil, nil
			}
			return intent(project.Ingress(link, local)), nil
		},
	},
	{
		name: "ConfigMap", flag: "configmap", workers: defaultWorkers,
		here: corev1.SchemeGroupVersion.WithKind("ConfigMap"), there: corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		object: &corev1.ConfigMap{}, list: func() client.ObjectList { return &corev1.ConfigMapList{} }, full: func() client.ObjectList { return &corev1.ConfigMapList{} },
		remoteName: project.ConfigMapName, localName: project.LocalConfigMapName,
		project: func(_ *reflector, link project.NamespaceMapping, object client.Object) (runtime.ApplyConfiguration, error) {
			local, ok := object.(*corev1.ConfigMap)
			if !ok {
				return nil, nil
			}
			return intent(project.ConfigMap(link, local)), nil
		},
	},
	{
		name: "Secret", flag: "secret", workers: defaultWorkers,
		here: corev1.SchemeGroupVersion.WithKind("Secret"), there: corev1.SchemeGroupVersion.WithKind("Secret"),
		object: &corev1.Secret{}, list: func() client.ObjectList { return &corev1.SecretList{} }, full: func() client.ObjectList { return &corev1.SecretList{} },
		project: func(_ *reflector, link project.NamespaceMapping, object client.Object) (runtime.ApplyConfiguration, error) {
			local, ok := object.(*corev1.Secret)
			if !ok {
				return nil, nil
			}
			return intent(project.Secret(link, local)), nil
		},
	},
}

// endpointSlice follows the skip annotation of its Service, too.
func endpointSlice(r *reflector, link project.NamespaceMapping, object client.Object) (runtime.ApplyConfiguration, error) {
	local, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		return nil, nil
	}
	if services := r.engine.reflector("Service"); services != nil {
		if !services.local.Synced(link.Local) {
			return nil, errNotSynced
		}
		service := services.local.Get(types.NamespacedName{Namespace: local.Namespace, Name: local.Labels[discoveryv1.LabelServiceName]})
		if service != nil && project.Skipped(service) {
			return nil, nil
		}
	}
	shadow, err := project.EndpointSlice(link, local, r.engine.options.Translator)
	if err != nil {
		return nil, err
	}
	return intent(shadow), nil
}

// slicesOf are the slices of a Service.
func slicesOf(r *reflector, service client.Object) (all []types.NamespacedName) {
	for _, slice := range r.local.All(service.GetNamespace()) {
		if slice.GetLabels()[discoveryv1.LabelServiceName] == service.GetName() {
			all = append(all, client.ObjectKeyFromObject(slice))
		}
	}
	return all
}

// intent is nil if the pointer is.
func intent[T any, P interface {
	*T
	runtime.ApplyConfiguration
}](of P) runtime.ApplyConfiguration {
	if of == nil {
		return nil
	}
	return of
}

// metadata makes a list that asks for the metadata of a kind.
func metadata(of schema.GroupVersionKind) func() client.ObjectList {
	return func() client.ObjectList {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(of.GroupVersion().WithKind(of.Kind + "List"))
		return list
	}
}
