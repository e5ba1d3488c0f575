// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strconv"
	"strings"
	"time"
)

// PreviousKeyEntry names the entry of a TunnelEndpoint's backend_config for the public key that a lane of the peer had before the present
// one. A gateway that begins while the peer changes its key knows by it what is still in use there.
func PreviousKeyEntry(lane int32) string { return "previousKey." + strconv.Itoa(int(lane)) }

// FormatPreviousKey is the value of the entry for a key that was the present one until then.
func FormatPreviousKey(key string, until time.Time) string {
	return key + " " + until.UTC().Format(time.RFC3339)
}

// PreviousKey reads the entry of a lane; false if there is none that can be read.
func (s *TunnelEndpointSpec) PreviousKey(lane int32) (key string, until time.Time, ok bool) {
	key, text, ok := strings.Cut(s.BackendConfig[PreviousKeyEntry(lane)], " ")
	until, err := time.Parse(time.RFC3339, text)
	return key, until, ok && err == nil
}
