// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
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
	"liqo.io/liqo/internal/kube/kubetest"
)

const objectsPolicy = "ValidatingAdmissionPolicy 'liqo-peers-objects'"

// asPeer returns a client that acts as the peer rome, with every right in a remote namespace of its own and no webhooks. The namespace is open, so
// that the administrator can bind a role there.
func asPeer(ctx context.Context, t *testing.T, admin *rest.Config, root client.Client, remote string) client.Client {
	t.Helper()
	peer := asCheckedPeer(ctx, t, admin, root, remote)
	unchecked(ctx, t, root, peer, remote)
	return peer
}

// asCheckedPeer is asPeer where a process of the test serves the webhooks.
func asCheckedPeer(ctx context.Context, t *testing.T, admin *rest.Config, root client.Client, remote string) client.Client {
	t.Helper()
	const tenant = "liqo-tenant-rome-000000"
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: remote, Labels: map[string]string{"liqo.io/remote-cluster-id": "rome"},
			Annotations: map[string]string{"liqo.io/open-remote-namespace": "true"},
		}},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: remote, Name: "peer"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: tenant, Name: "liqo-peer"}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		},
	} {
		if err := root.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
	limited := rest.CopyConfig(admin)
	limited.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + tenant + ":liqo-peer", Groups: []string{"system:authenticated"}}
	return connect(t, limited)
}

// peerObject returns an object x of a kind that peers write, with its labels, annotations and fields.
func peerObject(namespace, kind string, labels, annotations map[string]string, fields map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	for key, value := range fields {
		object.Object[key] = value
	}
	object.SetAPIVersion("v1")
	if kind == "Ingress" {
		object.SetAPIVersion("networking.k8s.io/v1")
	}
	object.SetKind(kind)
	object.SetNamespace(namespace)
	object.SetName("x")
	object.SetLabels(labels)
	object.SetAnnotations(annotations)
	return object
}

type keys = map[string]string

func serviceOf(more map[string]any) map[string]any {
	spec := map[string]any{"selector": map[string]any{"app": "x"}, "ports": []any{map[string]any{"port": int64(80)}}}
	for key, value := range more {
		spec[key] = value
	}
	return map[string]any{"spec": spec}
}

func ingressOf(host, path string) map[string]any {
	backend := map[string]any{"service": map[string]any{"name": "x", "port": map[string]any{"number": int64(80)}}}
	if host == "" && path == "" {
		return map[string]any{"spec": map[string]any{"defaultBackend": backend}}
	}
	rule := map[string]any{"http": map[string]any{"paths": []any{map[string]any{"path": path, "pathType": "Prefix", "backend": backend}}}}
	if host != "" {
		rule["host"] = host
	}
	return map[string]any{"spec": map[string]any{"rules": []any{rule}}}
}

// attempt is a write of a peer. refused is part of the refusal; empty: the write is allowed.
type attempt struct {
	what, kind          string
	labels, annotations keys
	fields              map[string]any
	refused             string
}

func (a attempt) check(ctx context.Context, t *testing.T, c client.Client, namespace string) {
	t.Helper()
	err := c.Create(ctx, peerObject(namespace, a.kind, a.labels, a.annotations, a.fields), client.DryRunAll)
	switch {
	case a.refused == "" && err != nil:
		t.Errorf("%s: %v, want it allowed", a.what, err)
	case a.refused != "" && (!apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), a.refused)):
		t.Errorf("%s: %v, want a refusal with %q", a.what, err, a.refused)
	}
}

