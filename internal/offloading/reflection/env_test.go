// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/fairqueue"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/kube/kubetest/refusals"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/offloading/kinds"
	"liqo.io/liqo/internal/offloading/reflection/project"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
)

const (
	localID  = "11111111-2222-3333-4444-555555555555"
	remoteID = "66666666-7777-8888-9999-000000000000"
	mapName  = "milan-666666"
	hostIP   = "10.0.0.9"
)

func TestMain(m *testing.M) {
	log.SetLogger(klog.Background())
	flag.Parse()
	// The tests share two API servers, for which they wait more than they compute.
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		if err := parallel.Value.Set("8"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

var number atomic.Int64

// env is two real API servers and an engine between them, with exactly the rights of the chart. A fakeProvider plays the provider's controllers.
type env struct {
	t                  *testing.T
	consumer, provider client.WithWatch
	tenant             string
	node               string
	kubelet            *rest.Config
	subject            rbacv1.Subject
	identity           remote.Identity
	proxy              *kubetest.Proxy // between the engine and the provider
	connection         *remote.Connection
	reflection         *Reflection
	options            func(*Options)
	// toConsumer and toProvider record the requests of the engine.
	toConsumer, toProvider requests
}

// requests records the requests of the engine to one API server.
type requests struct {
	denied refusals.Log
	mu     sync.Mutex
	writes []string
	// reads are the GETs that are no watches.
	reads []string
	// conflicts are the writes that changed nothing, because the object had changed since it was read.
	conflicts []string
	// mostBody, in bytes, cuts off the response to a GET that is no watch, as the connection does with one of more than 16 MiB. 0 means no limit.
	mostBody int64
	// held is part of the path of watches whose events wait for released; empty: none do.
	held     string
	released chan struct{}
}

// hold keeps back the events of watches whose path contains a text, until it is released.
func (r *requests) hold(path string) (release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held, r.released = path, make(chan struct{})
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		close(r.released)
		r.held = ""
	})
}

// heldBody is the stream of a watch that can be held.
type heldBody struct {
	io.ReadCloser
	of   *requests
	path string
}

func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.of.mu.Lock()
	held, released := b.of.held != "" && strings.Contains(b.path, b.of.held), b.of.released
	b.of.mu.Unlock()
	if held {
		<-released
	}
	return n, err
}

func (r *requests) RoundTripper(next http.RoundTripper) http.RoundTripper {
	next = r.denied.RoundTripper(next)
	return tripper(func(request *http.Request) (*http.Response, error) {
		what := request.Method + " " + request.URL.Path
		var text []byte
		if request.Method != http.MethodGet && request.Body != nil {
			var err error
			if text, err = io.ReadAll(request.Body); err != nil {
				return nil, err
			}
			request.Body = io.NopCloser(bytes.NewReader(text))
		}
		if request.Method == http.MethodDelete && text != nil && !uid.Match(text) { // JSON or not
			what += " without UID"
		}
		if request.Method != http.MethodGet && !bytes.Contains(text, repairing) {
			r.note(what) // before it is sent: a test may observe its effect before the response
		}
		if request.Method == http.MethodGet && request.URL.Query().Get("watch") == "" {
			r.mu.Lock()
			r.reads = append(r.reads, request.URL.Path)
			r.mu.Unlock()
		}
		response, err := next.RoundTrip(request)
		if err == nil && response.StatusCode == http.StatusConflict {
			r.mu.Lock()
			r.conflicts = append(r.conflicts, what)
			r.mu.Unlock()
		}
		if err == nil && request.URL.Query().Get("watch") != "" {
			response.Body = &heldBody{response.Body, r, request.URL.Path}
		}
		if r.mostBody > 0 && err == nil && request.Method == http.MethodGet && request.URL.Query().Get("watch") == "" {
			response.Body = &cutBody{ReadCloser: response.Body, left: r.mostBody}
		}
		return response, err
	})
}

func (r *requests) note(write string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes = append(r.writes, write)
}

// repairing is in the reasons of events that an API server may write about any Service, when its repair loop for addresses and ports sees the Service
// before the address. They are not writes of the engine's own.
var repairing = []byte("NotAllocated")

