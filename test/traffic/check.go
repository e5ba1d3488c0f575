// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// result is the output of a check.
type result struct {
	// From is the source address that the server saw; empty with ICMP, whose answer does not contain it.
	From   string `json:"from,omitempty"`
	Server string `json:"server,omitempty"` // the server's name, with HTTP
	Bytes  int    `json:"bytes"`
	Took   string `json:"took"`
}

// check sends one request and fails unless the whole answer is correct.
func check(ctx context.Context, args []string, out *printer) error {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	size := flags.Int("bytes", 1, "size of the body or datagram, in both directions")
	word := flags.String("word", "", "fill the body with this word")
	timeout := flags.Duration("timeout", 5*time.Second, "timeout of the answer")
	rest, err := parse(flags, args)
	if err != nil {
		return err
	}
	if len(rest) != 2 {
		return errors.New("want http, udp or icmp, and ADDRESS:PORT")
	}
	ask := map[string]func(context.Context, string, []byte) (result, error){"http": askHTTP, "udp": askUDP, "icmp": askICMP}[rest[0]]
	if ask == nil {
		return fmt.Errorf("unknown protocol %q", rest[0])
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	start := time.Now()
	answer, err := ask(ctx, rest[1], body(*size, *word))
	if err != nil {
		return fmt.Errorf("%s with %d bytes to %s after %v: %w", rest[0], *size, rest[1], time.Since(start).Round(time.Millisecond), err)
	}
	answer.Bytes, answer.Took = *size, time.Since(start).Round(10*time.Microsecond).String()
	return out.print(answer)
}

// body repeats the word; without a word it is random, so that no two checks send the same bytes.
func body(size int, word string) []byte {
	if word != "" {
		return bytes.Repeat([]byte(word+" "), size/(len(word)+1)+1)[:size]
	}
	all := make([]byte, size+8)
	random := rand.New(rand.NewPCG(rand.Uint64(), 0))
	for i := 0; i < size; i += 8 {
		binary.LittleEndian.PutUint64(all[i:], random.Uint64())
	}
	return all[:size]
}

func askHTTP(ctx context.Context, address string, body []byte) (result, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/", bytes.NewReader(body))
	if err != nil {
		return result{}, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return result{}, err
	}
	defer response.Body.Close()
	back, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return result{}, fmt.Errorf("after %d bytes: %w", len(back), err)
	case response.StatusCode != http.StatusOK:
		return result{}, fmt.Errorf("answer %s: %.200s", response.Status, back)
	case response.Header.Get(headerSum) != sum(body):
		return result{}, errors.New("the server received a different body")
	case !bytes.Equal(back, body):
		return result{}, errors.New("the answer has a different body")
	}
	return result{From: response.Header.Get(headerFrom), Server: response.Header.Get(headerServer)}, nil
}

func askUDP(ctx context.Context, address string, body []byte) (result, error) {
	connection, err := (&net.Dialer{}).DialContext(ctx, "udp4", address)
	if err != nil {
		return result{}, err
	}
	defer connection.Close()
	deadline, _ := ctx.Deadline()
	if err := connection.SetDeadline(deadline); err != nil {
		return result{}, err
	}
	if _, err := connection.Write(body); err != nil {
		return result{}, err
	}
	buffer := make([]byte, 64<<10)
	n, err := connection.Read(buffer)
	if err != nil {
		return result{}, err
	}
	from, back, _ := strings.Cut(string(buffer[:n]), "\n")
	if back != string(body) {
		return result{}, fmt.Errorf("the answer is a different datagram, of %d bytes", len(back))
	}
	return result{From: from}, nil
}

// askICMP sends an echo request and waits for its own answer.
func askICMP(ctx context.Context, address string, body []byte) (result, error) {
	target, _, _ := strings.Cut(address, ":")
	connection, err := (&net.Dialer{}).DialContext(ctx, "ip4:icmp", target)
	if err != nil {
		return result{}, err
	}
	defer connection.Close()
	deadline, _ := ctx.Deadline()
	if err := connection.SetDeadline(deadline); err != nil {
		return result{}, err
	}
	echo := []byte{8, 0, 0, 0}
	echo = binary.BigEndian.AppendUint16(echo, uint16(os.Getpid()))
	echo = append(binary.BigEndian.AppendUint16(echo, uint16(rand.Uint32())), body...)
	binary.BigEndian.PutUint16(echo[2:], checksum(echo))
	if _, err := connection.Write(echo); err != nil {
		return result{}, err
	}
	buffer := make([]byte, 64<<10)
	for {
		n, err := connection.Read(buffer)
		if err != nil {
			return result{}, err
		}
		answer := buffer[:n]
		if n > 20 && answer[0]>>4 == 4 { // the kernel includes the IP header
			answer = answer[int(answer[0]&15)*4:]
		}
		if len(answer) == len(echo) && answer[0] == 0 && bytes.Equal(answer[4:], echo[4:]) {
			return result{}, nil
		}
	}
}

// checksum is the Internet checksum (RFC 1071).
func checksum(data []byte) uint16 {
	var total uint32
	for i := 0; i+1 < len(data); i += 2 {
		total += uint32(data[i])<<8 | uint32(data[i+1])
	}
	if len(data)%2 == 1 {
		total += uint32(data[len(data)-1]) << 8
	}
	for total > 0xffff {
		total = total>>16 + total&0xffff
	}
	return ^uint16(total)
}
