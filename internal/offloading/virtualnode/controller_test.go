// SPDX-License-Identifier: Apache-2.0

package virtualnode

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/offloading/controllertest"
	"liqo.io/liqo/internal/offloading/kubelet"
)

// nodeEnv is a cluster with virtual nodes.
type nodeEnv struct{ *controllertest.Env }

func newNodeEnv(t *testing.T) *nodeEnv {
	t.Helper()
	return &nodeEnv{controllertest.New(t)}
}

// TestVirtualKubelet: the virtual kubelet of a slice is restored whatever happens to it, and follows upgrades.
func TestVirtualKubelet(t *testing.T) {
	b := newNodeEnv(t)
	stop := b.run("liqo:v1")
	slice := b.Slice("rome")
	b.ForeignCluster() // after the slice, as it may happen in a cache
	b.UntilCondition(slice, sharingv1alpha1.ReasonVirtualKubeletStarting, "kubectl -n "+controllertest.Tenant)
	if !slices.Contains(slice.Finalizers, labels.FinalizerNode) {
		t.Errorf("finalizers %v", slice.Finalizers)
	}
	b.Until("the documented event", func() bool { return b.event(slice, "VkCreated", "liqo-milan") })
	parts := b.parts()
	for _, part := range parts {
		b.Read(part)
	}
	deployment := parts[0].(*appsv1.Deployment)
	if container := deployment.Spec.Template.Spec.Containers[0]; container.Image != "liqo:v1" || !slices.Contains(container.Args, "--slice-name=rome") {
		t.Errorf("container %+v", container)
	}

	// Objects in the desired state are not written again.
	writes := b.Writes.Load()
	b.Edit(slice, func() { slice.Annotations = map[string]string{"touched": "yes"} })
	node := b.Node()
	b.UntilCondition(slice, sharingv1alpha1.ReasonNodeReady, "")
	if got := b.Writes.Load() - writes; got > 2 {
		t.Errorf("%d writes, want the condition: of the new node, and of the Ready one", got)
	}
	b.Ready(node, corev1.ConditionFalse, "no answer from milan")
	b.UntilCondition(slice, sharingv1alpha1.ReasonNodeNotReady, "no answer from milan")

	// Deleted objects are created again.
	for _, part := range parts {
		uid := part.GetUID()
		b.Must(b.Delete(t.Context(), part))
		b.Until("it is created again", func() bool {
			return b.Get(t.Context(), client.ObjectKeyFromObject(part), part) == nil && part.GetUID() != uid
		})
	}
	b.Edit(deployment, func() { deployment.Spec.Template.Spec.Containers[0].Image = "evil" })
	b.Until("the image is restored", func() bool {
		b.Read(deployment)
		return deployment.Spec.Template.Spec.Containers[0].Image == "liqo:v1"
	})

	// A restart writes nothing, an upgrade only the image.
	stop()
	versions := b.versions(parts)
	writes = b.Writes.Load()
	stop = b.run("liqo:v1")
	b.Ready(node, corev1.ConditionFalse, "it has been restarted")
	b.UntilCondition(slice, sharingv1alpha1.ReasonNodeNotReady, "it has been restarted")
	if got := b.versions(parts); !slices.Equal(got, versions) {
		t.Errorf("versions %v, before the restart %v", got, versions)
	}
	t.Logf("requests to write, by a restart: %d", b.Writes.Load()-writes-1)
	stop()
	b.run("liqo:v2")
	b.Until("the new image is written", func() bool {
		b.Read(deployment)
		return deployment.Spec.Template.Spec.Containers[0].Image == "liqo:v2"
	})

	// A second slice of the same peer does not conflict with the first.
	second := b.Slice("second")
	b.UntilCondition(second, sharingv1alpha1.ReasonNodeNotReady, "ResourceSlice rome has it")
	b.Must(b.Delete(t.Context(), second))
	b.Until("the second slice is gone", func() bool { return b.Gone(second) })
	b.Read(deployment)
	if len(second.Finalizers) > 0 || !slices.Contains(deployment.Spec.Template.Spec.Containers[0].Args, "--slice-name=rome") {
		t.Errorf("finalizers %v, deployment %v", second.Finalizers, deployment.Spec.Template.Spec.Containers[0].Args)
	}
}

// event reports whether there is a normal event about an object with the reason and a part of the note.
func (b *nodeEnv) event(about client.Object, reason, note string) bool {
	b.T.Helper()
	var events eventsv1.EventList
	b.Must(b.List(b.T.Context(), &events, client.InNamespace(about.GetNamespace())))
	return slices.ContainsFunc(events.Items, func(event eventsv1.Event) bool {
		return event.Reason == reason && event.Type == corev1.EventTypeNormal && event.Regarding.UID == about.GetUID() && strings.Contains(event.Note, note)
	})
}

