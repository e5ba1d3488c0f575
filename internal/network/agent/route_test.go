// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/network/agent/route"
	"liqo.io/liqo/internal/network/hoststate"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/probe"
	"liqo.io/liqo/internal/network/reach"
)

func (e *env) route(cfg *rest.Config) *route.Route {
	e.t.Helper()
	r, err := route.New(cfg, e.host, route.Options{
		Namespace: namespace, DaemonSet: "liqo-route", Node: "n1", Log: logr.Discard(),
		PathMTU:   func(netip.Addr) (int, string, error) { return 1450, "cni0", nil },
		Resolvers: func() (string, error) { return "nameserver 10.0.0.2\nnameserver 127.0.0.53\n", nil }, ReportPause: 50 * time.Millisecond,
	})
	e.must(err)
	return r
}

var external = netip.MustParsePrefix("10.70.0.0/16")

// laneTo returns the lane to milan's pods, -1 for none.
func laneTo(state hoststate.State) int {
	for _, one := range state.Routes {
		if one.To == netip.MustParsePrefix("10.11.0.0/16") {
			for lane := range ipam.MaxLanes {
				if one.Via == ipam.ProbeAddress(external, lane) {
					return lane
				}
			}
		}
	}
	return -1
}

// echo answers probes as milan's gateway of a lane.
func (e *env) echo(lane int) (stop func()) {
	local := ipam.ProbeAddress(netip.MustParsePrefix("10.71.0.0/16"), lane)
	return e.start(probe.New(probe.Options{}).AimAt(probe.Aim{Local: local, Pace: probe.Pace{Up: time.Second, Other: time.Second}}).Run)
}

func TestRoute(t *testing.T) {
	if !isolated(t) {
		return
	}
	e := newEnv(t, "route")
	e.create(daemonSet())
	reports := make(chan probe.NodeReport, 10000)
	e.start(probe.New(probe.Options{Received: func(h probe.NodeReport) { reports <- h }}).AimAt(probe.Aim{
		Local: ipam.ProbeAddress(external, 1), Pace: probe.Pace{Up: time.Second, Other: time.Second},
		Nodes: map[netip.Addr]string{netip.MustParseAddr(nodeExternal): "n1"},
	}).Run)
	stop0 := e.echo(0)
	stop1 := e.echo(1)
	r := e.route(e.cfg)
	stop := e.start(r.Run)
	e.until("ready without peers", func(hoststate.State) bool { return r.Ready() })

	// With a peer, but no gateway, packets for the peer are dropped.
	tunnel := e.tunnelTo("milan", lane(0, publicKey("milan0")), lane(1, publicKey("milan1")))
	e.until("blackholes only", func(s hoststate.State) bool {
		return len(s.Rules) > 0 && len(s.Routes) == 2 && s.Routes[0].Blackhole && s.Routes[1].Blackhole
	})
	e.gatewayPod(0)
	e.gatewayPod(1)
	e.until("the first lane", func(s hoststate.State) bool { return laneTo(s) == 0 && s.Links[0].MTU == 1370 })
	sees := func(what string, lane int, up ...int) {
		t.Helper()
		for deadline := time.After(kubetest.InTime); ; {
			select {
			case h := <-reports:
				if len(h.Observations) == 1 && h.Observations[0].Lane == lane && len(h.Observations[0].Up) == len(up) {
					return
				}
			case <-deadline:
				t.Fatalf("%s: the gateway receives no report with lane %d of %v", what, lane, up)
			}
		}
	}
	sees("both lanes", 0, 0, 1)

	stop0()
	e.until("the second lane", func(s hoststate.State) bool { return laneTo(s) == 1 }) // probe/monitor_test.go judges when
	sees("one lane", 1, 1)

	// A restarted agent does not switch back to the failed lane, however long it takes to find that another one works.
	stop()
	stop1()
	for len(reports) > 0 {
		<-reports
	}
	e.host.watch(func(s hoststate.State) {
		if laneTo(s) != 1 {
			t.Errorf("a new agent chose lane %d", laneTo(s))
		}
	})
	r = e.route(e.cfg)
	stop = e.start(r.Run)
	e.until("the next agent", func(hoststate.State) bool { return r.Ready() })
	sees("no lane", -1)
	e.echo(1)
	sees("the second lane again", 1, 1)
	e.host.watch(nil)
	e.echo(0)
	sees("both lanes again", 1, 0, 1)
	if laneTo(e.host.now()) != 1 {
		t.Error("switched back although the second lane works")
	}

	// Without an API server it still decides.
	e.wire.cut()
	before := e.host.now().String()
	stop()
	if e.host.now().String() != before {
		t.Error("the host was changed by an agent that stopped without an API server")
	}
	e.wire.mend()
	r = e.route(e.cfg)
	stop = e.start(r.Run)
	e.until("the next agent", func(hoststate.State) bool { return r.Ready() })
	stop()
	if laneTo(e.host.now()) < 0 {
		t.Error("the host was cleaned although the DaemonSet exists")
	}
	r = e.route(e.cfg)
	e.start(r.Run)
	e.until("the next agent", func(hoststate.State) bool { return r.Ready() })
	e.must(e.Delete(t.Context(), tunnel))
	e.until("the last peering ends", func(s hoststate.State) bool { return s.String() == hoststate.State{}.String() })
}

