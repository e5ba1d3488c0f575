// SPDX-License-Identifier: Apache-2.0

package controllertest

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	klabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/offloading/kinds"
)

const (
	Tenant   = "liqo-tenant-milan-ac89c5"
	NodeName = "liqo-milan"
	// User is the service account of the controller manager, so rights that a controller binds to it take effect.
	User = "system:serviceaccount:liqo:liqo-controller-manager"
)

func init() { log.SetLogger(klog.Background()) }

// Env is a real API server on which only the controllers under test run: the test creates and ends pods.
type Env struct {
	kubetest.Env
	Scheme *runtime.Scheme
	Admin  *rest.Config
	// Ahead is by how much the clock of the controllers is ahead.
	Ahead atomic.Int64
	// Writes counts the writing requests of the controllers.
	Writes  atomic.Int32
	deleted sync.Map // paths of earlier deletions
}

func New(t *testing.T) *Env {
	t.Helper()
	t.Parallel()
	return At(t, kubetest.Cluster(t))
}

func At(t *testing.T, admin *rest.Config) *Env {
	t.Helper()
	b := &Env{Env: kubetest.Env{T: t}, Admin: admin, Scheme: runtime.NewScheme()}
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, discoveryv1alpha1.AddToScheme, sharingv1alpha1.AddToScheme, offloadingv1alpha1.AddToScheme,
		vkv1alpha1.AddToScheme, netv1alpha1.AddToScheme,
	} {
		b.Must(add(b.Scheme))
	}
	_, err := envtest.InstallCRDs(b.Admin, envtest.CRDInstallOptions{
		Paths: []string{
			"../../../deployments/liqo/crds/sharing.liqo.io_resourceslices.yaml", "../../../deployments/liqo/crds/discovery.liqo.io_foreignclusters.yaml",
			"../../../deployments/liqo/crds/offloading.liqo.io_namespaceoffloadings.yaml", "../../../deployments/liqo/crds/virtualkubelet.liqo.io_namespacemaps.yaml",
			"../../../deployments/liqo/crds/net.liqo.io_tunnelendpoints.yaml",
			"../../../deployments/liqo/crds/virtualkubelet.liqo.io_shadowpods.yaml",
			"../../../deployments/liqo/crds/virtualkubelet.liqo.io_shadowendpointslices.yaml",
		}, ErrorIfPathMissing: true,
	})
	b.Must(err)
	b.Client, err = client.New(b.Admin, client.Options{Scheme: b.Scheme})
	b.Must(err)
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Tenant}})
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "apps"}})
	b.Until("Kubernetes has created its namespaces", func() bool {
		return b.Get(t.Context(), client.ObjectKey{Name: "kube-node-lease"}, &corev1.Namespace{}) == nil
	})
	b.rights()
	return b
}

// rights grants the user the rights in the RBAC markers of the controllers, and creates the roles that they bind.
func (b *Env) rights() {
	b.T.Helper()
	everywhere, inTenants := []rbacv1.PolicyRule{}, []rbacv1.PolicyRule{}
	for _, controller := range []string{"virtualnode", "namespaceoffloading", "namespacemap", "remotecontents", "remotenamespace"} {
		rules := b.RBACMarkers("../" + controller + "/*.go")
		everywhere, inTenants = append(everywhere, rules[""]...), append(inTenants, rules["liqo-tenant"]...)
	}
	b.Bind(User, "", everywhere)
	b.Bind(User, Tenant, inTenants)

	inRemote := append(b.RBACMarkers("../remotenamespace/*.go")["liqo-remote"], kinds.Rules(kinds.Manager, kinds.Remote)...)
	b.Make(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "liqo-controller-manager-remote"}, Rules: inRemote})
	b.Make(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "liqo-virtual-kubelet-remote"}, Rules: []rbacv1.PolicyRule{{ // any rights
		APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch"},
	}}})
	text, err := os.ReadFile("../../../deployments/liqo/files/rbac-virtual-kubelet.yaml")
	b.Must(err)
	documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var role rbacv1.ClusterRole
		if err := documents.Decode(&role); err == io.EOF {
			return
		}
		if role.Name != "" {
			b.Make(&role)
		}
	}
}

