// SPDX-License-Identifier: Apache-2.0

package virtualkubelet

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/kube/kubetest/refusals"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/offloading/controllertest"
)

const (
	tenant   = "liqo-tenant-milan-123456"
	nodeName = "liqo-milan"
)

func TestMain(m *testing.M) {
	log.SetLogger(klog.Background())
	os.Exit(m.Run())
}

// env is a real API server, and a remote cluster that consists of /livez behind a proxy that can be cut.
type env struct {
	kubetest.Env
	admin    *rest.Config
	provider *provider
	proxy    *kubetest.Proxy
	secret   string
	node     *Node
	// kubelet is the identity of the virtual kubelet: a service account with the rights of the chart's roles.
	kubelet *rest.Config
	// writes counts its writing requests except for the lease, denied those that were forbidden.
	writes atomic.Int32
	denied refusals.Log
}

func newEnv(t *testing.T) *env {
	t.Helper()
	t.Parallel()
	b := &env{Env: kubetest.Env{T: t}, admin: kubetest.Cluster(t), secret: remote.SecretName("milan-id")}
	scheme := runtime.NewScheme()
	b.Must(clientgoscheme.AddToScheme(scheme))
	b.Must(netv1alpha1.AddToScheme(scheme))
	b.Must(sharingv1alpha1.AddToScheme(scheme))
	_, err := envtest.InstallCRDs(b.admin, envtest.CRDInstallOptions{
		Paths: []string{
			"../../../deployments/liqo/crds/sharing.liqo.io_resourceslices.yaml", "../../../deployments/liqo/crds/net.liqo.io_tunnelendpoints.yaml",
		},
		ErrorIfPathMissing: true,
	})
	b.Must(err)
	b.Client, err = client.New(b.admin, client.Options{Scheme: scheme})
	b.Must(err)
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}})
	b.Until("Kubernetes has created its namespaces", func() bool {
		return b.Get(t.Context(), client.ObjectKey{Name: "kube-node-lease"}, &corev1.Namespace{}) == nil
	})
	b.role()
	b.provider = newProvider(t)
	b.proxy = kubetest.NewProxy(t, b.provider.server.Listener.Addr().String())
	b.provider.token.Store("first")
	b.identity("first")
	return b
}

// role makes the virtual kubelet's account, with the rights of the chart, and counts its requests.
func (b *env) role() {
	b.T.Helper()
	b.kubelet = controllertest.VirtualKubelet(&b.Env, b.admin, tenant)
	b.kubelet.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return kubetest.RoundTripper(func(request *http.Request) (*http.Response, error) {
			if request.Method != http.MethodGet && !strings.Contains(request.URL.Path, "/leases") {
				b.writes.Add(1)
			}
			return next.RoundTrip(request)
		})
	})
	b.kubelet.Wrap(b.denied.RoundTripper)
}

// run starts a virtual kubelet; it ends with stop, or with the test.
func (b *env) run(change ...func(*Options)) (stop func()) {
	b.T.Helper()
	options := Options{
		NodeName: nodeName, Namespace: tenant, SliceName: "rome", ClusterID: "milan-id", NodeIP: "10.0.0.9", KubeletPort: 10250,
		ExtraLabels: map[string]string{"extra": "x"}, ExtraAnnotations: map[string]string{"note": "y"},
		LeaseDuration: 4 * time.Second, PingInterval: 100 * time.Millisecond, PingRetry: 50 * time.Millisecond, PingTimeout: 500 * time.Millisecond,
	}
	for _, change := range change {
		change(&options)
	}
	node, err := New(b.kubelet, options)
	b.Must(err)
	b.node = node
	return kubetest.Start(b.T, "virtual kubelet", node.Run)
}

func ready(node *corev1.Node) corev1.NodeCondition {
	if found := find(node.Status.Conditions, corev1.NodeReady); found != nil {
		return *found
	}
	return corev1.NodeCondition{}
}

func (b *env) untilReady(status corev1.ConditionStatus) *corev1.Node {
	b.T.Helper()
	var node corev1.Node
	b.Until("node Ready="+string(status), func() bool {
		node = corev1.Node{}
		return b.Get(b.T.Context(), client.ObjectKey{Name: nodeName}, &node) == nil && ready(&node).Status == status
	})
	return &node
}

func (b *env) slice(status *sharingv1alpha1.ResourceSliceStatus) {
	b.T.Helper()
	b.Make(&sharingv1alpha1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "rome", Finalizers: []string{labels.FinalizerNode}},
		Spec:       sharingv1alpha1.ResourceSliceSpec{ConsumerClusterID: "rome-id", ProviderClusterID: "milan-id", NodeName: nodeName},
	})
	if status != nil {
		b.grant(status)
	}
}

func (b *env) grant(status *sharingv1alpha1.ResourceSliceStatus) {
	b.T.Helper()
	slice := &sharingv1alpha1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "rome"}}
	b.EditStatus(slice, func() { slice.Status = *status })
}

func (b *env) version() string {
	b.T.Helper()
	api, err := discovery.NewDiscoveryClientForConfig(b.admin)
	b.Must(err)
	version, err := api.ServerVersion()
	b.Must(err)
	return version.GitVersion
}

// identity writes the Secret with an identity that has the token.
func (b *env) identity(token string) { b.identityThrough(token, false) }

// identityThrough stores an identity, through an invitation or not.
func (b *env) identityThrough(token string, invited bool) {
	b.T.Helper()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.provider.server.Certificate().Raw})
	identity := remote.Identity{
		Namespace:    "liqo-tenant-rome-abcdef",
		APIServerURL: "https://" + b.proxy.Address(), APIServerCA: certificate,
		Token: token, RenewAt: time.Now().Add(time.Hour), ExpiresAt: time.Now().Add(2 * time.Hour), Invited: invited,
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: b.secret}, Data: identity.Data()}
	if err := b.Create(b.T.Context(), secret); err != nil {
		b.Edit(secret, func() { secret.Data = identity.Data() })
	}
}

// provider serves what the virtual kubelet requests from a remote cluster.
type provider struct {
	server *httptest.Server
	token  atomic.Value
	sick   atomic.Bool
	asked  atomic.Int32
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{}
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.asked.Add(1)
		switch {
		case r.Header.Get("Authorization") != "Bearer "+p.token.Load().(string):
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path != "/livez":
			w.WriteHeader(http.StatusNotFound)
		case p.sick.Load():
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	p.server.EnableHTTP2 = true
	p.server.StartTLS()
	t.Cleanup(p.server.Close)
	return p
}
