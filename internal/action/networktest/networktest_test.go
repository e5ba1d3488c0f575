// SPDX-License-Identifier: Apache-2.0

package networktest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/network/matrix"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

const (
	romeID  = "11111111-1111-4111-8111-111111111111"
	milanID = "22222222-2222-4222-8222-222222222222"
)

type silent struct{}

// lines keeps the reported lines.
type lines struct {
	silent
	all []string
}

func (l *lines) Info(text string) { l.all = append(l.all, text) }

func (silent) Start(string) {}
func (silent) Done(string)  {}
func (silent) Info(string)  {}
func (silent) Warn(string)  {}
func (silent) Stop()        {}

// world is two clusters with the same networks, and a model of the network between them. Rome reaches milan's pods under 10.1/16 and
// its external network under 10.3/16; milan reaches rome's under 10.2/16 and 10.4/16.
type world struct {
	clusters [2]client.WithWatch
	// corrupt changes an answer.
	corrupt func(q Question, a *matrix.Answer)
	// stuck keeps pods from starting.
	stuck atomic.Bool
	// shows is whether a cluster leads the addresses that the other one shows to its own pods.
	shows [2]bool

	mu    sync.Mutex
	asked []Question
}

var seen = [2]map[string]string{
	{"10.1.": "10.200.", "10.3.": "10.201."},
	{"10.2.": "10.200.", "10.4.": "10.201."},
}

// swap replaces the first half of an address according to a table or its inverse.
func swap(address string, table map[string]string, inverse bool) (string, bool) {
	for from, to := range table {
		if inverse {
			from, to = to, from
		}
		if rest, ok := strings.CutPrefix(address, from); ok {
			return to + rest, true
		}
	}
	return address, false
}

// newWorld creates two clusters and runs replacements of their missing controllers.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{shows: [2]bool{true, true}}
	for i, name := range []string{"rome", "milan"} {
		config := kubetest.Cluster(t)
		if _, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{
			Paths: []string{filepath.Join("..", "..", "..", "deployments", "liqo", "crds")},
		}); err != nil {
			t.Fatal(err)
		}
		scheme := runtime.NewScheme()
		for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, netv1alpha1.AddToScheme} {
			if err := add(scheme); err != nil {
				t.Fatal(err)
			}
		}
		c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
		if err != nil {
			t.Fatal(err)
		}
		w.clusters[i] = c
		w.createObjects(t, i, name)
		w.runControllers(t, c)
	}
	return w
}

// createObjects creates the objects that Liqo and the cluster would have created.
func (w *world) createObjects(t *testing.T, i int, name string) {
	t.Helper()
	ids, c := [2]string{romeID, milanID}, w.clusters[i]
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "liqo", Name: name} }
	tunnel := &netv1alpha1.TunnelEndpoint{ObjectMeta: meta("peer"), Spec: netv1alpha1.TunnelEndpointSpec{
		ClusterIdentity: netv1alpha1.ClusterIdentity{ClusterID: ids[1-i], ClusterName: "peer"}, BackendType: "wireguard", BackendConfig: map[string]string{},
		LocalPodCIDR: "10.200.0.0/16", LocalNATPodCIDR: [2]string{"10.2.0.0/16", "10.1.0.0/16"}[i],
		LocalExternalCIDR: "10.201.0.0/16", LocalNATExternalCIDR: [2]string{"10.4.0.0/16", "10.3.0.0/16"}[i],
		RemotePodCIDR: "10.200.0.0/16", RemoteNATPodCIDR: [2]string{"10.1.0.0/16", "10.2.0.0/16"}[i],
		RemoteExternalCIDR: "10.201.0.0/16", RemoteNATExternalCIDR: [2]string{"10.3.0.0/16", "10.4.0.0/16"}[i],
	}}
	tunnel.Labels = map[string]string{labels.TunnelShown: "true"}
	other := tunnel.DeepCopy() // another peer of the same cluster
	other.Name, other.Spec.ClusterIdentity.ClusterID, other.Spec.LocalNATPodCIDR = "other", "33333333-3333-4333-8333-333333333333", "10.9.0.0/16"
	manager := &appsv1.Deployment{ObjectMeta: meta("liqo-controller-manager"), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
			Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "c", Image: "localhost/liqo:v7"}}, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "registry"}},
			},
		},
	}}
	identity := &corev1.ConfigMap{ObjectMeta: meta("liqo-clusterid-configmap"), Data: map[string]string{"CLUSTER_ID": ids[i], "CLUSTER_NAME": name}}
	identity.Labels = map[string]string{labels.AppName: "clusterid-configmap"}
	registry := &corev1.Secret{
		ObjectMeta: meta("registry"), Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte("{}")},
	}
	objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}}, registry, identity, manager, tunnel, other}
	for k := range 4 { // the third is dead, the fourth virtual
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, k)},
			Spec:       corev1.NodeSpec{PodCIDRs: []string{fmt.Sprintf("10.200.%d.0/24", k)}},
		}
		if k == 3 {
			n.Labels = map[string]string{labels.Type: labels.TypeVirtualNode}
		}
		objects = append(objects, n)
	}
	for _, object := range objects {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		n, ok := object.(*corev1.Node)
		if !ok {
			continue
		}
		state := corev1.ConditionTrue
		if strings.HasSuffix(n.Name, "-2") {
			state = corev1.ConditionFalse
		}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: state}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.0.1" + n.Name[len(n.Name)-1:]}}
		if err := c.Status().Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
}

