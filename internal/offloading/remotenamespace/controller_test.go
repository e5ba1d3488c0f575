// SPDX-License-Identifier: Apache-2.0

package remotenamespace

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	psa "k8s.io/pod-security-admission/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/controllertest"
	"liqo.io/liqo/internal/offloading/shadow"
)

// providerEnv is a cluster that has the remote namespaces of others.
type providerEnv struct{ *controllertest.Env }

func newProviderEnv(t *testing.T) *providerEnv {
	t.Helper()
	return &providerEnv{controllertest.New(t)}
}

const consumerTenant = "liqo-tenant-paris-000001" // the tenant namespace of a consumer

var testBounds = Bounds{
	Quota:           corev1.ResourceList{"secrets": resource.MustParse("2"), "count/ingresses.networking.k8s.io": resource.MustParse("1")},
	ContainerLimits: corev1.ResourceList{"ephemeral-storage": resource.MustParse("1Gi")},
}

func (b *providerEnv) runRemoteNamespaces() (stop func()) {
	b.T.Helper()
	return b.Start(func(mgr ctrl.Manager) error {
		return Setup(mgr, Options{Namespace: "liqo", Bounds: testBounds, Level: shadow.Baseline})
	})
}

func (b *providerEnv) consumerTenant() {
	b.T.Helper()
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: consumerTenant, Labels: map[string]string{
		labels.TenantNamespace: "true", labels.ClusterID: "paris-id", labels.AppPartOf: "liqo",
	}}})
	b.Consumer("paris", consumerTenant)
}

// TestAttackH1: a consumer that may not use this cluster gets no namespace, whatever it writes, and loses those that it has.
func TestAttackH1(t *testing.T) {
	b := newProviderEnv(t)
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: consumerTenant, Labels: map[string]string{
		labels.TenantNamespace: "true", labels.ClusterID: "paris-id", labels.AppPartOf: "liqo",
	}}})
	b.runRemoteNamespaces()
	namespaceMap := b.createMap("milan-1", map[string]string{"shop": "shop-paris-000001"})
	paris := b.Consumer("paris", consumerTenant)
	b.answers(namespaceMap, map[string]string{"shop": "Accepted"})

	b.Decide(paris, discoveryv1alpha1.IncomingWithdrawing)
	b.Edit(namespaceMap, func() { namespaceMap.Spec.DesiredMapping["more"] = "more-paris-000001" })
	b.answers(namespaceMap, map[string]string{"shop": "Accepted", "more": "CreationLoopBackOff"})
	// Without a decision, what there is stays, and nothing is added.
	b.EditStatus(paris, func() { paris.Status.Incoming = nil })
	b.Edit(namespaceMap, func() { namespaceMap.Spec.DesiredMapping["undecided"] = "undecided-paris-000001" })
	b.answers(namespaceMap, map[string]string{"shop": "Accepted", "more": "CreationLoopBackOff", "undecided": "CreationLoopBackOff"})
	if namespace := controllertest.Space("shop-paris-000001"); !b.Exists(namespace) || namespace.DeletionTimestamp != nil {
		t.Fatal("the namespace is deleted although nothing is decided")
	}
	endless := endlessPod("shop-paris-000001")
	b.Make(endless)
	for _, state := range []discoveryv1alpha1.IncomingState{discoveryv1alpha1.IncomingRefused, discoveryv1alpha1.IncomingWaiting} {
		b.Decide(paris, state)
		b.Until("the namespace is deleted: "+string(state), func() bool {
			namespace := controllertest.Space("shop-paris-000001")
			return !b.Exists(namespace) || namespace.DeletionTimestamp != nil
		})
	}
	b.Until("its pod, whose grace period is 31 years, has two minutes", func() bool {
		b.Read(endless)
		return endless.DeletionTimestamp != nil && *endless.DeletionGracePeriodSeconds == lastSeconds
	})
}

// endlessPod is a pod of a peer with an extreme grace period, which has a node.
func endlessPod(namespace string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "endless", Labels: map[string]string{labels.ManagedBy: labels.ManagedByShadowPod}},
		Spec: corev1.PodSpec{
			NodeName: "n", TerminationGracePeriodSeconds: new(int64(1_000_000_000)), AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{Name: "c", Image: "i"}},
		},
	}
}

