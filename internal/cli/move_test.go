// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
)

// TestMoveRefuses: what is wrong in the command itself is refused without a cluster.
func TestMoveRefuses(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	for line, want := range map[string]string{
		"move":             "move what? Try: liqoctl move volume NAME --target-node NODE",
		"move volume":      "want the name of one claim, got 0",
		"move volume a b":  "want the name of one claim, got 2",
		"move volume data": "--target-node must name",
		"move pvc data":    "--target-node must name",
		"move volume data --node a --target-node b":                                              "differ",
		"move volume data --cancel --online":                                                     "no other flag",
		"move volume data --cancel --target-node a":                                              "no other flag",
		"move volume data --node a --containers-cpu-requests much":                               `--containers-cpu-requests "much" is no quantity`,
		"move volume data --node a --containers-ram-limits -1Gi":                                 "is no quantity",
		"move volume data --node a --containers-ram-requests 2Gi --containers-ram-limits 1Gi":    "exceed the limits",
		"move volume data --node a --containers-cpu-requests 500m --containers-cpu-limits 400m ": "exceed the limits",
	} {
		code, _, errOut := run(t, "", strings.Fields(line)...)
		if code == 0 || !strings.Contains(errOut, want) {
			t.Errorf("%s: exit code %d, %s; want %q", line, code, errOut, want)
		}
	}
}
