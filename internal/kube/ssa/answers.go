// SPDX-License-Identifier: Apache-2.0

package ssa

import (
	"net/http"

	"k8s.io/apimachinery/pkg/types"
)

// metadataOnly requests only the metadata of the written object. Errors are returned in full.
const metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// MetadataAnswers makes the API server answer a server-side apply with only the metadata of the object. An Applier reads nothing else, so
// this saves encoding, sending and decoding the rest. Pass it to rest.Config.Wrap. Other requests do not change.
func MetadataAnswers(next http.RoundTripper) http.RoundTripper { return metadataAnswers{next} }

type metadataAnswers struct{ next http.RoundTripper }

func (m metadataAnswers) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodPatch && request.Header.Get("Content-Type") == string(types.ApplyYAMLPatchType) {
		request = request.Clone(request.Context())
		request.Header.Set("Accept", metadataOnly)
	}
	return m.next.RoundTrip(request)
}

// WrappedRoundTripper lets client-go find the transport below.
func (m metadataAnswers) WrappedRoundTripper() http.RoundTripper { return m.next }
