// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metaconfig "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sharingconfig "liqo.io/liqo/apis/applyconfiguration/sharing/v1alpha1"
	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
)

func accepted(slice *sharingv1alpha1.ResourceSlice) {
	slice.Status = sharingv1alpha1.ResourceSliceStatus{
		Phase: sharingv1alpha1.SliceAccepted, ObservedGeneration: slice.Generation,
		Resources:     corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3500m"), corev1.ResourceMemory: resource.MustParse("7Gi")},
		Labels:        map[string]string{"liqo.io/provider": "k3s"},
		Architectures: []string{"amd64"}, OperatingSystems: []string{"linux"},
		Images:         []corev1.ContainerImage{{Names: []string{"nginx:1"}, SizeBytes: 5}},
		Prices:         corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")},
		StorageClasses: []sharingv1alpha1.StorageClass{{StorageClassName: "fast", Default: true}, {StorageClassName: "slow"}},
		IngressClasses: []sharingv1alpha1.IngressClass{{IngressClassName: "web"}},
		Conditions: []metav1.Condition{{
			Type: sharingv1alpha1.ConditionGranted, Status: metav1.ConditionTrue, Reason: sharingv1alpha1.ReasonResourcesGranted,
			ObservedGeneration: slice.Generation, LastTransitionTime: metav1.Now().Rfc3339Copy(),
		}},
	}
}

func isAccepted(slice *sharingv1alpha1.ResourceSlice) bool {
	return slice.Status.Phase == sharingv1alpha1.SliceAccepted
}

func TestSpecThereStatusBack(t *testing.T) {
	b := newBed(t)
	b.start()
	b.connect(b.peer(""))
	b.ready()
	b.slice("one", func(slice *sharingv1alpha1.ResourceSlice) {
		slice.Labels["mine"] = "kept"
		slice.Annotations = map[string]string{"note": "kept", labels.ForceUnpeer: "false"}
		slice.Spec.Resources = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	})
	there := b.arrives(b.there, "one", "the copy", func(*sharingv1alpha1.ResourceSlice) bool { return true })
	for key, want := range map[string]string{
		labels.Replication: "false", labels.Replicated: "true", labels.OriginID: b.origin, labels.RemoteID: b.provider, labels.ClusterID: b.origin, "mine": "kept",
	} {
		if there.Labels[key] != want {
			t.Errorf("label %s of the copy is %q, want %q", key, there.Labels[key], want)
		}
	}
	if len(there.Annotations) != 1 || there.Annotations["note"] != "kept" {
		t.Errorf("annotations of the copy: %v", there.Annotations)
	}
	if there.Spec.NodeName != "liqo-one" || there.Spec.ConsumerClusterID != b.origin || there.Spec.Resources.Cpu().String() != "4" {
		t.Errorf("spec of the copy: %+v", there.Spec)
	}
	if len(there.Finalizers) > 0 {
		t.Errorf("finalizers of the copy: %v", there.Finalizers)
	}

	// NodeReady is the consumer's, and must survive the provider's status without crossing.
	nodeReady := metaconfig.Condition().WithType(sharingv1alpha1.ConditionNodeReady).WithStatus(metav1.ConditionFalse).
		WithReason(sharingv1alpha1.ReasonVirtualKubeletStarting).WithMessage("").WithLastTransitionTime(metav1.Now().Rfc3339Copy())
	b.must(b.here.Status().Apply(t.Context(), sharingconfig.ResourceSlice("one", b.name).WithStatus(sharingconfig.ResourceSliceStatus().WithConditions(nodeReady)),
		client.FieldOwner(labels.OwnerVirtualNode), client.ForceOwnership))
	b.grant("one", accepted)
	here := b.arrives(b.here, "one", "the grant", isAccepted)
	types := []string{}
	for _, condition := range here.Status.Conditions {
		types = append(types, condition.Type)
	}
	slices.Sort(types)
	if !slices.Equal(types, []string{sharingv1alpha1.ConditionGranted, sharingv1alpha1.ConditionNodeReady}) {
		t.Errorf("conditions %v", types)
	}
	if status := here.Status; status.Resources.Cpu().String() != "3500m" || status.Labels["liqo.io/provider"] != "k3s" || len(status.StorageClasses) != 2 ||
		len(status.IngressClasses) != 1 || len(status.Images) != 1 || status.Prices.Cpu().String() != "2" || status.ObservedGeneration != here.Generation {
		t.Errorf("status %+v", status)
	}
	b.probes(3)
	if there := b.get(b.there, "one"); len(there.Status.Conditions) != 1 {
		t.Errorf("conditions of the copy: %+v", there.Status.Conditions)
	}

	// A change of the wish, and one of the grant that takes something away.
	b.edit(b.here, "one", func(slice *sharingv1alpha1.ResourceSlice) { slice.Spec.Resources = nil; delete(slice.Labels, "mine") })
	b.arrives(b.there, "one", "the changed wish", func(slice *sharingv1alpha1.ResourceSlice) bool {
		return len(slice.Spec.Resources) == 0 && slice.Labels["mine"] == ""
	})
	b.grant("one", func(slice *sharingv1alpha1.ResourceSlice) {
		accepted(slice)
		slice.Status.StorageClasses, slice.Status.Labels = nil, nil
	})
	b.arrives(b.here, "one", "the smaller grant", func(slice *sharingv1alpha1.ResourceSlice) bool {
		return len(slice.Status.StorageClasses) == 0 && len(slice.Status.Labels) == 0 && slice.Status.ObservedGeneration == slice.Generation
	})

	// Idle, and after a restart, nothing is written.
	before := b.settled("resourceslices")
	if before == 0 {
		t.Fatal("the count of writes cannot be right: none so far")
	}
	b.probes(5)
	if after, _ := b.requests(); after != before {
		t.Errorf("%d writes while idle", after-before)
	}
	b.stop()
	b.start()
	b.connect(b.peer(""))
	b.ready()
	b.probes(5)
	if after, _ := b.requests(); after != before {
		t.Errorf("%d writes after a restart that changed nothing", after-before)
	}
}

