// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/audit"
)

// writes counts the write requests of Liqo's identities.
type writes struct {
	Total   int
	Across  int            `json:",omitempty"` // by the consumer's identity at the provider
	Reviews int            `json:",omitempty"` // questions to the API server, which stores nothing; not in the total
	ByCall  map[string]int `json:",omitempty"` // by identity, verb and resource
	Failed  map[string]int `json:",omitempty"` // the same, only those with an error code
}

// peerAccount is the suffix of the account that a consumer uses at its provider.
const peerAccount = ":liqo-peer"

// countWrites counts Liqo's write requests between two moments, except those for which except returns true.
func countWrites(t testing.TB, c *env.Cluster, from, to time.Time, except func(audit.Call) bool) writes {
	t.Helper()
	sum := writes{ByCall: map[string]int{}, Failed: map[string]int{}}
	for _, call := range c.Calls(t, from, to) {
		if !call.Writes() || except != nil && except(call) {
			continue
		}
		if call.Reviews() {
			sum.Reviews++
			continue
		}
		key := call.Account() + " " + call.Verb + " " + call.Resource()
		sum.Total++
		sum.ByCall[key]++
		if call.ResponseStatus.Code >= 400 {
			sum.Failed[key]++
		}
		if strings.HasSuffix(call.User.Username, peerAccount) {
			sum.Across++
		}
	}
	return sum
}
