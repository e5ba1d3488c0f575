// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
)

// TestVirtualKubelet: a slice has its virtual kubelet, whatever happens to it, and it follows upgrades.
func TestVirtualKubelet(t *testing.T) {
	b := newBench(t)
	stop := b.run("liqo:v1")
	slice := b.slice("rome")
	b.foreignCluster() // later than the slice, as a cache may see it
	b.says(slice, sharingv1alpha1.ReasonVirtualKubeletStarting, "kubectl -n "+tenant)
	if !slices.Contains(slice.Finalizers, labels.FinalizerNode) {
		t.Errorf("finalizers %v", slice.Finalizers)
	}
	parts := b.parts()
	for _, part := range parts {
		b.Read(part)
	}
	deployment := parts[0].(*appsv1.Deployment)
	if container := deployment.Spec.Template.Spec.Containers[0]; container.Image != "liqo:v1" || !slices.Contains(container.Args, "--slice-name=rome") {
		t.Errorf("container %+v", container)
	}

	// What is as wanted is not written again, however often we are asked.
	writes := b.writes.Load()
	b.Edit(slice, func() { slice.Annotations = map[string]string{"touched": "yes"} })
	node := b.node()
	b.says(slice, sharingv1alpha1.ReasonNodeReady, "")
	if got := b.writes.Load() - writes; got > 2 {
		t.Errorf("%d writes, want the condition: of the new node, and of the Ready one", got)
	}
	b.ready(node, corev1.ConditionFalse, "no answer from milan")
	b.says(slice, sharingv1alpha1.ReasonNodeNotReady, "no answer from milan")

	// What somebody takes away comes back.
	for _, part := range parts {
		uid := part.GetUID()
		b.Must(b.Delete(t.Context(), part))
		b.Until("it is made again", func() bool {
			return b.Get(t.Context(), client.ObjectKeyFromObject(part), part) == nil && part.GetUID() != uid
		})
	}
	b.Edit(deployment, func() { deployment.Spec.Template.Spec.Containers[0].Image = "evil" })
	b.Until("the image is as it was", func() bool {
		b.Read(deployment)
		return deployment.Spec.Template.Spec.Containers[0].Image == "liqo:v1"
	})

	// A restart writes nothing, an upgrade the image.
	stop()
	versions := b.versions(parts)
	writes = b.writes.Load()
	stop = b.run("liqo:v1")
	b.ready(node, corev1.ConditionFalse, "it has been restarted")
	b.says(slice, sharingv1alpha1.ReasonNodeNotReady, "it has been restarted")
	if got := b.versions(parts); !slices.Equal(got, versions) {
		t.Errorf("versions %v, before the restart %v", got, versions)
	}
	t.Logf("requests to write, by a restart: %d", b.writes.Load()-writes-1)
	stop()
	b.run("liqo:v2")
	b.Until("the new image is there", func() bool {
		b.Read(deployment)
		return deployment.Spec.Template.Spec.Containers[0].Image == "liqo:v2"
	})

	// A second slice of the same peer does not fight with the first.
	second := b.slice("second")
	b.says(second, sharingv1alpha1.ReasonNodeNotReady, "it is that of ResourceSlice rome")
	b.Must(b.Delete(t.Context(), second))
	b.Until("the second goes without more", func() bool { return b.gone(second) })
	b.Read(deployment)
	if len(second.Finalizers) > 0 || !slices.Contains(deployment.Spec.Template.Spec.Containers[0].Args, "--slice-name=rome") {
		t.Errorf("finalizers %v, deployment %v", second.Finalizers, deployment.Spec.Template.Spec.Containers[0].Args)
	}
}

// parts are all that a virtual kubelet consists of, by name.
func (b *bench) parts() []client.Object {
	at := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	unique := "liqo-virtual-kubelet-milan-ac89c5"
	return []client.Object{
		&appsv1.Deployment{ObjectMeta: at(tenant, "virtual-kubelet")},
		&corev1.ServiceAccount{ObjectMeta: at(tenant, "virtual-kubelet")},
		&rbacv1.ClusterRoleBinding{ObjectMeta: at("", unique)},
		&rbacv1.RoleBinding{ObjectMeta: at(tenant, "liqo-virtual-kubelet-tenant")},
		&rbacv1.RoleBinding{ObjectMeta: at("kube-node-lease", unique)},
		&rbacv1.RoleBinding{ObjectMeta: at("kube-system", unique)},
	}
}

