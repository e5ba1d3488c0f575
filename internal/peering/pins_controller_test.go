// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/kube/kubetest"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/tenant"
)

// pinsEnv is a provider: a real API server, the controllers of ForeignClusters and keys, and the authentication service.
type pinsEnv struct {
	*fcEnv
	local    discoveryv1alpha1.ClusterIdentity
	provider auth.Provider
	// consumer calls the authentication service, which listens at address.
	consumer *auth.Client
	address  string
	// secret is that of the token.
	secret string
}

func newPinsEnv(t *testing.T, changes ...func(*ForeignClusterOptions)) *pinsEnv {
	t.Helper()
	b, admin := newFCServer(t)
	p := &pinsEnv{fcEnv: b, local: discoveryv1alpha1.ClusterIdentity{ClusterID: "aaaaaaaa-0000-4000-8000-000000000001", ClusterName: "milan"}}
	mgr, err := kubemanager.New(admin, kubemanager.Options{Scheme: b.Scheme(), Namespace: "liqo", SkipNameValidation: true})
	b.Must(err)
	options := ForeignClusterOptions{
		Local: p.local, Namespace: "liqo", SharedToken: true, Connector: noConnector{make(chan event.TypedGenericEvent[string])},
	}
	for _, change := range changes {
		change(&options)
	}
	b.Must(SetupForeignCluster(mgr, options))
	kubetest.Start(t, "manager", mgr.Start)

	core := kubernetes.NewForConfigOrDie(admin).CoreV1()
	keys := &auth.SecretKeys{Secrets: core, Namespace: "liqo"}
	server, err := auth.NewServer(auth.ServerOptions{
		Cluster: p.local, EnableAuthentication: true, Tokens: auth.SecretTokens{Secrets: core, Namespace: "liqo"}, Keys: keys, Log: logr.Discard(),
		Peers: auth.Registry{Client: core, Namespace: "liqo", Address: auth.Address{URL: admin.Host, TrustedCA: true}},
	})
	b.Must(err)
	service := httptest.NewTLSServer(server)
	t.Cleanup(service.Close)
	p.address = service.Listener.Addr().String()
	p.consumer, err = auth.NewClient(service.URL, auth.ClientOptions{InsecureSkipTLSVerify: true})
	b.Must(err)
	t.Cleanup(p.consumer.Close)

	var token corev1.Secret
	var own clusterkey.Keys
	kubetest.Eventually(t, "the provider has a token and a key", func() error {
		own, err = keys.ClusterKeys(t.Context())
		return errors.Join(err, b.Get(t.Context(), client.ObjectKey{Namespace: "liqo", Name: auth.SharedTokenSecret}, &token))
	})
	p.provider, p.secret = auth.Provider{ID: p.local.ClusterID, Fingerprint: own.Fingerprint()}, string(token.Data[auth.SharedTokenKey])
	return p
}

// registration is the first contact of a cluster, with new keys and the token.
func (p *pinsEnv) registration(of discoveryv1alpha1.ClusterIdentity) auth.Registration {
	return auth.Registration{Provider: p.provider, Cluster: of, Secret: p.secret, Key: p.newKey(), ClusterKey: p.newKey()}
}

// register makes first contact, as a consumer does: again if the provider has not made the tenant within the time that one request may take.
func (p *pinsEnv) register(r auth.Registration) (grant auth.Grant, err error) {
	p.T.Helper()
	kubetest.Eventually(p.T, "the provider decides on first contact", func() error {
		grant, err = p.consumer.Register(p.T.Context(), r)
		var late *auth.Error
		if errors.As(err, &late) && late.Reason == auth.ReasonTenantNotReady {
			return err
		}
		return nil
	})
	return grant, err
}

func (p *pinsEnv) newKey() ed25519.PrivateKey {
	p.T.Helper()
	made, err := clusterkey.Generate()
	p.Must(err)
	return made.Current
}

// pinOf is a pin with new keys, as the authentication service writes it; namespace is that of an admitted peer.
func (b *fcEnv) pinOf(peer discoveryv1alpha1.ClusterIdentity, namespace string) *corev1.ConfigMap {
	b.T.Helper()
	key := func() string {
		made, err := clusterkey.Generate()
		b.Must(err)
		return base64.StdEncoding.EncodeToString(clusterkey.Public(made.Current))
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "liqo", Name: pinName(peer.ClusterID), Labels: map[string]string{labels.PinnedKey: "true", labels.ClusterID: peer.ClusterID},
		},
		Data: map[string]string{
			auth.PinClusterID: peer.ClusterID, auth.PinClusterName: peer.ClusterName, auth.PinPublicKey: key(), auth.PinClusterKey: key(),
			auth.PinNamespace: namespace,
		},
	}
}

