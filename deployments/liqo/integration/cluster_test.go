// SPDX-License-Identifier: Apache-2.0

// Package integration tests the chart in real API servers: that they accept its objects, and what the roles and admission policies permit and refuse,
// to our own processes with their rights and to hostile peers. What the templates render is tested in deployments/liqo, without a server.
//
// It must not know nodes: pods of the tests never run.
package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	liqo "liqo.io/liqo/deployments/liqo"
	"liqo.io/liqo/deployments/liqo/charttest"
	"liqo.io/liqo/internal/kube/crds"
	"liqo.io/liqo/internal/kube/kubetest"
)

// TestCluster installs the chart into an API server, which validates the objects, and then tests which roles the
// controller manager may bind in which namespaces.
func TestCluster(t *testing.T) {
	ctx, admin, root := installed(t)

	c := connect(t, asAccount(admin, "liqo", "liqo-controller-manager"))
	namespace := func(name string, tenant bool) *corev1.Namespace {
		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if tenant {
			object.Labels = map[string]string{"discovery.liqo.io/tenant-namespace": "true"}
		}
		return object
	}
	const tenant = "liqo-tenant-milan-000000"
	for _, object := range []client.Object{namespace(tenant, true), namespace("liqo-tenant-unmarked", false), namespace("shop", true)} {
		if err := root.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
	account := func(namespace, name string) rbacv1.Subject {
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
	}
	ours := account("liqo", "liqo-controller-manager")
	bind := func(namespace, role string, subjects ...rbacv1.Subject) client.Object {
		return &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "liqo-binding-"}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}
	}
	bindAll := func(name, role string, subjects ...rbacv1.Subject) client.Object {
		return &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}
	}
	kubelet := account(tenant, "virtual-kubelet")
	remoteNamespace := func(name string) *corev1.Namespace {
		object := namespace(name, false)
		object.Annotations = map[string]string{"liqo.io/managed-by-namespace-map": tenant + "/milan-000000"}
		return object
	}
	if err := root.Create(ctx, remoteNamespace("remote")); err != nil {
		t.Fatal(err)
	}
	named := func(object client.Object, name string) client.Object {
		object.SetGenerateName("")
		object.SetName(name)
		return object
	}
	callers := func(subject rbacv1.Subject) client.Object {
		return &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "liqo-virtual-kubelet-milan-000000"}, Subjects: []rbacv1.Subject{subject},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "extension-apiserver-authentication-reader"},
		}
	}
	peer := account(tenant, "liqo-peer")
	const inside = "liqo-virtual-kubelet-milan-000000"

	inForce(t, "liqo-controller-manager", func() error {
		return c.Create(ctx, bind("kube-system", "liqo-controller-manager-tenant", ours), client.DryRunAll)
	})
	for _, test := range []struct {
		name    string
		object  client.Object
		allowed bool
	}{
		{"its rights in a tenant namespace", bind(tenant, "liqo-controller-manager-tenant", ours), true},
		{"a peer's rights in a tenant namespace", bind(tenant, "liqo-remote-peering-basic", account(tenant, "liqo-peer")), true},
		{"the rights of a peer that may use the cluster", bind(tenant, "liqo-remote-peering-incoming", account(tenant, "liqo-peer")), true},
		{"a kubelet's rights in a tenant namespace", bind(tenant, "liqo-virtual-kubelet-tenant", kubelet), true},
		{"a kubelet's leases", bind("kube-node-lease", "liqo-virtual-kubelet-lease", kubelet), true},
		{"a kubelet's nodes", bindAll("liqo-virtual-kubelet-milan", "liqo-virtual-kubelet", kubelet), true},
		{"a new tenant namespace", namespace("liqo-tenant-turin-000000", true), true},

		{"a remote namespace", remoteNamespace("shop-milan-000000"), true},
		{"a peer's rights in its remote namespace", named(bind("remote", "liqo-virtual-kubelet-remote", peer), tenant), true},
		{"its own rights in a remote namespace", named(bind("remote", "liqo-controller-manager-remote", ours), "liqo-controller-manager"), true},
		{"a kubelet's callers", callers(kubelet), true},
		{"a kubelet's rights in an offloaded namespace", named(bind("shop", "liqo-virtual-kubelet-offloaded", kubelet), inside), true},

		{"a remote namespace of the system", remoteNamespace("kube-more"), false},
		{
			"a peer's rights in the remote namespace of another",
			named(bind("remote", "liqo-virtual-kubelet-remote", account("liqo-tenant-turin-000000", "liqo-peer")), "liqo-tenant-turin-000000"),
			false,
		},
		{"a peer's rights under another name", named(bind("remote", "liqo-virtual-kubelet-remote", peer), "another"), false},
		{"a peer's rights in a local namespace", named(bind("shop", "liqo-virtual-kubelet-remote", peer), tenant), false},
		{"a peer's rights to more, in its remote namespace", named(bind("remote", "liqo-controller-manager-tenant", peer), tenant), false},
		{"rights for remote namespaces in a tenant namespace", bind(tenant, "liqo-virtual-kubelet-remote", peer), false},
		{"its own rights in a local namespace", named(bind("shop", "liqo-controller-manager-remote", ours), "liqo-controller-manager"), false},
		{"its own rights in the system", named(bind("kube-system", "liqo-controller-manager-remote", ours), "liqo-controller-manager"), false},
		{"its own rights in a tenant namespace", named(bind(tenant, "liqo-controller-manager-remote", ours), "liqo-controller-manager"), false},
		{"its own rights in a remote namespace, to a peer", named(bind("remote", "liqo-controller-manager-remote", peer), "liqo-controller-manager"), false},
		{"a peer's callers", callers(peer), false},
		{"a kubelet's rights in the system", named(bind("kube-system", "liqo-virtual-kubelet-offloaded", kubelet), inside), false},
		{"a kubelet's rights in Liqo's namespace", named(bind("liqo", "liqo-virtual-kubelet-offloaded", kubelet), inside), false},
		{"a peer's rights in an offloaded namespace", named(bind("shop", "liqo-virtual-kubelet-offloaded", peer), inside), false},
		{"a binding without subjects in an offloaded namespace", named(bind("shop", "liqo-virtual-kubelet-offloaded"), inside), false},

		{"secrets where leases are", bind("kube-node-lease", "liqo-controller-manager-tenant", ours), false},
		{"a namespace that only has the name of a tenant", bind("liqo-tenant-unmarked", "liqo-controller-manager-tenant", ours), false},
		{"a namespace that only has the label of a tenant", bind("shop", "liqo-controller-manager-tenant", ours), false},
		{"its own namespace", bind("liqo", "liqo-auth-tenant", account("liqo", "liqo-auth")), false},
		{"another account in a tenant namespace", bind(tenant, "liqo-controller-manager-tenant", account("shop", "default")), false},
		{
			"all users in a tenant namespace",
			bind(tenant, "liqo-controller-manager-tenant", rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:authenticated"}),
			false,
		},
		{"administrator in a tenant namespace", bind(tenant, "admin", ours), false},
		{"secrets everywhere", bindAll("liqo-virtual-kubelet-turin", "liqo-controller-manager-tenant", ours), false},
		{"administrator everywhere", bindAll("liqo-virtual-kubelet-turin", "cluster-admin", ours), false},
		{"another namespace", namespace("anything", true), false},
	} {
		err := c.Create(ctx, test.object, client.DryRunAll)
		if test.allowed && err != nil || !test.allowed && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v, want allowed: %t", test.name, err, test.allowed)
		}
	}
	tryNodes(ctx, t, root, c)
	tryVolumes(ctx, t, root, c)
	tryMoves(ctx, t, root, c)
	var system corev1.Namespace
	if err := root.Get(ctx, client.ObjectKey{Name: "kube-system"}, &system); err != nil {
		t.Fatal(err)
	}
	system.Labels["discovery.liqo.io/tenant-namespace"] = "true"
	if err := c.Update(ctx, &system); err == nil {
		t.Error("the controller manager labelled kube-system as a tenant namespace")
	}
	patch := func(name, text string) error {
		return c.Patch(ctx, namespace(name, false), client.RawPatch(types.MergePatchType, []byte(`{"metadata":`+text+`}`)), client.DryRunAll)
	}
	for _, test := range []struct {
		what    string
		err     error
		allowed bool
	}{
		{"label a namespace as offloaded", patch("shop", `{"labels":{"liqo.io/scheduling-enabled":"true"}}`), true},
		{"delete a remote namespace", c.Delete(ctx, remoteNamespace("remote"), client.DryRunAll), true},
		{"keep a remote namespace for its data", patch("remote", `{"annotations":{"liqo.io/kept-for-data":"no-peer","liqo.io/owner-key":"x"}}`), true},
		{
			"give a kept namespace to the next map of its tenant",
			patch("remote", `{"annotations":{"liqo.io/managed-by-namespace-map":"liqo-tenant-milan-000000/other"}}`), true,
		},
		{"give it to another tenant", patch("remote", `{"annotations":{"liqo.io/managed-by-namespace-map":"liqo-tenant-turin-000000/other"}}`), false},
		{"annotate it otherwise", patch("remote", `{"annotations":{"liqo.io/open-remote-namespace":"true"}}`), false},
		{"label it", patch("remote", `{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}`), false},
		{"label the system", patch("kube-system", `{"labels":{"liqo.io/scheduling-enabled":"true"}}`), false},
		{"turn a namespace into a remote one", patch("shop", `{"annotations":{"liqo.io/managed-by-namespace-map":"liqo-tenant-milan-000000/x"}}`), false},
		{"another label", patch("shop", `{"labels":{"liqo.io/scheduling-enabled":"true","other":"x"}}`), false},
		{"remove a label", patch("shop", `{"labels":{"discovery.liqo.io/tenant-namespace":null}}`), false},
	} {
		if test.allowed && test.err != nil || !test.allowed && !apierrors.IsForbidden(test.err) && !apierrors.IsInvalid(test.err) {
			t.Errorf("%s: %v, want allowed: %t", test.what, test.err, test.allowed)
		}
	}
	if err := c.Delete(ctx, namespace("shop", true), client.DryRunAll); err == nil {
		t.Error("the controller manager deleted a namespace that is not a tenant's")
	}
}

