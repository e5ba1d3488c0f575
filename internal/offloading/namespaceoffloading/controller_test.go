// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading

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
	"liqo.io/liqo/internal/offloading/controllertest"
	"liqo.io/liqo/internal/offloading/kubelet"
	"liqo.io/liqo/internal/offloading/namespacemap"
	"liqo.io/liqo/internal/offloading/remotename"
	"liqo.io/liqo/internal/offloading/virtualnode"
)

// consumerEnv is a cluster that offloads namespaces.
type consumerEnv struct{ *controllertest.Env }

func newConsumerEnv(t *testing.T) *consumerEnv {
	t.Helper()
	return &consumerEnv{controllertest.New(t)}
}

func remoteNameOfShop() string {
	return remotename.Of("shop", offloadingv1alpha1.DefaultName, controllertest.Rome)
}

// fakeProvider simulates a cluster that grants a virtual node.
type fakeProvider struct {
	b          *consumerEnv
	peer       discoveryv1alpha1.ClusterIdentity
	slice      *sharingv1alpha1.ResourceSlice
	node       *corev1.Node
	namespaces *vkv1alpha1.NamespaceMap
}

func (b *consumerEnv) newProvider(name, region string) *fakeProvider {
	b.T.Helper()
	l := &fakeProvider{b: b, peer: discoveryv1alpha1.ClusterIdentity{ClusterID: name + "-id", ClusterName: name}}
	if space := l.peer.TenantNamespace(); space != controllertest.Tenant {
		b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}})
		meta := metav1.ObjectMeta{Namespace: space, Name: controllertest.User}
		role := &rbacv1.Role{}
		role.Namespace, role.Name = controllertest.Tenant, controllertest.User
		b.Read(role)
		b.Make(&rbacv1.Role{ObjectMeta: meta, Rules: role.Rules})
		b.Make(&rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: controllertest.User},
			Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: controllertest.User}},
		})
	}
	b.Make(&discoveryv1alpha1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{labels.ClusterID: l.peer.ClusterID}},
		Spec: discoveryv1alpha1.ForeignClusterSpec{
			ClusterIdentity: &l.peer, OutgoingPeeringEnabled: discoveryv1alpha1.PeeringYes,
			IncomingPeeringEnabled: discoveryv1alpha1.PeeringAuto, ForeignAuthURL: "https://" + name, AcceptedLabels: []string{"region"},
		},
	})
	l.slice = &sharingv1alpha1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: l.peer.TenantNamespace(), Name: "rome",
			Labels: map[string]string{labels.Replication: "true", labels.ClusterID: l.peer.ClusterID},
		},
		Spec: sharingv1alpha1.ResourceSliceSpec{ConsumerClusterID: "rome-id", ProviderClusterID: l.peer.ClusterID, NodeName: "liqo-" + name},
	}
	b.Make(l.slice)
	l.register(region)
	l.namespaces = &vkv1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.slice.Namespace, Name: l.peer.UniqueName()}}
	return l
}

// register creates the node, and then its labels and conditions, as a virtual kubelet does.
func (l *fakeProvider) register(region string) {
	l.b.T.Helper()
	l.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "liqo-" + l.peer.ClusterName, Labels: map[string]string{
		labels.Type: labels.TypeVirtualNode, labels.RemoteClusterID: l.peer.ClusterID,
	}}}
	l.b.Make(l.node)
	if region != "" {
		l.b.Edit(l.node, func() {
			l.node.Labels["region"], l.node.Labels[corev1.LabelHostname] = region, l.node.Name
			l.node.Annotations = map[string]string{labels.ProviderLabels: "region"}
		})
		l.b.Ready(l.node, corev1.ConditionTrue, "the remote cluster answers")
	}
}

// asked waits until the provider is asked for these namespaces.
func (l *fakeProvider) asked(what string, want map[string]string) {
	l.b.T.Helper()
	l.b.Until(l.peer.ClusterName+" is asked for "+what, func() bool {
		return l.b.Exists(l.namespaces) && maps.Equal(l.namespaces.Spec.DesiredMapping, want) && l.namespaces.Annotations[labels.ClusterDomain] == domainOfRome
	})
}

