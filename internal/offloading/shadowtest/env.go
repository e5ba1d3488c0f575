// SPDX-License-Identifier: Apache-2.0

package shadowtest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	klabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/offloading/metadata"
	"liqo.io/liqo/internal/offloading/peers"
	"liqo.io/liqo/internal/offloading/quota"
	"liqo.io/liqo/internal/offloading/shadow"
	"liqo.io/liqo/internal/offloading/shadowpod"
	"liqo.io/liqo/internal/offloading/shadowslice"
	"liqo.io/liqo/internal/peering/grant"
)

const (
	RemoteNamespace = "web-rome-a1b2c3"
	User            = "shadow-test"
	// OtherRemoteNamespace is that of another peer.
	OtherRemoteNamespace = "web-milan-d4e5f6"
)

// Env is the API server of a provider. The controllers run with the rights in their RBAC markers, and with the caches of the controller
// manager; the test acts as kubelet and garbage collector.
type Env struct {
	kubetest.Env
	scheme *runtime.Scheme
	admin  *rest.Config
	// Writes counts the writing requests of the controllers, except for events.
	Writes atomic.Int32
	// Trials counts the requests that change nothing; while noTrials, they fail, as if the API server had just gone away.
	Trials   atomic.Int32
	NoTrials atomic.Bool
	// Asked counts their reads of one ShadowEndpointSlice. While gate is locked, they get no events of ShadowEndpointSlices.
	Asked atomic.Int32
	Gate  sync.RWMutex
	// External: another network than Liqo's joins the clusters. own are the networks of this cluster.
	External bool
	Own      []netip.Prefix
	// Quota of the controllers that run next; nil for none.
	Quota shadowpod.Quota
	// Defaults of the pods that they make.
	Defaults quota.Defaults
	// Names are the DNS settings of the pods that they make; nil for none.
	Names shadowpod.Names
	// RefusalRetry is when the controllers repeat what a policy has refused; 0 means their default.
	RefusalRetry time.Duration
	// RemoteRules are the rights of the controllers in remote namespaces.
	RemoteRules []rbacv1.PolicyRule
	// Proxy is between the controllers and the API server. between is what stands there for it; nil for nothing.
	Proxy   *kubetest.Proxy
	Between func(next http.RoundTripper, request *http.Request) (*http.Response, error)
	// Ahead is by how much the controllers' clock is ahead: by default far enough to record the phase of each pod at once.
	Ahead atomic.Int64
}

func New(t *testing.T) *Env {
	t.Helper()
	t.Parallel()
	b := &Env{Env: kubetest.Env{T: t}, admin: kubetest.Cluster(t), scheme: runtime.NewScheme()}
	b.Ahead.Store(int64(2 * time.Minute))
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, discoveryv1alpha1.AddToScheme, netv1alpha1.AddToScheme, vkv1alpha1.AddToScheme, sharingv1alpha1.AddToScheme,
	} {
		b.Must(add(b.scheme))
	}
	crds := "../../../deployments/liqo/crds/"
	_, err := envtest.InstallCRDs(b.admin, envtest.CRDInstallOptions{ErrorIfPathMissing: true, Paths: []string{
		crds + "virtualkubelet.liqo.io_shadowpods.yaml", crds + "virtualkubelet.liqo.io_shadowendpointslices.yaml",
		crds + "virtualkubelet.liqo.io_namespacemaps.yaml", crds + "discovery.liqo.io_foreignclusters.yaml", crds + "net.liqo.io_tunnelendpoints.yaml",
		crds + "sharing.liqo.io_resourceslices.yaml",
	}})
	b.Must(err)
	b.Client, err = client.New(b.admin, client.Options{Scheme: b.scheme})
	b.Must(err)
	// The rights in the RBAC markers: everywhere, and in remote namespaces.
	var everywhere []rbacv1.PolicyRule
	for _, place := range []string{"shadowpod", "shadowslice", "peers"} {
		rules := b.RBACMarkers("../" + place + "/*.go")
		everywhere, b.RemoteRules = append(everywhere, rules[""]...), append(b.RemoteRules, rules["liqo-remote"]...)
	}
	b.Bind(User, "", everywhere)
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: RemoteNamespace, Labels: map[string]string{labels.RemoteClusterID: "rome-id"}}})
	b.Bind(User, RemoteNamespace, b.RemoteRules)
	b.accepted("rome")
	return b
}

