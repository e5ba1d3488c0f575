// SPDX-License-Identifier: Apache-2.0

package network

import (
	"time"

	"golang.org/x/time/rate"

	"liqo.io/liqo/internal/kube/ratelimit"
)

// What is reported of a peer that changes its mind, its gateway's address or a lane is written statusBurst times at once, then once per statusPause.
const (
	statusBurst = 30
	statusPause = 10 * time.Second
)

// newReported returns the limit of what is written into a status, by tenant namespace.
func newReported() *ratelimit.Limiter[string] {
	return ratelimit.New[string](rate.Every(statusPause), statusBurst, 1000)
}
