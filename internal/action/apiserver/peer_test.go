// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	discoveryac "liqo.io/liqo/apis/applyconfiguration/discovery/v1alpha1"
	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/action/actiontest"
	"liqo.io/liqo/internal/action/foreign"
	"liqo.io/liqo/internal/action/peer"
	"liqo.io/liqo/internal/action/preflight"
	"liqo.io/liqo/internal/action/status"
	"liqo.io/liqo/internal/action/unpeer"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/peering/auth"
	authserver "liqo.io/liqo/internal/peering/auth/server"
)

const goodSecret = "0123456789abcdef"

var (
	providerKeys = clusterkey.Keys{Current: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))}
	goodToken    = auth.Token{Secret: goodSecret, Fingerprint: providerKeys.Fingerprint()}.String()
)

// secrets and noPeers back a real authentication service. A check must never create a peer.
type secrets struct{}

func (secrets) Tokens(context.Context) ([]auth.AcceptedToken, error) {
	return []auth.AcceptedToken{{Secret: goodSecret}}, nil
}
func (secrets) ClusterKeys(context.Context) (clusterkey.Keys, error) { return providerKeys, nil }

type noPeers struct {
	authserver.Peers
	t *testing.T
}

func (p noPeers) Pinned(context.Context, string) (auth.Pin, error) {
	return auth.Pin{}, errors.New("none")
}

func (p noPeers) Pin(context.Context, auth.Pin) (auth.Pin, bool, error) {
	p.t.Error("preflight pinned a key")
	return auth.Pin{}, false, errors.New("not here")
}

