// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/offloading/shadow"
)

// peerOf is the peer of the remote namespaces of a test.
func peerOf(namespace string) string {
	_, peer, _ := strings.Cut(namespace, "-")
	return peer
}

// TestPeerObjects: the objects of a peer are counted over all its namespaces, whatever happens to them, and those of others are not.
func TestPeerObjects(t *testing.T) {
	p := newPeerObjects(map[string]int{ShadowPods: 3, NamespaceMaps: 1}, peerOf)
	if _, err := p.exceeded(ShadowPods, "web-rome"); !errors.Is(err, errUncounted) {
		t.Errorf("before the first list: %v", err)
	}
	p.filled.Store(true)
	full := func(resource, namespace string, want bool) {
		t.Helper()
		if problem, err := p.exceeded(resource, namespace); err != nil || (problem != "") != want {
			t.Errorf("%s in %s: %q, %v, want full: %t", resource, namespace, problem, err, want)
		}
	}
	pod := func(namespace, name string) *vkv1alpha1.ShadowPod {
		return &vkv1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	p.set(ShadowPods, pod("web-rome", "a"))
	p.set(ShadowPods, pod("web-rome", "b"))
	p.set(ShadowPods, pod("web-rome", "b")) // an update
	p.set(ShadowPods, pod("web-milan", "a"))
	full(ShadowPods, "web-rome", false)
	p.set(ShadowPods, pod("shop-rome", "a"))
	full(ShadowPods, "web-rome", true)
	full(ShadowPods, "another-rome", true)
	full(ShadowPods, "web-milan", false)
	full(ShadowEndpointSlices, "web-rome", false) // not bounded
	p.forget(ShadowPods, client.ObjectKeyFromObject(pod("web-rome", "b")))
	p.forget(ShadowPods, client.ObjectKeyFromObject(pod("web-rome", "b")))
	full(ShadowPods, "web-rome", false)

	of := func(name, replicated string, deleted bool) *vkv1alpha1.NamespaceMap {
		one := &vkv1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name, Labels: map[string]string{labels.Replicated: replicated}}}
		if deleted {
			one.DeletionTimestamp = new(metav1.Now())
		}
		return one
	}
	p.set(NamespaceMaps, of("ours", "false", false))
	full(NamespaceMaps, tenant, false)
	p.set(NamespaceMaps, of("theirs", "true", false))
	full(NamespaceMaps, tenant, true)
	full(NamespaceMaps, "liqo-tenant-milan-000000", false)
	p.set(NamespaceMaps, of("theirs", "true", true)) // its successor may have another name
	full(NamespaceMaps, tenant, false)
	for resource := range p.objects {
		for key := range p.objects[resource] {
			p.forget(resource, key)
		}
		if len(p.sums[resource]) > 0 {
			t.Errorf("left of %s: %v", resource, p.sums[resource])
		}
	}
}

// TestAttackH5: a peer that keeps ShadowPods of pods that have ended, which use nothing of its grant, is refused at the bound.
func TestAttackH5(t *testing.T) {
	b := newEnv(t)
	crds := "../../../deployments/liqo/crds/virtualkubelet.liqo.io_"
	_, err := envtest.InstallCRDs(b.admin, envtest.CRDInstallOptions{ErrorIfPathMissing: true, Paths: []string{crds + "namespacemaps.yaml", crds + "shadowendpointslices.yaml"}})
	b.Must(err)
	mgr, err := kubemanager.New(b.admin, kubemanager.Options{Scheme: b.scheme, SkipNameValidation: true, Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.Namespace{}: {}}}})
	b.Must(err)
	const most = 5
	objects, err := SetupPeerObjects(mgr, map[string]int{ShadowPods: most}, func(string) string { return "rome-id" })
	b.Must(err)
	kubetest.Start(t, "manager", mgr.Start)
	b.Until("the objects are counted", objects.filled.Load)
	b.serve(ShadowPodOptions{RemoteNamespaces: remoteNamespaces{remoteNamespace: "rome-id"}, Level: shadow.Baseline, Objects: objects})
	for i := range most {
		s := shadowPodNamed(fmt.Sprint("ended-", i), nil)
		b.Make(s)
		s.Status.Phase = vkv1alpha1.ShadowPodSucceeded
		b.Must(b.Status().Update(t.Context(), s))
		b.Until("it is counted", func() bool {
			problem, _ := objects.exceeded(ShadowPods, remoteNamespace)
			return (problem != "") == (i == most-1) && objects.count(ShadowPods, "rome-id") == i+1
		})
	}
	b.refused(b.Create(t.Context(), shadowPodNamed("one-more", nil)), "has 5 shadowpods of the peer already, and at most 5 are accepted")
	gone := shadowPodNamed("ended-0", nil)
	b.Must(b.Delete(t.Context(), gone))
	b.Edit(gone, func() { gone.Finalizers = nil })
	b.Until("another one is admitted", func() bool { return b.Create(t.Context(), shadowPodNamed("one-more", nil)) == nil })
}