func TestCopyDeletedByAStrangerComesBack(t *testing.T) {
	b := newBed(t)
	b.start()
	b.connect(b.peer(""))
	b.slice("one")
	first := b.arrives(b.there, "one", "the copy", func(*sharingv1alpha1.ResourceSlice) bool { return true })
	b.delete(b.there, "one")
	b.arrives(b.there, "one", "another copy", func(slice *sharingv1alpha1.ResourceSlice) bool { return slice.UID != first.UID })
	// A wish of the provider about the spec does not last.
	b.edit(b.there, "one", func(slice *sharingv1alpha1.ResourceSlice) { slice.Spec.ConsumerClusterID = "mallory" })
	b.arrives(b.there, "one", "our spec", func(slice *sharingv1alpha1.ResourceSlice) bool { return slice.Spec.ConsumerClusterID == b.origin })
}

func TestDeletion(t *testing.T) {
	b := newBed(t)
	b.start()
	b.connect(b.peer(""))
	b.slice("one", func(slice *sharingv1alpha1.ResourceSlice) { slice.Finalizers = []string{labels.FinalizerNode} })
	b.arrives(b.there, "one", "the copy", func(*sharingv1alpha1.ResourceSlice) bool { return true })
	b.edit(b.there, "one", func(slice *sharingv1alpha1.ResourceSlice) { slice.Finalizers = []string{labels.FinalizerGrant} })
	b.delete(b.here, "one")

	// While the node is drained, the copy stays and the provider is still heard.
	b.grant("one", accepted)
	b.arrives(b.here, "one", "the grant during the drain", isAccepted)
	if there := b.get(b.there, "one"); there.DeletionTimestamp != nil {
		t.Error("the copy was deleted before the node was drained")
	}
	b.edit(b.here, "one", func(slice *sharingv1alpha1.ResourceSlice) {
		slice.Finalizers = slices.DeleteFunc(slice.Finalizers, func(one string) bool { return one == labels.FinalizerNode })
	})
	b.arrives(b.there, "one", "the deletion", func(slice *sharingv1alpha1.ResourceSlice) bool { return slice.DeletionTimestamp != nil })
	b.probes(3)
	if here := b.get(b.here, "one"); here == nil {
		t.Fatal("the object was gone before its copy")
	}
	b.edit(b.there, "one", func(slice *sharingv1alpha1.ResourceSlice) { slice.Finalizers = nil })
	began := time.Now()
	b.goes(b.here, "one", "the object goes after its copy")
	t.Logf("object gone %s after its copy", time.Since(began).Round(time.Millisecond))
}

