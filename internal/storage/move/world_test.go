// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	v1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/storage/data"
	"liqo.io/liqo/internal/storage/move/plan"
)

const (
	user      = "user"      // the data of the claim, at first under the name of its volume
	original  = "pvc-claim" // the volume of the claim
	namespace = "shop"
	virtual   = "liqo-milan"
)

// errKilled is what a controller sees that was killed: it takes no further step.
var errKilled = errors.New("killed")

// world is a cluster without processes: its objects are in memory, and settle plays all controllers but ours. It also keeps the disks, which is what the
// tests are about: the contents by the name of the data.
type world struct {
	client.Client
	t     *testing.T
	now   time.Time
	disks map[string]string
	// kill is the number of the write after which the controller dies.
	writes, kill int
	uids         int
	// forgiving: the claim may be without a record for a moment, because an administrator has deleted it.
	forgiving bool
	// full: the target has no space. quota: this cluster admits no further claim, secrets: no Secret.
	full, quota, secrets bool
	// late is how often the scheduler still places pods by a volume that was taken away.
	late int
	// current is the move as the controller knew it last; woken: something has changed since that it watches.
	current *v1alpha1.VolumeMove
	woken   bool
}

func newWorld(t *testing.T, from, to string) *world {
	t.Helper()
	w := &world{t: t, now: time.Unix(1_800_000_000, 0), disks: map[string]string{}, kill: -1}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, storagev1.AddToScheme, rbacv1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme, v1alpha1.AddToScheme, offloadingv1alpha1.AddToScheme, sharingv1alpha1.AddToScheme, vkv1alpha1.AddToScheme,
	} {
		w.must(add(scheme))
	}
	w.Client = w.watched(fake.NewClientBuilder().WithScheme(scheme).WithIndex(&corev1.Event{}, "involvedObject.uid", func(one client.Object) []string {
		return []string{string(one.(*corev1.Event).InvolvedObject.UID)}
	}).WithStatusSubresource(&v1alpha1.VolumeMove{}, &corev1.Pod{}, &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}).Build())
	ready := corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker", Labels: map[string]string{corev1.LabelHostname: "worker"}}, Status: ready})
	for _, name := range []string{virtual, "liqo-turin"} {
		w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{labels.Type: labels.TypeVirtualNode, labels.RemoteClusterID: name, corev1.LabelHostname: name}}, Status: ready})
		w.create(&sharingv1alpha1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-" + name, Name: name, Labels: map[string]string{labels.Replication: "true"}},
			Spec:       sharingv1alpha1.ResourceSliceSpec{NodeName: name, ProviderClusterID: name},
			Status:     sharingv1alpha1.ResourceSliceStatus{StorageClasses: []sharingv1alpha1.StorageClass{{StorageClassName: "disk", Default: true}}},
		})
		w.create(&vkv1alpha1.NamespaceMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-" + name, Name: name, Labels: map[string]string{labels.RemoteClusterID: name}},
			Status:     vkv1alpha1.NamespaceMapStatus{CurrentMapping: map[string]vkv1alpha1.RemoteNamespaceStatus{namespace: {Phase: vkv1alpha1.MappingAccepted}}},
		})
	}
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	w.create(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}, Provisioner: "liqo.io/storage"})
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "data", UID: "claim", Labels: map[string]string{"app": "db"}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new("liqo"), VolumeName: original, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
	w.create(claim)
	w.create(w.volumeFor(claim, original, from))
	w.disks[original] = "first"
	w.create(&v1alpha1.VolumeMove{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "data", UID: "01234567-89ab"}, Spec: v1alpha1.VolumeMoveSpec{TargetNode: to}})
	return w
}

