// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"syscall"
	"time"
	"unicode"
)

// MaxLine bounds text of another cluster, in bytes.
const MaxLine = 1500

// Line makes one bounded, printable line of text from another cluster.
func Line(text string) string {
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, ""), func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if len(text) > MaxLine {
		text = strings.ToValidUTF8(text[:MaxLine], "") + " ..."
	}
	return text
}

// Reason returns why a call within this timeout failed, in words that do not change while the reason does not: they are written into objects, and for instance our
// source port differs each time. The text may come from the other cluster, so it is one Line.
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
		return Line(fmt.Sprintf("the name %s is not known", name.Name))
	case errors.As(err, &operation) && operation.Addr != nil:
		return Line(operation.Addr.String() + ": " + operation.Err.Error())
	case errors.As(err, &operation):
		return Line(operation.Err.Error())
	case errors.As(err, &request):
		return Line(request.Err.Error())
	}
	return Line(err.Error())
}

// TimedOut reports whether a call got no answer in time. The connection may be dead then.
func TimedOut(err error) bool {
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout()
}
