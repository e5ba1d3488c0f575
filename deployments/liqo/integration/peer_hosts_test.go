// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/kube/kubetest"
)

// TestAttackNH3: an Ingress of a peer takes no host of the provider. With default values it has none at all; with every host allowed, none that another
// Ingress has, created or updated, and none that covers one.
func TestAttackNH3(t *testing.T) {
	t.Run("default values", nh3Default)
	t.Run("every host", nh3Every)
}

func nh3Default(t *testing.T) {
	ctx, admin, root := installed(t)
	const remote = "web-rome-000000"
	c := asPeer(ctx, t, admin, root, remote)
	before := peerObject(remote, "Ingress", nil, nil, ingressOf("before.example.org", "/a"))
	before.SetName("before")
	if err := root.Create(ctx, before); err != nil { // as an earlier version of the chart admitted it
		t.Fatal(err)
	}
	inForce(t, "liqo-peers-objects", func() error {
		return c.Create(ctx, peerObject(remote, "ConfigMap", keys{"grafana_dashboard": "1"}, nil, nil), client.DryRunAll)
	})
	const refused = "peers.ingresses.hosts"
	for _, test := range []attempt{
		{"a host of the provider", "Ingress", nil, nil, ingressOf("shop.provider.example", "/login"), refused},
		{"a wildcard that covers it", "Ingress", nil, nil, ingressOf("*.provider.example", "/login"), refused},
		{"every host", "Ingress", nil, nil, ingressOf("", "/login"), refused},
		{"a default backend", "Ingress", nil, nil, ingressOf("", ""), refused},
		{"a certificate", "Ingress", nil, nil, withTLS(ingressOf("shop.provider.example", "/a"), "shop.provider.example"), refused},
	} {
		test.check(ctx, t, c, remote)
	}
	change := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"rules":[{"host":"shop.provider.example"}]}}`))
	if err := c.Patch(ctx, before.DeepCopy(), change, client.DryRunAll); err == nil || !strings.Contains(err.Error(), refused) {
		t.Errorf("an update to a host of the provider: %v", err)
	}
	if err := c.Delete(ctx, before); err != nil {
		t.Errorf("the deletion of an Ingress from before: %v", err)
	}
}

// withTLS adds hosts of a certificate.
func withTLS(fields map[string]any, hosts ...any) map[string]any {
	fields["spec"].(map[string]any)["tls"] = []any{map[string]any{"hosts": hosts, "secretName": "x"}}
	return fields
}

func nh3Every(t *testing.T) {
	const all = `peers.ingresses.hosts={*,*.rome.example,own.rome.example,}` // the last is empty: no host
	h := newWebhookEnv(t, all)
	const remote, other = "web-rome-000000", "web-turin-000000"
	c := asCheckedPeer(t.Context(), t, h.admin, h.Client, remote)
	for _, namespace := range []string{"shop", "more"} {
		h.namespace(namespace)
	}
	h.must(h.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other, Labels: keys{"liqo.io/remote-cluster-id": "turin"}}}))
	own := func(namespace, name string, fields map[string]any) *unstructured.Unstructured {
		ingress := peerObject(namespace, "Ingress", nil, nil, fields)
		ingress.SetName(name)
		return ingress
	}
	for _, one := range []*unstructured.Unstructured{
		own("shop", "name", ingressOf("shop.provider.example", "/")), own("shop", "wildcard", ingressOf("*.apps.provider.example", "/")),
		own("shop", "rest", ingressOf("", "")),
		own("shop", "tls", withTLS(ingressOf("a.b.rome.example", "/"), "tls.provider.example")), own(other, "peer", ingressOf("own.rome.example", "/")),
	} {
		h.must(h.Create(t.Context(), one))
	}
	const refused = "must not have the host"
	kubetest.Eventually(t, "hosts are compared", func() error {
		err := c.Create(t.Context(), own(remote, "x", ingressOf("shop.provider.example", "/login")), client.DryRunAll)
		if err != nil && strings.Contains(err.Error(), refused) {
			return nil
		}
		return fmt.Errorf("%v, want a refusal of the host", err)
	})
	for _, test := range []attempt{
		{"a host of the provider", "Ingress", nil, nil, ingressOf("shop.provider.example", "/login"), refused},
		{"a wildcard that covers it", "Ingress", nil, nil, ingressOf("*.provider.example", "/login"), refused},
		{"a wildcard that covers one in the peer's domain", "Ingress", nil, nil, ingressOf("*.rome.example", "/login"), refused},
		{"a host that a wildcard of the provider covers", "Ingress", nil, nil, ingressOf("a.apps.provider.example", "/login"), refused},
		{"the same wildcard", "Ingress", nil, nil, ingressOf("*.apps.provider.example", "/login"), refused},
		{"every host", "Ingress", nil, nil, ingressOf("", "/login"), refused},
		{"a default backend", "Ingress", nil, nil, ingressOf("", ""), refused},
		{"a certificate for a host of the provider", "Ingress", nil, nil, withTLS(ingressOf("x.rome.example", "/"), "shop.provider.example"), refused},
		{"a host in a certificate of the provider", "Ingress", nil, nil, ingressOf("tls.provider.example", "/login"), refused},
		{"a host of another peer, although it is written down", "Ingress", nil, nil, ingressOf("own.rome.example", "/login"), refused},
		{"a host of its own", "Ingress", nil, nil, ingressOf("free.example.org", "/login"), ""},
		{"a host of its own in its domain", "Ingress", nil, nil, ingressOf("free.rome.example", "/"), ""},
	} {
		test.check(t.Context(), t, c, remote)
	}
	kept := own(remote, "kept", ingressOf("kept.rome.example", "/"))
	h.must(c.Create(t.Context(), kept))
	change := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"rules":[{"host":"shop.provider.example",`+
		`"http":{"paths":[{"path":"/login","pathType":"Exact","backend":{"service":{"name":"x","port":{"number":80}}}}]}}]}}`))
	if err := c.Patch(t.Context(), kept.DeepCopy(), change, client.DryRunAll); err == nil || !strings.Contains(err.Error(), refused) {
		t.Errorf("an update to a host of the provider: %v", err)
	}
	if err := c.Patch(t.Context(), kept.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))); err != nil {
		t.Errorf("an update of its own Ingress: %v", err)
	}

	// An Ingress of the provider that comes later is not refused, and an event reports what to do.
	late := own("more", "late", ingressOf("kept.rome.example", "/"))
	h.must(h.Create(t.Context(), late))
	h.until("an event reports the conflict", func() bool {
		var all eventsv1.EventList
		h.must(h.List(t.Context(), &all, client.InNamespace("more")))
		for _, one := range all.Items {
			if one.Reason == "HostOfPeer" && one.Regarding.Name == "late" &&
				strings.Contains(one.Note, "kept.rome.example") && strings.Contains(one.Note, remote+"/kept") {
				return true
			}
		}
		return false
	})
	var still networkingv1.Ingress
	h.must(h.Get(t.Context(), client.ObjectKeyFromObject(late), &still))
}

