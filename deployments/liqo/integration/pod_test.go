// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/deployments/liqo/charttest"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/kube/kubetest/refusals"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/kube/policies"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/offloading/isolation"
	"liqo.io/liqo/internal/offloading/namespacemap"
	"liqo.io/liqo/internal/offloading/namespaceoffloading"
	"liqo.io/liqo/internal/offloading/peers"
	"liqo.io/liqo/internal/offloading/reflection"
	"liqo.io/liqo/internal/offloading/reflection/project"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
	"liqo.io/liqo/internal/offloading/remotenamespace"
	"liqo.io/liqo/internal/offloading/shadow"
	"liqo.io/liqo/internal/offloading/shadowpod"
	"liqo.io/liqo/internal/peering/replicate"
)

const (
	inMilan    = "liqo-tenant-rome-b1c2d3" // rome's namespace in milan
	liqoItself = "liqo"
)

var milan = discoveryv1alpha1.ClusterIdentity{ClusterID: "milan-id", ClusterName: "milan"}

// side is a cluster with the objects of the chart, without its webhooks, which no process serves here.
type side struct {
	kubetest.Env
	admin *rest.Config

	denied refusals.Log
	mu     sync.Mutex
	writes map[string]int
}

func newSide(t *testing.T, admin *rest.Config) *side {
	t.Helper()
	s := &side{Env: kubetest.Env{T: t, Client: connect(t, admin)}, admin: admin, writes: map[string]int{}}
	for _, add := range []func(*runtime.Scheme) error{
		discoveryv1alpha1.AddToScheme, netv1alpha1.AddToScheme, offloadingv1alpha1.AddToScheme, sharingv1alpha1.AddToScheme,
		vkv1alpha1.AddToScheme, networkingv1.AddToScheme,
	} {
		s.Must(add(s.Scheme()))
	}
	s.Until("the system namespaces exist", func() bool {
		return s.Get(t.Context(), client.ObjectKey{Name: "kube-system"}, &corev1.Namespace{}) == nil &&
			s.Get(t.Context(), client.ObjectKey{Name: "kube-node-lease"}, &corev1.Namespace{}) == nil
	})
	install(t.Context(), t, s.Client)
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		s.Must(s.Delete(t.Context(), charttest.Find(t, charttest.Render(t), kind, "liqo").DeepCopy()))
	}
	return s
}

// as returns the configuration of a service account, and records its refusals and writes.
func (s *side) as(namespace, name string) *rest.Config {
	cfg := asAccount(s.admin, namespace, name)
	cfg.Wrap(s.denied.RoundTripper)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return s.recording(name, next) })
	return cfg
}

func (s *side) recording(name string, next http.RoundTripper) http.RoundTripper {
	return kubetest.RoundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		s.mu.Lock()
		defer s.mu.Unlock()
		what := name + ": " + request.Method + " " + request.URL.Path
		if request.Method != http.MethodGet {
			s.writes[what]++
		}
		return response, err
	})
}

func (s *side) bind(role, namespace string, to rbacv1.Subject) {
	s.T.Helper()
	s.Make(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "test-" + role}, Subjects: []rbacv1.Subject{to},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	})
}

func (s *side) tenant(name, clusterID string) {
	s.T.Helper()
	s.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		labels.TenantNamespace: "true", labels.ClusterID: clusterID, labels.AppPartOf: labels.PartOf,
	}}})
	s.bind("liqo-controller-manager-tenant", name, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: liqoItself, Name: "liqo-controller-manager"})
}

// manager runs controllers as the controller manager.
func (s *side) manager(setups ...func(ctrl.Manager) error) {
	s.T.Helper()
	caches := map[client.Object]cache.ByObject{}
	if s.Scheme().Recognizes(admissionv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration")) {
		caches = policies.Caches()
	}
	mgr, err := kubemanager.New(
		s.as(liqoItself, "liqo-controller-manager"),
		kubemanager.Options{Scheme: s.Scheme(), SkipNameValidation: true, Cache: cache.Options{ByObject: caches}},
	)
	s.Must(err)
	for _, setup := range setups {
		s.Must(setup(mgr))
	}
	kubetest.Start(s.T, "manager", mgr.Start)
}

// exists reads an object, and reports whether it exists.
func (s *side) exists(object client.Object) bool {
	s.T.Helper()
	err := s.Get(s.T.Context(), client.ObjectKeyFromObject(object), object)
	s.Must(client.IgnoreNotFound(err))
	return err == nil
}

