// SPDX-License-Identifier: Apache-2.0

package ssa

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// metadataOnly requests only the metadata of the written object. Errors are returned in full.
const metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// LeanApplies makes the API server do no more for a server-side apply than an Applier needs. Other requests do not change. Pass it to
// rest.Config.Wrap.
//
// The answer has only the metadata of the object: an Applier reads nothing else. And the API server does not look for duplicate fields, for which
// it parses the body as YAML once more: our bodies are encoded from Go values. It refuses an unknown field all the same. The client of
// controller-runtime cannot ask for that.
func LeanApplies(next http.RoundTripper) http.RoundTripper { return leanApplies{next} }

type leanApplies struct{ next http.RoundTripper }

func (l leanApplies) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodPatch && request.Header.Get("Content-Type") == string(types.ApplyYAMLPatchType) {
		request = request.Clone(request.Context())
		request.Header.Set("Accept", metadataOnly)
		query := request.URL.Query()
		query.Set("fieldValidation", metav1.FieldValidationIgnore)
		request.URL.RawQuery = query.Encode()
	}
	return l.next.RoundTrip(request)
}

// WrappedRoundTripper lets client-go find the transport below.
func (l leanApplies) WrappedRoundTripper() http.RoundTripper { return l.next }