// ingressTyped is ingressOf with a type of path.
func ingressTyped(host, path, pathType string) map[string]any {
	fields := ingressOf(host, path)
	rule := fields["spec"].(map[string]any)["rules"].([]any)[0].(map[string]any)
	one := rule["http"].(map[string]any)["paths"].([]any)[0].(map[string]any)
	if one["pathType"] = pathType; path == "" {
		delete(one, "path")
	}
	return fields
}

// TestAttackNM7: no path of a peer answers the question of a certificate authority, neither below nor above the path of the question.
func TestAttackNM7(t *testing.T) {
	ctx, admin, root := installed(t, "peers.ingresses.hosts={*,shop.example.org,*.rome.example}")
	const remote, challenge, plain, only = "web-rome-000000", "acme-challenge", "plain paths", "that only * allows"
	c := asPeer(ctx, t, admin, root, remote)
	inForce(t, "liqo-peers-objects", func() error {
		return c.Create(ctx, peerObject(remote, "ConfigMap", keys{"grafana_dashboard": "1"}, nil, nil), client.DryRunAll)
	})
	for _, test := range []struct{ host, path, types, refused string }{
		{"shop.example.org", "/.well-known/acme-challenge/", "Prefix Exact ImplementationSpecific", challenge},
		{"shop.example.org", "/.well-known/acme-challenge/token", "Prefix Exact ImplementationSpecific", challenge},
		{"shop.example.org", "/.Well-Known/ACME-challenge/token", "Prefix Exact ImplementationSpecific", challenge},
		{"shop.example.org", "/.well-known/acme-challenge", "Prefix Exact ImplementationSpecific", challenge},
		{"shop.example.org", "/.well-known/acme-", "Prefix Exact ImplementationSpecific", challenge},
		{"shop.example.org", "/.well-known/a", "Prefix Exact ImplementationSpecific", challenge},
		{"shop.example.org", "/.well-known/", "Prefix Exact ImplementationSpecific", challenge},
		{"shop.example.org", "/.well-known", "Prefix Exact ImplementationSpecific", challenge},
		{"shop.example.org", "/.w", "Prefix Exact ImplementationSpecific", challenge},
		{"shop.example.org", "/.well-known/acme.challenge/token", "ImplementationSpecific", challenge},
		{"shop.example.org", "/...........", "ImplementationSpecific", challenge},
		{"shop.example.org", "/(.well-known|a)/acme-challenge/", "ImplementationSpecific", plain},
		{"shop.example.org", "/.*", "ImplementationSpecific", plain},
		{"shop.example.org", "/[.]well-known/", "ImplementationSpecific", plain},
		{"shop.example.org", "/%2ewell-known/acme-challenge/", "Prefix Exact ImplementationSpecific", plain},
		{"free.example.org", "/", "Prefix ImplementationSpecific", only},
		{"free.example.org", "", "ImplementationSpecific", only},

		{"free.example.org", "/", "Exact", ""},
		{"free.example.org", "/shop", "Prefix Exact ImplementationSpecific", ""},
		{"shop.example.org", "/", "Prefix Exact ImplementationSpecific", ""},
		{"shop.example.org", "", "ImplementationSpecific", ""},
		{"a.rome.example", "/", "Prefix Exact ImplementationSpecific", ""},
		{"shop.example.org", "/v1.2/a_b~c-d/x.html", "Prefix Exact ImplementationSpecific", ""},
		{"shop.example.org", "/.well-known/openid-configuration", "Prefix Exact ImplementationSpecific", ""},
	} {
		for _, pathType := range strings.Fields(test.types) {
			attempt{test.host + test.path + " " + pathType, "Ingress", nil, nil, ingressTyped(test.host, test.path, pathType), test.refused}.check(ctx, t, c, remote)
		}
	}
	hostOnly := map[string]any{"spec": map[string]any{"rules": []any{map[string]any{"host": "free.example.org"}}}}
	attempt{"a rule without paths", "Ingress", nil, nil, hostOnly, only}.check(ctx, t, c, remote)
	if err := c.Create(ctx, peerObject(remote, "Ingress", nil, nil, ingressOf("", "/a")), client.DryRunAll); err == nil ||
		!strings.Contains(err.Error(), "(no host)") && !strings.Contains(err.Error(), "peers.ingresses.hosts") {
		t.Errorf("a rule without a host: %v", err)
	}
}
