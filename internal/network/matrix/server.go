// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/internal/kube/listener"
)

// checkTimeout bounds a check that a server makes for a client.
const checkTimeout = time.Minute

// Server answers checks. Name is part of each answer; Key is the secret of clients that have the server check another one.
type Server struct{ Name, Key string }

// Serve answers at an address, over TCP and UDP, until ctx ends.
func (s Server) Serve(ctx context.Context, address string) error {
	at, err := listener.Open(ctx, address)
	if err != nil {
		return fmt.Errorf("listen at %s: %w", address, err)
	}
	packets, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", at.Addr().String())
	if err != nil {
		return errors.Join(fmt.Errorf("listen for datagrams at %s: %w", at.Addr(), err), at.Close())
	}
	return s.serve(ctx, at, packets)
}

func (s Server) serve(ctx context.Context, at net.Listener, packets net.PacketConn) error {
	stop := context.AfterFunc(ctx, func() { _ = packets.Close() })
	defer stop()
	failed := make(chan error, 1)
	go func() { failed <- s.echo(packets) }()
	// Each pod of the test may check each other one at once.
	err := listener.On(at, listener.Port{Limits: listener.Limits{All: 512}, Handler: s.handler(), Log: log.FromContext(ctx)}).Serve(ctx)
	_ = packets.Close()
	if echoed := <-failed; ctx.Err() == nil {
		return errors.Join(err, echoed)
	}
	return nil
}

func (s Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+HealthPath, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("POST "+exchangePath, s.exchange)
	mux.HandleFunc("GET "+CheckPath, s.check)
	return mux
}

// exchange reads the pattern and returns as many bytes of it.
func (s Server) exchange(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength < 0 || r.ContentLength > MaxBytes {
		http.Error(w, fmt.Sprintf("want a Content-Length of at most %d bytes", MaxBytes), http.StatusRequestEntityTooLarge)
		return
	}
	if _, err := verify(r.Body, 0); err != nil {
		http.Error(w, "request: "+err.Error(), http.StatusUnprocessableEntity)
		return
	}
	header := w.Header()
	header.Set(serverHeader, s.Name)
	header.Set(sourceHeader, hostOf(r.RemoteAddr))
	header.Set("Content-Type", "application/octet-stream")
	header.Set("Content-Length", strconv.FormatInt(r.ContentLength, 10))
	_, _ = io.CopyN(w, &pattern{}, r.ContentLength) // the client notices missing bytes
}

// check checks another server for the client.
func (s Server) check(w http.ResponseWriter, r *http.Request) {
	if subtle.ConstantTimeCompare([]byte(r.Header.Get(KeyHeader)), []byte(s.Key)) != 1 {
		http.Error(w, "the header "+KeyHeader+" does not hold the key of this server", http.StatusForbidden)
		return
	}
	query := r.URL.Query()
	count, err := strconv.ParseInt(query.Get("bytes"), 10, 64)
	if err != nil || count < 0 || count > MaxBytes {
		http.Error(w, fmt.Sprintf("bytes: want a number from 0 to %d", MaxBytes), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	answer := Check(ctx, query.Get("protocol"), query.Get("target"), count)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// echo answers datagrams that hold a piece of the pattern, and ignores others.
func (s Server) echo(packets net.PacketConn) error {
	buffer := make([]byte, 64<<10)
	for {
		n, from, err := packets.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		datagram := buffer[:n]
		if n <= idBytes || n > idBytes+chunk {
			continue
		}
		offset := int64(binary.BigEndian.Uint64(datagram)) * chunk
		if offset < 0 || offset > MaxBytes {
			continue
		}
		if _, err := verify(bytes.NewReader(datagram[idBytes:]), offset); err != nil {
			continue
		}
		reply := withText(withText(append([]byte(nil), datagram[:idBytes]...), hostOf(from.String())), s.Name)
		_, _ = packets.WriteTo(append(reply, datagram[idBytes:]...), from) // the client notices a lost answer, and sends again
	}
}