// parts returns all objects of a virtual kubelet, by name.
func (b *nodeEnv) parts() []client.Object {
	at := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	unique := "liqo-virtual-kubelet-milan-ac89c5"
	return []client.Object{
		&appsv1.Deployment{ObjectMeta: at(controllertest.Tenant, "virtual-kubelet")},
		&corev1.ServiceAccount{ObjectMeta: at(controllertest.Tenant, "virtual-kubelet")},
		&rbacv1.ClusterRoleBinding{ObjectMeta: at("", unique)},
		&rbacv1.RoleBinding{ObjectMeta: at(controllertest.Tenant, "liqo-virtual-kubelet-tenant")},
		&rbacv1.RoleBinding{ObjectMeta: at("kube-node-lease", unique)},
		&rbacv1.RoleBinding{ObjectMeta: at("kube-system", unique)},
	}
}

func (b *nodeEnv) versions(objects []client.Object) (all []string) {
	b.T.Helper()
	for _, object := range objects {
		b.Read(object)
		all = append(all, object.GetResourceVersion())
	}
	return all
}

// TestIdleNode: without pods, everything is deleted at once, and the slice is gone after its node, not before.
func TestIdleNode(t *testing.T) {
	b := newNodeEnv(t)
	b.ForeignCluster()
	b.run("liqo:v1")
	slice := b.Slice("rome")
	node := b.Node()
	b.UntilCondition(slice, sharingv1alpha1.ReasonNodeReady, "")
	kubelet := b.Kubelet()
	b.Edit(node, func() { node.Finalizers = []string{"example.com/held"} })

	b.Must(b.Delete(t.Context(), slice))
	b.Until("the pod of the virtual kubelet is deleted", func() bool { return b.Gone(kubelet) || kubelet.DeletionTimestamp != nil })
	b.Until("the node is deleted", func() bool { b.Read(node); return node.DeletionTimestamp != nil })
	for _, part := range b.parts() {
		b.Until("all objects are gone", func() bool { return b.Gone(part) })
	}
	b.Read(slice)
	b.Edit(node, func() { node.Finalizers = nil })
	b.Until("the slice is gone", func() bool { return b.Gone(slice) })
	if !b.Gone(node) {
		t.Error("the slice went before its node")
	}
	b.Until("the documented event", func() bool { return b.event(slice, "VkDeleted", controllertest.NodeName) })

	// An unmanaged node of the same name stays.
	slice = b.Slice("rome")
	b.UntilCondition(slice, sharingv1alpha1.ReasonVirtualKubeletStarting, "")
	foreign := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: controllertest.NodeName}}
	b.Make(foreign)
	b.Must(b.Delete(t.Context(), slice))
	b.Until("the slice is gone", func() bool { return b.Gone(slice) })
	b.Read(foreign)
	if foreign.DeletionTimestamp != nil || foreign.Spec.Unschedulable {
		t.Errorf("touched: %+v", foreign)
	}
}

// TestDrain: pods are evicted; those that a disruption budget protects are deleted at the deadline.
func TestDrain(t *testing.T) {
	b := newNodeEnv(t)
	b.ForeignCluster()
	b.run("liqo:v1")
	slice := b.Slice("rome")
	node := b.Node()
	b.UntilCondition(slice, sharingv1alpha1.ReasonNodeReady, "")
	free := b.Pod("apps", "free", controllertest.NodeName, nil)
	guarded := b.Pod("apps", "guarded", controllertest.NodeName, nil)
	daemon := b.Pod("apps", "daemon", controllertest.NodeName, func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "d", Controller: new(true)}}
	})
	elsewhere := b.Pod("apps", "elsewhere", "physical", nil)
	// No controller counts the pods of the budget here, so it allows no disruption.
	b.Make(&policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "guard"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "guarded"}}},
	})

	// The provider withdraws its grant, and grants again.
	b.EditStatus(slice, func() { slice.Status.Phase = sharingv1alpha1.SliceRefused })
	b.UntilCondition(slice, sharingv1alpha1.ReasonNodeDraining, "waits for 2 pods")
	b.Until("the free pod is evicted", func() bool { b.Read(free); return free.DeletionTimestamp != nil })
	b.Read(node)
	if !node.Spec.Unschedulable {
		t.Error("not cordoned")
	}
	b.EditStatus(slice, func() { slice.Status.Phase = sharingv1alpha1.SliceAccepted })
	b.UntilCondition(slice, sharingv1alpha1.ReasonNodeReady, "")
	b.Until("the node is schedulable again", func() bool { b.Read(node); return !node.Spec.Unschedulable })
	for _, part := range b.parts() {
		b.Read(part)
	}

	// The peering ends.
	b.Must(b.Delete(t.Context(), slice))
	b.UntilCondition(slice, sharingv1alpha1.ReasonNodeDraining, "waits for 2 pods")
	b.EndPod(free)
	b.UntilCondition(slice, sharingv1alpha1.ReasonNodeDraining, "waits for 1 pods")
	began := meta.FindStatusCondition(slice.Status.Conditions, sharingv1alpha1.ConditionNodeReady).LastTransitionTime
	b.Ready(node, corev1.ConditionFalse, "no answer")
	b.UntilCondition(slice, sharingv1alpha1.ReasonNodeDraining, "still there at "+began.Add(25*time.Second).UTC().Format(time.RFC3339))
	b.Ready(node, corev1.ConditionTrue, "an answer")
	b.UntilCondition(slice, sharingv1alpha1.ReasonNodeDraining, "still there at "+began.Add(2*time.Minute).UTC().Format(time.RFC3339))
	b.Read(guarded)
	if guarded.DeletionTimestamp != nil {
		t.Fatal("deleted against its budget before the deadline")
	}
	b.Read(b.parts()[0])

	b.Ahead.Store(int64(2 * time.Minute))
	b.Until("the guarded pod is deleted", func() bool { return b.Gone(guarded) })
	b.Until("the node is gone", func() bool { return b.Gone(node) })
	b.Until("an event names the pod", func() bool {
		var events eventsv1.EventList
		b.Must(b.List(t.Context(), &events))
		return slices.ContainsFunc(events.Items, func(event eventsv1.Event) bool {
			return event.Reason == "DrainDeadline" && event.Regarding.Name == slice.Name &&
				event.Note == "1 pods did not leave node liqo-milan in time and were deleted: apps/guarded"
		})
	})
	b.Until("the slice is gone", func() bool { return b.Gone(slice) })
	for _, pod := range []*corev1.Pod{daemon, elsewhere} {
		b.Read(pod)
		if pod.DeletionTimestamp != nil {
			t.Errorf("pod %s was deleted", pod.Name)
		}
	}
}

