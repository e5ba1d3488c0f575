// SPDX-License-Identifier: Apache-2.0

package plan

import "testing"

// TestRolledOut: the outputs of kubectl, and an API server that does not answer, which proves nothing.
func TestRolledOut(t *testing.T) {
	for _, test := range []struct {
		code        int
		out, errors string
		want        bool
	}{
		{0, "deployment \"api\" successfully rolled out\n", "", true},
		{0, "statefulset rolling update complete 3 pods at revision db-7c...\n", "", true},
		{0, "Waiting for deployment \"api\" rollout to finish: 1 old replicas are pending termination...\n", "", false},
		{0, "Waiting for 1 pods to be ready...\n", "", false},
		{0, "waiting for statefulset rolling update to complete 1 pods at revision db-7c...\n", "", false},
		{1, "", "Error from server (NotFound): deployments.apps \"api\" not found\n", true},
		{1, "", "The connection to the server 10.210.1.10:6443 was refused\n", false},
		{1, "", "error: deployment \"api\" exceeded its progress deadline\n", false},
	} {
		if got := RolledOut(test.code, test.out, test.errors); got != test.want {
			t.Errorf("%d %q %q: %t, want %t", test.code, test.out, test.errors, got, test.want)
		}
	}
}
