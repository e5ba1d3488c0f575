// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/action/actiontest"
	"liqo.io/liqo/internal/action/offload"
	"liqo.io/liqo/internal/kube/kubetest"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/offloading/remotecontents"
)

// reconcile sets the status as the controllers would, as soon as a matching object exists.
func reconcile(
	ctx context.Context, c client.Client, namespace string, phase offloadingv1alpha1.OffloadingPhase, matches func(*offloadingv1alpha1.NamespaceOffloading) bool,
) {
	_ = actiontest.Eventually(ctx, func(ctx context.Context) error {
		var one offloadingv1alpha1.NamespaceOffloading
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "offloading"}, &one); err != nil {
			return err
		}
		if !matches(&one) {
			return errors.New("the object does not match yet")
		}
		one.Status = offloadingv1alpha1.NamespaceOffloadingStatus{
			OffloadingPhase: phase, ObservedGeneration: one.Generation,
			RemoteNamespacesConditions: map[string]offloadingv1alpha1.RemoteNamespaceConditions{"milan-1": {
				{Type: offloadingv1alpha1.ConditionReady, Status: corev1.ConditionFalse, Reason: "CreationLoopBackOff", Message: "namespace is taken"},
			}},
		}
		return c.Status().Update(ctx, &one)
	})
}

func testOffload(t *testing.T, config *rest.Config) {
	c := actiontest.Installed(t, config)
	actiontest.Ensure(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	o := offload.Options{Namespace: "shop", PodOffloadingStrategy: "LocalAndRemote", NamespaceMappingStrategy: "DefaultName", Timeout: 15 * time.Second}
	for _, test := range []struct {
		what   string
		change func()
		phase  offloadingv1alpha1.OffloadingPhase
		want   []string
		err    string
	}{
		{
			"new", func() { o.Selectors = []string{"region=europe", "cheap"} }, "Ready",
			[]string{`INFO Offloading of namespace "shop" correctly enabled`, "INFO Offloading completed successfully"},
			"",
		},
		{
			"again, without a selector", func() { o.Selectors = nil }, "NoClusterSelected",
			[]string{"correctly enabled", "WARN Offloading completed, but no cluster was selected"},
			"",
		},
		{
			"more restrictive", func() { o.PodOffloadingStrategy = "Remote" }, "Ready",
			[]string{"WARN The pod offloading strategy", "WARN Existing pods", "completed successfully"},
			"",
		},
		{"all failed", func() { o.PodOffloadingStrategy = "LocalAndRemote" }, "AllFailed", nil, "AllFailed: milan-1: namespace is taken (CreationLoopBackOff)"},
		{"one failed", func() { o.Selectors = []string{"cheap"} }, "SomeFailed", nil, "SomeFailed"},
		{"too long", func() { o.Selectors, o.Timeout = nil, time.Second }, "InProgress", nil, "was not complete after 1s, it is InProgress"},
		{"another mapping", func() { o.NamespaceMappingStrategy = "EnforceSameName" }, "Ready", nil, "cannot be changed"},
		{"no such namespace", func() { o.Namespace = "nowhere" }, "Ready", nil, `namespace "nowhere" cannot be offloaded`},
	} {
		t.Run(test.what, func(t *testing.T) {
			var before offloadingv1alpha1.NamespaceOffloading
			_ = c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "offloading"}, &before)
			test.change()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go reconcile(ctx, c, "shop", test.phase, func(one *offloadingv1alpha1.NamespaceOffloading) bool { return one.Generation > before.Generation })
			progress := &actiontest.Recorder{}
			err := offload.Namespace(t.Context(), c, o, progress)
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("%v, want %q", err, test.err)
			}
			for _, line := range test.want {
				if !strings.Contains(progress.Text(), line) {
					t.Errorf("the output is\n%s\nwithout %q", progress.Text(), line)
				}
			}
			var now offloadingv1alpha1.NamespaceOffloading
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "offloading"}, &now); err != nil {
				t.Fatal(err)
			}
			if got := len(now.Spec.ClusterSelector.NodeSelectorTerms); test.err == "" && got != len(o.Selectors) {
				t.Errorf("%d terms of %v", got, o.Selectors)
			}
		})
	}
	var one offloadingv1alpha1.NamespaceOffloading
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "offloading"}, &one); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), &one); err != nil {
		t.Fatal(err)
	}
}

