// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"liqo.io/liqo/internal/kube/kubetest"
)

// TestCurrentRequestsFinish: a request that is being answered when the context ends is answered.
func TestCurrentRequestsFinish(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	address := freeAddress(t)
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-answer
		_, _ = io.WriteString(w, "done") // the client checks
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, func() {}, Service(address, handler, nil, logr.Discard())) }()
	result := make(chan string, 1)
	go func() { result <- get(t, http.DefaultClient, "http://"+address) }()
	<-asked
	cancel()
	close(answer)
	if text := <-result; text != "200 done" {
		t.Error(text)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestLateConnectionsAreServed: nodes send connections to a pod for a moment after it was asked to end.
func TestLateConnectionsAreServed(t *testing.T) {
	address, late := freeAddress(t), make(chan struct{})
	asked := make(chan struct{}, 2)
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		_, _ = io.WriteString(w, "done") // the client checks
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, func() { <-late }, Service(address, handler, nil, logr.Discard())) }()
	fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for range 2 {
		if text := get(t, fresh, "http://"+address); text != "200 done" {
			t.Error(text)
		}
		<-asked
		cancel()
	}
	close(late)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestRequestsOfAConnection: a connection carries maxRequestsEach requests, and the answer to the last one announces its end.
func TestRequestsOfAConnection(t *testing.T) {
	address := freeAddress(t)
	from := make(map[string]int)
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { from[r.RemoteAddr]++ })
	kubetest.Start(t, "service", func(ctx context.Context) error {
		return Serve(ctx, func() {}, Service(address, handler, nil, logr.Discard()))
	})
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	for range 2*maxRequestsEach + 1 {
		get(t, client, "http://"+address)
	}
	if len(from) != 3 {
		t.Errorf("%d requests over %d connections: %v", 2*maxRequestsEach+1, len(from), from)
	}
	for remote, n := range from {
		if n > maxRequestsEach {
			t.Errorf("%d requests from %s", n, remote)
		}
	}
}

func TestListenerIsBounded(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	listener := newListener(inner, 1, 1)
	for range 2 {
		client, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
	}
	first, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan error, 1)
	go func() {
		connection, err := listener.Accept()
		if err == nil {
			err = connection.Close()
		}
		second <- err
	}()
	select {
	case <-second:
		t.Error("two connections in one slot")
	case <-time.After(50 * time.Millisecond): // only waiting shows that nothing happens
	}
	_, _ = first.Close(), first.Close() // twice, as servers do, frees one slot
	if err := <-second; err != nil {
		t.Error(err)
	}
	if len(listener.slots) != 0 {
		t.Error("a slot is lost")
	}
}

// TestListenerIsFair: an address that holds connections leaves some for others.
func TestListenerIsFair(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	listener := newListener(inner, 3, 1)
	accepted := make(chan net.Conn, 3)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- connection
		}
	}()
	dial := func(from string) net.Conn {
		t.Helper()
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		connection, err := dialer.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { connection.Close() })
		return connection
	}
	dial("127.0.0.1")
	first := <-accepted
	refused := dial("127.0.0.1")
	if _, err := refused.Read(make([]byte, 1)); err == nil {
		t.Error("a second connection from the same address is served")
	}
	dial("127.0.0.2")
	<-accepted
	first.Close()
	dial("127.0.0.1")
	<-accepted
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// get retries until the server answers.
func get(t *testing.T, client *http.Client, url string) (answer string) {
	kubetest.Eventually(t, "an answer of "+url, func() error {
		response, err := client.Get(url)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		answer = response.Status[:3] + " " + string(text)
		return err
	})
	return answer
}
