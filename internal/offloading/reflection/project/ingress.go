// SPDX-License-Identifier: Apache-2.0

package project

import (
	networkingv1 "k8s.io/api/networking/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	networkingapply "k8s.io/client-go/applyconfigurations/networking/v1"
)

// ingressClass is the older form of the Ingress class. Classes belong to one cluster, so it is not reflected.
const ingressClass = "kubernetes.io/ingress.class"

// Ingress returns the remote Ingress: the same rules, for the default class of the peer. Nil: it is skipped.
func Ingress(m NamespaceMapping, local *networkingv1.Ingress) *networkingapply.IngressApplyConfiguration {
	if m.Skips(local) {
		return nil
	}
	spec := networkingapply.IngressSpec()
	spec.DefaultBackend = ingressBackend(local.Spec.DefaultBackend)
	for _, tls := range local.Spec.TLS {
		one := networkingapply.IngressTLS().WithHosts(tls.Hosts...)
		one.SecretName = some(tls.SecretName)
		spec.WithTLS(one)
	}
	for _, rule := range local.Spec.Rules {
		spec.WithRules(ingressRule(rule))
	}
	return networkingapply.Ingress(local.Name, m.Remote).
		WithLabels(m.labelsOf(local)).WithAnnotations(m.annotationsOf(local, ingressClass)).WithSpec(spec)
}

func ingressRule(local networkingv1.IngressRule) *networkingapply.IngressRuleApplyConfiguration {
	rule := networkingapply.IngressRule()
	rule.Host = some(local.Host)
	if local.HTTP == nil {
		return rule
	}
	http := networkingapply.HTTPIngressRuleValue()
	for _, path := range local.HTTP.Paths {
		one := networkingapply.HTTPIngressPath()
		one.Path, one.PathType, one.Backend = some(path.Path), path.PathType, ingressBackend(&path.Backend)
		http.WithPaths(one)
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
		port.Name, port.Number = some(service.Port.Name), some(service.Port.Number)
		backend.WithService(networkingapply.IngressServiceBackend().WithName(service.Name).WithPort(port))
	}
	if resource := local.Resource; resource != nil {
		reference := coreapply.TypedLocalObjectReference().WithKind(resource.Kind).WithName(resource.Name)
		reference.APIGroup = resource.APIGroup
		backend.WithResource(reference)
	}
	return backend
}
