// SPDX-License-Identifier: Apache-2.0

package netem

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"liqo.io/liqo/playground/internal/fault"
)

// Apply puts a configuration in force, as a whole, in the emulator that listens at the socket. It returns after that, with a list of
// the changes for a person: empty if there were none.
func Apply(ctx context.Context, socket string, wanted fault.Emulation) (changes []string, err error) {
	body, err := json.Marshal(wanted)
	if err != nil {
		return nil, fmt.Errorf("encode emulation: %w", err)
	}
	var done result
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://netem"+configPath, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("link emulator: %w", err)
	}
	err = call(socket, request, &done)
	return done.Changes, err
}

// ReadStatus asks the emulator that listens at the socket for its configuration and counters.
func ReadStatus(ctx context.Context, socket string) (Status, error) {
	var status Status
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://netem"+statusPath, http.NoBody)
	if err != nil {
		return status, fmt.Errorf("link emulator: %w", err)
	}
	err = call(socket, request, &status)
	return status, err
}

// call sends a request to the emulator that listens at the socket, and decodes its answer.
func call(socket string, request *http.Request, into any) error {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return fmt.Errorf("link emulator at %s (is it running?): %w", socket, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
		return fmt.Errorf("link emulator: %s: %s", response.Status, strings.TrimSpace(string(text)))
	}
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		return fmt.Errorf("answer of the link emulator: %w", err)
	}
	return nil
}
