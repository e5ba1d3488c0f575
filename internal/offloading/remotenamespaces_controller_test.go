// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

const guest = "liqo-tenant-paris-000001" // the namespace of a consumer

func (b *bench) host() (stop func()) {
	b.T.Helper()
	return b.start(func(mgr ctrl.Manager) error { return SetupRemoteNamespaces(mgr, "liqo") })
}

func (b *bench) guest() {
	b.T.Helper()
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: guest, Labels: map[string]string{
		labels.TenantNamespace: "true", labels.ClusterID: "paris-id", labels.AppPartOf: "liqo",
	}}})
}

// copyOf is what a consumer writes.
func (b *bench) copyOf(name string, desired map[string]string) *vkv1alpha1.NamespaceMap {
	b.T.Helper()
	wish := &vkv1alpha1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: guest, Name: name, Labels: map[string]string{
			labels.Replication: "false", labels.Replicated: "true", labels.OriginID: "turin-id", labels.ClusterID: "turin-id", // a lie
		}},
		Spec: vkv1alpha1.NamespaceMapSpec{DesiredMapping: desired},
	}
	b.Make(wish)
	return wish
}

// answers waits until the provider says of namespaces what is wanted: phases, by local name.
func (b *bench) answers(wish *vkv1alpha1.NamespaceMap, want map[string]string) {
	b.T.Helper()
	var got map[string]string
	defer func() {
		if b.T.Failed() {
			b.T.Logf("(-want +got)\n%s", cmp.Diff(want, got))
		}
	}()
	b.Until("the answer is right", func() bool {
		b.Read(wish)
		got = map[string]string{}
		for local, said := range wish.Status.CurrentMapping {
			got[local] = string(said.Phase)
		}
		return cmp.Equal(want, got)
	})
}

// bury is what Kubernetes does with a namespace that was deleted, when it is empty.
func (b *bench) bury(name string) {
	b.T.Helper()
	b.Until("namespace "+name+" is told to go", func() bool {
		namespace := space(name)
		return b.Get(b.T.Context(), client.ObjectKeyFromObject(namespace), namespace) == nil && namespace.DeletionTimestamp != nil
	})
	namespace := space(name)
	b.Read(namespace)
	namespace.Spec.Finalizers = nil
	b.Must(b.SubResource("finalize").Update(b.T.Context(), namespace))
}

