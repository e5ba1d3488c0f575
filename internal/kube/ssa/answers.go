// SPDX-License-Identifier: Apache-2.0

package ssa

import (
	"net/http"

	"k8s.io/apimachinery/pkg/types"
)

// metadataOnly asks for the metadata of the object that was written. Errors come as they are.
const metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// MetadataAnswers makes API servers answer applies with the metadata of the object, which is all that an Applier reads of it: the rest
// would be encoded, sent and decoded for nobody. It is a wrapper of rest.Config. Other requests stay as they are.
func MetadataAnswers(next http.RoundTripper) http.RoundTripper { return metadataAnswers{next} }

type metadataAnswers struct{ next http.RoundTripper }

func (m metadataAnswers) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodPatch && request.Header.Get("Content-Type") == string(types.ApplyYAMLPatchType) {
		request = request.Clone(request.Context())
		request.Header.Set("Accept", metadataOnly)
	}
	return m.next.RoundTrip(request)
}

// WrappedRoundTripper is for those who look for what the transport can do.
func (m metadataAnswers) WrappedRoundTripper() http.RoundTripper { return m.next }