// TestAttackH5: a consumer that fills its remote namespace finds bounds there that are older than its rights, and that stay.
func TestAttackH5(t *testing.T) {
	b := newProviderEnv(t)
	b.consumerTenant()
	stop := b.runRemoteNamespaces()
	namespaceMap := b.createMap("milan-1", map[string]string{"shop": "shop-paris"})
	b.answers(namespaceMap, map[string]string{"shop": "Accepted"})
	at := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "shop-paris", Name: name} }
	quota, limits, rights := &corev1.ResourceQuota{ObjectMeta: at(boundsName)}, &corev1.LimitRange{ObjectMeta: at(boundsName)},
		&rbacv1.RoleBinding{ObjectMeta: at(consumerTenant)}
	b.Read(rights)
	for _, object := range []client.Object{quota, limits} {
		b.Read(object)
		if order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), rights.ResourceVersion); err != nil || order >= 0 {
			t.Errorf("%T was created after the rights of the consumer: %d, %v", object, order, err)
		}
	}

	// The test acts as the quota controller, which does not run here.
	b.EditStatus(quota, func() {
		quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: corev1.ResourceList{"secrets": {}, "count/ingresses.networking.k8s.io": {}}}
	})
	made := 0
	b.Until("a Secret is refused", func() bool {
		err := b.Create(t.Context(), &corev1.Secret{ObjectMeta: at(fmt.Sprint("filler-", made))})
		if err == nil {
			made++
		}
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: "+boundsName)
	})
	b.Until("containers without limits get the default, which is no request", func() bool {
		pod := &corev1.Pod{
			ObjectMeta: at("greedy"),
			Spec:       corev1.PodSpec{AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		b.Must(b.Create(t.Context(), pod, client.DryRunAll))
		got := pod.Spec.Containers[0].Resources
		return got.Limits.StorageEphemeral().String() == "1Gi" && got.Requests.StorageEphemeral().IsZero()
	})

	// The bounds are restored, and removed when the administrator sets none.
	b.Edit(quota, func() { quota.Spec.Hard = nil })
	b.Must(b.Delete(t.Context(), limits))
	b.Until("the bounds are restored", func() bool {
		b.Read(quota)
		return len(quota.Spec.Hard) == len(testBounds.Quota) && b.Exists(limits)
	})
	stop()
	b.Start(func(mgr ctrl.Manager) error {
		return Setup(mgr, Options{Namespace: "liqo"})
	})
	// So it is after an upgrade to a version whose default has no quota.
	b.Until("the bounds are removed", func() bool { return b.Gone(quota) && b.Gone(limits) })
	if !b.Exists(rights) {
		t.Error("the consumer has lost its rights")
	}
}

// TestAttackM5: the API server itself refuses privileged pods in a remote namespace, from every client. An administrator may choose another level there.
func TestAttackM5(t *testing.T) {
	b := newProviderEnv(t)
	b.consumerTenant()
	b.runRemoteNamespaces()
	namespaceMap := b.createMap("milan-1", map[string]string{"shop": "shop-paris"})
	b.answers(namespaceMap, map[string]string{"shop": "Accepted"})
	pod := func(name string, privileged bool) error {
		return b.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-paris", Name: name}, Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(false),
			Containers:                   []corev1.Container{{Name: "c", Image: "i", SecurityContext: &corev1.SecurityContext{Privileged: &privileged}}},
		}})
	}
	if err := pod("node", true); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "violates PodSecurity \"baseline") {
		t.Errorf("a privileged pod: %v", err)
	}
	b.Must(pod("plain", false))
	namespace := controllertest.Space("shop-paris")
	b.Read(namespace)
	b.Edit(namespace, func() { namespace.Labels[psa.EnforceLevelLabel] = "privileged" })
	b.Edit(namespaceMap, func() { namespaceMap.Spec.DesiredMapping["more"] = "more-paris" })
	b.answers(namespaceMap, map[string]string{"shop": "Accepted", "more": "Accepted"})
	b.Until("the administrator's level counts", func() bool { return pod("monitor", true) == nil })
}

// createMap writes a map as a consumer does.
func (b *providerEnv) createMap(name string, desired map[string]string) *vkv1alpha1.NamespaceMap {
	b.T.Helper()
	namespaceMap := &vkv1alpha1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: consumerTenant, Name: name, Labels: map[string]string{
			labels.Replication: "false", labels.Replicated: "true", labels.OriginID: "turin-id", labels.ClusterID: "turin-id", // false claims
		}},
		Spec: vkv1alpha1.NamespaceMapSpec{DesiredMapping: desired},
	}
	b.Make(namespaceMap)
	return namespaceMap
}

