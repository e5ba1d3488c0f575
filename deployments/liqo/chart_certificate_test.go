// SPDX-License-Identifier: Apache-2.0

package liqo_test

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"

	"liqo.io/liqo/deployments/liqo/charttest"
)

// servers are the Secrets with a certificate that API servers verify, and the Services that show it.
var servers = map[string]string{"liqo-webhook-certs": "liqo-controller-manager", "liqo-metric-agent-certs": "liqo-metric-agent"}

// TestCertificateIsRenewed: an upgrade replaces a certificate that is old, and API servers trust the certificate before and after it at any moment,
// also after a rollback. One of an earlier version is kept until the next one is trusted.
func TestCertificateIsRenewed(t *testing.T) {
	day := 24 * time.Hour
	first := charttest.Render(t)
	young, old := upgraded(t, first, 89*day), upgraded(t, first, 91*day)
	older := upgraded(t, old, 91*day)
	for _, row := range []struct {
		name          string
		before, after []*unstructured.Unstructured
		renewed       bool
	}{
		{"a young one", first, young, false},
		{"an old one", first, old, true},
		{"the next one", old, older, true},
	} {
		for secret := range servers {
			name := row.name + " in " + secret
			was, is := data(t, row.before, secret, "cert"), data(t, row.after, secret, "cert")
			if renewed := was != is; renewed != row.renewed {
				t.Errorf("%s: renewed: %t, want %t", name, renewed, row.renewed)
			}
			if (was != is) != (data(t, row.before, secret, "key") != data(t, row.after, secret, "key")) {
				t.Errorf("%s: certificate and key do not belong to each other", name)
			}
			for side, objects := range map[string][]*unstructured.Unstructured{"before the upgrade, or after a rollback": row.before, "after the upgrade": row.after} {
				for _, bundle := range bundles(t, objects, secret) {
					for which, certificate := range map[string]string{"old": was, "new": is} {
						if err := trusts(bundle, certificate, servers[secret]); err != nil {
							t.Errorf("%s: %s, an API server refuses the %s certificate: %v", name, side, which, err)
						}
					}
				}
			}
		}
		if data(t, row.before, "liqo-webhook-certs", "path") != data(t, row.after, "liqo-webhook-certs", "path") {
			t.Errorf("%s: the path has changed", row.name)
		}
	}
}

// TestCertificateOfAnEarlierVersion: one that was made without a next one is kept until the next one is trusted.
func TestCertificateOfAnEarlierVersion(t *testing.T) {
	before := earlier(t, charttest.Render(t))
	after := upgraded(t, before, 0)
	for _, key := range []string{"cert", "key", "path"} {
		if data(t, before, "liqo-webhook-certs", key) != data(t, after, "liqo-webhook-certs", key) {
			t.Errorf("the first upgrade replaces the %s, which the API servers do not expect yet", key)
		}
	}
	for secret, service := range servers {
		for _, bundle := range bundles(t, after, secret) {
			for _, key := range []string{"cert", "nextCert"} {
				if err := trusts(bundle, data(t, after, secret, key), service); err != nil {
					t.Errorf("%s of %s: %v", key, secret, err)
				}
			}
		}
	}
}

// TestAttackL9: API servers verify whatever serves an API of ours, by what comes with the chart and belongs to the certificate that the process is given.
func TestAttackL9(t *testing.T) {
	found := 0
	for _, object := range charttest.Render(t, charttest.Lavish) {
		if object.GetKind() != "APIService" {
			continue
		}
		found++
		spec := object.Object["spec"].(map[string]any)
		if spec["insecureSkipTLSVerify"] != nil || spec["caBundle"] == nil {
			t.Errorf(
				"%s: API servers do not verify who answers: insecureSkipTLSVerify is %v, caBundle %v", object.GetName(), spec["insecureSkipTLSVerify"],
				spec["caBundle"],
			)
		}
	}
	if found == 0 {
		t.Error("the chart has no APIService")
	}
}

// upgraded renders the chart again where these objects are, a while later.
func upgraded(t *testing.T, installed []*unstructured.Unstructured, later time.Duration) []*unstructured.Unstructured {
	t.Helper()
	var there []runtime.Object
	for _, object := range installed {
		if servers[object.GetName()] == "" {
			continue
		}
		secret := object.DeepCopy()
		if annotations := secret.GetAnnotations(); annotations != nil {
			annotations["liqo.io/certificate-made"] = strconv.FormatInt(time.Now().Add(-later).Unix(), 10)
			secret.SetAnnotations(annotations)
		}
		there = append(there, secret)
	}
	objects, err := charttest.TryRender(t, cluster{fake.NewSimpleDynamicClient(runtime.NewScheme(), there...)})
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// earlier are the same objects as an earlier version made them, which had no certificate for the metric agent.
func earlier(t *testing.T, objects []*unstructured.Unstructured) (all []*unstructured.Unstructured) {
	t.Helper()
	for _, one := range objects {
		object := one.DeepCopy()
		if object.GetName() == "liqo-metric-agent-certs" {
			continue
		}
		if object.GetName() == "liqo-webhook-certs" {
			object.SetAnnotations(nil)
			for _, key := range []string{"nextCA", "nextCert", "nextKey"} {
				unstructured.RemoveNestedField(object.Object, "data", key)
			}
		}
		all = append(all, object)
	}
	return all
}

func data(t *testing.T, objects []*unstructured.Unstructured, secret, key string) string {
	t.Helper()
	return fmt.Sprint(charttest.Field(t, charttest.Find(t, objects, "Secret", secret), "data", key))
}

// bundles are what API servers trust who call the server of a Secret.
func bundles(t *testing.T, objects []*unstructured.Unstructured, secret string) (all []string) {
	t.Helper()
	if secret == "liqo-metric-agent-certs" {
		return []string{fmt.Sprint(charttest.Field(t, charttest.Find(t, objects, "APIService", "v1alpha1.metrics.liqo.io"), "spec", "caBundle"))}
	}
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		hooks, _, err := unstructured.NestedSlice(charttest.Find(t, objects, kind, "liqo").Object, "webhooks")
		if err != nil {
			t.Fatal(err)
		}
		for _, hook := range hooks {
			bundle, _, err := unstructured.NestedString(hook.(map[string]any), "clientConfig", "caBundle")
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, bundle)
		}
	}
	return all
}

// trusts verifies a certificate as an API server does.
func trusts(bundle, certificate, service string) error {
	roots := x509.NewCertPool()
	text, err := base64.StdEncoding.DecodeString(bundle)
	if err != nil {
		return err
	}
	roots.AppendCertsFromPEM(text)
	if text, err = base64.StdEncoding.DecodeString(certificate); err != nil {
		return err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return fmt.Errorf("no certificate: %s", text)
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	_, err = parsed.Verify(x509.VerifyOptions{Roots: roots, DNSName: service + ".liqo.svc"})
	return err
}
