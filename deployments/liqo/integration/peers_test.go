// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/deployments/liqo/charttest"
)

// role returns the rules of a cluster role of the chart.
func role(t *testing.T, name string, set ...string) (rules []any) {
	t.Helper()
	rules, _, err := unstructured.NestedSlice(charttest.Find(t, charttest.Render(t, set...), "ClusterRole", name).Object, "rules")
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// TestPeersNetwork: a peer has rights on NetworkConfigs only if the internal network is enabled.
func TestPeersNetwork(t *testing.T) {
	on, off := role(t, "liqo-remote-peering-incoming", charttest.Internal), role(t, "liqo-remote-peering-incoming", "networking.internal=false")
	if len(on) != 5 || len(off) != 3 {
		t.Errorf("%d rules with the network, %d without", len(on), len(off))
	}
}

// TestPeers: in its tenant namespace, a peer may write its own objects, but not ours.
func TestPeers(t *testing.T) {
	ctx, admin, root := installed(t)
	const tenant = "liqo-tenant-rome-000000"
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: tenant, Name: "liqo-peer"}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant, Labels: map[string]string{
			"discovery.liqo.io/tenant-namespace": "true", "discovery.liqo.io/cluster-id": "rome-id",
		}}},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "peer"}, Subjects: []rbacv1.Subject{subject},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-remote-peering-basic"},
		},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "accepted-peer"}, Subjects: []rbacv1.Subject{subject},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-remote-peering-incoming"},
		},
		config(tenant, "ours", true), config(tenant, "theirs", false), namespaceMap(tenant, "ours", true), namespaceMap(tenant, "theirs", false),
		slice(tenant, "ours", true), slice(tenant, "theirs", false),
	} {
		if err := createUnchecked(ctx, root, object); err != nil {
			t.Fatal(err)
		}
	}
	limited := rest.CopyConfig(admin)
	limited.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + tenant + ":liqo-peer", Groups: []string{"system:authenticated"}}
	c := connect(t, limited)
	inForce(t, "liqo-peers", func() error { return c.Create(ctx, config(tenant, "evil", true), client.DryRunAll) })
	for _, test := range []struct {
		what    string
		err     error
		allowed bool
	}{
		{"the copy", c.Create(ctx, config(tenant, "network-rome-id", false), client.DryRunAll), true},
		{
			"the copy, applied",
			c.Apply(ctx, client.ApplyConfigurationFromUnstructured(config(tenant, "network-rome-id", false)), client.FieldOwner("peer"), client.DryRunAll),
			true,
		},
		{"its spec", patch(ctx, c, config(tenant, "theirs", false), "", `{"spec":{"endpointIP":"192.0.2.8"}}`), true},
		{"its deletion", c.Delete(ctx, config(tenant, "theirs", false), client.DryRunAll), true},
		{"the answer to ours", patch(ctx, c, config(tenant, "ours", true), "status", `{"status":{"processed":true,"podCIDRNAT":"None"}}`), true},
		{"a request", c.Create(ctx, slice(tenant, "another", false), client.DryRunAll), true},

		{"one more copy", c.Create(ctx, config(tenant, "network-milan-id", false), client.DryRunAll), false},
		{"any number of copies", c.Create(ctx, anyName(config(tenant, "", false)), client.DryRunAll), false},
		{
			"one more copy, applied",
			c.Apply(ctx, client.ApplyConfigurationFromUnstructured(config(tenant, "x", false)), client.FieldOwner("peer"), client.DryRunAll), false,
		},
		{"a NamespaceMap", c.Create(ctx, namespaceMap(tenant, "another", false), client.DryRunAll), true},
		{"a change of its NamespaceMap", patch(ctx, c, namespaceMap(tenant, "theirs", false), "", `{"spec":{"desiredMapping":{"a":"b"}}}`), true},

		{"our NamespaceMap", patch(ctx, c, namespaceMap(tenant, "ours", true), "", `{"spec":{"desiredMapping":{"a":"b"}}}`), false},
		{"access to our API server", patch(ctx, c, namespaceMap(tenant, "ours", true), "", `{"spec":{"withoutAPIServer":null}}`), false},
		{"the deletion of our NamespaceMap", c.Delete(ctx, namespaceMap(tenant, "ours", true), client.DryRunAll), false},
		{
			"our answer to its NamespaceMap",
			patch(ctx, c, namespaceMap(tenant, "theirs", false), "status", `{"status":{"currentMapping":{"a":{"phase":"Accepted"}}}}`), false,
		},
		{"a finalizer of a NamespaceMap", patch(ctx, c, namespaceMap(tenant, "theirs", false), "", `{"metadata":{"finalizers":["liqo.io/grant"]}}`), false},
		{"an original", c.Create(ctx, config(tenant, "evil", true), client.DryRunAll), false},
		{"ours", patch(ctx, c, config(tenant, "ours", true), "", `{"spec":{"endpointIP":"192.0.2.8"}}`), false},
		{
			"ours becomes theirs",
			patch(ctx, c, config(tenant, "ours", true), "", `{"metadata":{"labels":{"liqo.io/replicated":"true","liqo.io/replication":"false"}}}`),
			false,
		},
		{
			"theirs becomes ours",
			patch(ctx, c, config(tenant, "theirs", false), "", `{"metadata":{"labels":{"liqo.io/replicated":"false","liqo.io/replication":"true"}}}`),
			false,
		},
		{"the deletion of ours", c.Delete(ctx, config(tenant, "ours", true), client.DryRunAll), false},
		{"all of them", c.DeleteAllOf(ctx, config(tenant, "", false), client.InNamespace(tenant), client.DryRunAll), false},
		{"our answer to theirs", patch(ctx, c, config(tenant, "theirs", false), "status", `{"status":{"processed":true,"podCIDRNAT":"None"}}`), false},
		{"a finalizer", patch(ctx, c, config(tenant, "theirs", false), "", `{"metadata":{"finalizers":["example.com/hold"]}}`), false},
		{"a finalizer of the provider", patch(ctx, c, config(tenant, "theirs", false), "", `{"metadata":{"finalizers":["liqo.io/grant"]}}`), false},
		{"an answer of any length", patch(ctx, c, config(tenant, "ours", true), "status", `{"status":{"podCIDRNAT":"`+strings.Repeat("1", 1000)+`"}}`), false},
		{"an address of any length", patch(ctx, c, config(tenant, "theirs", false), "", `{"spec":{"endpointIP":"`+strings.Repeat("x", 1000)+`"}}`), false},
		{"our request", patch(ctx, c, slice(tenant, "ours", true), "", `{"spec":{"nodeName":"x"}}`), false},
		{"the deletion of our request", c.Delete(ctx, slice(tenant, "ours", true), client.DryRunAll), false},
		{"our answer to its request", patch(ctx, c, slice(tenant, "theirs", false), "status", `{"status":{"phase":"Accepted"}}`), false},
	} {
		if test.allowed && test.err != nil || !test.allowed && !apierrors.IsForbidden(test.err) && !apierrors.IsInvalid(test.err) {
			t.Errorf("%s: %v, want allowed: %t", test.what, test.err, test.allowed)
		}
	}
}