// reports writes the status that package replicate would copy from the provider.
func (l *fakeProvider) reports(phase vkv1alpha1.MappingPhase, message string) {
	l.b.T.Helper()
	l.b.EditStatus(l.namespaces, func() {
		l.namespaces.Status.CurrentMapping = nil
		if phase != "" {
			l.namespaces.Status.CurrentMapping = map[string]vkv1alpha1.RemoteNamespaceStatus{
				"shop": {RemoteNamespace: remoteNameOfShop(), Phase: phase, Message: message},
			}
		}
	})
}

func (l *fakeProvider) binding() *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "liqo-virtual-kubelet-" + l.peer.UniqueName()}}
}

// domainOfRome is announced to providers, so that pods find Services there by the names that these have at home.
const domainOfRome = "rome.example"

func setupMaps(mgr ctrl.Manager) error {
	return namespacemap.Setup(mgr, namespacemap.Options{Domain: domainOfRome})
}

func (b *consumerEnv) runConsumer() (stop func()) {
	b.T.Helper()
	return b.Start(func(mgr ctrl.Manager) error {
		return Setup(mgr, Options{Local: controllertest.Rome, Now: b.Now})
	}, setupMaps)
}

// untilPhase waits for a phase, and for the reasons of the conditions of a cluster.
func (b *consumerEnv) untilPhase(
	offloading *offloadingv1alpha1.NamespaceOffloading, phase offloadingv1alpha1.OffloadingPhase, l *fakeProvider, reasons ...string,
) {
	b.T.Helper()
	defer func() {
		if b.T.Failed() {
			b.T.Logf("the status is %+v", offloading.Status)
		}
	}()
	b.Until("the offloading is "+string(phase)+" "+strings.Join(reasons, " "), func() bool {
		b.Read(offloading)
		var got []string
		if l != nil {
			for _, condition := range offloading.Status.RemoteNamespacesConditions[l.peer.UniqueName()] {
				got = append(got, condition.Reason)
			}
		}
		return offloading.Status.OffloadingPhase == phase && slices.Equal(got, reasons) && offloading.Status.ObservedGeneration == offloading.Generation
	})
}

func (b *consumerEnv) untilLabelled(want bool) {
	b.T.Helper()
	b.Until("the label of the namespace is right", func() bool {
		shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
		b.Read(shop)
		return (shop.Labels[labels.SchedulingEnabled] == "true") == want
	})
}

func (b *consumerEnv) shop() {
	b.T.Helper()
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
}

