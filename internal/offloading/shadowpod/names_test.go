// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/names"
	"liqo.io/liqo/internal/offloading/shadow"
	"liqo.io/liqo/internal/offloading/shadowtest"
)

// decided are DNS settings that are known at some time.
type decided struct {
	mu       sync.Mutex
	asked    int
	known    bool
	settings names.Settings
}

func (d *decided) Settings() (names.Settings, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.asked++; !d.known {
		return names.Settings{}, errors.New("not known yet")
	}
	return d.settings, nil
}

func (d *decided) decide(settings names.Settings) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known, d.settings = true, settings
}

func (d *decided) times() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked
}

// TestNames: a new pod of a peer that has announced its domain gets the DNS settings that it would have at home, with the name server of this cluster. It waits
// until these are known, because it keeps what it has; pods from before stay as they are.
func TestNames(t *testing.T) {
	b := shadowtest.New(t)
	tenant := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-rome"}}
	b.Make(tenant)
	asked := &vkv1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: tenant.Name, Name: "milan", Labels: map[string]string{labels.Replicated: "true"},
		Annotations: map[string]string{labels.ClusterDomain: "rome.example"},
	}}
	b.Make(asked)
	remote := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shadowtest.RemoteNamespace}}
	b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(remote), remote))
	b.Edit(remote, func() {
		remote.Annotations = map[string]string{labels.ManagedByNamespaceMap: tenant.Name + "/" + asked.Name, labels.OriginalName: "web"}
	})
	stop := b.Run()
	old := b.CreateShadowPod("old", corev1.RestartPolicyAlways, nil)
	running := b.Pod(old, nil)
	b.StartPod(running)
	before := running.Spec.DeepCopy()
	stop()

	given := &decided{}
	b.Names = given
	b.Run()
	first := b.CreateShadowPod("first", corev1.RestartPolicyAlways, nil)
	b.Until("the settings are asked for again", func() bool { return given.times() > 1 })
	if err := b.Get(t.Context(), client.ObjectKeyFromObject(first), &corev1.Pod{}); err == nil {
		t.Fatal("the pod was created before its settings were known")
	}
	given.decide(names.Settings{Server: netip.MustParseAddr("10.96.0.77"), Domain: "milan.example"})
	spec := b.Pod(first, nil).Spec
	want := []string{"web.svc.rome.example", "svc.rome.example", "rome.example", shadowtest.RemoteNamespace + ".svc.milan.example"}
	if spec.DNSPolicy != corev1.DNSNone || spec.DNSConfig == nil || !slices.Equal(spec.DNSConfig.Searches, want) ||
		!slices.Equal(spec.DNSConfig.Nameservers, []string{"10.96.0.77"}) {
		t.Errorf("a new pod has the policy %s, %v", spec.DNSPolicy, spec.DNSConfig)
	}
	own := b.Pod(b.CreateShadowPod("own", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) { s.Spec.Pod.DNSPolicy = corev1.DNSDefault }), nil)
	if own.Spec.DNSPolicy != corev1.DNSDefault || own.Spec.DNSConfig != nil {
		t.Errorf("a pod with a policy of its own has %s, %v", own.Spec.DNSPolicy, own.Spec.DNSConfig)
	}
	byAddress := b.Pod(b.CreateShadowPod("by-address", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) {
		s.Annotations[labels.HomeDNS] = "10.80.0.10"
		s.Spec.Pod.DNSPolicy, s.Spec.Pod.DNSConfig = corev1.DNSNone,
			&corev1.PodDNSConfig{Nameservers: []string{"10.80.0.10", "192.0.2.53"}, Searches: []string{"svc.rome.example"}}
	}), nil)
	if got := byAddress.Spec.DNSConfig; !slices.Equal(got.Nameservers, []string{"10.96.0.77", "192.0.2.53"}) ||
		!slices.Equal(got.Searches, []string{"svc.rome.example"}) || byAddress.Annotations[labels.HomeDNS] != "" {
		t.Errorf("a pod that names the DNS of its cluster by address has %v, %v", got, byAddress.Annotations)
	}
	// A peer that announces nothing, as before, and one that announces what is no domain.
	probes := 0
	for name, announced := range map[string]string{"silent": "", "hostile": "rome example\nnameserver 192.0.2.66"} {
		b.Edit(asked, func() { asked.Annotations = map[string]string{labels.ClusterDomain: announced} })
		b.Until("the annotation is observed", func() bool {
			probes++
			return b.Pod(b.CreateShadowPod(fmt.Sprintf("probe-%d", probes), corev1.RestartPolicyAlways, nil), nil).Spec.DNSPolicy == corev1.DNSClusterFirst
		})
		if got := b.Pod(b.CreateShadowPod(name, corev1.RestartPolicyAlways, nil), nil).Spec; got.DNSPolicy != corev1.DNSClusterFirst || got.DNSConfig != nil {
			t.Errorf("%s: %s, %v", name, got.DNSPolicy, got.DNSConfig)
		}
	}
	b.Edit(old, func() { old.Annotations["note"] = "2" })
	b.Until("the annotation has changed", func() bool {
		b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(running), running))
		return running.Annotations[labels.ShadowPodRevision] == shadow.Revision(old)
	})
	if running.DeletionTimestamp != nil || !equality.Semantic.DeepEqual(running.Spec.DNSConfig, before.DNSConfig) || running.Spec.DNSPolicy != before.DNSPolicy {
		t.Errorf("the pod from before has %s, %v", running.Spec.DNSPolicy, running.Spec.DNSConfig)
	}
}
