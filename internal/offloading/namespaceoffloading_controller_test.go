// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

func twinOfShop() string { return remoteName("shop", offloadingv1alpha1.DefaultName, rome) }

// lender is a cluster that lends a virtual node, played by the test.
type lender struct {
	b          *bench
	peer       discoveryv1alpha1.ClusterIdentity
	slice      *sharingv1alpha1.ResourceSlice
	node       *corev1.Node
	namespaces *vkv1alpha1.NamespaceMap
}

func (b *bench) lender(name, region string) *lender {
	b.T.Helper()
	l := &lender{b: b, peer: discoveryv1alpha1.ClusterIdentity{ClusterID: name + "-id", ClusterName: name}}
	if space := l.peer.TenantNamespace(); space != tenant {
		b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}})
		meta := metav1.ObjectMeta{Namespace: space, Name: user}
		role := &rbacv1.Role{}
		role.Namespace, role.Name = tenant, user
		b.Read(role)
		b.Make(&rbacv1.Role{ObjectMeta: meta, Rules: role.Rules})
		b.Make(&rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
			Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}},
		})
	}
	b.Make(&discoveryv1alpha1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{labels.ClusterID: l.peer.ClusterID}},
		Spec: discoveryv1alpha1.ForeignClusterSpec{
			ClusterIdentity: &l.peer, OutgoingPeeringEnabled: discoveryv1alpha1.PeeringYes,
			IncomingPeeringEnabled: discoveryv1alpha1.PeeringAuto, ForeignAuthURL: "https://" + name,
		},
	})
	l.slice = &sharingv1alpha1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.peer.TenantNamespace(), Name: "rome", Labels: map[string]string{labels.Replication: "true", labels.ClusterID: l.peer.ClusterID}},
		Spec:       sharingv1alpha1.ResourceSliceSpec{ConsumerClusterID: "rome-id", ProviderClusterID: l.peer.ClusterID, NodeName: "liqo-" + name},
	}
	b.Make(l.slice)
	l.register(region)
	l.namespaces = &vkv1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.slice.Namespace, Name: l.peer.UniqueName()}}
	return l
}

// register is what a virtual kubelet does: first the node, then its labels and conditions.
func (l *lender) register(region string) {
	l.b.T.Helper()
	l.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "liqo-" + l.peer.ClusterName, Labels: map[string]string{
		labels.Type: labels.TypeVirtualNode, labels.RemoteClusterID: l.peer.ClusterID,
	}}}
	l.b.Make(l.node)
	if region != "" {
		l.b.Edit(l.node, func() {
			l.node.Labels["region"], l.node.Labels[corev1.LabelHostname] = region, l.node.Name
		})
		l.b.ready(l.node, corev1.ConditionTrue, "all is well")
	}
}

// asked waits until the provider is asked for these namespaces.
func (l *lender) asked(what string, want map[string]string) {
	l.b.T.Helper()
	l.b.Until(l.peer.ClusterName+" is asked for "+what, func() bool {
		return l.b.exists(l.namespaces) && maps.Equal(l.namespaces.Spec.DesiredMapping, want)
	})
}

// says is what replicate brings from the provider.
func (l *lender) says(phase vkv1alpha1.MappingPhase, message string) {
	l.b.T.Helper()
	l.b.EditStatus(l.namespaces, func() {
		l.namespaces.Status.CurrentMapping = nil
		if phase != "" {
			l.namespaces.Status.CurrentMapping = map[string]vkv1alpha1.RemoteNamespaceStatus{
				"shop": {RemoteNamespace: twinOfShop(), Phase: phase, Message: message},
			}
		}
	})
}

func (l *lender) binding() *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "liqo-virtual-kubelet-" + l.peer.UniqueName()}}
}

func (b *bench) exists(object client.Object) bool {
	return b.Get(b.T.Context(), client.ObjectKeyFromObject(object), object) == nil
}

func (b *bench) consumer() (stop func()) {
	b.T.Helper()
	return b.start(func(mgr ctrl.Manager) error {
		return SetupNamespaceOffloading(mgr, NamespaceOffloadingOptions{Local: rome, Now: b.now})
	}, SetupNamespaceMap)
}

func (b *bench) offload(change func(*offloadingv1alpha1.NamespaceOffloadingSpec)) *offloadingv1alpha1.NamespaceOffloading {
	b.T.Helper()
	wish := &offloadingv1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "offloading"}}
	if change != nil {
		change(&wish.Spec)
	}
	b.Make(wish)
	return wish
}