// connections are those of the controller manager to providers. The commands under test have none.
type connections struct {
	mu         sync.Mutex
	identities map[string]remote.Identity
	scheme     *runtime.Scheme
}

// answering runs the controller that reads remote namespaces.
func answering(t *testing.T, config *rest.Config, c client.Client) *connections {
	t.Helper()
	held := &connections{identities: map[string]remote.Identity{}, scheme: c.Scheme()}
	mgr, err := kubemanager.New(config, kubemanager.Options{Scheme: c.Scheme(), SkipNameValidation: true})
	if err != nil {
		t.Fatal(err)
	}
	options := remotecontents.Options{Consumer: actiontest.LocalID, Reader: held.reader, Timeout: 2 * time.Second}
	if err := remotecontents.Setup(mgr, options); err != nil {
		t.Fatal(err)
	}
	kubetest.Start(t, "controller manager", mgr.Start)
	return held
}

func (h *connections) connect(clusterID string, identity remote.Identity) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.identities[clusterID] = identity
}

func (h *connections) reader(clusterID string) (client.Reader, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	identity, known := h.identities[clusterID]
	if !known {
		return nil, errors.New("no connection to " + clusterID)
	}
	connection, err := remote.NewConnection(identity, h.scheme)
	if err != nil {
		return nil, err
	}
	return connection.Client(), nil
}

// machine returns the client of an administrator who may read no Secret, on a machine that reaches no address but that of the cluster's API server.
func machine(t *testing.T, config *rest.Config) client.WithWatch {
	t.Helper()
	admin := actiontest.Connect(t, config)
	const user = "administrator"
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
		{
			APIGroups: []string{"offloading.liqo.io"}, Resources: []string{"namespaceoffloadings"},
			Verbs: []string{"get", "list", "watch", "create", "patch", "delete"},
		},
		{APIGroups: []string{"virtualkubelet.liqo.io"}, Resources: []string{"namespacemaps"}, Verbs: []string{"list"}},
		{APIGroups: []string{"discovery.liqo.io"}, Resources: []string{"foreignclusters"}, Verbs: []string{"list"}},
		{APIGroups: []string{""}, Resources: []string{"nodes", "pods", "persistentvolumes"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: []string{"delete"}},
	}}
	actiontest.Create(t, admin, role)
	actiontest.Create(t, admin, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	})
	local, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	restricted := rest.CopyConfig(config)
	restricted.Impersonate.UserName = user
	restricted.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != local.Host {
			t.Errorf("the command dials %s", address)
			return nil, errors.New("no route to host")
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	err = actiontest.Eventually(t.Context(), func(ctx context.Context) error { // until the authorizer has observed the binding
		c, err := client.NewWithWatch(restricted, client.Options{Scheme: admin.Scheme()})
		if err != nil {
			return err
		}
		return c.List(ctx, &corev1.NodeList{})
	})
	if err != nil {
		t.Fatal(err)
	}
	return actiontest.Connect(t, restricted)
}

