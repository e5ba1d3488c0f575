// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
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
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/peering/auth"
	authclient "liqo.io/liqo/internal/peering/auth/client"
	"liqo.io/liqo/internal/peering/ownproxy"
	"liqo.io/liqo/internal/peering/peeringtest"
	"liqo.io/liqo/internal/peering/proxy"
)

// asked records what a peer was asked for, and grants it.
type asked struct {
	mu       sync.Mutex
	requests []authclient.Provider
	// key is that of the peer; nil: another one each time.
	key ed25519.PublicKey
}

func (a *asked) IDs(context.Context) (authclient.IDs, error) {
	return authclient.IDs{}, errors.New("not asked in this test")
}

func (a *asked) Register(_ context.Context, r authclient.Registration) (auth.Grant, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests = append(a.requests, r.Provider)
	public := a.key
	if public == nil {
		public, _, _ = ed25519.GenerateKey(nil)
	}
	return auth.Grant{Namespace: "liqo-tenant-rome", Token: "token", Lifetime: time.Hour, APIServerURL: proxy.APIServerURL, ProviderKey: public}, nil
}

func (a *asked) Renew(ctx context.Context, provider authclient.Provider, _ discoveryv1alpha1.ClusterIdentity, _ ed25519.PrivateKey) (auth.Grant, error) {
	return a.Register(ctx, authclient.Registration{Provider: provider})
}

func (a *asked) all() []authclient.Provider {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]authclient.Provider(nil), a.requests...)
}

