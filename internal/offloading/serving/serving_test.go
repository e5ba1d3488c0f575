// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// TestKeep: a certificate is renewed long before it ends, and once it is, not again at once.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Names{Common: "x", IPs: []net.IP{net.IPv4(10, 0, 0, 9)}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go c.Keep(ctx)
		seen := map[string]bool{}
		for range 4 * 90 { // 90 days, every six hours
			now, err := c.Get(nil)
			if err != nil {
				t.Fatal(err)
			}
			seen[now.Leaf.SerialNumber.String()] = true
			if left := time.Until(now.Leaf.NotAfter); left < lifetime/5 || now.Leaf.VerifyHostname("10.0.0.9") != nil {
				t.Fatalf("%v left of %v", left, now.Leaf.Subject)
			}
			time.Sleep(6 * time.Hour)
			synctest.Wait()
		}
		if len(seen) != 4 && len(seen) != 5 {
			t.Errorf("%d certificates in 90 days", len(seen))
		}
		cancel()
		synctest.Wait()
	})
}

// TestServe: what is served ends when the process does, and a connection more than there is room for waits.
func TestServe(t *testing.T) {
	c, err := New(Names{Common: "x"})
	if err != nil {
		t.Fatal(err)
	}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, inner, c.Get, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			connection, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer connection.Close()
			_, _ = io.WriteString(connection, "HTTP/1.1 101 Switching Protocols\r\n\r\n") // what is missing is noticed below
			<-r.Context().Done()
			close(told)
		}))
	}()
	connection, err := tls.Dial("tcp", inner.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := io.WriteString(connection, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := connection.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-told
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
}

// TestBounded: slots are given back, once.
func TestBounded(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	done := make(chan struct{})
	b := &bounded{Listener: inner, slots: make(chan struct{}, 1), done: done}
	for range 3 {
		dialled, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := b.Accept()
		if err != nil || len(b.slots) != 1 {
			t.Fatalf("%v, %d slots taken", err, len(b.slots))
		}
		_ = accepted.Close() // it may say what it likes
		_ = accepted.Close()
		_ = dialled.Close()
		if len(b.slots) != 0 {
			t.Fatalf("%d slots taken", len(b.slots))
		}
	}
	b.slots <- struct{}{}
	close(done)
	if _, err := b.Accept(); err == nil {
		t.Error("accepted more than there is room for")
	}
}