var Rome = discoveryv1alpha1.ClusterIdentity{ClusterID: "rome-id", ClusterName: "rome"}

// Now is the controllers' clock.
func (b *Env) Now() time.Time { return time.Now().Add(time.Duration(b.Ahead.Load())) }

// Start runs controllers in a manager, with the rights in their RBAC markers; it ends with stop, or with the test.
func (b *Env) Start(setups ...func(ctrl.Manager) error) (stop func()) {
	b.T.Helper()
	cfg := rest.CopyConfig(b.Admin)
	cfg.Impersonate.UserName = User
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return kubetest.RoundTripper(func(request *http.Request) (*http.Response, error) {
			// While the cache is behind, a controller may repeat a deletion, which changes nothing.
			_, again := b.deleted.LoadOrStore(request.Method+request.URL.Path, true)
			if request.Method != http.MethodGet && !(request.Method == http.MethodDelete && again) {
				b.Writes.Add(1)
			}
			return next.RoundTrip(request)
		})
	})
	ours := klabels.SelectorFromSet(klabels.Set{labels.AppPartOf: labels.PartOf})
	mgr, err := manager.New(cfg, manager.Options{Scheme: b.Scheme, SkipNameValidation: true, Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
		&corev1.ServiceAccount{}: {Label: ours}, &rbacv1.RoleBinding{}: {Label: ours}, &rbacv1.ClusterRoleBinding{}: {Label: ours},
		&appsv1.Deployment{}:    {Label: ours},
		&corev1.ResourceQuota{}: {Label: ours}, &corev1.LimitRange{}: {Label: ours},
	}}})
	b.Must(err)
	for _, setup := range setups {
		b.Must(setup(mgr))
	}
	return kubetest.Start(b.T, "manager", mgr.Start)
}

func (b *Env) Gone(object client.Object) bool {
	return client.IgnoreNotFound(b.Get(b.T.Context(), client.ObjectKeyFromObject(object), object)) == nil &&
		b.Get(b.T.Context(), client.ObjectKeyFromObject(object), object) != nil
}

func (b *Env) Slice(name string) *sharingv1alpha1.ResourceSlice {
	b.T.Helper()
	slice := &sharingv1alpha1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: Tenant, Name: name, Labels: map[string]string{labels.Replication: "true", labels.ClusterID: "milan-id"}},
		Spec:       sharingv1alpha1.ResourceSliceSpec{ConsumerClusterID: "rome-id", ProviderClusterID: "milan-id", NodeName: NodeName},
	}
	b.Make(slice)
	return slice
}

// ForeignCluster creates the ForeignCluster, from which the name of the peer is known.
func (b *Env) ForeignCluster() {
	b.T.Helper()
	b.Make(&discoveryv1alpha1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: map[string]string{labels.ClusterID: "milan-id"}},
		Spec: discoveryv1alpha1.ForeignClusterSpec{
			ClusterIdentity:        &discoveryv1alpha1.ClusterIdentity{ClusterID: "milan-id", ClusterName: "milan"},
			OutgoingPeeringEnabled: discoveryv1alpha1.PeeringYes, IncomingPeeringEnabled: discoveryv1alpha1.PeeringAuto, ForeignAuthURL: "https://milan",
		},
	})
}

// UntilCondition waits until the slice has the condition with this reason and part of the message.
func (b *Env) UntilCondition(slice *sharingv1alpha1.ResourceSlice, reason, part string) {
	b.T.Helper()
	seen := ""
	defer func() {
		if b.T.Failed() {
			b.T.Logf("the condition is: %s", seen)
		}
	}()
	b.Until("slice "+slice.Name+" reports "+reason+" "+part, func() bool {
		b.Read(slice)
		for _, condition := range slice.Status.Conditions {
			if condition.Type == sharingv1alpha1.ConditionNodeReady {
				seen = condition.Reason + " " + condition.Message
			}
		}
		return strings.HasPrefix(seen, reason+" ") && strings.Contains(seen, part)
	})
}

// Node creates the node that the virtual kubelet would register.
func (b *Env) Node() *corev1.Node {
	b.T.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: NodeName, Labels: map[string]string{labels.Type: labels.TypeVirtualNode, labels.RemoteClusterID: "milan-id"}},
	}
	b.Make(node)
	b.Ready(node, corev1.ConditionTrue, "the remote cluster answers")
	return node
}

