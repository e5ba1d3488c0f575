// SPDX-License-Identifier: Apache-2.0

package network

import (
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

// TestBounds: the API server keeps nothing of a peer that is larger than what is ever meant.
func TestBounds(t *testing.T) {
	b := newBench(t)
	milan := b.peer("milan")
	milan.says("10.201.0.0/16", "10.202.0.0/16", 1)
	tunnel := milan.tunnel.DeepCopy()
	tunnel.Spec = netv1alpha1.TunnelEndpointSpec{
		LocalPodCIDR: "10.200.0.0/16", LocalExternalCIDR: "10.0.0.0/16", RemotePodCIDR: "10.201.0.0/16", RemoteExternalCIDR: "10.202.0.0/16",
		BackendType: backend, BackendConfig: map[string]string{"publicKey": strings.Repeat("x", 253)},
	}
	b.Make(tunnel)
	many := map[string]string{}
	for i := range 17 {
		many[strconv.Itoa(i)] = "x"
	}
	for name, config := range map[string]map[string]string{"a long value": {"publicKey": strings.Repeat("x", 254)}, "a long name": {strings.Repeat("x", 64): "x"}, "many values": many} {
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

// TestPace: a peer that changes its mind again and again is answered at our pace.
func TestPace(t *testing.T) {
	b := newBench(t)
	b.admin = rest.CopyConfig(b.admin)
	b.admin.QPS = -1 // only the pace is to slow it down
	var err error
	b.Client, err = client.New(b.admin, client.Options{Scheme: b.scheme})
	b.Must(err)
	b.run()
	milan := b.peer("milan")
	milan.outgoing(discoveryv1alpha1.StatusEstablished)
	milan.says("10.201.0.0/16", "10.202.0.0/16", 1)
	milan.seen("None", "None")
	began := time.Now()
	for i := range paceBurst + 8 {
		b.Edit(milan.copy, func() { milan.copy.Spec.Lanes[0].Carriers[0].Port = int32(6000 + i) })
		milan.seen("None", "None")
	}
	if took := time.Since(began); took < 8*pacePause {
		t.Errorf("%d answers in %s", paceBurst+8, took)
	}
}
