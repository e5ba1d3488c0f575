// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"errors"
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
		Phase: sharingv1alpha1.SliceAccepted, ObservedGeneration: slice.Generation, ProxyWanted: true, ProxyURL: "http://id:pass@10.9.0.7:8118",
		Resources:     corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3500m"), corev1.ResourceMemory: resource.MustParse("7Gi")},
		Labels:        map[string]string{"liqo.io/provider": "k3s"},
		Architectures: []string{"amd64"}, OperatingSystems: []string{"linux"},
		Images:         []corev1.ContainerImage{{Names: []string{"nginx:1"}, SizeBytes: 5}},
		Prices:         corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")},
		StorageClasses: []sharingv1alpha1.StorageClass{{StorageClassName: "fast", Default: true}, {StorageClassName: "slow", Clones: true}},
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

func TestSpecToProviderStatusToConsumer(t *testing.T) {
	b := newEnv(t)
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

	// The consumer owns NodeReady: the provider's status must not overwrite it, and it must not be copied to the provider.
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
		len(status.IngressClasses) != 1 || len(status.Images) != 1 || status.Prices.Cpu().String() != "2" || status.ObservedGeneration != here.Generation ||
		!status.ProxyWanted || status.ProxyURL != "http://id:pass@10.9.0.7:8118" {
		t.Errorf("status %+v", status)
	}
	b.probes(3)
	if there := b.get(b.there, "one"); len(there.Status.Conditions) != 1 {
		t.Errorf("conditions of the copy: %+v", there.Status.Conditions)
	}

	// A change of the request, and one of the grant that removes something.
	b.edit(b.here, "one", func(slice *sharingv1alpha1.ResourceSlice) { slice.Spec.Resources = nil; delete(slice.Labels, "mine") })
	b.arrives(b.there, "one", "the changed request", func(slice *sharingv1alpha1.ResourceSlice) bool {
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

func TestChangedCopyIsRestored(t *testing.T) {
	b := newEnv(t)
	b.start()
	b.connect(b.peer(""))
	b.slice("one")
	first := b.arrives(b.there, "one", "the copy", func(*sharingv1alpha1.ResourceSlice) bool { return true })
	b.delete(b.there, "one")
	b.arrives(b.there, "one", "another copy", func(slice *sharingv1alpha1.ResourceSlice) bool { return slice.UID != first.UID })
	// The provider cannot change the spec.
	b.edit(b.there, "one", func(slice *sharingv1alpha1.ResourceSlice) { slice.Spec.ConsumerClusterID = "mallory" })
	b.arrives(b.there, "one", "our spec", func(slice *sharingv1alpha1.ResourceSlice) bool { return slice.Spec.ConsumerClusterID == b.origin })
}

func TestDeletion(t *testing.T) {
	b := newEnv(t)
	b.start()
	b.connect(b.peer(""))
	b.slice("one", func(slice *sharingv1alpha1.ResourceSlice) { slice.Finalizers = []string{labels.FinalizerNode} })
	b.arrives(b.there, "one", "the copy", func(*sharingv1alpha1.ResourceSlice) bool { return true })
	b.edit(b.there, "one", func(slice *sharingv1alpha1.ResourceSlice) { slice.Finalizers = []string{labels.FinalizerGrant} })
	b.delete(b.here, "one")

	// While the node is drained, the copy stays and the provider's status is still copied.
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
	b.goes(b.here, "one", "the object is deleted after its copy")
}

func TestDeletionWithoutConnection(t *testing.T) {
	b := newEnv(t)
	b.start(func(o *Options) { o.Now = func() time.Time { return time.Now().Add(silentTime + time.Minute) } })
	b.slice("never-sent")
	b.slice("sent", func(slice *sharingv1alpha1.ResourceSlice) { slice.Finalizers = []string{labels.FinalizerReplication} })
	b.delete(b.here, "never-sent")
	b.goes(b.here, "never-sent", "an object that was never sent is deleted at once")
	b.delete(b.here, "sent")
	b.goes(b.here, "sent", "an object that may have been sent is deleted at its deadline")
	if text := b.warning("sent"); !strings.Contains(text, b.provider) {
		t.Errorf("the warning does not name the cluster: %s", text)
	}
}

func TestDeadline(t *testing.T) {
	b := newEnv(t)
	proxy, address := b.proxy(t)
	var ahead atomic.Int64
	b.start(func(o *Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		o.ProbeTimeout = 200 * time.Millisecond
	})
	b.connect(b.peer(address))
	for _, name := range []string{"waits", "forced"} {
		b.slice(name)
		b.arrives(b.there, name, "the copy", func(*sharingv1alpha1.ResourceSlice) bool { return true })
	}
	proxy.Set(kubetest.Swallow)
	kubetest.Eventually(b.t, "the connection is not ready", func() error { return b.notReady() })
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
	b.goes(b.here, "forced", "a forced deletion does not wait")
	ahead.Store(int64(silentTime + time.Second))
	b.goes(b.here, "waits", "the deadline")
	if text := b.warning("waits"); !strings.Contains(text, "namespace "+b.name) {
		t.Errorf("the warning does not name the namespace there: %s", text)
	}
	// The provider is back while the identity is still valid: the copies that were left are deleted.
	proxy.Set(kubetest.Pass)
	b.goes(b.there, "waits", "the copy left behind")
	b.goes(b.there, "forced", "the copy left behind")
}

func TestTenantGoneAfterDeletionWasAccepted(t *testing.T) {
	b := newEnv(t)
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

// TestRestlessProvider: a provider that changes its status all the time causes no more writes here than the limiter
// admits, and its last status arrives.
func TestRestlessProvider(t *testing.T) {
	b := newEnv(t)
	var advance func(time.Duration)
	b.start(func(o *Options) { advance = stopClock(o) })
	b.connect(b.peer(""))
	b.ready()
	b.slice("one")
	b.arrives(b.there, "one", "the copy", func(*sharingv1alpha1.ResourceSlice) bool { return true })
	before := b.settled("resourceslices")
	const changes = 3 * writeBurst
	value := func(i int) string { return fmt.Sprint("value-", i) }
	for i := range changes {
		b.grant("one", func(slice *sharingv1alpha1.ResourceSlice) {
			accepted(slice)
			slice.Status.Labels = map[string]string{"changes": value(i)}
		})
	}
	if writes := b.settled("resourceslices") - before - changes; writes > writeBurst {
		t.Errorf("%d writes here for %d changes of the provider, want %d at most", writes, changes, writeBurst)
	}
	advance(writeInterval)
	b.arrives(b.here, "one", "the last status", func(slice *sharingv1alpha1.ResourceSlice) bool {
		return slice.Status.Labels["changes"] == value(changes-1)
	})
}

// TestAmountsAreBounded: an API server with our resource definitions stores no quantity that takes hours to parse.
func TestAmountsAreBounded(t *testing.T) {
	b := newEnv(t)
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

// TestDyingCopy: the grant of a deleted object is not copied to its successor.
func TestDyingCopy(t *testing.T) {
	b := newEnv(t)
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
		t.Errorf("granted by a copy that is being deleted: %+v", here.Status)
	}
	b.edit(b.there, "one", func(slice *sharingv1alpha1.ResourceSlice) { slice.Finalizers = nil })
	b.arrives(b.there, "one", "its own copy", func(slice *sharingv1alpha1.ResourceSlice) bool { return slice.UID != old.UID })
	b.grant("one", accepted)
	b.arrives(b.here, "one", "its own grant", isAccepted)
}

// TestUnreadable: a connection to an API server that answers without showing our objects is reported as broken.
func TestUnreadable(t *testing.T) {
	b := newEnv(t)
	var rights rbacv1.RoleBindingList
	b.must(b.there.List(t.Context(), &rights, client.InNamespace(b.name)))
	for i := range rights.Items {
		b.must(b.there.Delete(t.Context(), &rights.Items[i]))
	}
	b.start()
	b.connect(b.peer(""))
	kubetest.Eventually(b.t, "the state reports it", func() error {
		if state := b.r.State(b.provider); !state.Ready || !strings.Contains(state.Message, "does not let us read") {
			return fmt.Errorf("%+v", state)
		}
		return nil
	})
	for i := range rights.Items {
		rights.Items[i].ResourceVersion, rights.Items[i].UID = "", ""
		b.must(b.there.Create(t.Context(), &rights.Items[i]))
	}
	kubetest.Eventually(b.t, "the state reports no error", func() error {
		if state := b.r.State(b.provider); !state.Ready || state.Message != "" {
			return fmt.Errorf("%+v", state)
		}
		return nil
	})
}

// TestAttackManyIDs: clusters that register and leave again, each time under another ID, leave no worker behind.
func TestAttackManyIDs(t *testing.T) {
	b := newEnv(t)
	b.start()
	workers := func(has func(id string) bool) (all []string) {
		b.r.mu.Lock()
		defer b.r.mu.Unlock()
		for id := range b.r.workers {
			if has(id) {
				all = append(all, id)
			}
		}
		return all
	}
	for i := range 20 {
		one := b.slice(fmt.Sprint("cluster-", i), func(slice *sharingv1alpha1.ResourceSlice) {
			slice.Labels[labels.RemoteID], slice.Spec.ProviderClusterID = fmt.Sprint("gone-", b.name, "-", i), fmt.Sprint("gone-", i)
		})
		b.must(b.here.Delete(t.Context(), one))
	}
	// A peer that was connected leaves none either, and gets one again.
	ours := func(id string) bool { return id == b.provider }
	for range 2 {
		b.connect(b.peer(""))
		b.ready()
		b.r.Disconnect(b.provider)
		kubetest.Eventually(t, "its worker ends", func() error {
			if len(workers(ours)) > 0 {
				return errors.New("not yet")
			}
			return nil
		})
	}
	kubetest.Eventually(t, "no worker of the others is left, whose objects were seen before", func() error {
		if left := workers(func(id string) bool { return strings.HasPrefix(id, "gone-"+b.name) }); len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return nil
	})
}