func space(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func TestTwins(t *testing.T) {
	b := newBench(t)
	b.guest()
	stop := b.host()
	wish := b.copyOf("milan-1", map[string]string{"shop": "shop-paris", "apps": "apps"})
	const accepted, refused, terminating = "Accepted", "CreationLoopBackOff", "Terminating"
	b.answers(wish, map[string]string{"shop": accepted, "apps": refused}) // there is one called apps
	twin := space("shop-paris")
	b.Read(twin)
	if twin.Annotations[labels.ManagedByNamespaceMap] != guest+"/milan-1" || twin.Annotations[labels.OriginalName] != "shop" || twin.Labels[labels.RemoteClusterID] != "paris-id" {
		t.Errorf("%+v", twin.ObjectMeta)
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-paris", Name: guest}}
	b.Read(binding)
	if diff := cmp.Diff([]rbacv1.Subject{{Kind: "ServiceAccount", Name: "liqo-peer", Namespace: guest}}, binding.Subjects); diff != "" || binding.RoleRef.Name != remoteRole {
		t.Errorf("%+v", binding)
	}
	ours := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-paris", Name: "liqo-controller-manager"}}
	b.Read(ours)
	if diff := cmp.Diff([]rbacv1.Subject{{Kind: "ServiceAccount", Name: "liqo-controller-manager", Namespace: "liqo"}}, ours.Subjects); diff != "" || ours.RoleRef.Name != managerRole {
		t.Errorf("%+v", ours)
	}
	b.Must(b.Delete(t.Context(), ours))
	b.Until("our rights are back", func() bool { return b.exists(ours) })
	if !slices.Contains(wish.Finalizers, labels.FinalizerNamespaceMap) || wish.Status.CurrentMapping["shop"].RemoteNamespace != "shop-paris" {
		t.Errorf("%+v", wish)
	}

	// Somebody else's namespace is not touched, and its name is taken when it is free.
	foreign := space("apps")
	b.Read(foreign)
	if foreign.Labels[labels.RemoteClusterID] != "" || len(foreign.Annotations) > 0 || !strings.Contains(wish.Status.CurrentMapping["apps"].Message, "was not made for this cluster") {
		t.Errorf("%+v, %+v", foreign.ObjectMeta, wish.Status)
	}
	b.Must(b.Delete(t.Context(), foreign))
	b.bury("apps")
	b.answers(wish, map[string]string{"shop": accepted, "apps": accepted})

	// A twin that somebody deletes comes back, and so does the right in it.
	uid := twin.UID
	b.Must(b.Delete(t.Context(), twin))
	b.answers(wish, map[string]string{"shop": terminating, "apps": accepted})
	b.Must(b.Delete(t.Context(), binding))
	b.bury("shop-paris")
	b.answers(wish, map[string]string{"shop": accepted, "apps": accepted})
	if b.Read(twin); twin.UID == uid {
		t.Error("it is the same")
	}
	b.Read(binding)
	b.Must(b.Delete(t.Context(), binding))
	b.Until("the right is given again", func() bool { return b.exists(binding) })

	// A restart writes nothing; what is then unwanted is deleted.
	stop()
	all := []client.Object{wish, twin, binding}
	before := b.versionsOf(all)
	writes := b.writes.Load()
	stop = b.host()
	b.Edit(wish, func() { delete(wish.Spec.DesiredMapping, "apps") })
	b.answers(wish, map[string]string{"shop": accepted, "apps": terminating})
	if got := b.versionsOf(all); !slices.Equal(got[1:], before[1:]) {
		t.Errorf("versions %v, before the restart %v", got, before)
	}
	b.bury("apps")
	b.answers(wish, map[string]string{"shop": accepted})
	if got := b.writes.Load() - writes; got != 3 {
		t.Errorf("%d writes, want the deletion and two answers", got)
	}

	// The last one goes, and comes back.
	b.Edit(wish, func() { wish.Spec.DesiredMapping = nil })
	b.answers(wish, map[string]string{"shop": terminating})
	b.bury("shop-paris")
	b.answers(wish, map[string]string{})
	b.Edit(wish, func() { wish.Spec.DesiredMapping = map[string]string{"shop": "shop-paris"} })
	b.answers(wish, map[string]string{"shop": accepted})

	// The consumer's map goes: so do its twins.
	b.Must(b.Delete(t.Context(), wish))
	b.Until("the map is gone", func() bool { return b.gone(wish) })
	b.bury("shop-paris")

	// The tenant goes while nobody looks.
	wish = b.copyOf("milan-1", map[string]string{"shop": "shop-paris"})
	b.answers(wish, map[string]string{"shop": accepted})
	stop()
	// One of its pods may take as long as it likes to end.
	endless := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop-paris", Name: "endless", Labels: map[string]string{labels.ManagedBy: labels.ManagedByShadowPod}},
		Spec: corev1.PodSpec{
			NodeName: "n", TerminationGracePeriodSeconds: new(int64(1_000_000_000)), AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{Name: "c", Image: "i"}},
		},
	}
	b.Make(endless)
	b.Edit(wish, func() { wish.Finalizers = nil })
	b.Must(b.Delete(t.Context(), wish))
	b.Must(b.Delete(t.Context(), space(guest)))
	b.bury(guest)
	b.host()
	b.Until("it ends soon", func() bool {
		b.Read(endless)
		return endless.DeletionTimestamp != nil && *endless.DeletionGracePeriodSeconds == lastSeconds
	})
	b.bury("shop-paris")
}

