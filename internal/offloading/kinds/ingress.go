// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	networkingapply "k8s.io/client-go/applyconfigurations/networking/v1"

	"liqo.io/liqo/internal/offloading/reflection/project"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
)

// Ingress has the same rules in the peer, for the class that is the default there.
var Ingress = row(Kind{
	Local:    Resource{networkingv1.SchemeGroupVersion.WithKind("Ingress"), "ingresses"},
	Remote:   Resource{networkingv1.SchemeGroupVersion.WithKind("Ingress"), "ingresses"},
	Register: []func(*runtime.Scheme) error{networkingv1.AddToScheme}, Order: 70,
	Flag: "ingress", Workers: defaultWorkers,
	Events: true, Counted: true, Content: true,
	Metadata: &Metadata{Value: "ingresses"}, Most: "100", Total: "500",
	Copy: copied(copyIngress), Exposes: true, References: referring(certificatesOf),
})

// certificatesOf returns the Secrets with the certificates of an Ingress.
func certificatesOf(ingress *networkingv1.Ingress) (all []podspec.Reference) {
	for _, tls := range ingress.Spec.TLS {
		if secret := (podspec.Reference{Kind: "Secret", Name: tls.SecretName}); secret.Name != "" && !slices.Contains(all, secret) {
			all = append(all, secret)
		}
	}
	return all
}

// ingressClass is the older form of the Ingress class. Classes belong to one cluster, so it is not reflected.
const ingressClass = "kubernetes.io/ingress.class"

// copyIngress returns the same rules, for the default class of the peer.
func copyIngress(m project.NamespaceMapping, local *networkingv1.Ingress) *networkingapply.IngressApplyConfiguration {
	spec := networkingapply.IngressSpec()
	spec.DefaultBackend = ingressBackend(local.Spec.DefaultBackend)
	for _, tls := range local.Spec.TLS {
		remote := networkingapply.IngressTLS().WithHosts(tls.Hosts...)
		remote.SecretName = project.Some(tls.SecretName)
		spec.WithTLS(remote)
	}
	for _, rule := range local.Spec.Rules {
		spec.WithRules(ingressRule(rule))
	}
	return networkingapply.Ingress(local.Name, m.Remote).
		WithLabels(m.LabelsOf(local)).WithAnnotations(m.AnnotationsOf(local, ingressClass)).WithSpec(spec)
}

func ingressRule(local networkingv1.IngressRule) *networkingapply.IngressRuleApplyConfiguration {
	rule := networkingapply.IngressRule()
	rule.Host = project.Some(local.Host)
	if local.HTTP == nil {
		return rule
	}
	http := networkingapply.HTTPIngressRuleValue()
	for _, path := range local.HTTP.Paths {
		remote := networkingapply.HTTPIngressPath()
		remote.Path, remote.PathType, remote.Backend = project.Some(path.Path), path.PathType, ingressBackend(&path.Backend)
		http.WithPaths(remote)
	}
	return rule.WithHTTP(http)
}

func ingressBackend(local *networkingv1.IngressBackend) *networkingapply.IngressBackendApplyConfiguration {
	if local == nil {
		return nil
	}
	backend := networkingapply.IngressBackend()
	if service := local.Service; service != nil {
		port := networkingapply.ServiceBackendPort()
		port.Name, port.Number = project.Some(service.Port.Name), project.Some(service.Port.Number)
		backend.WithService(networkingapply.IngressServiceBackend().WithName(service.Name).WithPort(port))
	}
	if resource := local.Resource; resource != nil {
		reference := coreapply.TypedLocalObjectReference().WithKind(resource.Kind).WithName(resource.Name)
		reference.APIGroup = resource.APIGroup
		backend.WithResource(reference)
	}
	return backend
}