// accepted makes the ForeignCluster of a peer that may use this cluster.
func (b *Env) accepted(name string) *discoveryv1alpha1.ForeignCluster {
	b.T.Helper()
	fc := &discoveryv1alpha1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       discoveryv1alpha1.ForeignClusterSpec{ClusterIdentity: &discoveryv1alpha1.ClusterIdentity{ClusterID: name + "-id", ClusterName: name}},
	}
	b.Make(fc)
	b.EditStatus(fc, func() {
		fc.Status.Incoming = &discoveryv1alpha1.IncomingStatus{State: discoveryv1alpha1.IncomingAccepted, Since: metav1.Now()}
	})
	return fc
}

// Run starts the controllers in a manager; it ends with stop, or with the test.
func (b *Env) Run() (stop func()) {
	b.T.Helper()
	cfg := rest.CopyConfig(b.admin)
	cfg.Impersonate.UserName = User
	if b.Proxy == nil {
		b.Proxy = kubetest.NewProxy(b.T, strings.Trim(strings.TrimPrefix(cfg.Host, "https://"), "/"))
	}
	cfg.Host = "https://" + b.Proxy.Address()
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return kubetest.RoundTripper(func(request *http.Request) (*http.Response, error) {
			if request.Method != http.MethodGet && !strings.Contains(request.URL.Path, "/events") {
				b.Writes.Add(1)
			}
			if request.URL.Query().Has("dryRun") {
				if b.Trials.Add(1); b.NoTrials.Load() {
					return nil, errors.New("connection reset")
				}
			}
			_, name, isShadowSlice := strings.Cut(request.URL.Path, "/shadowendpointslices")
			if name != "" && request.Method == http.MethodGet {
				b.Asked.Add(1)
			}
			answer := next.RoundTrip
			if b.Between != nil {
				answer = func(request *http.Request) (*http.Response, error) { return b.Between(next, request) }
			}
			response, err := answer(request)
			if err == nil && isShadowSlice && request.URL.Query().Has("watch") {
				response.Body = gated{response.Body, &b.Gate}
			}
			return response, err
		})
	})
	ours := klabels.SelectorFromSet(klabels.Set{labels.ManagedBy: labels.ManagedByShadowEndpointSlice})
	mgr, err := manager.New(cfg, manager.Options{Scheme: b.scheme, SkipNameValidation: true, Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
		&corev1.Pod{}: {Transform: grant.TrimPod}, &vkv1alpha1.ShadowPod{}: {Transform: shadowpod.Trim}, &discoveryv1.EndpointSlice{}: {Label: ours},
	}}})
	b.Must(err)
	remoteNamespaces, err := peers.Watch(mgr)
	b.Must(err)
	b.Must(shadowpod.Setup(mgr, shadowpod.Options{
		RemoteNamespaces: remoteNamespaces, Level: shadow.Baseline, Allowed: metadata.Allowed{Tolerations: metadata.Keys{"a"}}, Quota: b.Quota,
		Defaults: b.Defaults, Names: b.Names, Workers: 10,
		RefusalRetry: b.RefusalRetry, Now: func() time.Time { return time.Now().Add(time.Duration(b.Ahead.Load())) },
	}))
	b.Must(shadowslice.Setup(mgr, shadowslice.Options{
		RemoteNamespaces: remoteNamespaces, InternalNetwork: !b.External, OwnNetworks: b.Own, Workers: 10, RefusalRetry: b.RefusalRetry,
	}))
	return kubetest.Start(b.T, "manager", mgr.Start)
}

// gated delays what it has read while gate is locked.
type gated struct {
	io.ReadCloser
	gate *sync.RWMutex
}

func (l gated) Read(into []byte) (int, error) {
	n, err := l.ReadCloser.Read(into)
	l.gate.RLock()
	defer l.gate.RUnlock()
	return n, err
}

func (b *Env) Exists(object client.Object) bool {
	return b.Get(b.T.Context(), client.ObjectKeyFromObject(object), object) == nil
}

