// SPDX-License-Identifier: Apache-2.0

package field

import (
	"fmt"
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
)

// answers waits until a client of testdata has printed so many lines that a server answered, and returns all lines.
func (s scene) answers(t *testing.T, client string, want int) []string {
	t.Helper()
	var lines []string
	env.Eventually(t, env.Hang, fmt.Sprintf("%s has had %d answers", client, want), func() (string, bool) {
		lines = strings.Split(strings.TrimSpace(rome.TryKubectl("", "-n", s.name, "logs", client).Out), "\n")
		good := 0
		for _, line := range lines {
			if strings.HasPrefix(line, "ok") {
				good++
			}
		}
		return fmt.Sprint(len(lines), " lines, ", good, " answers"), good >= want
	})
	return lines
}

// failed are the lines of a client after its first answer that are no answers.
func failed(lines []string) (all []string) {
	began := false
	for i, line := range lines {
		switch {
		case strings.HasPrefix(line, "ok"):
			began = true
		case began:
			all = append(all, fmt.Sprintf("line %d: %s", i, line))
		}
	}
	return all
}

// TestTerminating: a server that works for a while after it began to end answers clients in both clusters until its end, also as the last one.
func TestTerminating(t *testing.T) {
	if !*long {
		t.Skip("NOT RUN: a server ends for 20 seconds; use -long")
	}
	peered(t)
	for _, at := range []string{"home", "remote"} {
		t.Run("server at "+at, func(t *testing.T) {
			t.Parallel()
			s := playAs(t, "terminating", "terminating-"+at)
			s.kubectl(t, "scale", "deployment", "server-"+at, "--replicas=1")
			s.kubectl(t, "rollout", "status", "deployment/server-"+at, "--timeout=120s")
			for _, double := range []string{"home", "remote"} {
				s.answers(t, double, 5)
			}
			s.kubectl(t, "scale", "deployment", "server-"+at, "--replicas=0")
			for _, double := range []string{"home", "remote"} {
				before := len(s.answers(t, double, 5))
				lines := s.answers(t, double, before+20) // six seconds of the 20 that the server works on
				if bad := failed(lines); len(bad) > 0 {
					t.Errorf("client %s had no answer while the server ended: %q", double, bad)
				}
			}
		})
	}
}

// TestBalancers: more Services of type LoadBalancer than milan gives its peers have their names there all the same.
func TestBalancers(t *testing.T) {
	together(t)
	s := play(t, "balancers")
	var manifest strings.Builder
	for i := range 12 {
		fmt.Fprintf(&manifest, "---\napiVersion: v1\nkind: Service\nmetadata: {name: lb-%d, namespace: %s}\nspec: {type: LoadBalancer, selector: "+
			"{app: backend}, ports: [{name: http, port: 8080}]}\n", i, s.name)
	}
	rome.Apply(t, manifest.String())
	s.prints(t)
}

// TestDomainLabels: a Service over pods of milan whose label milan does not take works in both clusters, and follows the label when it moves to another pod.
func TestDomainLabels(t *testing.T) {
	together(t)
	s := play(t, "domain-labels")
	for _, double := range []string{"home", "remote"} {
		for _, primary := range []string{"a", "b"} {
			other := map[string]string{"a": "b", "b": "a"}[primary]
			s.kubectl(t, "label", "pod", "db-"+other, "db.example.com/role-")
			s.kubectl(t, "label", "pod", "db-"+primary, "db.example.com/role=primary", "--overwrite")
			env.Eventually(t, env.Hang, double+" reaches db-"+primary, func() (string, bool) {
				lines := strings.Split(strings.TrimSpace(rome.TryKubectl("", "-n", s.name, "logs", double, "--tail=3").Out), "\n")
				last := lines[len(lines)-1]
				return fmt.Sprint(lines), last == "ok db-"+primary
			})
		}
	}
}

// TestEndpoints: a pod of milan is an endpoint in both clusters when it is one in rome: not before its readiness gate is open, not after its Service
// lost the selector, and with the port of a Service that took the place of a headless one.
func TestEndpoints(t *testing.T) {
	peered(t)
	s := play(t, "endpoints")
	s.kubectl(t, "wait", "pod/free", "pod/home", "pod/remote", "--for=condition=Ready", "--timeout=120s")
	s.kubectl(t, "wait", "pod/gated", "--for=condition=ContainersReady", "--timeout=120s")
	asked := func(double, url string) string {
		return strings.TrimSpace(rome.TryKubectl("", "-n", s.name, "exec", double, "--", "curl", "-s", "-m", "2", url).Out)
	}
	get := func(url, want string) {
		t.Helper()
		for _, double := range []string{"home", "remote"} {
			env.Eventually(t, env.Hang, fmt.Sprintf("%s gets %q from %s", double, want, url), func() (string, bool) {
				got := asked(double, url)
				return got, got == want
			})
		}
	}
	get("http://emptied/", "free")
	get("http://another:8080/", "free")
	for range 3 {
		for _, double := range []string{"home", "remote"} {
			if got := asked(double, "http://gated/"); got != "" {
				t.Errorf("%s gets %q from a pod whose readiness gate is not open", double, got)
			}
		}
	}
	s.kubectl(t, "patch", "pod", "gated", "--subresource=status", "-p", `{"status":{"conditions":[{"type":"example.com/balancer","status":"True"}]}}`)
	get("http://gated/", "gated")

	s.kubectl(t, "patch", "service", "emptied", "--type=json", "-p", `[{"op":"remove","path":"/spec/selector"}]`)
	s.kubectl(t, "delete", "endpoints", "emptied") // Kubernetes leaves both
	s.kubectl(t, "delete", "endpointslices", "-l", "kubernetes.io/service-name=emptied")
	get("http://emptied/", "")

	service := `{apiVersion: v1, kind: Service, metadata: {name: another}, spec: {selector: {app: free}, ports: [{name: http, port: 80, targetPort: 8080}]}}`
	if r := rome.TryKubectl(service, "-n", s.name, "replace", "--force", "-f", "-"); r.Code != 0 {
		t.Fatal(r)
	}
	get("http://another/", "free")
}
