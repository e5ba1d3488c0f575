// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/auth/published"
	authserver "liqo.io/liqo/internal/peering/auth/server"
	"liqo.io/liqo/internal/peering/ownproxy"
	"liqo.io/liqo/internal/peering/peeringtest"
	"liqo.io/liqo/internal/peering/pins"
	"liqo.io/liqo/internal/peering/proxy"
	"liqo.io/liqo/internal/peering/tenant"
)

func usableTunnel(peer discoveryv1alpha1.ClusterIdentity) *netv1alpha1.TunnelEndpoint {
	tunnel := tunnelTo(peer)
	meta.SetStatusCondition(&tunnel.Status.Conditions, metav1.Condition{Type: netv1alpha1.ConditionUsable, Status: metav1.ConditionTrue, Reason: "Connected"})
	return tunnel
}

// newMilan is a provider with the network of Liqo.
func newMilan(t *testing.T) *peeringtest.Provider {
	t.Helper()
	return peeringtest.NewProvider(t, func(mgr manager.Manager, local discoveryv1alpha1.ClusterIdentity) error {
		tenants := tenant.New(mgr.GetClient(), mgr.GetAPIReader(), "liqo")
		return errors.Join(
			Setup(mgr, Options{
				Local: local, Namespace: "liqo", InternalNetwork: true, SharedToken: true, Connector: peeringtest.NewNoConnector(), Tenants: tenants,
			}),
			pins.Setup(mgr, pins.Options{Local: local, Namespace: "liqo", InternalNetwork: true, Tenants: tenants}))
	})
}

// tunnelEnv is a consumer, rome, with its provider, milan: controllers, authentication service and proxy of both are real. What connections and gateways do
// between the clusters, the test does.
type tunnelEnv struct {
	rome  *peeringtest.Cluster
	milan *peeringtest.Provider
	fc    *discoveryv1alpha1.ForeignCluster
	// front is between rome and the authentication service, proxy is what rome reaches through the tunnel, and api the API server behind that.
	front *kubetest.Proxy
	// instead is what answers at the address of front; empty for front.
	instead atomic.Value
	proxy   string
	api     atomic.Int32
	n       int
}

var romeIdentity = discoveryv1alpha1.ClusterIdentity{ClusterID: "aaaaaaaa-0000-4000-8000-000000000002", ClusterName: "rome"}

// inside is the address of milan's proxy for rome.
const inside = "10.9.0.7"

func newTunnelEnv(t *testing.T) *tunnelEnv {
	t.Helper()
	e := &tunnelEnv{milan: newMilan(t)}
	e.front = kubetest.NewProxy(t, e.milan.Address)
	e.serveProxy(t)
	e.rome = newFCEnv(t, func(o *Options) {
		o.Local = romeIdentity
		o.Dial = func(fc *discoveryv1alpha1.ForeignCluster) (Registrar, error) {
			return dial(fc, func(ctx context.Context, network, address string) (net.Conn, error) {
				if address == net.JoinHostPort(inside, fmt.Sprint(proxy.Port)) {
					address = e.proxy
				} else if instead, _ := e.instead.Load().(string); instead != "" && address == e.front.Address() {
					address = instead
				}
				return (&net.Dialer{Timeout: idsTimeout}).DialContext(ctx, network, address)
			})
		}
	})
	milan := e.milan.Local
	e.rome.Make(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "liqo", Name: auth.TokenSecretName(milan.ClusterID),
			Labels: map[string]string{labels.ClusterID: milan.ClusterID, labels.AuthToken: ""},
		},
		Data: map[string][]byte{tokenKey: []byte(e.milan.Secret + "." + e.milan.Provider.Fingerprint)},
	})
	e.fc = &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: discoveryv1alpha1.ForeignClusterSpec{
		ClusterIdentity: &milan, ForeignAuthURL: "https://" + e.front.Address(),
		OutgoingPeeringEnabled: discoveryv1alpha1.PeeringYes, IncomingPeeringEnabled: discoveryv1alpha1.PeeringNo,
	}}
	e.rome.Make(e.fc)
	e.authentication(t, "accepts the identity")
	return e
}

