// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"liqo.io/liqo/internal/kube/printable"
)

// TestReason: the text gives the reason and is the same for each attempt.
func TestReason(t *testing.T) {
	at := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 6443}
	request := func(err error) error { return &url.Error{Op: "Get", URL: "https://10.0.0.1:6443/livez", Err: err} }
	for want, err := range map[string]error{
		"no answer within 1s": request(context.DeadlineExceeded),
		"10.0.0.1:6443: connect: connection refused": request(&net.OpError{
			Op: "dial", Net: "tcp", Addr: at, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED),
		}),
		"the connection was closed": request(&net.OpError{
			Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: 41234}, Addr: at, Err: os.NewSyscallError("read", syscall.ECONNRESET),
		}),
		"x509: certificate signed by unknown authority":          request(x509.UnknownAuthorityError{}),
		"GET /livez was answered with 500 Internal Server Error": errors.New("GET /livez was answered with 500 Internal Server Error"),
		"the name milan.example is not known": request(&net.OpError{
			Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "milan.example", IsNotFound: true},
		}),
		"lookup milan.example: server misbehaving": request(&net.OpError{
			Op: "dial", Err: &net.DNSError{Err: "server misbehaving", Name: "milan.example"},
		}),
	} {
		if got := Reason(err, time.Second); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

// TestReasonIsShort: HTTP errors contain text of the other side, and every cache of nodes keeps the conditions.
func TestReasonIsShort(t *testing.T) {
	got := Reason(&url.Error{Err: errors.New("malformed HTTP response \x1b[31m\n" + strings.Repeat("a", 1<<20))}, time.Second)
	if want := "malformed HTTP response [31m aaa"; !strings.HasPrefix(got, want) || len(got) > 2*printable.MaxLine {
		t.Errorf("%d bytes: %.100q, want %q", len(got), got, want)
	}
}
