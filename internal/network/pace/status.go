// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"time"

	"golang.org/x/time/rate"

	"liqo.io/liqo/internal/kube/ratelimit"
)

// What is reported of a peer that changes its mind, its gateway's address or a lane is written StatusBurst times at once, then once per StatusPause.
const (
	StatusBurst = 30
	StatusPause = 10 * time.Second
)

// NewStatusLimiter returns the limit of what is written into a status, by tenant namespace.
func NewStatusLimiter() *ratelimit.Limiter[string] {
	return ratelimit.New[string](rate.Every(StatusPause), StatusBurst, 1000)
}
