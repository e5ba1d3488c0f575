// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"
)

// nat puts alpha and beta behind one router: they reach gamma and each other, and gamma reaches neither, before and after the
// mappings change. This machine reaches all.
func (l links) nat(t *testing.T) {
	added := must(t, "nat", "add", "alpha", "beta")
	defer func() {
		must(t, "nat", "remove", "beta")
		if !l.gamma.reaches(t, l.alpha) {
			t.Error("without the NAT router, gamma does not reach alpha")
		}
	}()
	if want := "alpha, beta behind 203.0.113.1\n"; added != want || !strings.Contains(must(t, "status"), want) {
		t.Errorf("nat add prints %q, and want that and the status to have %q", added, want)
	}
	refuse(t, []string{"behind a NAT router already"}, "nat", "add", "alpha")
	refuse(t, []string{"behind no NAT router"}, "nat", "rebind", "gamma")
	refuse(t, []string{"nosuch"}, "nat", "add", "gamma", "nosuch")
	check := func(when string) {
		t.Helper()
		for _, pair := range [][2]end{{l.alpha, l.gamma}, {l.beta, l.gamma}, {l.alpha, l.beta}, {l.beta, l.alpha}} {
			if !pair[0].reaches(t, pair[1]) {
				t.Errorf("%s: %s does not reach %s", when, pair[0].Name, pair[1].Name)
			}
		}
		if l.gamma.reaches(t, l.alpha) || l.gamma.reaches(t, l.beta) {
			t.Errorf("%s: gamma reaches clusters behind the NAT router", when)
		}
		ask(t, "http://"+l.alpha.address+":"+l.alpha.nodePort+"/api/info")
	}
	check("behind NAT")
	must(t, "nat", "rebind", "alpha")
	check("after a rebind")
	if moved := must(t, "nat", "rebind", "beta", "--new-address"); moved != "alpha, beta behind 203.0.113.2\n" {
		t.Errorf("nat rebind --new-address prints %q", moved)
	}
	check("with another address")
	must(t, "fault", "partition", "beta", "gamma")
	defer must(t, "fault", "heal", "beta", "gamma")
	if l.beta.reaches(t, l.gamma) || !l.alpha.reaches(t, l.gamma) {
		t.Error("want a partition of beta and gamma alone, behind the router that alpha shares")
	}
}

// proxies puts nginx and HAProxy in front of beta, and a forward proxy beside it.
func (l links) proxies(t *testing.T) {
	path := func(add ...string) string {
		t.Helper()
		out := must(t, append([]string{"proxy", "add", "beta"}, add...)...)
		_, url, found := strings.Cut(strings.SplitN(out, "\n", 2)[0], " is up at ")
		if !found {
			t.Fatalf("proxy add prints %q", out)
		}
		return url
	}
	from := l.alpha
	for _, kind := range []string{"nginx", "haproxy"} {
		url := path("--kind", kind, "--listen", "8080", "--path", "/api", "--to", l.beta.nodePort)
		if got := decode(t, from.curl(t, from.tool(), url+"/info")); got.Cluster != "beta" {
			t.Errorf("%s leads to %+v", kind, got)
		}
		if res := from.try(
			"exec", from.tool(), "--", "curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}",
			strings.TrimSuffix(url, "/api")+"/",
		); res.out != "404" {
			t.Errorf("%s answers another path: %s", kind, res)
		}
	}
	forward := path("--kind", "connect", "--listen", "3128", "--user", "liqo", "--password", "secret")
	through := []string{"--proxytunnel", "--proxy", forward, "--proxy-user", "liqo:secret", "http://" + l.beta.address + ":" + l.beta.nodePort + "/api/info"}
	if got := decode(t, from.curl(t, from.tool(), through...)); got.Cluster != "beta" {
		t.Errorf("the forward proxy leads to %+v", got)
	}
	through[4] = "liqo:wrong"
	if res := from.try(append([]string{"exec", from.tool(), "--", "curl", "--silent", "--fail", "--max-time", "10"}, through...)...); res.code == 0 {
		t.Errorf("the forward proxy accepts a wrong password: %s", res)
	}
	if status := must(t, "status"); strings.Count(status, "beta-proxy") != 3 {
		t.Errorf("status does not show three proxies:\n%s", status)
	}
	refuse(t, []string{"nosuch", "beta-proxy1"}, "proxy", "remove", "nosuch")
	for _, name := range []string{"beta-proxy1", "beta-proxy2", "beta-proxy3"} {
		must(t, "proxy", "remove", name)
	}
	if left := names(netnsDir + "/*proxy*"); len(left) > 0 {
		t.Errorf("left of the proxies: %s", left)
	}
}
