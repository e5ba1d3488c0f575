// SPDX-License-Identifier: Apache-2.0

// Package peeringtest is what the tests of the controllers of a peering share: a cluster, and a provider that consumers can register with.
package peeringtest

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	liqo "liqo.io/liqo/deployments/liqo"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/kube/crds"
	"liqo.io/liqo/internal/kube/kubetest"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/peering/auth"
	authclient "liqo.io/liqo/internal/peering/auth/client"
	authserver "liqo.io/liqo/internal/peering/auth/server"
	"liqo.io/liqo/internal/peering/replicate"
)

// NoConnector connects to no peer.
type NoConnector struct {
	Changes chan event.TypedGenericEvent[string]
}

func (NoConnector) Connect(context.Context, replicate.Peer) error     { return nil }
func (NoConnector) Disconnect(string)                                 {}
func (NoConnector) State(string) replicate.State                      { return replicate.State{} }
func (l NoConnector) Changed() <-chan event.TypedGenericEvent[string] { return l.Changes }

// NewNoConnector returns a connector that reports no change.
func NewNoConnector() NoConnector { return NoConnector{make(chan event.TypedGenericEvent[string])} }

// Cluster is a real API server with our definitions and the install namespace.
type Cluster struct {
	kubetest.Env
	admin *rest.Config
}

// NewCluster starts no controller.
func NewCluster(t *testing.T) *Cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	b := &Cluster{Env: kubetest.Env{T: t}, admin: kubetest.Cluster(t)}
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, discoveryv1alpha1.AddToScheme, netv1alpha1.AddToScheme, sharingv1alpha1.AddToScheme, crds.AddToScheme,
	} {
		b.Must(add(scheme))
	}
	var err error
	b.Client, err = client.New(b.admin, client.Options{Scheme: scheme})
	b.Must(err)
	definitions, err := crds.Load(liqo.FS)
	b.Must(err)
	b.Must(crds.Apply(t.Context(), b.Client, definitions, func(string) {}))
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}})
	return b
}

// Start starts controllers.
func (b *Cluster) Start(setup func(manager.Manager) error) {
	b.T.Helper()
	mgr, err := kubemanager.New(b.admin, kubemanager.Options{Scheme: b.Scheme(), Namespace: "liqo", SkipNameValidation: true})
	b.Must(err)
	b.Must(setup(mgr))
	kubetest.Start(b.T, "manager", mgr.Start)
}

// Provider is a provider: a real API server with controllers, and the authentication service.
type Provider struct {
	*Cluster
	Local    discoveryv1alpha1.ClusterIdentity
	Provider authclient.Provider
	// Consumer calls the authentication service, which listens at address.
	Consumer *authclient.Client
	Address  string
	// Secret is that of the token.
	Secret string
}

// NewProvider starts the controllers of a provider, which create its key and its shared token, and its authentication service.
func NewProvider(t *testing.T, setup func(mgr manager.Manager, local discoveryv1alpha1.ClusterIdentity) error) *Provider {
	t.Helper()
	p := &Provider{Cluster: NewCluster(t), Local: discoveryv1alpha1.ClusterIdentity{ClusterID: "aaaaaaaa-0000-4000-8000-000000000001", ClusterName: "milan"}}
	p.Start(func(mgr manager.Manager) error { return setup(mgr, p.Local) })
	core := kubernetes.NewForConfigOrDie(p.admin).CoreV1()
	keys := &authserver.SecretKeys{Secrets: core, Namespace: "liqo"}
	server, err := authserver.New(authserver.Options{
		Cluster: p.Local, EnableAuthentication: true, Tokens: authserver.SecretTokens{Secrets: core, Namespace: "liqo"}, Keys: keys, Log: logr.Discard(),
		Peers: authserver.Registry{Client: core, Namespace: "liqo", Address: authserver.Address{URL: p.admin.Host, TrustedCA: true}},
	})
	p.Must(err)
	service := httptest.NewTLSServer(server)
	t.Cleanup(service.Close)
	p.Address = service.Listener.Addr().String()
	p.Consumer, err = authclient.New(service.URL, authclient.Options{InsecureSkipTLSVerify: true})
	p.Must(err)
	t.Cleanup(p.Consumer.Close)

	var token corev1.Secret
	var own clusterkey.Keys
	kubetest.Eventually(t, "the provider has a token and a key", func() error {
		own, err = keys.ClusterKeys(t.Context())
		return errors.Join(err, p.Get(t.Context(), client.ObjectKey{Namespace: "liqo", Name: auth.SharedTokenSecret}, &token))
	})
	p.Provider, p.Secret = authclient.Provider{ID: p.Local.ClusterID, Fingerprint: own.Fingerprint()}, string(token.Data[auth.SharedTokenKey])
	return p
}

// Registration is the first contact of a cluster, with new keys and the token.
func (p *Provider) Registration(of discoveryv1alpha1.ClusterIdentity) authclient.Registration {
	return authclient.Registration{Provider: p.Provider, Cluster: of, Secret: p.Secret, Key: p.NewKey(), ClusterKey: p.NewKey()}
}

// Register makes first contact, as a consumer does: again if the provider has not made the tenant within the time that one request may take.
func (p *Provider) Register(r authclient.Registration) (grant auth.Grant, err error) {
	p.T.Helper()
	kubetest.Eventually(p.T, "the provider decides on first contact", func() error {
		grant, err = p.Consumer.Register(p.T.Context(), r)
		var late *auth.Error
		if errors.As(err, &late) && late.Reason == auth.ReasonTenantNotReady {
			return err
		}
		return nil
	})
	return grant, err
}

func (p *Provider) NewKey() ed25519.PrivateKey {
	p.T.Helper()
	made, err := clusterkey.Generate()
	p.Must(err)
	return made.Current
}

// PinOf is a pin with new keys, as the authentication service writes it; namespace is that of an admitted peer.
func (b *Cluster) PinOf(peer discoveryv1alpha1.ClusterIdentity, namespace string) *corev1.ConfigMap {
	b.T.Helper()
	key := func() string {
		made, err := clusterkey.Generate()
		b.Must(err)
		return base64.StdEncoding.EncodeToString(clusterkey.Public(made.Current))
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "liqo", Name: auth.PinName(peer.ClusterID), Labels: map[string]string{labels.PinnedKey: "true", labels.ClusterID: peer.ClusterID},
		},
		Data: map[string]string{
			auth.PinClusterID: peer.ClusterID, auth.PinClusterName: peer.ClusterName, auth.PinPublicKey: key(), auth.PinClusterKey: key(),
			auth.PinNamespace: namespace,
		},
	}
}

// ThereIs reports whether an object exists, and reads it.
func (p *Provider) ThereIs(object client.Object) bool {
	p.T.Helper()
	err := p.Get(p.T.Context(), client.ObjectKeyFromObject(object), object)
	p.Must(client.IgnoreNotFound(err))
	return !apierrors.IsNotFound(err)
}

// Two clusters whose IDs have hashes with the same first six digits: a program finds the second in seconds.
var (
	Rome     = discoveryv1alpha1.ClusterIdentity{ClusterID: "bbbbbbbb-0000-4000-8000-000000000002", ClusterName: "rome"}
	LikeRome = discoveryv1alpha1.ClusterIdentity{ClusterID: "dddddddd-0000-4000-8000-00000150951e", ClusterName: "rome"}
)
