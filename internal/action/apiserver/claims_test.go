// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/actiontest"
	"liqo.io/liqo/internal/action/offload"
	"liqo.io/liqo/internal/action/unpeer"
)

// testVolumes: commands that give up the data of claims name it and refuse. Only unoffload --force deletes it, unless pods use it.
func testVolumes(t *testing.T, config *rest.Config) {
	c := actiontest.Installed(t, config)
	admin, held := machine(t, config), answering(t, config, c)
	held.connect("pisa-1-id", newProvider(t, c, config, "pisa-1", nil))
	gibibytes := func(size string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Resources: corev1.VolumeResourceRequirements{Requests: gibibytes("2Gi")},
	}}
	actiontest.Create(t, c, claim)
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(claim.UID), Labels: map[string]string{labels.RemoteClusterID: "pisa-1-id"}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: gibibytes("3Gi"), AccessModes: claim.Spec.AccessModes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp/x"}},
			ClaimRef:               &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: "shop", Name: "data", UID: claim.UID},
		},
	}
	actiontest.Create(t, c, volume)
	actiontest.Create(t, c, &corev1.PersistentVolumeClaim{ // with the data, at the provider
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome-pisa-1", Name: "data", Annotations: map[string]string{labels.VirtualVolume: volume.Name}},
		Spec:       claim.Spec,
	})
	actiontest.Create(t, c, &offloadingv1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "offloading"}})
	refused := func(what, want string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
		live := &corev1.PersistentVolumeClaim{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(claim), live); err != nil || live.DeletionTimestamp != nil {
			t.Errorf("%s: the claim is deleted: %v", what, err)
		}
	}
	unoffload := func(force bool) (string, error) {
		progress := &actiontest.Recorder{}
		err := offload.Unoffload(t.Context(), admin, offload.UnoffloadOptions{Namespace: "shop", Timeout: 15 * time.Second, Force: force}, progress)
		return progress.Text(), err
	}
	_, err := unoffload(false)
	refused("unoffload", "cluster pisa-1, namespace shop-rome-pisa-1: the data of claims data (3Gi)", err)
	if strings.Contains(err.Error(), "PersistentVolumeClaims") {
		t.Errorf("the claim that holds the data is listed besides: %v", err)
	}

	user := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}, Spec: corev1.PodSpec{
		AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "c", Image: "i"}},
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}},
	}}
	actiontest.Ensure(t, c, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "default"}})
	actiontest.Create(t, c, user)
	_, err = unoffload(true)
	refused("unoffload of a claim in use", "pods use the claims: db", err)
	if err := c.Delete(t.Context(), user, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	err = offload.Namespace(t.Context(), admin, offload.Options{
		Namespace: "shop", PodOffloadingStrategy: "LocalAndRemote", NamespaceMappingStrategy: "EnforceSameName", Selectors: []string{"tier=none"},
		Timeout: 15 * time.Second, Force: true,
	}, &actiontest.Recorder{})
	refused("a selector that gives the cluster up, with a change that is not possible", "cannot be changed", err)

	fc := actiontest.Known("pisa-1", "pisa-1-id", discoveryv1alpha1.OutOfBand, labels.DiscoveryManual)
	fc.Spec.OutgoingPeeringEnabled = discoveryv1alpha1.PeeringYes
	actiontest.Create(t, c, fc)
	for _, act := range []func(context.Context, client.WithWatch, unpeer.Options, action.Progress) error{unpeer.Disable, unpeer.OutOfBand} {
		err := act(t.Context(), c, unpeer.Options{Name: "pisa-1", Timeout: 15 * time.Second}, &actiontest.Recorder{})
		refused("unpeer", "is in cluster pisa-1:\n- shop/data (3Gi)", err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(fc), fc); err != nil || fc.Spec.OutgoingPeeringEnabled != discoveryv1alpha1.PeeringYes {
		t.Errorf("the peering was changed: %+v, %v", fc.Spec, err)
	}
	going := fc.DeepCopy()
	going.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	if err := unpeer.AssessVolumes(t.Context(), c, going, false, &actiontest.Recorder{}); err != nil {
		t.Errorf("a ForeignCluster that is being deleted anyway: %v", err)
	}
	forced := &actiontest.Recorder{}
	if err := unpeer.AssessVolumes(t.Context(), c, fc, true, forced); err != nil ||
		!strings.Contains(forced.Text(), "WARN The data of these claims stays in cluster pisa-1") || !strings.Contains(forced.Text(), "shop/data (3Gi)") {
		t.Errorf("unpeer --force: %v\n%s", err, forced.Text())
	}

	// The test acts as the controllers that delete the data of a deleted claim.
	ending, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		_ = actiontest.Eventually(ending, func(ctx context.Context) error {
			live := &corev1.PersistentVolumeClaim{}
			if err := c.Get(ctx, client.ObjectKeyFromObject(claim), live); err != nil {
				return err
			}
			if live.DeletionTimestamp == nil {
				return errors.New("the claim is not deleted")
			}
			if err := c.Patch(ctx, volume.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
				return err
			}
			return c.Delete(ctx, volume.DeepCopy())
		})
	}()
	text, err := unoffload(true)
	if err != nil || !strings.Contains(text, "WARN cluster pisa-1, namespace shop-rome-pisa-1: the data of claims data (3Gi)") {
		t.Errorf("unoffload --force: %v\n%s", err, text)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(volume), volume); !apierrors.IsNotFound(err) {
		t.Errorf("unoffload --force has returned, and the data is not gone: %v", err)
	}
	if err := c.Patch(t.Context(), claim, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); client.IgnoreNotFound(err) != nil {
		t.Error(err)
	}
}