// serveProxy starts the proxy of milan.
func (e *tunnelEnv) serveProxy(t *testing.T) {
	t.Helper()
	api, err := net.Listen("tcp", "127.0.0.1:0")
	e.milan.Must(err)
	t.Cleanup(func() { api.Close() })
	go func() {
		for {
			connection, err := api.Accept()
			if err != nil {
				return
			}
			e.api.Add(1)
			connection.Close()
		}
	}()
	var key corev1.Secret
	kubetest.Eventually(t, "milan has a key of its proxy", func() error {
		return e.milan.Get(t.Context(), client.ObjectKey{Namespace: "liqo", Name: proxy.KeySecret}, &key)
	})
	served, err := proxy.New(proxy.Options{Key: key.Data[proxy.KeyName], Log: logr.Discard(), Upstreams: map[string]proxy.Upstream{
		proxy.APIServer: {Address: api.Addr().String()}, proxy.Auth: {Address: e.milan.Address, Share: proxy.AuthShare()},
	}})
	e.milan.Must(err)
	at, err := net.Listen("tcp", "127.0.0.1:0")
	e.milan.Must(err)
	e.proxy = at.Addr().String()
	kubetest.Start(t, "proxy", func(ctx context.Context) error { return served.Serve(ctx, at) })
	e.milan.Make(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: proxy.Service},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: proxy.Port}}},
	})
}

// join makes the tunnel between the clusters, and brings rome the answer to its request. It returns milan's copy of the request.
func (e *tunnelEnv) join(t *testing.T) *sharingv1alpha1.ResourceSlice {
	t.Helper()
	makeUsable := func(b *peeringtest.Cluster, peer discoveryv1alpha1.ClusterIdentity) {
		tunnel := usableTunnel(peer)
		status := tunnel.Status
		b.Make(tunnel)
		b.EditStatus(tunnel, func() { tunnel.Status = status })
	}
	makeUsable(e.milan.Cluster, romeIdentity)
	makeUsable(e.rome, e.milan.Local)
	request := e.request()
	e.milan.Make(request)
	e.milan.EditStatus(request, func() { request.Status.Phase = sharingv1alpha1.SliceAccepted })
	return request
}

// answer waits until milan reports its proxy, and carries that to rome.
func (e *tunnelEnv) answer(t *testing.T, request *sharingv1alpha1.ResourceSlice) {
	t.Helper()
	var mapping netv1alpha1.IPMapping
	kubetest.Eventually(t, "milan makes its proxy reachable for rome", func() error {
		return e.milan.Get(t.Context(), client.ObjectKey{Name: ownproxy.Name(romeIdentity)}, &mapping)
	})
	if spec := mapping.Spec; len(spec.ClusterIDs) != 1 || spec.ClusterIDs[0] != romeIdentity.ClusterID ||
		len(spec.Ports) != 1 || spec.Ports[0].Port != proxy.Port {
		t.Errorf("the mapping is %+v", spec)
	}
	e.milan.EditStatus(&mapping, func() { mapping.Status.PeerAddresses = map[string]string{romeIdentity.ClusterID: inside} })
	e.milan.Until("milan reports its proxy", func() bool { e.milan.Read(request); return request.Status.ProxyURL != "" })
	ours := &sharingv1alpha1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: e.milan.Local.TenantNamespace(), Name: "rome"}}
	e.rome.EditStatus(ours, func() {
		ours.Status.Phase, ours.Status.ProxyURL = sharingv1alpha1.SliceAccepted, request.Status.ProxyURL
	})
}

