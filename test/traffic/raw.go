// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// send sends UDP packets with any source address out of a link, bypassing the routes of this host.
func send(ctx context.Context, args []string, out *printer) error {
	flags := flag.NewFlagSet("send", flag.ContinueOnError)
	link := flags.String("link", "", "link to send out of")
	from := flags.String("from", "", "source address")
	to := flags.String("to", "", "destination ADDRESS:PORT")
	word := flags.String("word", "", "payload")
	count := flags.Int("count", 10, "number of packets, 10 ms apart")
	if _, err := parse(flags, args); err != nil {
		return err
	}
	source, err := netip.ParseAddr(*from)
	if err != nil {
		return err
	}
	destination, err := netip.ParseAddrPort(*to)
	if err != nil {
		return err
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return fmt.Errorf("open a raw socket: %w", err)
	}
	defer unix.Close(socket)
	if err := unix.BindToDevice(socket, *link); err != nil {
		return fmt.Errorf("bind to link %s: %w", *link, err)
	}
	sent := 0
	for range *count {
		packet := datagram(netip.AddrPortFrom(source, 40000), destination, []byte(*word))
		if err := unix.Sendto(socket, packet, 0, &unix.SockaddrInet4{Addr: destination.Addr().As4()}); err != nil {
			return fmt.Errorf("send to %s out of %s: %w", *to, *link, err)
		}
		sent++
		wait(ctx, 10*time.Millisecond)
	}
	return out.print(map[string]int{"sent": sent})
}

// datagram is an IPv4 packet with a UDP datagram in it.
func datagram(from, to netip.AddrPort, payload []byte) []byte {
	source, destination := from.Addr().As4(), to.Addr().As4()
	udp := binary.BigEndian.AppendUint16(nil, from.Port())
	udp = binary.BigEndian.AppendUint16(udp, to.Port())
	udp = binary.BigEndian.AppendUint16(udp, uint16(8+len(payload)))
	udp = append(udp, 0, 0)
	udp = append(udp, payload...)
	pseudo := append(append(source[:], destination[:]...), 0, unix.IPPROTO_UDP)
	pseudo = binary.BigEndian.AppendUint16(pseudo, uint16(len(udp)))
	binary.BigEndian.PutUint16(udp[6:], checksum(append(pseudo, udp...)))

	ip := []byte{0x45, 0}
	ip = binary.BigEndian.AppendUint16(ip, uint16(20+len(udp)))
	ip = append(ip, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0)
	ip = append(ip, from.Addr().AsSlice()...)
	ip = append(ip, to.Addr().AsSlice()...)
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	return append(ip, udp...)
}

// captured counts the packets between two addresses of the outermost IP header.
type captured struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Frames int    `json:"frames"`
	Bytes  int    `json:"bytes"`
	// Found counts the packets that contain the word.
	Found int `json:"found"`
}

// capture reads every packet of every link of this network namespace until the context ends, and then prints its counts.
func capture(ctx context.Context, args []string, out *printer) error {
	flags := flag.NewFlagSet("capture", flag.ContinueOnError)
	word := flags.String("word", "", "word to search for")
	if _, err := parse(flags, args); err != nil {
		return err
	}
	if *word == "" {
		return errors.New("capture needs --word")
	}
	const all = unix.ETH_P_IP<<8&0xff00 | unix.ETH_P_IP>>8 // in network byte order
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, all)
	if err != nil {
		return fmt.Errorf("open a packet socket: %w", err)
	}
	defer unix.Close(socket)
	if err := errors.Join(
		unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
		unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50000}),
	); err != nil {
		return fmt.Errorf("set up the packet socket: %w", err)
	}
	if err := out.print(map[string]bool{"listening": true}); err != nil {
		return err
	}
	return listen(ctx, socket, []byte(*word), out)
}

func listen(ctx context.Context, socket int, word []byte, out *printer) error {
	flows := map[[2]netip.Addr]*captured{}
	buffer := make([]byte, 128<<10)
	var ended time.Time
	for {
		n, _, err := unix.Recvfrom(socket, buffer, 0)
		if ctx.Err() != nil && ended.IsZero() {
			ended = time.Now()
		}
		switch {
		// All packets from before the end have been read, or packets arrive faster than they can be read.
		case !ended.IsZero() && (errors.Is(err, unix.EAGAIN) || time.Since(ended) > time.Second):
			return summary(socket, flows, out)
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR), n < 20:
			continue
		case err != nil:
			return fmt.Errorf("read a packet: %w", err)
		}
		packet := buffer[:n]
		key := [2]netip.Addr{netip.AddrFrom4([4]byte(packet[12:16])), netip.AddrFrom4([4]byte(packet[16:20]))}
		flow := flows[key]
		if flow == nil {
			flow = &captured{From: key[0].String(), To: key[1].String()}
			flows[key] = flow
		}
		flow.Frames++
		flow.Bytes += n
		if bytes.Contains(packet, word) {
			flow.Found++
		}
	}
}

func summary(socket int, flows map[[2]netip.Addr]*captured, out *printer) error {
	for _, flow := range flows {
		if err := out.print(flow); err != nil {
			return err
		}
	}
	statistics, err := unix.GetsockoptTpacketStats(socket, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return fmt.Errorf("read the count of dropped packets: %w", err)
	}
	return out.print(map[string]uint32{"dropped": statistics.Drops})
}