// TestOffloading walks a namespace through all phases except its end.
func TestOffloading(t *testing.T) {
	b := newConsumerEnv(t)
	stop := b.runConsumer()
	b.shop()
	offloading := b.Offload(func(spec *offloadingv1alpha1.NamespaceOffloadingSpec) {
		spec.ClusterSelector.NodeSelectorTerms = []corev1.NodeSelectorTerm{controllertest.Term("region", corev1.NodeSelectorOpIn, "europe")}
	})
	b.untilPhase(offloading, "NoClusterSelected", nil)
	b.untilLabelled(true)
	if offloading.Status.RemoteNamespaceName != remoteNameOfShop() || !slices.Contains(offloading.Finalizers, labels.FinalizerNamespaceOffloading) {
		t.Errorf("%+v", offloading)
	}
	mine := map[string]string{"shop": remoteNameOfShop()}

	milan := b.newProvider("milan", "europe")
	milan.asked("the namespace", mine)
	want := map[string]string{
		labels.Replication: "true", labels.RemoteID: "milan-id", labels.RemoteClusterID: "milan-id", labels.ClusterID: "milan-id", labels.AppPartOf: "liqo",
	}
	if diff := cmp.Diff(want, milan.namespaces.Labels); diff != "" {
		t.Error(diff)
	}
	if len(milan.namespaces.OwnerReferences) > 0 {
		t.Errorf("deleting the node deletes the remote namespaces: %+v", milan.namespaces.OwnerReferences)
	}
	b.untilPhase(offloading, "InProgress", milan, "ClusterSelected", "Creating")
	binding := milan.binding()
	b.Read(binding)
	if binding.RoleRef.Name != offloadedRole || len(binding.Subjects) != 1 ||
		binding.Subjects[0].Name != "virtual-kubelet" || binding.Subjects[0].Namespace != controllertest.Tenant {
		t.Errorf("%+v", binding)
	}

	// The provider reports its states.
	milan.reports(vkv1alpha1.MappingCreationLoopBackOff, "namespace is taken")
	b.untilPhase(offloading, "AllFailed", milan, "ClusterSelected", "CreationLoopBackOff")
	if text := offloading.Status.RemoteNamespacesConditions[milan.peer.UniqueName()][1].Message; text != "namespace is taken" {
		t.Errorf("message %q", text)
	}
	milan.reports(vkv1alpha1.MappingAccepted, "")
	b.untilPhase(offloading, "Ready", milan, "ClusterSelected", "NamespaceCreated")
	milan.reports(vkv1alpha1.MappingTerminating, "")
	b.untilPhase(offloading, "InProgress", milan, "ClusterSelected", "Terminating")
	milan.reports(vkv1alpha1.MappingAccepted, "")
	b.untilPhase(offloading, "Ready", milan, "ClusterSelected", "NamespaceCreated")

	// A second cluster is not selected, then selected, and fails.
	turin := b.newProvider("turin", "asia")
	b.untilPhase(offloading, "Ready", turin, "ClusterNotSelected")
	turin.asked("nothing", nil)
	b.Edit(offloading, func() { offloading.Spec.ClusterSelector.NodeSelectorTerms = nil })
	b.untilPhase(offloading, "InProgress", turin, "ClusterSelected", "Creating")
	turin.asked("the namespace", mine)
	turin.reports(vkv1alpha1.MappingCreationLoopBackOff, "limit reached")
	b.untilPhase(offloading, "SomeFailed", turin, "ClusterSelected", "CreationLoopBackOff")
	b.Until("turin has its rights", func() bool { return b.Exists(turin.binding()) })

	// Turin is no longer selected; its virtual kubelet keeps its rights while the remote namespace exists.
	turin.reports(vkv1alpha1.MappingAccepted, "")
	b.untilPhase(offloading, "Ready", turin, "ClusterSelected", "NamespaceCreated")
	b.Edit(offloading, func() {
		offloading.Spec.ClusterSelector.NodeSelectorTerms = []corev1.NodeSelectorTerm{controllertest.Term("region", corev1.NodeSelectorOpNotIn, "asia")}
	})
	turin.asked("nothing", nil)
	b.untilPhase(offloading, "Ready", turin, "ClusterNotSelected", "Terminating")
	if !b.Exists(turin.binding()) {
		t.Error("its rights were removed before the remote namespace")
	}
	turin.reports("", "")
	b.untilPhase(offloading, "Ready", turin, "ClusterNotSelected")
	b.Until("the rights of turin are gone", func() bool { return b.Gone(turin.binding()) })

	// Removed labels, bindings and entries are restored.
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	b.Edit(shop, func() { delete(shop.Labels, labels.SchedulingEnabled) })
	b.untilLabelled(true)
	b.Must(b.Delete(t.Context(), binding))
	b.Until("the binding is created again", func() bool { return b.Exists(milan.binding()) })
	b.Edit(milan.namespaces, func() { milan.namespaces.Spec.DesiredMapping = map[string]string{"shop": "kube-system"} })
	milan.asked("the namespace again", mine)

	// When the node is deleted, and registered again, the remote namespaces stay.
	uid := milan.namespaces.UID
	b.Must(b.Delete(t.Context(), milan.node))
	milan.register("")
	version := milan.namespaces.ResourceVersion
	b.Edit(offloading, func() { offloading.Annotations = map[string]string{"touched": "yes"} })
	b.Edit(shop, func() { delete(shop.Labels, labels.SchedulingEnabled) })
	b.untilLabelled(true) // the controllers have reconciled
	if milan.asked("as before", mine); milan.namespaces.UID != uid || milan.namespaces.ResourceVersion != version {
		t.Error("its map was written, although nothing changed")
	}
	b.Edit(milan.node, func() {
		milan.node.Labels["region"], milan.node.Labels[corev1.LabelHostname] = "europe", milan.node.Name
		milan.node.Annotations = map[string]string{labels.ProviderLabels: "region"}
	})
	b.Ready(milan.node, corev1.ConditionTrue, "the remote cluster answers")
	b.untilPhase(offloading, "Ready", milan, "ClusterSelected", "NamespaceCreated")

	// An invalid selector only causes an event.
	b.Edit(offloading, func() {
		offloading.Spec.ClusterSelector.NodeSelectorTerms = []corev1.NodeSelectorTerm{controllertest.Term("region", "Sometimes", "asia")}
	})
	b.Until("an event reports it", func() bool {
		var events eventsv1.EventList
		b.Must(b.List(t.Context(), &events))
		return slices.ContainsFunc(events.Items, func(event eventsv1.Event) bool {
			return event.Reason == "Invalid" && event.Type == corev1.EventTypeWarning &&
				event.Regarding.UID == offloading.UID && strings.Contains(event.Note, "Sometimes")
		})
	})
	b.untilPhase(offloading, "Ready", milan, "ClusterSelected", "NamespaceCreated")
	milan.asked("as before", mine)

	// With the strategy Local, the label is removed and the remote namespace stays.
	b.Edit(offloading, func() {
		offloading.Spec.ClusterSelector.NodeSelectorTerms, offloading.Spec.PodOffloadingStrategy = nil, offloadingv1alpha1.PodsLocal
	})
	turin.asked("the namespace", mine)
	turin.reports(vkv1alpha1.MappingAccepted, "")
	b.untilPhase(offloading, "Ready", turin, "ClusterSelected", "NamespaceCreated")
	b.untilLabelled(false)
	b.Edit(offloading, func() { offloading.Spec.PodOffloadingStrategy = offloadingv1alpha1.PodsRemote })
	b.untilLabelled(true)
	b.untilPhase(offloading, "Ready", milan, "ClusterSelected", "NamespaceCreated")

	// A restart writes nothing.
	stop()
	all := []client.Object{offloading, milan.namespaces, turin.namespaces, milan.binding(), turin.binding(), shop}
	before := b.VersionsOf(all)
	writes := b.Writes.Load()
	b.runConsumer()
	turin.reports(vkv1alpha1.MappingTerminating, "") // observed after everything else is reconciled
	b.untilPhase(offloading, "InProgress", turin, "ClusterSelected", "Terminating")
	if got := b.VersionsOf(all); !slices.Equal(got[3:], before[3:]) || got[1] != before[1] {
		t.Errorf("versions %v, before the restart %v", got, before)
	}
	if got := b.Writes.Load() - writes; got != 1 {
		t.Errorf("%d writes, want one for the status of turin", got)
	}
}