// stands waits for a phase, and for the reasons of a cluster's conditions.
func (b *bench) stands(wish *offloadingv1alpha1.NamespaceOffloading, phase offloadingv1alpha1.OffloadingPhase, l *lender, reasons ...string) {
	b.T.Helper()
	defer func() {
		if b.T.Failed() {
			b.T.Logf("it is %+v", wish.Status)
		}
	}()
	b.Until("the offloading is "+string(phase)+" "+strings.Join(reasons, " "), func() bool {
		b.Read(wish)
		var got []string
		if l != nil {
			for _, one := range wish.Status.RemoteNamespacesConditions[l.peer.UniqueName()] {
				got = append(got, one.Reason)
			}
		}
		return wish.Status.OffloadingPhase == phase && slices.Equal(got, reasons) && wish.Status.ObservedGeneration == wish.Generation
	})
}

func (b *bench) marked(want bool) {
	b.T.Helper()
	b.Until("the mark of the namespace is right", func() bool {
		shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
		b.Read(shop)
		return (shop.Labels[labels.SchedulingEnabled] == "true") == want
	})
}

func (b *bench) shop() {
	b.T.Helper()
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
}

// TestOffloading follows a namespace through all phases but its end.
func TestOffloading(t *testing.T) {
	b := newBench(t)
	stop := b.consumer()
	b.shop()
	wish := b.offload(func(spec *offloadingv1alpha1.NamespaceOffloadingSpec) {
		spec.ClusterSelector.NodeSelectorTerms = []corev1.NodeSelectorTerm{term("region", corev1.NodeSelectorOpIn, "europe")}
	})
	b.stands(wish, "NoClusterSelected", nil)
	b.marked(true)
	if wish.Status.RemoteNamespaceName != twinOfShop() || !slices.Contains(wish.Finalizers, labels.FinalizerNamespaceOffloading) {
		t.Errorf("%+v", wish)
	}
	mine := map[string]string{"shop": twinOfShop()}

	milan := b.lender("milan", "europe")
	milan.asked("the namespace", mine)
	want := map[string]string{
		labels.Replication: "true", labels.RemoteID: "milan-id", labels.RemoteClusterID: "milan-id", labels.ClusterID: "milan-id", labels.AppPartOf: "liqo",
	}
	if diff := cmp.Diff(want, milan.namespaces.Labels); diff != "" {
		t.Error(diff)
	}
	if len(milan.namespaces.OwnerReferences) > 0 {
		t.Errorf("whoever deletes the node deletes the twins: %+v", milan.namespaces.OwnerReferences)
	}
	b.stands(wish, "InProgress", milan, "ClusterSelected", "Creating")
	binding := milan.binding()
	b.Read(binding)
	if binding.RoleRef.Name != offloadedRole || len(binding.Subjects) != 1 || binding.Subjects[0].Name != "virtual-kubelet" || binding.Subjects[0].Namespace != tenant {
		t.Errorf("%+v", binding)
	}

	// What the provider says.
	milan.says(vkv1alpha1.MappingCreationLoopBackOff, "namespace is taken")
	b.stands(wish, "AllFailed", milan, "ClusterSelected", "CreationLoopBackOff")
	if text := wish.Status.RemoteNamespacesConditions[milan.peer.UniqueName()][1].Message; text != "namespace is taken" {
		t.Errorf("it says %q", text)
	}
	milan.says(vkv1alpha1.MappingAccepted, "")
	b.stands(wish, "Ready", milan, "ClusterSelected", "NamespaceCreated")
	milan.says(vkv1alpha1.MappingTerminating, "")
	b.stands(wish, "InProgress", milan, "ClusterSelected", "Terminating")
	milan.says(vkv1alpha1.MappingAccepted, "")
	b.stands(wish, "Ready", milan, "ClusterSelected", "NamespaceCreated")

	// A second cluster, which is not chosen, is, and fails.
	turin := b.lender("turin", "asia")
	b.stands(wish, "Ready", turin, "ClusterNotSelected")
	turin.asked("nothing", nil)
	b.Edit(wish, func() { wish.Spec.ClusterSelector.NodeSelectorTerms = nil })
	b.stands(wish, "InProgress", turin, "ClusterSelected", "Creating")
	turin.asked("the namespace", mine)
	turin.says(vkv1alpha1.MappingCreationLoopBackOff, "no room")
	b.stands(wish, "SomeFailed", turin, "ClusterSelected", "CreationLoopBackOff")
	b.Until("it has its rights, too", func() bool { return b.exists(turin.binding()) })

	// It is not chosen any more; its virtual kubelet has its rights as long as there is a twin.
	turin.says(vkv1alpha1.MappingAccepted, "")
	b.stands(wish, "Ready", turin, "ClusterSelected", "NamespaceCreated")
	b.Edit(wish, func() {
		wish.Spec.ClusterSelector.NodeSelectorTerms = []corev1.NodeSelectorTerm{term("region", corev1.NodeSelectorOpNotIn, "asia")}
	})
	turin.asked("nothing", nil)
	b.stands(wish, "Ready", turin, "ClusterNotSelected", "Terminating")
	if !b.exists(turin.binding()) {
		t.Error("its rights went before the twin")
	}
	turin.says("", "")
	b.stands(wish, "Ready", turin, "ClusterNotSelected")
	b.Until("its rights are gone", func() bool { return b.gone(turin.binding()) })

	// What others take away comes back.
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	b.Edit(shop, func() { delete(shop.Labels, labels.SchedulingEnabled) })
	b.marked(true)
	b.Must(b.Delete(t.Context(), binding))
	b.Until("the right is given again", func() bool { return b.exists(milan.binding()) })
	b.Edit(milan.namespaces, func() { milan.namespaces.Spec.DesiredMapping = map[string]string{"shop": "kube-system"} })
	milan.asked("the namespace again", mine)

	// A node that somebody deletes, and its kubelet registers again, keeps its twins.
	uid := milan.namespaces.UID
	b.Must(b.Delete(t.Context(), milan.node))
	milan.register("")
	version := milan.namespaces.ResourceVersion
	b.Edit(wish, func() { wish.Annotations = map[string]string{"look": "again"} })
	b.Edit(shop, func() { delete(shop.Labels, labels.SchedulingEnabled) })
	b.marked(true) // the controllers have looked
	if milan.asked("as before", mine); milan.namespaces.UID != uid || milan.namespaces.ResourceVersion != version {
		t.Error("its map was written, though nobody wants anything else")
	}
	b.Edit(milan.node, func() {
		milan.node.Labels["region"], milan.node.Labels[corev1.LabelHostname] = "europe", milan.node.Name
	})
	b.ready(milan.node, corev1.ConditionTrue, "all is well")
	b.stands(wish, "Ready", milan, "ClusterSelected", "NamespaceCreated")

	// A selector that cannot be understood changes nothing but what is said.
	b.Edit(wish, func() {
		wish.Spec.ClusterSelector.NodeSelectorTerms = []corev1.NodeSelectorTerm{term("region", "Sometimes", "asia")}
	})
	b.Until("an event says so", func() bool {
		var events eventsv1.EventList
		b.Must(b.List(t.Context(), &events))
		return slices.ContainsFunc(events.Items, func(event eventsv1.Event) bool {
			return event.Reason == "Invalid" && event.Type == corev1.EventTypeWarning && event.Regarding.UID == wish.UID && strings.Contains(event.Note, "Sometimes")
		})
	})
	b.stands(wish, "Ready", milan, "ClusterSelected", "NamespaceCreated")
	milan.asked("as before", mine)

	// Pods stay here, the twin stays there.
	b.Edit(wish, func() {
		wish.Spec.ClusterSelector.NodeSelectorTerms, wish.Spec.PodOffloadingStrategy = nil, offloadingv1alpha1.PodsLocal
	})
	turin.asked("the namespace", mine)
	turin.says(vkv1alpha1.MappingAccepted, "")
	b.stands(wish, "Ready", turin, "ClusterSelected", "NamespaceCreated")
	b.marked(false)
	b.Edit(wish, func() { wish.Spec.PodOffloadingStrategy = offloadingv1alpha1.PodsRemote })
	b.marked(true)
	b.stands(wish, "Ready", milan, "ClusterSelected", "NamespaceCreated")

	// A restart writes nothing.
	stop()
	all := []client.Object{wish, milan.namespaces, turin.namespaces, milan.binding(), turin.binding(), shop}
	before := b.versionsOf(all)
	writes := b.writes.Load()
	b.consumer()
	turin.says(vkv1alpha1.MappingTerminating, "") // is seen when all else has been looked at
	b.stands(wish, "InProgress", turin, "ClusterSelected", "Terminating")
	if got := b.versionsOf(all); !slices.Equal(got[3:], before[3:]) || got[1] != before[1] {
		t.Errorf("versions %v, before the restart %v", got, before)
	}
	if got := b.writes.Load() - writes; got != 1 {
		t.Errorf("%d writes, want one: the news of turin", got)
	}
}

