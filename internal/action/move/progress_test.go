// SPDX-License-Identifier: Apache-2.0

package move

import (
	"testing"
	"time"
)

func TestCopied(t *testing.T) {
	for _, row := range []struct {
		bytes, total int64
		in           time.Duration
		want         string
	}{
		{100, 200, 0, "100 B"},
		{10 << 20, 0, 2 * time.Second, "10.0 MiB, 5.0 MiB/s"},
		{10 << 20, 30 << 20, 2 * time.Second, "10.0 MiB, 5.0 MiB/s, at most 4s left"},
		{3 << 30, 1 << 30, time.Second, "3.0 GiB, 3.0 GiB/s"},
	} {
		if have := copied(row.bytes, row.total, row.in); have != row.want {
			t.Errorf("%+v: %q", row, have)
		}
	}
}