// TestOffloadingWithoutAPIServer: the map carries from its first write that a namespace has no API server; it follows the annotation, and foreign
// changes are undone.
func TestOffloadingWithoutAPIServer(t *testing.T) {
	b := newConsumerEnv(t)
	b.runConsumer()
	b.shop()
	milan := b.newProvider("milan", "europe")
	mine := map[string]string{"shop": remoteNameOfShop()}
	w, err := client.NewWithWatch(b.Admin, client.Options{Scheme: b.Scheme})
	b.Must(err)
	bounded, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	updates, err := w.Watch(bounded, &vkv1alpha1.NamespaceMapList{}, client.InNamespace(milan.slice.Namespace))
	b.Must(err)
	t.Cleanup(updates.Stop)
	offloading := &offloadingv1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "offloading", Annotations: map[string]string{labels.APIServerSupport: "false"},
	}}
	b.Make(offloading)
	var first *vkv1alpha1.NamespaceMapSpec
	for first == nil {
		event, more := <-updates.ResultChan()
		if !more {
			t.Fatal("the watch ended before the namespace was in the map")
		}
		m, ok := event.Object.(*vkv1alpha1.NamespaceMap)
		if ok && len(m.Spec.DesiredMapping) > 0 {
			first = &m.Spec
		}
	}
	if !maps.Equal(first.DesiredMapping, mine) || !slices.Equal(first.WithoutAPIServer, []string{"shop"}) {
		t.Errorf("the first map with the namespace is %+v", first)
	}
	untilMapped := func(what string, want ...string) {
		t.Helper()
		b.Until(what, func() bool {
			b.Read(milan.namespaces)
			return maps.Equal(milan.namespaces.Spec.DesiredMapping, mine) && slices.Equal(milan.namespaces.Spec.WithoutAPIServer, want)
		})
	}
	b.Edit(milan.namespaces, func() { milan.namespaces.Spec.WithoutAPIServer = nil })
	untilMapped("a foreign change is undone", "shop")
	b.Edit(offloading, func() { offloading.Annotations[labels.APIServerSupport] = "true" })
	untilMapped("with the API server")
	b.Edit(offloading, func() { offloading.Annotations[labels.APIServerSupport] = "false" })
	untilMapped("without the API server", "shop")
	b.Edit(offloading, func() { delete(offloading.Annotations, labels.APIServerSupport) })
	untilMapped("with the API server again")
}