// watched is a client whose writes wake the controller, as their events do.
func (w *world) watched(c client.WithWatch) client.Client {
	wake := func(o client.Object, err error) error {
		_, is := o.(*v1alpha1.VolumeMove)
		w.woken = w.woken || err == nil && (is || w.current != nil && concerns(w.current, o))
		return err
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			return wake(o, c.Create(ctx, o, options...))
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			return wake(o, c.Delete(ctx, o, options...))
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			return wake(o, c.Update(ctx, o, options...))
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			return wake(o, c.Patch(ctx, o, p, options...))
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, options ...client.SubResourceUpdateOption) error {
			return wake(o, c.SubResource(sub).Update(ctx, o, options...))
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, options ...client.SubResourcePatchOption) error {
			return wake(o, c.SubResource(sub).Patch(ctx, o, p, options...))
		},
	})
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) create(object client.Object) {
	w.t.Helper()
	if object.GetUID() == "" {
		w.uids++
		object.SetUID(types.UID(fmt.Sprintf("uid-%d", w.uids)))
	}
	w.must(w.Create(w.t.Context(), object))
}

// volumeFor is what the provisioner makes for a claim.
func (w *world) volumeFor(claim *corev1.PersistentVolumeClaim, name, node string) *corev1.PersistentVolume {
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("of-" + name), Finalizers: []string{plan.Protection}, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "liqo.io/storage"}},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, StorageClassName: "liqo", AccessModes: claim.Spec.AccessModes,
			ClaimRef: &corev1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
	if node != "worker" {
		volume.Labels = map[string]string{labels.RemoteClusterID: node}
		volume.Annotations[labels.RemoteVolume] = "disk-" + name
		volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}}}
	}
	return volume
}