// TestAttackH6PeerObjects: with metadata, types, ports and hosts of its objects, a peer gives no orders to components of the provider's cluster.
// Honest objects are accepted, and values extend what is.
func TestAttackH6PeerObjects(t *testing.T) {
	ctx, admin, root := installed(t, "peers.ingresses.hosts={*,shop.example.org,login.provider.example}")
	const remote = "web-rome-000000"
	c := asPeer(ctx, t, admin, root, remote)
	inForce(t, "liqo-peers-objects", func() error {
		return c.Create(ctx, peerObject(remote, "ConfigMap", keys{"grafana_dashboard": "1"}, nil, nil), client.DryRunAll)
	})
	plain := ingressOf("shop.example.org", "/")
	for _, test := range []attempt{
		{
			"a dashboard", "ConfigMap",
			keys{"grafana_dashboard": "1"},
			nil, nil,
			"labels [grafana_dashboard], annotations []: this cluster accepts only keys on a list",
		},
		{"a rule for alerts", "Secret", keys{"loki_rule": ""}, nil, nil, "peers.metadata.secrets"},
		{
			"a Secret of another namespace", "Secret", nil,
			keys{"replicator.v1.mittwald.de/replicate-from": "kube-system/x"},
			nil,
			"annotations [replicator.v1.mittwald.de/replicate-from]",
		},
		{
			"another Secret of another namespace", "Secret", nil,
			keys{"reflector.v1.k8s.emberstack.com/reflects": "kube-system/x"},
			nil,
			"reflector.v1.k8s.emberstack.com/reflects",
		},
		{"a ConfigMap of another namespace", "ConfigMap", nil, keys{"replicator.v1.mittwald.de/replicate-from": "kube-system/x"}, nil, "peers.metadata.configMaps"},
		{"a Secret of Liqo", "Secret", keys{"discovery.liqo.io/auth-token": ""}, nil, nil, "discovery.liqo.io/auth-token"},
		{"a name in a zone", "Service", nil, keys{"external-dns.alpha.kubernetes.io/hostname": "www.provider.example"}, serviceOf(nil), "peers.metadata.services"},
		{
			"a certificate of a cloud", "Service", nil,
			keys{"service.beta.kubernetes.io/aws-load-balancer-ssl-cert": "arn"},
			serviceOf(nil),
			"annotations [service.beta.kubernetes.io/aws-load-balancer-ssl-cert]",
		},
		{"a shared address", "Service", nil, keys{"metallb.io/allow-shared-ip": "x"}, serviceOf(nil), "metallb.io/allow-shared-ip"},
		{"another proxy", "Service", keys{"service.kubernetes.io/service-proxy-name": "x"}, nil, serviceOf(nil), "service.kubernetes.io/service-proxy-name"},
		{"a certificate", "Ingress", nil, keys{"cert-manager.io/cluster-issuer": "letsencrypt"}, plain, "peers.metadata.ingresses"},
		{
			"a request of the proxy", "Ingress", nil,
			keys{"nginx.ingress.kubernetes.io/auth-url": "http://169.254.169.254"},
			plain,
			"nginx.ingress.kubernetes.io/auth-url",
		},
		{"the older form of a class", "Ingress", nil, keys{"kubernetes.io/ingress.class": "internal"}, plain, "kubernetes.io/ingress.class"},
		{"a group of load balancers", "Ingress", nil, keys{"alb.ingress.kubernetes.io/group.name": "x"}, plain, "alb.ingress.kubernetes.io/group.name"},
		{
			"the name of any server", "Service", nil, nil,
			map[string]any{"spec": map[string]any{"type": "ExternalName", "externalName": "metadata.google.internal"}},
			"peers.services.refusedExternalNames",
		},
		{
			"a port of all nodes", "Service", nil, nil,
			serviceOf(map[string]any{"type": "NodePort", "ports": []any{map[string]any{"port": int64(80), "nodePort": int64(30002)}}}),
			"peers.services.nodePorts",
		},
		{
			"a port of the health check", "Service", nil, nil,
			serviceOf(map[string]any{"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": int64(30003)}),
			"healthCheckNodePort",
		},
		{"the challenge of an authority", "Ingress", nil, nil, ingressOf("login.provider.example", "/.well-known/acme-challenge/"), "acme-challenge"},
		{"the directory of the challenge", "Ingress", nil, nil, ingressOf("login.provider.example", "/.well-known"), "acme-challenge"},

		{
			"an ordinary ConfigMap", "ConfigMap",
			keys{"app": "x", "app.kubernetes.io/name": "x", "helm.sh/chart": "x", "virtualkubelet.liqo.io/origin": "rome"},
			keys{"kubernetes.io/description": "x", "meta.helm.sh/release-name": "x"},
			nil, "",
		},
		{
			"an ordinary Secret", "Secret",
			keys{"owner": "helm", "virtualkubelet.liqo.io/service-account-name": "x"},
			keys{"note": "x", "kubectl.kubernetes.io/restartedAt": "x"},
			nil, "",
		},
		{
			"an ordinary Service", "Service",
			keys{"app": "x", "team_name": "x"},
			keys{"liqo.io/force-remote-node-port": "true", "service.kubernetes.io/topology-mode": "Auto"},
			serviceOf(map[string]any{"type": "LoadBalancer", "externalTrafficPolicy": "Local"}), "",
		},
		{"node ports that Kubernetes assigns", "Service", nil, nil, serviceOf(map[string]any{"type": "NodePort"}), ""},
		{"a headless Service", "Service", nil, nil, serviceOf(map[string]any{"clusterIP": "None"}), ""},
		{"an ordinary Ingress", "Ingress", keys{"app": "x"}, nil, plain, ""},
		{"the discovery of an issuer", "Ingress", nil, nil, ingressOf("shop.example.org", "/.well-known/openid-configuration"), ""},
	} {
		test.check(ctx, t, c, remote)
	}
	applied := peerObject(remote, "Service", nil, nil, serviceOf(map[string]any{
		"type": "NodePort", "ports": []any{map[string]any{"port": int64(80), "protocol": "TCP", "nodePort": int64(30002)}},
	}))
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner("x"), client.DryRunAll); err == nil ||
		!strings.Contains(err.Error(), "peers.services.nodePorts") {
		t.Errorf("a port of all nodes, applied: %v", err)
	}
	peerUpdates(ctx, t, c, root, remote)
	peerCustomResources(ctx, t, c, root, remote)
	peerValues(ctx, t, c, root, remote)
}

