// SPDX-License-Identifier: Apache-2.0

package listener_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/go-logr/logr"

	"liqo.io/liqo/internal/kube/listener"
)

// flaky is a listener whose first calls fail.
type flaky struct {
	net.Listener
	failures int
}

func (f *flaky) Accept() (net.Conn, error) {
	if f.failures > 0 {
		f.failures--
		return nil, errors.New("too many open files")
	}
	return f.Listener.Accept()
}

// TestEach: errors that pass lose no connection, the end of the context is no error, and a listener that someone else closes is one.
func TestEach(t *testing.T) {
	open := func() net.Listener {
		at, err := listener.Open(t.Context(), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { at.Close() })
		return at
	}
	at := &flaky{Listener: open(), failures: 4}
	ctx, cancel := context.WithCancel(t.Context())
	served, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- listener.Each(ctx, at, logr.Discard(), func(connection net.Conn) {
			connection.Close()
			served <- struct{}{}
		})
	}()
	for range 2 {
		client, err := net.Dial("tcp", at.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		<-served
		client.Close()
	}
	cancel()
	at.Close()
	if err := <-ended; err != nil || at.failures != 0 {
		t.Errorf("after the end: %v, with %d failures left", err, at.failures)
	}

	closed := open()
	closed.Close()
	if err := listener.Each(t.Context(), closed, logr.Discard(), func(net.Conn) { t.Error("a connection") }); !errors.Is(err, net.ErrClosed) {
		t.Errorf("of a closed listener: %v", err)
	}

	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	broken := &flaky{Listener: open(), failures: 1 << 30}
	if err := listener.Each(ctx, broken, logr.Discard(), func(net.Conn) { t.Error("a connection") }); err != nil {
		t.Errorf("after the end, of a listener that fails: %v", err)
	}
}