// tryNodes: the controller manager may create, change and delete virtual nodes, but not real ones, and cannot turn one into the other.
func tryNodes(ctx context.Context, t *testing.T, root, c client.Client) {
	t.Helper()
	virtual := func(name string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"liqo.io/type": "virtual-node"}}}
	}
	worker := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	for _, node := range []client.Object{virtual("liqo-milan"), worker} {
		if err := root.Create(ctx, node); err != nil {
			t.Fatal(err)
		}
	}
	patch := func(node client.Object, text string) error {
		return c.Patch(ctx, node, client.RawPatch(types.MergePatchType, []byte(text)), client.DryRunAll)
	}
	const cordon = `{"spec":{"unschedulable":true}}`
	inForce(t, "liqo-virtual-nodes", func() error { return patch(worker.DeepCopy(), cordon) })
	for _, test := range []struct {
		what    string
		err     error
		allowed bool
	}{
		{"cordon a virtual node", patch(virtual("liqo-milan"), cordon), true},
		{"delete a virtual node", c.Delete(ctx, virtual("liqo-milan"), client.DryRunAll), true},
		{"cordon a real node", patch(worker.DeepCopy(), cordon), false},
		{"delete a real node", c.Delete(ctx, worker.DeepCopy(), client.DryRunAll), false},
		{"make a real node virtual", patch(worker.DeepCopy(), `{"metadata":{"labels":{"liqo.io/type":"virtual-node"}}}`), false},
		{"make a virtual node real", patch(virtual("liqo-milan"), `{"metadata":{"labels":{"liqo.io/type":null}}}`), false},
	} {
		refused := test.err != nil && strings.Contains(test.err.Error(), "liqo-virtual-nodes")
		if test.allowed && test.err != nil || !test.allowed && !refused {
			t.Errorf("%s: %v, want allowed: %t", test.what, test.err, test.allowed)
		}
	}
}

