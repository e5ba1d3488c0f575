// SPDX-License-Identifier: Apache-2.0

package pins

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/foreigncluster"
	"liqo.io/liqo/internal/peering/peeringtest"
	"liqo.io/liqo/internal/peering/tenant"
)

// newPinsEnv is a provider with the controllers of ForeignClusters and keys.
func newPinsEnv(t *testing.T, limits Limits) *peeringtest.Provider {
	t.Helper()
	return peeringtest.NewProvider(t, func(mgr manager.Manager, local discoveryv1alpha1.ClusterIdentity) error {
		tenants := tenant.New(mgr.GetClient(), mgr.GetAPIReader(), "liqo")
		return errors.Join(
			foreigncluster.Setup(mgr, foreigncluster.Options{
				Local: local, Namespace: "liqo", SharedToken: true, Connector: peeringtest.NewNoConnector(), Tenants: tenants,
			}),
			Setup(mgr, Options{Local: local, Namespace: "liqo", Limits: limits, Tenants: tenants}))
	})
}

// TestAttackSameName plays the holder of a token who chooses name and ID so that its tenant namespace would be that of another consumer.
func TestAttackSameName(t *testing.T) {
	t.Parallel()
	if peeringtest.Rome.TenantNamespace() != peeringtest.LikeRome.TenantNamespace() {
		t.Fatalf("%s, %s", peeringtest.Rome.TenantNamespace(), peeringtest.LikeRome.TenantNamespace())
	}
	p := newPinsEnv(t, Limits{})
	grant, err := p.Register(p.Registration(peeringtest.Rome))
	p.Must(err)
	_, err = p.Register(p.Registration(peeringtest.LikeRome))
	var refused *auth.Error
	if !errors.As(err, &refused) || refused.Reason != auth.ReasonNotAdmitted || !strings.Contains(refused.Message, "hash of its ID") {
		t.Errorf("the registration: %v", err)
	}
	p.Until("its key is not pinned", func() bool {
		return !p.ThereIs(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: auth.PinName(peeringtest.LikeRome.ClusterID)}})
	})
	var all discoveryv1alpha1.ForeignClusterList
	if p.Must(p.List(t.Context(), &all)); len(all.Items) != 1 {
		t.Errorf("%d ForeignClusters", len(all.Items))
	}

	// Its ForeignCluster exists nevertheless, from an administrator or an earlier release.
	thief := &discoveryv1alpha1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{
			Name:   "thief",
			Labels: map[string]string{labels.ClusterID: peeringtest.LikeRome.ClusterID, labels.DiscoveryType: labels.DiscoveryIncoming},
		},
		Spec: discoveryv1alpha1.ForeignClusterSpec{ClusterIdentity: &peeringtest.LikeRome},
	}
	p.Make(thief)
	kubetest.Eventually(t, "it has no tenant namespace", func() error {
		p.Read(thief)
		for _, c := range thief.Status.PeeringConditions {
			if c.Reason == discoveryv1alpha1.ReasonTenantNamespaceTaken && thief.Status.TenantNamespace.Local == "" {
				return nil
			}
		}
		return fmt.Errorf("%+v", thief.Status)
	})
	p.Must(p.Delete(t.Context(), thief))
	p.Until("it is gone", func() bool { return !p.ThereIs(thief) })
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: grant.Namespace}}
	if p.Read(namespace); namespace.DeletionTimestamp != nil || namespace.Labels[labels.ClusterID] != peeringtest.Rome.ClusterID {
		t.Errorf("the namespace of rome: %+v", namespace)
	}
}

// TestAttackNames: a cluster cannot have the names of another one, and is refused before anything of it exists.
func TestAttackNames(t *testing.T) {
	known := func(name string, id discoveryv1alpha1.ClusterIdentity) discoveryv1alpha1.ForeignCluster {
		return discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: discoveryv1alpha1.ForeignClusterSpec{ClusterIdentity: &id}}
	}
	other := discoveryv1alpha1.ClusterIdentity{ClusterID: "cccccccc-0000-4000-8000-000000000003", ClusterName: "rome"}
	unknown := discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: peeringtest.Rome.UniqueName()}}
	for name, c := range map[string]struct {
		known []discoveryv1alpha1.ForeignCluster
		want  string
	}{
		"none known":               {},
		"it is known":              {[]discoveryv1alpha1.ForeignCluster{known("rome", peeringtest.Rome), known(peeringtest.Rome.UniqueName(), other)}, ""},
		"another one of this name": {[]discoveryv1alpha1.ForeignCluster{known("rome", other)}, ""},
		"the same unique name":     {[]discoveryv1alpha1.ForeignCluster{known("roma", peeringtest.LikeRome)}, "hash of its ID"},
		"both names are taken": {
			[]discoveryv1alpha1.ForeignCluster{known("rome", other), known(peeringtest.Rome.UniqueName(), other)}, "knows other ones",
		},
		"the second by one without an ID": {[]discoveryv1alpha1.ForeignCluster{known("rome", other), unknown}, "knows other ones"},
	} {
		if got := nameRefusal(peeringtest.Rome, c.known); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestAttackH1Limits: a registered cluster counts from its ForeignCluster on, although its tenant may never be ready.
func TestAttackH1Limits(t *testing.T) {
	t.Parallel()
	b := peeringtest.NewCluster(t)
	r := &reconciler{client: b.Client, live: b.Client, options: Options{Namespace: "liqo", Limits: Limits{Total: 1}}}
	b.Make(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: auth.PinName(peeringtest.Rome.ClusterID), Labels: map[string]string{labels.PinnedKey: "true"}},
		Data:       map[string]string{auth.PinClusterID: peeringtest.Rome.ClusterID},
	})
	next := &auth.Pin{Cluster: discoveryv1alpha1.ClusterIdentity{ClusterID: "cccccccc-0000-4000-8000-000000000003", ClusterName: "turin"}}
	refusal, err := r.refusal(t.Context(), next)
	if err != nil || refusal != "" {
		t.Errorf("the first peer: %q, %v", refusal, err)
	}
	b.Make(&discoveryv1alpha1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "rome"}, Spec: discoveryv1alpha1.ForeignClusterSpec{ClusterIdentity: &peeringtest.Rome},
	})
	if refusal, err = r.refusal(t.Context(), next); err != nil || !strings.Contains(refusal, "no more than 1") {
		t.Errorf("the second peer: %q, %v", refusal, err)
	}
}