// TestUnoffloading: the object is gone after its remote namespaces, or at a deadline, and leaves nothing.
func TestUnoffloading(t *testing.T) {
	b := newConsumerEnv(t)
	b.runConsumer()
	b.shop()
	milan, turin := b.newProvider("milan", "europe"), b.newProvider("turin", "asia")
	offloading := b.Offload(nil)
	for _, l := range []*fakeProvider{milan, turin} {
		l.asked("the namespace", map[string]string{"shop": remoteNameOfShop()})
		l.reports(vkv1alpha1.MappingAccepted, "")
	}
	b.untilPhase(offloading, "Ready", milan, "ClusterSelected", "NamespaceCreated")
	b.Must(b.Delete(t.Context(), offloading))
	for _, l := range []*fakeProvider{milan, turin} {
		l.asked("nothing", nil)
		b.untilPhase(offloading, "Terminating", l, "ClusterNotSelected", "Terminating")
	}
	b.untilLabelled(false)
	if !b.Exists(milan.binding()) {
		t.Error("its rights were removed before the remote namespace")
	}
	milan.reports("", "")
	b.Until("the rights of milan are gone", func() bool { return b.Gone(milan.binding()) })
	b.Read(offloading)

	// After the shorter deadline, turin still answers, so the longer deadline counts.
	b.Ahead.Store(int64(silentEndDeadline + 5*time.Second))
	b.Edit(offloading, func() { offloading.Annotations = map[string]string{"touched": "yes"} })
	b.untilPhase(offloading, "Terminating", turin, "ClusterNotSelected", "Terminating")
	b.Read(offloading)
	b.Ready(turin.node, corev1.ConditionFalse, "no answer")
	b.Until("the object is gone", func() bool { return b.Gone(offloading) })
	b.Until("an event names the leftovers", func() bool {
		var events eventsv1.EventList
		b.Must(b.List(t.Context(), &events))
		return slices.ContainsFunc(events.Items, func(event eventsv1.Event) bool {
			return event.Reason == "RemoteNamespaceMayBeLeft" && strings.Contains(event.Note, remoteNameOfShop()) &&
				strings.Contains(event.Note, turin.peer.UniqueName()) &&
				!strings.Contains(event.Note, milan.peer.UniqueName())
		})
	})
	b.Until("the rights of turin are gone", func() bool { return b.Gone(turin.binding()) })
	turin.asked("nothing, when it answers again", nil)
	if turin.namespaces.DeletionTimestamp != nil {
		t.Error("the map, by which turin learns of the end, is gone")
	}

	// Turin answers again; the next offloading starts from the beginning.
	b.Ready(turin.node, corev1.ConditionTrue, "the remote cluster answers")
	turin.reports("", "")
	offloading = b.Offload(nil)
	b.untilPhase(offloading, "InProgress", turin, "ClusterSelected", "Creating")

	// If the finalizer is removed by hand, the rest is still cleaned up.
	b.untilLabelled(true)
	b.Edit(offloading, func() { offloading.Finalizers = nil })
	b.Must(b.Delete(t.Context(), offloading))
	b.Until("the rights are gone", func() bool { return b.Gone(milan.binding()) && b.Gone(turin.binding()) })
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	b.Edit(shop, func() { shop.Labels["touched"] = "yes" })
	b.untilLabelled(false)
	milan.asked("nothing", nil)

	// A label that a user sets stays.
	b.Edit(shop, func() { shop.Labels[labels.SchedulingEnabled] = "true" })
	b.Edit(shop, func() { shop.Labels["touched"] = "again" })
	b.untilLabelled(true)
}