// Event waits for an event about an object.
func (b *Env) Event(about client.Object, reason, part string) {
	b.T.Helper()
	seen := ""
	b.Until("an event "+reason+" "+part+" about "+about.GetName(), func() bool {
		var all eventsv1.EventList
		b.Must(b.List(b.T.Context(), &all, client.InNamespace(about.GetNamespace())))
		for i := range all.Items {
			if all.Items[i].Regarding.UID == about.GetUID() {
				seen += all.Items[i].Reason + " " + all.Items[i].Note + "\n"
				if all.Items[i].Reason == reason && strings.Contains(all.Items[i].Note, part) {
					return true
				}
			}
		}
		return false
	})
}

// CreateShadowPod writes a ShadowPod as a virtual kubelet does.
func (b *Env) CreateShadowPod(name string, policy corev1.RestartPolicy, change func(*vkv1alpha1.ShadowPod)) *vkv1alpha1.ShadowPod {
	b.T.Helper()
	s := &vkv1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: RemoteNamespace, Name: name, Labels: map[string]string{labels.Origin: "rome-id", "app": name},
			Annotations: map[string]string{"note": "1"},
		},
		Spec: vkv1alpha1.ShadowPodSpec{Fence: "fence-of-" + name, Pod: corev1.PodSpec{
			RestartPolicy: policy, Containers: []corev1.Container{{Name: "c", Image: "image:1"}}, AutomountServiceAccountToken: new(false),
		}},
	}
	if change != nil {
		change(s)
	}
	b.Make(s)
	return s
}

// Pod waits for the pod of a ShadowPod; if before is set, for another one.
func (b *Env) Pod(s *vkv1alpha1.ShadowPod, before *corev1.Pod) *corev1.Pod {
	b.T.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
	b.Until("pod "+s.Name+" exists", func() bool { return b.Exists(pod) && (before == nil || pod.UID != before.UID) })
	return pod
}

// StartPod acts as scheduler and kubelet.
func (b *Env) StartPod(pod *corev1.Pod) {
	b.T.Helper()
	b.Must(b.SubResource("binding").Create(b.T.Context(), pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "physical"}}))
	b.Phase(pod, corev1.PodRunning, "")
}

func (b *Env) Phase(pod *corev1.Pod, phase corev1.PodPhase, reason string) {
	b.T.Helper()
	b.EditStatus(pod, func() { pod.Status.Phase, pod.Status.Reason = phase, reason })
}

// EndPod acts as the kubelet of a pod in deletion: its processes end, and then it is deleted.
func (b *Env) EndPod(pod *corev1.Pod, phase corev1.PodPhase) {
	b.T.Helper()
	b.Phase(pod, phase, "")
	b.Must(client.IgnoreNotFound(b.Delete(b.T.Context(), pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})))
}

func (b *Env) UntilPhase(s *vkv1alpha1.ShadowPod, phase vkv1alpha1.ShadowPodPhase, pod *corev1.Pod) {
	b.T.Helper()
	b.Until(s.Name+" has phase "+string(phase), func() bool {
		return b.Exists(s) && s.Status.Phase == phase && s.Status.PodUID == string(pod.UID)
	})
}

// DrainQueue returns when the controllers have handled all earlier events: the events of the new pod pass the same watches and queue after them. It
// costs the controllers two writes.
func (b *Env) DrainQueue(name string) {
	b.T.Helper()
	defer b.Ahead.Store(b.Ahead.Swap(0)) // so that only its end is recorded
	s := b.CreateShadowPod(name, corev1.RestartPolicyAlways, nil)
	pod := b.Pod(s, nil)
	b.Phase(pod, corev1.PodFailed, "Evicted")
	b.UntilPhase(s, vkv1alpha1.ShadowPodFailed, pod)
}