func (b *bench) versionsOf(all []client.Object) (versions []string) {
	b.T.Helper()
	for _, object := range all {
		b.Read(object)
		versions = append(versions, object.GetResourceVersion())
	}
	return versions
}

// TestOffloadingWithoutAPIServer: that a namespace has none comes with the namespace, changes with the annotation, and is put back.
func TestOffloadingWithoutAPIServer(t *testing.T) {
	b := newBench(t)
	b.consumer()
	b.shop()
	milan := b.lender("milan", "europe")
	mine := map[string]string{"shop": twinOfShop()}
	w, err := client.NewWithWatch(b.admin, client.Options{Scheme: b.scheme})
	b.Must(err)
	soon, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	news, err := w.Watch(soon, &vkv1alpha1.NamespaceMapList{}, client.InNamespace(milan.slice.Namespace))
	b.Must(err)
	t.Cleanup(news.Stop)
	wish := &offloadingv1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "offloading", Annotations: map[string]string{labels.APIServerSupport: "false"},
	}}
	b.Make(wish)
	var first *vkv1alpha1.NamespaceMapSpec
	for first == nil {
		event, more := <-news.ResultChan()
		if !more {
			t.Fatal("nothing is heard of the namespace")
		}
		m, is := event.Object.(*vkv1alpha1.NamespaceMap)
		if is && len(m.Spec.DesiredMapping) > 0 {
			first = &m.Spec
		}
	}
	if !maps.Equal(first.DesiredMapping, mine) || !slices.Equal(first.WithoutAPIServer, []string{"shop"}) {
		t.Errorf("the first that is heard of the namespace is %+v", first)
	}
	stands := func(what string, want ...string) {
		t.Helper()
		b.Until(what, func() bool {
			b.Read(milan.namespaces)
			return maps.Equal(milan.namespaces.Spec.DesiredMapping, mine) && slices.Equal(milan.namespaces.Spec.WithoutAPIServer, want)
		})
	}
	b.Edit(milan.namespaces, func() { milan.namespaces.Spec.WithoutAPIServer = nil })
	stands("what somebody takes away is put back", "shop")
	b.Edit(wish, func() { wish.Annotations[labels.APIServerSupport] = "true" })
	stands("it has the API server")
	b.Edit(wish, func() { wish.Annotations[labels.APIServerSupport] = "false" })
	stands("it has not", "shop")
	b.Edit(wish, func() { delete(wish.Annotations, labels.APIServerSupport) })
	stands("it has again")
}

