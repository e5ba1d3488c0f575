// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	"liqo.io/liqo/internal/action/accept"
	"liqo.io/liqo/internal/action/actiontest"
	"liqo.io/liqo/internal/action/offload"
	"liqo.io/liqo/internal/offloading/choice"
)

// presents gives the virtual node of a cluster labels of its provider.
func presents(t *testing.T, c client.Client, cluster string, all map[string]string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "liqo-" + cluster}}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(node), node); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	node.Labels = map[string]string{labels.Type: labels.TypeVirtualNode, labels.RemoteClusterID: cluster + "-id", corev1.LabelHostname: node.Name}
	var keys []string
	for key, value := range all {
		node.Labels[key] = value
		keys = append(keys, key)
	}
	node.Annotations = map[string]string{labels.ProviderLabels: strings.Join(keys, ",")}
	if node.UID != "" {
		if err := c.Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		return
	}
	actiontest.Create(t, c, node)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := c.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
}

// testAcceptLabels: the labels that a provider presents at the first peering count for selectors, as the documented installation with
// --cluster-labels wants it. What it changes or adds later counts only once an administrator accepts it, and every message about it has a command
// that works.
func testAcceptLabels(t *testing.T, config *rest.Config) {
	c := actiontest.Installed(t, config)
	actiontest.Ensure(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	milan := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}}
	milan.Spec.ForeignAuthURL = "https://milan.example.com"
	milan.Spec.ClusterIdentity = &discoveryv1alpha1.ClusterIdentity{ClusterID: "milan-id", ClusterName: "milan"}
	milan.Labels = map[string]string{labels.ClusterID: "milan-id"}
	actiontest.Create(t, c, milan)
	accepted := func() []string {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(milan), milan); err != nil {
			t.Fatal(err)
		}
		return milan.Spec.AcceptedLabels
	}
	peered := func(words accept.LabelWords) string {
		progress := &actiontest.Recorder{}
		words.Apply(t.Context(), c, "milan", progress)
		return progress.Text()
	}
	// offloaded returns what the command prints when the controllers choose no cluster.
	offloaded := func(selector string) string {
		t.Helper()
		var before offloadingv1alpha1.NamespaceOffloading
		_ = c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "offloading"}, &before)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go reconcile(ctx, c, "shop", "NoClusterSelected", func(one *offloadingv1alpha1.NamespaceOffloading) bool { return one.Generation > before.Generation })
		progress := &actiontest.Recorder{}
		o := offload.Options{
			Namespace: "shop", PodOffloadingStrategy: "LocalAndRemote", NamespaceMappingStrategy: "DefaultName", Selectors: []string{selector},
			Timeout: 15 * time.Second,
		}
		if err := offload.Namespace(t.Context(), c, o, progress); err != nil {
			t.Fatal(err)
		}
		return progress.Text()
	}
	wants := func(what, text, want string) {
		t.Helper()
		if !strings.Contains(text, want) {
			t.Errorf("%s: the output is\n%s\nwithout %q", what, text, want)
		}
	}
	const documented = "region in (B),provider in (AWS)"
	selects := func() bool {
		t.Helper()
		selector, err := offload.ClusterSelector([]string{documented})
		if err != nil {
			t.Fatal(err)
		}
		var node corev1.Node
		if err := c.Get(t.Context(), client.ObjectKey{Name: "liqo-milan"}, &node); err != nil {
			t.Fatal(err)
		}
		view, _ := choice.View(&node, accepted())
		fits, err := choice.Fits(&selector, view)
		return fits && err == nil
	}
	presents(t, c, "milan", map[string]string{"provider": "AWS", "region": "B", "topology.kubernetes.io/zone": "a"})
	if text := peered(accept.LabelWords{}); text != "" || accepted() != nil || selects() {
		t.Errorf("labels were left out, and accepted are %v: %s", accepted(), text)
	}
	wants("the selector names labels that are not accepted", offloaded(documented), `WARN Cluster "milan" has the labels provider=AWS, `+
		`region=B, but they are not accepted; if you trust it with this namespace: liqoctl accept labels milan provider=AWS region=B`)
	wants(
		"the selector names none of them", offloaded("disk=ssd"),
		`INFO Cluster "milan" can be selected by topology.kubernetes.io/zone=a; not accepted are provider=AWS, region=B`,
	)

	wants(
		"the first peering", peered(accept.LabelWords{Accept: true}),
		`INFO Labels of cluster "milan", which cluster selectors consider from now on: provider=AWS, region=B`,
	)
	if want := append(choice.Accepted(nil), "provider=AWS", "region=B"); !slices.Equal(accepted(), want) || !selects() {
		t.Fatalf("accepted are %v, want %v, and the documented selector selects the cluster: %t", accepted(), want, selects())
	}
	version := milan.ResourceVersion
	if text := peered(accept.LabelWords{Accept: true}); text != "" || len(accepted()) == 0 || milan.ResourceVersion != version {
		t.Errorf("the second time changed something: %s", text)
	}
	wants("everything is accepted", offloaded("disk=ssd"), `INFO Cluster "milan" can be selected by provider=AWS, region=B, topology.kubernetes.io/zone=a`)

	// What changes or comes later.
	presents(t, c, "milan", map[string]string{"provider": "AWS", "region": "C", "trust": "high"})
	if selects() {
		t.Error("a label that the provider changed still selects it")
	}
	wants(
		"another peering", peered(accept.LabelWords{Accept: true}),
		`do not consider: region=C, trust=high; to accept them: liqoctl accept labels milan region=C trust=high`,
	)
	wants(
		"a selector of a later label", offloaded("trust=high"),
		"has the labels trust=high, but they are not accepted; if you trust it with this namespace: liqoctl accept labels milan trust=high",
	)
	for label, refusal := range map[string]string{
		"region=B": `"region=B" is not a label that cluster "milan" presents now, which are provider=AWS, region=C, trust=high; nothing was changed`,
		"region":   "is not a label that", "*": "is not a label that",
	} {
		if err := accept.Labels(t.Context(), c, "milan", []string{"trust=high", label}, &actiontest.Recorder{}); err == nil ||
			!strings.Contains(err.Error(), refusal) {
			t.Errorf("%s: %v", label, err)
		}
	}
	if slices.Contains(accepted(), "trust=high") {
		t.Error("a refused command accepted a label")
	}
	progress := &actiontest.Recorder{}
	if err := accept.Labels(t.Context(), c, "milan", []string{"region=C"}, progress); err != nil {
		t.Fatal(err)
	}
	if now := accepted(); slices.Contains(now, "region=B") || !slices.Contains(now, "region=C") ||
		slices.Contains(now, "trust=high") || !slices.Contains(now, "provider=AWS") {
		t.Errorf("accepted are %v", now)
	}
	wants("accepted", progress.Text(), `INFO Labels of cluster "milan" that cluster selectors consider from now on: region=C`)

	// A provider with more labels than the list can have.
	many := map[string]string{}
	for i := range 120 {
		many[fmt.Sprint("label-", i)] = "x"
	}
	presents(t, c, "milan", many)
	milan.Spec.AcceptedLabels = nil
	if err := c.Update(t.Context(), milan); err != nil {
		t.Fatal(err)
	}
	wants("too many", peered(accept.LabelWords{Accept: true}), "with 120 labels the list would be longer than 100")
	if accepted() != nil {
		t.Errorf("accepted are %v", accepted())
	}
	if err := c.DeleteAllOf(t.Context(), &offloadingv1alpha1.NamespaceOffloading{}, client.InNamespace("shop")); err != nil {
		t.Fatal(err)
	}
}
