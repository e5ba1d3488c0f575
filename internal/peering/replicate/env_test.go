// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/crds"
	"liqo.io/liqo/internal/kube/kubetest"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/kube/remote"
)

func TestMain(m *testing.M) {
	log.SetLogger(klog.Background())
	os.Exit(m.Run())
}

// env is a consumer and a provider with a tenant for it. Each test has its own namespace and cluster IDs.
type env struct {
	t           testing.TB
	scheme      *runtime.Scheme
	hereConfig  *rest.Config
	thereConfig *rest.Config
	here, there client.Client
	name        string // of both namespaces
	origin      string
	provider    string

	r    *Replicator
	stop func()
}

var installed sync.Once

func newEnv(t testing.TB) *env {
	t.Helper()
	b := &env{t: t, scheme: runtime.NewScheme()}
	b.hereConfig, b.thereConfig = kubetest.SharedPair(t)
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, netv1alpha1.AddToScheme, sharingv1alpha1.AddToScheme, vkv1alpha1.AddToScheme, apiextensionsv1.AddToScheme,
	} {
		b.must(add(b.scheme))
	}
	b.here, b.there = b.client(b.hereConfig), b.client(b.thereConfig)
	installed.Do(func() {
		definitions, err := crds.Load(os.DirFS("../../../deployments/liqo"))
		b.must(err)
		b.must(crds.Apply(t.Context(), b.here, definitions, func(string) {}))
		for _, definition := range definitions {
			unbounded(definition.Object)
		}
		b.must(crds.Apply(t.Context(), b.there, definitions, func(string) {}))
	})
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "tenant-"}}
	b.must(b.here.Create(t.Context(), namespace))
	b.name = namespace.Name
	b.origin, b.provider = "origin-of-"+b.name, "provider-of-"+b.name
	b.must(b.there.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.name}}))
	b.tenant()
	return b
}

// unbounded removes the bounds from a schema: a hostile provider may remove those of its own API server.
func unbounded(schema any) {
	switch schema := schema.(type) {
	case map[string]any:
		for name, below := range schema {
			switch name {
			case "maxLength", "maxItems", "maxProperties", "x-kubernetes-validations":
				delete(schema, name)
			default:
				unbounded(below)
			}
		}
	case []any:
		for _, below := range schema {
			unbounded(below)
		}
	}
}

// mirror is the environment in which the provider is the consumer.
func (b *env) mirror() *env {
	m := &env{
		t: b.t, scheme: b.scheme, hereConfig: b.thereConfig, thereConfig: b.hereConfig, here: b.there, there: b.here,
		name: b.name, origin: b.provider, provider: b.origin,
	}
	m.tenant()
	return m
}

func (b *env) client(config *rest.Config) client.Client {
	made, err := client.New(config, client.Options{Scheme: b.scheme})
	b.must(err)
	return made
}

// tenant creates the consumer's account and rights in the provider.
func (b *env) tenant() {
	ctx := b.t.Context()
	meta := metav1.ObjectMeta{Namespace: b.name, Name: "liqo-peer"}
	b.must(b.there.Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}))
	b.must(b.there.Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{
			APIGroups: []string{"sharing.liqo.io"}, Resources: []string{"resourceslices"},
			Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"},
		},
		{APIGroups: []string{"sharing.liqo.io"}, Resources: []string{"resourceslices/status"}, Verbs: []string{"get"}},
		{
			APIGroups: []string{"virtualkubelet.liqo.io"}, Resources: []string{"namespacemaps"},
			Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"},
		},
		{APIGroups: []string{"virtualkubelet.liqo.io"}, Resources: []string{"namespacemaps/status"}, Verbs: []string{"get"}},
		{APIGroups: []string{"net.liqo.io"}, Resources: []string{"networkconfigs"}, Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"}},
		{APIGroups: []string{"net.liqo.io"}, Resources: []string{"networkconfigs/status"}, Verbs: []string{"get", "patch", "update"}},
	}}))
	b.must(b.there.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: b.name, Name: meta.Name}},
	}))
}

