// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/reflection/project"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
)

// FuzzRefreshIn: whatever a peer writes into the annotations of a Secret with tokens, the tokens are replaced within the time that was requested for them.
// Annotations of ours mean what was written.
func FuzzRefreshIn(f *testing.F) {
	now := time.Now().UTC()
	f.Add(now.Add(time.Hour).Format(time.RFC3339), "3600", int64(3600))
	f.Add(now.Add(time.Hour).Format(time.RFC3339), "86400", int64(600))
	f.Add(now.Add(-time.Hour).Format(time.RFC3339), "3600", int64(3600))
	f.Add(now.Add(time.Hour).Format(time.RFC3339), "-999999999", int64(3600))
	f.Add(now.Add(time.Hour).Format(time.RFC3339), "-9223372036854775808", int64(3600))
	f.Add("9999-12-31T23:59:59Z", "3600", int64(3600))
	f.Add("2100-01-01T00:00:00Z", "-9227000000", int64(3531)) // as nanoseconds, it is more than 64 bits and becomes positive
	f.Add("0001-01-01T00:00:00Z", "0", int64(math.MaxInt64))
	f.Add("tomorrow", "an hour", int64(3607))
	f.Fuzz(func(t *testing.T, expires, lifetime string, requested int64) {
		if requested < 600 || requested > 1<<32 {
			return // refused by our API server
		}
		requests := []podspec.TokenRequest{{ExpirationSeconds: requested + 1}, {ExpirationSeconds: requested}}
		secret := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			labels.TokenExpiration: expires,
			labels.TokenLifetime:   lifetime,
		}}}
		wait := refreshIn(secret, requests)
		if wait > time.Duration(requested)*time.Second {
			t.Errorf("the tokens of %d seconds are replaced after %s", requested, wait)
		}
		end, err := time.Parse(time.RFC3339, expires)
		if wait > 0 && (err != nil || wait-time.Second > time.Until(end)) {
			t.Errorf("tokens that expire at %q are replaced after %s", expires, wait)
		}
		given, err := strconv.ParseInt(lifetime, 10, 64)
		if err != nil || given < 600 || given > requested {
			return
		}
		local := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("a", 10)}}
		before := time.Now().Add(time.Duration(given) * time.Second)
		written := podspec.TokenSecret(project.NamespaceMapping{}, local, nil, before, given)
		secret.Annotations = written.Annotations
		if wait, want := refreshIn(secret, requests), time.Until(before)-time.Duration(given)*time.Second/5; wait > want+time.Minute || wait < want-time.Minute {
			t.Errorf("tokens of %d seconds are replaced after %s, want %s", given, wait, want)
		}
	})
}