// provider is the authentication service of another cluster; ids, if not nil, replaces its answer to GET /ids.
func provider(t *testing.T, ids map[string]any, date time.Time) string {
	t.Helper()
	service, err := authserver.New(authserver.Options{
		Cluster:              discoveryv1alpha1.ClusterIdentity{ClusterID: actiontest.RemoteID, ClusterName: "milan"},
		EnableAuthentication: true, Tokens: secrets{}, Keys: secrets{}, Peers: noPeers{t: t}, Log: logr.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !date.IsZero() {
			w.Header().Set("Date", date.UTC().Format(http.TimeFormat))
		}
		if ids != nil && r.URL.Path == "/ids" {
			_ = json.NewEncoder(w).Encode(ids)
			return
		}
		if ids != nil && ids["clusterId"] != actiontest.RemoteID {
			t.Errorf("another cluster was asked %s, and may have seen the token", r.URL.Path)
		}
		service.ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = nil
	t.Cleanup(server.Close)
	return server.URL
}

func peerOptions(url string, change func(*peer.Options)) peer.Options {
	o := peer.Options{Name: "milan", Namespace: actiontest.Namespace, Timeout: 20 * time.Second, AuthURL: url, ClusterID: actiontest.RemoteID, Token: goodToken}
	if change != nil {
		change(&o)
	}
	return o
}

// testBadInput: each row fails with a message that names the problem, and changes nothing.
func testBadInput(t *testing.T, config *rest.Config) {
	const otherID = "33333333-3333-4333-8333-333333333333"
	wrong := auth.Token{Secret: "another secret, which is wrong", Fingerprint: providerKeys.Fingerprint()}.String()
	otherKey := auth.Token{Secret: goodSecret, Fingerprint: strings.Repeat("A", 43)}.String()
	ids := func(id string, least int) map[string]any {
		return map[string]any{"clusterId": id, "clusterName": "milan", "version": "v9", "protocol": map[string]int{"min": least, "max": least + 1}}
	}
	for name, test := range map[string]struct {
		known  *discoveryv1alpha1.ForeignCluster
		ids    map[string]any
		change func(*peer.Options)
		want   string
	}{
		"wrong token":             {nil, nil, func(o *peer.Options) { o.Token = wrong }, "does not accept the token"},
		"token without the key":   {nil, nil, func(o *peer.Options) { o.Token = goodSecret }, "--insecure-skip-provider-verify"},
		"token of another key":    {nil, nil, func(o *peer.Options) { o.Token = otherKey }, "is not proven"},
		"key waived, wrong token": {nil, nil, func(o *peer.Options) { o.Token, o.InsecureSkipProviderVerify = "wrong", true }, "does not accept the token"},
		"empty token":             {nil, nil, func(o *peer.Options) { o.Token = "" }, "is empty"},
		"no URL":                  {nil, nil, func(o *peer.Options) { o.AuthURL = "milan" }, "https://HOST"},
		"URL without TLS":         {nil, nil, func(o *peer.Options) { o.AuthURL = "http://192.0.2.1" }, "https://HOST"},
		"URL with a wrong port":   {nil, nil, func(o *peer.Options) { o.AuthURL = "https://192.0.2.1:70000" }, "not a port"},
		"nothing listens":         {nil, nil, func(o *peer.Options) { o.AuthURL = "https://127.0.0.1:1" }, "does not answer"},
		"own cluster ID":          {nil, nil, func(o *peer.Options) { o.ClusterID = actiontest.LocalID }, "this cluster's own ID"},
		"no cluster ID":           {nil, nil, func(o *peer.Options) { o.ClusterID = "milan" }, "UUID"},
		"bad name":                {nil, nil, func(o *peer.Options) { o.Name = "Milan_1" }, "cannot be the name"},
		"long name":               {nil, nil, func(o *peer.Options) { o.Name = strings.Repeat("m", 64) }, "no more than 63"},
		"not installed":           {nil, nil, func(o *peer.Options) { o.Namespace = "default" }, "not installed"},
		"name taken":              {actiontest.Known("milan", otherID, discoveryv1alpha1.OutOfBand, labels.DiscoveryManual), nil, nil, "belongs to another cluster"},
		"known by another name": {
			actiontest.Known("mailand", actiontest.RemoteID, discoveryv1alpha1.OutOfBand, labels.DiscoveryManual), nil, nil,
			`as ForeignCluster "mailand"`,
		},
		"peered in-band": {
			actiontest.Known("milan", actiontest.RemoteID, discoveryv1alpha1.InBand, labels.DiscoveryManual), nil, nil, "peering type InBand",
		},
		"another cluster there":    {nil, ids(otherID, 1), nil, "answers as cluster " + otherID},
		"version outside":          {nil, ids(actiontest.RemoteID, 7), nil, "speaks protocol"},
		"two problems, both named": {nil, nil, func(o *peer.Options) { o.Name, o.Token = "Milan", wrong }, "does not accept the token"},
	} {
		t.Run(name, func(t *testing.T) {
			c := actiontest.Installed(t, config)
			if test.known != nil {
				actiontest.Create(t, c, test.known)
			}
			before := actiontest.Inventory(t, c)
			progress := &actiontest.Recorder{}
			err := peer.OutOfBand(t.Context(), c, peerOptions(provider(t, test.ids, time.Time{}), test.change), progress)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
			var refused *preflight.Error
			if !errors.As(err, &refused) {
				t.Errorf("error is a %T", err)
			} else if finding := refused.Findings[0]; finding.Remedy == "" || finding.Check == "" {
				t.Errorf("no remedy: %+v", finding)
			}
			if strings.Contains(progress.Text()+err.Error(), goodToken) {
				t.Error("the output holds the token")
			}
			if after := actiontest.Inventory(t, c); after != before {
				t.Errorf("changed:\n%s\nbefore:\n%s", after, before)
			}
		})
	}
}

func TestUnreachableAPI(t *testing.T) {
	c := actiontest.Connect(t, &rest.Config{Host: "https://127.0.0.1:1"})
	for name, act := range map[string]func() error{
		"peer": func() error {
			return peer.Enable(t.Context(), c, peer.Options{Name: "milan", Timeout: time.Minute}, &actiontest.Recorder{})
		},
		"peer out-of-band": func() error {
			return peer.OutOfBand(t.Context(), c, peerOptions("https://127.0.0.1:1", nil), &actiontest.Recorder{})
		},
		"unpeer": func() error {
			return unpeer.OutOfBand(t.Context(), c, unpeer.Options{Name: "milan", Timeout: time.Minute}, &actiontest.Recorder{})
		},
		"status": func() error { _, err := status.Read(t.Context(), c, actiontest.Namespace); return err },
	} {
		if err := act(); err == nil || !strings.Contains(err.Error(), "127.0.0.1") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// enable peers until the peering is enabled, and returns what was printed.
func enable(t *testing.T, c client.WithWatch, o peer.Options) (*actiontest.Recorder, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lines := &watching{text: "Peering enabled", act: cancel}
	err := peer.OutOfBand(ctx, c, o, lines)
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return &lines.Recorder, err
}

func testWarnings(t *testing.T, config *rest.Config) {
	c := actiontest.Installed(t, config)
	ahead := provider(t, nil, time.Now().Add(24*time.Hour))
	lines, err := enable(t, c, peerOptions(ahead, nil))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(lines.Text(), "WARN clocks: the provider's clock is 2") || !strings.Contains(lines.Text(), "ahead of") {
		t.Errorf("clock: %s", lines.Text())
	}
	skip := func(o *peer.Options) { o.SkipPreflight = true }
	if lines, err = enable(t, c, peerOptions("https://127.0.0.1:1", skip)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(lines.Text(), "WARN authentication endpoint") {
		t.Errorf("unreachable: %s", lines.Text())
	}
	// A refusal still fails.
	if lines, err = enable(t, c, peerOptions(ahead, func(o *peer.Options) { skip(o); o.Token = "wrong" })); err == nil {
		t.Errorf("a wrong token passed: %s", lines.Text())
	}
}

// testPeer does the work of the controllers: it sets one condition after the other and then creates the node, while the command
// watches through a connection that breaks.
func testPeer(t *testing.T, config *rest.Config) {
	direct := actiontest.Installed(t, config)
	through, wire := newWire(t, config)
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	progress := &actiontest.Recorder{}
	result := make(chan error, 1)
	url := provider(t, nil, time.Time{})
	c := actiontest.Connect(t, through)
	go func() { result <- peer.OutOfBand(ctx, c, peerOptions(url, nil), progress) }()

	reports := func(text string) {
		t.Helper()
		if err := actiontest.Eventually(ctx, func(context.Context) error {
			if !strings.Contains(progress.Text(), text) {
				return errors.New(progress.Text())
			}
			return nil
		}); err != nil {
			t.Fatalf("%q was never reported: %v", text, err)
		}
	}
	set := func(conditions ...discoveryv1alpha1.PeeringCondition) {
		t.Helper()
		if err := actiontest.SetStatus(ctx, direct, "milan", actiontest.Wants(discoveryv1alpha1.PeeringYes), conditions...); err != nil {
			t.Fatal(err)
		}
	}
	set(actiontest.Condition(discoveryv1alpha1.AuthenticationStatus, discoveryv1alpha1.StatusError, "no answer"))
	reports("WARN AuthenticationStatus is Error: no answer")
	set(actiontest.Condition(discoveryv1alpha1.AuthenticationStatus, discoveryv1alpha1.StatusEstablished, ""))
	reports(`Authenticated to cluster "milan"`)
	wire.cut()
	set(actiontest.Condition(discoveryv1alpha1.OutgoingPeering, discoveryv1alpha1.StatusEstablished, ""))
	wire.mend()
	reports("Outgoing peering activated")
	set(actiontest.Condition(discoveryv1alpha1.NetworkStatus, discoveryv1alpha1.StatusExternal, ""))
	reports("Waiting for the virtual node")
	virtual := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "liqo-milan", Labels: map[string]string{labels.Type: labels.TypeVirtualNode, labels.RemoteClusterID: actiontest.RemoteID},
	}}
	actiontest.Create(t, direct, virtual)
	virtual.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := direct.Status().Update(ctx, virtual); err != nil {
		t.Fatal(err)
	}
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	reports("INFO Peering successfully established")

	var fc discoveryv1alpha1.ForeignCluster
	var secret corev1.Secret
	if err := errors.Join(direct.Get(ctx, client.ObjectKey{Name: "milan"}, &fc),
		direct.Get(ctx, client.ObjectKey{Namespace: actiontest.Namespace, Name: "remote-token-" + actiontest.RemoteID}, &secret)); err != nil {
		t.Fatal(err)
	}
	if fc.Labels[labels.DiscoveryType] != labels.DiscoveryManual || fc.Spec.ForeignAuthURL != url || string(secret.Data["token"]) != goodToken {
		t.Errorf("objects: %+v %v", fc, secret.Labels)
	}
	// A second run changes nothing.
	before := actiontest.Inventory(t, direct)
	if err := peer.OutOfBand(ctx, direct, peerOptions(url, nil), progress); err != nil {
		t.Fatal(err)
	}
	if after := actiontest.Inventory(t, direct); after != before {
		t.Errorf("the second run changed:\n%s\nbefore:\n%s", after, before)
	}
}

func testPeerReusesIncoming(t *testing.T, config *rest.Config) {
	c := actiontest.Installed(t, config)
	incoming := actiontest.Known("milan-abc123", actiontest.RemoteID, discoveryv1alpha1.OutOfBand, labels.DiscoveryIncoming)
	incoming.Spec.ClusterIdentity.ClusterName = "milano"
	incoming.Spec.ForeignAuthURL = ""
	actiontest.Create(t, c, incoming)
	if err := peer.Enable(t.Context(), c, peer.Options{Name: incoming.Name, Timeout: time.Second}, &actiontest.Recorder{}); err == nil ||
		!strings.Contains(err.Error(), "generate peer-command") {
		t.Errorf("without URL: %v", err)
	}
	progress := &actiontest.Recorder{}
	err := peer.OutOfBand(t.Context(), c, peerOptions(provider(t, nil, time.Time{}), func(o *peer.Options) { o.Timeout = 2 * time.Second }), progress)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "AuthenticationStatus is None") {
		t.Errorf("the provider never answered, and the error is: %v", err)
	}
	var list discoveryv1alpha1.ForeignClusterList
	if err := c.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 {
		t.Fatalf("%d ForeignClusters", len(list.Items))
	}
	got := list.Items[0]
	if got.Name != incoming.Name || got.Spec.ClusterIdentity.ClusterName != "milano" || got.Spec.OutgoingPeeringEnabled != discoveryv1alpha1.PeeringYes ||
		got.Labels[labels.DiscoveryType] != labels.DiscoveryManual {
		t.Errorf("reused as %+v", got)
	}
}

// testPeerLeavesTunnel: a cluster that was used through the tunnel publishes its address, and this one peers with it again: the proxy in the tunnel does not
// lead to that address. A proxy that an administrator has chosen stays.
func testPeerLeavesTunnel(t *testing.T, config *rest.Config) {
	const chosen = "http://proxy.example.com:3128"
	for name, row := range map[string]struct{ authURL, proxyURL, want string }{
		"through the tunnel": {discoveryv1alpha1.AuthURLInside, "http://" + actiontest.LocalID + ":pass@10.2.0.17:8118", ""},
		"through a proxy":    {"https://192.0.2.9", chosen, chosen},
	} {
		t.Run(name, func(t *testing.T) {
			c := actiontest.Installed(t, config)
			incoming := actiontest.Known("milan", actiontest.RemoteID, discoveryv1alpha1.OutOfBand, labels.DiscoveryIncoming)
			incoming.Spec.ForeignAuthURL, incoming.Spec.ForeignProxyURL = row.authURL, row.proxyURL
			incoming.Spec.OutgoingPeeringEnabled = discoveryv1alpha1.PeeringYes
			actiontest.Create(t, c, incoming)
			o := peerOptions(provider(t, nil, time.Time{}), nil)
			apply := func() *discoveryv1alpha1.ForeignCluster {
				t.Helper()
				if _, err := enable(t, c, o); err != nil {
					t.Fatal(err)
				}
				fc, err := foreign.Get(t.Context(), c, "milan")
				if err != nil {
					t.Fatal(err)
				}
				return fc
			}
			first := apply()
			if first.Spec.ForeignAuthURL != o.AuthURL || first.Spec.ForeignProxyURL != row.want {
				t.Errorf("%s is reached through %q, want %q", first.Spec.ForeignAuthURL, first.Spec.ForeignProxyURL, row.want)
			}
			if second := apply(); second.ResourceVersion != first.ResourceVersion {
				t.Errorf("the second run changed the object: %+v", second)
			}
		})
	}
}

// testPeerFirstCome: another cluster has registered under the ID of the provider, with its own key. It would keep the rights of a consumer if the token of the
// real provider replaced that key.
func testPeerFirstCome(t *testing.T, config *rest.Config) {
	c := actiontest.Installed(t, config)
	thief := actiontest.Known("milan", actiontest.RemoteID, discoveryv1alpha1.OutOfBand, labels.DiscoveryIncoming)
	thief.Spec.ClusterKey = strings.Repeat("A", 43)
	actiontest.Create(t, c, thief)
	pin := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: actiontest.Namespace, Name: auth.PinName(actiontest.RemoteID)}}
	actiontest.Create(t, c, pin)
	before := actiontest.Inventory(t, c)
	err := peer.OutOfBand(t.Context(), c, peerOptions(provider(t, nil, time.Time{}), nil), &actiontest.Recorder{})
	var refused *preflight.Error
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), thief.Spec.ClusterKey) || !strings.Contains(err.Error(), "`liqoctl unpeer out-of-band milan`") {
		t.Errorf("registered with another key: %v", err)
	}
	if after := actiontest.Inventory(t, c); after != before {
		t.Errorf("changed:\n%s\nbefore:\n%s", after, before)
	}
	// A cluster that is not registered gets nothing here, so its new key counts: all checks pass, and the command is interrupted after them.
	if err := c.Delete(t.Context(), pin); err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	if err := peer.OutOfBand(
		ctx, interruptedAfterApply(c, interrupt), peerOptions(provider(t, nil, time.Time{}), nil), &actiontest.Recorder{},
	); !errors.Is(err, context.Canceled) {
		t.Errorf("not registered: %v", err)
	}
}