// TestPeeringEnds: the map is deleted with the virtual node, the slice is gone after the map, and a provider that does not answer holds up neither.
func TestPeeringEnds(t *testing.T) {
	b := newConsumerEnv(t)
	b.Start(func(mgr ctrl.Manager) error {
		return Setup(mgr, Options{Local: controllertest.Rome, Now: b.Now})
	}, setupMaps, func(mgr ctrl.Manager) error {
		return virtualnode.Setup(mgr, virtualnode.Options{
			Local: controllertest.Rome, Kubelet: kubelet.Options{Image: "liqo:v1"}, DrainDeadline: 2 * time.Minute,
			DrainDeadlineUnreachable: 25 * time.Second, Now: b.Now,
		})
	})
	b.shop()
	milan := b.newProvider("milan", "europe")
	offloading := b.Offload(nil)
	milan.asked("the namespace", map[string]string{"shop": remoteNameOfShop()})
	milan.reports(vkv1alpha1.MappingAccepted, "")
	b.untilPhase(offloading, "Ready", milan, "ClusterSelected", "NamespaceCreated")
	pod := b.Pod("shop", "pod", milan.node.Name, nil)
	b.Edit(milan.namespaces, func() { milan.namespaces.Finalizers = []string{labels.FinalizerReplication} })
	b.Until("the slice has the finalizer", func() bool {
		b.Read(milan.slice)
		return slices.Contains(milan.slice.Finalizers, labels.FinalizerNode)
	})

	b.Must(b.Delete(t.Context(), milan.slice))
	b.Until("the pod is evicted", func() bool { b.Read(pod); return pod.DeletionTimestamp != nil })
	if milan.asked("as long as it has pods", map[string]string{"shop": remoteNameOfShop()}); milan.namespaces.DeletionTimestamp != nil {
		t.Error("the remote namespace was removed before its pods")
	}
	b.EndPod(pod)
	b.Until("the map is deleted", func() bool { b.Read(milan.namespaces); return milan.namespaces.DeletionTimestamp != nil })
	b.Until("the node is gone", func() bool { return b.Gone(milan.node) })
	b.Read(milan.slice)
	b.Ahead.Store(int64(time.Minute)) // the provider does not answer: the replicator must release the map
	b.Until("the map is released", func() bool {
		b.Read(milan.namespaces)
		return milan.namespaces.Annotations[labels.ForceUnpeer] == "true"
	})
	b.Read(milan.slice)
	b.Edit(milan.namespaces, func() { milan.namespaces.Finalizers = nil })
	b.Until("the slice is gone", func() bool { return b.Gone(milan.slice) })
	b.untilPhase(offloading, "NoClusterSelected", nil)
	b.Until("the rights are gone", func() bool { return b.Gone(milan.binding()) })
}

