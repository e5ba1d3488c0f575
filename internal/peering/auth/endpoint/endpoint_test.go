// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"

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
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	kubetest.Start(t, "service", func(ctx context.Context) error {
		return Serve(ctx, func() {}, Service(address, handler, nil, logr.Discard()))
	})
	// Not with a client of net/http, which opens another connection if the goroutine that has sent a request is 50 ms late.
	for range 2 {
		var connection net.Conn
		kubetest.Eventually(t, "the service listens", func() (err error) {
			connection, err = net.Dial("tcp", address)
			return err
		})
		const request = "GET / HTTP/1.1\r\nHost: liqo-auth\r\n\r\n"
		answers := bufio.NewReader(connection)
		for n := 1; n <= maxRequestsEach; n++ {
			if _, err := io.WriteString(connection, request); err != nil {
				t.Fatal(err)
			}
			response, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatalf("request %d: %v", n, err)
			}
			response.Body.Close()
			if last := n == maxRequestsEach; response.StatusCode != http.StatusOK || response.Close != last {
				t.Errorf("request %d is answered with %s, and announces the end: %t, want %t", n, response.Status, response.Close, last)
			}
		}
		_, _ = io.WriteString(connection, request) // the service may have closed the connection
		if response, err := http.ReadResponse(answers, nil); err == nil {
			response.Body.Close()
			t.Error("the connection carries more")
		}
		connection.Close()
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", kubetest.OwnAddress())
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
