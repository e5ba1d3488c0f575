// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"liqo.io/liqo/apis/labels"
	v1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
)

// woken is a queue that knows what is added with a pause.
type woken struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]

	all []string
}

func (q *woken) AddAfter(request reconcile.Request, pause time.Duration) {
	q.all = append(q.all, request.String()+" after "+pause.String())
}

// TestWake: a change wakes the moves that it concerns, and no others: what is made, changed from or to, and deleted. A finished move sleeps.
func TestWake(t *testing.T) {
	w := newWorld(t, "worker", virtual)
	move := w.move()
	move.Status.Volume = original
	w.must(w.Status().Update(t.Context(), move))
	at := func(namespace, name string, of map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: of}
	}
	ours := map[string]string{labels.Move: string(move.UID)}
	volume := func(name, namespace, claim string) client.Object {
		spec := corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: namespace, Name: claim}}
		return &corev1.PersistentVolume{ObjectMeta: at("", name, nil), Spec: spec}
	}
	attachment := func(name string) client.Object {
		return &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name}}}
	}
	for name, row := range map[string]struct {
		object client.Object
		wakes  bool
	}{
		"the volume":                         {volume(original, "elsewhere", "x"), true},
		"the second record":                  {volume("liqo-move-01234567-89ab", "elsewhere", "x"), true},
		"the volume of the target":           {volume("pvc-target", namespace, "liqo-move-01234567-target"), true},
		"another volume of the claim":        {volume("other", namespace, "data"), true},
		"a volume of another claim":          {volume("other", namespace, "x"), false},
		"a volume of such a claim":           {volume("other", "elsewhere", "data"), false},
		"a volume of none":                   {&corev1.PersistentVolume{ObjectMeta: at("", "free", nil)}, false},
		"an attachment":                      {attachment(original), true},
		"an attachment of another":           {attachment("other"), false},
		"an attachment of none":              {&storagev1.VolumeAttachment{}, false},
		"a pod":                              {&corev1.Pod{ObjectMeta: at(namespace, "any", nil)}, true},
		"a pod elsewhere":                    {&corev1.Pod{ObjectMeta: at("elsewhere", "any", ours)}, false},
		"the claim":                          {&corev1.PersistentVolumeClaim{ObjectMeta: at(namespace, "data", nil)}, true},
		"the claim of the source":            {&corev1.PersistentVolumeClaim{ObjectMeta: at(namespace, "liqo-move-01234567-source", nil)}, true},
		"the claim of the target":            {&corev1.PersistentVolumeClaim{ObjectMeta: at(namespace, "liqo-move-01234567-target", nil)}, true},
		"another claim":                      {&corev1.PersistentVolumeClaim{ObjectMeta: at(namespace, "x", nil)}, false},
		"such a claim elsewhere":             {&corev1.PersistentVolumeClaim{ObjectMeta: at("elsewhere", "data", nil)}, false},
		"its policy":                         {&networkingv1.NetworkPolicy{ObjectMeta: at(namespace, "x", ours)}, true},
		"another policy":                     {&networkingv1.NetworkPolicy{ObjectMeta: at(namespace, "x", nil)}, false},
		"its rights":                         {&rbacv1.RoleBinding{ObjectMeta: at(namespace, "x", ours)}, true},
		"the rights of such a one elsewhere": {&rbacv1.RoleBinding{ObjectMeta: at("elsewhere", "x", ours)}, false},
	} {
		other := row.object.DeepCopyObject().(client.Object)
		other.SetNamespace("nowhere")
		other.SetName("other")
		wake := w.controller().wake()
		for _, way := range []struct {
			name string
			send func(context.Context, workqueue.TypedRateLimitingInterface[reconcile.Request])
		}{
			{"made", func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
				wake.Create(ctx, event.CreateEvent{Object: row.object}, q)
			}},
			{"changed", func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
				wake.Update(ctx, event.UpdateEvent{ObjectOld: row.object, ObjectNew: other}, q)
			}},
			{"deleted", func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
				wake.Delete(ctx, event.DeleteEvent{Object: row.object}, q)
			}},
		} {
			q := &woken{}
			way.send(t.Context(), q)
			if got := len(q.all); got > 1 || (got == 1) != row.wakes || row.wakes && q.all[0] != "shop/data after 100ms" {
				t.Errorf("%s is %s: %q, want it to wake the move: %t", name, way.name, q.all, row.wakes)
			}
		}
	}
	move.Status.Phase = v1alpha1.MoveCompleted
	if concerns(move, attachment(original)) {
		t.Error("a finished move is woken")
	}
}
