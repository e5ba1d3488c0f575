// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
)

func TestSizes(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	s := newSizes(10)
	for i, step := range []struct {
		id          string
		size        int
		fits, first bool
	}{
		{"a", 6, true, false}, {"b", 4, true, false}, {"a", 5, true, false}, {"a", 6, true, false}, {"b", 5, false, true}, {"c", 1, false, false},
	} {
		if fits, first := s.put(step.id, step.size, now); fits != step.fits || first != step.first {
			t.Errorf("step %d: %v %v", i, fits, first)
		}
	}
	s.remove("a")
	if is, retry := s.overflowed(now.Add(overflowPause - 1)); !is || retry {
		t.Error("the pause is too short")
	}
	if _, retry := s.overflowed(now.Add(overflowPause)); !retry {
		t.Error("the pause does not end")
	}
	s = newSizes(10)
	s.put("a", 10, now)
	s.remove("a")
	s.remove("other")
	if fits, _ := s.put("b", 10, now); !fits {
		t.Error("a deleted object is counted")
	}
}

// TestAttackM7EndlessObjects: a provider fills our tenant namespace there. The cache of its objects is dropped before it takes all memory, the state of
// the connection reports why, and no copy is deleted or written by mistake.
func TestAttackM7EndlessObjects(t *testing.T) {
	b := newEnv(t)
	const bound = 256 << 10
	b.start(func(o *Options) { o.PeerBytes = bound })
	b.connect(b.peer(""))
	b.ready()
	b.slice("ours")
	b.arrives(b.there, "ours", "the copy", func(*sharingv1alpha1.ResourceSlice) bool { return true })
	for i := range 8 {
		b.must(b.there.Create(t.Context(), &netv1alpha1.NetworkConfig{
			ObjectMeta: metav1.ObjectMeta{Namespace: b.name, Name: fmt.Sprintf("flood-%d", i)},
			Spec:       netv1alpha1.NetworkConfigSpec{BackendType: "wireguard", BackendConfig: map[string]string{"x": strings.Repeat("x", bound/4)}},
		}))
	}
	kubetest.Eventually(t, "the state reports it", func() error {
		if state := b.r.State(b.provider); !strings.Contains(state.Message, "stopped reading them") {
			return fmt.Errorf("state %+v", state)
		}
		return nil
	})
	kubetest.Eventually(t, "the cache is dropped", func() error {
		if b.cache() != nil {
			return errors.New("not yet")
		}
		return nil
	})
	b.probes(3)
	if b.cache() != nil || !strings.Contains(b.r.State(b.provider).Message, "stopped reading them") {
		t.Error("the cache is opened again at once")
	}
	if b.get(b.there, "ours") == nil || b.get(b.here, "ours") == nil {
		t.Error("an object was deleted")
	}
}
