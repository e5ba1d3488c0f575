// SPDX-License-Identifier: Apache-2.0

package kinds

import "maps"

// uncopied are the fields of Services, Ingresses and EndpointSlices that the peer does not get, by type and JSON path, each with the reason. All others are
// copied or translated: TestPaths holds every field of the types of Kubernetes to that, at every depth.
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
