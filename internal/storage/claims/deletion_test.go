// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// silent is a provider that does not answer.
type silent struct{ Peer }

func (silent) Client(ctx context.Context) (client.WithWatch, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestSilentProvider: the look at a recorded claim of a silent provider ends after a while, so that it keeps no other volume waiting.
func TestSilentProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &Keeper{options: Options{Peer: silent{}}}
		start := time.Now()
		_, err := k.readRecorded(t.Context(), Facts{Volume: &corev1.PersistentVolume{}})
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != recordedTimeout {
			t.Errorf("%v after %v, want the end after %v", err, took, recordedTimeout)
		}
	})
}
