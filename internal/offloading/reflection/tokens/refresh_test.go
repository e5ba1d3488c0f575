// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
)

// TestTokensOfShortLife: an API server may grant tokens a shorter lifetime than we request.
func TestTokensOfShortLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := []podspec.TokenRequest{{ExpirationSeconds: 86400}}
		secret := &metav1.PartialObjectMetadata{}
		secret.Annotations = map[string]string{labels.TokenExpiration: time.Now().Add(time.Hour).UTC().Format(time.RFC3339), labels.TokenLifetime: "3600"}
		if wait := refreshIn(secret, requests); wait != 48*time.Minute {
			t.Errorf("tokens with a lifetime of an hour are replaced after %v", wait)
		}
		delete(secret.Annotations, labels.TokenLifetime) // a Secret of an earlier version
		if wait := refreshIn(secret, requests); wait > 0 {
			t.Errorf("tokens with an unknown lifetime stay for %v", wait)
		}
	})
}
