// SPDX-License-Identifier: Apache-2.0

// Package matrix is the two ends of a test of the network between clusters: a server that says from where a request came to it and answers with
// as many bytes as it got, over TCP and UDP, and a client that asks it. A server is a client, too, when it is told to: so a test sends
// packets from within a pod, and needs to run nothing in it.
//
// It knows no cluster: who is to reach whom, and as whom, is decided in action/networktest. Its proof is matrix_test.go, on loopback, with
// servers that answer wrongly.
package matrix

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"
)

const (
	// Port of the servers, TCP and UDP.
	Port = 5879
	// MaxBytes is the most that a check may ask for.
	MaxBytes = 64 << 20

	// CheckPath makes a server a client: GET with the parameters target, protocol and bytes, and the header KeyHeader.
	CheckPath = "/check"
	// HealthPath answers when the server listens.
	HealthPath = "/healthz"
	// KeyHeader holds the key of the test: a server asks others for those only who started it.
	KeyHeader = "Matrix-Key"

	exchangePath = "/exchange"
	sourceHeader = "Matrix-Source"
	serverHeader = "Matrix-Server"
)

// The protocols.
const (
	TCP = "TCP"
	UDP = "UDP"
)

// Answer is what came of a check.
type Answer struct {
	// Server is the name of who answered, Source the address that the request came from, as the server saw it.
	Server string `json:"server,omitempty"`
	Source string `json:"source,omitempty"`
	// Took is how long it took.
	Took time.Duration `json:"took"`
	// Repeated datagrams: they, or the answers to them, were lost.
	Repeated int `json:"repeated,omitempty"`
	// Error is why it failed; empty if it did not.
	Error string `json:"error,omitempty"`
}

// period of the bytes that are exchanged. A prime, so that what is moved by a power of two is noticed.
const period = 251

var table = func() (bytes [period]byte) {
	for i := range bytes {
		bytes[i] = byte(i*i*7 + i*13 + 1)
	}
	return bytes
}()

// pattern reads the bytes that everybody expects, from an offset on.
type pattern struct{ offset int64 }

func (p *pattern) Read(buffer []byte) (int, error) {
	for i := range buffer {
		buffer[i] = table[(p.offset+int64(i))%period]
	}
	p.offset += int64(len(buffer))
	return len(buffer), nil
}

// verify reads all, and compares it with the pattern from offset on. It returns how much there was.
func verify(r io.Reader, offset int64) (int64, error) {
	buffer := make([]byte, 32<<10)
	for read := int64(0); ; {
		n, err := r.Read(buffer)
		for i, b := range buffer[:n] {
			if b != table[(offset+read+int64(i))%period] {
				return read, fmt.Errorf("byte %d arrived as another one", read+int64(i))
			}
		}
		read += int64(n)
		if errors.Is(err, io.EOF) {
			return read, nil
		}
		if err != nil {
			return read, fmt.Errorf("after %d bytes: %w", read, err)
		}
	}
}

// hostOf is the address of HOST:PORT, in its shortest form.
func hostOf(remote string) string {
	address, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	return address.Addr().Unmap().String()
}

const (
	// chunk of a datagram: with all headers it fits into the smallest MTU that a network for pods has.
	chunk = 1200
	// idBytes are before the payload, and say where in the pattern it is.
	idBytes = 8
	// maxText is the longest name or address in an answer.
	maxText = 255
)

// withText puts a short text before a datagram's rest.
func withText(datagram []byte, text string) []byte {
	text = text[:min(len(text), maxText)]
	return append(append(datagram, byte(len(text))), text...)
}

func cutText(datagram []byte) (text string, rest []byte, ok bool) {
	if len(datagram) == 0 || len(datagram) < 1+int(datagram[0]) {
		return "", nil, false
	}
	end := 1 + int(datagram[0])
	return string(datagram[1:end]), datagram[end:], true
}
