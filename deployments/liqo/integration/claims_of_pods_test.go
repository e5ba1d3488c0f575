// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
)

// claimSpec returns the spec of a claim of a class; of none if the name is "-".
func claimSpec(class string) corev1.PersistentVolumeClaimSpec {
	spec := corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
	}
	if class != "-" {
		spec.StorageClassName = &class
	}
	return spec
}

// withClaims creates a pod with claims, which must exist or not, and returns where it may run: the requirements of its node affinity on liqo.io/type, and
// whether it tolerates virtual nodes.
func (h *webhookEnv) withClaims(namespace string, change func(*corev1.PodSpec), names ...string) (requirements []string, tolerates bool) {
	h.Helper()
	pod := &corev1.Pod{
		// As of a controller, whose pods are refused until they are placed.
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "store-", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "store", UID: "0", Controller: new(true)},
		}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	for i, name := range names {
		volume := corev1.Volume{Name: fmt.Sprint("data-", i)}
		if class, ephemeral := strings.CutPrefix(name, "ephemeral/"); ephemeral {
			volume.Ephemeral = &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: claimSpec(class)}}
		} else {
			volume.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}
		}
		pod.Spec.Volumes = append(pod.Spec.Volumes, volume)
	}
	if change != nil {
		change(&pod.Spec)
	}
	h.until("the pod is admitted", func() bool { // as a controller tries again
		pod.Name = ""
		return h.Create(h.Context(), pod, client.DryRunAll) == nil
	})
	if pod.Spec.Affinity != nil && pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, one := range term.MatchExpressions {
				if one.Key == "liqo.io/type" {
					requirements = append(requirements, string(one.Operator))
				}
			}
		}
	}
	return requirements, slices.ContainsFunc(pod.Spec.Tolerations, func(one corev1.Toleration) bool { return one.Key == "virtual-node.liqo.io/not-allowed" })
}

// TestClaimsOfPods: a pod whose claim gets no volume at a provider stays in this cluster, from its creation on. The webhook knows a claim that was made right
// before its pod, as that of a StatefulSet is.
func TestClaimsOfPods(t *testing.T) {
	h := newWebhookEnv(t)
	h.must(storagev1.AddToScheme(h.Scheme()))
	h.namespace("shop")
	h.must(h.Create(h.Context(), h.offloading("shop", offloadingv1alpha1.PodsLocalAndRemote)))
	for name, provisioner := range map[string]string{"disk": "rancher.io/local-path", "zonal": "ebs.csi.aws.com", "ours": "liqo.io/storage"} {
		class := &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner,
			VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
		}
		if name == "disk" {
			class.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
		}
		h.must(h.Create(h.Context(), class))
	}
	// The webhook sees the pods of controllers in one namespace, as the controller labels it, and not in the other one.
	h.must(h.Patch(
		h.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"liqo.io/scheduling-enabled":"true"}}}`)),
	))
	h.namespace("unplaced")
	h.must(h.Create(h.Context(), h.offloading("unplaced", offloadingv1alpha1.PodsLocalAndRemote)))
	inForce(t, "liqo-offloaded-pods", func() error {
		return h.Create(h.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "unplaced", Name: "held",
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "store", UID: "0", Controller: new(true)}},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, client.DryRunAll)
	})
	h.until("the webhook knows the classes", func() bool { // a class is not made right before a pod
		_, first := h.withClaims("shop", nil, "ephemeral/disk")
		_, second := h.withClaims("shop", nil, "ephemeral/ours")
		return !first && second
	})
	claim := func(name, class string, annotations map[string]string) {
		h.must(h.Create(h.Context(), &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: annotations}, Spec: claimSpec(class),
		}))
	}
	for i := range 20 { // each pod right after its claim
		claim(fmt.Sprint("data-store-", i), "-", nil)
		if terms, tolerates := h.withClaims("shop", nil, fmt.Sprint("data-store-", i)); !slices.Equal(terms, []string{"NotIn"}) || tolerates {
			t.Fatalf("pod %d with a claim of the default class may run on virtual nodes: %v %t", i, terms, tolerates)
		}
	}
	claim("disk", "disk", nil)
	claim("zonal", "zonal", nil)
	claim("ours", "ours", nil)
	claim("manual", "", nil)
	claim("shared", "", map[string]string{"storage.liqo.io/external": "nfs"})
	selector := func(pod *corev1.PodSpec) { pod.NodeSelector = map[string]string{"liqo.io/type": "virtual-node"} }
	for name, test := range map[string]struct {
		claims []string
		change func(*corev1.PodSpec)
		stays  bool
	}{
		"no claim":                         {},
		"a disk of a node":                 {claims: []string{"disk"}, stays: true},
		"a disk of a zone":                 {claims: []string{"zonal"}, stays: true},
		"ours":                             {claims: []string{"ours"}},
		"ours beside another":              {claims: []string{"ours", "zonal"}, stays: true},
		"no class":                         {claims: []string{"manual"}, stays: true},
		"at the providers as well":         {claims: []string{"shared", "ours"}},
		"not made yet":                     {claims: []string{"later"}},
		"not made yet, beside another":     {claims: []string{"later", "disk"}, stays: true},
		"ephemeral, default class":         {claims: []string{"ephemeral/-"}, stays: true},
		"ephemeral, ours":                  {claims: []string{"ephemeral/ours"}},
		"ephemeral, a class that is not":   {claims: []string{"ephemeral/none"}, stays: true},
		"the user wants it there":          {claims: []string{"disk"}, change: selector},
		"the user has chosen the node":     {claims: []string{"disk"}, change: func(pod *corev1.PodSpec) { pod.NodeName = "liqo-milan" }},
		"more claims than any pod can use": {claims: append(make64("later"), "disk"), stays: true},
	} {
		terms, tolerates := h.withClaims("shop", test.change, test.claims...)
		if stays := slices.Equal(terms, []string{"NotIn"}) && !tolerates; stays != test.stays || !stays && !tolerates {
			t.Errorf("%s: affinity %v, tolerates virtual nodes: %t", name, terms, tolerates)
		}
	}
	const want = "claim disk has the storage class disk, whose provisioner rancher.io/local-path makes no volumes in other clusters"
	if text := h.warnings.text(); !strings.Contains(text, want) {
		t.Errorf("no warning gives the reason why a pod for other clusters only cannot start: %s", text)
	}
}

// make64 returns many names of claims that do not exist.
func make64(prefix string) (names []string) {
	for i := range 64 {
		names = append(names, fmt.Sprint(prefix, "-", i))
	}
	return names
}