// TestAttackPresetNamespace plays a taken over authentication service, which writes pins with a namespace, as those of admitted peers have. The limits and the
// key of our provider hold nevertheless. A peer that was admitted stays so, also if its account was deleted.
func TestAttackPresetNamespace(t *testing.T) {
	t.Parallel()
	p := newPinsEnv(t, Limits{Total: 1})
	registration := p.Registration(peeringtest.Rome)
	grant, err := p.Register(registration)
	p.Must(err)
	turin := discoveryv1alpha1.ClusterIdentity{ClusterID: "cccccccc-0000-4000-8000-000000000003", ClusterName: "turin"}
	p.Make(&discoveryv1alpha1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "turin", Labels: map[string]string{labels.DiscoveryType: labels.DiscoveryManual}},
		Spec: discoveryv1alpha1.ForeignClusterSpec{
			ClusterIdentity: &turin, ClusterKey: clusterkey.Fingerprint(clusterkey.Public(p.NewKey())), ForeignAuthURL: "https://192.0.2.1",
		},
	})
	p.Until("our provider has a tenant", func() bool {
		return p.ThereIs(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: turin.TenantNamespace()}})
	})
	siena := discoveryv1alpha1.ClusterIdentity{ClusterID: "eeeeeeee-0000-4000-8000-000000000004", ClusterName: "siena"}
	for _, peer := range []discoveryv1alpha1.ClusterIdentity{turin, siena} {
		pin := p.PinOf(peer, peer.TenantNamespace())
		p.Make(pin)
		p.Until("the pin of "+peer.ClusterName+" is deleted", func() bool { return !p.ThereIs(pin) })
		if p.ThereIs(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: peer.TenantNamespace(), Name: tenant.PeerAccount}}) {
			t.Errorf("%s has an account", peer.ClusterName)
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: grant.Namespace, Name: tenant.PeerAccount}}
	p.Must(p.Delete(t.Context(), account))
	kubetest.Eventually(t, "rome gets its account again", func() error {
		_, err := p.Consumer.Renew(t.Context(), p.Provider, peeringtest.Rome, registration.Key)
		return err
	})
}

// TestPinPeer: the first key that an admitted peer proves is pinned in a ForeignCluster without one, and a pinned key stays.
func TestPinPeer(t *testing.T) {
	t.Parallel()
	b := peeringtest.NewCluster(t)
	milan := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}}
	b.Make(milan)
	r := &reconciler{client: b.Client}
	first, second := &auth.Pin{ClusterKey: make([]byte, ed25519.PublicKeySize)}, &auth.Pin{ClusterKey: bytes.Repeat([]byte{1}, ed25519.PublicKeySize)}
	for _, pin := range []*auth.Pin{first, second} {
		stale := milan.DeepCopy()
		b.Must(r.pinPeer(t.Context(), milan, pin))
		if b.Read(milan); milan.Spec.ClusterKey != clusterkey.Fingerprint(first.ClusterKey) {
			t.Errorf("pinned %q", milan.Spec.ClusterKey)
		}
		if pin == first && !apierrors.IsConflict(r.pinPeer(t.Context(), stale, second)) {
			t.Error("a stale read replaces the pinned key")
		}
	}
}

// TestAdmitsInBand: a cluster that made first contact through the proxy gets a ForeignCluster of type InBand, if this cluster has the network for that.
func TestAdmitsInBand(t *testing.T) {
	t.Parallel()
	b := peeringtest.NewCluster(t)
	for name, row := range map[string]struct {
		inBand, network bool
		want            discoveryv1alpha1.PeeringType
	}{
		"direct":         {false, true, discoveryv1alpha1.OutOfBand},
		"in-band":        {true, true, discoveryv1alpha1.InBand},
		"in-band-no-net": {true, false, discoveryv1alpha1.OutOfBand},
	} {
		r := &reconciler{client: b.Client, live: b.Client, options: Options{Namespace: "liqo", InternalNetwork: row.network}}
		pin := auth.Pin{
			Cluster: discoveryv1alpha1.ClusterIdentity{ClusterID: name + "-id", ClusterName: name}, ClusterKey: make([]byte, ed25519.PublicKeySize),
			InBand: row.inBand,
		}
		b.Make(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: auth.PinName(pin.Cluster.ClusterID)}})
		fc, err := r.foreignCluster(t.Context(), &pin)
		b.Must(err)
		if fc.Spec.PeeringType != row.want || fc.OnlyIncoming() != (row.want == discoveryv1alpha1.OutOfBand) {
			t.Errorf("%s: the type is %s, and its end goes with that of the use: %v", name, fc.Spec.PeeringType, fc.OnlyIncoming())
		}
	}
}
