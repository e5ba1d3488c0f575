// SPDX-License-Identifier: Apache-2.0

package network

import (
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/endpoint"
)

// TestBounds: the API server refuses objects of a peer that are larger than any valid one.
func TestBounds(t *testing.T) {
	b := newBench(t)
	milan := b.peer("milan")
	milan.reports("10.201.0.0/16", "10.202.0.0/16", 1)
	tunnel := milan.tunnel.DeepCopy()
	tunnel.Spec = netv1alpha1.TunnelEndpointSpec{
		LocalPodCIDR: "10.200.0.0/16", LocalExternalCIDR: "10.0.0.0/16", RemotePodCIDR: "10.201.0.0/16", RemoteExternalCIDR: "10.202.0.0/16",
		BackendType: endpoint.Backend, BackendConfig: map[string]string{"publicKey": strings.Repeat("x", 253)},
	}
	b.Make(tunnel)
	many := map[string]string{}
	for i := range 17 {
		many[strconv.Itoa(i)] = "x"
	}
	for name, config := range map[string]map[string]string{
		"a long value": {"publicKey": strings.Repeat("x", 254)}, "a long name": {strings.Repeat("x", 64): "x"}, "many values": many,
	} {
		b.Read(milan.copy)
		milan.copy.Spec.BackendConfig = config
		if err := b.Update(t.Context(), milan.copy); !apierrors.IsInvalid(err) {
			t.Errorf("%s in a NetworkConfig: %v", name, err)
		}
		b.Read(tunnel)
		tunnel.Spec.BackendConfig = config
		if err := b.Update(t.Context(), tunnel); !apierrors.IsInvalid(err) {
			t.Errorf("%s in a TunnelEndpoint: %v", name, err)
		}
	}
}