// TestInBand: a ForeignCluster of type InBand makes the proxy reachable for that peer and accepts its pinned key, waits for the tunnel before it asks the
// peer for anything, and then asks for an identity through the proxy. Nothing is left when it is deleted.
func TestInBand(t *testing.T) {
	t.Parallel()
	peer := &asked{}
	b := newFCEnv(t, func(o *Options) {
		o.Dial = func(*discoveryv1alpha1.ForeignCluster) (Registrar, error) { return peer, nil }
	})
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: proxy.Service},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: proxy.Port}}},
	}
	b.Make(service)
	milan := discoveryv1alpha1.ClusterIdentity{ClusterID: "milan-id", ClusterName: "milan"}
	fc := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: discoveryv1alpha1.ForeignClusterSpec{
		PeeringType: discoveryv1alpha1.InBand, ClusterIdentity: &milan, ForeignAuthURL: discoveryv1alpha1.AuthURLInside, ClusterKey: strings.Repeat("k", 43),
		OutgoingPeeringEnabled: discoveryv1alpha1.PeeringYes, IncomingPeeringEnabled: discoveryv1alpha1.PeeringAuto,
	}}
	b.Make(fc)
	authentication := func(status discoveryv1alpha1.PeeringConditionStatus, text string) {
		t.Helper()
		kubetest.Eventually(t, fmt.Sprintf("authentication is %s (%s)", status, text), func() error {
			b.Read(fc)
			for _, one := range fc.Status.PeeringConditions {
				if one.Type == discoveryv1alpha1.AuthenticationStatus && one.Status == status && strings.Contains(one.Message, text) {
					return nil
				}
			}
			return fmt.Errorf("conditions %+v", fc.Status.PeeringConditions)
		})
	}
	authentication(discoveryv1alpha1.StatusPending, "liqoctl peer in-band")
	var mapping netv1alpha1.IPMapping
	mapped := func(address string) {
		t.Helper()
		kubetest.Eventually(t, "the proxy is reachable at "+address, func() error {
			err := b.Get(t.Context(), client.ObjectKey{Name: ownproxy.Name(milan)}, &mapping)
			if err != nil || mapping.Spec.Address != address {
				return fmt.Errorf("%+v, %w", mapping.Spec, err)
			}
			return nil
		})
	}
	mapped(service.Spec.ClusterIP)
	if spec := mapping.Spec; len(spec.ClusterIDs) != 1 || spec.ClusterIDs[0] != milan.ClusterID || len(spec.Ports) != 1 || spec.Ports[0].Port != proxy.Port ||
		len(mapping.OwnerReferences) != 1 || mapping.OwnerReferences[0].UID != fc.UID {
		t.Errorf("%+v of %+v", spec, mapping.OwnerReferences)
	}
	accepted := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: auth.ProviderName(milan.ClusterID)}}
	b.Until("the key that was pinned is accepted", func() bool {
		return b.Get(t.Context(), client.ObjectKeyFromObject(accepted), accepted) == nil && auth.ProviderFingerprint(accepted) == fc.Spec.ClusterKey
	})
	var key corev1.Secret
	b.Must(b.Get(t.Context(), client.ObjectKey{Namespace: "liqo", Name: proxy.KeySecret}, &key))
	through, err := proxy.URL(key.Data[proxy.KeyName], milan.ClusterID, "10.9.0.7")
	b.Must(err)
	b.Edit(fc, func() { fc.Spec.ForeignProxyURL = strings.Replace(through, "10.9.0.7", "192.0.2.7", 1) })
	authentication(discoveryv1alpha1.StatusPending, "tunnel")
	if requests := peer.all(); len(requests) > 0 {
		t.Fatalf("before there is a tunnel, the peer was asked: %v", requests)
	}
	b.Must(b.Get(t.Context(), client.ObjectKey{Name: ownproxy.Name(milan)}, &mapping))

	tunnel := tunnelTo(milan)
	b.Make(tunnel)
	meta.SetStatusCondition(&tunnel.Status.Conditions, metav1.Condition{Type: netv1alpha1.ConditionUsable, Status: metav1.ConditionTrue, Reason: "Connected"})
	b.Must(b.Status().Update(t.Context(), tunnel))
	authentication(discoveryv1alpha1.StatusPending, "in the network 10.9.0.0/16")
	if requests := peer.all(); len(requests) > 0 {
		t.Fatalf("through a proxy that is not the peer's, it was asked: %v", requests)
	}
	b.Edit(fc, func() { fc.Spec.ForeignProxyURL = through })
	authentication(discoveryv1alpha1.StatusEstablished, "")
	if requests := peer.all(); len(requests) != 1 || !requests[0].InBand || requests[0].Fingerprint != strings.Repeat("k", 43) {
		t.Errorf("the peer was asked: %+v", requests)
	}
	var secret corev1.Secret
	b.Must(b.Get(t.Context(), client.ObjectKey{Namespace: milan.TenantNamespace(), Name: remote.SecretName(milan.ClusterID)}, &secret))
	identity, err := remote.ParseIdentity(secret.Data)
	if err != nil || identity.APIServerURL != proxy.APIServerURL || identity.ProxyURL != through {
		t.Errorf("the identity leads to %s, %v", identity.APIServerURL, err)
	}

	// A peer that uses this cluster learns the address of our proxy with the answer to its request.
	b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(&mapping), &mapping))
	mapping.Status.PeerAddresses = map[string]string{milan.ClusterID: "10.70.0.33", "another": "10.71.0.33"}
	b.Must(b.Status().Update(t.Context(), &mapping))
	request := &sharingv1alpha1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: milan.TenantNamespace(), Name: "of-milan",
			Labels: map[string]string{labels.Replicated: "true", labels.Replication: "false", labels.OriginID: milan.ClusterID},
		},
		Spec: sharingv1alpha1.ResourceSliceSpec{ConsumerClusterID: milan.ClusterID, ProviderClusterID: "rome-id", NodeName: "liqo-rome"},
	}
	b.Make(request)
	request.Status.Phase = sharingv1alpha1.SliceAccepted
	b.Must(b.Status().Update(t.Context(), request))
	kubetest.Eventually(t, "the answer has the address of the proxy", func() error {
		if b.Read(request); !strings.HasPrefix(request.Status.ProxyURL, "http://milan-id:") || !strings.HasSuffix(request.Status.ProxyURL, "@10.70.0.33:8118") {
			return fmt.Errorf("it has %q", request.Status.ProxyURL)
		}
		return nil
	})
	b.Must(b.Delete(t.Context(), request))

	// Another address of the proxy is used at once, and asked for an identity.
	moved := strings.Replace(through, "10.9.0.7", "10.9.0.8", 1)
	b.Edit(fc, func() { fc.Spec.ForeignProxyURL = moved })
	kubetest.Eventually(t, "the identity leads to the other address", func() error {
		b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(&secret), &secret))
		if identity, err := remote.ParseIdentity(secret.Data); err != nil || identity.ProxyURL != moved {
			return fmt.Errorf("it leads to another one, %v", err)
		}
		return nil
	})

	// A Service that was made again has another address.
	b.Must(b.Delete(t.Context(), service))
	service = &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: proxy.Service},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: proxy.Port}}},
	}
	b.Make(service)
	b.Edit(fc, func() { fc.Spec.IncomingPeeringEnabled = discoveryv1alpha1.PeeringYes })
	mapped(service.Spec.ClusterIP)

	b.Edit(fc, func() { fc.Spec.OutgoingPeeringEnabled = discoveryv1alpha1.PeeringNo })
	b.Must(b.Delete(t.Context(), fc))
	for _, object := range []client.Object{fc, &mapping, accepted} {
		kubetest.Eventually(t, object.GetName()+" is gone", func() error {
			if err := b.Get(t.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
				return fmt.Errorf("still there: %w", err)
			}
			return nil
		})
	}
}

