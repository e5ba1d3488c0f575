// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/playground/demo/command"
)

func webServer(t *testing.T, env command.Environment) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(newWeb(env).handler())
	t.Cleanup(server.Close)
	return server
}

func TestInfo(t *testing.T) {
	server := webServer(t, command.Environment{Pod: "web-1", Node: "rome-worker", Namespace: "shop", Cluster: "rome", IP: "10.200.1.5"})
	for n := uint64(1); n <= 2; n++ {
		get(t, server.Client(), server.URL+"/healthz") // must not count
		_, body := get(t, server.Client(), server.URL+"/api/info")
		got := parsed[info](t, body)
		if !strings.HasPrefix(got.Client, "127.0.0.1:") {
			t.Errorf("client is %q", got.Client)
		}
		got.Client = ""
		if want := (info{Pod: "web-1", Node: "rome-worker", Namespace: "shop", Cluster: "rome", IP: "10.200.1.5", Requests: n}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	response, err := server.Client().Get(server.URL + "/api/info?fresh")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if !response.Close {
		t.Error("?fresh did not close the connection")
	}
}

func TestEcho(t *testing.T) {
	server := webServer(t, command.Environment{})
	request, err := http.NewRequest(http.MethodPut, server.URL+"/api/echo?x=1", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Asked", "yes")
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	got := parsed[echo](t, string(body))
	if got.Method != "PUT" || got.URL != "/api/echo?x=1" || got.Body != "hello" || got.Headers.Get("X-Asked") != "yes" || got.Client == "" {
		t.Errorf("got %+v", got)
	}
}

func TestSlow(t *testing.T) {
	server := webServer(t, command.Environment{Pod: "p"})
	start := time.Now()
	status, _ := get(t, server.Client(), server.URL+"/api/slow?ms=120")
	if took := time.Since(start); status != http.StatusOK || took < 120*time.Millisecond {
		t.Errorf("status %d after %s, want 200 after 120ms", status, took)
	}
	for _, ms := range []string{"-1", "60001", "soon"} {
		if status, body := get(t, server.Client(), server.URL+"/api/slow?ms="+ms); status != http.StatusBadRequest || !strings.Contains(body, "60000") {
			t.Errorf("ms=%s: %d %s", ms, status, body)
		}
	}
}

func TestBytes(t *testing.T) {
	server := webServer(t, command.Environment{})
	for _, n := range []string{"0", "1", "65536", "200001"} {
		status, body := get(t, server.Client(), server.URL+"/api/bytes?n="+n)
		wrong := 0
		for i := range len(body) {
			if body[i] != byte(i*7%251) {
				wrong++
			}
		}
		if status != http.StatusOK || wrong > 0 || len(body) != map[string]int{"0": 0, "1": 1, "65536": 65536, "200001": 200001}[n] {
			t.Errorf("n=%s: status %d, %d bytes, %d wrong", n, status, len(body), wrong)
		}
	}
	if status, _ := get(t, server.Client(), server.URL+"/api/bytes?n=1073741825"); status != http.StatusBadRequest {
		t.Errorf("more than the limit: status %d", status)
	}
}

func TestUnknownPathsAndMethods(t *testing.T) {
	server := webServer(t, command.Environment{})
	if status, _ := get(t, server.Client(), server.URL+"/none"); status != http.StatusNotFound {
		t.Errorf("/none: %d", status)
	}
	response, err := server.Client().Post(server.URL+"/api/info", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST /api/info: %d", response.StatusCode)
	}
}

// TestBackends asks two clusters, a server that is no demo, and one that is gone.
func TestBackends(t *testing.T) {
	milan := webServer(t, command.Environment{Pod: "web-2", Cluster: "milan"})
	foreign := httptest.NewServer(http.NotFoundHandler())
	defer foreign.Close()
	gone := "http://" + freePort(t)
	server := webServer(t, command.Environment{Pod: "front", Cluster: "rome <b>", Backends: []string{milan.URL, foreign.URL, gone}})

	_, body := get(t, server.Client(), server.URL+"/api/backends")
	answers := parsed[[]backendAnswer](t, body)
	if len(answers) != 3 || answers[0].Info == nil || answers[0].Info.Cluster != "milan" || answers[0].Error != "" {
		t.Fatalf("got %+v", answers)
	}
	for _, failed := range answers[1:] {
		if failed.Info != nil || failed.Error == "" {
			t.Errorf("got %+v, want an error", failed)
		}
	}

	status, page := get(t, server.Client(), server.URL+"/")
	for _, want := range []string{"front", "rome &lt;b&gt;", "web-2", "milan", "404 Not Found", "connection refused", "127.0.0.1:"} {
		if status != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("page (status %d) does not show %q", status, want)
		}
	}
	for _, unwanted := range []string{"ZgotmplZ", "<b>", `src="http`, `href="http`, "url("} {
		if strings.Contains(page, unwanted) {
			t.Errorf("page contains %q", unwanted)
		}
	}
}