// TestAttackM2: a provider gives itself labels that a selector names. It gets the namespace, with its Secrets, only if this cluster accepts them.
func TestAttackM2(t *testing.T) {
	b := newConsumerEnv(t)
	b.runConsumer()
	b.shop()
	trusted := b.Offload(func(spec *offloadingv1alpha1.NamespaceOffloadingSpec) {
		spec.ClusterSelector.NodeSelectorTerms = []corev1.NodeSelectorTerm{controllertest.Term("trust", corev1.NodeSelectorOpIn, "high")}
	})
	evil := b.newProvider("evil", "europe")
	lure := func(value string) {
		b.Edit(evil.node, func() {
			evil.node.Labels["trust"], evil.node.Annotations[labels.ProviderLabels] = value, "region,trust"
		})
	}
	lure("high")
	b.Until("an event reports it", func() bool {
		var events eventsv1.EventList
		b.Must(b.List(t.Context(), &events))
		return slices.ContainsFunc(events.Items, func(event eventsv1.Event) bool {
			return event.Reason == "LabelsNotAccepted" && event.Regarding.UID == trusted.UID &&
				strings.Contains(event.Note, "trust=high") && strings.HasSuffix(event.Note, ": liqoctl accept labels evil trust=high")
		})
	})
	b.untilPhase(trusted, "NoClusterSelected", evil, "ClusterNotSelected")
	if b.Exists(evil.namespaces) && len(evil.namespaces.Spec.DesiredMapping) > 0 {
		t.Errorf("the provider is asked for %v", evil.namespaces.Spec.DesiredMapping)
	}

	// Another value than the accepted one does not suffice either.
	peer := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "evil"}}
	b.Edit(peer, func() { peer.Spec.AcceptedLabels = []string{"trust=high"} })
	evil.asked("the namespace", map[string]string{"shop": remoteNameOfShop()})
	b.Edit(peer, func() { peer.Spec.AcceptedLabels = []string{"trust=low"} })
	evil.asked("nothing any more", nil)
}

// TestAttackM1Namespaces: a user offloads a namespace to every cluster, and the administrator has bounded what one of them may receive.
func TestAttackM1Namespaces(t *testing.T) {
	b := newConsumerEnv(t)
	b.runConsumer()
	b.shop()
	milan := b.newProvider("milan", "europe")
	peer := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}}
	b.Edit(peer, func() {
		peer.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"public": "yes"}}
	})
	offloading := b.Offload(nil)
	b.untilPhase(offloading, "NoClusterSelected", milan, "ClusterNotSelected")
	if message := offloading.Status.RemoteNamespacesConditions[milan.peer.UniqueName()][0].Message; !strings.Contains(message, "spec.namespaceSelector") {
		t.Error(message)
	}
	if b.Exists(milan.namespaces) && len(milan.namespaces.Spec.DesiredMapping) > 0 {
		t.Errorf("the provider is asked for %v", milan.namespaces.Spec.DesiredMapping)
	}
	mine := map[string]string{"shop": remoteNameOfShop()}
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	b.Edit(shop, func() { shop.Labels["public"] = "yes" })
	milan.asked("the namespace", mine)
	b.Edit(peer, func() {
		peer.Spec.NamespaceSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "public", Operator: "Sometimes"}}
	})
	b.Edit(offloading, func() { offloading.Spec.Reflection = offloadingv1alpha1.ReflectReferenced })
	b.Until("the map has the new reflection", func() bool {
		return b.Exists(milan.namespaces) && slices.Equal(milan.namespaces.Spec.ReferencedOnly, []string{"shop"})
	})
	milan.asked("as before, as the selector is invalid", mine)
	b.Edit(peer, func() { peer.Spec.NamespaceSelector.MatchExpressions = nil })
	b.Edit(shop, func() { delete(shop.Labels, "public") })
	milan.asked("nothing any more", nil)
}