func (b *Env) Ready(node *corev1.Node, status corev1.ConditionStatus, message string) {
	b.T.Helper()
	b.EditStatus(node, func() {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: "Test", Message: message}}
	})
}

// Pod creates a pod that the API server shows as running on a node.
func (b *Env) Pod(namespace, name, node string, change func(*corev1.Pod)) *corev1.Pod {
	b.T.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}, TerminationGracePeriodSeconds: new(int64(30))},
	}
	if change != nil {
		change(pod)
	}
	b.Make(pod)
	b.EditStatus(pod, func() {
		pod.Status.Phase = corev1.PodRunning // a disruption budget protects only running pods
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	})
	return pod
}

// Kubelet creates the pod of the virtual kubelet.
func (b *Env) Kubelet() *corev1.Pod {
	b.T.Helper()
	return b.Pod(Tenant, "virtual-kubelet-1", "physical", func(pod *corev1.Pod) {
		pod.Labels = map[string]string{labels.AppName: "virtual-kubelet", labels.ClusterID: "milan-id"}
	})
}

// EndPod deletes a pod, as a kubelet does when its processes have ended.
func (b *Env) EndPod(pod *corev1.Pod) {
	b.T.Helper()
	b.Must(client.IgnoreNotFound(b.Delete(b.T.Context(), pod, client.GracePeriodSeconds(0))))
}

func (b *Env) Exists(object client.Object) bool {
	return b.Get(b.T.Context(), client.ObjectKeyFromObject(object), object) == nil
}

func (b *Env) Offload(change func(*offloadingv1alpha1.NamespaceOffloadingSpec)) *offloadingv1alpha1.NamespaceOffloading {
	b.T.Helper()
	offloading := &offloadingv1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "offloading"}}
	if change != nil {
		change(&offloading.Spec)
	}
	b.Make(offloading)
	return offloading
}

func (b *Env) VersionsOf(all []client.Object) (versions []string) {
	b.T.Helper()
	for _, object := range all {
		b.Read(object)
		versions = append(versions, object.GetResourceVersion())
	}
	return versions
}

// Consumer makes the ForeignCluster of a consumer that may use this cluster.
func (b *Env) Consumer(name, tenant string) *discoveryv1alpha1.ForeignCluster {
	b.T.Helper()
	fc := &discoveryv1alpha1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       discoveryv1alpha1.ForeignClusterSpec{ClusterIdentity: &discoveryv1alpha1.ClusterIdentity{ClusterID: name + "-id", ClusterName: name}},
	}
	b.Make(fc)
	fc.Status.TenantNamespace.Local = tenant
	b.Decide(fc, discoveryv1alpha1.IncomingAccepted)
	return fc
}

// Decide writes whether a consumer may use this cluster.
func (b *Env) Decide(fc *discoveryv1alpha1.ForeignCluster, state discoveryv1alpha1.IncomingState) {
	b.T.Helper()
	fc.Status.Incoming = &discoveryv1alpha1.IncomingStatus{State: state, Since: metav1.Now()}
	b.Must(b.Client.Status().Update(b.T.Context(), fc))
}

// FinalizeNamespace removes the finalizer of a deleted namespace, as Kubernetes does when the namespace is empty.
func (b *Env) FinalizeNamespace(name string) {
	b.T.Helper()
	b.Until("namespace "+name+" is deleted", func() bool {
		namespace := Space(name)
		return b.Get(b.T.Context(), client.ObjectKeyFromObject(namespace), namespace) == nil && namespace.DeletionTimestamp != nil
	})
	namespace := Space(name)
	b.Read(namespace)
	namespace.Spec.Finalizers = nil
	b.Must(b.SubResource("finalize").Update(b.T.Context(), namespace))
}

func Space(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func NodeWith(set map[string]string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "liqo-milan", Labels: map[string]string{corev1.LabelHostname: "liqo-milan"},
		Annotations: map[string]string{labels.ProviderLabels: ""},
	}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for key, value := range set {
		node.Labels[key] = value
	}
	return node
}

func Term(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
}
