// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"testing"
	"time"

	"liqo.io/liqo/internal/peering/auth"
	authclient "liqo.io/liqo/internal/peering/auth/client"
)

// TestRetryIDs: an address that does not serve yet is asked again; any other result is final.
func TestRetryIDs(t *testing.T) {
	refused := &auth.Error{Reason: auth.ReasonUnreachable, Message: "connection refused"}
	for name, test := range map[string]struct {
		answers []error
		most    time.Duration
		asked   int
		wants   error
	}{
		"serves at the third request": {[]error{refused, refused, nil}, time.Minute, 3, nil},
		"never serves":                {[]error{refused, refused}, 0, 1, auth.ErrUnreachable},
		"denies":                      {[]error{auth.ErrDenied, nil}, time.Minute, 1, auth.ErrDenied},
	} {
		asked := 0
		_, err := retryIDs(t.Context(), func(context.Context) (authclient.IDs, error) {
			asked++
			return authclient.IDs{}, test.answers[asked-1]
		}, test.most)
		if !errors.Is(err, test.wants) || asked != test.asked {
			t.Errorf("%s: %v after %d requests, want %v after %d", name, err, asked, test.wants, test.asked)
		}
	}
}