var uid = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// cutBody fails once more than left bytes have been read.
type cutBody struct {
	io.ReadCloser
	left int64
}

func (b *cutBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errors.New("the answer is too long")
	}
	return n, err
}

type tripper func(*http.Request) (*http.Response, error)

func (t tripper) RoundTrip(request *http.Request) (*http.Response, error) { return t(request) }

// writesTo returns the writes since the last reset whose method and path contain all parts.
func (r *requests) writesTo(parts ...string) (found []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
next:
	for _, one := range r.writes {
		for _, part := range parts {
			if !strings.Contains(one, part) {
				continue next
			}
		}
		found = append(found, one)
	}
	return found
}

// changesTo is writesTo without the writes that changed nothing because of a conflict.
func (r *requests) changesTo(parts ...string) []string {
	found := r.writesTo(parts...)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.conflicts {
		if i := slices.Index(found, one); i >= 0 {
			found = slices.Delete(found, i, i+1)
		}
	}
	return found
}

func (r *requests) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes, r.reads, r.conflicts = nil, nil, nil
	r.denied.Forget()
}

var crdsOnce sync.Map

func installCRDs(t *testing.T, config *rest.Config) {
	t.Helper()
	once, _ := crdsOnce.LoadOrStore(config.Host, sync.OnceValue(func() error {
		_, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: []string{"../../../deployments/liqo/crds"}, ErrorIfPathMissing: true})
		return err
	}))
	if err := once.(func() error)(); err != nil {
		t.Fatal(err)
	}
}

func newEnv(t *testing.T) *env {
	t.Helper()
	t.Parallel()
	consumer, provider := kubetest.SharedPair(t)
	installCRDs(t, consumer)
	installCRDs(t, provider)
	e := &env{t: t, node: fmt.Sprintf("liqo-milan-%d", number.Add(1))}
	scheme := runtime.NewScheme()
	e.must(clientgoscheme.AddToScheme(scheme))
	e.must(vkv1alpha1.AddToScheme(scheme))
	var err error
	e.consumer, err = client.NewWithWatch(consumer, client.Options{Scheme: scheme})
	e.must(err)
	e.provider, err = client.NewWithWatch(provider, client.Options{Scheme: scheme})
	e.must(err)
	e.consumer, e.provider = kubetest.Remembering(e.t, e.consumer), kubetest.Remembering(e.t, e.provider)
	e.tenant = e.namespaceOf(e.consumer, "liqo-tenant-milan-")
	e.kubelet, e.subject = account(e, e.consumer, consumer, e.tenant)
	e.kubelet.Wrap(e.toConsumer.RoundTripper)
	e.roles()
	peer := e.namespaceOf(e.provider, "liqo-tenant-rome-")
	far, subject := account(e, e.provider, provider, peer)
	e.proxy = kubetest.NewProxy(t, strings.Trim(strings.TrimPrefix(provider.Host, "https://"), "/"))
	e.identity = remote.Identity{
		Namespace: peer, APIServerURL: "https://" + e.proxy.Address(), APIServerCA: provider.CAData,
		Token: far.BearerToken, RenewAt: time.Now().Add(time.Hour), ExpiresAt: time.Now().Add(2 * time.Hour),
	}
	e.peerRole(subject)
	e.must(e.consumer.Create(t.Context(), &vkv1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: e.tenant, Name: mapName, Labels: map[string]string{labels.RemoteClusterID: remoteID, labels.Replication: "true"},
	}}))
	return e
}

// account creates a service account without rights, and returns a configuration with its token.
func account(e *env, c client.Client, admin *rest.Config, namespace string) (*rest.Config, rbacv1.Subject) {
	e.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "virtual-kubelet"}}
	e.must(c.Create(e.t.Context(), account))
	token := &authenticationv1.TokenRequest{}
	e.must(c.SubResource("token").Create(e.t.Context(), account, token))
	config := rest.AnonymousClientConfig(admin)
	config.BearerToken = token.Status.Token
	return config, rbacv1.Subject{Kind: "ServiceAccount", Namespace: namespace, Name: account.Name}
}