// thereIs reports whether an object exists, and reads it.
func (p *pinsEnv) thereIs(object client.Object) bool {
	p.T.Helper()
	err := p.Get(p.T.Context(), client.ObjectKeyFromObject(object), object)
	p.Must(client.IgnoreNotFound(err))
	return !apierrors.IsNotFound(err)
}

// Two clusters whose IDs have hashes with the same first six digits: a program finds the second in seconds.
var (
	rome     = discoveryv1alpha1.ClusterIdentity{ClusterID: "bbbbbbbb-0000-4000-8000-000000000002", ClusterName: "rome"}
	likeRome = discoveryv1alpha1.ClusterIdentity{ClusterID: "dddddddd-0000-4000-8000-00000150951e", ClusterName: "rome"}
)

// TestAttackSameName plays the holder of a token who chooses name and ID so that its tenant namespace would be that of another consumer.
func TestAttackSameName(t *testing.T) {
	t.Parallel()
	if rome.TenantNamespace() != likeRome.TenantNamespace() {
		t.Fatalf("%s, %s", rome.TenantNamespace(), likeRome.TenantNamespace())
	}
	p := newPinsEnv(t)
	grant, err := p.register(p.registration(rome))
	p.Must(err)
	_, err = p.register(p.registration(likeRome))
	var refused *auth.Error
	if !errors.As(err, &refused) || refused.Reason != auth.ReasonNotAdmitted || !strings.Contains(refused.Message, "hash of its ID") {
		t.Errorf("the registration: %v", err)
	}
	p.Until("its key is not pinned", func() bool {
		return !p.thereIs(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: pinName(likeRome.ClusterID)}})
	})
	var all discoveryv1alpha1.ForeignClusterList
	if p.Must(p.List(t.Context(), &all)); len(all.Items) != 1 {
		t.Errorf("%d ForeignClusters", len(all.Items))
	}

	// Its ForeignCluster exists nevertheless, from an administrator or an earlier release.
	thief := &discoveryv1alpha1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "thief", Labels: map[string]string{labels.ClusterID: likeRome.ClusterID, labels.DiscoveryType: labels.DiscoveryIncoming}},
		Spec:       discoveryv1alpha1.ForeignClusterSpec{ClusterIdentity: &likeRome},
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
	p.Until("it is gone", func() bool { return !p.thereIs(thief) })
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: grant.Namespace}}
	if p.Read(namespace); namespace.DeletionTimestamp != nil || namespace.Labels[labels.ClusterID] != rome.ClusterID {
		t.Errorf("the namespace of rome: %+v", namespace)
	}
}

// TestAttackProxyOfAnother: the end of a peer leaves the proxy to the peer that has the same unique name.
func TestAttackProxyOfAnother(t *testing.T) {
	t.Parallel()
	b, _ := newFCServer(t)
	r := &fcReconciler{client: b.Client, own: ssa.NewApplier(b.Client, labels.OwnerForeignCluster), options: ForeignClusterOptions{InternalNetwork: true}}
	mapping := &netv1alpha1.IPMapping{
		ObjectMeta: metav1.ObjectMeta{Name: proxyMapping(rome), Labels: map[string]string{labels.ClusterID: rome.ClusterID}},
		Spec:       netv1alpha1.IPMappingSpec{Address: "10.96.0.9", ClusterIDs: []string{rome.ClusterID}},
	}
	b.Make(mapping)
	b.Must(r.closeProxy(t.Context(), &scope{peer: likeRome}))
	b.Read(mapping)
	b.Must(r.closeProxy(t.Context(), &scope{peer: rome}))
	b.Until("its own end takes it away", func() bool {
		return apierrors.IsNotFound(b.Get(t.Context(), client.ObjectKeyFromObject(mapping), mapping))
	})
}

