// SPDX-License-Identifier: Apache-2.0

package netem

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"liqo.io/liqo/playground/internal/fault"
)

// The control protocol: HTTP with JSON over a unix socket.
const (
	configPath = "/config" // PUT a fault.Emulation, get a result when it is in force
	statusPath = "/status" // GET a Status
	maxBody    = 1 << 20
)

type result struct {
	Changes []string `json:"changes"`
}

// control applies one configuration after the other.
type control struct {
	emulator *emulator
	rules    ruleTable
	mu       sync.Mutex
}

// apply puts a configuration in force as a whole and returns what it changed. A line is there before the rule that
// leads to it, and stays until the rule is gone.
func (c *control) apply(wanted fault.Emulation) (changes []string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var both []fault.Pair
	both = append(both, wanted.Pairs...)
	for _, p := range c.emulator.status().Pairs {
		both = append(both, p.Pair) // a pair that is wanted stands first, so its new values count
	}
	changes = c.emulator.configure(both)
	ruleChanges, err := c.rules.set(wanted.Pairs)
	changes = append(changes, ruleChanges...)
	if err != nil {
		return changes, err
	}
	return append(changes, c.emulator.configure(wanted.Pairs)...), nil
}

func (c *control) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT "+configPath, func(w http.ResponseWriter, r *http.Request) {
		var wanted fault.Emulation
		decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
		decoder.DisallowUnknownFields()
		if err := errors.Join(decoder.Decode(&wanted), wanted.Validate()); err != nil {
			http.Error(w, fmt.Sprintf("configuration: %v", err), http.StatusBadRequest)
			return
		}
		changes, err := c.apply(wanted)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		answer(w, result{Changes: changes})
	})
	mux.HandleFunc("GET "+statusPath, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, c.emulator.status())
	})
	return mux
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	// An error means that the client is gone, so there is no client to report it to.
	_ = json.NewEncoder(w).Encode(value)
}