// roles creates and binds the roles of the chart.
func (e *env) roles() {
	e.t.Helper()
	text, err := os.ReadFile("../../../deployments/liqo/files/rbac-virtual-kubelet.yaml")
	e.must(err)
	documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var role rbacv1.ClusterRole
		err := documents.Decode(&role)
		if err == io.EOF {
			break
		}
		e.must(err)
		if role.Name == "" {
			continue
		}
		if err := e.consumer.Create(e.t.Context(), &role); !apierrors.IsAlreadyExists(err) {
			e.must(err)
		}
	}
	e.bind(e.consumer, "liqo-virtual-kubelet-tenant", e.tenant, e.subject)
	e.must(e.consumer.Create(e.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: e.tenant}, Subjects: []rbacv1.Subject{e.subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-virtual-kubelet"},
	}))
	e.waitForAccess(e.consumer, e.tenant, true, authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"})
	e.waitForAccess(e.consumer, e.tenant, true, authorizationv1.ResourceAttributes{
		Namespace: e.tenant, Verb: "list", Group: vkv1alpha1.GroupVersion.Group,
		Resource: "namespacemaps",
	})
}

// waitForAccess waits until the authorizer of the API server has observed that a virtual kubelet has a right, or no longer has it.
func (e *env) waitForAccess(c client.Client, namespace string, has bool, right authorizationv1.ResourceAttributes) {
	e.t.Helper()
	e.until("the API server knows the right", func() bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + namespace + ":virtual-kubelet", ResourceAttributes: &right,
		}}
		e.must(c.Create(e.t.Context(), review))
		return review.Status.Allowed == has
	})
}

// peerRole creates the role that the provider grants in remote namespaces.
func (e *env) peerRole(subject rbacv1.Subject) {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: subject.Namespace}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods", "events"}, Verbs: []string{"get", "list", "watch"}},
	}}
	for _, written := range kinds.Group(kinds.Where(func(kind *kinds.Kind) bool { return !kind.Data })) {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{written.Group}, Resources: written.Resources, Verbs: kinds.Verbs})
	}
	e.must(e.provider.Create(e.t.Context(), role))
}

func (e *env) bind(c client.Client, role, namespace string, subject rbacv1.Subject) {
	e.t.Helper()
	e.must(c.Create(e.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: subject.Namespace}, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}))
}

func (e *env) namespaceOf(c client.Client, prefix string) string {
	e.t.Helper()
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}
	e.must(c.Create(e.t.Context(), made))
	return made.Name
}

// offload creates a namespace and its remote namespace, and maps them.
func (e *env) offload() (local, remoteNS string) {
	e.t.Helper()
	local, remoteNS = e.namespaceOf(e.consumer, "app-"), e.namespaceOf(e.provider, "remote-")
	e.must(e.consumer.Create(e.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: local, Name: "default"}}))
	e.bind(e.consumer, "liqo-virtual-kubelet-offloaded", local, e.subject)
	e.bind(e.provider, e.identity.Namespace, remoteNS, rbacv1.Subject{Kind: "ServiceAccount", Namespace: e.identity.Namespace, Name: "virtual-kubelet"})
	e.waitForAccess(e.consumer, e.tenant, true, authorizationv1.ResourceAttributes{Namespace: local, Verb: "list", Resource: "services"})
	e.waitForAccess(e.provider, e.identity.Namespace, true, authorizationv1.ResourceAttributes{Namespace: remoteNS, Verb: "list", Resource: "configmaps"})
	e.editMap(func(m *vkv1alpha1.NamespaceMap) { m.Spec.DesiredMapping[local] = remoteNS })
	e.editMapStatus(func(m *vkv1alpha1.NamespaceMap) {
		m.Status.CurrentMapping[local] = vkv1alpha1.RemoteNamespaceStatus{RemoteNamespace: remoteNS, Phase: vkv1alpha1.MappingAccepted}
	})
	return local, remoteNS
}

// editMap changes the spec of the NamespaceMap, editMapStatus its status.
func (e *env) editMap(change func(*vkv1alpha1.NamespaceMap)) {
	e.t.Helper()
	m := &vkv1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: e.tenant, Name: mapName}}
	e.edit(e.consumer, m, func() {
		if m.Spec.DesiredMapping == nil {
			m.Spec.DesiredMapping = map[string]string{}
		}
		change(m)
	})
}

