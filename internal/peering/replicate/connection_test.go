// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
)

func (b *env) notReady() error {
	if b.r.State(b.provider).Ready {
		return errors.New("still ready")
	}
	return nil
}

// TestLatency measures what the link adds to a peering: the numbers are in the log.
func TestLatency(t *testing.T) {
	b := newEnv(t)
	b.start()
	began := time.Now()
	b.connect(b.peer(""))
	b.ready()
	t.Logf("connect to ready: %s", time.Since(began).Round(time.Millisecond))
	// An API server takes two seconds over the first write to a definition that was just made.
	b.slice("warm")
	b.arrives(b.there, "warm", "the copy", func(*sharingv1alpha1.ResourceSlice) bool { return true })
	var there, back []time.Duration
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"} {
		began := time.Now()
		b.slice(name)
		b.arrives(b.there, name, "the copy", func(*sharingv1alpha1.ResourceSlice) bool { return true })
		there = append(there, time.Since(began))
		began = time.Now()
		b.grant(name, accepted)
		b.arrives(b.here, name, "the grant", isAccepted)
		back = append(back, time.Since(began))
	}
	slices.Sort(there)
	slices.Sort(back)
	t.Logf("spec to copy: median %s, most %s; status there to status here: median %s, most %s (two API servers and the test on one machine)",
		there[4].Round(time.Millisecond), there[8].Round(time.Millisecond), back[4].Round(time.Millisecond), back[8].Round(time.Millisecond))
}

func TestProviderAwayAndBack(t *testing.T) {
	for name, fault := range map[string]struct{ begin, end func(*testing.T, *wire) }{
		"refuses": {func(_ *testing.T, w *wire) { w.cut() }, func(t *testing.T, w *wire) { w.mend(t) }},
		"is mute": {func(_ *testing.T, w *wire) { w.hush(true) }, func(_ *testing.T, w *wire) { w.hush(false) }},
	} {
		t.Run(name, func(t *testing.T) {
			b := newEnv(t)
			wire := newWire(t, b.thereConfig.Host)
			b.start(func(o *Options) { o.ProbeTimeout = 300 * time.Millisecond })
			changed := b.r.Changed()
			b.connect(b.peer(wire.url()))
			b.slice("one")
			b.arrives(b.there, "one", "the copy", func(*sharingv1alpha1.ResourceSlice) bool { return true })
			fault.begin(t, wire)
			kubetest.Eventually(b.t, "the link is not ready", b.notReady)
			state := b.r.State(b.provider)
			if !state.Connected || state.Unauthorized || state.Message == "" {
				t.Errorf("state %+v", state)
			}
			t.Log(state.Message)
			b.edit(b.here, "one", func(slice *sharingv1alpha1.ResourceSlice) {
				slice.Spec.Resources = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
			})
			b.slice("two")
			b.grant("one", accepted)
			b.probes(3)
			if now := b.r.State(b.provider); now.Message != state.Message {
				t.Errorf("the message changes from probe to probe: %q, then %q", state.Message, now.Message)
			}
			// Nothing is held that was never sent.
			if two := b.get(b.here, "two"); len(two.Finalizers) > 0 {
				t.Errorf("finalizers %v on an object that could not be sent", two.Finalizers)
			}
			fault.end(t, wire)
			began := time.Now()
			b.arrives(b.there, "one", "the changed wish", func(slice *sharingv1alpha1.ResourceSlice) bool { return slice.Spec.Resources.Cpu().String() == "2" })
			b.arrives(b.there, "two", "the other copy", func(*sharingv1alpha1.ResourceSlice) bool { return true })
			b.arrives(b.here, "one", "the grant", isAccepted)
			t.Logf("all is level %s after the provider came back", time.Since(began).Round(time.Millisecond))
			select {
			case event := <-changed:
				if event.Object != b.provider {
					t.Errorf("told of peer %q", event.Object)
				}
			case <-time.After(kubetest.InTime):
				t.Error("nobody was told")
			}
		})
	}
}