// newProvider sets up a provider with a remote namespace of namespace shop. The provider is the cluster under test itself: only
// the identity distinguishes them.
func newProvider(t *testing.T, c client.Client, config *rest.Config, peer string, labelled map[string]string) (identity remote.Identity) {
	t.Helper()
	tenant, remoteName, id := "liqo-tenant-"+peer, "shop-rome-"+peer, peer+"-id"
	for _, name := range []string{"shop", tenant, remoteName} {
		actiontest.Ensure(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "liqo-peer"}}
	actiontest.Create(t, c, account)
	meta := metav1.ObjectMeta{Namespace: remoteName, Name: tenant}
	actiontest.Create(t, c, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods", "services", "configmaps", "secrets", "persistentvolumeclaims"}, Verbs: []string{"list"}},
		{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"ingresses"}, Verbs: []string{"list"}},
	}})
	actiontest.Create(t, c, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: tenant},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: tenant, Name: "liqo-peer"}},
	})
	token := &authenticationv1.TokenRequest{}
	if err := c.SubResource("token").Create(t.Context(), account, token); err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Truncate(time.Second)
	identity = remote.Identity{
		Namespace: tenant, APIServerURL: config.Host, APIServerCA: config.CAData,
		Token: token.Status.Token, RenewAt: now.Add(30 * time.Minute), ExpiresAt: now.Add(time.Hour),
	}
	mapped := &vkv1alpha1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: peer, Labels: map[string]string{labels.Replication: "true", labels.RemoteID: id}},
		Spec:       vkv1alpha1.NamespaceMapSpec{DesiredMapping: map[string]string{"shop": remoteName}},
	}
	actiontest.Create(t, c, mapped)
	mapped.Status.CurrentMapping = map[string]vkv1alpha1.RemoteNamespaceStatus{
		"shop": {RemoteNamespace: remoteName, Phase: vkv1alpha1.MappingAccepted}, "other": {RemoteNamespace: "x", Phase: vkv1alpha1.MappingAccepted},
	}
	if err := c.Status().Update(t.Context(), mapped); err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "liqo-" + peer, Labels: map[string]string{
		labels.Type: labels.TypeVirtualNode, labels.RemoteClusterID: id, corev1.LabelHostname: "liqo-" + peer,
	}, Annotations: map[string]string{labels.ProviderLabels: ""}}}
	maps.Copy(node.Labels, labelled)
	actiontest.Create(t, c, node)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := c.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	return identity
}

// testNarrow: a selector that gives up clusters has its impact assessed as the end of the offloading has, for those clusters only.
func testNarrow(t *testing.T, config *rest.Config) {
	c := actiontest.Installed(t, config)
	admin, held := machine(t, config), answering(t, config, c)
	identity := newProvider(t, c, config, "siena-1", map[string]string{"region": "europe", "tier": "gold"})
	newProvider(t, c, config, "turin-1", map[string]string{"region": "europe", "tier": "spot"}) // stays: nothing must read it, which would fail
	key := client.ObjectKey{Namespace: "shop", Name: "offloading"}
	actiontest.Create(t, c, &offloadingv1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})

	run := func(force bool, selectors ...string) (text string, changed bool, err error) {
		t.Helper()
		var before, after offloadingv1alpha1.NamespaceOffloading
		if err := c.Get(t.Context(), key, &before); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go reconcile(ctx, c, "shop", "Ready", func(one *offloadingv1alpha1.NamespaceOffloading) bool {
			return one.Generation > before.Generation
		})
		progress := &actiontest.Recorder{}
		err = offload.Namespace(t.Context(), admin, offload.Options{
			Namespace: "shop", PodOffloadingStrategy: "LocalAndRemote", NamespaceMappingStrategy: "DefaultName",
			Selectors: selectors, Timeout: 15 * time.Second, Force: force,
		}, progress)
		if err := c.Get(t.Context(), key, &after); err != nil {
			t.Fatal(err)
		}
		if text = progress.Text(); strings.Contains(text, "turin") || err != nil && strings.Contains(err.Error(), "turin") {
			t.Errorf("the output names a cluster that stays: %v\n%s", err, text)
		}
		return text, after.Generation != before.Generation, err
	}
	stays := func(what string, selectors ...string) {
		t.Helper()
		if text, _, err := run(false, selectors...); err != nil || strings.Contains(text, "siena-1") {
			t.Errorf("%s gives up nothing, and the output is: %v\n%s", what, err, text)
		}
	}
	// refused runs a command that gives up siena, first without --force and then with it, and chooses siena again.
	refused := func(what, want string, selectors ...string) {
		t.Helper()
		_, changed, err := run(false, selectors...)
		if err == nil || changed || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--force") {
			t.Errorf("%s: changed %t, %v, want %q", what, changed, err, want)
		}
		text, changed, err := run(true, selectors...)
		if err != nil || !changed || !strings.Contains(text, "WARN cluster siena-1, namespace shop-rome-siena-1: "+want) {
			t.Errorf("%s, forced: changed %t, %v\n%s", what, changed, err, text)
		}
		stays("all clusters")
	}
	stays("a selector that fits", "region=europe")
	stays("another one that fits", "region=europe,tier in (gold,spot)")
	stays("one of two that fits", "tier=gold", "tier=spot")
	refused("without a connection", "this cluster cannot read the namespace: no connection to siena-1-id", "tier=spot")

	held.connect("siena-1-id", identity)
	at := func(name string, objectLabels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "shop-rome-siena-1", Name: name, Labels: objectLabels}
	}
	actiontest.Create(t, c, &corev1.ConfigMap{ObjectMeta: at("copy", map[string]string{labels.Origin: actiontest.LocalID})})
	text, changed, err := run(false, "tier=spot")
	for _, line := range []string{
		"WARN Cluster siena-1 would no longer be chosen, and its namespace shop-rome-siena-1 would be deleted",
		"INFO To be deleted in cluster siena-1, namespace shop-rome-siena-1: 1 ConfigMap", "INFO Offloading completed successfully",
	} {
		if err != nil || !changed || !strings.Contains(text, line) {
			t.Errorf("copies may go: changed %t, %v\n%s\nwithout %q", changed, err, text, line)
		}
	}
	stays("all clusters")
	actiontest.Create(t, c, &corev1.ConfigMap{ObjectMeta: at("theirs", nil)})
	refused("an object of others", "objects that this cluster did not create: ConfigMap theirs", "tier=spot")
	actiontest.Create(t, c, &corev1.PersistentVolumeClaim{ObjectMeta: at("data", nil), Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}},
	}})
	refused("a volume", "volumes (PersistentVolumeClaims) data", "tier=spot")

	var node corev1.Node
	if err := c.Get(t.Context(), client.ObjectKey{Name: "liqo-siena-1"}, &node); err != nil {
		t.Fatal(err)
	}
	delete(node.Labels, corev1.LabelHostname)
	if err := c.Update(t.Context(), &node); err != nil {
		t.Fatal(err)
	}
	refused("unknown labels", "objects that this cluster did not create", "region=europe")

	var mapped vkv1alpha1.NamespaceMap
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "liqo-tenant-siena-1", Name: "siena-1"}, &mapped); err != nil {
		t.Fatal(err)
	}
	mapped.Spec.DesiredMapping = nil
	if err := c.Update(t.Context(), &mapped); err != nil {
		t.Fatal(err)
	}
	stays("what was given up before", "tier=spot")
}