func (e *env) editMapStatus(change func(*vkv1alpha1.NamespaceMap)) {
	e.t.Helper()
	m := &vkv1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: e.tenant, Name: mapName}}
	e.must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		e.must(e.consumer.Get(e.t.Context(), client.ObjectKeyFromObject(m), m))
		if m.Status.CurrentMapping == nil {
			m.Status.CurrentMapping = map[string]vkv1alpha1.RemoteNamespaceStatus{}
		}
		change(m)
		return e.consumer.Status().Update(e.t.Context(), m)
	}))
}

// run starts the engine. It runs until stop is called or the test ends.
func (e *env) run() (stop func()) {
	e.t.Helper()
	options := Options{
		Namespace: e.tenant, NamespaceMap: mapName, HostIP: hostIP, RemoteName: "milan", ReflectIPs: true, Translator: identityTranslator{},
		Mapping: project.NamespaceMapping{LocalID: localID, LocalName: "rome", RemoteID: remoteID, NodeName: e.node},
		APIServer: func() (podspec.APIServer, error) {
			return podspec.APIServer{Enabled: true, Host: "api.example", Port: "6443"}, nil
		},
	}
	if e.options != nil {
		e.options(&options)
	}
	engine, err := New(e.kubelet, options)
	e.must(err)
	e.connection, err = remote.NewConnection(e.identity, runtime.NewScheme())
	e.must(err)
	shared := e.connection.HTTPClient()
	shared.Transport = e.toProvider.RoundTripper(shared.Transport)
	e.reflection = engine
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- engine.Run(ctx) }()
	engine.SetConnection(e.connection, true)
	connection, t := e.connection, e.t
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("engine ended: %v", err)
		}
		connection.Reset()
	})
	t.Cleanup(stop)
	return stop
}

func (e *env) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) until(what string, done func() bool) {
	e.t.Helper()
	kubetest.Eventually(e.t, what, func() error {
		if !done() {
			return errors.New("the condition is still false")
		}
		return nil
	})
}

// exists reads an object, and reports whether it exists.
func (e *env) exists(c client.Client, object client.Object) bool {
	e.t.Helper()
	err := c.Get(e.t.Context(), client.ObjectKeyFromObject(object), object)
	e.must(client.IgnoreNotFound(err))
	return err == nil
}

func (e *env) edit(c client.Client, object client.Object, change func()) {
	e.t.Helper()
	e.must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		e.must(c.Get(e.t.Context(), client.ObjectKeyFromObject(object), object))
		change()
		return c.Update(e.t.Context(), object, client.FieldOwner("another-client"))
	}))
}

// idlePolls is how often waitIdle looks, 5 ms apart: the informers deliver an event well within 100 polls. Polls instead of a duration, because a machine that
// stands still does not poll.
const (
	idlePolls = 100
	hungPolls = 600
)

// waitIdle waits until the engine has nothing more to do: no key is ready, no worker is busy, and nothing was written during idlePolls. That nothing more
// follows can only be judged by waiting. After hungPolls it does not wait any longer for workers whose requests hang.
func (e *env) waitIdle() {
	e.t.Helper()
	last, polls := -1, 0
	e.until("nothing more is written", func() bool {
		busy, working := len(e.toConsumer.writesTo())+len(e.toProvider.writesTo())+e.reflection.engine.Recorder.Waiting(), 0
		for _, q := range e.reflection.engine.Queues() {
			ready, inWork := counts(q)
			busy += ready
			working += inWork
		}
		polls++
		if busy != last {
			last, polls = busy, 0
		}
		return polls > idlePolls && working == 0 || polls > hungPolls
	})
}

// counts returns how many keys are ready, and how many workers have.
func counts(q *fairqueue.Queue) (ready, working int) {
	for _, s := range q.States() {
		if s.Ready {
			ready++
		}
		if s.Working {
			working++
		}
	}
	return ready, working
}

func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// identityTranslator is for clusters with the same addresses.
type identityTranslator struct{}

func (identityTranslator) ToLocal(address netip.Addr) (netip.Addr, error)  { return address, nil }
func (identityTranslator) ToRemote(address netip.Addr) (netip.Addr, error) { return address, nil }