func (b *bench) versions(objects []client.Object) (all []string) {
	b.T.Helper()
	for _, object := range objects {
		b.Read(object)
		all = append(all, object.GetResourceVersion())
	}
	return all
}

// TestIdleNode: without pods, an unpeering ends as soon as the node is gone, and not before.
func TestIdleNode(t *testing.T) {
	b := newBench(t)
	b.foreignCluster()
	b.run("liqo:v1")
	slice := b.slice("rome")
	node := b.node()
	b.says(slice, sharingv1alpha1.ReasonNodeReady, "")
	kubelet := b.kubelet()
	b.Edit(node, func() { node.Finalizers = []string{"example.com/held"} })

	begin := time.Now()
	b.Must(b.Delete(t.Context(), slice))
	b.Until("the pod of the virtual kubelet is told to end", func() bool { return b.gone(kubelet) || kubelet.DeletionTimestamp != nil })
	b.Until("the node is told to go", func() bool { b.Read(node); return node.DeletionTimestamp != nil })
	for _, part := range b.parts() {
		b.Until("all is gone", func() bool { return b.gone(part) })
	}
	told := time.Since(begin)
	b.Read(slice)
	begin = time.Now()
	b.Edit(node, func() { node.Finalizers = nil })
	b.Until("the slice is gone", func() bool { return b.gone(slice) })
	if !b.gone(node) {
		t.Error("the slice went before its node")
	}
	t.Logf("all told to go after %v, slice gone %v after the node", told.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond))

	// Somebody else's node of that name stays.
	slice = b.slice("rome")
	b.says(slice, sharingv1alpha1.ReasonVirtualKubeletStarting, "")
	foreign := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	b.Make(foreign)
	b.Must(b.Delete(t.Context(), slice))
	b.Until("the slice is gone", func() bool { return b.gone(slice) })
	b.Read(foreign)
	if foreign.DeletionTimestamp != nil || foreign.Spec.Unschedulable {
		t.Errorf("touched: %+v", foreign)
	}
}

// TestDrain: pods leave by eviction, those that a budget protects at the deadline.
func TestDrain(t *testing.T) {
	b := newBench(t)
	b.foreignCluster()
	b.run("liqo:v1")
	slice := b.slice("rome")
	node := b.node()
	b.says(slice, sharingv1alpha1.ReasonNodeReady, "")
	free := b.pod("apps", "free", nodeName, nil)
	guarded := b.pod("apps", "guarded", nodeName, nil)
	daemon := b.pod("apps", "daemon", nodeName, func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "d", Controller: new(true)}}
	})
	elsewhere := b.pod("apps", "elsewhere", "physical", nil)
	// Nobody counts the budget's pods here, so it allows nothing.
	b.Make(&policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "guard"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "guarded"}}},
	})

	// The provider withdraws, and thinks better of it.
	b.EditStatus(slice, func() { slice.Status.Phase = sharingv1alpha1.SliceRefused })
	b.says(slice, sharingv1alpha1.ReasonNodeDraining, "waits for 2 pods")
	b.Until("the free pod is told to go", func() bool { b.Read(free); return free.DeletionTimestamp != nil })
	b.Read(node)
	if !node.Spec.Unschedulable {
		t.Error("not cordoned")
	}
	b.EditStatus(slice, func() { slice.Status.Phase = sharingv1alpha1.SliceAccepted })
	b.says(slice, sharingv1alpha1.ReasonNodeReady, "")
	b.Until("pods may come again", func() bool { b.Read(node); return !node.Spec.Unschedulable })
	for _, part := range b.parts() {
		b.Read(part)
	}

	// The peering ends.
	b.Must(b.Delete(t.Context(), slice))
	b.says(slice, sharingv1alpha1.ReasonNodeDraining, "waits for 2 pods")
	b.ended(free)
	b.says(slice, sharingv1alpha1.ReasonNodeDraining, "waits for 1 pods")
	began := meta.FindStatusCondition(slice.Status.Conditions, sharingv1alpha1.ConditionNodeReady).LastTransitionTime
	b.ready(node, corev1.ConditionFalse, "no answer")
	b.says(slice, sharingv1alpha1.ReasonNodeDraining, "still there at "+began.Add(25*time.Second).UTC().Format(time.RFC3339))
	b.ready(node, corev1.ConditionTrue, "an answer")
	b.says(slice, sharingv1alpha1.ReasonNodeDraining, "still there at "+began.Add(2*time.Minute).UTC().Format(time.RFC3339))
	b.Read(guarded)
	if guarded.DeletionTimestamp != nil {
		t.Fatal("deleted against its budget before the deadline")
	}
	b.Read(b.parts()[0])

	b.ahead.Store(int64(2 * time.Minute))
	b.Until("the guarded pod is deleted", func() bool { return b.gone(guarded) })
	b.Until("the node is gone", func() bool { return b.gone(node) })
	b.Until("an event names it", func() bool {
		var events eventsv1.EventList
		b.Must(b.List(t.Context(), &events))
		return slices.ContainsFunc(events.Items, func(event eventsv1.Event) bool {
			return event.Reason == "DrainDeadline" && event.Regarding.Name == slice.Name &&
				event.Note == "1 pods did not leave node liqo-milan in time and were deleted: apps/guarded"
		})
	})
	b.Until("the slice is gone", func() bool { return b.gone(slice) })
	for _, pod := range []*corev1.Pod{daemon, elsewhere} {
		b.Read(pod)
		if pod.DeletionTimestamp != nil {
			t.Errorf("pod %s was deleted", pod.Name)
		}
	}
}

