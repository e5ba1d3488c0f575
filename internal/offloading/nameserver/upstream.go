// SPDX-License-Identifier: Apache-2.0

package nameserver

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"liqo.io/liqo/internal/offloading/names"
)

const (
	// largest is the size of the largest message.
	largest = 1<<16 - 1
	// tries is how often the DNS of the cluster is asked, by tryFor each: a client asks again after about five seconds.
	tries, tryFor = 2, 3 * time.Second
)

// upstream asks the DNS of the cluster.
type upstream struct {
	servers []netip.AddrPort
	// buffers are for answers over UDP.
	buffers sync.Pool
}

func newUpstream(servers []netip.AddrPort) *upstream {
	return &upstream{servers: servers, buffers: sync.Pool{New: func() any { return new([largest]byte) }}}
}

// question is what a packet asks for, so that its answer is known.
type question struct {
	name string
	dnsmessage.Question
}

// ask sends a packet over udp or tcp, with an ID of its own, and returns the answer.
func (u *upstream) ask(ctx context.Context, network string, packet []byte, asked question) (_ []byte, err error) {
	for try := range tries * len(u.servers) {
		var answer []byte
		if answer, err = u.try(ctx, network, u.servers[try%len(u.servers)], packet, asked); err == nil {
			return answer, nil
		}
		measured().forwardFailed(err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("ask for %s: %w", asked.name, err)
}

func (u *upstream) try(ctx context.Context, network string, server netip.AddrPort, packet []byte, asked question) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, tryFor)
	defer cancel()
	// A socket of its own has a port of its own, which makes answers of others harder to forge.
	connection, err := new(net.Dialer).DialContext(ctx, network, server.String())
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	stop := context.AfterFunc(ctx, func() { _ = connection.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	id := newID()
	names.SetID(packet, id)
	if network == "tcp" {
		if err := writeFrame(connection, packet); err != nil {
			return nil, err
		}
		answer, err := readFrame(connection, largest)
		if err == nil && !names.Same(answer, id, asked.name, asked.Question) {
			err = errors.New("the answer is to another question")
		}
		return answer, err
	}
	if _, err := connection.Write(packet); err != nil {
		return nil, err
	}
	buffer, _ := u.buffers.Get().(*[largest]byte)
	defer u.buffers.Put(buffer)
	for {
		n, err := connection.Read(buffer[:])
		if err != nil {
			return nil, err
		}
		if names.Same(buffer[:n], id, asked.name, asked.Question) {
			return append([]byte(nil), buffer[:n]...), nil
		}
	}
}

func newID() uint16 {
	var id [2]byte
	_, _ = rand.Read(id[:]) // never fails
	return binary.BigEndian.Uint16(id[:])
}

// writeFrame writes a message as TCP carries it, in one packet.
func writeFrame(to io.Writer, packet []byte) error {
	if len(packet) > largest {
		return errors.New("the message is too large")
	}
	_, err := to.Write(append(binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(packet)), uint16(len(packet))), packet...))
	return err
}

// readFrame reads a message of at most so many bytes.
func readFrame(from io.Reader, most int) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(from, size[:]); err != nil {
		return nil, err
	}
	length := int(binary.BigEndian.Uint16(size[:]))
	if length > most {
		return nil, fmt.Errorf("a message of %d bytes, more than %d", length, most)
	}
	packet := make([]byte, length)
	_, err := io.ReadFull(from, packet)
	return packet, err
}