// interruptedAfterApply is a client whose user presses Ctrl-C after the first apply.
func interruptedAfterApply(c client.WithWatch, interrupt func()) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Apply: func(ctx context.Context, inner client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			defer interrupt()
			return inner.Apply(ctx, object, options...)
		},
	})
}

// testFailedPeerNoToken: a command that ends before the ForeignCluster exists leaves no token. That of a peering that was there before stays.
func testFailedPeerNoToken(t *testing.T, config *rest.Config) {
	for name, row := range map[string]struct{ before, refused, another, stays bool }{
		"interrupted":                 {},
		"refused":                     {refused: true},
		"interrupted, known before":   {before: true, stays: true},
		"refused, but it was applied": {before: true, refused: true, stays: true},
		"refused, and another command peers with the same cluster": {refused: true, another: true, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := actiontest.Installed(t, config)
			if row.before {
				actiontest.Create(t, c, actiontest.Known("milan", actiontest.RemoteID, discoveryv1alpha1.OutOfBand, labels.DiscoveryManual))
			}
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			through, want := interruptedAfterApply(c, interrupt), context.Canceled
			if row.refused {
				want = apierrors.NewBadRequest("refused")
				through = interceptor.NewClient(c, interceptor.Funcs{
					Apply: func(ctx context.Context, inner client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
						if _, ok := object.(*discoveryac.ForeignClusterApplyConfiguration); ok {
							return want
						}
						return inner.Apply(ctx, object, options...)
					},
					Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
						err := inner.Get(ctx, key, object, options...)
						if _, ok := object.(*discoveryv1alpha1.ForeignCluster); ok && row.another && apierrors.IsNotFound(err) { // that command has stored its token just now
							theirs := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: actiontest.Namespace, Name: "remote-token-" + actiontest.RemoteID}}
							patch := client.RawPatch(types.MergePatchType, []byte(`{"stringData":{"token":"another"}}`))
							if err := client.IgnoreNotFound(inner.Patch(ctx, theirs, patch)); err != nil {
								t.Error(err)
							}
						}
						return err
					},
				})
			}
			if err := peer.OutOfBand(ctx, through, peerOptions(provider(t, nil, time.Time{}), nil), &actiontest.Recorder{}); !errors.Is(err, want) {
				t.Fatalf("the error is %v, want %v", err, want)
			}
			err := c.Get(t.Context(), client.ObjectKey{Namespace: actiontest.Namespace, Name: "remote-token-" + actiontest.RemoteID}, &corev1.Secret{})
			if client.IgnoreNotFound(err) != nil || (err == nil) != row.stays {
				t.Errorf("the Secret with the token: %v; want it to stay: %t", err, row.stays)
			}
		})
	}
}