// peer is the provider, with a new token. through is another address of it, or empty.
func (b *env) peer(through string) Peer {
	b.t.Helper()
	if through == "" {
		through = b.thereConfig.Host
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: b.name, Name: "liqo-peer"}}
	request := &authenticationv1.TokenRequest{}
	b.must(b.there.SubResource("token").Create(b.t.Context(), account, request))
	now := time.Now().UTC().Truncate(time.Second)
	identity := remote.Identity{
		Namespace: b.name, APIServerURL: through, APIServerCA: b.thereConfig.CAData,
		Token: request.Status.Token, RenewAt: now.Add(30 * time.Minute), ExpiresAt: now.Add(time.Hour),
	}
	parsed, err := remote.ParseIdentity(identity.Data())
	b.must(err)
	return Peer{ClusterID: b.provider, LocalNamespace: b.name, Identity: parsed}
}

// start runs a replicator in its own manager until stop, or until the test ends.
func (b *env) start(change ...func(*Options)) {
	b.t.Helper()
	options := Options{
		LocalClusterID: b.origin, Network: true, ProbeInterval: 100 * time.Millisecond, ProbeTimeout: time.Second,
		RetryInterval: 50 * time.Millisecond,
	}
	for _, change := range change {
		change(&options)
	}
	mgr, err := kubemanager.New(b.hereConfig, kubemanager.Options{Scheme: b.scheme, SkipNameValidation: true})
	b.must(err)
	b.r, err = New(mgr, options)
	b.must(err)
	b.stop = kubetest.Start(b.t, "manager", mgr.Start)
}

func (b *env) connect(p Peer) {
	b.t.Helper()
	b.must(b.r.Connect(b.t.Context(), p))
}

// ready waits until the peer answers and the cache of its objects is synced.
func (b *env) ready() {
	b.t.Helper()
	kubetest.Eventually(b.t, "the connection is ready", func() error {
		if b.cache() == nil {
			return fmt.Errorf("state %+v", b.r.State(b.provider))
		}
		return nil
	})
}

func (b *env) cache() *peerCache {
	b.r.mu.Lock()
	w := b.r.workers[b.provider]
	b.r.mu.Unlock()
	return w.current().cache()
}

// probes waits for n more probes of the peer. Tests use it to show that nothing happens meanwhile.
func (b *env) probes(n int) {
	b.t.Helper()
	for range n {
		last := b.r.State(b.provider).CheckedAt
		kubetest.Eventually(b.t, "another probe", func() error {
			if !b.r.State(b.provider).CheckedAt.After(last) {
				return errors.New("not yet")
			}
			return nil
		})
	}
}

func (b *env) slice(name string, change ...func(*sharingv1alpha1.ResourceSlice)) *sharingv1alpha1.ResourceSlice {
	b.t.Helper()
	slice := &sharingv1alpha1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.name, Name: name,
			Labels: map[string]string{labels.Replication: "true", labels.RemoteID: b.provider, labels.ClusterID: b.provider},
		},
		Spec: sharingv1alpha1.ResourceSliceSpec{ConsumerClusterID: b.origin, ProviderClusterID: b.provider, NodeName: "liqo-" + name},
	}
	for _, change := range change {
		change(slice)
	}
	b.must(b.here.Create(b.t.Context(), slice))
	return slice
}

// get reads the slice; nil if there is none.
func (b *env) get(from client.Client, name string) *sharingv1alpha1.ResourceSlice {
	b.t.Helper()
	slice := &sharingv1alpha1.ResourceSlice{}
	err := from.Get(b.t.Context(), client.ObjectKey{Namespace: b.name, Name: name}, slice)
	if apierrors.IsNotFound(err) {
		return nil
	}
	b.must(err)
	return slice
}

func (b *env) edit(at client.Client, name string, change func(*sharingv1alpha1.ResourceSlice)) {
	b.t.Helper()
	kubetest.Eventually(b.t, "edit "+name, func() error {
		slice := b.get(at, name)
		if slice == nil {
			return errors.New("not there")
		}
		change(slice)
		return at.Update(b.t.Context(), slice)
	})
}

func (b *env) delete(at client.Client, name string) {
	b.t.Helper()
	b.must(at.Delete(b.t.Context(), &sharingv1alpha1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: b.name, Name: name}}))
}

