// SPDX-License-Identifier: Apache-2.0

package nameserver

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"liqo.io/liqo/internal/offloading/names"
)

// apiServer is what the hosts file of a pod has.
func apiServer(address string) *names.APIServer {
	return names.APIServerOf(&corev1.PodSpec{
		HostAliases: []corev1.HostAlias{{IP: address, Hostnames: []string{"kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}}},
	})
}

// TestKubernetes: a program that does not read its hosts file reaches the API server of its own cluster, by address, by port and back, and no pod
// that of another.
func TestKubernetes(t *testing.T) {
	callers := peers(t)
	z := milan()
	z["kubernetes.default.svc.cluster.local."] = append(z["kubernetes.default.svc.cluster.local."], a("10.96.0.1")) // milan's
	upstream := serveZone(t, z)
	callers.Set(clients, []netip.Addr{rome}, apiServer("10.81.0.1"))
	callers.Set(types.NamespacedName{Namespace: "shop-paris", Name: "client"}, []netip.Addr{paris}, apiServer("10.82.0.1"))
	callers.Set(types.NamespacedName{Namespace: "shop-paris", Name: "without"}, []netip.Addr{fresh}, nil)
	at := start(t, callers, upstream, Limits{Hold: 1})
	for _, network := range []string{"udp", "tcp"} {
		for from, want := range map[netip.Addr]string{rome: "10.81.0.1", paris: "10.82.0.1"} {
			for _, host := range []string{
				"kubernetes.default.svc.cluster.local.", "Kubernetes.Default.SVC.cluster.local.", "kubernetes.default.svc.", "kubernetes.default.",
			} {
				if got, err := resolver(network, from, at).LookupHost(t.Context(), host); err != nil || len(got) != 1 || got[0] != want {
					t.Errorf("%s over %s for %s: %v, %v", host, network, from, got, err)
				}
			}
			_, services, err := resolver(network, from, at).LookupSRV(t.Context(), "https", "tcp", "kubernetes.default.svc.cluster.local.")
			if err != nil || len(services) != 1 || services[0].Port != 443 || services[0].Target != "kubernetes.default.svc.cluster.local." {
				t.Errorf("SRV over %s for %s: %v, %v", network, from, services, err)
			}
			if got, err := resolver(network, from, at).LookupAddr(t.Context(), want); err != nil || len(got) != 1 || got[0] != "kubernetes.default.svc.cluster.local." {
				t.Errorf("PTR over %s for %s: %v, %v", network, from, got, err)
			}
		}
		if got, err := resolver(network, paris, at).LookupAddr(t.Context(), "10.81.0.1"); err == nil {
			t.Errorf("the address of another peer's API server has for paris the names %v", got)
		}
	}
	if got := code(t, fresh, at, "kubernetes.default.svc.cluster.local."); got != "RCodeNameError" {
		t.Errorf("a pod without API server: %s", got)
	}
	if got := code(t, unknown, at, "kubernetes.default.svc.cluster.local."); got != "RCodeRefused" {
		t.Errorf("an address of no pod: %s", got)
	}
	alone := peers(t, "rome")
	alone.Set(clients, []netip.Addr{rome}, apiServer("10.81.0.1"))
	if got := code(t, unknown, start(t, alone, upstream, Limits{Hold: 1}), "kubernetes.default.svc.cluster.local."); got != "RCodeRefused" {
		t.Errorf("an address of no pod, with one peer: %s", got)
	}
}

// TestMetrics: each question counts once, under an outcome of a fixed list.
func TestMetrics(t *testing.T) {
	callers := peers(t)
	callers.Set(clients, []netip.Addr{rome}, apiServer("10.81.0.1"))
	at := start(t, callers, serveZone(t, milan()), Limits{Hold: 1})
	questions := func(what outcome) float64 { return series(t, "liqo_dns_questions_total")["udp "+string(what)] }
	for _, c := range []struct {
		from netip.Addr
		host string
		want outcome
	}{
		{rome, "example.com.", passed},
		{rome, "web.shop.svc.cluster.local.", translated},
		{rome, "web.prod.svc.cluster.local.", absent},
		{rome, "kubernetes.default.svc.cluster.local.", own},
		{unknown, "web.shop.svc.cluster.local.", refused},
	} {
		before := questions(c.want)
		code(t, c.from, at, c.host)
		if got := questions(c.want) - before; got != 1 {
			t.Errorf("%s for %s: %v more of %s", c.host, c.from, got, c.want)
		}
	}
	before := questions(malformed)
	transfer := query(t, "example.com.")
	transfer[2] |= 0x78 // another operation
	ask(t, rome, at, transfer)
	if got := questions(malformed) - before; got != 1 {
		t.Errorf("%v more malformed", got)
	}
	before = questions(dropped)
	few := start(t, callers, serveZone(t, milan()), Limits{PerSecond: 1, Burst: 1})
	code(t, rome, few, "example.com.")
	flood(t, rome, few, query(t, "example.com."), query(t, "example.com."))
	code(t, paris, few, "example.com.")
	if got := questions(dropped) - before; got != 2 {
		t.Errorf("%v more dropped", got)
	}

	datagrams, connections, dead := sockets(t)
	datagrams.Close()
	connections.Close()
	failures := func() float64 { return series(t, "liqo_dns_forward_failures_total")["other"] }
	before, tried := questions(failed), failures()
	code(t, rome, start(t, callers, dead, Limits{}), "example.com.")
	if got, more := questions(failed)-before, failures()-tried; got != 1 || more != tries {
		t.Errorf("%v more failed, after %v tries", got, more)
	}
	known := series(t, "liqo_dns_questions_total")
	answered := series(t, "liqo_dns_question_duration_seconds")[""]
	for i := range 50 {
		code(t, rome, at, strings.Repeat("x", 1+i)+".example.com.")
	}
	if now := series(t, "liqo_dns_questions_total"); len(now) != len(known) || len(now) != 16 {
		t.Errorf("%d series became %d", len(known), len(now))
	}
	if now := series(t, "liqo_dns_question_duration_seconds")[""]; now-answered != 50 {
		t.Errorf("%v answers are measured", now-answered)
	}
}

// series returns what a metric has now, by the values of its labels; of a histogram the number of what it has.
func series(t *testing.T, name string) map[string]float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			var values []string
			for _, label := range metric.GetLabel() {
				values = append(values, label.GetValue())
			}
			all[strings.Join(values, " ")] = metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return all
}
