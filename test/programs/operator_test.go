// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
)

const (
	operator = "control-plane=controller-manager"
	lease    = "lease/4c1f2a7e.example.com"
)

// TestOperator: an operator with leader election and webhooks, with a replica in each cluster. Whichever replica leads, and whichever is left to
// answer the API server, users see no difference.
func TestOperator(t *testing.T) {
	p := start(t, "operator", "operator-image.tar")
	key, certificate := serving(t, "operator-webhook-service."+p.namespace+".svc")
	p.kubectl(
		t, "create", "secret", "generic", "webhook-server-cert", "--type=kubernetes.io/tls", "--from-literal=tls.key="+key,
		"--from-literal=tls.crt="+certificate,
	)
	t.Cleanup(func() {
		rome.Kubectl(t, "delete", "--ignore-not-found", "mutatingwebhookconfiguration/"+p.namespace+"-mutating-webhook-configuration",
			"validatingwebhookconfiguration/"+p.namespace+"-validating-webhook-configuration",
			"clusterrole/"+p.namespace+"-manager-role", "clusterrole/"+p.namespace+"-metrics-reader",
			"clusterrolebinding/"+p.namespace+"-manager-rolebinding", "clusterrolebinding/"+p.namespace+"-metrics-reader")
		rome.Kubectl(t, "delete", "--ignore-not-found", "crd/pages.pages.example.com")
	})
	p.apply(t, "operator", "CABUNDLE", base64.StdEncoding.EncodeToString([]byte(certificate)))
	home, remote := p.ready(t, 2, operator)
	if len(home) != 1 || len(remote) != 1 {
		t.Fatalf("%d replicas are here and %d at the provider: this proves nothing", len(home), len(remote))
	}

	// Each turn leaves one replica to answer and to lead: first that of milan, then that of rome.
	for _, turn := range []string{there, here} {
		t.Run("only the replica "+turn, func(t *testing.T) {
			home, remote := p.ready(t, 2, operator)
			leaving, staying := home[0].Name, remote[0].Name
			if turn == here {
				leaving, staying = staying, leaving
			}
			p.without(t, turn, leaving)
			began := time.Now()
			env.Eventually(t, env.Hang, staying+" leads", func() (string, bool) {
				seen := p.try("get", lease, "-o", "jsonpath={.spec.holderIdentity}").Out
				return seen, strings.HasPrefix(seen, staying+"_")
			})
			clusters.Measure("operator: the replica "+turn+" leads after the other was deleted", "%.1f s", time.Since(began).Seconds())
			p.serves(t, map[string]string{here: "page-here", there: "page-there"}[turn], staying)
		})
	}
	p.ready(t, 2, operator)
	p.metrics(t)
}

// serves uses the operator, of which this pod is the only replica.
func (p program) serves(t *testing.T, page, pod string) {
	t.Helper()
	manifest := func(name, replicas string) string {
		return fmt.Sprintf(
			"apiVersion: pages.example.com/v1\nkind: Page\nmetadata: {name: %s, namespace: %s}\nspec: {text: hello from %s%s}\n", name, p.namespace,
			page, replicas,
		)
	}
	// A Service follows its pods: the API server may call the one that has just gone for a moment.
	env.Eventually(t, env.Hang, "the API server calls the webhooks", func() (string, bool) {
		r := rome.TryKubectl(manifest(page, ""), "apply", "-f", "-")
		return r.String(), r.Code == 0
	})
	if by := p.kubectl(t, "get", "page", page, "-o", `jsonpath={.metadata.annotations.pages\.example\.com/defaulted-by} {.spec.replicas}`); by != pod+" 1" {
		t.Errorf("the mutating webhook has written %q, want %q", by, pod+" 1")
	}
	if r := rome.TryKubectl(manifest(page+"-bad", ", replicas: 9"), "apply", "-f", "-"); r.Code == 0 ||
		!strings.Contains(r.Err, "9 replicas are not between 0 and 5, by "+pod) {
		t.Errorf("the validating webhook should refuse 9 replicas, in the words of %s: %s", pod, r)
	}
	p.kubectl(t, "wait", "page/"+page, "--for=condition=Available", "--timeout=180s")
	if by := p.kubectl(t, "get", "page", page, "-o", "jsonpath={.status.reconciledBy}"); by != pod {
		t.Errorf("page %s was reconciled by %q, want %q", page, by, pod)
	}
	uid := p.kubectl(t, "get", "page", page, "-o", "jsonpath={.metadata.uid}")
	for _, kind := range []string{"configmap", "deployment"} {
		owner := p.kubectl(
			t, "get", kind, page, "-o",
			"jsonpath={.metadata.ownerReferences[*].kind} {.metadata.ownerReferences[*].uid} {.metadata.ownerReferences[*].controller}",
		)
		if want := "Page " + uid + " true"; owner != want {
			t.Errorf("%s %s is owned by %q, want %q", kind, page, owner, want)
		}
	}
	env.Eventually(t, env.Hang, "the event of the operator", func() (string, bool) {
		seen := p.try(
			"get", "events.events.k8s.io", "--field-selector", "regarding.name="+page, "-o",
			`jsonpath={range .items[*]}{.regarding.kind} {.reason} {.reportingController} {.reportingInstance} {.note}{"\n"}{end}`,
		).Out
		return seen, strings.Contains(seen, "Page Written page-controller page-controller-"+pod+" "+pod+" wrote the text\n")
	})
	// Its owner gone, everything goes: the API server's own garbage collector follows the references.
	p.kubectl(t, "delete", "page", page)
	env.Eventually(t, env.Hang, "everything of page "+page+" has gone", func() (string, bool) {
		seen := p.try("get", "configmap/"+page, "deployment/"+page, "-o", "name", "--ignore-not-found")
		return seen.String(), seen.Code == 0 && strings.TrimSpace(seen.Out) == ""
	})
	env.Eventually(t, env.Hang, "its pods have gone", func() (string, bool) {
		seen := p.try("get", "pods", "-l", "page="+page, "-o", "name")
		return seen.String(), seen.Code == 0 && strings.TrimSpace(seen.Out) == ""
	})
}

// metrics: both replicas show their metrics to who may read them, after asking rome's API server about the token.
func (p program) metrics(t *testing.T) {
	t.Helper()
	p.client(t)
	home, remote := p.ready(t, 2, operator)
	for _, pod := range append(home, remote...) {
		ask := func(header string) string {
			return p.try(
				"exec", "client", "--", "sh", "-c",
				"curl -s -k -m 10 -o /tmp/page -w '%{http_code} ' "+header+" https://"+pod.Status.PodIP+":8443/metrics; grep -c ^rest_client_requests_total /tmp/page",
			).String()
		}
		for header, want := range map[string]string{
			"": "401 0", `-H "Authorization: Bearer $(cat /var/run/secrets/kubernetes.io/serviceaccount/token)"`: "200 [1-9]",
		} {
			env.Eventually(t, env.Hang, "metrics of "+pod.Name+" on "+pod.Spec.NodeName, func() (string, bool) {
				seen := ask(header)
				return seen, regexp.MustCompile("stdout: " + want).MatchString(seen)
			})
		}
	}
}

// serving makes a key and a certificate that signs itself, in PEM.
func serving(t *testing.T, name string) (key, certificate string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name, name + ".cluster.local"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, bytes []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}))
	}
	return block("EC PRIVATE KEY", encoded), block("CERTIFICATE", signed)
}