// Architectures makes the peering of the remote namespace, and returns what changes the architectures that the peer is reported.
func (b *Env) Architectures() (nodes func(architectures ...string)) {
	b.T.Helper()
	tenant := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-rome"}}
	b.Make(tenant)
	remote := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: RemoteNamespace}}
	b.Must(b.Get(b.T.Context(), client.ObjectKeyFromObject(remote), remote))
	b.Edit(remote, func() { remote.Annotations = map[string]string{labels.ManagedByNamespaceMap: tenant.Name + "/milan"} })
	granted := &sharingv1alpha1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Name, Name: "milan", Labels: map[string]string{labels.Replicated: "true"}},
		Spec:       sharingv1alpha1.ResourceSliceSpec{ConsumerClusterID: "rome-id", ProviderClusterID: "milan-id", NodeName: "liqo-milan"},
	}
	b.Make(granted)
	return func(architectures ...string) {
		b.EditStatus(granted, func() {
			granted.Status.Phase, granted.Status.Architectures = sharingv1alpha1.SliceAccepted, architectures
		})
	}
}

func (b *Env) CreateShadowSlice(name string, addresses ...string) *vkv1alpha1.ShadowEndpointSlice {
	b.T.Helper()
	s := &vkv1alpha1.ShadowEndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: RemoteNamespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		Spec: vkv1alpha1.ShadowEndpointSliceSpec{Template: vkv1alpha1.EndpointSliceTemplate{
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(80)), Protocol: new(corev1.ProtocolTCP)}},
		}},
	}
	for _, address := range addresses {
		s.Spec.Template.Endpoints = append(s.Spec.Template.Endpoints, vkv1alpha1.Endpoint{
			Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}, NodeName: new("rome"),
			TargetRef: &corev1.ObjectReference{Kind: "RemotePod", Name: "p", Namespace: "web"},
		})
	}
	b.Make(s)
	return s
}

func (b *Env) Network(fc *discoveryv1alpha1.ForeignCluster, status discoveryv1alpha1.PeeringConditionStatus) {
	b.T.Helper()
	b.EditStatus(fc, func() {
		fc.Status.PeeringConditions = []discoveryv1alpha1.PeeringCondition{{Type: discoveryv1alpha1.NetworkStatus, Status: status, LastTransitionTime: metav1.Now()}}
	})
}

// Rome creates a peer whose network is agreed and works.
func (b *Env) Rome() *discoveryv1alpha1.ForeignCluster {
	b.T.Helper()
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-rome"}})
	b.Make(&netv1alpha1.TunnelEndpoint{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "rome"},
		Spec: netv1alpha1.TunnelEndpointSpec{
			ClusterIdentity: netv1alpha1.ClusterIdentity{ClusterID: "rome-id", ClusterName: "rome"}, LocalPodCIDR: "10.200.0.0/16", LocalExternalCIDR: "10.201.0.0/16",
			RemotePodCIDR: "10.200.0.0/16", RemoteNATPodCIDR: "10.1.0.0/16", RemoteExternalCIDR: "10.202.0.0/16", BackendType: "wireguard",
			BackendConfig: map[string]string{},
		},
	})
	fc := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "rome"}}
	b.Read(fc)
	b.Network(fc, discoveryv1alpha1.StatusEstablished)
	return fc
}

// UntilSlice waits until the slice has these addresses with this readiness.
func (b *Env) UntilSlice(name string, ready bool, addresses ...string) *discoveryv1.EndpointSlice {
	b.T.Helper()
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: RemoteNamespace, Name: name}}
	b.Until("slice "+name+" has the addresses", func() bool {
		if !b.Exists(slice) || len(slice.Endpoints) != len(addresses) {
			return false
		}
		for i, endpoint := range slice.Endpoints {
			if endpoint.Addresses[0] != addresses[i] || *endpoint.Conditions.Ready != ready {
				return false
			}
		}
		return true
	})
	return slice
}

// OtherPeer creates the remote namespace of another peer.
func (b *Env) OtherPeer() {
	b.T.Helper()
	b.accepted("milan")
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: OtherRemoteNamespace, Labels: map[string]string{labels.RemoteClusterID: "milan-id"}}})
	b.Bind(User, OtherRemoteNamespace, b.RemoteRules)
}

// Others creates ShadowPods of the other peer, one after the other, and waits for the pod of each.
func (b *Env) Others(several int) {
	b.T.Helper()
	for i := range several {
		b.Pod(b.CreateShadowPod(fmt.Sprint("other", i), corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) {
			s.Namespace, s.Labels[labels.Origin] = OtherRemoteNamespace, "milan-id"
		}), nil)
	}
}
