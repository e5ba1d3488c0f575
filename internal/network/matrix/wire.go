// SPDX-License-Identifier: Apache-2.0

// Package matrix is both ends of a test of the network between clusters, over TCP and UDP. The server answers with the source address of the
// request and as many bytes as it received; the client checks the answer. A server also acts as a client on request, so that a test can send
// packets from within a pod without running a command in it.
//
// The package knows no cluster: action/networktest decides which pods reach each other, and under which addresses. Its proof is
// matrix_test.go, on loopback, with servers that answer wrongly.
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
	// MaxBytes bounds the bytes of a check.
	MaxBytes = 64 << 20

	// CheckPath makes the server act as a client: GET with the parameters target, protocol and bytes, and the header KeyHeader.
	CheckPath = "/check"
	// HealthPath answers while the server listens.
	HealthPath = "/healthz"
	// KeyHeader holds the key of the test: a server acts as a client only for the program that started it.
	KeyHeader = "Matrix-Key"

	exchangePath = "/exchange"
	sourceHeader = "Matrix-Source"
	serverHeader = "Matrix-Server"
)

const (
	TCP = "TCP"
	UDP = "UDP"
)

// Answer is the result of a check.
type Answer struct {
	// Server is the name of the server, Source the source address of the request as the server saw it.
	Server string `json:"server,omitempty"`
	Source string `json:"source,omitempty"`
	// Took is how long it took.
	Took time.Duration `json:"took"`
	// Repeated is how many datagrams were sent again, because they or their answers were lost.
	Repeated int `json:"repeated,omitempty"`
	// Error is why it failed; empty if it did not.
	Error string `json:"error,omitempty"`
}

// period of the exchanged bytes. It is a prime, so that a shift by a power of two is noticed.
const period = 251

var table = func() (bytes [period]byte) {
	for i := range bytes {
		bytes[i] = byte(i*i*7 + i*13 + 1)
	}
	return bytes
}()

// pattern reads the bytes that both ends expect, from an offset on.
type pattern struct{ offset int64 }

func (p *pattern) Read(buffer []byte) (int, error) {
	for i := range buffer {
		buffer[i] = table[(p.offset+int64(i))%period]
	}
	p.offset += int64(len(buffer))
	return len(buffer), nil
}

// verify reads to the end and compares with the pattern from offset on. It returns the number of bytes.
func verify(r io.Reader, offset int64) (int64, error) {
	buffer := make([]byte, 32<<10)
	for read := int64(0); ; {
		n, err := r.Read(buffer)
		for i, b := range buffer[:n] {
			if b != table[(offset+read+int64(i))%period] {
				return read, fmt.Errorf("byte %d was changed on the way", read+int64(i))
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

// hostOf returns the address in HOST:PORT, in its shortest form.
func hostOf(remote string) string {
	address, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	return address.Addr().Unmap().String()
}

const (
	// chunk is the payload of a datagram: with all headers it fits the smallest MTU of pod networks.
	chunk = 1200
	// idBytes precede the payload and hold its position in the pattern.
	idBytes = 8
	// maxText is the longest name or address in an answer.
	maxText = 255
)

// withText appends a short text to a datagram.
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
