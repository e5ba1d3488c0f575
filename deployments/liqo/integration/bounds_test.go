// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	liqo "liqo.io/liqo/deployments/liqo"
	"liqo.io/liqo/internal/kube/crds"
	"liqo.io/liqo/internal/kube/kubetest"
)

// TestAttackH5: the API server itself refuses objects of a peer that would cost the controllers of this cluster much with each look at them.
func TestAttackH5(t *testing.T) {
	t.Parallel()
	c := connect(t, kubetest.Cluster(t))
	definitions, err := crds.Load(liqo.FS)
	if err != nil {
		t.Fatal(err)
	}
	if err := crds.Apply(t.Context(), c, definitions, func(string) {}); err != nil {
		t.Fatal(err)
	}
	type object = map[string]any
	names := func(n int) object {
		all := object{}
		for i := range n {
			all[fmt.Sprint("name-", i)] = "x"
		}
		return all
	}
	amounts := func(n int) object {
		all := object{}
		for i := range n {
			all[fmt.Sprint("example.com/thing-", i)] = "1"
		}
		return all
	}
	addresses := func(n int) object {
		all := []any{}
		for i := range n {
			all = append(all, fmt.Sprintf("10.0.%d.%d", i/250, 1+i%250))
		}
		return object{"addresses": all}
	}
	repeat := func(n int, one object) (all []any) {
		for range n {
			all = append(all, one)
		}
		return all
	}
	endpoints := func(endpoints, ports []any) object {
		return object{"template": object{"addressType": "IPv4", "endpoints": endpoints, "ports": ports}}
	}
	const maps, slices, endpointSlices = "virtualkubelet.liqo.io/v1alpha1 NamespaceMap",
		"sharing.liqo.io/v1alpha1 ResourceSlice", "virtualkubelet.liqo.io/v1alpha1 ShadowEndpointSlice"
	resources := func(n int) object {
		return object{"consumerClusterID": "a", "providerClusterID": "b", "nodeName": "n", "resources": amounts(n)}
	}
	port := object{"port": int64(80)}
	for _, test := range []struct {
		kind, what string
		spec       object
		allowed    bool
	}{
		{maps, "5000 namespaces", object{"desiredMapping": names(5000)}, true},
		{maps, "5001 namespaces", object{"desiredMapping": names(5001)}, false},
		{slices, "64 resources", resources(64), true},
		{slices, "65 resources", resources(65), false},
		{endpointSlices, "1000 endpoints", endpoints(repeat(1000, addresses(1)), repeat(1, port)), true},
		{endpointSlices, "1001 endpoints", endpoints(repeat(1001, addresses(1)), nil), false},
		{endpointSlices, "100 addresses", endpoints(repeat(1, addresses(100)), nil), true},
		// what its fields are, the provider judges: TestAttackH5 in internal/offloading/shadow
		{endpointSlices, "an endpoint that is none", endpoints([]any{"x"}, nil), false},
		{endpointSlices, "1001 ports", endpoints(repeat(1, addresses(1)), repeat(1001, port)), false},
	} {
		one := &unstructured.Unstructured{Object: object{"spec": test.spec}}
		var version, kind string
		if _, err := fmt.Sscan(test.kind, &version, &kind); err != nil {
			t.Fatal(err)
		}
		one.SetAPIVersion(version)
		one.SetKind(kind)
		one.SetNamespace("default")
		one.SetName("x")
		err := c.Create(t.Context(), one, client.DryRunAll)
		if test.allowed && err != nil || !test.allowed && !apierrors.IsInvalid(err) {
			t.Errorf("%s with %s: %.300v, want allowed: %t", kind, test.what, err, test.allowed)
		}
	}
}
