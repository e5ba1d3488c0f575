// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"context"
	"crypto/ed25519"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/peering/auth"
	authclient "liqo.io/liqo/internal/peering/auth/client"
	"liqo.io/liqo/internal/peering/auth/key"
	"liqo.io/liqo/internal/peering/conditions"
	"liqo.io/liqo/internal/peering/identity"
	"liqo.io/liqo/internal/peering/ownkeys"
)

// emptyCluster has no objects.
type emptyCluster struct{ client.Reader }

func (emptyCluster) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: string(corev1.ResourceSecrets)}, key.Name)
}

// TestDeadPeersLeaveWorkers: while requests use all slots, another peer is requeued and holds no worker.
func TestDeadPeersLeaveWorkers(t *testing.T) {
	asked := 0
	r := &reconciler{watched: emptyCluster{}, identityRequests: identity.NewRequests(), authSlots: make(chan struct{}, 1)}
	r.options.Dial = func(*discoveryv1alpha1.ForeignCluster) (Registrar, error) {
		asked++
		return nil, errors.New("connection refused")
	}
	obtain := func() *scope {
		t.Helper()
		s := &scope{fc: &discoveryv1alpha1.ForeignCluster{}, now: time.Unix(1000, 0), peer: discoveryv1alpha1.ClusterIdentity{ClusterID: "milan-id"}}
		s.fc.Name, s.fc.Spec.ClusterIdentity = "milan", &s.peer
		s.fc.Spec.InsecureSkipProviderVerify = true // there is no token
		if err := r.obtain(t.Context(), s, &identity.Held{}, false); err != nil {
			t.Fatal(err)
		}
		return s
	}
	r.authSlots <- struct{}{}
	if s := obtain(); asked != 0 || s.facts.Identity != conditions.IdentityPending || s.requeueAfter > time.Second {
		t.Errorf("without a free slot: asked %d times, state %d, requeue after %v", asked, s.facts.Identity, s.requeueAfter)
	}
	<-r.authSlots
	if s := obtain(); asked != 1 || s.facts.Identity != conditions.IdentityUnreachable {
		t.Errorf("with a free slot: asked %d times, state %d", asked, s.facts.Identity)
	}
	if len(r.authSlots) != 0 {
		t.Error("a slot is lost")
	}
}

// fixedSecrets has the Secrets of the install namespace with the keys of this cluster.
type fixedSecrets map[string]map[string][]byte

func (f fixedSecrets) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	into.(*corev1.Secret).Data = f[key.Name]
	return nil
}

func (fixedSecrets) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// recordedRegistrar answers renewals with an error, if there is one, and records which keys it saw.
type recordedRegistrar struct {
	Registrar
	renewals      []ed25519.PrivateKey
	registrations []authclient.Registration
	refuse        error
}

func (r *recordedRegistrar) Renew(_ context.Context, _ authclient.Provider, _ discoveryv1alpha1.ClusterIdentity, key ed25519.PrivateKey) (auth.Grant, error) {
	r.renewals = append(r.renewals, key)
	return auth.Grant{}, r.refuse
}

func (r *recordedRegistrar) Register(_ context.Context, registration authclient.Registration) (auth.Grant, error) {
	r.registrations = append(r.registrations, registration)
	return auth.Grant{}, nil
}

