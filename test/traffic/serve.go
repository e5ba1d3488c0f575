// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"
)

// Headers of the answer to a POST, whose body is the request's.
const (
	headerFrom   = "X-Traffic-From"   // the client's address
	headerServer = "X-Traffic-Server" // the server's name; of a pod, the pod's
	headerSum    = "X-Traffic-Sha256" // of the body that the server received
)

// serve echoes: TCP and UDP on one port, HTTP on the next. Each UDP answer starts with the client's address and a line feed.
func serve(ctx context.Context, args []string, out *printer) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	port := flags.Int("port", 7000, "TCP and UDP echo; HTTP is on the next one")
	if _, err := parse(flags, args); err != nil {
		return err
	}
	var config net.ListenConfig
	tcp, err := config.Listen(ctx, "tcp4", fmt.Sprintf(":%d", *port))
	if err != nil {
		return err
	}
	defer tcp.Close()
	udp, err := config.ListenPacket(ctx, "udp4", fmt.Sprintf(":%d", *port))
	if err != nil {
		return err
	}
	defer udp.Close()
	web, err := config.Listen(ctx, "tcp4", fmt.Sprintf(":%d", *port+1))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(answer), ReadHeaderTimeout: 10 * time.Second}
	defer server.Close()
	failed := make(chan error, 3)
	go func() { failed <- echoTCP(tcp) }()
	go func() { failed <- echoUDP(udp) }()
	go func() { failed <- server.Serve(web) }()
	if err := out.print(map[string]any{"serving": tcp.Addr().String()}); err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

func echoTCP(listener net.Listener) error {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer connection.Close()
			_, _ = io.Copy(connection, connection) // the client notices an error
		}()
	}
}

func echoUDP(socket net.PacketConn) error {
	buffer := make([]byte, 64<<10)
	for {
		n, from, err := socket.ReadFrom(buffer)
		if err != nil {
			return err
		}
		answer := append([]byte(host(from.String())+"\n"), buffer[:n]...)
		_, _ = socket.WriteTo(answer, from) // the client counts losses
	}
}

// answer returns the request's body, with its checksum, the client's address and the server's name.
func answer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if name, err := os.Hostname(); err == nil {
		w.Header().Set(headerServer, name)
	}
	w.Header().Set(headerFrom, host(r.RemoteAddr))
	w.Header().Set(headerSum, sum(body))
	_, _ = w.Write(body)
}

func sum(body []byte) string {
	whole := sha256.Sum256(body)
	return hex.EncodeToString(whole[:])
}

// host returns the address of ADDRESS:PORT, without brackets and unmapped.
func host(address string) string {
	if both, err := netip.ParseAddrPort(address); err == nil {
		return both.Addr().Unmap().String()
	}
	return strings.Trim(address, "[]")
}
