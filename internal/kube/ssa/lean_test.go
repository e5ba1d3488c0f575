// SPDX-License-Identifier: Apache-2.0

package ssa

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	coreconfig "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/kube/kubetest"
)

// TestLeanApplies: an apply is answered without the written data and not searched for duplicate fields, other requests are as usual, and the applier
// works the same.
func TestLeanApplies(t *testing.T) {
	_, namespace, _ := counted(t)
	config, _ := kubetest.SharedPair(t)
	var patches, queries []string
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err != nil || r.Method != http.MethodPatch {
				return response, err
			}
			text, err := io.ReadAll(response.Body)
			patches, queries = append(patches, string(text)), append(queries, r.URL.Query().Get("fieldValidation"))
			response.Body = io.NopCloser(bytes.NewReader(text))
			return response, err
		})
	})
	config.Wrap(LeanApplies)
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
	if want := []string{"Ignore", "", "Ignore", "Ignore"}; !slices.Equal(queries, want) {
		t.Errorf("validation of fields: %q, want %q", queries, want)
	}

	// Never a silent loss: an unknown field is an error, although the API server does not look for them.
	unknown := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "brief", "namespace": namespace}, "date": map[string]any{"key": value},
	}}
	if err := applier.ApplyTo(t.Context(), client.ApplyConfigurationFromUnstructured(unknown), nil); err == nil || !strings.Contains(err.Error(), ".date") {
		t.Errorf("an apply with an unknown field: %v, want an error that names it", err)
	}
}