// runControllers does the work of the service account controller and of the kubelets.
func (w *world) runControllers(t *testing.T, c client.WithWatch) {
	t.Helper()
	namespaces, err := c.Watch(t.Context(), &corev1.NamespaceList{})
	if err != nil {
		t.Fatal(err)
	}
	pods, err := c.Watch(t.Context(), &corev1.PodList{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	go func() {
		for event := range namespaces.ResultChan() {
			if namespace, ok := event.Object.(*corev1.Namespace); ok && strings.HasPrefix(namespace.Name, namespacePrefix) {
				_ = c.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "default"}})
			}
		}
	}()
	go func() {
		for event := range pods.ResultChan() {
			p, ok := event.Object.(*corev1.Pod)
			if !ok || p.Status.PodIP != "" || w.stuck.Load() || !canPull(ctx, c, p) {
				continue
			}
			number := p.Spec.NodeName[len(p.Spec.NodeName)-1:]
			p.Status.PodIP = "10.200." + number + ".7"
			if strings.HasPrefix(p.Name, pairPod) {
				p.Status.PodIP = "10.200." + number + ".8"
			}
			if p.Spec.HostNetwork {
				p.Status.PodIP = "192.168.0.1" + number
			}
			p.Status.Phase = corev1.PodRunning
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			_ = c.Status().Update(ctx, p)
		}
	}()
}

// canPull: a node pulls the image of the installation with the pull Secret of the installation only.
func canPull(ctx context.Context, c client.Client, p *corev1.Pod) bool {
	for _, name := range p.Spec.ImagePullSecrets {
		var secret corev1.Secret
		if c.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: name.Name}, &secret) == nil && secret.Type == corev1.SecretTypeDockerConfigJson {
			return true
		}
	}
	return false
}

// asker is the network from the view of one cluster's pods.
type asker struct {
	world *world
	at    int
}

func (a asker) Ask(ctx context.Context, q Question) (matrix.Answer, error) {
	w := a.world
	w.mu.Lock()
	w.asked = append(w.asked, q)
	w.mu.Unlock()
	var from corev1.Pod
	if err := w.clusters[a.at].Get(ctx, client.ObjectKey{Namespace: q.Namespace, Name: q.Pod}, &from); err != nil {
		return matrix.Answer{}, err
	}
	answer := w.carry(ctx, a.at, &from, q)
	if w.corrupt != nil {
		w.corrupt(q, &answer)
	}
	return answer, nil
}

// carry routes a packet to its destination, as a working network would.
func (w *world) carry(ctx context.Context, at int, from *corev1.Pod, q Question) matrix.Answer {
	target := netip.MustParseAddrPort(q.Target)
	address, port := target.Addr().String(), int32(target.Port())
	byNode, _ := swap("10.201."+from.Spec.NodeName[len(from.Spec.NodeName)-1:]+".0", seen[1-at], true)
	source, _ := swap(from.Status.PodIP, seen[1-at], true)
	if from.Spec.HostNetwork {
		source = byNode
	}
	var services corev1.ServiceList
	var slices discoveryv1.EndpointSliceList
	if err := errors.Join(
		w.clusters[at].List(ctx, &services, client.InNamespace(q.Namespace)), w.clusters[at].List(ctx, &slices, client.InNamespace(q.Namespace)),
	); err != nil {
		return matrix.Answer{Error: err.Error()}
	}
	for _, service := range services.Items {
		for _, one := range service.Spec.Ports {
			switch {
			case service.Name != farService || string(one.Protocol) != q.Protocol:
			case service.Spec.ClusterIP == address && one.Port == port:
				address, port = slices.Items[0].Endpoints[0].Addresses[0], matrix.Port
			case strings.HasPrefix(address, "192.168.") && one.NodePort == port:
				address, port, source = slices.Items[0].Endpoints[0].Addresses[0], matrix.Port, byNode
			}
		}
	}
	there, ok := swap(address, seen[at], false)
	in := 1 - at
	if own, shows := swap(address, seen[1-at], false); shows && w.shows[at] { // the node leads it to the pod here
		there, ok, in = own, true, at
		if source = from.Status.PodIP; own[:len("10.200.0")] == source[:len("10.200.0")] {
			source, _ = swap(source, seen[1-at], true)
		}
	}
	if !ok {
		return matrix.Answer{Error: "no pod has the address " + q.Target}
	}
	var pods corev1.PodList
	if err := w.clusters[in].List(ctx, &pods, client.InNamespace(q.Namespace)); err != nil {
		return matrix.Answer{Error: err.Error()}
	}
	for _, p := range pods.Items {
		if p.Status.PodIP == there && port == matrix.Port {
			return matrix.Answer{Server: p.Name, Source: source, Took: time.Millisecond}
		}
	}
	return matrix.Answer{Error: "no pod has the address " + q.Target}
}

