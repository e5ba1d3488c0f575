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

// TestCertificateIsRenewed: an upgrade replaces a certificate of the webhooks that is old, and API servers trust the certificate before and after it at any moment,
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
		was, is := data(t, row.before, "cert"), data(t, row.after, "cert")
		if renewed := was != is; renewed != row.renewed {
			t.Errorf("%s: renewed: %t, want %t", row.name, renewed, row.renewed)
		}
		if (was != is) != (data(t, row.before, "key") != data(t, row.after, "key")) {
			t.Errorf("%s: certificate and key do not belong to each other", row.name)
		}
		for side, objects := range map[string][]*unstructured.Unstructured{"before the upgrade, or after a rollback": row.before, "after the upgrade": row.after} {
			for _, bundle := range bundles(t, objects) {
				for which, certificate := range map[string]string{"old": was, "new": is} {
					if err := trusts(bundle, certificate); err != nil {
						t.Errorf("%s: %s, an API server refuses the %s certificate: %v", row.name, side, which, err)
					}
				}
			}
		}
		if data(t, row.before, "path") != data(t, row.after, "path") {
			t.Errorf("%s: the path has changed", row.name)
		}
	}
}

// TestCertificateOfAnEarlierVersion: one that was made without a next one is kept until the next one is trusted.
func TestCertificateOfAnEarlierVersion(t *testing.T) {
	before := earlier(t, charttest.Render(t))
	after := upgraded(t, before, 0)
	if data(t, before, "cert") != data(t, after, "cert") || data(t, before, "key") != data(t, after, "key") || data(t, before, "path") != data(t, after, "path") {
		t.Error("the first upgrade replaces the certificate, which the API servers do not expect yet")
	}
	for _, bundle := range bundles(t, after) {
		for _, key := range []string{"cert", "nextCert"} {
			if err := trusts(bundle, data(t, after, key)); err != nil {
				t.Errorf("%s: %v", key, err)
			}
		}
	}
}

// upgraded renders the chart again where these objects are, a while later.
func upgraded(t *testing.T, installed []*unstructured.Unstructured, later time.Duration) []*unstructured.Unstructured {
	t.Helper()
	secret := charttest.Find(t, installed, "Secret", "liqo-webhook-certs").DeepCopy()
	if annotations := secret.GetAnnotations(); annotations != nil {
		annotations["liqo.io/certificate-made"] = strconv.FormatInt(time.Now().Add(-later).Unix(), 10)
		secret.SetAnnotations(annotations)
	}
	objects, err := charttest.TryRender(t, cluster{fake.NewSimpleDynamicClient(runtime.NewScheme(), secret)})
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// earlier are the same objects as an earlier version made them.
func earlier(t *testing.T, objects []*unstructured.Unstructured) (all []*unstructured.Unstructured) {
	t.Helper()
	for _, one := range objects {
		object := one.DeepCopy()
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

func data(t *testing.T, objects []*unstructured.Unstructured, key string) string {
	t.Helper()
	return fmt.Sprint(charttest.Field(t, charttest.Find(t, objects, "Secret", "liqo-webhook-certs"), "data", key))
}

// bundles are what API servers trust, of each webhook.
func bundles(t *testing.T, objects []*unstructured.Unstructured) (all []string) {
	t.Helper()
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
func trusts(bundle, certificate string) error {
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
	_, err = parsed.Verify(x509.VerifyOptions{Roots: roots, DNSName: "liqo-controller-manager.liqo.svc"})
	return err
}
