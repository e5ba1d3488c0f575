// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/kube/kubetest"
)

func externalName(name string) map[string]any {
	return map[string]any{"spec": map[string]any{"type": "ExternalName", "externalName": name}}
}

// TestExternalNames: a Service of a peer may stand for a name of the public network, and for none that leads into the network of this cluster.
func TestExternalNames(t *testing.T) {
	ctx, admin, root := installed(t, "peers.services.refusedExternalNames={local,localhost,internal,lan,intern.milan.example}")
	const remote, refused = "web-rome-000000", "must not have the externalName"
	c := asPeer(ctx, t, admin, root, remote)
	inForce(t, "liqo-peers-objects", func() error {
		return c.Create(ctx, peerObject(remote, "ConfigMap", keys{"grafana_dashboard": "1"}, nil, nil), client.DryRunAll)
	})
	for name, refusal := range map[string]string{
		"db.example.com": "", "example.com": "", "www.xn--bcher-kva.example": "", "s3.eu-west-1.amazonaws.com": "", "a.b.c.d.example.org": "",
		"index.svc.eu.pinecone.example": "",
		"local.example.com":             "", "svc.example.com": "", "pod.svc.example.com": "", "10.example.com": "", "milan.example": "", "xinternal": refused,
		"xinternal.example": "",
		// This cluster.
		"kubernetes": refused, "kubernetes.default.svc": refused, "kubernetes.default.svc.cluster.local": refused,
		"kubernetes.default.svc.milan.example": refused, "a.kubernetes.default.svc": refused,
		"10-0-0-1.bank.pod.cluster.local": refused, "10-0-0-1.bank.pod.milan.example": refused, "localhost": refused, "a.localhost": refused,
		// Its network.
		"metadata.google.internal": refused, "instance-data.ec2.internal": refused, "internal": refused, "printer.lan": refused, "nas.local": refused,
		"intern.milan.example": refused, "db.intern.milan.example": refused, "xintern.milan.example": "",
		// Addresses, also as resolvers of the C library read them.
		"169.254.169.254": refused, "10.0.0.1": refused, "127.1": refused, "0x7f.1": refused, "2852039166": refused, "0xa9fea9fe": refused,
		"1.2.3.0x4": refused, "a.1": refused,
	} {
		attempt{name, "Service", nil, nil, externalName(name), refusal}.check(ctx, t, c, remote)
	}
	// Services in namespaces of the peer, and of others. A namespace that comes later is known a moment later.
	for name, label := range (keys{"other-rome-000000": "rome", "bank": "", "web-turin-000000": "turin"}) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if label != "" {
			namespace.Labels = keys{"liqo.io/remote-cluster-id": label}
		}
		if err := root.Create(ctx, namespace); err != nil {
			t.Fatal(err)
		}
	}
	kubetest.Eventually(t, "the API server knows the namespaces", func() error {
		for _, name := range []string{"bank", "web-turin-000000"} {
			if err := c.Create(ctx, peerObject(remote, "Service", nil, nil, externalName("vault."+name+".svc.cluster.local")), client.DryRunAll); err == nil {
				return errors.New(name + " is accepted")
			}
		}
		return nil
	})
	for name, refusal := range map[string]string{
		"db." + remote + ".svc.cluster.local": "", "db." + remote + ".svc": "", "db-0.db." + remote + ".svc.milan.example": "",
		"db.other-rome-000000.svc.cluster.local": "", "db.missing.svc.cluster.local": "",
		"vault.bank.svc.cluster.local": refused, "vault.bank.svc": refused, "vault-0.vault.bank.svc.milan.example": refused,
		"db.web-turin-000000.svc.cluster.local":           refused,
		"vault.bank.svc." + remote + ".svc.cluster.local": refused, "db." + remote + ".svc.bank.svc.cluster.local": refused,
		"db." + remote + ".pod.cluster.local": refused,
	} {
		attempt{name, "Service", nil, nil, externalName(name), refusal}.check(ctx, t, c, remote)
	}
	// The administrator of this cluster may have other names, and a change of something else keeps them.
	kept := peerObject(remote, "Service", nil, nil, externalName("db.example.com"))
	kept.SetName("kept")
	if err := c.Create(ctx, kept); err != nil {
		t.Fatal(err)
	}
	patch := func(text string, of client.Client) error {
		return of.Patch(ctx, kept.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)))
	}
	if err := patch(`{"spec":{"externalName":"db.intern.milan.example"}}`, root); err != nil {
		t.Fatal(err)
	}
	if err := patch(`{"metadata":{"labels":{"app":"x"}}}`, c); err != nil {
		t.Errorf("another change: %v", err)
	}
	if err := patch(`{"spec":{"externalName":"kubernetes.default.svc"}}`, c); err == nil || !strings.Contains(err.Error(), refused) {
		t.Errorf("another name: %v", err)
	}
}

