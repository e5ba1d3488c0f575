// SPDX-License-Identifier: Apache-2.0

package networktest

import (
	"testing"

	"liqo.io/liqo/internal/kube/kubetest/hardening"
)

// TestHardening: the pods of a test may do nothing but answer, those in the network of the host included.
func TestHardening(t *testing.T) {
	s := &end{image: "localhost/liqo:v1", namespace: "liqo-test-network-1", nodes: []node{{name: "a"}}}
	for kind, accepted := range map[string]map[string]string{
		networkPod: {},
		pairPod:    {},
		hostPod:    {"host network": "the test compares pods with nodes"},
	} {
		hardening.Check(t, s.pod(s.nodes[0], kind, "key").Name, hardening.Ends, &s.pod(s.nodes[0], kind, "key").Spec, accepted)
	}
}