// TestForced: neither a pod that does not end, nor its finalizer, nor a missing ForeignCluster holds up a forced unpeering.
func TestForced(t *testing.T) {
	b := newNodeEnv(t)
	b.ForeignCluster()
	stop := b.run("liqo:v1")
	slice := b.Slice("rome")
	node := b.Node()
	b.UntilCondition(slice, sharingv1alpha1.ReasonNodeReady, "")
	pod := b.Pod("apps", "stubborn", controllertest.NodeName, func(pod *corev1.Pod) { pod.Finalizers = []string{"example.com/held"} })
	stop()
	b.Edit(slice, func() { slice.Annotations = map[string]string{labels.ForceUnpeer: "true"} })
	b.Must(b.Delete(t.Context(), slice))
	b.Must(b.DeleteAllOf(t.Context(), &discoveryv1alpha1.ForeignCluster{}))
	b.run("liqo:v1")
	b.Until("the slice is gone", func() bool { return b.Gone(slice) })
	for _, object := range append(b.parts(), node) {
		b.Until("all objects are gone", func() bool { return b.Gone(object) })
	}
	b.Read(pod)
	if pod.DeletionTimestamp == nil {
		t.Error("the pod was not deleted")
	}
}

// TestUnmanaged: a slice in the tenant of another peer affects nothing of this peer, and unmanaged objects with our labels are neither deleted nor
// waited for.
func TestUnmanaged(t *testing.T) {
	b := newNodeEnv(t)
	b.ForeignCluster()
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-evil-000000"}})
	b.run("liqo:v1")
	slice := b.Slice("rome")
	node := b.Node()
	b.UntilCondition(slice, sharingv1alpha1.ReasonNodeReady, "")
	likeOurs := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "like-ours", Labels: map[string]string{
			labels.AppName: kubelet.Name, labels.ClusterID: "milan-id", labels.AppPartOf: labels.PartOf,
		}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
	}
	b.Make(likeOurs)
	evil := &sharingv1alpha1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "liqo-tenant-evil-000000", Name: "evil", Finalizers: []string{labels.FinalizerNode},
			Labels: map[string]string{labels.Replication: "true", labels.ClusterID: "milan-id"},
		},
		Spec: slice.Spec,
	}
	b.Make(evil)
	b.Must(b.Delete(t.Context(), evil))
	b.Until("the evil slice is gone", func() bool { return b.Gone(evil) })
	b.Read(node)
	if node.Spec.Unschedulable || node.DeletionTimestamp != nil {
		t.Error("the slice of another peer removed the node")
	}
	for _, part := range b.parts() {
		b.Read(part)
	}
	var bindings rbacv1.ClusterRoleBindingList
	b.Must(b.List(t.Context(), &bindings, client.MatchingLabels{labels.ClusterID: "milan-id"}))
	for i := range bindings.Items {
		for _, subject := range bindings.Items[i].Subjects {
			if subject.Namespace != controllertest.Tenant {
				t.Errorf("%s is bound to %s/%s", bindings.Items[i].Name, subject.Namespace, subject.Name)
			}
		}
	}

	b.Must(b.Delete(t.Context(), slice))
	b.Until("the node is gone", func() bool { return b.Gone(node) })
	b.Until("the slice is gone", func() bool { return b.Gone(slice) })
	b.Read(likeOurs)
}

// run starts the controller of virtual nodes; it ends with stop, or with the test.
func (b *nodeEnv) run(image string) (stop func()) {
	b.T.Helper()
	return b.Start(func(mgr ctrl.Manager) error {
		return Setup(mgr, Options{
			Local: controllertest.Rome, Kubelet: kubelet.Options{Image: image},
			DrainDeadline: 2 * time.Minute, DrainDeadlineUnreachable: 25 * time.Second, Now: b.Now,
		})
	})
}