func (w *world) options() Options {
	return Options{
		Local:  Cluster{Client: w.clusters[0], Asker: asker{w, 0}, Namespace: "liqo"},
		Remote: Cluster{Client: w.clusters[1], Asker: asker{w, 1}, Namespace: "liqo"},
		Bytes:  1 << 20, Timeout: time.Minute,
	}
}

// left returns the test namespaces without a deletion timestamp.
func (w *world) left(t *testing.T) (names []string) {
	t.Helper()
	for _, c := range w.clusters {
		var all corev1.NamespaceList
		if err := c.List(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		for _, one := range all.Items {
			if strings.HasPrefix(one.Name, namespacePrefix) && one.DeletionTimestamp == nil {
				names = append(names, one.Name)
			}
		}
	}
	return names
}

func TestWithAPIServers(t *testing.T) {
	w := newWorld(t)
	t.Run("all works", func(t *testing.T) {
		reported := &lines{}
		report, err := Run(t.Context(), w.options(), reported)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range report.Results {
			if r.Error != "" {
				t.Errorf("%+v", r)
			}
		}
		// Two nodes on each side, two protocols, two sizes, two directions: pod to pod 4, node to pod 4, to a Service 2, to a node port 2, at shown
		// addresses 2 and 1.
		if len(report.Results) != (4+4+2+2+3)*2*2*2 || len(report.NotTested) > 0 || report.Failed != 0 || report.Local != "rome" || report.Remote != "milan" {
			t.Errorf("%d results, %d failed, %s and %s", len(report.Results), report.Failed, report.Local, report.Remote)
		}
		if left := w.left(t); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		// The lines also show the progress without a terminal: one for each case and size, the small ones first.
		var want []string
		for _, size := range []string{"1 B", "1 MiB"} {
			for title, count := range map[string]int{podToPod: 16, nodeToPod: 16, podToService: 8, podToNodePort: 8, podToShown: 12} {
				want = append(want, fmt.Sprintf("%s, %s: %d of %[3]d ways work", title, size, count))
			}
		}
		for _, line := range want {
			if !slices.Contains(reported.all, line) {
				t.Errorf("not reported: %s\n%q", line, reported.all)
			}
		}
		if i := slices.IndexFunc(reported.all, func(line string) bool { return strings.Contains(line, "1 MiB") }); i < 4 || len(reported.all) != len(want) {
			t.Errorf("reported: %q", reported.all)
		}
		key := w.asked[0].Key
		for _, q := range w.asked {
			if q.Key != key || len(key) < 20 {
				t.Errorf("asked with the key %q, and then %q", key, q.Key)
			}
		}
	})
	t.Run("source address changed", func(t *testing.T) {
		w.corrupt = func(q Question, a *matrix.Answer) {
			if strings.HasPrefix(q.Pod, "pod-0-local") && q.Protocol == matrix.UDP && strings.HasPrefix(q.Target, "10.1.0.7:") {
				a.Source = "10.4.0.0"
			}
		}
		defer func() { w.corrupt = nil }()
		report, err := Run(t.Context(), w.options(), silent{})
		if err != nil || report.Failed != 2 {
			t.Fatalf("%d failed, want 2 (both sizes): %v", report.Failed, err)
		}
		for _, r := range report.Results {
			if r.Error != "" && (r.Case != podToPod || r.FromCluster != "rome" || r.From != "pod on rome-0" ||
				r.To != "pod on milan-0" || !strings.Contains(r.Error, `"10.4.0.0", want 10.2.0.7`)) {
				t.Errorf("%+v", r)
			}
		}
	})
	t.Run("one path is broken", func(t *testing.T) {
		w.corrupt = func(q Question, a *matrix.Answer) {
			if strings.HasPrefix(q.Pod, "pod-0-local") && q.Protocol == matrix.UDP && strings.HasPrefix(q.Target, "10.1.0.7:") {
				*a = matrix.Answer{Error: "no answer to 6 datagrams"}
			}
		}
		defer func() { w.corrupt = nil }()
		report, err := Run(t.Context(), w.options(), silent{})
		if err != nil || report.Failed != 2 {
			t.Fatalf("%d failed, want 2 (both sizes): %v", report.Failed, err)
		}
		for _, r := range report.Results {
			if want := map[bool]string{
				false: "no answer to 6 datagrams", true: "not tested, because not even 1 B arrived",
			}[r.Bytes > 1]; r.Error != "" && r.Error != want {
				t.Errorf("%+v, want %q", r, want)
			}
		}
	})
	t.Run("an address that is shown leads elsewhere", func(t *testing.T) {
		w.shows[1] = false // in milan, as without the rules of its nodes
		defer func() { w.shows[1] = true }()
		report, err := Run(t.Context(), w.options(), silent{})
		if err != nil || report.Failed != 3*2*2 {
			t.Fatalf("%d failed, want 12: %v", report.Failed, err)
		}
		for _, r := range report.Results {
			if r.Error != "" && (r.Case != podToShown || r.FromCluster != "milan" || r.ToCluster != "milan" ||
				!strings.HasPrefix(r.Target, "10.1.") || !strings.Contains(r.Error, "no pod has the address 10.1.") && r.Bytes == 1) {
				t.Errorf("%+v", r)
			}
		}
	})
	t.Run("another pod than the one that is shown", func(t *testing.T) {
		w.corrupt = func(q Question, a *matrix.Answer) {
			if strings.HasPrefix(q.Pod, "pair-0-local") {
				a.Server, a.Source = "pod-0-remote", "10.2.0.8"
			}
		}
		defer func() { w.corrupt = nil }()
		report, err := Run(t.Context(), w.options(), silent{})
		if err != nil || report.Failed != 4 {
			t.Fatalf("%d failed, want 4: %v", report.Failed, err)
		}
		for _, r := range report.Results {
			if r.Error != "" && (r.Case != podToShown || r.From != "pod on rome-0" ||
				r.To != "pod on rome-0" || !strings.Contains(r.Error, `another pod answered: "pod-0-remote"`)) {
				t.Errorf("%+v", r)
			}
		}
	})
	t.Run("the client comes from an address that another peer shows for it", func(t *testing.T) {
		w.corrupt = func(q Question, a *matrix.Answer) {
			if strings.HasPrefix(q.Pod, "pair-0-") {
				a.Source = "10.9.0.8"
			}
		}
		defer func() { w.corrupt = nil }()
		if report, err := Run(t.Context(), w.options(), silent{}); err != nil || report.Failed > 0 {
			t.Errorf("%d failed: %v", report.Failed, err)
		}
	})
	t.Run("addresses are not shown", func(t *testing.T) {
		label := func(value string) {
			t.Helper()
			tunnel := &netv1alpha1.TunnelEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "peer"}}
			if err := w.clusters[0].Patch(
				t.Context(), tunnel,
				client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"`+labels.TunnelShown+`":`+value+`}}}`)),
			); err != nil {
				t.Fatal(err)
			}
		}
		label("null")
		defer label(`"true"`)
		w.shows[0] = false
		defer func() { w.shows[0] = true }()
		reported := &lines{}
		o := w.options()
		o.MaxNodes = 1
		report, err := Run(t.Context(), o, reported)
		// One node on each side: pod to pod 1, node to pod 1, to a Service 1, to a node port 1, in both directions; at a shown address 1 in milan.
		if err != nil || report.Failed != 0 || len(report.Results) != (4*2+1)*2*2 || len(report.NotTested) != 1 ||
			!strings.Contains(report.NotTested[0], "milan shows the pods of rome at addresses in 10.2.0.0/16") {
			t.Errorf("%d failed of %d, %v, %q", report.Failed, len(report.Results), err, report.NotTested)
		}
		for _, r := range report.Results {
			if r.Case == podToShown && (r.FromCluster != "milan" || r.Source != "10.1.0.8") {
				t.Errorf("%+v", r)
			}
		}
		if !slices.ContainsFunc(reported.all, func(line string) bool { return strings.HasPrefix(line, "Not tested: milan shows") }) {
			t.Errorf("reported: %q", reported.all)
		}
	})
	t.Run("a pod of the same cluster answers", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		tried := map[Question]bool{}
		w.corrupt = func(q Question, a *matrix.Answer) {
			a.Server = strings.Replace(a.Server, "-remote", "-local", 1)
			mu.Lock()
			defer mu.Unlock()
			if tried[q] { // only paths through Services are tried twice
				cancel()
			}
			tried[q] = true
		}
		defer func() { w.corrupt = nil }()
		o := w.options()
		o.MaxNodes, o.Keep = 1, true
		report, err := Run(ctx, o, silent{})
		if !errors.Is(err, context.Canceled) ||
			!slices.ContainsFunc(report.Results, func(r Result) bool { return strings.Contains(r.Error, `another pod answered: "pod-0-local"`) }) {
			t.Errorf("%v, %+v", err, report.Results)
		}
		if left := w.left(t); len(left) != 2 || left[0] != left[1] {
			t.Errorf("kept: %v", left)
		}
	})
	t.Run("pods do not start", func(t *testing.T) {
		kept := w.left(t)
		w.stuck.Store(true)
		defer w.stuck.Store(false)
		ctx, cancel := context.WithCancelCause(t.Context())
		o := w.options()
		o.Local.Client = interceptor.NewClient(w.clusters[0], interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				err := c.List(ctx, list, options...)
				if _, pods := list.(*corev1.PodList); pods && err == nil {
					cancel(errors.New("ctrl-C")) // the test has read that the pods are Pending
				}
				return err
			},
		})
		_, err := Run(ctx, o, silent{})
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "in rome: wait until the pods in namespace "+namespacePrefix) ||
			!strings.Contains(err.Error(), "on node rome-1 is Pending") {
			t.Error(err)
		}
		if left := w.left(t); len(left) != len(kept) {
			t.Errorf("left: %v", left)
		}
	})
	t.Run("no agreement", func(t *testing.T) {
		o := w.options()
		o.Remote = o.Local
		if _, err := Run(t.Context(), o, silent{}); err == nil || !strings.Contains(err.Error(), "must be different") {
			t.Errorf("the same cluster twice: %v", err)
		}
		var tunnel netv1alpha1.TunnelEndpoint
		if err := w.clusters[1].Get(t.Context(), client.ObjectKey{Namespace: "liqo", Name: "peer"}, &tunnel); err != nil {
			t.Fatal(err)
		}
		tunnel.Spec.RemoteNATPodCIDR = "10.9.0.0/16"
		if err := w.clusters[1].Update(t.Context(), &tunnel); err != nil {
			t.Fatal(err)
		}
		if _, err := Run(t.Context(), w.options(), silent{}); err == nil ||
			!strings.Contains(err.Error(), "do not agree on rome's pods as seen by milan: 10.2.0.0/16 in rome, 10.9.0.0/16 in milan") {
			t.Error(err)
		}
		if err := w.clusters[1].Delete(t.Context(), &tunnel); err != nil {
			t.Fatal(err)
		}
		if _, err := Run(t.Context(), w.options(), silent{}); err == nil || !strings.Contains(err.Error(), "milan has no TunnelEndpoint for rome") {
			t.Error(err)
		}
	})
}

// TestAsker: the API server passes the question and the key to the pod, and its answer back.
func TestAsker(t *testing.T) {
	var request *http.Request
	code, body := http.StatusOK, `{"server":"pod-0-remote","source":"10.2.0.7","took":1000}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request = r
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}))
	defer server.Close()
	asker, err := NewAsker(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	q := Question{Namespace: "n", Pod: "pod-0-local", Key: "secret", Protocol: matrix.UDP, Target: "10.1.0.7:5879", Bytes: 7}
	answer, err := asker.Ask(t.Context(), q)
	if want := (matrix.Answer{Server: "pod-0-remote", Source: "10.2.0.7", Took: time.Microsecond}); err != nil || answer != want {
		t.Errorf("%+v %v", answer, err)
	}
	if request.URL.String() != "/api/v1/namespaces/n/pods/pod-0-local:5879/proxy/check?bytes=7&protocol=UDP&target=10.1.0.7%3A5879" ||
		request.Header.Get(matrix.KeyHeader) != "secret" {
		t.Errorf("%s %v", request.URL, request.Header)
	}
	code, body = http.StatusForbidden, "not for you"
	if _, err := asker.Ask(t.Context(), q); err == nil {
		t.Error("a refusal is not an error")
	}
	code, body = http.StatusOK, "<html>"
	if _, err := asker.Ask(t.Context(), q); err == nil {
		t.Error("an answer that is not JSON is not an error")
	}
}
