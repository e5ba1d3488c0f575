// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"regexp"
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
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/kube/manager"
)

const (
	tenant   = "liqo-tenant-milan-ac89c5"
	nodeName = "liqo-milan"
	user     = "virtualnode-test"
	// inTime is how long a step may take on a busy machine.
	inTime = 20 * time.Second
)

func TestMain(m *testing.M) {
	log.SetLogger(klog.Background())
	os.Exit(m.Run())
}

// bench is a real API server with nobody in it but the controller under test: who makes pods, and ends them, is the test.
type bench struct {
	client.Client
	t      *testing.T
	scheme *runtime.Scheme
	admin  *rest.Config
	// ahead is how far the controller's clock is.
	ahead atomic.Int64
	// writes counts what the controller sent to be written.
	writes atomic.Int32
}

func newBench(t *testing.T) *bench {
	t.Helper()
	t.Parallel()
	b := &bench{t: t, admin: kubetest.Cluster(t), scheme: runtime.NewScheme()}
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, discoveryv1alpha1.AddToScheme, sharingv1alpha1.AddToScheme} {
		b.must(add(b.scheme))
	}
	_, err := envtest.InstallCRDs(b.admin, envtest.CRDInstallOptions{
		Paths: []string{
			"../../deployments/liqo/crds/sharing.liqo.io_resourceslices.yaml", "../../deployments/liqo/crds/discovery.liqo.io_foreignclusters.yaml",
		}, ErrorIfPathMissing: true,
	})
	b.must(err)
	b.Client, err = client.New(b.admin, client.Options{Scheme: b.scheme})
	b.must(err)
	b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}})
	b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "apps"}})
	b.until("Kubernetes has made its namespaces", func() bool {
		return b.Get(t.Context(), client.ObjectKey{Name: "kube-node-lease"}, &corev1.Namespace{}) == nil
	})
	b.rights()
	return b
}

// rights gives the user what the marks of the controller say, and makes the roles that it binds.
func (b *bench) rights() {
	b.t.Helper()
	source, err := os.ReadFile("virtualnode_controller.go")
	b.must(err)
	rules := map[string][]rbacv1.PolicyRule{}
	for _, mark := range regexp.MustCompile(`(?m)^// \+kubebuilder:rbac:(.*)$`).FindAllStringSubmatch(string(source), -1) {
		fields := map[string][]string{"namespace": {""}}
		for field := range strings.SplitSeq(mark[1], ",") {
			key, value, _ := strings.Cut(field, "=")
			fields[key] = strings.Split(strings.Trim(value, `"`), ";")
		}
		namespace := fields["namespace"][0]
		rules[namespace] = append(rules[namespace], rbacv1.PolicyRule{
			APIGroups: fields["groups"], Resources: fields["resources"], ResourceNames: fields["resourceNames"], Verbs: fields["verbs"],
		})
	}
	name, subjects := metav1.ObjectMeta{Name: user}, []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}}
	b.create(&rbacv1.ClusterRole{ObjectMeta: name, Rules: rules[""]})
	b.create(&rbacv1.ClusterRoleBinding{ObjectMeta: name, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user}})
	name.Namespace = tenant
	b.create(&rbacv1.Role{ObjectMeta: name, Rules: rules["liqo-tenant"]})
	b.create(&rbacv1.RoleBinding{ObjectMeta: name, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user}})

	text, err := os.ReadFile("../../deployments/liqo/files/rbac-virtual-kubelet.yaml")
	b.must(err)
	documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var role rbacv1.ClusterRole
		if err := documents.Decode(&role); err == io.EOF {
			return
		}
		if role.Name != "" {
			b.create(&role)
		}
	}
}