// tryVolumes: the controller manager writes volumes that its provisioner made, and the claims of these, and no others.
func tryVolumes(ctx context.Context, t *testing.T, root, c client.Client) {
	t.Helper()
	volume := func(name, provisioner string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": provisioner}},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp/x"}},
			},
		}
	}
	claim := func(namespace, name, provisioner string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{"volume.kubernetes.io/storage-provisioner": provisioner}},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		}
	}
	const own, others = "liqo.io/storage", "disk.example.com"
	for _, object := range []client.Object{
		volume("ours", own), volume("theirs", others), claim("shop", "ours", own), claim("shop", "theirs", others),
		claim("liqo-storage", "real", others),
	} {
		if err := root.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
	patch := func(object client.Object, text string) error {
		return c.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(text)), client.DryRunAll)
	}
	update := func(name string) error {
		live := claim("shop", name, "")
		if err := root.Get(ctx, client.ObjectKeyFromObject(live), live); err != nil {
			t.Fatal(err)
		}
		live.Annotations["a"] = "b"
		return c.Update(ctx, live, client.DryRunAll)
	}
	const selected = "volume.kubernetes.io/selected-node"
	sent := claim("shop", "sent", others)
	sent.Annotations[selected], sent.Labels = "liqo-milan", map[string]string{"app": "db"}
	if err := root.Create(ctx, sent); err != nil {
		t.Fatal(err)
	}
	// release takes the selected node from a claim of others, and does something besides.
	release := func(besides func(*corev1.PersistentVolumeClaim)) error {
		live := sent.DeepCopy()
		delete(live.Annotations, selected)
		if besides != nil {
			besides(live)
		}
		return c.Update(ctx, live, client.DryRunAll)
	}
	inForce(t, "liqo-volumes", func() error { return c.Delete(ctx, volume("theirs", ""), client.DryRunAll) })
	for _, test := range []struct {
		what    string
		err     error
		allowed bool
	}{
		{"create a volume", c.Create(ctx, volume("new", own), client.DryRunAll), true},
		{"delete a volume of its own", c.Delete(ctx, volume("ours", ""), client.DryRunAll), true},
		{"change a claim of its class", update("ours"), true},
		{"create a real claim", c.Create(ctx, claim("liqo-storage", "new", ""), client.DryRunAll), true},
		{"delete a real claim", c.Delete(ctx, claim("liqo-storage", "real", ""), client.DryRunAll), true},

		{"release a claim of others", release(nil), true},
		{"send a claim of others", release(func(c *corev1.PersistentVolumeClaim) { c.Annotations[selected] = "liqo-turin" }), false},
		{"take a claim with its release", release(func(c *corev1.PersistentVolumeClaim) {
			c.Annotations["volume.kubernetes.io/storage-provisioner"] = own
		}), false},
		{"annotate a claim with its release", release(func(c *corev1.PersistentVolumeClaim) { c.Annotations["a"] = "b" }), false},
		{"label a claim with its release", release(func(c *corev1.PersistentVolumeClaim) { c.Labels["app"] = "web" }), false},
		{"bind a claim with its release", release(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "ours" }), false},
		{"create a volume of others", c.Create(ctx, volume("new", others), client.DryRunAll), false},
		{"delete a volume of others", c.Delete(ctx, volume("theirs", ""), client.DryRunAll), false},
		{"take a volume of others", patch(volume("theirs", ""), `{"metadata":{"annotations":{"pv.kubernetes.io/provisioned-by":"liqo.io/storage"}}}`), false},
		{"give a volume away", patch(volume("ours", ""), `{"metadata":{"annotations":{"pv.kubernetes.io/provisioned-by":"disk.example.com"}}}`), false},
		{"change a claim of others", update("theirs"), false},
		{"create a claim of users", c.Create(ctx, claim("shop", "new", own), client.DryRunAll), false},
		{"delete a claim of users", c.Delete(ctx, claim("shop", "ours", ""), client.DryRunAll), false},
	} {
		refused := test.err != nil && (strings.Contains(test.err.Error(), "liqo-volumes") || apierrors.IsForbidden(test.err))
		if test.allowed && test.err != nil || !test.allowed && !refused {
			t.Errorf("%s: %v, want allowed: %t", test.what, test.err, test.allowed)
		}
	}
}

