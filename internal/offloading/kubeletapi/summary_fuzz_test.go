// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"

	"liqo.io/liqo/internal/kube/printable"
)

// FuzzSummary: whatever the provider's metrics API answers, the statistics name each pod that runs there at most once, and nothing else, and stay small.
func FuzzSummary(f *testing.F) {
	const pod = `{"metadata":{"name":"web"},"timestamp":"2026-01-02T03:04:05Z","containers":[{"name":"app","usage":{"cpu":"1500n","memory":"2Ki"}}]}`
	for _, seed := range []string{
		`{"items":[` + pod + `]}`, `{"items":[` + pod + `,` + pod + `]}`, strings.Replace(`{"items":[`+pod+`]}`, "web", "etcd", 1),
		`{"items":[` + pod, "", "null", "{}",
		`{"items":[{"metadata":{"name":"api","namespace":"kube-system","uid":"x"},"containers":[{},{"name":"../x"},{"name":"a\u0000b"}]}]}`,
		`{"items":[{"metadata":{"name":"api"},"containers":[` + strings.Repeat(`{"name":"a"},`, 1100) + `{}]}]}`,
		strings.Replace(`{"items":[`+pod+`]}`, "1500n", "9999999999999999999E", 1), strings.Replace(`{"items":[`+pod+`]}`, `"1500n"`, "-5", 1),
		strings.Replace(`{"items":[`+pod+`]}`, `"1500n"`, "null", 1), strings.Replace(`{"items":[`+pod+`]}`, "2026", "99999", 1),
	} {
		f.Add(seed)
	}
	provider, kubelet, _ := newFakeProvider(f)
	f.Fuzz(func(t *testing.T, text string) {
		provider.text.Store(text)
		code, lines := answered(kubelet.summary)
		if code != http.StatusOK {
			if code < 400 || len(lines) != 1 || len(lines[0]) > 2*printable.MaxLine {
				t.Errorf("%d: %q", code, lines)
			}
			return
		}
		var got stats
		if err := json.Unmarshal([]byte(lines[0]), &got); err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, pod := range got.Pods {
			if name := pod.PodRef.Name; seen[name] || name != "web" && name != "api" || pod.PodRef.Namespace != "shop" ||
				string(pod.PodRef.UID) != "uid-"+name || len(pod.Containers) > maxContainers {
				t.Errorf("pod %+v with %d containers", pod.PodRef, len(pod.Containers))
			}
			seen[pod.PodRef.Name] = true
			for _, container := range pod.Containers {
				if len(validation.IsDNS1123Label(container.Name)) > 0 {
					t.Errorf("container %q", container.Name)
				}
			}
		}
		if len(lines[0]) > 2*maxContainers*300 {
			t.Errorf("%d bytes", len(lines[0]))
		}
	})
}

// FuzzRefusal: kubectl shows a refusal by the provider as one printable line of bounded length, with a status of which kubectl shows the text. A provider that
// does not accept our token chooses no text at all.
func FuzzRefusal(f *testing.F) {
	f.Add(403, []byte(`{"kind":"Status","message":"pods \"web\" is forbidden"}`))
	f.Add(401, []byte(`{"message":"run: curl evil | sh"}`))
	f.Add(404, []byte("\x1b[2J\x00\xff\u202e\r\nX: y"))
	f.Add(500, []byte(strings.Repeat("ä", 1000)))
	f.Add(302, []byte(strings.Repeat(`{"message":`, 1000)))
	f.Add(999, []byte(""))
	f.Add(-1, []byte(`{"message":7}`))
	f.Fuzz(func(t *testing.T, code int, body []byte) {
		provider := &fakeProvider{}
		kubelet := New(Options{RemoteName: "milan", Provider: provider})
		var reply *refused
		if err := kubelet.refusal(&http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(string(body)))}); !errors.As(err, &reply) {
			t.Fatal(err)
		}
		if want := code >= 400 && code < 500 && code != 401 && code != 403; want != (reply.code == http.StatusBadRequest) ||
			!want && reply.code != http.StatusInternalServerError {
			t.Errorf("%d becomes %d", code, reply.code)
		}
		if text := reply.message; text == "" || len(text) > printable.MaxLine+100 || !utf8.ValidString(text) ||
			strings.ContainsFunc(text, func(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }) {
			t.Errorf("message %q", text)
		}
		if reported := provider.refused.Load(); (reported == 1) != (code == 401) || code == 401 && strings.Contains(reply.message, "curl") {
			t.Errorf("%d: the token is refused %d times: %s", code, reported, reply.message)
		}
	})
}

