// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"fmt"
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
)

// TestNGINX: an NGINX in each cluster, in front of an application in both, by the name of the Service and by those of its pods.
func TestNGINX(t *testing.T) {
	p := start(t, "nginx", "nginx-image.tar")
	p.ingress(t, "nginx", "/service/", "/members/")
}

// TestTraefik: a Traefik in each cluster, in front of an application in both, by the addresses in its EndpointSlices.
func TestTraefik(t *testing.T) {
	p := start(t, "traefik", "traefik-image.tar")
	t.Cleanup(func() {
		rome.Kubectl(t, "delete", "--ignore-not-found", "clusterrole/"+p.namespace, "clusterrolebinding/"+p.namespace, "ingressclass/"+p.namespace)
	})
	p.ingress(t, "traefik", "/")
}

// ingress starts the application and what is in front of it, and sends requests through each replica of that, and through the Service. Each of them
// is answered.
func (p program) ingress(t *testing.T, name string, paths ...string) {
	t.Helper()
	p.apply(t, "web")
	p.ready(t, 2, "app=web") // NGINX does not start before the names are there
	p.apply(t, name)
	home, remote := p.ready(t, 2, "app=ingress")
	if len(home) != 1 || len(remote) != 1 {
		t.Fatalf("%d replicas are here and %d at the provider: this proves nothing", len(home), len(remote))
	}
	p.client(t)
	for at, address := range map[string]string{here: home[0].Status.PodIP, there: remote[0].Status.PodIP} {
		t.Run(at, func(t *testing.T) {
			if name == "traefik" {
				overlapping(t, at)
			}
			for _, path := range paths {
				ask := fmt.Sprintf("curl -s -f -m 10 -H 'Host: web.example.com' http://%s:8080%s || echo failed", address, path)
				env.Eventually(t, env.Hang, name+" knows the application", func() (string, bool) {
					r := p.try("exec", "client", "--", "sh", "-c", ask)
					return r.String(), strings.Contains(r.Out, "web-")
				})
				counts := map[string]int{}
				for _, line := range strings.Fields(p.kubectl(t, "exec", "client", "--", "sh", "-c", "for i in $(seq 100); do "+ask+"; done")) {
					counts[line]++
				}
				if counts["web-0"]+counts["web-1"] != 100 || counts["web-0"] == 0 || counts["web-1"] == 0 {
					t.Errorf("%s: 100 requests were answered by %v, want web-0 and web-1 only", path, counts)
				}
				clusters.Measure(name+" "+at+", "+path+", answers of 100", "%v", counts)
			}
		})
	}
}
