// SPDX-License-Identifier: Apache-2.0

package shadow

import "strings"

// reach is what annotations of a pod give it by known add-ons of a cluster: what its namespace must not have, and no field of a pod says.
// A key that ends in * stands for all that begin so. No such list is complete: whoever runs an add-on that believes annotations of pods has to tell
// it about twins.
var reach = []struct{ key, why string }{
	// Multus attaches what a definition says, one of another namespace if it is named so.
	{"k8s.v1.cni.cncf.io/networks", networks},
	{"v1.multus-cni.io/default-network", networks},
	// Calico gives the addresses, from the pool, with the hardware address and the sources of packets that the pod names.
	{"cni.projectcalico.org/*", addresses},
	{"ipam.cilium.io/*", addresses},
	{"ovn.kubernetes.io/*", addresses},
	{"k8s.ovn.org/*", addresses},
	// kube2iam and kiam hand out credentials of the cloud.
	{"iam.amazonaws.com/*", "a role in the provider's cloud"},
	// What CRI-O lets workloads have: devices and user namespaces of the node, and shares of its processors.
	{"io.kubernetes.cri-o.*", "a setting of the node's container runtime"},
	// Seccomp before it was a field, in whose place Kubernetes up to 1.26 takes it.
	{"seccomp.security.alpha.kubernetes.io/*", seccomp},
	{"container.seccomp.security.alpha.kubernetes.io/*", seccomp},
}

const (
	networks  = "a network, which may be another namespace's"
	addresses = "a choice of addresses in the provider's networks"
	seccomp   = "a seccomp profile, which is a field of the pod's securityContext"
)

// Reach says what an annotation of that key gives a pod that pods of peers must not have; empty if nothing.
func Reach(key string) string {
	for _, one := range reach {
		if begin, all := strings.CutSuffix(one.key, "*"); one.key == key || all && strings.HasPrefix(key, begin) {
			return one.why
		}
	}
	return ""
}