// inForce waits until a policy refuses what try does: an API server enforces each policy a moment after it was
// written, and not all of them at once.
func inForce(t *testing.T, policy string, try func() error) {
	t.Helper()
	kubetest.Eventually(t, "policy "+policy+" is in force", func() error {
		err := try()
		if err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+policy+"'") {
			return nil
		}
		return fmt.Errorf("%v, want a refusal of the policy", err)
	})
}

// extended opens the list of keys for what TestRemoteNamespaces tries, so that it meets the rules that no value opens.
const extended = "peers.metadata.ingresses.annotations={nginx.ingress.kubernetes.io/auth-secret,nginx.ingress.kubernetes.io/auth-tls-secret," +
	"nginx.ingress.kubernetes.io/configuration-snippet}," +
	"peers.metadata.services.annotations={metallb.io/loadBalancerIPs,service.cilium.io/global}," +
	"peers.metadata.secrets.annotations={kubernetes.io/service-account.name}"

// installed returns an API server with the objects of the chart, and its administrator. The context is a guard
// against hanging. Such tests run in parallel, as they wait for their API servers more than they compute.
func installed(t *testing.T, set ...string) (context.Context, *rest.Config, client.Client) {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	if len(set) == 0 {
		admin := withChart(t)
		return ctx, admin, connect(t, admin)
	}
	admin := kubetest.Cluster(t)
	root := connect(t, admin)
	install(ctx, t, root, set...)
	return ctx, admin, root
}

