// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/deployments/liqo/charttest"
)

func budgetOf(namespace string, spec map[string]any) *unstructured.Unstructured {
	object := peerObject(
		namespace, "PodDisruptionBudget", keys{"virtualkubelet.liqo.io/origin": "rome", "virtualkubelet.liqo.io/destination": "milan"}, nil,
		map[string]any{"spec": spec},
	)
	object.SetAPIVersion("policy/v1")
	return object
}

// ofRome selects the pods of the peer rome with a label.
func ofRome(more map[string]any) map[string]any {
	labels := map[string]any{"virtualkubelet.liqo.io/origin": "rome"}
	for key, value := range more {
		labels[key] = value
	}
	return map[string]any{"matchLabels": labels}
}

// TestPeerBudgets: a peer writes budgets of the form that Kubernetes evaluates for its pods, of its own pods alone, and nothing that others obey.
func TestPeerBudgets(t *testing.T) {
	ctx, admin, root := installed(t)
	peer := asPeer(ctx, t, admin, root, "shop-rome")
	inForce(t, "liqo-peers-budgets", func() error {
		return peer.Create(ctx, budgetOf("shop-rome", map[string]any{"minAvailable": "50%", "selector": ofRome(nil)}), client.DryRunAll)
	})
	plain := func() map[string]any {
		return map[string]any{"minAvailable": int64(1), "selector": ofRome(map[string]any{"app": "web"})}
	}
	for name, row := range map[string]struct {
		spec   map[string]any
		change func(*unstructured.Unstructured)
		want   string // empty: admitted
	}{
		"a number":             {spec: plain()},
		"zero":                 {spec: map[string]any{"minAvailable": int64(0), "selector": ofRome(nil)}},
		"all pods of the peer": {spec: map[string]any{"minAvailable": int64(2147483647), "selector": ofRome(nil)}},
		"expressions": {spec: map[string]any{"minAvailable": int64(1), "unhealthyPodEvictionPolicy": "AlwaysAllow", "selector": map[string]any{
			"matchLabels":      map[string]any{"virtualkubelet.liqo.io/origin": "rome"},
			"matchExpressions": []any{map[string]any{"key": "app", "operator": "Exists"}},
		}}},
		"a percentage":      {spec: map[string]any{"minAvailable": "50%", "selector": ofRome(nil)}, want: "minAvailable as a number"},
		"maxUnavailable":    {spec: map[string]any{"maxUnavailable": int64(0), "selector": ofRome(nil)}, want: "minAvailable as a number"},
		"nothing":           {spec: map[string]any{"selector": ofRome(nil)}, want: "minAvailable as a number"},
		"an empty selector": {spec: map[string]any{"minAvailable": int64(1), "selector": map[string]any{}}, want: "must select its own pods"},
		"no selector":       {spec: map[string]any{"minAvailable": int64(1)}, want: "must select its own pods"},
		"pods of everybody": {
			spec: map[string]any{"minAvailable": int64(1), "selector": map[string]any{"matchLabels": map[string]any{"app": "web"}}},
			want: "must select its own pods",
		},
		"pods of another peer": {
			spec: map[string]any{"minAvailable": int64(1), "selector": map[string]any{"matchLabels": map[string]any{"virtualkubelet.liqo.io/origin": "paris"}}},
			want: "must select its own pods",
		},
		"its own by an expression": {spec: map[string]any{"minAvailable": int64(1), "selector": map[string]any{
			"matchExpressions": []any{map[string]any{"key": "virtualkubelet.liqo.io/origin", "operator": "In", "values": []any{"rome", "paris"}}},
		}}, want: "must select its own pods"},
		"a label": {
			spec: plain(), want: "must have no labels but",
			change: func(o *unstructured.Unstructured) { o.SetLabels(keys{"argocd.argoproj.io/instance": "x"}) },
		},
		"an annotation": {
			spec: plain(), want: "must have no annotations", change: func(o *unstructured.Unstructured) { o.SetAnnotations(keys{"x": "y"}) },
		},
		"a finalizer": {spec: plain(), want: "finalizer", change: func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.org/stay"}) }},
	} {
		object := budgetOf("shop-rome", row.spec)
		if row.change != nil {
			row.change(object)
		}
		err := peer.Create(ctx, object, client.DryRunAll)
		if refused := err != nil && strings.Contains(err.Error(), row.want); (row.want == "") != (err == nil) || row.want != "" && !refused {
			t.Errorf("%s: got %v, want a refusal with %q", name, err, row.want)
		}
	}

	// What an administrator adds to a copy does not keep the peer from changing its number, and the peer cannot make more of it.
	if err := peer.Create(ctx, budgetOf("shop-rome", plain())); err != nil {
		t.Fatal(err)
	}
	live := budgetOf("shop-rome", nil)
	if err := root.Get(ctx, client.ObjectKeyFromObject(live), live); err != nil {
		t.Fatal(err)
	}
	live.SetAnnotations(keys{"example.org/note": "why"})
	live.SetFinalizers([]string{"example.org/watch"})
	if err := root.Update(ctx, live); err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedField(live.Object, int64(2), "spec", "minAvailable"); err != nil {
		t.Fatal(err)
	}
	if err := peer.Update(ctx, live); err != nil {
		t.Errorf("the peer cannot change the number: %v", err)
	}
	live.SetAnnotations(keys{"example.org/note": "another"})
	if err := peer.Update(ctx, live, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "must have no annotations") {
		t.Errorf("the peer changes an annotation: %v", err)
	}
	// Administrators write what they like.
	own := budgetOf("shop-rome", map[string]any{"maxUnavailable": "10%", "selector": map[string]any{}})
	own.SetName("own")
	if err := root.Create(ctx, own); err != nil {
		t.Errorf("a budget of the administrator: %v", err)
	}
}

// TestBudgetRights: peers have the right to write budgets by default. Without the value they read and delete theirs.
func TestBudgetRights(t *testing.T) {
	for set, want := range map[string]string{"peers.budgets=true": "get list watch create update patch delete", "peers.budgets=false": "get list watch delete"} {
		object := charttest.Find(t, charttest.Render(t, set), "ClusterRole", "liqo-virtual-kubelet-remote")
		var role rbacv1.ClusterRole
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, rule := range role.Rules {
			if rule.APIGroups[0] == "policy" {
				got = rule.Verbs
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: verbs %v, want %s", set, got, want)
		}
	}
}