// TestExternalBackends: an ingress controller of this cluster never follows a name that a peer chooses, whether the Ingress or the Service comes
// first, or the Service changes its type.
func TestExternalBackends(t *testing.T) {
	ctx, admin, root := installed(t, "peers.ingresses.hosts={shop.example.org}")
	const remote, refused = "web-rome-000000", "must not have a Service of the type ExternalName as a backend"
	c := asPeer(ctx, t, admin, root, remote)
	inForce(t, "liqo-peers-objects", func() error {
		return c.Create(ctx, peerObject(remote, "ConfigMap", keys{"grafana_dashboard": "1"}, nil, nil), client.DryRunAll)
	})
	named := func(kind, name string, fields map[string]any) client.Object {
		object := peerObject(remote, kind, nil, nil, fields)
		object.SetName(name)
		return object
	}
	to := func(service string) map[string]any {
		fields := ingressOf("shop.example.org", "/cart")
		path := fields["spec"].(map[string]any)["rules"].([]any)[0].(map[string]any)["http"].(map[string]any)["paths"].([]any)[0].(map[string]any)
		path["backend"] = map[string]any{"service": map[string]any{"name": service, "port": map[string]any{"number": int64(80)}}}
		return fields
	}
	is := func(what string, err error, refusal string) {
		t.Helper()
		if refusal == "" && err != nil || refusal != "" && (err == nil || !strings.Contains(err.Error(), refusal)) {
			t.Errorf("%s: %v, want %q", what, err, refusal)
		}
	}
	// The Service comes first.
	is("the Service", c.Create(ctx, named("Service", "outside", externalName("db.example.com"))), "")
	is("another Service", c.Create(ctx, named("Service", "web", serviceOf(nil))), "")
	kubetest.Eventually(t, "the API server knows the Service", func() error {
		if err := c.Create(ctx, named("Ingress", "first", to("outside")), client.DryRunAll); err == nil {
			return errors.New("the Ingress is accepted")
		}
		return nil
	})
	is("an Ingress for it", c.Create(ctx, named("Ingress", "first", to("outside")), client.DryRunAll), refused)
	is("an Ingress for another one", c.Create(ctx, named("Ingress", "shop", to("web"))), "")
	ingress := named("Ingress", "shop", to("web"))
	change := []byte(`[{"op":"replace","path":"/spec/rules/0/http/paths/0/backend/service/name","value":"outside"}]`)
	is("the Ingress that turns to it", c.Patch(ctx, ingress, client.RawPatch(types.JSONPatchType, change), client.DryRunAll), refused)
	// The Ingress comes first.
	is("an Ingress without a Service", c.Create(ctx, named("Ingress", "early", to("later"))), "")
	kubetest.Eventually(t, "the API server knows the Ingresses", func() error {
		if err := c.Create(ctx, named("Service", "later", externalName("db.example.com")), client.DryRunAll); err == nil {
			return errors.New("the Service is accepted")
		}
		return nil
	})
	is("the Service that comes later", c.Create(ctx, named("Service", "later", externalName("db.example.com")), client.DryRunAll), refused)
	is("a Service of another type", c.Create(ctx, named("Service", "later", serviceOf(nil)), client.DryRunAll), "")
	turn := []byte(`{"spec":{"type":"ExternalName","externalName":"db.example.com","clusterIP":null,"clusterIPs":null}}`)
	is(
		"the Service that becomes one",
		c.Patch(ctx, named("Service", "web", serviceOf(nil)), client.RawPatch(types.MergePatchType, turn), client.DryRunAll), refused,
	)
	is("a Service that no Ingress has", c.Create(ctx, named("Service", "alone", externalName("db.example.com")), client.DryRunAll), "")
}
