// SPDX-License-Identifier: Apache-2.0

package ssa

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	coreconfig "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/kube/kubetest"
)

// TestMetadataAnswers: an apply is answered without the written data, other requests as usual, and the applier works the same.
func TestMetadataAnswers(t *testing.T) {
	_, namespace, _ := counted(t)
	config, _ := kubetest.SharedPair(t)
	var patches []string
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err != nil || r.Method != http.MethodPatch {
				return response, err
			}
			text, err := io.ReadAll(response.Body)
			patches = append(patches, string(text))
			response.Body = io.NopCloser(bytes.NewReader(text))
			return response, err
		})
	})
	config.Wrap(MetadataAnswers)
	c, err := client.New(config, client.Options{})
	must(t, err)
	applier := NewApplier(c, owner)
	const value = "only-in-the-data"
	intent := coreconfig.ConfigMap("brief", namespace).WithData(map[string]string{"key": value})
	must(t, applier.ApplyTo(t.Context(), intent, nil))
	if len(patches) != 1 || strings.Contains(patches[0], value) || !strings.Contains(patches[0], "PartialObjectMetadata") {
		t.Fatalf("answers to one apply: %q", patches)
	}

	var live corev1.ConfigMap
	must(t, c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "brief"}, &live))
	if live.Data["key"] != value {
		t.Errorf("read: %v", live.Data)
	}
	must(t, applier.ApplyTo(t.Context(), intent, &live))
	must(t, c.Patch(t.Context(), &live, client.RawPatch("application/merge-patch+json", []byte(`{"data":{"key":"other"}}`))))
	if len(patches) != 2 || live.Data["key"] != "other" {
		t.Errorf("an apply that changes nothing, then the change by another client: %q", patches)
	}
	must(t, applier.ApplyTo(t.Context(), intent, &live))
	if len(patches) != 3 {
		t.Errorf("the change by another client was not reverted: %q", patches)
	}
	if err := applier.ApplyTo(t.Context(), coreconfig.ConfigMap("brief", namespace).WithData(map[string]string{"no key": ""}), nil); !apierrors.IsInvalid(err) {
		t.Errorf("an invalid apply: %v, want Invalid", err)
	}
}
