// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// dialTimeout allows for two lost packets: TCP retransmits after 1 and 3 seconds.
	dialTimeout = 5 * time.Second
	// replyTimeout is how long to wait for the answer to a datagram, tries how often to send it.
	replyTimeout, tries = 500 * time.Millisecond, 6
	// senders is the number of concurrent senders of datagrams, each with one on its way.
	senders = 16
)

// Check exchanges bytes with the server at target and returns the result.
func Check(ctx context.Context, protocol, target string, count int64) Answer {
	began := time.Now()
	var answer Answer
	var err error
	switch protocol {
	case TCP:
		answer, err = exchangeTCP(ctx, target, count)
	case UDP:
		answer, err = exchangeUDP(ctx, target, count)
	default:
		err = fmt.Errorf("protocol %q: want %s or %s", protocol, TCP, UDP)
	}
	answer.Took = time.Since(began)
	if err != nil {
		answer.Error = err.Error()
	}
	return answer
}

func exchangeTCP(ctx context.Context, target string, count int64) (Answer, error) {
	transport := &http.Transport{DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, DisableCompression: true, DisableKeepAlives: true}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+target+exchangePath, io.LimitReader(&pattern{}, count))
	if err != nil {
		return Answer{}, err
	}
	request.ContentLength = count
	response, err := transport.RoundTrip(request)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = response.Body.Close() }() // nothing is written
	answer := Answer{Server: response.Header.Get(serverHeader), Source: response.Header.Get(sourceHeader)}
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 200)) // may contain the reason
		return answer, fmt.Errorf("answer %s: %s", response.Status, strings.TrimSpace(string(text)))
	}
	got, err := verify(response.Body, 0)
	switch {
	case err != nil:
		return answer, fmt.Errorf("answer: %w", err)
	case got != count:
		return answer, fmt.Errorf("answer: %d bytes of %d", got, count)
	}
	return answer, nil
}

// datagrams is an exchange under way.
type datagrams struct {
	target string
	count  int64

	mu     sync.Mutex
	next   int64 // the number of the next piece
	answer Answer
	err    error
}

func exchangeUDP(ctx context.Context, target string, count int64) (Answer, error) {
	d := &datagrams{target: target, count: max(count, 1)}
	var all sync.WaitGroup
	for range min(senders, (d.count+chunk-1)/chunk) {
		all.Go(func() {
			if err := d.send(ctx); err != nil {
				d.fail(err)
			}
		})
	}
	all.Wait()
	return d.answer, d.err
}

func (d *datagrams) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.err = err
	}
}

// take returns the number of the next piece of the pattern; false when all are taken or one failed.
func (d *datagrams) take() (number int64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	number = d.next
	d.next++
	return number, d.err == nil && number*chunk < d.count
}

// note records the server and the source address that it saw; both must be the same each time.
func (d *datagrams) note(server, source string, repeated int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answer.Repeated += repeated
	if d.answer.Source != "" && (d.answer.Source != source || d.answer.Server != server) {
		return fmt.Errorf("server %s saw the source %s, and then server %s saw %s", d.answer.Server, d.answer.Source, server, source)
	}
	d.answer.Server, d.answer.Source = server, source
	return nil
}

func (d *datagrams) send(ctx context.Context) error {
	socket, err := (&net.Dialer{}).DialContext(ctx, "udp", d.target)
	if err != nil {
		return err
	}
	defer func() { _ = socket.Close() }() // all answers have arrived
	buffer := make([]byte, 2*chunk)       // an answer, with the name and the address in it
	for {
		number, more := d.take()
		if !more {
			return nil
		}
		datagram := binary.BigEndian.AppendUint64(nil, uint64(number))
		payload := make([]byte, min(chunk, d.count-number*chunk))
		_, _ = (&pattern{offset: number * chunk}).Read(payload) // never fails
		datagram = append(datagram, payload...)
		if err := d.piece(ctx, socket, datagram, buffer); err != nil {
			return err
		}
	}
}

// piece sends one datagram until it is answered.
func (d *datagrams) piece(ctx context.Context, socket net.Conn, datagram, buffer []byte) error {
	var last error
	for try := range tries {
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), last)
		}
		if _, err := socket.Write(datagram); err != nil {
			last = err // perhaps the ICMP error for the datagram before
			continue
		}
		server, source, err := await(socket, datagram, buffer)
		if err == nil {
			return d.note(server, source, try)
		}
		last = err
	}
	return fmt.Errorf("no answer to %d datagrams: %w", tries, last)
}

// await reads until the answer to the datagram arrives, which ends with the sent bytes. It skips late answers to earlier datagrams.
func await(socket net.Conn, datagram, buffer []byte) (server, source string, err error) {
	if err := socket.SetReadDeadline(time.Now().Add(replyTimeout)); err != nil {
		return "", "", err
	}
	for {
		n, err := socket.Read(buffer)
		if err != nil {
			return "", "", err
		}
		reply := buffer[:n]
		if n < idBytes || !bytes.Equal(reply[:idBytes], datagram[:idBytes]) {
			continue
		}
		source, rest, sourced := cutText(reply[idBytes:])
		server, rest, served := cutText(rest)
		if !sourced || !served || !bytes.Equal(rest, datagram[idBytes:]) {
			return "", "", errors.New("the answer differs from the sent bytes")
		}
		return server, source, nil
	}
}
