// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netapply "liqo.io/liqo/apis/applyconfiguration/net/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

// TestNodeReports: the agent of a node writes the report of its own node, with a bounded number of networks, lists none, and writes into no other namespace.
func TestNodeReports(t *testing.T) {
	ctx, admin, _ := installed(t)
	agent := func(node ...string) client.Client {
		cfg := rest.CopyConfig(admin)
		cfg.Impersonate = rest.ImpersonationConfig{
			UserName: "system:serviceaccount:liqo:liqo-route", Groups: []string{"system:authenticated", "system:serviceaccounts"},
			Extra: map[string][]string{"authentication.kubernetes.io/node-name": node},
		}
		c := connect(t, cfg)
		if err := netv1alpha1.AddToScheme(c.Scheme()); err != nil {
			t.Fatal(err)
		}
		return c
	}
	write := func(c client.Client, namespace, name string, networks int) error {
		spec := netapply.NodeReportSpec()
		for range networks {
			spec.WithNetworks(netapply.NodeNetwork().WithCIDR("10.0.0.0/24").WithKind(netv1alpha1.NodeNetworkLink))
		}
		return c.Apply(ctx, netapply.NodeReport(name, namespace).WithSpec(spec), client.FieldOwner("test"), client.ForceOwnership)
	}
	one := agent("worker-1")
	inForce(t, "liqo-node-reports", func() error { return write(one, "liqo", "worker-2", 1) })
	for what, err := range map[string]error{
		"its own": write(one, "liqo", "worker-1", 2), "as many as it may": write(one, "liqo", "worker-1", netv1alpha1.MaxNodeNetworks),
		"none": write(one, "liqo", "worker-1", 0),
		"an API server that does not name the node": write(agent(), "liqo", "worker-3", 1),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	report := &netv1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "worker-1"}}
	for what, row := range map[string]struct {
		err  error
		part string
	}{
		"that of another node": {write(one, "liqo", "worker-3", 1), "liqo-node-reports"},
		"too many":             {write(one, "liqo", "worker-1", netv1alpha1.MaxNodeNetworks+1), "must have at most 64"},
		"another namespace":    {write(one, "default", "worker-1", 1), "cannot patch"},
		"a finalizer": {
			one.Apply(ctx, netapply.NodeReport("worker-1", "liqo").WithFinalizers("example.org/stay"), client.FieldOwner("test"), client.ForceOwnership),
			"liqo-node-reports",
		},
		"a deletion": {one.Delete(ctx, report), "cannot delete"},
		"all":        {one.List(ctx, &netv1alpha1.NodeReportList{}, client.InNamespace("liqo")), "cannot list"},
	} {
		if row.err == nil || !strings.Contains(row.err.Error(), row.part) {
			t.Errorf("%s: %v, want %q", what, row.err, row.part)
		}
	}
}
