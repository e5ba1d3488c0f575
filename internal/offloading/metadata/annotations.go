// SPDX-License-Identifier: Apache-2.0

package metadata

// reach lists annotations with which known add-ons of a cluster give a pod what pods of peers must not have and no field of the pod
// requests. At the level Baseline, Check refuses them even if the administrator has put a wider pattern on the list of Allowed, and reflection
// names them to the user. The list cannot be complete; what is neither here nor allowed is left out.
var reach = []struct{ key, why string }{
	// Multus attaches the network of a definition, which may be in another namespace.
	{"k8s.v1.cni.cncf.io/networks", someNetwork},
	{"v1.multus-cni.io/default-network", someNetwork},
	// Calico assigns the addresses, pool, hardware address and packet sources that the pod names.
	{"cni.projectcalico.org/*", addresses},
	{"ipam.cilium.io/*", addresses},
	{"ovn.kubernetes.io/*", addresses},
	{"k8s.ovn.org/*", addresses},
	// kube2iam and kiam hand out credentials of the cloud.
	{"iam.amazonaws.com/*", "a role in the provider's cloud"},
	// CRI-O gives workloads devices and user namespaces of the node, and CPU shares.
	{"io.kubernetes.cri-o.*", "a setting of the node's container runtime"},
	// Seccomp before it was a field. Kubernetes up to 1.26 accepts it in place of the field.
	{"seccomp.security.alpha.kubernetes.io/*", seccomp},
	{"container.seccomp.security.alpha.kubernetes.io/*", seccomp},
}

const (
	someNetwork = "a network, which may be another namespace's"
	addresses   = "a choice of addresses in the provider's networks"
	seccomp     = "a seccomp profile, which is a field of the pod's securityContext"
)

// Reach returns what an annotation with this key gives a pod that pods of peers must not have; empty if nothing.
func Reach(key string) string {
	for _, reached := range reach {
		if (Keys{reached.key}).Match(key) {
			return reached.why
		}
	}
	return ""
}
