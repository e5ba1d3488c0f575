// SPDX-License-Identifier: Apache-2.0

package shadowslice_test

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/shadowtest"
)

// TestHostileSlices: an object of one peer must not break the list of all objects.
func TestHostileSlices(t *testing.T) {
	b := shadowtest.New(t)
	for what, template := range map[string]string{
		"big":      `{"addressType":"IPv4","endpoints":[],"ports":[{"port":99999999999}]}`,
		"negative": `{"addressType":"IPv4","endpoints":[],"ports":[{"port":-3000000000}]}`,
		"half":     `{"addressType":"IPv4","endpoints":[],"ports":[{"port":1.5}]}`,
		"exponent": `{"addressType":"IPv4","endpoints":[],"ports":[{"port":1e3}]}`,
		"null":     `{"addressType":"IPv4","endpoints":[{"addresses":null,"conditions":null,"targetRef":null}],"ports":null}`,
		"reading":  `{"addressType":"IPv4","endpoints":[{"addresses":["a"],"targetRef":{"kind":"Pod","uid":"x"}}]}`,
	} {
		object := &unstructured.Unstructured{}
		b.Must(json.Unmarshal([]byte(`{"apiVersion":"virtualkubelet.liqo.io/v1alpha1","kind":"ShadowEndpointSlice","metadata":{"name":"`+what+
			`","namespace":"`+shadowtest.RemoteNamespace+`"},"spec":{"template":`+template+`}}`), &object.Object))
		err := b.Create(t.Context(), object) // the API server may refuse it
		var all vkv1alpha1.ShadowEndpointSliceList
		if listErr := b.List(t.Context(), &all, client.InNamespace(shadowtest.RemoteNamespace)); listErr != nil {
			t.Errorf("%s (%v): %v", what, err, listErr)
		}
		if what == "reading" && len(all.Items) == 0 {
			t.Errorf("%s: %v, want a valid object to be accepted", what, err)
		}
	}
}
