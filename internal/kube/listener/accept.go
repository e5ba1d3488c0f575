// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/go-logr/logr"
)

const (
	// firstPause is how long [Each] waits after an error. Each further one in a row doubles it, up to mostPause.
	firstPause, mostPause = 5 * time.Millisecond, time.Second
)

// Each calls serve with each connection that arrives, until ctx ends. A connection is not refused for ever because of an error that passes, such as
// too many open files. It returns an error if someone else closes the listener.
func Each(ctx context.Context, at net.Listener, log logr.Logger, serve func(net.Conn)) error {
	for pause := time.Duration(0); ; {
		connection, err := at.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = connection.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("listener at %s: %w", at.Addr(), err)
		case err != nil:
			pause = min(max(2*pause, firstPause), mostPause)
			log.Error(err, "connection not accepted, trying again", "after", pause.String())
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		default:
			pause = 0
			serve(connection)
		}
	}
}