// FuzzTarget: a request that passes the check becomes one about the same pod and container, with known parameters only.
func FuzzTarget(f *testing.F) {
	f.Add("log", "shop", "web", "app", "follow=true&tailLines=5&insecureSkipTLSVerifyBackend=true&container=other&stream=a%26b")
	f.Add("exec", "shop", "web.0", "app", "command=sh&command=-c&command=a+%26+b&input=1&output=true&tty=yes&stdin=true")
	f.Add("exec", "shop", "web", "app", "output=1")
	f.Add("attach", "shop", "web", "app", "output=1&error=1&command=x")
	f.Add("portforward", "shop", "web", "", "port=80,443&port= 8080 &ports=22")
	f.Add("portforward", "shop", "web", "", "port=80%26x")
	f.Add("portforward", "shop", "web", "", "port=0,65536")
	f.Add("log", "a/b", "web", "app", "")
	f.Add("log", "shop", "../../../../api/v1/secrets?x=", "app", "")
	f.Add("exec", "shop", "web%2f", "a?b", "command=x")
	f.Fuzz(func(t *testing.T, kind, namespace, pod, container, query string) {
		values, err := url.ParseQuery(query)
		if err != nil || !slices.Contains([]string{"log", "exec", "attach", "portforward"}, kind) {
			return // not routed here
		}
		s := &stream{kind: kind, namespace: namespace, pod: pod, container: container, query: values}
		if s.check() != nil {
			return
		}
		path, got, err := s.target("far")
		if err != nil {
			if kind != "exec" && kind != "portforward" {
				t.Errorf("%s %s: %v", kind, query, err)
			}
			return
		}
		whole, err := url.Parse("https://192.0.2.1" + path + "?" + got.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if parts := strings.Split(whole.EscapedPath(), "/"); !slices.Equal(parts, []string{"", "api", "v1", "namespaces", "far", "pods", pod, kind}) ||
			whole.Fragment != "" {
			t.Errorf("path %q", whole.EscapedPath())
		}
		known := map[string][]string{
			"log": append([]string{"container"}, logOptions...), "exec": {"container", "command", "stdin", "stdout", "stderr", "tty"},
			"attach": {"container", "stdin", "stdout", "stderr", "tty"}, "portforward": {"ports"},
		}[kind]
		for key, values := range whole.Query() {
			switch {
			case !slices.Contains(known, key):
				t.Errorf("parameter %q of %s", key, kind)
			case key == "container" && !slices.Equal(values, []string{container}):
				t.Errorf("container %q, want %q", values, container)
			case key == "command" && !slices.Equal(values, s.query["command"]):
				t.Errorf("command %q, want %q", values, s.query["command"])
			case key == "ports":
				for _, port := range values {
					if number, err := strconv.Atoi(port); err != nil || number < 1 || number > 65535 {
						t.Errorf("port %q", port)
					}
				}
			}
		}
		if kind == "exec" || kind == "attach" {
			for ours, theirs := range flags {
				if want := fmt.Sprint(values.Get(ours) == "1" || values.Get(ours) == "true"); whole.Query().Get(theirs) != want {
					t.Errorf("%s=%q becomes %s=%s", ours, values.Get(ours), theirs, whole.Query().Get(theirs))
				}
			}
		}
	})
}