func (s *side) namespace(name string) {
	s.T.Helper()
	s.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// consume creates the objects that exist in rome when it uses milan.
func (s *side) consume() {
	s.T.Helper()
	s.tenant(milan.TenantNamespace(), milan.ClusterID)
	s.Make(&discoveryv1alpha1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: milan.ClusterName, Labels: map[string]string{labels.ClusterID: milan.ClusterID}},
		Spec: discoveryv1alpha1.ForeignClusterSpec{
			ClusterIdentity: &milan, OutgoingPeeringEnabled: discoveryv1alpha1.PeeringYes, IncomingPeeringEnabled: discoveryv1alpha1.PeeringAuto,
			ForeignAuthURL: "https://milan",
		},
	})
	s.Make(&sharingv1alpha1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: milan.TenantNamespace(), Name: "rome",
			Labels: map[string]string{labels.Replication: "true", labels.ClusterID: milan.ClusterID},
		},
		Spec: sharingv1alpha1.ResourceSliceSpec{ConsumerClusterID: "rome-id", ProviderClusterID: milan.ClusterID, NodeName: "liqo-milan"},
	})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "liqo-milan", Labels: map[string]string{
		labels.Type: labels.TypeVirtualNode, labels.RemoteClusterID: milan.ClusterID, corev1.LabelHostname: "liqo-milan",
	}, Annotations: map[string]string{labels.ProviderLabels: ""}}}
	s.Make(node)
	s.EditStatus(node, func() {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Test"}}
	})
	kubelet := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: milan.TenantNamespace(), Name: "virtual-kubelet"}
	s.bind("liqo-virtual-kubelet-tenant", milan.TenantNamespace(), kubelet)
	s.Make(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "liqo-virtual-kubelet-milan"}, Subjects: []rbacv1.Subject{kubelet},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-virtual-kubelet"},
	})
}

// peer creates the tenant of rome in milan, and returns rome's identity there.
func (s *side) peer() remote.Identity {
	s.T.Helper()
	s.tenant(inMilan, "rome-id")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: inMilan, Name: "liqo-peer"}}
	s.Make(account)
	for _, role := range []string{"liqo-remote-peering-basic", "liqo-remote-peering-incoming"} {
		s.bind(role, inMilan, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: inMilan, Name: account.Name})
	}
	fc := &discoveryv1alpha1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "rome"},
		Spec:       discoveryv1alpha1.ForeignClusterSpec{ClusterIdentity: &discoveryv1alpha1.ClusterIdentity{ClusterID: "rome-id", ClusterName: "rome"}},
	}
	s.Make(fc)
	s.EditStatus(fc, func() {
		fc.Status.TenantNamespace.Local = inMilan
		fc.Status.Incoming = &discoveryv1alpha1.IncomingStatus{State: discoveryv1alpha1.IncomingAccepted, Since: metav1.Now()}
	})
	token := &authenticationv1.TokenRequest{}
	s.Must(s.SubResource("token").Create(s.T.Context(), account, token))
	now := time.Now().UTC().Truncate(time.Second)
	identity, err := remote.ParseIdentity(remote.Identity{
		Namespace: inMilan, APIServerURL: s.admin.Host, APIServerCA: s.admin.CAData, Token: token.Status.Token, RenewAt: now.Add(30 * time.Minute),
		ExpiresAt: now.Add(time.Hour),
	}.Data())
	s.Must(err)
	return identity
}

// reflect runs the reflection engine of the virtual kubelet.
func (s *side) reflect(far *side, identity remote.Identity) {
	s.T.Helper()
	engine, err := reflection.New(s.as(milan.TenantNamespace(), "virtual-kubelet"), reflection.Options{
		Namespace: milan.TenantNamespace(), NamespaceMap: milan.UniqueName(), RemoteName: milan.ClusterName, HostIP: "10.0.0.9",
		Mapping: project.NamespaceMapping{LocalID: "rome-id", LocalName: "rome", RemoteID: milan.ClusterID, NodeName: "liqo-milan"},
		APIServer: func() (podspec.APIServer, error) {
			return podspec.APIServer{Enabled: true, Host: "api.rome.example", Port: "6443"}, nil
		},
	})
	s.Must(err)
	connection, err := remote.NewConnection(identity, runtime.NewScheme())
	s.Must(err)
	shared := connection.HTTPClient()
	shared.Transport = far.recording("virtual-kubelet of rome", shared.Transport)
	kubetest.Start(s.T, "reflection", engine.Run)
	engine.SetConnection(connection, true)
	s.T.Cleanup(connection.Reset)
}

