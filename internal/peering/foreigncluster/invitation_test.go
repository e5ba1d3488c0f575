// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/invitation"
	"liqo.io/liqo/internal/peering/ownproxy"
	"liqo.io/liqo/internal/peering/peeringtest"
	"liqo.io/liqo/internal/peering/proxy"
	"liqo.io/liqo/internal/peering/replicate"
	"liqo.io/liqo/internal/peering/spec"
)

// lastConnection records how the controller connects to peers.
type lastConnection struct {
	peeringtest.NoConnector
	mu   sync.Mutex
	peer replicate.Peer
}

func (l *lastConnection) Connect(_ context.Context, peer replicate.Peer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.peer = peer
	return nil
}

func (l *lastConnection) last() remote.Identity {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.peer.Identity
}

// TestInvited: a cluster with an invitation registers and connects through it, goes on through the tunnel once that is up and the provider has reported its
// proxy, and follows no proxy elsewhere.
func TestInvited(t *testing.T) {
	t.Parallel()
	key, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	direct, invited, connection := &asked{key: key}, &asked{key: key}, &lastConnection{NoConnector: peeringtest.NewNoConnector()}
	var through sync.Map
	b := newFCEnv(t, func(o *Options) {
		o.Connector = connection
		o.Dial = func(*discoveryv1alpha1.ForeignCluster) (Registrar, error) { return direct, nil }
		o.DialThrough = func(fc *discoveryv1alpha1.ForeignCluster, open invitation.Dialer) (Registrar, error) {
			through.Store(fc.Spec.ForeignProxyURL, open != nil)
			return invited, nil
		}
	})
	b.Make(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: proxy.Service},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: proxy.Port}}},
	})
	milan := discoveryv1alpha1.ClusterIdentity{ClusterID: "milan-id", ClusterName: "milan"}
	private, public, err := invitation.NewKey()
	b.Must(err)
	text := invitation.Invitation{
		PrivateKey: private, PublicKey: public, Endpoints: []string{"192.0.2.1:5871"}, Address: netip.MustParseAddr("172.31.1.65"),
		Proxy: netip.MustParseAddrPort("10.9.0.1:8118"), User: "invited", Pass: "pass",
	}.String()
	token := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "liqo", Name: auth.TokenSecretName(milan.ClusterID),
			Labels: map[string]string{labels.ClusterID: milan.ClusterID, labels.AuthToken: ""},
		},
		Data: map[string][]byte{tokenKey: []byte("secret." + clusterkey.Fingerprint(key)), invitation.SecretKey: []byte("broken")},
	}
	b.Make(token)
	fc := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: discoveryv1alpha1.ForeignClusterSpec{
		PeeringType: discoveryv1alpha1.InBand, ClusterIdentity: &milan, ForeignAuthURL: discoveryv1alpha1.AuthURLInside, ClusterKey: clusterkey.Fingerprint(key),
		OutgoingPeeringEnabled: discoveryv1alpha1.PeeringYes, IncomingPeeringEnabled: discoveryv1alpha1.PeeringAuto,
	}}
	b.Make(fc)
	kubetest.Eventually(t, "without a readable invitation, nothing is sent", func() error {
		b.Read(fc)
		for _, one := range fc.Status.PeeringConditions {
			if one.Type == discoveryv1alpha1.AuthenticationStatus && one.Status == discoveryv1alpha1.StatusPending {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", fc.Status.PeeringConditions)
	})
	b.Edit(token, func() { token.Data[invitation.SecretKey] = []byte(text) })
	var secret corev1.Secret
	leads := func(to string) {
		t.Helper()
		kubetest.Eventually(t, "the identity leads to "+to, func() error {
			if err := b.Get(t.Context(), client.ObjectKey{Namespace: milan.TenantNamespace(), Name: remote.SecretName(milan.ClusterID)}, &secret); err != nil {
				return err
			}
			identity, err := remote.ParseIdentity(secret.Data)
			if err != nil || !strings.HasSuffix(identity.ProxyURL, to) ||
				connection.last().ProxyURL != identity.ProxyURL || identity.Invited != strings.Contains(to, "invitation") {
				b.Read(fc)
				return fmt.Errorf("it leads to %s, invited %t, the connection to %s, %v; %s, %+v", identity.ProxyURL, identity.Invited, connection.last().
					ProxyURL, err, fc.Spec.ForeignProxyURL, fc.Status.PeeringConditions)
			}
			return nil
		})
	}
	leads("@invitation.invalid:8118")
	if connection.last().Dial == nil {
		t.Error("the connection does not go through the invitation")
	}
	if open, asked := through.Load("http://invited:pass@invitation.invalid:8118"); !asked || open != true || len(direct.all()) > 0 || !invited.all()[0].InBand {
		t.Errorf("asked %v directly, %+v through the invitation", direct.all(), invited.all())
	}

	tunnel := tunnelTo(milan)
	b.Make(tunnel)
	meta.SetStatusCondition(&tunnel.Status.Conditions, metav1.Condition{Type: netv1alpha1.ConditionUsable, Status: metav1.ConditionTrue, Reason: "Connected"})
	b.Must(b.Status().Update(t.Context(), tunnel))
	var slices sharingv1alpha1.ResourceSliceList
	b.Must(b.List(t.Context(), &slices))
	report := func(url string) {
		t.Helper()
		b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(&slices.Items[0]), &slices.Items[0]))
		slices.Items[0].Status.Phase, slices.Items[0].Status.ProxyURL = sharingv1alpha1.SliceAccepted, url
		b.Must(b.Status().Update(t.Context(), &slices.Items[0]))
	}
	report("http://rome-id:pass@192.0.2.7:8118")
	b.Edit(fc, func() { fc.Spec.IncomingPeeringEnabled = discoveryv1alpha1.PeeringYes })
	b.Until("the change is handled", func() bool { b.Read(fc); return fc.Status.ObservedGeneration == fc.Generation })
	if fc.Spec.ForeignProxyURL != "" {
		t.Errorf("a proxy elsewhere is used: %s", fc.Spec.ForeignProxyURL)
	}
	report("http://rome-id:pass@10.9.0.7:8118")
	leads("@10.9.0.7:8118")
	report("http://rome-id:pass@10.9.0.8:8118") // a provider that reports one address after the other costs nothing
	b.Edit(fc, func() { fc.Spec.IncomingPeeringEnabled = discoveryv1alpha1.PeeringAuto })
	b.Until("the change is handled", func() bool { b.Read(fc); return fc.Status.ObservedGeneration == fc.Generation })
	if connection.last().Dial != nil || len(direct.all()) != 1 || !strings.HasSuffix(fc.Spec.ForeignProxyURL, "@10.9.0.7:8118") {
		t.Errorf(
			"after the tunnel is up, the invitation is used, or the peer was asked %d times through the tunnel, at %s", len(direct.all()),
			fc.Spec.ForeignProxyURL,
		)
	}
}