// TestHostileMaps: a consumer cannot have what is not for consumers, nor more than others can bear, nor speak for another.
func TestHostileMaps(t *testing.T) {
	b := newBench(t)
	b.guest()
	b.Make(space("liqo"))
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "of-turin", Labels: map[string]string{labels.RemoteClusterID: "turin-id"},
		Annotations: map[string]string{labels.ManagedByNamespaceMap: "liqo-tenant-turin-000000/milan-1", labels.OriginalName: "of-turin"},
	}})
	// Its tenant is there: what belongs to it is not without an owner.
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-turin-000000", Labels: map[string]string{labels.TenantNamespace: "true", labels.ClusterID: "turin-id"}}})
	b.Make(&vkv1alpha1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-turin-000000", Name: "milan-1", Labels: map[string]string{labels.Replicated: "true"}},
		Spec:       vkv1alpha1.NamespaceMapSpec{DesiredMapping: map[string]string{"of-turin": "of-turin"}},
	})
	before := map[string]string{}
	for _, name := range []string{"kube-system", "default", "liqo", "liqo-tenant-turin-000000"} {
		namespace := space(name)
		b.Read(namespace)
		before[name] = namespace.ResourceVersion
	}
	b.host()
	desired := map[string]string{
		"a": "kube-system", "b": "default", "c": "liqo", "d": guest, "e": strings.Repeat("x", 64), "f": "UPPER", "g": "of-turin", "h": "liqo-tenant-turin-000000",
		"good": "good", "twice": "good", "../../x": "slash",
	}
	want := map[string]string{"good": "Accepted"}
	for _, local := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "twice"} {
		want[local] = "CreationLoopBackOff"
	}
	wish := b.copyOf("evil", desired)
	b.answers(wish, want)
	for name, version := range before {
		namespace := space(name)
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

	// One map counts, whatever else is written; and it cannot ask for all names there are.
	second := b.copyOf("second", map[string]string{"more": "more"})
	b.Edit(wish, func() {
		for i := range 3000 {
			wish.Spec.DesiredMapping[fmt.Sprint("n-", i)] = fmt.Sprint("n-", i)
		}
	})
	b.Until("there are as many as it may have", func() bool {
		var all corev1.NamespaceList
		b.Must(b.List(t.Context(), &all, client.MatchingLabels{labels.RemoteClusterID: "paris-id"}))
		return len(all.Items) == mostTwins
	})
	b.Until("as many are answered", func() bool { b.Read(wish); return len(wish.Status.CurrentMapping) == mostAnswers })
	var all corev1.NamespaceList
	b.Must(b.List(t.Context(), &all, client.MatchingLabels{labels.RemoteClusterID: "paris-id"}))
	if b.Read(second); len(all.Items) != mostTwins || len(second.Status.CurrentMapping) > 0 || len(second.Finalizers) > 0 || b.exists(space("more")) {
		t.Errorf("%d namespaces; the second map: %+v", len(all.Items), second)
	}
	turin := space("of-turin")
	if b.Read(turin); turin.DeletionTimestamp != nil || turin.Labels[labels.RemoteClusterID] != "turin-id" {
		t.Errorf("%+v", turin.ObjectMeta)
	}
}

// TestTwinNames: no consumer takes the names that another one's twins will have.
func TestTwinNames(t *testing.T) {
	b := newBench(t)
	b.guest()
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-berlin-000002", Labels: map[string]string{
		labels.TenantNamespace: "true", labels.ClusterID: "berlin-id", labels.AppPartOf: "liqo",
	}}})
	b.host()
	wish := b.copyOf("milan-1", map[string]string{"a": "shop-berlin-000002", "b": "shop-paris-000001", "c": "openshift-config", "d": "berlin-000002"})
	const accepted, refused = "Accepted", "CreationLoopBackOff"
	b.answers(wish, map[string]string{"a": refused, "b": accepted, "c": refused, "d": accepted})
	if message := wish.Status.CurrentMapping["a"].Message; !strings.Contains(message, "kept for another cluster") || b.exists(space("shop-berlin-000002")) {
		t.Errorf("%q", message)
	}
}