// TestRemotePod: with only the roles and policies of the chart, a namespace extends to another cluster, and a pod in it runs there until it is
// deleted locally.
func TestRemotePod(t *testing.T) {
	t.Parallel()
	home, away := kubetest.Pair(t)
	rome, there := newSide(t, home), newSide(t, away)
	identity := there.peer()
	there.manager(
		func(mgr ctrl.Manager) error {
			return remotenamespace.Setup(mgr, remotenamespace.Options{Namespace: liqoItself, Bounds: remotenamespace.Bounds{
				Quota:           corev1.ResourceList{corev1.ResourceSecrets: resource.MustParse("100")},
				ContainerLimits: corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("1Gi")},
			}, Isolation: remotenamespace.Isolation{Options: isolation.Options{Enabled: true}, InternalNetwork: true}})
		},
		func(mgr ctrl.Manager) error {
			remoteNamespaces, err := peers.Watch(mgr)
			if err != nil {
				return err
			}
			return shadowpod.Setup(mgr, shadowpod.Options{RemoteNamespaces: remoteNamespaces, Level: shadow.Baseline, Workers: 10})
		},
	)
	rome.consume()
	var replicator *replicate.Replicator
	rome.manager(func(mgr ctrl.Manager) error {
		return namespacemap.Setup(mgr, namespacemap.Options{Domain: "cluster.local"})
	},
		func(mgr ctrl.Manager) error {
			return namespaceoffloading.Setup(mgr, namespaceoffloading.Options{Local: discoveryv1alpha1.ClusterIdentity{ClusterID: "rome-id", ClusterName: "rome"}})
		},
		func(mgr ctrl.Manager) (err error) {
			replicator, err = replicate.New(mgr, replicate.Options{LocalClusterID: "rome-id", ProbeInterval: time.Second, RetryInterval: 50 * time.Millisecond})
			return err
		},
	)
	rome.Must(replicator.Connect(t.Context(), replicate.Peer{ClusterID: milan.ClusterID, LocalNamespace: milan.TenantNamespace(), Identity: identity}))
	rome.reflect(there, identity)

	rome.namespace("shop")
	rome.Make(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "default"}})
	offloaded := &offloadingv1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "offloading"}}
	rome.Make(offloaded)
	rome.Until("the namespace is offloaded", func() bool {
		rome.Read(offloaded)
		return offloaded.Status.OffloadingPhase == "Ready"
	})
	remoteNamespace := offloaded.Status.RemoteNamespaceName
	if !there.exists(&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: remoteNamespace, Name: "liqo-peer"}}) {
		t.Error("the namespace is offloaded before its pods are isolated")
	}

	rome.Make(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "settings"}, Data: map[string]string{"a": "b"}})
	rome.Make(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "password"}, StringData: map[string]string{"a": "b"}})
	rome.Make(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}},
	})
	for _, object := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: remoteNamespace, Name: "settings"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: remoteNamespace, Name: "password"}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: remoteNamespace, Name: "web"}},
	} {
		there.Until(object.GetName()+" is reflected", func() bool { return there.exists(object) })
	}
	followPod(rome, there, remoteNamespace, "old", metav1.FinalizerDeleteDependents)
	followPod(rome, there, remoteNamespace, "web", labels.FinalizerPodGone)

	// From then on, the virtual kubelet creates ShadowPods with that finalizer, and nothing has to add it.
	next := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "next"},
		Spec:       corev1.PodSpec{NodeName: "liqo-milan", Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
	}
	rome.Make(next)
	kept := &vkv1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: remoteNamespace, Name: "next"}}
	there.Until("the next ShadowPod exists", func() bool { return there.exists(kept) })
	if !slices.Equal(kept.Finalizers, []string{labels.FinalizerPodGone}) {
		t.Errorf("finalizers %v of the next ShadowPod", kept.Finalizers)
	}
	there.Until("the next remote pod exists", func() bool { return there.exists(&corev1.Pod{ObjectMeta: kept.ObjectMeta}) })
	rome.Must(rome.Delete(t.Context(), next))
	there.Until("it ends, and its ShadowPod", func() bool { return !there.exists(&corev1.Pod{ObjectMeta: kept.ObjectMeta}) && !there.exists(kept) })

	// A namespace in deletion may have lost the binding of the controller, and does not end before its ShadowPods are released.
	there.namespace("ending")
	ending := &vkv1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ending", Name: "web", Finalizers: []string{labels.FinalizerPodGone}},
		Spec:       vkv1alpha1.ShadowPodSpec{Fence: "fence"},
	}
	there.Make(ending)
	there.Must(there.Delete(t.Context(), ending, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	there.Until("a ShadowPod without rights in its namespace is released", func() bool { return !there.exists(ending) })
	for _, one := range []*side{rome, there} {
		if refused := one.denied.All(); len(refused) > 0 {
			t.Errorf("refused: %s", strings.Join(refused, "\n"))
		}
	}
}

// followPod acts as the scheduler of the consumer, and as scheduler and kubelet of the provider. The ShadowPod is kept by the given finalizer until its pod is
// gone: by ours, if the webhook of the provider has added it, which this function does.
func followPod(rome, there *side, remoteNamespace, name, finalizer string) {
	t := rome.T
	t.Helper()
	local := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: "liqo-milan", Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
	}
	rome.Make(local)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: remoteNamespace, Name: name}}
	there.Until("the remote pod exists", func() bool { return there.exists(pod) })
	if pod.Labels[labels.Origin] != "rome-id" || pod.Labels["app"] != "web" || pod.Annotations[labels.Fence] != string(local.UID) {
		t.Errorf("%+v", pod.ObjectMeta)
	}
	there.Must(there.SubResource("binding").Create(t.Context(), pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "worker"}}))
	now := metav1.Now()
	there.EditStatus(pod, func() {
		pod.Status.Phase, pod.Status.StartTime = corev1.PodRunning, &now
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now}}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "web", Image: "web:1", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}},
		}
	})
	rome.Until("the local pod is Ready", func() bool {
		rome.Read(local)
		return local.Status.Phase == corev1.PodRunning && local.Labels[labels.ShadowPod] == "true" && slices.ContainsFunc(local.Status.Conditions,
			func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			})
	})

	// If the remote pod is deleted, it is created again, and the local pod continues.
	first := pod.UID
	there.Must(there.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	there.Until("the remote pod exists again", func() bool { return there.exists(pod) && pod.UID != first })
	there.Must(there.SubResource("binding").Create(t.Context(), pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "worker"}}))
	rome.Read(local)
	if local.Status.Phase == corev1.PodFailed || local.Status.Phase == corev1.PodSucceeded {
		t.Errorf("the local pod has phase %s", local.Status.Phase)
	}

	// If the local pod is deleted, the remote pod ends first.
	shadowPod := &vkv1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: remoteNamespace, Name: name}}
	there.Read(shadowPod)
	if finalizer == labels.FinalizerPodGone {
		// The virtual kubelet puts back the label once it has seen the change, and so the finalizer, on which the way of the deletion depends.
		there.Edit(shadowPod, func() { shadowPod.Finalizers, shadowPod.Labels["app"] = []string{finalizer}, "changed" })
		there.Until("the label of the ShadowPod is put back", func() bool {
			there.Read(shadowPod)
			return shadowPod.Labels["app"] == "web"
		})
	}
	rome.Must(rome.Delete(t.Context(), local))
	there.Until("the ShadowPod is being deleted", func() bool { return !there.exists(shadowPod) || shadowPod.DeletionTimestamp != nil })
	if !slices.Equal(shadowPod.Finalizers, []string{finalizer}) || !rome.exists(local) {
		t.Errorf("the name is free before the remote pod is deleted: %+v", shadowPod.ObjectMeta)
	}
	there.Until("the remote pod is being deleted", func() bool { return there.exists(pod) && pod.DeletionTimestamp != nil })
	there.Must(client.IgnoreNotFound(there.Delete(t.Context(), pod, client.GracePeriodSeconds(0))))
	there.Until("the remote pod and its ShadowPod are deleted", func() bool { return !there.exists(pod) && !there.exists(shadowPod) })
	rome.Until("the local pod is deleted", func() bool { return !rome.exists(local) })
}