// withChart lends API servers with the objects of the chart, by the usual values.
var withChart = kubetest.Prepared(func(t testing.TB, admin *rest.Config) {
	install(t.Context(), t, connect(t, admin))
})

// install applies the objects of the chart with further values, in Helm's order as far as it matters: definitions first.
func install(ctx context.Context, t testing.TB, c client.Client, set ...string) {
	t.Helper()
	definitions, err := crds.Load(liqo.FS)
	if err != nil {
		t.Fatal(err)
	}
	if err := crds.Apply(ctx, c, definitions, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}}); err != nil {
		t.Fatal(err)
	}
	objects := slices.DeleteFunc(charttest.Render(
		t,
		append(set, "controllerManager.replicas=2", "auth.ingress.enable=true", "auth.ingress.host=liqo.example.org", charttest.Lavish, extended)...,
	),
		func(object *unstructured.Unstructured) bool {
			return strings.HasPrefix(object.GetAPIVersion(), "monitoring.")
		})
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int {
		return strings.Compare(a.GetNamespace(), b.GetNamespace())
	})
	for _, object := range objects {
		config := client.ApplyConfigurationFromUnstructured(object)
		if err := c.Apply(ctx, config, client.FieldOwner("helm")); err != nil {
			t.Errorf("%s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
}

// asAccount returns the configuration of a service account.
func asAccount(admin *rest.Config, namespace, name string) *rest.Config {
	config := rest.CopyConfig(admin)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":" + name,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
	return config
}

func connect(t testing.TB, config *rest.Config) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{crds.AddToScheme, corev1.AddToScheme, rbacv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
