// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// uncopied are the fields of Services, Ingresses and EndpointSlices that the peer does not get, by type and JSON path, each with the reason. All others are copied or
// translated: TestPaths holds every field of the types of Kubernetes to that, at every depth.
var uncopied = map[string]string{
	"ServiceSpec.clusterIP":           "each cluster gives its copy an address of its own; None is copied",
	"ServiceSpec.clusterIPs":          "the same",
	"ServiceSpec.ipFamilies":          "each cluster has the families of its own networks; ipFamilyPolicy is copied",
	"ServiceSpec.externalIPs":         "a peer that chose an address would receive the traffic of others; an event reports it",
	"ServiceSpec.loadBalancerIP":      "the same",
	"ServiceSpec.healthCheckNodePort": "each cluster allocates the ports of its own nodes",
	"ServiceSpec.ports.*.nodePort":    "the same, unless an annotation asks for the same port",
	"IngressSpec.ingressClassName":    "classes belong to one cluster; the copy has the peer's default class",

	"EndpointSlice.endpoints.*.deprecatedTopology":        "Kubernetes writes nodeName and zone in its place",
	"EndpointSlice.endpoints.*.conditions.serving":        "proxies take one that is not given for true, and it is given if it or ready is false",
	"EndpointSlice.endpoints.*.targetRef.resourceVersion": "it is a version of an object of this cluster, which changes without the endpoint",
}

// Uncopied returns the fields that the peer does not get, with the reasons.
func Uncopied() map[string]string { return maps.Clone(uncopied) }

// Lost returns, as the error to report, what a user asked for in an object and its copy does not have; nil if it is nothing. What the peer refuses is not known here.
func Lost(local metav1.Object) error {
	service, is := local.(*corev1.Service)
	if !is {
		return nil
	}
	var missing []string
	if len(service.Spec.ExternalIPs) > 0 {
		missing = append(missing, "externalIPs")
	}
	if service.Spec.LoadBalancerIP != "" {
		missing = append(missing, "loadBalancerIP")
	}
	for _, key := range slices.Sorted(maps.Keys(service.Annotations)) {
		if slices.Contains(addresses, key) {
			missing = append(missing, "annotation "+key)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("the copy in the remote cluster has no %s: addresses belong to one cluster, and the copy gets one of its own there", strings.Join(missing, ", "))
}