// TestUnoffloading: the object ends after its twins, or at a deadline, and leaves nothing.
func TestUnoffloading(t *testing.T) {
	b := newBench(t)
	b.consumer()
	b.shop()
	milan, turin := b.lender("milan", "europe"), b.lender("turin", "asia")
	wish := b.offload(nil)
	for _, l := range []*lender{milan, turin} {
		l.asked("the namespace", map[string]string{"shop": twinOfShop()})
		l.says(vkv1alpha1.MappingAccepted, "")
	}
	b.stands(wish, "Ready", milan, "ClusterSelected", "NamespaceCreated")
	b.Must(b.Delete(t.Context(), wish))
	for _, l := range []*lender{milan, turin} {
		l.asked("nothing", nil)
		b.stands(wish, "Terminating", l, "ClusterNotSelected", "Terminating")
	}
	b.marked(false)
	if !b.exists(milan.binding()) {
		t.Error("its rights went before the twin")
	}
	milan.says("", "")
	b.Until("the rights for it are gone", func() bool { return b.gone(milan.binding()) })
	b.Read(wish)

	// Time passes. Turin answers, so it gets more of it.
	b.ahead.Store(int64(silentEndTime + 5*time.Second))
	b.Edit(wish, func() { wish.Annotations = map[string]string{"look": "again"} })
	b.stands(wish, "Terminating", turin, "ClusterNotSelected", "Terminating")
	b.Read(wish)
	b.ready(turin.node, corev1.ConditionFalse, "no answer")
	b.Until("it is gone", func() bool { return b.gone(wish) })
	b.Until("an event tells what is left", func() bool {
		var events eventsv1.EventList
		b.Must(b.List(t.Context(), &events))
		return slices.ContainsFunc(events.Items, func(event eventsv1.Event) bool {
			return event.Reason == "TwinMayBeLeft" && strings.Contains(event.Note, twinOfShop()) && strings.Contains(event.Note, turin.peer.UniqueName()) &&
				!strings.Contains(event.Note, milan.peer.UniqueName())
		})
	})
	b.Until("the rights for turin are gone", func() bool { return b.gone(turin.binding()) })
	turin.asked("nothing, when it answers again", nil)
	if turin.namespaces.DeletionTimestamp != nil {
		t.Error("the map, by which turin will hear of it, is gone")
	}

	// Turin comes back; the next offloading begins anew.
	b.ready(turin.node, corev1.ConditionTrue, "all is well")
	turin.says("", "")
	wish = b.offload(nil)
	b.stands(wish, "InProgress", turin, "ClusterSelected", "Creating")

	// The end of an unoffloading that somebody cuts short by hand is swept up.
	b.marked(true)
	b.Edit(wish, func() { wish.Finalizers = nil })
	b.Must(b.Delete(t.Context(), wish))
	b.Until("the rights are gone", func() bool { return b.gone(milan.binding()) && b.gone(turin.binding()) })
	b.ahead.Store(int64(time.Hour))
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	b.Edit(shop, func() { shop.Labels["look"] = "again" })
	b.marked(false)
	milan.asked("nothing", nil)

	// What users mark themselves stays as they want it.
	b.Edit(shop, func() { shop.Labels[labels.SchedulingEnabled] = "true" })
	b.Edit(shop, func() { shop.Labels["look"] = "once-more" })
	b.marked(true)
}

