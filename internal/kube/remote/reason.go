// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"syscall"
	"time"

	"liqo.io/liqo/internal/kube/printable"
)

// Reason returns why a call within this timeout failed, in words that do not change while the reason does not: they are written into objects, and for
// instance our source port differs each time. The text may come from the other cluster, so it is one printable line of at most printable.MaxLine.
func Reason(err error, timeout time.Duration) string {
	if TimedOut(err) {
		return fmt.Sprintf("no answer within %v", timeout)
	}
	for _, closed := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, closed) {
			return "the connection was closed" // which of these it is depends on timing
		}
	}
	var name *net.DNSError
	var operation *net.OpError
	var request *url.Error
	switch {
	case errors.As(err, &name) && name.IsNotFound:
		return printable.Line(fmt.Sprintf("the name %s is not known", name.Name), printable.MaxLine)
	case errors.As(err, &operation) && operation.Addr != nil:
		return printable.Line(operation.Addr.String()+": "+operation.Err.Error(), printable.MaxLine)
	case errors.As(err, &operation):
		return printable.Line(operation.Err.Error(), printable.MaxLine)
	case errors.As(err, &request):
		return printable.Line(request.Err.Error(), printable.MaxLine)
	}
	return printable.Line(err.Error(), printable.MaxLine)
}

// TimedOut reports whether a call got no answer in time. The connection may be dead then.
func TimedOut(err error) bool {
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout()
}
