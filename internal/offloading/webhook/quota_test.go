// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/quota"
	"liqo.io/liqo/internal/offloading/shadow"
)

// slowNamespaces answers only once the test allows it.
type slowNamespaces struct {
	RemoteNamespaces
	asked, answer chan struct{}
}

func (n slowNamespaces) Peer(context.Context, string) (string, error) {
	close(n.asked)
	<-n.answer
	return "rome-id", nil
}

// oneShadowPod is a cache with one ShadowPod, or none, and a pod that was created for the ShadowPod with the UID s.
type oneShadowPod struct {
	cache.Cache
	shadowPod *vkv1alpha1.ShadowPod
	pod       *corev1.Pod
}

func (c *oneShadowPod) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch one := into.(type) {
	case *vkv1alpha1.ShadowPod:
		if c.shadowPod == nil {
			return apierrors.NewNotFound(schema.GroupResource{}, "web")
		}
		c.shadowPod.DeepCopyInto(one)
	case *corev1.Pod:
		c.pod.DeepCopyInto(one)
	}
	return nil
}

// TestQuotaOfWhatIsDeletedMeanwhile: the event of a pod is handled in another goroutine than those of ShadowPods. Its ShadowPod is deleted, or deleted and
// created again, in between: the old one uses nothing of the grant.
func TestQuotaOfWhatIsDeletedMeanwhile(t *testing.T) {
	old := &vkv1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "s"}}
	old.Spec.Pod.Containers = []corev1.Container{{Name: "c"}}
	next := old.DeepCopy()
	next.UID = "another"
	ended := old.DeepCopy()
	ended.Status.Phase = vkv1alpha1.ShadowPodSucceeded
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "web", Labels: map[string]string{labels.ManagedBy: labels.ManagedByShadowPod},
		Annotations: map[string]string{labels.ShadowPodRevision: shadow.Revision(old)},
	}}
	for name, test := range map[string]struct {
		now     *vkv1alpha1.ShadowPod
		counted bool
	}{"unchanged": {old, true}, "deleted": {nil, false}, "created again": {next, false}, "ended": {ended, false}} {
		stored := &oneShadowPod{shadowPod: old, pod: pod}
		n := slowNamespaces{asked: make(chan struct{}), answer: make(chan struct{})}
		q := &Quota{namespaces: n, cache: stored, known: quota.NewLedger(false, quota.Defaults{}), reserved: quota.NewLedger(false, quota.Defaults{}), filled: true}
		q.known.Set("rome-id", old)
		done := make(chan struct{})
		go func() {
			defer close(done)
			q.followPod(t.Context(), nil, pod)
		}()
		<-n.asked
		switch stored.shadowPod = test.now; test.now {
		case old:
		case ended:
			q.known.Set("rome-id", ended)
		default:
			q.forgetPod(t.Context(), old)
		}
		close(n.answer)
		<-done
		if known, reserved := q.known.Has(old), q.reserved.Has(old); known != test.counted || reserved != test.counted {
			t.Errorf("%s: known %t, reserved %t, want %t", name, known, reserved, test.counted)
		}
	}
}

// TestAttackNM2RestartReserves: after a restart, a pod is not resized to a size that was refused before it.
func TestAttackNM2RestartReserves(t *testing.T) {
	sized := func(name, cpu string) *vkv1alpha1.ShadowPod {
		entry := &vkv1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
		entry.Spec.Pod.Containers = []corev1.Container{
			{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}},
		}
		return entry
	}
	least := quota.Defaults{Requests: corev1.ResourceList{"cpu": resource.MustParse("600m")}}
	q := &Quota{known: quota.NewLedger(false, least), reserved: quota.NewLedger(false, least), filled: true}
	q.reserved.SetGrant("rome-id", types.NamespacedName{Name: "slice"}, corev1.ResourceList{"cpu": resource.MustParse("1500m"), "pods": resource.MustParse("9")})
	q.reserved.Set("rome-id", sized("idle", "1m"))
	asks := sized("big", "1400m")
	q.reserved.SetUnproven("rome-id", asks)
	pod := &corev1.Pod{Spec: *sized("big", "800m").Spec.Pod.DeepCopy()}
	if problem, err := q.Reserve("rome-id", asks, pod, time.Now()); err != nil || !strings.Contains(problem, "1400m of cpu in place of 800m") {
		t.Errorf("a size beyond the grant: %q, %v", problem, err)
	}
	if problem, err := q.Reserve("rome-id", sized("big", "900m"), pod, time.Now()); err != nil || problem != "" {
		t.Errorf("a size within the grant: %q, %v", problem, err)
	}
}