// tunnelTo is the tunnel to a peer whose external network is 10.9.0.0/16.
func tunnelTo(peer discoveryv1alpha1.ClusterIdentity) *netv1alpha1.TunnelEndpoint {
	return &netv1alpha1.TunnelEndpoint{
		ObjectMeta: metav1.ObjectMeta{Namespace: peer.TenantNamespace(), Name: peer.UniqueName(), Labels: map[string]string{labels.TunnelCluster: peer.ClusterID}},
		Spec: netv1alpha1.TunnelEndpointSpec{
			ClusterIdentity: netv1alpha1.ClusterIdentity{ClusterID: peer.ClusterID, ClusterName: peer.ClusterName},
			LocalPodCIDR:    "10.1.0.0/16", LocalNATPodCIDR: "None", LocalExternalCIDR: "10.2.0.0/16", LocalNATExternalCIDR: "None",
			RemotePodCIDR: "10.3.0.0/16", RemoteNATPodCIDR: "None", RemoteExternalCIDR: "10.9.0.0/16", RemoteNATExternalCIDR: "None",
			BackendType: "wireguard", BackendConfig: map[string]string{"publicKey": ""},
		},
	}
}

// TestAttackProxyOfAnother: the end of a peer leaves the proxy to the peer that has the same unique name.
func TestAttackProxyOfAnother(t *testing.T) {
	t.Parallel()
	b := peeringtest.NewCluster(t)
	proxies := ownproxy.Mappings{Client: b.Client, Own: ssa.NewApplier(b.Client, labels.OwnerForeignCluster)}
	mapping := &netv1alpha1.IPMapping{
		ObjectMeta: metav1.ObjectMeta{Name: ownproxy.Name(peeringtest.Rome), Labels: map[string]string{labels.ClusterID: peeringtest.Rome.ClusterID}},
		Spec:       netv1alpha1.IPMappingSpec{Address: "10.96.0.9", ClusterIDs: []string{peeringtest.Rome.ClusterID}},
	}
	b.Make(mapping)
	b.Must(proxies.Close(t.Context(), peeringtest.LikeRome))
	b.Read(mapping)
	b.Must(proxies.Close(t.Context(), peeringtest.Rome))
	b.Until("its own end takes it away", func() bool {
		return apierrors.IsNotFound(b.Get(t.Context(), client.ObjectKeyFromObject(mapping), mapping))
	})
}