// grant writes the status as the provider's controller does.
func (b *env) grant(name string, change func(*sharingv1alpha1.ResourceSlice)) {
	b.t.Helper()
	kubetest.Eventually(b.t, "grant "+name, func() error {
		slice := b.get(b.there, name)
		if slice == nil {
			return errors.New("not there")
		}
		change(slice)
		return b.there.Status().Update(b.t.Context(), slice, client.FieldOwner(labels.OwnerGrant))
	})
}

// arrives waits until is holds for the slice.
func (b *env) arrives(at client.Client, name, what string, is func(*sharingv1alpha1.ResourceSlice) bool) *sharingv1alpha1.ResourceSlice {
	b.t.Helper()
	var found *sharingv1alpha1.ResourceSlice
	kubetest.Eventually(b.t, what, func() error {
		found = b.get(at, name)
		if found == nil {
			return errors.New("not there")
		}
		if !is(found) {
			return fmt.Errorf("it is %+v", found)
		}
		return nil
	})
	return found
}

func (b *env) goes(at client.Client, name, what string) {
	b.t.Helper()
	kubetest.Eventually(b.t, what, func() error {
		if found := b.get(at, name); found != nil {
			return fmt.Errorf("finalizers %v, deleted %v", found.Finalizers, found.DeletionTimestamp)
		}
		return nil
	})
}

// warning returns the text of the event about a slice.
func (b *env) warning(name string) (text string) {
	b.t.Helper()
	kubetest.Eventually(b.t, "a warning about "+name, func() error {
		var events eventsv1.EventList
		if err := b.here.List(b.t.Context(), &events, client.InNamespace(b.name)); err != nil {
			return err
		}
		for _, event := range events.Items {
			if event.Regarding.Name == name && event.Type == corev1.EventTypeWarning {
				text = event.Note
				return nil
			}
		}
		return errors.New("none yet")
	})
	return text
}

func (b *env) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// settled waits until nothing is written during three probes, and returns the number of writes until then: when events
// of our own writes are late, we may write twice.
func (b *env) settled(resource string) (writes int) {
	b.t.Helper()
	kubetest.Eventually(b.t, "nothing is written any more", func() error {
		before, _ := b.requestsOf(resource)
		b.probes(3)
		if writes, _ = b.requestsOf(resource); writes != before {
			return fmt.Errorf("%d writes between three probes", writes-before)
		}
		return nil
	})
	return writes
}

// requests returns how many writes and lists of slices both API servers counted since their start.
func (b *env) requests() (writes, lists int) {
	b.t.Helper()
	return b.requestsOf("resourceslices")
}

func (b *env) requestsOf(resource string) (writes, lists int) {
	b.t.Helper()
	for _, config := range []*rest.Config{b.hereConfig, b.thereConfig} {
		config := rest.CopyConfig(config)
		config.GroupVersion, config.NegotiatedSerializer = &sharingv1alpha1.SchemeGroupVersion, clientgoscheme.Codecs.WithoutConversion()
		made, err := rest.RESTClientFor(config)
		b.must(err)
		text, err := made.Get().AbsPath("/metrics").DoRaw(b.t.Context())
		b.must(err)
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "apiserver_request_total{") || !strings.Contains(line, `resource="`+resource+`"`) {
				continue
			}
			_, number, _ := strings.Cut(strings.TrimSpace(line), "} ")
			n, err := strconv.ParseFloat(number, 64)
			b.must(err)
			switch {
			case strings.Contains(line, `verb="LIST"`):
				lists += int(n)
			case !strings.Contains(line, `verb="GET"`) && !strings.Contains(line, `verb="WATCH"`):
				writes += int(n)
			}
		}
	}
	return writes, lists
}

// proxy is in front of the provider. It returns its URL as well.
func (b *env) proxy(t *testing.T) (proxy *kubetest.Proxy, address string) {
	t.Helper()
	target, err := url.Parse(b.thereConfig.Host)
	b.must(err)
	proxy = kubetest.NewProxy(t, target.Host)
	return proxy, "https://" + proxy.Address()
}

// stopClock freezes the clock of the rate limiters, and returns how to advance it.
func stopClock(o *Options) (advance func(time.Duration)) {
	var now atomic.Int64
	now.Store(time.Now().UnixNano())
	o.Now = func() time.Time { return time.Unix(0, now.Load()) }
	return func(d time.Duration) { now.Add(int64(d)) }
}
