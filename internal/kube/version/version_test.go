// SPDX-License-Identifier: Apache-2.0

package version

import (
	"errors"
	"strings"
	"testing"
)

func TestCompatible(t *testing.T) {
	for name, test := range map[string]struct {
		remote Range
		want   int
		blame  string
	}{
		"same":                       {Range{2, 2}, 2, ""},
		"newer, supports us":         {Range{1, 9}, 2, ""},
		"of before":                  {Range{1, 1}, 0, "upgrade Liqo in the remote cluster"},
		"no range reported":          {Range{}, 0, "upgrade Liqo in the remote cluster"},
		"newer, supports us no more": {Range{MaxProtocol + 1, MaxProtocol + 3}, 0, "upgrade Liqo in this cluster"},
		"too old":                    {Range{-1, MinProtocol - 1}, 0, "upgrade Liqo in the remote cluster"},
		"nonsense":                   {Range{9, 1}, 0, "upgrade"},
	} {
		got, err := Compatible(test.remote, "v9")
		var mismatch *MismatchError
		if got != test.want || (err != nil) != (test.blame != "") || err != nil && !errors.As(err, &mismatch) {
			t.Errorf("%s: %d, %v", name, got, err)
		}
		if err != nil && !strings.Contains(err.Error(), test.blame) {
			t.Errorf("%s: %v, want %q in it", name, err, test.blame)
		}
	}
}