// TestPeeringEnds: the map goes with the virtual node, the slice after the map, and a provider that is silent holds up neither.
func TestPeeringEnds(t *testing.T) {
	b := newBench(t)
	b.start(func(mgr ctrl.Manager) error {
		return SetupNamespaceOffloading(mgr, NamespaceOffloadingOptions{Local: rome, Now: b.now})
	}, SetupNamespaceMap, func(mgr ctrl.Manager) error {
		return SetupVirtualNode(mgr, VirtualNodeOptions{
			Local: rome, Kubelet: KubeletOptions{Image: "liqo:v1"}, DrainDeadline: 2 * time.Minute, DrainDeadlineUnreachable: 25 * time.Second, Now: b.now,
		})
	})
	b.shop()
	milan := b.lender("milan", "europe")
	wish := b.offload(nil)
	milan.asked("the namespace", map[string]string{"shop": twinOfShop()})
	milan.says(vkv1alpha1.MappingAccepted, "")
	b.stands(wish, "Ready", milan, "ClusterSelected", "NamespaceCreated")
	pod := b.pod("shop", "pod", milan.node.Name, nil)
	b.Edit(milan.namespaces, func() { milan.namespaces.Finalizers = []string{labels.FinalizerReplication} })
	b.Until("the slice is held", func() bool {
		b.Read(milan.slice)
		return slices.Contains(milan.slice.Finalizers, labels.FinalizerNode)
	})

	b.Must(b.Delete(t.Context(), milan.slice))
	b.Until("the pod is told to leave", func() bool { b.Read(pod); return pod.DeletionTimestamp != nil })
	if milan.asked("as long as it has pods", map[string]string{"shop": twinOfShop()}); milan.namespaces.DeletionTimestamp != nil {
		t.Error("the twin went before its pods")
	}
	b.ended(pod)
	b.Until("the map is told to go", func() bool { b.Read(milan.namespaces); return milan.namespaces.DeletionTimestamp != nil })
	b.Until("the node is gone", func() bool { return b.gone(milan.node) })
	b.Read(milan.slice)
	b.ahead.Store(int64(mapTime + time.Second)) // nobody answers; whoever holds the map is told to let it go
	b.Until("the map is not waited for", func() bool {
		b.Read(milan.namespaces)
		return milan.namespaces.Annotations[labels.ForceUnpeer] == "true"
	})
	b.Read(milan.slice)
	b.Edit(milan.namespaces, func() { milan.namespaces.Finalizers = nil })
	b.Until("the slice is gone", func() bool { return b.gone(milan.slice) })
	b.stands(wish, "NoClusterSelected", nil)
	b.Until("the rights are gone", func() bool { return b.gone(milan.binding()) })
}