func TestDeletionWithoutLink(t *testing.T) {
	b := newBed(t)
	b.start(func(o *Options) { o.Now = func() time.Time { return time.Now().Add(silentTime + time.Minute) } })
	b.slice("never-sent")
	b.slice("sent", func(slice *sharingv1alpha1.ResourceSlice) { slice.Finalizers = []string{labels.FinalizerReplication} })
	b.delete(b.here, "never-sent")
	b.goes(b.here, "never-sent", "what was never sent goes at once")
	b.delete(b.here, "sent")
	b.goes(b.here, "sent", "what may have been sent goes at its deadline")
	if text := b.warning("sent"); !strings.Contains(text, b.provider) {
		t.Errorf("the warning does not name the cluster: %s", text)
	}
}

func TestDeadline(t *testing.T) {
	b := newBed(t)
	wire := newWire(t, b.thereConfig.Host)
	var ahead atomic.Int64
	b.start(func(o *Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		o.ProbeTimeout = 200 * time.Millisecond
	})
	b.connect(b.peer(wire.url()))
	for _, name := range []string{"waits", "forced"} {
		b.slice(name)
		b.arrives(b.there, name, "the copy", func(*sharingv1alpha1.ResourceSlice) bool { return true })
	}
	wire.hush(true)
	kubetest.Eventually(b.t, "the link is not ready", func() error { return b.notReady() })
	b.delete(b.here, "waits")
	b.probes(2)
	ahead.Store(int64(silentTime - 10*time.Second))
	b.probes(2)
	if here := b.get(b.here, "waits"); here == nil {
		t.Fatal("the finalizer was removed before its deadline")
	}
	b.edit(b.here, "forced", func(slice *sharingv1alpha1.ResourceSlice) {
		slice.Annotations = map[string]string{labels.ForceUnpeer: "true"}
	})
	b.delete(b.here, "forced")
	b.goes(b.here, "forced", "forced: no waiting")
	ahead.Store(int64(silentTime + time.Second))
	b.goes(b.here, "waits", "the deadline")
	if text := b.warning("waits"); !strings.Contains(text, "namespace "+b.name) {
		t.Errorf("the warning does not name the namespace there: %s", text)
	}
	// The provider is back while the identity is still good: what was left is taken away after all.
	wire.hush(false)
	b.goes(b.there, "waits", "the copy left behind")
	b.goes(b.there, "forced", "the copy left behind")
}

func TestTenantGoneAfterDeletionWasAccepted(t *testing.T) {
	b := newBed(t)
	b.start()
	b.connect(b.peer(""))
	b.slice("one")
	b.arrives(b.there, "one", "the copy", func(*sharingv1alpha1.ResourceSlice) bool { return true })
	b.edit(b.there, "one", func(slice *sharingv1alpha1.ResourceSlice) { slice.Finalizers = []string{labels.FinalizerGrant} })
	b.delete(b.here, "one")
	b.arrives(b.there, "one", "the deletion", func(slice *sharingv1alpha1.ResourceSlice) bool { return slice.DeletionTimestamp != nil })
	b.must(b.there.Delete(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: b.name, Name: "liqo-peer"}}))
	b.goes(b.here, "one", "401 after the deletion was accepted counts as gone")
	if state := b.r.State(b.provider); !state.Unauthorized || state.Ready || state.Message == "" {
		t.Errorf("state %+v", state)
	}
}