// TestEndInvitation: an invitation ends at its time, or when the consumer that used it has a tunnel of its own.
func TestEndInvitation(t *testing.T) {
	t.Parallel()
	b := newFCEnv(t)
	b.Make(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: proxy.Service},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: proxy.Port}}},
	})
	invite := func(name, token string, expires time.Time) *discoveryv1alpha1.ForeignCluster {
		fc := &discoveryv1alpha1.ForeignCluster{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{labels.ClusterID: name + "-id", labels.DiscoveryType: labels.DiscoveryManual, labels.Invitation: token},
				Annotations: map[string]string{labels.InvitationExpires: expires.UTC().Format(time.RFC3339)},
			},
			Spec: discoveryv1alpha1.ForeignClusterSpec{
				PeeringType: discoveryv1alpha1.InBand, ClusterIdentity: &discoveryv1alpha1.ClusterIdentity{ClusterID: name + "-id", ClusterName: name},
				ForeignAuthURL: discoveryv1alpha1.AuthURLInside,
				ClusterKey:     strings.Repeat("k", 43), OutgoingPeeringEnabled: discoveryv1alpha1.PeeringNo, IncomingPeeringEnabled: discoveryv1alpha1.PeeringManual,
			},
		}
		b.Make(fc)
		return fc
	}
	gone := func(fc *discoveryv1alpha1.ForeignCluster) {
		t.Helper()
		kubetest.Eventually(t, fc.Name+" is gone", func() error {
			if err := b.Get(t.Context(), client.ObjectKeyFromObject(fc), fc); !apierrors.IsNotFound(err) {
				return fmt.Errorf("still there: %w", err)
			}
			return nil
		})
	}
	open := invite("invitation-1", "token-1", time.Now().Add(time.Hour))
	gone(invite("invitation-2", "token-2", time.Now().Add(-time.Second)))
	var mapping netv1alpha1.IPMapping
	kubetest.Eventually(t, "the proxy is open to its end of the tunnel", func() error {
		return b.Get(t.Context(), client.ObjectKey{Name: ownproxy.Name(*open.Spec.ClusterIdentity)}, &mapping)
	})
	var accepted corev1.ConfigMap
	if err := b.Get(t.Context(), client.ObjectKey{Namespace: "liqo", Name: auth.ProviderName("invitation-1-id")}, &accepted); !apierrors.IsNotFound(err) {
		t.Errorf("the key of the invitation, which signed its network only, is accepted in place of a token: %v", err)
	}

	// A consumer registers with it, and has a tunnel since some minutes.
	rome := discoveryv1alpha1.ClusterIdentity{ClusterID: "rome-2-id", ClusterName: "rome-2"}
	consumer := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{
		Name: "rome-2", Labels: map[string]string{labels.DiscoveryType: labels.DiscoveryIncoming},
	}, Spec: discoveryv1alpha1.ForeignClusterSpec{
		PeeringType: discoveryv1alpha1.InBand, ClusterIdentity: &rome, OutgoingPeeringEnabled: discoveryv1alpha1.PeeringAuto,
	}}
	r := &reconciler{options: Options{Namespace: "liqo"}, client: b.Client, watched: b.Client}
	since := func(want time.Time) {
		t.Helper()
		if got, err := invitation.UsedSince(t.Context(), r.watched, r.client, r.options.Namespace, "token-1"); err != nil || !got.Equal(want) {
			t.Errorf("used since %s, %v; want %s", got, err, want)
		}
	}
	since(time.Time{})
	b.Make(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "peer", Labels: map[string]string{labels.PinnedKey: "true"}},
		Data:       map[string]string{auth.PinClusterID: rome.ClusterID, auth.PinTokenID: "token-1"},
	})
	since(time.Time{}) // it has registered, and that is all
	scheme := consumer.DeepCopy()
	at := metav1.NewTime(time.Now().Add(-5 * time.Minute)).Rfc3339Copy()
	scheme.Status.PeeringConditions = []discoveryv1alpha1.PeeringCondition{
		{Type: discoveryv1alpha1.NetworkStatus, Status: discoveryv1alpha1.StatusEstablished, LastTransitionTime: at},
	}
	if got := spec.WithoutTunnelSince(scheme, at.Add(-time.Hour)); !got.Equal(at.Time) {
		t.Errorf("without a tunnel since %s, want %s", got, at)
	}
	r.client = listed{b.Client, []discoveryv1alpha1.ForeignCluster{*scheme}}
	since(at.Time)
	b.Read(open)
	if open.DeletionTimestamp != nil {
		t.Error("an open invitation was deleted")
	}
}

// listed is a client that lists these ForeignClusters.
type listed struct {
	client.Client
	items []discoveryv1alpha1.ForeignCluster
}

func (l listed) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if into, ok := list.(*discoveryv1alpha1.ForeignClusterList); ok {
		into.Items = l.items
		return nil
	}
	return l.Client.List(ctx, list, options...)
}
