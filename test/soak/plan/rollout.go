// SPDX-License-Identifier: Apache-2.0

package plan

import "strings"

// RolledOut reads the exit code and the output of kubectl rollout status: the workload has no pods of an earlier template any more, or does not exist.
func RolledOut(code int, out, errors string) bool {
	if code != 0 {
		return strings.Contains(errors, "(NotFound)")
	}
	return !strings.HasPrefix(strings.ToLower(out), "waiting for") // kubectl writes it in both ways
}