// TestRestlessProvider: a provider whose answer changes all the time does not fill our etcd, and its last word arrives.
func TestRestlessProvider(t *testing.T) {
	b := newBed(t)
	b.start()
	b.connect(b.peer(""))
	b.ready()
	b.slice("one")
	before, _ := b.requests()
	const changes = 150
	said := func(i int) string { return fmt.Sprint("word-", i) }
	for i := range changes {
		b.grant("one", func(slice *sharingv1alpha1.ResourceSlice) {
			accepted(slice)
			slice.Status.Labels = map[string]string{"say": said(i)}
		})
	}
	b.arrives(b.here, "one", "the last word", func(slice *sharingv1alpha1.ResourceSlice) bool {
		return slice.Status.Labels["say"] == said(changes-1)
	})
	after, _ := b.requests()
	if writes := after - before - changes; writes > changes/2 {
		t.Errorf("%d writes here for %d changes of the provider", writes, changes)
	}
}

// TestAmountsAreBounded: an API server with our resource definitions stores no amount that takes hours to count with.
func TestAmountsAreBounded(t *testing.T) {
	b := newBed(t)
	for _, amount := range []string{"1e999999999", "1234567890123456789e999999999", "1e100", ""} {
		object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"consumerClusterID": "a", "providerClusterID": "b", "nodeName": "c", "resources": map[string]any{"cpu": amount},
		}}}
		object.SetGroupVersionKind(sharingv1alpha1.GroupVersion.WithKind("ResourceSlice"))
		object.SetNamespace(b.name)
		object.SetName("bomb")
		if err := b.there.Create(t.Context(), object); !apierrors.IsInvalid(err) {
			t.Errorf("%q: %v, want it refused as invalid", amount, err)
		}
	}
}

// TestDyingCopy: what the provider granted to an object that is gone is not granted to its successor.
func TestDyingCopy(t *testing.T) {
	b := newBed(t)
	old := &sharingv1alpha1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.name, Name: "one", Finalizers: []string{"example.com/hold"},
			Labels: map[string]string{labels.Replication: "false", labels.Replicated: "true", labels.OriginID: b.origin, labels.RemoteID: b.provider},
		},
		Spec: sharingv1alpha1.ResourceSliceSpec{ConsumerClusterID: b.origin, ProviderClusterID: b.provider, NodeName: "liqo-one"},
	}
	b.must(b.there.Create(t.Context(), old))
	b.grant("one", accepted)
	b.delete(b.there, "one")
	b.start()
	b.connect(b.peer(""))
	b.ready()
	b.slice("one")
	b.probes(5)
	if here := b.get(b.here, "one"); here.Status.Phase == sharingv1alpha1.SliceAccepted || len(here.Status.Resources) > 0 {
		t.Errorf("granted by a copy that is going: %+v", here.Status)
	}
	b.edit(b.there, "one", func(slice *sharingv1alpha1.ResourceSlice) { slice.Finalizers = nil })
	b.arrives(b.there, "one", "its own copy", func(slice *sharingv1alpha1.ResourceSlice) bool { return slice.UID != old.UID })
	b.grant("one", accepted)
	b.arrives(b.here, "one", "its own grant", isAccepted)
}

// TestUnreadable: an API server that answers and shows nothing is no healthy link.
func TestUnreadable(t *testing.T) {
	b := newBed(t)
	var rights rbacv1.RoleBindingList
	b.must(b.there.List(t.Context(), &rights, client.InNamespace(b.name)))
	for i := range rights.Items {
		b.must(b.there.Delete(t.Context(), &rights.Items[i]))
	}
	b.start()
	b.connect(b.peer(""))
	kubetest.Eventually(b.t, "it says so", func() error {
		if state := b.r.State(b.provider); !state.Ready || !strings.Contains(state.Message, "does not let us read") {
			return fmt.Errorf("%+v", state)
		}
		return nil
	})
	for i := range rights.Items {
		rights.Items[i].ResourceVersion, rights.Items[i].UID = "", ""
		b.must(b.there.Create(t.Context(), &rights.Items[i]))
	}
	kubetest.Eventually(b.t, "all is well", func() error {
		if state := b.r.State(b.provider); !state.Ready || state.Message != "" {
			return fmt.Errorf("%+v", state)
		}
		return nil
	})
}
