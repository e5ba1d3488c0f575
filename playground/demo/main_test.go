// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"liqo.io/liqo/playground/demo/command"
)

// execute runs demo with args and returns exit code, stdout and stderr.
func execute(t *testing.T, args ...string) (int, string, string) {
	t.Helper()
	var out, complaints bytes.Buffer
	code := run(t.Context(), command.Call{Args: args, Stdout: &out, Stderr: &complaints})
	return code, out.String(), complaints.String()
}

func TestWrongCallsExplainThemselves(t *testing.T) {
	for _, test := range []struct {
		args string
		want string
	}{
		{"", "demo serve"},
		{"sreve", `unknown command "sreve"`},
		{"serve --lisen :1", "lisen"},
		{"serve extra", `"extra"`},
		{"serve --tls-cert a", "belong together"},
		{"serve --self-signed x --tls-cert a --tls-key b", "exclude each other"},
		{"webhook", "only HTTPS"},
		{"apiserver", "only HTTPS"},
		{"load", "--url"},
		{"load --url ftp://x", "ftp://x"},
		{"load --url http://x --concurrency 0", "--concurrency 0"},
		{"load --url http://x -o yaml", "yaml"},
		{"probe tcp", "a target"},
		{"probe icmp x", `"icmp"`},
		{"probe tcp host-without-port", "HOST:PORT"},
		{"probe http gopher://x", "gopher"},
		{"probe tcp a:1 --require most", `"most"`},
		{"probe tcp a:1 --count 0", "--count 0"},
	} {
		code, out, complaints := execute(t, strings.Fields(test.args)...)
		if code != exitUsage || !strings.Contains(complaints, test.want) || out != "" {
			t.Errorf("demo %s: exit %d, stdout %q, stderr %q; want exit 2 and %q", test.args, code, out, complaints, test.want)
		}
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{
		{"--help"}, {"help"}, {"serve", "--help"}, {"load", "-h"}, {"probe", "--help"}, {"webhook", "--help"}, {"apiserver", "--help"},
	} {
		code, out, complaints := execute(t, args...)
		if code != exitOK || !strings.Contains(out, "demo ") || complaints != "" {
			t.Errorf("demo %q: exit %d, stdout %q, stderr %q", args, code, out, complaints)
		}
	}
}

func TestFailureIsNotAUsageError(t *testing.T) {
	code, _, complaints := execute(t, "serve", "--tls-cert", "/none.crt", "--tls-key", "/none.key")
	if code != exitFailed || !strings.Contains(complaints, "/none.crt") {
		t.Errorf("exit %d, %q; want 1 and the file", code, complaints)
	}
}

func TestEnvironment(t *testing.T) {
	env := command.ReadEnvironment(func(name string) string {
		return map[string]string{"NODE_NAME": "n", "CLUSTER_NAME": "c", "BACKEND_URLS": "http://a, http://b\n"}[name]
	})
	if env.Node != "n" || env.Cluster != "c" || !slices.Equal(env.Backends, []string{"http://a", "http://b"}) {
		t.Errorf("got %+v", env)
	}
	if env.Pod == "" {
		t.Error("no POD_NAME: want the host name")
	}
}

// get fetches url and returns status and body.
func get(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func parsed[T any](t *testing.T, text string) T {
	t.Helper()
	var value T
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return value
}
