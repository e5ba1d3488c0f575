// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"net/url"
	"testing"
)

func TestTarget(t *testing.T) {
	for _, c := range []struct{ kind, query, path, want, fault string }{
		{
			"log", "follow=true&tailLines=5&stream=Stderr&insecureSkipTLSVerifyBackend=true&container=other", "/api/v1/namespaces/far/pods/web/log",
			"container=app&follow=true&stream=Stderr&tailLines=5", "",
		},
		{
			"exec", "command=sh&command=-c&command=a+%26+b&input=1&output=1&tty=1", "/api/v1/namespaces/far/pods/web/exec",
			"command=sh&command=-c&command=a+%26+b&container=app&stderr=false&stdin=true&stdout=true&tty=true", "",
		},
		{"exec", "output=1", "", "", "no command"},
		{"attach", "output=1&error=1&command=x", "/api/v1/namespaces/far/pods/web/attach", "container=app&stderr=true&stdin=false&stdout=true&tty=false", ""},
		{"portforward", "", "/api/v1/namespaces/far/pods/web/portforward", "", ""},
		{"portforward", "port=80,443&port=8080", "/api/v1/namespaces/far/pods/web/portforward", "ports=80&ports=443&ports=8080", ""},
		{"portforward", "port=80%26x", "", "", `"80&x" is not a port`},
		{"portforward", "port=70000", "", "", `"70000" is not a port`},
	} {
		query, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatal(err)
		}
		s := &stream{kind: c.kind, namespace: "near", pod: "web", container: "app", query: query}
		path, got, err := s.target("far")
		if c.fault != "" {
			if err == nil || err.Error() != c.fault {
				t.Errorf("%s %s: %v, want %s", c.kind, c.query, err, c.fault)
			}
			continue
		}
		if err != nil || path != c.path || got.Encode() != c.want {
			t.Errorf("%s %s: %s %s %v, want %s %s", c.kind, c.query, path, got.Encode(), err, c.path, c.want)
		}
	}
	for _, s := range []stream{
		{kind: "log", namespace: "a/b", pod: "web", container: "app"},
		{kind: "log", namespace: "a", pod: "../x", container: "app"},
		{kind: "log", namespace: "a", pod: "web", container: "a?b"},
		{kind: "exec", namespace: "a", pod: "web"},
	} {
		if s.check() == nil {
			t.Errorf("%+v is taken", s)
		}
	}
}