// answers waits until the provider reports these phases, by local name.
func (b *providerEnv) answers(namespaceMap *vkv1alpha1.NamespaceMap, want map[string]string) {
	b.T.Helper()
	var got map[string]string
	defer func() {
		if b.T.Failed() {
			b.T.Logf("(-want +got)\n%s", cmp.Diff(want, got))
		}
	}()
	b.Until("the answer is right", func() bool {
		b.Read(namespaceMap)
		got = map[string]string{}
		for local, answer := range namespaceMap.Status.CurrentMapping {
			got[local] = string(answer.Phase)
		}
		return cmp.Equal(want, got)
	})
}

func TestRemoteNamespaces(t *testing.T) {
	b := newProviderEnv(t)
	b.consumerTenant()
	stop := b.runRemoteNamespaces()
	namespaceMap := b.createMap("milan-1", map[string]string{"shop": "shop-paris", "apps": "apps"})
	const accepted, refused, terminating = "Accepted", "CreationLoopBackOff", "Terminating"
	b.answers(namespaceMap, map[string]string{"shop": accepted, "apps": refused}) // an unmanaged namespace apps exists
	remote := controllertest.Space("shop-paris")
	b.Read(remote)
	if remote.Annotations[labels.ManagedByNamespaceMap] != consumerTenant+"/milan-1" ||
		remote.Annotations[labels.OriginalName] != "shop" || remote.Labels[labels.RemoteClusterID] != "paris-id" {
		t.Errorf("%+v", remote.ObjectMeta)
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-paris", Name: consumerTenant}}
	b.Read(binding)
	if diff := cmp.Diff([]rbacv1.Subject{{Kind: "ServiceAccount", Name: "liqo-peer", Namespace: consumerTenant}}, binding.Subjects); diff != "" ||
		binding.RoleRef.Name != remoteRole {
		t.Errorf("%+v", binding)
	}
	ours := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-paris", Name: "liqo-controller-manager"}}
	b.Read(ours)
	if diff := cmp.Diff([]rbacv1.Subject{{Kind: "ServiceAccount", Name: "liqo-controller-manager", Namespace: "liqo"}}, ours.Subjects); diff != "" ||
		ours.RoleRef.Name != managerRole {
		t.Errorf("%+v", ours)
	}
	b.Must(b.Delete(t.Context(), ours))
	b.Until("our rights are restored", func() bool { return b.Exists(ours) })
	if !slices.Contains(namespaceMap.Finalizers, labels.FinalizerNamespaceMap) || namespaceMap.Status.CurrentMapping["shop"].RemoteNamespace != "shop-paris" {
		t.Errorf("%+v", namespaceMap)
	}

	// An unmanaged namespace is not touched, and its name is used when it is free.
	foreign := controllertest.Space("apps")
	b.Read(foreign)
	if foreign.Labels[labels.RemoteClusterID] != "" || len(foreign.Annotations) > 0 ||
		!strings.Contains(namespaceMap.Status.CurrentMapping["apps"].Message, "was not made for this cluster") {
		t.Errorf("%+v, %+v", foreign.ObjectMeta, namespaceMap.Status)
	}
	b.Must(b.Delete(t.Context(), foreign))
	b.FinalizeNamespace("apps")
	b.answers(namespaceMap, map[string]string{"shop": accepted, "apps": accepted})

	// A deleted remote namespace is created again, and so are the rights in it.
	uid := remote.UID
	b.Must(b.Delete(t.Context(), remote))
	b.answers(namespaceMap, map[string]string{"shop": terminating, "apps": accepted})
	b.Must(b.Delete(t.Context(), binding))
	b.FinalizeNamespace("shop-paris")
	b.answers(namespaceMap, map[string]string{"shop": accepted, "apps": accepted})
	if b.Read(remote); remote.UID == uid {
		t.Error("the remote namespace has the same UID")
	}
	b.Read(binding)
	b.Must(b.Delete(t.Context(), binding))
	b.Until("the binding is created again", func() bool { return b.Exists(binding) })

	// A restart writes nothing; a namespace that is no longer requested is deleted.
	stop()
	all := []client.Object{namespaceMap, remote, binding}
	before := b.VersionsOf(all)
	writes := b.Writes.Load()
	stop = b.runRemoteNamespaces()
	b.Edit(namespaceMap, func() { delete(namespaceMap.Spec.DesiredMapping, "apps") })
	b.answers(namespaceMap, map[string]string{"shop": accepted, "apps": terminating})
	if got := b.VersionsOf(all); !slices.Equal(got[1:], before[1:]) {
		t.Errorf("versions %v, before the restart %v", got, before)
	}
	b.FinalizeNamespace("apps")
	b.answers(namespaceMap, map[string]string{"shop": accepted})
	if got := b.Writes.Load() - writes; got != 3 {
		t.Errorf("%d writes, want the deletion and two answers", got)
	}

	// The last namespace is removed from the map, and requested again.
	b.Edit(namespaceMap, func() { namespaceMap.Spec.DesiredMapping = nil })
	b.answers(namespaceMap, map[string]string{"shop": terminating})
	b.FinalizeNamespace("shop-paris")
	b.answers(namespaceMap, map[string]string{})
	b.Edit(namespaceMap, func() { namespaceMap.Spec.DesiredMapping = map[string]string{"shop": "shop-paris"} })
	b.answers(namespaceMap, map[string]string{"shop": accepted})

	// The map of the consumer is deleted, and its remote namespaces with it.
	b.Must(b.Delete(t.Context(), namespaceMap))
	b.Until("the map is gone", func() bool { return b.Gone(namespaceMap) })
	b.FinalizeNamespace("shop-paris")

	// The tenant is deleted while the controller is down.
	namespaceMap = b.createMap("milan-1", map[string]string{"shop": "shop-paris"})
	b.answers(namespaceMap, map[string]string{"shop": accepted})
	stop()
	// One of its pods has an extreme grace period.
	endless := endlessPod("shop-paris")
	b.Make(endless)
	b.Edit(namespaceMap, func() { namespaceMap.Finalizers = nil })
	b.Must(b.Delete(t.Context(), namespaceMap))
	b.Must(b.Delete(t.Context(), controllertest.Space(consumerTenant)))
	b.FinalizeNamespace(consumerTenant)
	b.runRemoteNamespaces()
	b.Until("its grace period is shortened", func() bool {
		b.Read(endless)
		return endless.DeletionTimestamp != nil && *endless.DeletionGracePeriodSeconds == lastSeconds
	})
	b.FinalizeNamespace("shop-paris")
}

// TestDataStays: a namespace with claims outlives its request and the peering, without the rights and the objects of the consumer. Only the cluster that it
// was made for gets it back, and it goes with its last claim.
func TestDataStays(t *testing.T) {
	b := newProviderEnv(t)
	const accepted, refused, terminating = "Accepted", "CreationLoopBackOff", "Terminating"
	ownKey, otherKey := strings.Repeat("a", 43), strings.Repeat("b", 43)
	tenantOf := func() *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: consumerTenant, Labels: map[string]string{labels.TenantNamespace: "true", labels.ClusterID: "paris-id", labels.AppPartOf: "liqo"},
		}}
	}
	register := func(key string) *discoveryv1alpha1.ForeignCluster {
		b.Make(tenantOf())
		fc := b.Consumer("paris", consumerTenant)
		b.Edit(fc, func() { fc.Spec.ClusterKey = key })
		return fc
	}
	// The test plays the controllers of Kubernetes: the finalizers of namespaces and of foreground deletion are its own.
	leave := func(fc *discoveryv1alpha1.ForeignCluster) {
		b.Must(b.Delete(t.Context(), fc))
		b.Must(b.Delete(t.Context(), tenantOf()))
		b.FinalizeNamespace(consumerTenant)
	}
	kept := func(state string) func() bool {
		return func() bool {
			namespace := controllertest.Space("shop-paris")
			b.Read(namespace)
			return namespace.DeletionTimestamp == nil && namespace.Annotations[labels.KeptForData] == state
		}
	}
	at := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "shop-paris", Name: name} }

	paris := register(ownKey)
	b.runRemoteNamespaces()
	namespaceMap := b.createMap("milan-1", map[string]string{"shop": "shop-paris"})
	b.answers(namespaceMap, map[string]string{"shop": accepted})
	b.Until("the owner is on record", func() bool {
		namespace := controllertest.Space("shop-paris")
		b.Read(namespace)
		return namespace.Annotations[labels.OwnerKey] == ownKey
	})
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: at("data"), Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	config, pod := &corev1.ConfigMap{ObjectMeta: at("config")}, &vkv1alpha1.ShadowPod{ObjectMeta: at("db")}
	pod.Spec.Pod.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	rights := &rbacv1.RoleBinding{ObjectMeta: at(consumerTenant)}
	for _, object := range []client.Object{claim, config, pod} {
		b.Make(object)
	}

	// Not requested any more: its pods end first, then the namespace counts as gone.
	b.Edit(namespaceMap, func() { namespaceMap.Spec.DesiredMapping = nil })
	b.Until("the pod is deleted", func() bool { b.Read(pod); return pod.DeletionTimestamp != nil })
	b.answers(namespaceMap, map[string]string{"shop": terminating})
	b.Edit(pod, func() { pod.Finalizers = nil })
	b.answers(namespaceMap, map[string]string{})
	b.Until("the namespace is kept", kept(keptForPeer))
	if !b.Gone(config) || !b.Exists(claim) || !b.Exists(rights) {
		t.Error("a ConfigMap is still there, or the claim or the rights to delete it are not")
	}
	b.Edit(namespaceMap, func() { namespaceMap.Spec.DesiredMapping = map[string]string{"shop": "shop-paris"} })
	b.answers(namespaceMap, map[string]string{"shop": accepted})
	b.Until("the namespace is in use", kept(""))

	// The peering ends.
	b.Must(b.Delete(t.Context(), namespaceMap))
	b.Until("the map is gone", func() bool { return b.Gone(namespaceMap) })
	leave(paris)
	b.Until("the namespace is kept without rights", kept(keptAlone))
	if !b.Gone(rights) || !b.Exists(claim) {
		t.Error("the consumer has rights although it is no peer, or its claim is gone")
	}

	// Another cluster registers under the same ID, and gets nothing.
	thief := register(otherKey)
	namespaceMap = b.createMap("milan-1", map[string]string{"shop": "shop-paris"})
	b.answers(namespaceMap, map[string]string{"shop": refused})
	if b.Read(namespaceMap); !strings.Contains(namespaceMap.Status.CurrentMapping["shop"].Message, "another key") || !kept(keptAlone)() || b.Exists(rights) {
		t.Errorf("%+v", namespaceMap.Status)
	}
	b.Must(b.Delete(t.Context(), namespaceMap))
	b.Until("the map is gone", func() bool { return b.Gone(namespaceMap) })
	leave(thief)

	// The owner is back, with a map of another name.
	register(ownKey)
	namespaceMap = b.createMap("milan-2", map[string]string{"shop": "shop-paris"})
	b.answers(namespaceMap, map[string]string{"shop": accepted})
	b.Until("the namespace is in use", kept(""))
	b.Until("the owner has rights", func() bool { return b.Exists(rights) })

	// What our finalizer keeps is not left to the garbage collector.
	held := &vkv1alpha1.ShadowPod{ObjectMeta: at("held"), Spec: pod.Spec}
	held.Finalizers = []string{labels.FinalizerPodGone}
	b.Make(held)
	b.Edit(namespaceMap, func() { namespaceMap.Spec.DesiredMapping = nil })
	b.Until("the pod is deleted", func() bool { b.Read(held); return held.DeletionTimestamp != nil })
	if !slices.Equal(held.Finalizers, []string{labels.FinalizerPodGone}) {
		t.Errorf("finalizers %v", held.Finalizers)
	}
	b.Edit(held, func() { held.Finalizers = nil })

	// Without claims, it goes.
	b.Until("the namespace is kept", kept(keptForPeer))
	b.Must(b.Delete(t.Context(), claim))
	b.Edit(claim, func() { claim.Finalizers = nil })
	b.FinalizeNamespace("shop-paris")
}