// run starts the controller in a manager; it ends with stop, or with the test.
func (b *bench) run(image string) (stop func()) {
	b.t.Helper()
	cfg := rest.CopyConfig(b.admin)
	cfg.Impersonate.UserName = user
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return tripper(func(request *http.Request) (*http.Response, error) {
			if request.Method != http.MethodGet {
				b.writes.Add(1)
			}
			return next.RoundTrip(request)
		})
	})
	ours := klabels.SelectorFromSet(klabels.Set{labels.AppPartOf: labels.PartOf})
	mgr, err := manager.New(cfg, manager.Options{Scheme: b.scheme, SkipNameValidation: true, Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
		&corev1.ServiceAccount{}: {Label: ours}, &rbacv1.RoleBinding{}: {Label: ours}, &rbacv1.ClusterRoleBinding{}: {Label: ours}, &appsv1.Deployment{}: {Label: ours},
	}}})
	b.must(err)
	b.must(SetupVirtualNode(mgr, VirtualNodeOptions{
		Local: discoveryv1alpha1.ClusterIdentity{ClusterID: "rome-id", ClusterName: "rome"}, Kubelet: KubeletOptions{Image: image},
		DrainDeadline: 2 * time.Minute, DrainDeadlineUnreachable: 25 * time.Second,
		Now: func() time.Time { return time.Now().Add(time.Duration(b.ahead.Load())) },
	}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t := b.t
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("manager ended: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

type tripper func(*http.Request) (*http.Response, error)

func (t tripper) RoundTrip(request *http.Request) (*http.Response, error) { return t(request) }

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) create(object client.Object) {
	b.t.Helper()
	b.must(b.Create(b.t.Context(), object))
}

func (b *bench) until(what string, done func() bool) {
	b.t.Helper()
	for begin := time.Now(); time.Since(begin) < inTime; time.Sleep(5 * time.Millisecond) {
		if done() {
			return
		}
	}
	b.t.Fatalf("not within %v: %s", inTime, what)
}

func (b *bench) read(object client.Object) {
	b.t.Helper()
	b.must(b.Get(b.t.Context(), client.ObjectKeyFromObject(object), object))
}

func (b *bench) gone(object client.Object) bool {
	return client.IgnoreNotFound(b.Get(b.t.Context(), client.ObjectKeyFromObject(object), object)) == nil &&
		b.Get(b.t.Context(), client.ObjectKeyFromObject(object), object) != nil
}

func (b *bench) edit(object client.Object, change func()) {
	b.t.Helper()
	b.must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		b.read(object)
		change()
		return b.Update(b.t.Context(), object)
	}))
}

func (b *bench) editStatus(object client.Object, change func()) {
	b.t.Helper()
	b.must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		b.read(object)
		change()
		return b.Status().Update(b.t.Context(), object)
	}))
}

func (b *bench) slice(name string) *sharingv1alpha1.ResourceSlice {
	b.t.Helper()
	slice := &sharingv1alpha1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name, Labels: map[string]string{labels.Replication: "true", labels.ClusterID: "milan-id"}},
		Spec:       sharingv1alpha1.ResourceSliceSpec{ConsumerClusterID: "rome-id", ProviderClusterID: "milan-id", NodeName: nodeName},
	}
	b.create(slice)
	return slice
}

// foreignCluster is what the name of the peer is known from.
func (b *bench) foreignCluster() {
	b.t.Helper()
	b.create(&discoveryv1alpha1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: map[string]string{labels.ClusterID: "milan-id"}},
		Spec: discoveryv1alpha1.ForeignClusterSpec{
			ClusterIdentity:        &discoveryv1alpha1.ClusterIdentity{ClusterID: "milan-id", ClusterName: "milan"},
			OutgoingPeeringEnabled: discoveryv1alpha1.PeeringYes, IncomingPeeringEnabled: discoveryv1alpha1.PeeringAuto, ForeignAuthURL: "https://milan",
		},
	})
}

// says waits until the slice has the condition, and returns its message.
func (b *bench) says(slice *sharingv1alpha1.ResourceSlice, reason, part string) {
	b.t.Helper()
	seen := ""
	defer func() {
		if b.t.Failed() {
			b.t.Logf("it says: %s", seen)
		}
	}()
	b.until("slice "+slice.Name+" says "+reason+" "+part, func() bool {
		b.read(slice)
		for _, condition := range slice.Status.Conditions {
			if condition.Type == sharingv1alpha1.ConditionNodeReady {
				seen = condition.Reason + " " + condition.Message
			}
		}
		return strings.HasPrefix(seen, reason+" ") && strings.Contains(seen, part)
	})
}

// node is what the virtual kubelet would register.
func (b *bench) node() *corev1.Node {
	b.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{labels.Type: labels.TypeVirtualNode, labels.RemoteClusterID: "milan-id"}}}
	b.create(node)
	b.ready(node, corev1.ConditionTrue, "all is well")
	return node
}

func (b *bench) ready(node *corev1.Node, status corev1.ConditionStatus, message string) {
	b.t.Helper()
	b.editStatus(node, func() {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: "Test", Message: message}}
	})
}

// pod runs on a node, as far as the API server knows.
func (b *bench) pod(namespace, name, node string, change func(*corev1.Pod)) *corev1.Pod {
	b.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}, TerminationGracePeriodSeconds: new(int64(30))},
	}
	if change != nil {
		change(pod)
	}
	b.create(pod)
	b.editStatus(pod, func() {
		pod.Status.Phase = corev1.PodRunning // a budget does not protect one that has not begun
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	})
	return pod
}

// kubelet is the pod of the virtual kubelet.
func (b *bench) kubelet() *corev1.Pod {
	b.t.Helper()
	return b.pod(tenant, "virtual-kubelet-1", "physical", func(pod *corev1.Pod) {
		pod.Labels = map[string]string{labels.AppName: kubeletName, labels.ClusterID: "milan-id"}
	})
}

// ended is what a kubelet does when a pod's processes have ended.
func (b *bench) ended(pod *corev1.Pod) {
	b.t.Helper()
	b.must(client.IgnoreNotFound(b.Delete(b.t.Context(), pod, client.GracePeriodSeconds(0))))
}
