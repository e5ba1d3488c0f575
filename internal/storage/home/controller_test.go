// SPDX-License-Identifier: Apache-2.0

package home

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/storage/data"
)

// TestReturns: a claim that the scheduler has sent to a virtual node, because its pod was created before it, comes back with the rights of the markers. What
// cannot come back gets events with what the user can do, and nothing is deleted.
func TestReturns(t *testing.T) {
	b := kubetest.Env{T: t}
	admin := kubetest.Cluster(t)
	var err error
	b.Client, err = client.New(admin, client.Options{})
	b.Must(err)
	for namespace, rules := range b.RBACMarkers("*.go") {
		b.Bind("storage-test", namespace, rules)
	}
	limited := rest.CopyConfig(admin)
	limited.Impersonate = rest.ImpersonationConfig{UserName: "storage-test", Groups: []string{"system:authenticated"}}
	mgr, err := manager.New(limited, manager.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	b.Must(err)
	b.Must(Setup(mgr))
	for _, node := range []*corev1.Node{nodeOf("worker", false), nodeOf("liqo-milan", true)} {
		b.Make(node)
	}
	for name, provisioner := range map[string]string{"disk": "rancher.io/local-path", "liqo": data.Provisioner} {
		b.Make(&storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner,
			VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
		})
	}
	kubetest.Start(t, "manager", mgr.Start)
	// sent makes a claim, which the scheduler has sent to a node, with a pod that was there before it.
	sent := func(namespace, class, node string, change func(*corev1.Pod)) (*corev1.PersistentVolumeClaim, *corev1.Pod) {
		b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{labels.SchedulingEnabled: "true"}}})
		pod := podOf("web", change)
		pod.Namespace = namespace
		b.Make(&pod)
		claim := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "data", Annotations: map[string]string{data.SelectedNode: node}},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
			},
		}
		b.Make(claim)
		return claim, &pod
	}
	released := func(claim *corev1.PersistentVolumeClaim) bool {
		b.Read(claim)
		return claim.Annotations[data.SelectedNode] == ""
	}
	gone := func(pod *corev1.Pod) bool {
		return apierrors.IsNotFound(b.Get(t.Context(), client.ObjectKeyFromObject(pod), &corev1.Pod{}))
	}
	reported := func(about client.Object) bool {
		var all corev1.EventList
		b.Must(b.List(t.Context(), &all, client.InNamespace(about.GetNamespace())))
		for i := range all.Items {
			if one := &all.Items[i]; one.InvolvedObject.UID == about.GetUID() && one.Reason == reasonStays {
				return true
			}
		}
		return false
	}
	atHome, atHomePod := sent("at-home", "disk", "worker", nil)
	ours, oursPod := sent("ours", "liqo", "liqo-milan", nil)
	only, onlyPod := sent("only", "disk", "liqo-milan", affine(labels.Type, corev1.NodeSelectorOpIn, labels.TypeVirtualNode))
	bare, barePod := sent("bare", "disk", "liqo-milan", func(pod *corev1.Pod) { pod.OwnerReferences = nil })
	astray, astrayPod := sent("astray", "disk", "liqo-milan", nil)
	b.Until("the pod is replaced and the claim released", func() bool { return gone(astrayPod) && released(astray) })
	b.Until("events report it", func() bool {
		return reported(astray) && reported(only) && reported(onlyPod) && reported(bare) && reported(barePod)
	})
	for _, claim := range []*corev1.PersistentVolumeClaim{atHome, ours, only, bare} {
		if released(claim) {
			t.Errorf("claim %s was released", claim.Namespace)
		}
	}
	for _, pod := range []*corev1.Pod{atHomePod, oursPod, onlyPod, barePod} {
		if gone(pod) {
			t.Errorf("pod %s was deleted", pod.Namespace)
		}
	}
	if reported(atHome) || reported(ours) {
		t.Error("a claim that has its place got an event")
	}
	// The pod that the controller makes now stays here, so that only the claim is released if a late scheduler sends it once more.
	next := podOf("next", affine(labels.Type, corev1.NodeSelectorOpNotIn, labels.TypeVirtualNode))
	next.Namespace = "astray"
	b.Make(&next)
	b.Edit(astray, func() { astray.Annotations = map[string]string{data.SelectedNode: "liqo-milan"} })
	b.Until("the claim is released again", func() bool { return released(astray) })
	if gone(&next) {
		t.Error("a pod that stays here was deleted")
	}
}