// TestHostileMaps: a consumer gets no namespace that is reserved or of another consumer, and not more than the limit.
func TestHostileMaps(t *testing.T) {
	b := newProviderEnv(t)
	b.consumerTenant()
	b.Make(controllertest.Space("liqo"))
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "of-turin", Labels: map[string]string{labels.RemoteClusterID: "turin-id"},
		Annotations: map[string]string{labels.ManagedByNamespaceMap: "liqo-tenant-turin-000000/milan-1", labels.OriginalName: "of-turin"},
	}})
	// The tenant of turin exists, so its namespaces are not orphans.
	b.Make(&corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-turin-000000", Labels: map[string]string{labels.TenantNamespace: "true", labels.ClusterID: "turin-id"}},
	})
	b.Make(&vkv1alpha1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-turin-000000", Name: "milan-1", Labels: map[string]string{labels.Replicated: "true"}},
		Spec:       vkv1alpha1.NamespaceMapSpec{DesiredMapping: map[string]string{"of-turin": "of-turin"}},
	})
	b.Consumer("turin", "liqo-tenant-turin-000000")
	before := map[string]string{}
	for _, name := range []string{"kube-system", "default", "liqo", "liqo-tenant-turin-000000"} {
		namespace := controllertest.Space(name)
		b.Read(namespace)
		before[name] = namespace.ResourceVersion
	}
	const most = 10 // each costs several requests, and 500 of them minutes on a busy machine
	b.Start(func(mgr ctrl.Manager) error {
		return Setup(mgr, Options{Namespace: "liqo", Most: most})
	})
	desired := map[string]string{
		"a": "kube-system", "b": "default", "c": "liqo", "d": consumerTenant, "e": strings.Repeat("x", 64), "f": "UPPER", "g": "of-turin",
		"h":    "liqo-tenant-turin-000000",
		"good": "good", "twice": "good", "../../x": "slash",
	}
	want := map[string]string{"good": "Accepted"}
	for _, local := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "twice"} {
		want[local] = "CreationLoopBackOff"
	}
	namespaceMap := b.createMap("evil", desired)
	b.answers(namespaceMap, want)
	for name, version := range before {
		namespace := controllertest.Space(name)
		if b.Read(namespace); namespace.ResourceVersion != version || namespace.DeletionTimestamp != nil {
			t.Errorf("namespace %s was touched", name)
		}
		var bindings rbacv1.RoleBindingList
		b.Must(b.List(t.Context(), &bindings, client.InNamespace(name)))
		for i := range bindings.Items {
			if role := bindings.Items[i].RoleRef.Name; role == remoteRole || role == managerRole {
				t.Errorf("%s is bound in %s", role, name)
			}
		}
	}

	// One map counts, whatever else is written, and its requests are limited.
	second := b.createMap("second", map[string]string{"more": "more"})
	b.Edit(namespaceMap, func() {
		for i := range 3000 {
			namespaceMap.Spec.DesiredMapping[fmt.Sprint("n-", i)] = fmt.Sprint("n-", i)
		}
	})
	b.Until("the limit of namespaces is reached", func() bool {
		var all corev1.NamespaceList
		b.Must(b.List(t.Context(), &all, client.MatchingLabels{labels.RemoteClusterID: "paris-id"}))
		return len(all.Items) == most
	})
	b.Until("the limit of answers is reached", func() bool { b.Read(namespaceMap); return len(namespaceMap.Status.CurrentMapping) == maxAnswers })
	var all corev1.NamespaceList
	b.Must(b.List(t.Context(), &all, client.MatchingLabels{labels.RemoteClusterID: "paris-id"}))
	if b.Read(second); len(all.Items) != most || len(second.Status.CurrentMapping) > 0 || len(second.Finalizers) > 0 || b.Exists(controllertest.Space("more")) {
		t.Errorf("%d namespaces; the second map: %+v", len(all.Items), second)
	}
	turin := controllertest.Space("of-turin")
	if b.Read(turin); turin.DeletionTimestamp != nil || turin.Labels[labels.RemoteClusterID] != "turin-id" {
		t.Errorf("%+v", turin.ObjectMeta)
	}
}

// TestReservedNames: no consumer gets a name that has the form of the remote namespaces of another consumer.
func TestReservedNames(t *testing.T) {
	b := newProviderEnv(t)
	b.consumerTenant()
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-berlin-000002", Labels: map[string]string{
		labels.TenantNamespace: "true", labels.ClusterID: "berlin-id", labels.AppPartOf: "liqo",
	}}})
	b.runRemoteNamespaces()
	namespaceMap := b.createMap("milan-1", map[string]string{"a": "shop-berlin-000002", "b": "shop-paris-000001", "c": "openshift-config", "d": "berlin-000002"})
	const accepted, refused = "Accepted", "CreationLoopBackOff"
	b.answers(namespaceMap, map[string]string{"a": refused, "b": accepted, "c": refused, "d": accepted})
	if message := namespaceMap.Status.CurrentMapping["a"].Message; !strings.Contains(message, "reserved for another cluster") ||
		b.Exists(controllertest.Space("shop-berlin-000002")) {
		t.Errorf("%q", message)
	}
}
