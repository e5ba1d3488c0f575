// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/kube/printable"
)

func (b *env) notReady() error {
	if b.r.State(b.provider).Ready {
		return errors.New("still ready")
	}
	return nil
}

// BenchmarkRoundTrip measures from a new request to its copy in the provider, and from the grant there to its copy here.
func BenchmarkRoundTrip(bench *testing.B) {
	b := newEnv(bench)
	b.start()
	b.connect(b.peer(""))
	b.ready()
	roundTrip := func(name string) {
		b.slice(name)
		b.arrives(b.there, name, "the copy", func(*sharingv1alpha1.ResourceSlice) bool { return true })
		b.grant(name, accepted)
		b.arrives(b.here, name, "the grant", isAccepted)
	}
	roundTrip("first") // an API server takes two seconds for the first write to a new resource definition
	for i := 0; bench.Loop(); i++ {
		roundTrip(fmt.Sprint("next-", i))
	}
}

func TestProviderAwayAndBack(t *testing.T) {
	for name, mode := range map[string]int32{"refuses": kubetest.Refuse, "does not answer": kubetest.Swallow} {
		t.Run(name, func(t *testing.T) {
			b := newEnv(t)
			proxy, address := b.proxy(t)
			b.start(func(o *Options) { o.ProbeTimeout = 300 * time.Millisecond })
			changed := b.r.Changed()
			b.connect(b.peer(address))
			b.slice("one")
			b.arrives(b.there, "one", "the copy", func(*sharingv1alpha1.ResourceSlice) bool { return true })
			proxy.Set(mode)
			kubetest.Eventually(b.t, "the connection is not ready", b.notReady)
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
			// An object that was never sent gets no finalizer.
			if two := b.get(b.here, "two"); len(two.Finalizers) > 0 {
				t.Errorf("finalizers %v on an object that could not be sent", two.Finalizers)
			}
			proxy.Set(kubetest.Pass)
			b.arrives(b.there, "one", "the changed request", func(slice *sharingv1alpha1.ResourceSlice) bool { return slice.Spec.Resources.Cpu().String() == "2" })
			b.arrives(b.there, "two", "the other copy", func(*sharingv1alpha1.ResourceSlice) bool { return true })
			b.arrives(b.here, "one", "the grant", isAccepted)

			select {
			case event := <-changed:
				if event.Object != b.provider {
					t.Errorf("notified of peer %q", event.Object)
				}
			case <-time.After(kubetest.InTime):
				t.Error("the subscriber was not notified")
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
	cache := b.cache()
	_, lists := b.requests()
	b.connect(b.peer("")) // another token
	b.probes(3)
	b.edit(b.here, "one", func(slice *sharingv1alpha1.ResourceSlice) { slice.Labels["after"] = "renewal" })
	b.arrives(b.there, "one", "a change after the renewal", func(slice *sharingv1alpha1.ResourceSlice) bool { return slice.Labels["after"] == "renewal" })
	if b.cache() != cache {
		t.Error("the cache was restarted")
	}
	if _, after := b.requests(); after != lists {
		t.Errorf("%d lists because of a renewal", after-lists)
	}

	// A token that is rejected, and then one that is accepted.
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

// TestDeadPeerDelaysNoOther: while a peer does not answer its first probe, another one is connected, and the replicator stops.
func TestDeadPeerDelaysNoOther(t *testing.T) {
	b := newEnv(t)
	proxy, address := b.proxy(t)
	proxy.Set(kubetest.Swallow)
	b.start(func(o *Options) { o.ProbeTimeout = time.Hour }) // the first probe of the dead peer ends with the test
	dead := b.peer(address)
	dead.ClusterID = "dead-" + b.name
	b.must(b.r.Connect(t.Context(), dead))
	for _, name := range []string{"x", "y", "z"} {
		b.slice("dead-"+name, func(slice *sharingv1alpha1.ResourceSlice) { slice.Labels["liqo.io/remoteID"] = dead.ClusterID })
	}
	kubetest.Eventually(b.t, "the dead peer is probed", func() error {
		if proxy.Dialled.Load() == 0 {
			return errors.New("not dialled")
		}
		return nil
	})
	b.connect(b.peer(""))
	b.slice("one")
	b.arrives(b.there, "one", "the copy", func(*sharingv1alpha1.ResourceSlice) bool { return true })
	if state := b.r.State(dead.ClusterID); state.Ready || !state.CheckedAt.IsZero() {
		t.Errorf("the first probe of the dead peer is over: %+v", state)
	}
	b.stop() // fails if it waits for the probe
}

func TestConnectIsIdempotentAndChecked(t *testing.T) {
	b := newEnv(t)
	b.start()
	if err := b.r.Connect(context.Background(), Peer{ClusterID: b.provider}); err == nil {
		t.Error("a peer without a namespace was accepted")
	}
	peer := b.peer("")
	b.connect(peer)
	b.ready()
	cache := b.cache()
	for range 10 {
		b.connect(peer)
	}
	b.probes(2)
	if b.cache() != cache {
		t.Error("Connect with the same identity restarted the cache")
	}
	// Another address: connected again.
	_, address := b.proxy(t)
	b.connect(b.peer(address))
	kubetest.Eventually(b.t, "a new cache", func() error {
		if now := b.cache(); now == nil || now == cache {
			return errors.New("not yet")
		}
		return nil
	})
	b.slice("one")
	b.arrives(b.there, "one", "the copy", func(*sharingv1alpha1.ResourceSlice) bool { return true })
}

// TestReader: what a peer lets us read is read with our identity there, past all caches; without a connection there is an error.
func TestReader(t *testing.T) {
	b := newEnv(t)
	b.start()
	if _, err := b.r.Reader(b.provider); !errors.Is(err, errNotConnected) {
		t.Errorf("before Connect: %v", err)
	}
	proxy, address := b.proxy(t)
	b.connect(b.peer(address))
	b.ready()
	reader, err := b.r.Reader(b.provider)
	b.must(err)
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(sharingv1alpha1.GroupVersion.WithKind("ResourceSliceList"))
	b.slice("one")
	b.arrives(b.there, "one", "the copy", func(*sharingv1alpha1.ResourceSlice) bool { return true })
	if err := reader.List(t.Context(), list, client.InNamespace(b.name)); err != nil || len(list.Items) != 1 {
		t.Errorf("%d slices, %v", len(list.Items), err)
	}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := reader.List(t.Context(), list); !apierrors.IsForbidden(err) {
		t.Errorf("all Secrets of the peer: %v", err)
	}
	proxy.Set(kubetest.Swallow)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	list.SetGroupVersionKind(sharingv1alpha1.GroupVersion.WithKind("ResourceSliceList"))
	if err := reader.List(ctx, list, client.InNamespace(b.name)); err == nil {
		t.Error("a silent peer was read")
	}
	b.r.Disconnect(b.provider)
	if _, err := b.r.Reader(b.provider); !errors.Is(err, errNotConnected) {
		t.Errorf("after Disconnect: %v", err)
	}
}

// TestAttackM7Message: a server that answers with a megabyte of control characters gets one short printable line into our state, the same with each probe.
func TestAttackM7Message(t *testing.T) {
	b := newEnv(t)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		line, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer line.Close()
		_, _ = fmt.Fprintf(line, "\x1b[31m%s\r\n\r\n", strings.Repeat("a", 1<<20))
	}))
	server.StartTLS() // HTTP/1.1
	t.Cleanup(server.Close)
	peer := b.peer("")
	peer.Identity.ProxyURL, peer.Identity.APIServerURL = "", server.URL
	peer.Identity.APIServerCA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	b.start()
	b.connect(peer)
	b.probes(2)
	if message := b.r.State(b.provider).Message; message == "" || len(message) > 2*printable.MaxLine ||
		strings.ContainsFunc(message, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("%d bytes: %.200q", len(message), message)
	}
}