// peerUpdates checks that what Kubernetes and controllers of the provider add to an object does not stop the peer from changing the object,
// and that the peer adds nothing in that way.
// The node ports are of the range from which Kubernetes does not assign any by chance.
func peerUpdates(ctx context.Context, t *testing.T, c, root client.Client, remote string) {
	t.Helper()
	service := peerObject(remote, "Service", keys{"app": "x"}, nil, serviceOf(map[string]any{"type": "LoadBalancer", "externalTrafficPolicy": "Local"}))
	service.SetName("kept")
	if err := c.Create(ctx, service); err != nil {
		t.Fatal(err)
	}
	if err := root.Patch(
		ctx, service,
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"cloud.example/a":"b"},"annotations":{"cloud.example/address":"192.0.2.1"}}}`)),
	); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ what, patch, refused string }{
		{"a change of its own", `{"metadata":{"labels":{"app":"y"}},"spec":{"selector":{"app":"y"}}}`, ""},
		{"a port more, for which Kubernetes assigns a node port", `{"spec":{"ports":[{"name":"a","port":80},{"name":"b","port":81}]}}`, ""},
		{
			"a port more, with a node port of its choice", `{"spec":{"ports":[{"name":"a","port":80},{"name":"b","port":81,"nodePort":30001}]}}`,
			"peers.services.nodePorts",
		},
		{"another node port", `{"spec":{"ports":[{"port":80,"nodePort":30001}]}}`, "peers.services.nodePorts"},
		{
			"another node port, without managed fields", `{"metadata":{"managedFields":[{}]},"spec":{"ports":[{"port":80,"nodePort":30001}]}}`,
			"peers.services.nodePorts",
		},
		{"another value of a controller's annotation", `{"metadata":{"annotations":{"cloud.example/address":"192.0.2.2"}}}`, "cloud.example/address"},
		{"another value of a controller's label", `{"metadata":{"labels":{"cloud.example/a":"c"}}}`, "cloud.example/a"},
		{"an annotation later", `{"metadata":{"annotations":{"metallb.io/allow-shared-ip":"x"}}}`, "metallb.io/allow-shared-ip"},
		{"removal of a controller's annotation", `{"metadata":{"annotations":{"cloud.example/address":null}}}`, ""},
		{"another name later", `{"spec":{"type":"ExternalName","externalName":"metadata.google.internal"}}`, "peers.services.refusedExternalNames"},
	} {
		err := c.Patch(ctx, service.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(test.patch)), client.DryRunAll)
		if test.refused == "" && err != nil || test.refused != "" && (err == nil || !strings.Contains(err.Error(), test.refused)) {
			t.Errorf("%s: %v, want a refusal with %q", test.what, err, test.refused)
		}
	}
}

// peerValues replaces the policies by those of an installation with other values.
func peerValues(ctx context.Context, t *testing.T, c, root client.Client, remote string) {
	t.Helper()
	for _, object := range charttest.Render(t, "peers.metadata.configMaps.labels={grafana_*}",
		"peers.metadata.ingresses.annotations={cert-manager.io/*}", "peers.services.types={ClusterIP,ExternalName}",
		"peers.services.nodePorts=true", "peers.ingresses.hosts={*.rome.example,shop.example.org}", "peers.ingresses.classes={public}") {
		if strings.HasPrefix(object.GetName(), "liqo-peers-objects") || strings.HasPrefix(object.GetName(), "liqo-peers-ingress") {
			if err := root.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("helm"), client.ForceOwnership); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, class := range []keys{{"name": "standard", "default": "true"}, {"name": "public"}, {"name": "internal"}} {
		object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"controller": "example.org/ingress"}}}
		object.SetAPIVersion("networking.k8s.io/v1")
		object.SetKind("IngressClass")
		object.SetName(class["name"])
		object.SetAnnotations(keys{"ingressclass.kubernetes.io/is-default-class": class["default"]})
		if err := root.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
	classed := func(class string) map[string]any {
		fields := ingressOf("a.rome.example", "/")
		fields["spec"].(map[string]any)["ingressClassName"] = class
		return fields
	}
	kubetest.Eventually(t, "the new values are in force", func() error {
		if err := c.Create(ctx, peerObject(remote, "ConfigMap", keys{"grafana_dashboard": "1"}, nil, nil), client.DryRunAll); err != nil {
			return err
		}
		if err := c.Create(ctx, peerObject(remote, "Ingress", nil, nil, classed("internal")), client.DryRunAll); err == nil {
			return fmt.Errorf("class internal is allowed")
		}
		return c.Create(ctx, peerObject(remote, "Ingress", nil, nil, classed("public")), client.DryRunAll)
	})
	tls := ingressOf("a.rome.example", "/")
	tls["spec"].(map[string]any)["tls"] = []any{map[string]any{"hosts": []any{"a.rome.example", "b.milan.example"}, "secretName": "x"}}
	for _, test := range []attempt{
		{"an extended prefix, of another kind", "Secret", keys{"grafana_dashboard": "1"}, nil, nil, "grafana_dashboard"},
		{"an extended annotation", "Ingress", nil, keys{"cert-manager.io/issuer": "x"}, ingressOf("shop.example.org", "/"), ""},
		{"an extended type", "Service", nil, nil, map[string]any{"spec": map[string]any{"type": "ExternalName", "externalName": "x.example"}}, ""},
		{"a type that is not listed", "Service", nil, nil, serviceOf(map[string]any{"type": "LoadBalancer"}), "peers.services.types"},
		{"a host in the domain", "Ingress", nil, nil, ingressOf("a.b.rome.example", "/"), ""},
		{"a wildcard in the domain", "Ingress", nil, nil, ingressOf("*.rome.example", "/"), ""},
		{"the domain itself", "Ingress", nil, nil, ingressOf("rome.example", "/"), "peers.ingresses.hosts"},
		{"a host that ends alike", "Ingress", nil, nil, ingressOf("a.xrome.example", "/"), "peers.ingresses.hosts"},
		{"another host", "Ingress", nil, nil, ingressOf("login.provider.example", "/"), "*.rome.example, shop.example.org"},
		{"every host", "Ingress", nil, nil, ingressOf("", "/"), "peers.ingresses.hosts"},
		{"a default backend", "Ingress", nil, nil, ingressOf("", ""), "peers.ingresses.hosts"},
		{"a certificate for another host", "Ingress", nil, nil, tls, "peers.ingresses.hosts"},
		{"the default class", "Ingress", nil, nil, classed("standard"), ""},
		{"no class", "Ingress", nil, nil, ingressOf("a.rome.example", "/"), ""},
		{"a class of the provider", "Ingress", nil, nil, classed("internal"), "peers.ingresses.classes"},
	} {
		test.check(ctx, t, c, remote)
	}
	port := peerObject(remote, "Service", nil, nil, serviceOf(map[string]any{"ports": []any{map[string]any{"port": int64(80), "nodePort": int64(30002)}}}))
	if err := c.Create(ctx, port, client.DryRunAll); err != nil && strings.Contains(err.Error(), objectsPolicy) {
		t.Errorf("an extended node port: %v", err)
	}
}
