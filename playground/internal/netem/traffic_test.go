// SPDX-License-Identifier: Apache-2.0

package netem

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// endpoint is a UDP socket in one of the hosts.
type endpoint struct {
	*net.UDPConn
	t testing.TB
}

// udp opens a socket with a buffer for everything a test sends.
func (n namespace) udp(address net.IP) endpoint {
	n.t.Helper()
	e := endpoint{t: n.t}
	n.in(func() (err error) {
		if e.UDPConn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: address}); err != nil {
			return err
		}
		raw, err := e.SyscallConn()
		if err != nil {
			return err
		}
		var set error
		err = raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20) })
		return errors.Join(err, set)
	})
	n.t.Cleanup(func() { _ = e.Close() })
	return e
}

func (e endpoint) send(to endpoint, number uint64) {
	e.t.Helper()
	if _, err := e.WriteTo(binary.BigEndian.AppendUint64(nil, number), to.LocalAddr()); err != nil {
		e.t.Fatal(err)
	}
}

// receive returns the number of the next packet, or false when none comes in time.
func (e endpoint) receive(timeout time.Duration) (uint64, bool) {
	e.t.Helper()
	if err := e.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		e.t.Fatal(err)
	}
	var packet [8]byte
	_, _, err := e.ReadFrom(packet[:])
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		e.t.Fatal(err)
	}
	return binary.BigEndian.Uint64(packet[:]), err == nil
}

// echo sends back what comes, until the socket is closed.
func (e endpoint) echo() {
	go func() {
		packet := make([]byte, 2048)
		for {
			n, from, err := e.ReadFrom(packet)
			if err != nil {
				return
			}
			_, _ = e.WriteTo(packet[:n], from)
		}
	}()
}

// roundTrips measures n round trips one after the other and returns them sorted.
func (e endpoint) roundTrips(to endpoint, n int) []time.Duration {
	e.t.Helper()
	times := make([]time.Duration, n)
	for i := range times {
		start := time.Now()
		e.send(to, uint64(i))
		if got, ok := e.receive(30 * time.Second); !ok || got != uint64(i) {
			e.t.Fatalf("round trip %d: got packet %d, %v", i, got, ok)
		}
		times[i] = time.Since(start)
	}
	slices.Sort(times)
	return times
}

// fastest makes round trips until the fastest one takes at most high milliseconds, for 30 seconds at most. It fails if one takes less than low, and
// returns how many it made.
func (e endpoint) fastest(to endpoint, low, high float64) (count int) {
	e.t.Helper()
	for start := time.Now(); ; {
		best := e.roundTrips(to, 20)[0].Seconds() * 1000
		count += 20
		if best <= high || time.Since(start) > 30*time.Second {
			within(e.t, "fastest round trip, ms", best, low, high)
			return count
		}
	}
}

// lossTo sends n packets and returns the share that did not arrive. The lines keep the order of packets, so whatever
// has not arrived before the end mark never will.
func (e endpoint) lossTo(to endpoint, n int) float64 {
	e.t.Helper()
	for i := range n {
		if i%100 == 0 {
			time.Sleep(time.Millisecond) // the kernel drops bursts of more than 1000 packets between CPUs; that is not our loss
		}
		e.send(to, uint64(i))
	}
	const end = 1 << 62
	for range 100 { // one of these arrives
		e.send(to, end)
	}
	arrived := 0
	for {
		number, ok := to.receive(30 * time.Second)
		if !ok {
			e.t.Fatalf("none of the end marks arrived; %d packets did", arrived)
		}
		if number == end {
			break
		}
		arrived++
	}
	for ok := true; ok; { // the other end marks
		_, ok = to.receive(100 * time.Millisecond)
	}
	return 1 - float64(arrived)/float64(n)
}

// tcp opens a connection from one host to the other. The far end is the second one.
func tcp(from, to namespace, address net.IP) (near, far net.Conn) {
	from.t.Helper()
	var listener net.Listener
	to.in(func() (err error) {
		listener, err = net.ListenTCP("tcp4", &net.TCPAddr{IP: address})
		return err
	})
	defer func() { _ = listener.Close() }()
	from.in(func() (err error) {
		near, err = net.DialTimeout("tcp4", listener.Addr().String(), 10*time.Second)
		return err
	})
	from.t.Cleanup(func() { _ = near.Close() })
	far, err := listener.Accept()
	if err != nil {
		from.t.Fatal(err)
	}
	from.t.Cleanup(func() { _ = far.Close() })
	return near, far
}

// throughput sends through a connection as fast as it can and returns the bits per second that arrive between warm-up and end.
func throughput(t testing.TB, near, far net.Conn, warmUp, duration time.Duration) float64 {
	t.Helper()
	go func() {
		data := make([]byte, 256<<10)
		for {
			if _, err := near.Write(data); err != nil {
				return
			}
		}
	}()
	data := make([]byte, 256<<10)
	read := func(length time.Duration) (int, time.Duration) {
		start, total := time.Now(), 0
		for time.Since(start) < length {
			n, err := io.ReadAtLeast(far, data, 1)
			if err != nil {
				t.Fatal(err)
			}
			total += n
		}
		return total, time.Since(start)
	}
	read(warmUp)
	bytes, elapsed := read(duration)
	return float64(bytes) * 8 / elapsed.Seconds()
}
