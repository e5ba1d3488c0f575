// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"net/netip"
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

	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/network/agent/route"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/plan"
	"liqo.io/liqo/internal/network/probe"
)

func (b *bed) route(cfg *rest.Config) *route.Route {
	b.t.Helper()
	r, err := route.New(cfg, b.host, route.Options{
		Namespace: namespace, DaemonSet: "liqo-route", Node: "n1", Log: logr.Discard(),
		PathMTU: func(netip.Addr) (int, string, error) { return 1450, "cni0", nil },
	})
	b.must(err)
	return r
}

var external = netip.MustParsePrefix("10.70.0.0/16")

// laneTo says over which lane packets for milan's pods are led, -1 for none.
func laneTo(state plan.HostState) int {
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

// echo is milan's gateway of a lane, as far as probes are concerned.
func (b *bed) echo(lane int) (stop func()) {
	local := ipam.ProbeAddress(netip.MustParsePrefix("10.71.0.0/16"), lane)
	return b.start(probe.New(probe.Options{}).AimAt(probe.Aim{Local: local, Pace: probe.Pace{Up: time.Second, Other: time.Second}}).Run)
}

func TestRoute(t *testing.T) {
	if !isolated(t) {
		return
	}
	b := newBed(t, "route")
	b.create(daemonSet())
	heard := make(chan probe.NodeReport, 10000)
	b.start(probe.New(probe.Options{Received: func(h probe.NodeReport) { heard <- h }}).AimAt(probe.Aim{
		Local: ipam.ProbeAddress(external, 1), Pace: probe.Pace{Up: time.Second, Other: time.Second}, Nodes: map[netip.Addr]string{netip.MustParseAddr(nodeExternal): "n1"},
	}).Run)
	stop0 := b.echo(0)
	stop1 := b.echo(1)
	r := b.route(b.cfg)
	stop := b.start(r.Run)
	b.until("ready without peers", func(plan.HostState) bool { return r.Ready() })

	// With a peer, but no gateway: what is for the peer is held back.
	tunnel := b.tunnelTo("milan", lane(0, publicKey("milan0")), lane(1, publicKey("milan1")))
	b.until("blackholes only", func(s plan.HostState) bool {
		return len(s.Rules) > 0 && len(s.Routes) == 2 && s.Routes[0].Blackhole && s.Routes[1].Blackhole
	})
	b.gatewayPod(0)
	b.gatewayPod(1)
	b.until("the first lane", func(s plan.HostState) bool { return laneTo(s) == 0 && s.Links[0].MTU == 1370 })
	sees := func(what string, lane int, up ...int) {
		t.Helper()
		for deadline := time.After(20 * time.Second); ; {
			select {
			case h := <-heard:
				if len(h.Observations) == 1 && h.Observations[0].Lane == lane && len(h.Observations[0].Up) == len(up) {
					return
				}
			case <-deadline:
				t.Fatalf("%s: the gateway does not hear lane %d of %v", what, lane, up)
			}
		}
	}
	sees("both lanes", 0, 0, 1)

	stop0()
	silent := kubetest.NewStopwatch(t)
	b.until("the second lane", func(s plan.HostState) bool { return laneTo(s) == 1 })
	took := silent.Took()
	t.Logf("switched %v after the lane failed", took)
	if took > 2*time.Second { // a busy machine takes its time
		t.Errorf("switched after %v", took)
	}
	sees("one lane", 1, 1)

	// An agent that begins again does not lead anything back to the lane that fails, however long it takes to find out that another one works.
	stop()
	stop1()
	for len(heard) > 0 {
		<-heard
	}
	b.host.watch(func(s plan.HostState) {
		if laneTo(s) != 1 {
			t.Errorf("a new agent chose lane %d", laneTo(s))
		}
	})
	r = b.route(b.cfg)
	stop = b.start(r.Run)
	b.until("the next agent", func(plan.HostState) bool { return r.Ready() })
	sees("no lane", -1)
	b.echo(1)
	sees("the second lane again", 1, 1)
	b.host.watch(nil)
	b.echo(0)
	sees("both lanes again", 1, 0, 1)
	if laneTo(b.host.now()) != 1 {
		t.Error("went back although the second lane works")
	}

	// Without an API server it still decides.
	b.wire.cut()
	before := b.host.now().String()
	stop()
	if b.host.now().String() != before {
		t.Error("the host was changed by an agent that ended, and could ask nobody")
	}
	b.wire.mend()
	r = b.route(b.cfg)
	stop = b.start(r.Run)
	b.until("the next agent", func(plan.HostState) bool { return r.Ready() })
	stop()
	if laneTo(b.host.now()) < 0 {
		t.Error("the host was cleaned although the DaemonSet is there")
	}
	r = b.route(b.cfg)
	b.start(r.Run)
	b.until("the next agent", func(plan.HostState) bool { return r.Ready() })
	b.must(b.Delete(t.Context(), tunnel))
	b.until("the last peering ends", func(s plan.HostState) bool { return s.String() == plan.HostState{}.String() })
}

func (b *bed) daemonSet() *appsv1.DaemonSet {
	b.t.Helper()
	set := &appsv1.DaemonSet{}
	b.must(b.Get(b.t.Context(), client.ObjectKey{Namespace: namespace, Name: "liqo-route"}, set))
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

// allow gives the right to look at the DaemonSet, or takes it.
func (b *bed) allow(yes bool) {
	b.t.Helper()
	binding := &rbacv1.RoleBinding{}
	b.must(b.Get(b.t.Context(), client.ObjectKey{Namespace: namespace, Name: "route"}, binding))
	binding.Subjects[0].Name = "nobody"
	if yes {
		binding.Subjects[0].Name = "route"
	}
	b.must(b.Update(b.t.Context(), binding))
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "route", ResourceAttributes: &authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: "get", Group: "apps", Resource: "daemonsets", Name: "liqo-route",
	}}}
	b.until("the API server knows", func(plan.HostState) bool {
		asked := review.DeepCopy()
		b.must(b.Create(b.t.Context(), asked))
		return asked.Status.Allowed == yes
	})
}

// What becomes of the host when the agent ends depends on what the API server says.
func TestFarewell(t *testing.T) {
	if !isolated(t) {
		return
	}
	b := newBed(t, "route")
	b.tunnelTo("milan", lane(0, publicKey("milan0")))
	b.gatewayPod(0)
	for _, test := range []struct {
		name  string
		end   func()
		stays bool
	}{
		{"it is there", func() {}, true},
		{"somebody took our rights", func() { b.allow(false) }, true},
		{"it is being deleted", func() {
			b.allow(true)
			set := b.daemonSet()
			set.Finalizers = []string{"example.org/waits"}
			b.must(b.Update(t.Context(), set))
			b.must(b.Delete(t.Context(), set))
		}, false},
		{"it is gone", func() {
			set := b.daemonSet()
			set.Finalizers = nil
			b.must(b.Update(t.Context(), set))
		}, false},
	} {
		if test.name == "it is there" {
			b.create(daemonSet())
		}
		r := b.route(b.cfg)
		stop := b.start(r.Run)
		b.until("planned", func(s plan.HostState) bool { return laneTo(s) == 0 })
		test.end()
		before := kubetest.NewStopwatch(t)
		stop()
		if took := before.Took(); took > 1500*time.Millisecond {
			t.Errorf("%s: ended after %v", test.name, took)
		}
		if stays := laneTo(b.host.now()) == 0; stays != test.stays {
			t.Errorf("%s: the host stays as it was: %v, want %v", test.name, stays, test.stays)
		}
	}
}