func TestTokenIsRenewedInPlace(t *testing.T) {
	b := newEnv(t)
	b.start()
	good := b.peer("")
	b.connect(good)
	b.slice("one")
	b.arrives(b.there, "one", "the copy", func(*sharingv1alpha1.ResourceSlice) bool { return true })
	b.ready()
	session := b.cache()
	_, lists := b.requests()
	b.connect(b.peer("")) // another token
	b.probes(3)
	b.edit(b.here, "one", func(slice *sharingv1alpha1.ResourceSlice) { slice.Labels["after"] = "renewal" })
	b.arrives(b.there, "one", "a change after the renewal", func(slice *sharingv1alpha1.ResourceSlice) bool { return slice.Labels["after"] == "renewal" })
	if b.cache() != session {
		t.Error("the session was restarted")
	}
	if _, after := b.requests(); after != lists {
		t.Errorf("%d lists because of a renewal", after-lists)
	}

	// A token that is not taken, and then one that is.
	bad := good
	bad.Identity.Token = "not-a-token"
	b.connect(bad)
	kubetest.Eventually(b.t, "401 is seen", func() error {
		if state := b.r.State(b.provider); !state.Unauthorized || state.Ready {
			return errors.New("not yet")
		}
		return nil
	})
	b.connect(b.peer(""))
	b.ready()
	if state := b.r.State(b.provider); state.Unauthorized {
		t.Errorf("state %+v", state)
	}

	b.r.Disconnect(b.provider)
	if state := b.r.State(b.provider); state != (State{}) {
		t.Errorf("state after Disconnect: %+v", state)
	}
	if here, there := b.get(b.here, "one"), b.get(b.there, "one"); here == nil || there == nil {
		t.Error("Disconnect deleted something")
	}
}

func TestDeadPeerDelaysNobody(t *testing.T) {
	b := newEnv(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and never answers
	b.must(err)
	defer listener.Close()
	b.start(func(o *Options) {
		o.ProbeTimeout, o.ProbeInterval, o.RetryInterval = 5*time.Second, 15*time.Second, 2*time.Second
	})
	dead := b.peer("https://" + listener.Addr().String())
	dead.ClusterID = "dead-" + b.name
	b.must(b.r.Connect(t.Context(), dead))
	for _, name := range []string{"x", "y", "z"} {
		b.slice("dead-"+name, func(slice *sharingv1alpha1.ResourceSlice) { slice.Labels["liqo.io/remoteID"] = dead.ClusterID })
	}
	began := kubetest.NewStopwatch(t)
	b.connect(b.peer(""))
	b.slice("one")
	b.arrives(b.there, "one", "the copy", func(*sharingv1alpha1.ResourceSlice) bool { return true })
	took := began.Took()
	t.Logf("beside a dead peer, connect and copy took %s", took.Round(time.Millisecond))
	if took > time.Second {
		t.Errorf("took %s, want less than a second", took)
	}
	if state := b.r.State(dead.ClusterID); state.Ready {
		t.Errorf("state of the dead peer: %+v", state)
	}
	began = kubetest.NewStopwatch(t)
	b.stop()
	if took := began.Took(); took > 3*time.Second {
		t.Errorf("stopping took %s with a call to a dead peer under way", took)
	}
}

func TestConnectIsIdempotentAndChecked(t *testing.T) {
	b := newEnv(t)
	b.start()
	if err := b.r.Connect(context.Background(), Peer{ClusterID: b.provider}); err == nil {
		t.Error("a peer without namespace was taken")
	}
	peer := b.peer("")
	b.connect(peer)
	b.ready()
	session := b.cache()
	for range 10 {
		b.connect(peer)
	}
	b.probes(2)
	if b.cache() != session {
		t.Error("the session was restarted by Connect with the same identity")
	}
	// Another address: connected again.
	wire := newWire(t, b.thereConfig.Host)
	b.connect(b.peer(wire.url()))
	kubetest.Eventually(b.t, "a new session", func() error {
		if now := b.cache(); now == nil || now == session {
			return errors.New("not yet")
		}
		return nil
	})
	b.slice("one")
	b.arrives(b.there, "one", "the copy", func(*sharingv1alpha1.ResourceSlice) bool { return true })
}