func anyName(object *unstructured.Unstructured) *unstructured.Unstructured {
	object.SetGenerateName("network-")
	return object
}

func patch(ctx context.Context, c client.Client, object client.Object, part, text string) error {
	change := client.RawPatch(types.MergePatchType, []byte(text))
	if part != "" {
		return c.SubResource(part).Patch(ctx, object, change, client.DryRunAll)
	}
	return c.Patch(ctx, object, change, client.DryRunAll)
}

// config returns a NetworkConfig: ours for the peer, or the peer's copy.
func config(namespace, name string, ours bool) *unstructured.Unstructured {
	return peersObject("net.liqo.io/v1alpha1", "NetworkConfig", namespace, name, ours, map[string]any{
		"cluster": map[string]any{"clusterID": "id", "clusterName": "name"}, "podCIDR": "10.0.0.0/16", "externalCIDR": "10.1.0.0/16",
		"endpointIP": "192.0.2.7", "backendType": "wireguard", "backend_config": map[string]any{"port": "5871"},
	})
}

func namespaceMap(namespace, name string, ours bool) *unstructured.Unstructured {
	return peersObject("virtualkubelet.liqo.io/v1alpha1", "NamespaceMap", namespace, name, ours, map[string]any{})
}

func slice(namespace, name string, ours bool) *unstructured.Unstructured {
	return peersObject("sharing.liqo.io/v1alpha1", "ResourceSlice", namespace, name, ours, map[string]any{
		"consumerClusterID": "a", "providerClusterID": "b", "nodeName": "n",
	})
}

func peersObject(version, kind, namespace, name string, ours bool, spec map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind, "spec": spec}}
	object.SetNamespace(namespace)
	object.SetName(name)
	object.SetLabels(map[string]string{"liqo.io/replication": "false", "liqo.io/replicated": "true"})
	if ours {
		object.SetLabels(map[string]string{"liqo.io/replication": "true", "liqo.io/remoteID": "rome"})
	}
	return object
}
