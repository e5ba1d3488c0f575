// SPDX-License-Identifier: Apache-2.0

package single

import "testing"

func TestGoroutine(t *testing.T) {
	ran := false
	t.Run("test", func(t *testing.T) {
		Goroutine(t)
		ran = true
	})
	if ran == detector {
		t.Errorf("with the race detector: %v; the test ran: %v", detector, ran)
	}
}