// TestOwnKeys: which keys this cluster uses before and after it has replaced them.
func TestOwnKeys(t *testing.T) {
	const provider = "milan-id"
	derive := func(root []byte) ed25519.PrivateKey {
		derived, err := key.Derive(root, provider)
		if err != nil {
			t.Fatal(err)
		}
		return derived
	}
	roots := key.Generate()
	cluster, err := clusterkey.Generate()
	if err != nil {
		t.Fatal(err)
	}
	oldRoot, oldCluster := roots.Current, cluster.Current
	secrets := fixedSecrets{key.Secret: roots.Data(), clusterkey.Secret: cluster.Data()}
	ask := func(registrar *recordedRegistrar, held *identity.Held, outgoing bool) {
		t.Helper()
		r := &reconciler{keys: ownkeys.Store{Live: secrets}}
		r.options.Dial = func(*discoveryv1alpha1.ForeignCluster) (Registrar, error) { return registrar, nil }
		s := &scope{fc: &discoveryv1alpha1.ForeignCluster{}, peer: discoveryv1alpha1.ClusterIdentity{ClusterID: provider}}
		s.fc.Spec.ClusterKey = "known"
		s.facts.Outgoing = outgoing
		if _, err := r.requestToken(t.Context(), s, held, ""); err != nil {
			t.Fatal(err)
		}
	}

	held := &identity.Held{}
	asked := &recordedRegistrar{}
	if ask(asked, held, true); len(asked.registrations) != 1 || len(asked.registrations[0].Previous) != 0 || held.OwnKey != cluster.Fingerprint() {
		t.Fatalf("first contact: %d registrations, known %q", len(asked.registrations), held.OwnKey)
	}
	held.Complete = true
	asked = &recordedRegistrar{}
	if ask(asked, held, true); len(asked.renewals) != 1 || !asked.renewals[0].Equal(derive(oldRoot)) || len(asked.registrations) != 0 {
		t.Fatalf("renewal: %+v", asked)
	}

	fc := &discoveryv1alpha1.ForeignCluster{}
	if held.Outdated(fc) {
		t.Error("nothing asks for another key")
	}
	next := key.Generate()
	next.Previous = roots.Current
	if cluster, err = cluster.Replace(); err != nil {
		t.Fatal(err)
	}
	secrets[key.Secret], secrets[clusterkey.Secret] = next.Data(), cluster.Data()
	fc.Annotations = map[string]string{labels.OwnKey: cluster.Fingerprint()}
	if !held.Outdated(fc) {
		t.Error("the peer does not know the new key, and is not asked to renew")
	}
	asked = &recordedRegistrar{}
	if ask(asked, &identity.Held{Complete: true, OwnKey: held.OwnKey}, false); len(asked.renewals) != 1 ||
		!asked.renewals[0].Equal(derive(oldRoot)) || len(asked.registrations) != 0 {
		t.Errorf("a peering that ends renews with the key that the provider knows: %+v", asked)
	}
	asked = &recordedRegistrar{}
	ask(asked, held, true)
	if len(asked.renewals) != 0 || len(asked.registrations) != 1 {
		t.Fatalf("after the rotation: %+v", asked)
	}
	sent := asked.registrations[0]
	if !sent.Key.Equal(derive(next.Current)) || !sent.ClusterKey.Equal(cluster.Current) ||
		len(sent.Previous) != 2 || !sent.Previous[0].Equal(derive(oldRoot)) || !sent.Previous[1].Equal(oldCluster) {
		t.Error("the registration does not prove the new keys with the old ones")
	}
	if held.Outdated(fc) {
		t.Errorf("the provider knows the new key, and the record is %q", held.OwnKey)
	}
	asked = &recordedRegistrar{}
	if ask(asked, held, true); len(asked.renewals) != 1 || !asked.renewals[0].Equal(derive(next.Current)) {
		t.Errorf("renewal with the new key: %+v", asked)
	}
}

// answering is an authentication service that only answers which cluster it belongs to.
type answering struct {
	asked
	ids authclient.IDs
}

func (a *answering) IDs(context.Context) (authclient.IDs, error) { return a.ids, nil }

// TestDiscoverIdentity: an empty identity becomes that of the cluster that answers at the URL; another cluster than the named one changes nothing.
func TestDiscoverIdentity(t *testing.T) {
	milan := discoveryv1alpha1.ClusterIdentity{ClusterID: "milan-id", ClusterName: "milan"}
	b := newFCEnv(t, func(o *Options) {
		o.Dial = func(*discoveryv1alpha1.ForeignCluster) (Registrar, error) {
			return &answering{ids: authclient.IDs{ClusterID: milan.ClusterID, ClusterName: milan.ClusterName}}, nil
		}
	})
	spec := discoveryv1alpha1.ForeignClusterSpec{
		PeeringType: discoveryv1alpha1.OutOfBand, ForeignAuthURL: "https://192.0.2.1",
		OutgoingPeeringEnabled: discoveryv1alpha1.PeeringNo, IncomingPeeringEnabled: discoveryv1alpha1.PeeringAuto,
	}
	nameless := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: spec}
	spec.ClusterIdentity = &discoveryv1alpha1.ClusterIdentity{ClusterID: "naples-id"}
	wrong := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "naples"}, Spec: spec}
	b.Make(nameless)
	b.Make(wrong)
	b.Until("the identity is known", func() bool {
		b.Read(nameless)
		return nameless.Spec.ClusterIdentity != nil && *nameless.Spec.ClusterIdentity == milan
	})
	b.Until("the contradiction is reported", func() bool {
		b.Read(wrong)
		return slices.ContainsFunc(wrong.Status.PeeringConditions, func(c discoveryv1alpha1.PeeringCondition) bool {
			return c.Reason == discoveryv1alpha1.ReasonIdentityMismatch && strings.Contains(c.Message, "naples-id") && strings.Contains(c.Message, "milan-id")
		})
	})
	if wrong.Spec.ClusterIdentity.ClusterID != "naples-id" || wrong.Spec.ClusterIdentity.ClusterName != "" {
		t.Errorf("the identity became %+v", wrong.Spec.ClusterIdentity)
	}
}
