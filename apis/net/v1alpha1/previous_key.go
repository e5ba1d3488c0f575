// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strconv"
	"strings"
	"time"
)

// PreviousKeyEntry returns the name of the entry in a TunnelEndpoint's backend_config for the previous public key of a lane of the peer. A
// gateway that starts while the peer changes its key learns from it which key the peer may still use.
func PreviousKeyEntry(lane int32) string { return "previousKey." + strconv.Itoa(int(lane)) }

// FormatPreviousKey returns the value of the entry for a key that was current until the given time.
func FormatPreviousKey(key string, until time.Time) string {
	return key + " " + until.UTC().Format(time.RFC3339)
}

// PreviousKey parses the entry of a lane; ok is false if it is missing or invalid.
func (s *TunnelEndpointSpec) PreviousKey(lane int32) (key string, until time.Time, ok bool) {
	key, text, ok := strings.Cut(s.BackendConfig[PreviousKeyEntry(lane)], " ")
	until, err := time.Parse(time.RFC3339, text)
	return key, until, ok && err == nil
}
