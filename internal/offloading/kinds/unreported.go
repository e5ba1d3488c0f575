// SPDX-License-Identifier: Apache-2.0

package kinds

import "maps"

// unreported are the fields of statuses that do not come back from the peer, by type and JSON path, each with the reason. All others are projected: texts are
// bounded and made printable, amounts bounded by the pod's own, addresses and generations translated. TestFields and TestUnreported hold
// every field of the types of Kubernetes to that.
var unreported = map[string]string{
	"PodStatus.nominatedNodeName":                    "the scheduler of this cluster writes it, about its own nodes",
	"PodStatus.qosClass":                             "it follows from the requests of the local pod",
	"PodStatus.resize":                               "deprecated: the conditions PodResizePending and PodResizeInProgress come back",
	"PodStatus.resourceClaimStatuses":                "resource claims are not reflected, and those of the local pod belong to controllers of this cluster",
	"PodStatus.resources.claims":                     "the same",
	"PodStatus.extendedResourceClaimStatus":          "the scheduler of this cluster writes it, about claims here",
	"PodStatus.nodeAllocatableResourceClaimStatuses": "the scheduler of this cluster writes it, about claims here",
	"PodStatus.volumeHealth":                         "volumes of the remote pod are claims of the other cluster, whose health its administrator watches",
	"ContainerStatus.allocatedResourcesStatus":       "it names devices of nodes of the other cluster",
	"ContainerStatus.volumeMounts.volumeStatus":      "it names an image as the other cluster pulled it, maybe from a mirror that only its nodes know",
	"ServiceStatus.loadBalancer":                     "each cluster has a load balancer of its own, with addresses of its own, for its copy of the Service",
	"ServiceStatus.conditions":                       "controllers of each cluster write those of their own copy",
	"IngressStatus.loadBalancer":                     "the ingress controller of each cluster has addresses of its own",
}

// Unreported returns the fields of statuses that do not come back, with the reasons.
func Unreported() map[string]string { return maps.Clone(unreported) }