// TestForced: a pod that nobody ends does not hold up a forced unpeering, nor does a finalizer on it; and without the foreign
// cluster, it ends as well.
func TestForced(t *testing.T) {
	b := newBench(t)
	b.foreignCluster()
	stop := b.run("liqo:v1")
	slice := b.slice("rome")
	node := b.node()
	b.says(slice, sharingv1alpha1.ReasonNodeReady, "")
	pod := b.pod("apps", "stubborn", nodeName, func(pod *corev1.Pod) { pod.Finalizers = []string{"example.com/held"} })
	stop()
	b.Edit(slice, func() { slice.Annotations = map[string]string{labels.ForceUnpeer: "true"} })
	b.Must(b.Delete(t.Context(), slice))
	b.Must(b.DeleteAllOf(t.Context(), &discoveryv1alpha1.ForeignCluster{}))
	b.run("liqo:v1")
	b.Until("the slice is gone", func() bool { return b.gone(slice) })
	for _, object := range append(b.parts(), node) {
		b.Until("all is gone", func() bool { return b.gone(object) })
	}
	b.Read(pod)
	if pod.DeletionTimestamp == nil {
		t.Error("the pod was not deleted")
	}
}

// TestStrangers: a slice in another peer's tenant reaches nothing of this one, and what somebody else labels like ours is neither
// deleted nor in the way.
func TestStrangers(t *testing.T) {
	b := newBench(t)
	b.foreignCluster()
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-evil-000000"}})
	b.run("liqo:v1")
	slice := b.slice("rome")
	node := b.node()
	b.says(slice, sharingv1alpha1.ReasonNodeReady, "")
	likeOurs := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "like-ours", Labels: map[string]string{
			labels.AppName: kubeletName, labels.ClusterID: "milan-id", labels.AppPartOf: labels.PartOf,
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
	b.Until("the evil slice is gone", func() bool { return b.gone(evil) })
	b.Read(node)
	if node.Spec.Unschedulable || node.DeletionTimestamp != nil {
		t.Error("another peer's slice has taken the node down")
	}
	for _, part := range b.parts() {
		b.Read(part)
	}
	var bindings rbacv1.ClusterRoleBindingList
	b.Must(b.List(t.Context(), &bindings, client.MatchingLabels{labels.ClusterID: "milan-id"}))
	for i := range bindings.Items {
		for _, subject := range bindings.Items[i].Subjects {
			if subject.Namespace != tenant {
				t.Errorf("%s is bound to %s/%s", bindings.Items[i].Name, subject.Namespace, subject.Name)
			}
		}
	}

	b.Must(b.Delete(t.Context(), slice))
	b.Until("the node is gone", func() bool { return b.gone(node) })
	b.Until("the slice is gone", func() bool { return b.gone(slice) })
	b.Read(likeOurs)
}