// authentication waits until the condition has text, and not without.
func (e *tunnelEnv) authentication(t *testing.T, text string, without ...string) {
	t.Helper()
	kubetest.Eventually(t, "authentication: "+text, func() error {
		e.rome.Read(e.fc)
		for _, one := range e.fc.Status.PeeringConditions {
			if one.Type == discoveryv1alpha1.AuthenticationStatus && one.Status == discoveryv1alpha1.StatusEstablished && strings.Contains(one.Message, text) &&
				(len(without) == 0 || !strings.Contains(one.Message, without[0])) {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", e.fc.Status.PeeringConditions)
	})
}

// token is that of rome's identity.
func (e *tunnelEnv) token(t *testing.T) string {
	t.Helper()
	var secret corev1.Secret
	e.rome.Must(e.rome.Get(t.Context(), client.ObjectKey{Namespace: e.milan.Local.TenantNamespace(), Name: remote.SecretName(e.milan.Local.ClusterID)}, &secret))
	identity, err := remote.ParseIdentity(secret.Data)
	e.rome.Must(err)
	if identity.ProxyURL != "" || !strings.HasPrefix(identity.APIServerURL, "https://127.0.0.1:") {
		t.Errorf("the identity leads to %s, through %q", identity.APIServerURL, identity.ProxyURL)
	}
	return identity.Token
}

// renew has rome's controller renew the identity, and returns an error if that takes longer than most.
func (e *tunnelEnv) renew(t *testing.T, most time.Duration) error {
	t.Helper()
	before := e.token(t)
	e.n++
	began := time.Now()
	e.rome.Edit(e.fc, func() { metav1.SetMetaDataAnnotation(&e.fc.ObjectMeta, labels.OwnKey, fmt.Sprintf("renew-%d", e.n)) })
	for e.token(t) == before {
		if time.Since(began) > most {
			return fmt.Errorf("renewal %d: no other identity after %v", e.n, most)
		}
		time.Sleep(10 * time.Millisecond) // the interval of the question
	}
	t.Logf("renewal %d took %v", e.n, time.Since(began).Round(time.Millisecond))
	return nil
}

// TestAttackNH2Tunnel: the authentication service of a provider is held, or a firewall is in front of it, or someone else answers at its address. The consumer
// renews its identity through the tunnel, in time.
// What it got for that leads to the authentication service, and not to the API server.
func TestAttackNH2Tunnel(t *testing.T) {
	t.Parallel()
	const usual, direct = 5 * time.Second, 20 * time.Second
	e := newTunnelEnv(t)
	request := e.join(t)
	if err := e.renew(t, direct); err != nil {
		t.Fatal(err)
	}
	e.authentication(t, "accepts the identity", "tunnel")
	e.answer(t, request)
	for _, attack := range []struct {
		name string
		mode int32
	}{{"held", kubetest.Swallow}, {"closed", kubetest.Refuse}} {
		e.front.Set(attack.mode)
		if err := e.renew(t, usual); err != nil {
			t.Fatalf("while the service is %s: %v", attack.name, err)
		}
		e.authentication(t, "was renewed through the tunnel: no authentication service answered at https://"+e.front.Address())
	}
	e.oneEvent(t, "IdentityRenewedInside", "no authentication service answered")
	e.front.Set(kubetest.Pass)
	for _, attack := range []struct {
		name, reason string
		by           http.Handler
	}{
		{
			"busy", "what answers at https://" + e.front.Address() + " gave no identity, and has not proven that it is the provider (busy)",
			http.HandlerFunc(answerBusy),
		},
		{"that of another cluster", "an unproven service answers at https://" + e.front.Address(), e.impostor()},
	} {
		service := httptest.NewTLSServer(attack.by)
		t.Cleanup(service.Close)
		e.instead.Store(service.Listener.Addr().String())
		if err := e.renew(t, usual); err != nil {
			t.Fatalf("while the service is %s: %v", attack.name, err)
		}
		e.authentication(t, "was renewed through the tunnel: "+attack.reason)
	}
	e.oneEvent(t, "ProviderUnproven", "an unproven service answers at https://"+e.front.Address())
	e.instead.Store("")
	e.asksForMore(t, request.Status.ProxyURL)

	if err := e.renew(t, direct); err != nil {
		t.Fatal(err)
	}
	e.authentication(t, "accepts the identity", "tunnel")
}

// oneEvent waits until there is one event for a reason, with text.
func (e *tunnelEnv) oneEvent(t *testing.T, reason, text string) {
	t.Helper()
	kubetest.Eventually(t, "there is one event "+reason, func() error {
		var events eventsv1.EventList
		e.rome.Must(e.rome.List(t.Context(), &events))
		var notes []string
		for i := range events.Items {
			if events.Items[i].Reason == reason {
				notes = append(notes, events.Items[i].Note)
			}
		}
		if len(notes) != 1 || !strings.Contains(notes[0], text) {
			return fmt.Errorf("there are %q", notes)
		}
		return nil
	})
}

// answerBusy is what anyone on the way can answer, as no answer but a grant is signed.
func answerBusy(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Retry-After", "300")
	w.WriteHeader(http.StatusTooManyRequests)
	fmt.Fprintf(w, `{"code":429,"reason":%q,"message":"busy"}`, auth.ReasonTooMany)
}

// impostor is the authentication service of another cluster.
func (e *tunnelEnv) impostor() http.Handler {
	keys, err := clusterkey.Generate()
	e.milan.Must(err)
	server, err := authserver.New(authserver.Options{Cluster: e.milan.Local, Keys: sameKeys(keys), Log: logr.Discard()})
	e.milan.Must(err)
	return server
}

type sameKeys clusterkey.Keys

func (k sameKeys) ClusterKeys(context.Context) (clusterkey.Keys, error) {
	return clusterkey.Keys(k), nil
}

// asksForMore uses the pass for the API server.
func (e *tunnelEnv) asksForMore(t *testing.T, through string) {
	t.Helper()
	parsed, err := url.Parse(through)
	e.milan.Must(err)
	connection, err := net.Dial("tcp", e.proxy)
	e.milan.Must(err)
	defer connection.Close()
	fmt.Fprintf(
		connection, "CONNECT %s HTTP/1.1\r\nHost: a\r\nProxy-Authorization: Basic %s\r\n\r\n", proxy.APIServer,
		base64.StdEncoding.EncodeToString([]byte(parsed.User.String())),
	)
	response, err := http.ReadResponse(bufio.NewReader(connection), &http.Request{Method: http.MethodConnect})
	e.milan.Must(err)
	if response.Body.Close(); response.StatusCode != http.StatusForbidden || e.api.Load() != 0 {
		t.Errorf("the pass leads to the API server: %s, %d connections", response.Status, e.api.Load())
	}
}

// TestRenewsInside: a provider opens its proxy to an accepted consumer with a tunnel, with a pass for the authentication service only, also while it offers
// that cluster to be used in turn.
func TestRenewsInside(t *testing.T) {
	t.Parallel()
	p := newMilan(t)
	p.Make(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: proxy.Service},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: proxy.Port}}},
	})
	p.Make(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: published.Service, Annotations: map[string]string{labels.OverrideAddress: "milan.example.org"}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}},
	})
	_, err := p.Register(p.Registration(romeIdentity))
	p.Must(err)
	e := &tunnelEnv{milan: p}
	var fc discoveryv1alpha1.ForeignCluster
	p.Must(p.Get(t.Context(), client.ObjectKey{Name: "rome"}, &fc))
	mapping := &netv1alpha1.IPMapping{ObjectMeta: metav1.ObjectMeta{Name: ownproxy.Name(romeIdentity)}}
	reaches := func(only string) {
		t.Helper()
		kubetest.Eventually(t, "rome reaches the proxy, for renewals only: "+only, func() error {
			err := p.Get(t.Context(), client.ObjectKeyFromObject(mapping), mapping)
			if only == "not at all" && apierrors.IsNotFound(err) || err == nil && mapping.Annotations[labels.RenewalsOnly] == only {
				return nil
			}
			return fmt.Errorf("the mapping has %v, %w", mapping.Annotations, err)
		})
	}
	request := e.request()
	p.Make(request)
	p.EditStatus(request, func() { request.Status.Phase = sharingv1alpha1.SliceAccepted })
	e.seen(&fc)
	reaches("not at all") // without a tunnel, rome has no address for it
	p.Make(tunnelTo(romeIdentity))
	reaches("true")
	p.Edit(&fc, func() { fc.Spec.IncomingPeeringEnabled = discoveryv1alpha1.PeeringNo })
	reaches("not at all")
	p.Edit(&fc, func() { fc.Spec.IncomingPeeringEnabled = discoveryv1alpha1.PeeringYes })
	reaches("true")
	addressed := func() {
		p.EditStatus(mapping, func() { mapping.Status.PeerAddresses = map[string]string{romeIdentity.ClusterID: inside} })
	}
	addressed()

	var key corev1.Secret
	p.Must(p.Get(t.Context(), client.ObjectKey{Namespace: "liqo", Name: proxy.KeySecret}, &key))
	some, err := proxy.AuthURL(key.Data[proxy.KeyName], romeIdentity.ClusterID, inside)
	p.Must(err)
	all, err := proxy.URL(key.Data[proxy.KeyName], romeIdentity.ClusterID, inside)
	p.Must(err)
	p.Until("the answer has a URL for renewals", func() bool { p.Read(request); return request.Status.ProxyURL == some })

	// milan uses rome in turn.
	p.Edit(&fc, func() {
		fc.Spec.OutgoingPeeringEnabled, fc.Spec.ForeignAuthURL = discoveryv1alpha1.PeeringYes, "https://192.0.2.1"
	})
	ours := &sharingv1alpha1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: romeIdentity.TenantNamespace(), Name: p.Local.ClusterName}}
	offers := func(want string) {
		t.Helper()
		kubetest.Eventually(t, "the request offers "+want, func() error {
			if err := p.Get(t.Context(), client.ObjectKeyFromObject(ours), ours); err != nil || ours.Spec.AuthURL == "" || ours.Spec.ProxyURL != want {
				return fmt.Errorf("it has %q and %q, %w", ours.Spec.AuthURL, ours.Spec.ProxyURL, err)
			}
			return nil
		})
	}
	offers("")
	reaches("true")
	wanted := func(is bool) {
		p.EditStatus(ours, func() { ours.Status.Phase, ours.Status.ProxyWanted = sharingv1alpha1.SliceAccepted, is })
	}
	wanted(true)
	offers(all)
	reaches("")
	// Refused, rome reaches nothing, although its request is still there; accepted again, it reaches what it reached.
	p.Edit(&fc, func() { fc.Spec.IncomingPeeringEnabled = discoveryv1alpha1.PeeringNo })
	reaches("not at all")
	p.Edit(&fc, func() { fc.Spec.IncomingPeeringEnabled = discoveryv1alpha1.PeeringYes })
	reaches("")
	addressed()
	offers(all)
	wanted(false)
	p.Edit(&fc, func() { fc.Spec.IncomingPeeringEnabled = discoveryv1alpha1.PeeringAuto })
	e.seen(&fc)
	offers(all) // what works stays
	reaches("")
	if p.Read(request); request.Status.ProxyURL != some {
		t.Error("the answer has another URL")
	}
	p.Edit(&fc, func() { fc.Spec.OutgoingPeeringEnabled = discoveryv1alpha1.PeeringNo })
	p.Must(p.Delete(t.Context(), request))
	reaches("not at all")
}

// request is milan's copy of rome's request.
func (e *tunnelEnv) request() *sharingv1alpha1.ResourceSlice {
	return &sharingv1alpha1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: romeIdentity.TenantNamespace(), Name: "rome",
			Labels: map[string]string{labels.Replicated: "true", labels.Replication: "false", labels.OriginID: romeIdentity.ClusterID},
		},
		Spec: sharingv1alpha1.ResourceSliceSpec{ConsumerClusterID: romeIdentity.ClusterID, ProviderClusterID: e.milan.Local.ClusterID, NodeName: "liqo-milan"},
	}
}

// seen waits until milan has handled the last change of its ForeignCluster.
func (e *tunnelEnv) seen(fc *discoveryv1alpha1.ForeignCluster) {
	e.milan.T.Helper()
	e.milan.Edit(fc, func() { fc.Spec.TTL++ })
	e.milan.Until("the change is handled", func() bool { e.milan.Read(fc); return fc.Status.ObservedGeneration == fc.Generation })
}