// controller returns ours, whose writes are counted and killed.
func (w *world) controller() *controller {
	write := func(act func() error) error {
		w.writes++
		err := act()
		if w.writes == w.kill {
			return errKilled
		}
		return err
	}
	c := interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if o.GetUID() == "" {
				w.uids++
				o.SetUID(types.UID(fmt.Sprintf("uid-%d", w.uids)))
			}
			if _, is := o.(*corev1.PersistentVolume); is {
				o.SetFinalizers([]string{plan.Protection}) // the API server
			}
			if _, is := o.(*corev1.PersistentVolumeClaim); is && w.quota {
				return apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), o.GetName(), errors.New("exceeded quota: few"))
			}
			if _, is := o.(*corev1.Secret); is && w.secrets {
				return apierrors.NewForbidden(corev1.Resource("secrets"), o.GetName(), errors.New("exceeded quota: secrets"))
			}
			return write(func() error { return c.Create(ctx, o, options...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			return write(func() error { return c.Delete(ctx, o, options...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			return write(func() error { return c.Update(ctx, o, options...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			if p.Type() == types.ApplyPatchType { // the policy, which only we write
				return write(func() error {
					w.must(client.IgnoreNotFound(c.Delete(ctx, o.DeepCopyObject().(client.Object))))
					return c.Create(ctx, o)
				})
			}
			return write(func() error { return c.Patch(ctx, o, p, options...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, options ...client.SubResourcePatchOption) error {
			return write(func() error { return c.SubResource(sub).Patch(ctx, o, p, options...) })
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, _ string, o, _ client.Object, _ ...client.SubResourceCreateOption) error {
			return write(func() error { return client.IgnoreNotFound(c.Delete(ctx, o)) }) // an eviction
		},
	})
	return &controller{options: Options{Namespace: "liqo", Storage: "liqo-storage", Image: "mover"}, client: c, live: w.Client, now: func() time.Time { return w.now }}
}

func list[T any](w *world, all client.ObjectList, items func() []T) []T {
	w.t.Helper()
	w.must(w.List(w.t.Context(), all))
	return items()
}

func (w *world) volumes() []corev1.PersistentVolume {
	var all corev1.PersistentVolumeList
	return list(w, &all, func() []corev1.PersistentVolume { return all.Items })
}

func (w *world) claims() []corev1.PersistentVolumeClaim {
	var all corev1.PersistentVolumeClaimList
	return list(w, &all, func() []corev1.PersistentVolumeClaim { return all.Items })
}

func (w *world) pods() []corev1.Pod {
	var all corev1.PodList
	return list(w, &all, func() []corev1.Pod { return all.Items })
}

func (w *world) volume(name string) *corev1.PersistentVolume {
	all := w.volumes()
	if i := slices.IndexFunc(all, func(one corev1.PersistentVolume) bool { return one.Name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

func (w *world) claim(name string) *corev1.PersistentVolumeClaim {
	all := w.claims()
	if i := slices.IndexFunc(all, func(one corev1.PersistentVolumeClaim) bool { return one.Name == name && one.Namespace == namespace }); i >= 0 {
		return &all[i]
	}
	return nil
}

// settle plays the other controllers, once.
func (w *world) settle() {
	w.t.Helper()
	ctx := w.t.Context()
	for _, claim := range w.claims() {
		volume := w.volume(claim.Spec.VolumeName)
		switch {
		case claim.Spec.VolumeName == "" && claim.Annotations["volume.kubernetes.io/selected-node"] != "": // the provisioner
			name := "pvc-" + string(claim.UID)
			w.create(w.volumeFor(&claim, name, claim.Annotations["volume.kubernetes.io/selected-node"]))
			w.disks[name] = ""
			claim.Spec.VolumeName = name
			w.must(w.Update(ctx, &claim))
			claim.Status.Phase = corev1.ClaimBound
			w.must(w.Status().Update(ctx, &claim))
		case volume == nil && claim.Status.Phase == corev1.ClaimBound:
			claim.Status.Phase = corev1.ClaimLost
			w.must(w.Status().Update(ctx, &claim))
		case volume != nil && volume.Spec.ClaimRef.Name == claim.Name && (volume.Spec.ClaimRef.UID == "" || volume.Spec.ClaimRef.UID == claim.UID):
			if volume.Spec.ClaimRef.UID == "" {
				volume.Spec.ClaimRef.UID = claim.UID
				w.must(w.Update(ctx, volume))
			}
			if volume.Status.Phase != corev1.VolumeBound {
				volume.Status.Phase = corev1.VolumeBound
				w.must(w.Status().Update(ctx, volume))
			}
			if claim.Status.Phase != corev1.ClaimBound && (claim.Status.Phase != corev1.ClaimLost || claim.Annotations[labels.ReturnedVolume] == string(volume.UID)) {
				claim.Status.Phase = corev1.ClaimBound
				w.must(w.Status().Update(ctx, &claim))
			}
		}
	}
	for _, volume := range w.volumes() {
		w.settleVolume(&volume)
	}
	for _, pod := range w.pods() {
		w.settlePod(&pod)
	}
}

// settleVolume releases a volume whose claim is gone, and deletes it with its data as its policy requires: the volume controller and the two deleters.
func (w *world) settleVolume(volume *corev1.PersistentVolume) {
	ctx := w.t.Context()
	owned := slices.ContainsFunc(w.claims(), func(one corev1.PersistentVolumeClaim) bool { return one.UID == volume.Spec.ClaimRef.UID })
	if volume.Spec.ClaimRef.UID != "" && !owned && volume.Status.Phase != corev1.VolumeReleased {
		volume.Status.Phase = corev1.VolumeReleased
		w.must(w.Status().Update(ctx, volume))
		return
	}
	if volume.DeletionTimestamp != nil && volume.Status.Phase != corev1.VolumeBound {
		volume.Finalizers = nil
		w.must(w.Update(ctx, volume))
		return
	}
	if volume.Status.Phase != corev1.VolumeReleased {
		return
	}
	if volume.DeletionTimestamp == nil {
		if volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
			return
		}
		if !slices.ContainsFunc(w.volumes(), func(other corev1.PersistentVolume) bool { return data.Shared(volume, &other) }) {
			delete(w.disks, data.Name(volume))
		}
		w.must(w.Delete(ctx, volume))
	}
}

// disk is the name of the data that a pod uses; empty if the pod cannot start.
func (w *world) disk(pod *corev1.Pod) string {
	claim := w.claim(pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName)
	if claim == nil || claim.Status.Phase != corev1.ClaimBound {
		return ""
	}
	if volume := w.volume(claim.Spec.VolumeName); volume != nil {
		return data.Name(volume)
	}
	return ""
}

// settlePod runs a pod. The pods of a pass end at once.
func (w *world) settlePod(pod *corev1.Pod) {
	ctx := w.t.Context()
	if pod.Labels[labels.MoveRole] == labels.MoveRoleProbe {
		w.schedule(pod)
		return
	}
	disk := w.disk(pod)
	if disk == "" || pod.Status.Phase != "" {
		return
	}
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, "10.0.0.9"
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if pod.Labels[labels.MoveRole] == labels.MoveRoleCopy {
		w.pass(pod, disk)
	}
	w.must(w.Status().Update(ctx, pod))
}

// schedule is what the scheduler does with a pod that only the old volume admits.
func (w *world) schedule(pod *corev1.Pod) {
	ctx := w.t.Context()
	if w.late > 0 {
		if pod.Spec.NodeName == "" {
			pod.Spec.NodeName, pod.CreationTimestamp = "worker", metav1.NewTime(w.now)
			w.must(w.Update(ctx, pod))
		}
		w.late--
		return
	}
	if pod.Spec.NodeName == "" {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
		w.must(w.Status().Update(ctx, pod))
	}
}

// pass is what copy.sh does.
func (w *world) pass(pod *corev1.Pod, disk string) {
	mode := pod.Spec.Containers[0].Command[len(pod.Spec.Containers[0].Command)-1]
	amount := v1alpha1.MoveAmount{Files: 1, Bytes: int64(len(w.disks[disk]))}
	result := map[string]any{"all": amount, "sent": amount, "seconds": 1, "verified": mode == "finish"}
	pod.Status.Phase = corev1.PodSucceeded
	text, err := json.Marshal(result)
	w.must(err)
	if mode != "measure" {
		var server *corev1.Pod
		for _, one := range w.pods() {
			if one.Labels[labels.MoveRole] == labels.MoveRoleTarget && one.Status.Phase == corev1.PodRunning {
				server = &one
			}
		}
		switch {
		case w.full:
			pod.Status.Phase, text = corev1.PodFailed, []byte("rsync: write failed: No space left on device (28)\nrsync error: code 11\n")
		case server == nil:
			pod.Status.Phase, text = corev1.PodFailed, []byte("cannot reach the pod that receives")
		default:
			w.disks[w.disk(server)] = w.disks[disk]
		}
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: string(text)}}}}
}

func (w *world) move() *v1alpha1.VolumeMove {
	move := &v1alpha1.VolumeMove{}
	err := w.Get(w.t.Context(), types.NamespacedName{Namespace: namespace, Name: "data"}, move)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return move
}

// run steps until the move has ended. each is called before every step. A step follows what the controller watches, or a time that it waits for: the clock
// goes to the next of them.
func (w *world) run(each func(*v1alpha1.VolumeMove)) *v1alpha1.VolumeMove {
	w.t.Helper()
	const most = 400
	for range most {
		move := w.move()
		if move == nil {
			return nil
		}
		if each != nil {
			each(move)
		}
		w.law()
		if move = w.move(); move == nil || plan.Finished(move) && len(move.Finalizers) == 0 {
			return move
		}
		w.current, w.woken = move, false
		_, next, err := w.controller().step(w.t.Context(), move)
		if err != nil && !errors.Is(err, errKilled) {
			w.t.Fatalf("phase %s: %v", move.Status.Phase, err)
		}
		w.law()
		w.settle()
		switch {
		case err != nil || w.woken:
			w.now = w.now.Add(together) // the next controller looks at all moves
		case next > 0:
			w.now = w.now.Add(next)
		default:
			w.t.Fatalf("phase %s, %s: nothing wakes the move any more", move.Status.Phase, move.Status.Message)
		}
	}
	move := w.move()
	w.t.Fatalf("the move does not end: phase %s, %s", move.Status.Phase, move.Status.Message)
	return nil
}

// law is what holds at every moment: the claim has all of its data, here or there, or has no volume and the data is whole where it was.
func (w *world) law() {
	w.t.Helper()
	if w.forgiving {
		return
	}
	content := ""
	if w.claim("data") == nil {
		return // its user has deleted it
	}
	volume := w.volume(original)
	switch {
	case volume != nil:
		content = w.disks[data.Name(volume)]
	default:
		record := w.volume("liqo-move-01234567-89ab")
		if record == nil {
			w.t.Fatal("the claim has no volume, and there is no record of its data")
		}
		content = w.disks[data.Name(record)]
	}
	if !strings.HasPrefix(content, "first") {
		w.t.Fatalf("the data of the claim is %q; disks %v", content, w.disks)
	}
}

// left are the objects that a move must not leave.
func (w *world) left() (all []string) {
	for _, one := range w.claims() {
		if one.Name != "data" {
			all = append(all, "claim "+one.Name)
		}
	}
	for _, one := range w.volumes() {
		if one.Name != original {
			all = append(all, "volume "+one.Name)
		}
	}
	for _, one := range w.pods() {
		if one.Labels[labels.Move] != "" {
			all = append(all, "pod "+one.Name)
		}
	}
	for _, kind := range []string{"Secret", "Service"} {
		some := &metav1.PartialObjectMetadataList{}
		some.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind + "List"))
		w.must(w.List(w.t.Context(), some))
		for i := range some.Items {
			all = append(all, kind+" "+some.Items[i].Name)
		}
	}
	return all
}

func (w *world) wantDisks(want ...string) {
	w.t.Helper()
	if have := slices.Sorted(maps.Keys(w.disks)); len(have) != len(want) {
		w.t.Errorf("disks %v, want %v", w.disks, want)
	}
}

var (
	sharingSlice sharingv1alpha1.ResourceSlice
	namespaceMap vkv1alpha1.NamespaceMap
)

// removeClaim and removeVolume delete an object at once, and report whether it was there.
func (w *world) removeClaim(name string) bool {
	claim := w.claim(name)
	if claim != nil {
		w.must(w.Delete(w.t.Context(), claim))
	}
	return claim != nil
}

func (w *world) removeVolume(name string) bool {
	volume := w.volume(name)
	if volume != nil {
		volume.Finalizers = nil
		w.must(w.Update(w.t.Context(), volume))
		w.must(client.IgnoreNotFound(w.Delete(w.t.Context(), volume)))
	}
	return volume != nil
}

// retarget makes the move again with another target, which cannot be changed.
func (w *world) retarget(node string) {
	w.edit(func(m *v1alpha1.VolumeMove) { m.Spec.TargetNode = node })
}

func (w *world) node(change func(*corev1.Node)) {
	node := &corev1.Node{}
	w.must(w.Get(w.t.Context(), types.NamespacedName{Name: virtual}, node))
	change(node)
	status := node.DeepCopy()
	w.must(w.Update(w.t.Context(), node))
	status.ResourceVersion = node.ResourceVersion
	w.must(w.Status().Update(w.t.Context(), status))
}

func (w *world) edited(change func(*corev1.PersistentVolumeClaim)) {
	claim := w.claim("data")
	change(claim)
	w.must(w.Update(w.t.Context(), claim))
}

func (w *world) of(provisioner string) {
	volume := w.volume(original)
	volume.Annotations["pv.kubernetes.io/provisioned-by"] = provisioner
	w.must(w.Update(w.t.Context(), volume))
}

func (w *world) restrict() {
	one := &corev1.Namespace{}
	w.must(w.Get(w.t.Context(), types.NamespacedName{Name: namespace}, one))
	one.Labels = map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
	w.must(w.Update(w.t.Context(), one))
}

func (w *world) pending() {
	claim := w.claim("data")
	claim.Status.Phase = corev1.ClaimPending
	w.must(w.Status().Update(w.t.Context(), claim))
}