// TestAttackNames: a cluster cannot have the names of another one, and is refused before anything of it exists.
func TestAttackNames(t *testing.T) {
	known := func(name string, id discoveryv1alpha1.ClusterIdentity) discoveryv1alpha1.ForeignCluster {
		return discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: discoveryv1alpha1.ForeignClusterSpec{ClusterIdentity: &id}}
	}
	other := discoveryv1alpha1.ClusterIdentity{ClusterID: "cccccccc-0000-4000-8000-000000000003", ClusterName: "rome"}
	unknown := discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: rome.UniqueName()}}
	for name, c := range map[string]struct {
		known []discoveryv1alpha1.ForeignCluster
		want  string
	}{
		"none known":                      {},
		"it is known":                     {[]discoveryv1alpha1.ForeignCluster{known("rome", rome), known(rome.UniqueName(), other)}, ""},
		"another one of this name":        {[]discoveryv1alpha1.ForeignCluster{known("rome", other)}, ""},
		"the same unique name":            {[]discoveryv1alpha1.ForeignCluster{known("roma", likeRome)}, "hash of its ID"},
		"both names are taken":            {[]discoveryv1alpha1.ForeignCluster{known("rome", other), known(rome.UniqueName(), other)}, "knows other ones"},
		"the second by one without an ID": {[]discoveryv1alpha1.ForeignCluster{known("rome", other), unknown}, "knows other ones"},
	} {
		if got := nameRefusal(rome, c.known); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestAttackH1Limits: a registered cluster counts from its ForeignCluster on, although its tenant may never be ready.
func TestAttackH1Limits(t *testing.T) {
	t.Parallel()
	b, _ := newFCServer(t)
	r := &pinReconciler{fcReconciler: &fcReconciler{client: b.Client, live: b.Client, options: ForeignClusterOptions{Namespace: "liqo", Limits: PeerLimits{Total: 1}}}}
	b.Make(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: pinName(rome.ClusterID), Labels: map[string]string{labels.PinnedKey: "true"}},
		Data:       map[string]string{auth.PinClusterID: rome.ClusterID},
	})
	next := &auth.Pin{Cluster: discoveryv1alpha1.ClusterIdentity{ClusterID: "cccccccc-0000-4000-8000-000000000003", ClusterName: "turin"}}
	refusal, err := r.refusal(t.Context(), next)
	if err != nil || refusal != "" {
		t.Errorf("the first peer: %q, %v", refusal, err)
	}
	b.Make(&discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "rome"}, Spec: discoveryv1alpha1.ForeignClusterSpec{ClusterIdentity: &rome}})
	if refusal, err = r.refusal(t.Context(), next); err != nil || !strings.Contains(refusal, "no more than 1") {
		t.Errorf("the second peer: %q, %v", refusal, err)
	}
}

// TestAttackPresetNamespace plays a taken over authentication service, which writes pins with a namespace, as those of admitted peers have. The limits and the
// key of our provider hold nevertheless. A peer that was admitted stays so, also if its account was deleted.
func TestAttackPresetNamespace(t *testing.T) {
	t.Parallel()
	p := newPinsEnv(t, func(o *ForeignClusterOptions) { o.Limits = PeerLimits{Total: 1} })
	registration := p.registration(rome)
	grant, err := p.register(registration)
	p.Must(err)
	turin := discoveryv1alpha1.ClusterIdentity{ClusterID: "cccccccc-0000-4000-8000-000000000003", ClusterName: "turin"}
	p.Make(&discoveryv1alpha1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "turin", Labels: map[string]string{labels.DiscoveryType: labels.DiscoveryManual}},
		Spec: discoveryv1alpha1.ForeignClusterSpec{
			ClusterIdentity: &turin, ClusterKey: clusterkey.Fingerprint(clusterkey.Public(p.newKey())), ForeignAuthURL: "https://192.0.2.1",
		},
	})
	p.Until("our provider has a tenant", func() bool {
		return p.thereIs(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: turin.TenantNamespace()}})
	})
	siena := discoveryv1alpha1.ClusterIdentity{ClusterID: "eeeeeeee-0000-4000-8000-000000000004", ClusterName: "siena"}
	for _, peer := range []discoveryv1alpha1.ClusterIdentity{turin, siena} {
		pin := p.pinOf(peer, peer.TenantNamespace())
		p.Make(pin)
		p.Until("the pin of "+peer.ClusterName+" is deleted", func() bool { return !p.thereIs(pin) })
		if p.thereIs(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: peer.TenantNamespace(), Name: tenant.PeerAccount}}) {
			t.Errorf("%s has an account", peer.ClusterName)
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: grant.Namespace, Name: tenant.PeerAccount}}
	p.Must(p.Delete(t.Context(), account))
	kubetest.Eventually(t, "rome gets its account again", func() error {
		_, err := p.consumer.Renew(t.Context(), p.provider, rome, registration.Key)
		return err
	})
}