// testUnoffload: copies are deleted; other objects, and namespaces that cannot be read, only with --force.
func testUnoffload(t *testing.T, config *rest.Config) {
	c := actiontest.Installed(t, config)
	const remoteName = "shop-rome-milan-1"
	identity := newProvider(t, c, config, "milan-1", nil)
	admin := machine(t, config)
	ours := map[string]string{labels.Origin: actiontest.LocalID}
	at := func(name string, objectLabels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: remoteName, Name: name, Labels: objectLabels}
	}
	actiontest.Create(t, c, &corev1.ConfigMap{ObjectMeta: at("kube-root-ca.crt", nil)})
	actiontest.Create(t, c, &corev1.ConfigMap{ObjectMeta: at("one", ours)})
	actiontest.Create(t, c, &corev1.ConfigMap{ObjectMeta: at("two", ours)})
	actiontest.Create(t, c, &corev1.Secret{ObjectMeta: at("secret", ours), StringData: map[string]string{"key": "do-not-print-this"}})

	run := func(o offload.UnoffloadOptions) (string, error) {
		t.Helper()
		object := &offloadingv1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "offloading"}}
		if err := client.IgnoreAlreadyExists(c.Create(t.Context(), object)); err != nil {
			t.Fatal(err)
		}
		progress := &actiontest.Recorder{}
		if o.Namespace = "shop"; o.Timeout == 0 {
			o.Timeout = 15 * time.Second
		}
		err := offload.Unoffload(t.Context(), admin, o, progress)
		if strings.Contains(progress.Text(), "do-not-print-this") || err != nil && strings.Contains(err.Error(), identity.Token) {
			t.Error("the output holds secrets")
		}
		gone := c.Get(t.Context(), client.ObjectKeyFromObject(object), object) != nil
		if gone != (err == nil) {
			t.Errorf("error %v, gone: %t", err, gone)
		}
		if request := object.Annotations[labels.CountRemoteContents]; !gone && request != "" {
			t.Errorf("request %q is left", request)
		}
		return progress.Text(), err
	}
	refused := func(what, want string) {
		t.Helper()
		if _, err := run(offload.UnoffloadOptions{}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--force") {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
		text, err := run(offload.UnoffloadOptions{Force: true})
		if err != nil || !strings.Contains(text, "WARN") || !strings.Contains(text, want) {
			t.Errorf("%s, forced: %v\n%s", what, err, text)
		}
	}
	// Without a controller manager, an answer to an earlier request must not count: it is older than what was created since.
	old := &offloadingv1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "offloading"}}
	actiontest.Create(t, c, old)
	old.Status.RemoteContents = &offloadingv1alpha1.RemoteContents{Request: "earlier", Clusters: map[string]offloadingv1alpha1.RemoteNamespaceContents{
		"milan-1": {RemoteNamespace: remoteName, Copies: map[string]int32{"ConfigMap": 2}},
	}}
	if err := c.Status().Update(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if text, err := run(offload.UnoffloadOptions{Timeout: 2 * time.Second}); err == nil ||
		!strings.Contains(err.Error(), "no answer of Deployment liqo-controller-manager within") || !strings.Contains(err.Error(), "; check that it runs") ||
		!strings.Contains(err.Error(), "--force") || strings.Contains(text, "To be deleted") {
		t.Errorf("an old answer: %v\n%s", err, text)
	}
	held := answering(t, config, c)
	refused("without a connection", "this cluster cannot read the namespace: no connection to milan-1-id")
	held.connect("milan-1-id", identity)
	text, err := run(offload.UnoffloadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"INFO To be deleted in cluster milan-1, namespace shop-rome-milan-1: 2 of kind ConfigMap, 1 Secret",
		`INFO Offloading of namespace "shop" correctly disabled`, "INFO Unoffloading completed successfully",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("the output is\n%s\nwithout %q", text, line)
		}
	}
	if _, err := run(offload.UnoffloadOptions{}); err != nil {
		t.Fatal(err)
	}
	foreign := &corev1.ConfigMap{ObjectMeta: at("theirs", map[string]string{labels.Origin: "turin-id"})}
	actiontest.Create(t, c, foreign)
	refused("an object of others", "objects that this cluster did not create: ConfigMap theirs")
	if err := c.Delete(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: at("data", ours), Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}},
	}}
	actiontest.Create(t, c, claim)
	refused("a volume", "volumes (PersistentVolumeClaims) data")
	if err := c.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	identity.APIServerURL = "https://127.0.0.1:1"
	held.connect("milan-1-id", identity)
	refused("a dead provider", "this cluster cannot read the namespace: list objects of kind Pod in "+remoteName)
	silent := kubetest.NewProxy(t, strings.TrimPrefix(config.Host, "https://"))
	silent.Set(kubetest.Swallow)
	identity.APIServerURL = "https://" + silent.Address()
	held.connect("milan-1-id", identity)
	refused("a silent provider", "see: liqoctl status peer")

	err = offload.Unoffload(t.Context(), c, offload.UnoffloadOptions{Namespace: "shop", Timeout: time.Second}, &actiontest.Recorder{})
	if err == nil || !strings.Contains(err.Error(), `namespace "shop" is not offloaded`) {
		t.Errorf("not offloaded: %v", err)
	}
	stuck := &offloadingv1alpha1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "offloading", Finalizers: []string{"example.com/held"}},
	}
	actiontest.Create(t, c, stuck)
	err = offload.Unoffload(t.Context(), c, offload.UnoffloadOptions{Namespace: "shop", Timeout: time.Second, Force: true}, &actiontest.Recorder{})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "was not gone in the other clusters after 1s") {
		t.Errorf("stuck: %v", err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(stuck), stuck); err != nil {
		t.Fatal(err)
	}
	stuck.Finalizers = nil
	if err := c.Update(t.Context(), stuck); err != nil {
		t.Fatal(err)
	}
}