func (e *env) daemonSet() *appsv1.DaemonSet {
	e.t.Helper()
	set := &appsv1.DaemonSet{}
	e.must(e.Get(e.t.Context(), client.ObjectKey{Namespace: namespace, Name: "liqo-route"}, set))
	return set
}

func daemonSet() *appsv1.DaemonSet {
	selected := map[string]string{"a": "b"}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "liqo-route"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: selected}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: selected}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}},
	}
}

// allow grants or revokes the right to get the DaemonSet.
func (e *env) allow(yes bool) {
	e.t.Helper()
	binding := &rbacv1.RoleBinding{}
	e.must(e.Get(e.t.Context(), client.ObjectKey{Namespace: namespace, Name: "route"}, binding))
	binding.Subjects[0].Name = "unknown"
	if yes {
		binding.Subjects[0].Name = "route"
	}
	e.must(e.Update(e.t.Context(), binding))
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "route",
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: "get", Group: "apps", Resource: "daemonsets", Name: "liqo-route",
		},
	}}
	e.until("the API server knows", func(hoststate.State) bool {
		asked := review.DeepCopy()
		e.must(e.Create(e.t.Context(), asked))
		return asked.Status.Allowed == yes
	})
}

// Whether the agent cleans the host when it stops depends on the answer of the API server about the DaemonSet.
func TestStop(t *testing.T) {
	if !isolated(t) {
		return
	}
	e := newEnv(t, "route")
	e.tunnelTo("milan", lane(0, publicKey("milan0")))
	e.gatewayPod(0)
	for _, test := range []struct {
		name  string
		set   func()
		stays bool
	}{
		{"it exists", func() {}, true},
		{"the right to get it was revoked", func() { e.allow(false) }, true},
		{"it is being deleted", func() {
			e.allow(true)
			set := e.daemonSet()
			set.Finalizers = []string{"example.org/waits"}
			e.must(e.Update(t.Context(), set))
			e.must(e.Delete(t.Context(), set))
		}, false},
		{"it is gone", func() {
			set := e.daemonSet()
			set.Finalizers = nil
			e.must(e.Update(t.Context(), set))
		}, false},
	} {
		if test.name == "it exists" {
			e.create(daemonSet())
		}
		r := e.route(e.cfg)
		stop := e.start(r.Run)
		e.until("planned", func(s hoststate.State) bool { return laneTo(s) == 0 })
		test.set()
		stop()
		if stays := laneTo(e.host.now()) == 0; stays != test.stays {
			t.Errorf("%s: the host stays as it was: %v, want %v", test.name, stays, test.stays)
		}
	}
}

// TestReport: a node reports what it reaches when its agent starts and when that changes, with the rights of the chart, and nothing else.
func TestReport(t *testing.T) {
	if !isolated(t) {
		return
	}
	e := newEnv(t, "route")
	e.create(daemonSet())
	e.host.reach(reach.Route{To: netip.MustParsePrefix("10.7.0.0/16"), Link: "eth1", Gateway: true})
	report := &netv1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "n1"}}
	reported := func(want string) {
		t.Helper()
		e.until("the report "+want, func(hoststate.State) bool {
			if err := e.Get(t.Context(), client.ObjectKeyFromObject(report), report); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
			var all []string
			for _, one := range report.Spec.Networks {
				all = append(all, strings.TrimSpace(string(one.CIDR)+" "+string(one.Kind)+" "+one.Link))
			}
			return strings.Join(all, ", ") == want
		})
	}
	stop := e.start(e.route(e.cfg).Run)
	reported("10.0.0.2/32 Resolver, 10.7.0.0/16 Route eth1")
	if owners := report.OwnerReferences; len(owners) != 1 || owners[0].Kind != "DaemonSet" || owners[0].UID != e.daemonSet().UID {
		t.Errorf("owners %+v", owners)
	}
	e.host.reach(
		reach.Route{To: netip.MustParsePrefix("10.8.0.0/16"), Link: "eth1", Gateway: true},
		reach.Route{To: netip.MustParsePrefix("10.8.1.0/24"), Link: "eth2"},
	)
	reported("10.0.0.2/32 Resolver, 10.8.0.0/16 Route eth1")
	// While the API server is away, nothing else waits, and the change is written afterwards.
	e.wire.cut()
	e.host.reach()
	e.wire.mend()
	reported("10.0.0.2/32 Resolver")
	// As the controller manager does when the node is away for a moment.
	if err := e.Delete(t.Context(), report); err != nil {
		t.Fatal(err)
	}
	*report = netv1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "n1"}}
	reported("10.0.0.2/32 Resolver")
	stop()
	version := report.ResourceVersion
	e.start(e.route(e.cfg).Run)
	e.host.reach(reach.Route{To: netip.MustParsePrefix("10.9.0.0/16"), Gateway: true})
	reported("10.0.0.2/32 Resolver, 10.9.0.0/16 Route")
	if version == report.ResourceVersion {
		t.Error("the change was not written")
	}
}

func (m *memory) reach(routes ...reach.Route) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reaches.Routes = routes
}
