// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/deployments/liqo/charttest"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/offloading/shadow"
)

// claimOf returns the fields of a claim as the virtual kubelet applies it, with others instead.
func claimOf(more map[string]any) map[string]any {
	spec := map[string]any{
		"accessModes": []any{"ReadWriteOnce"}, "storageClassName": "disk", "resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}},
	}
	for key, value := range more {
		spec[key] = value
		if value == nil {
			delete(spec, key)
		}
	}
	return map[string]any{"spec": spec}
}

const claimsPolicy = "ValidatingAdmissionPolicy 'liqo-peers-claims'"

func claimAttempt(what string, more map[string]any, refused string) attempt {
	return attempt{what, "PersistentVolumeClaim", nil, nil, claimOf(more), refused}
}

// claimAttacks are claims that a peer tries, and honest ones.
func claimAttacks() []attempt {
	const policy = claimsPolicy
	claim := claimAttempt
	source := map[string]any{"kind": "PersistentVolumeClaim", "name": "x"}
	snapshot := map[string]any{"kind": "VolumeSnapshot", "apiGroup": "snapshot.storage.k8s.io", "name": "x"}
	note := func(what string, notes keys, refused string) attempt {
		return attempt{what, "PersistentVolumeClaim", nil, notes, claimOf(nil), refused}
	}
	return []attempt{
		claim("an ordinary claim", nil, ""),
		note("the claim of a virtual kubelet", keys{"storage.liqo.io/virtual-volume": "x"}, ""),
		claim("a block volume for many", map[string]any{"volumeMode": "Block", "accessModes": []any{"ReadWriteMany"}}, ""),
		claim("the volume of others", map[string]any{"volumeName": "backup"}, policy),
		claim("volumes of others", map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "backup"}}}, policy),
		claim("a copy of a claim that its pods may use", map[string]any{"dataSource": source}, ""),
		claim("the same as a reference", map[string]any{"dataSourceRef": source}, ""),
		claim("the data of a snapshot", map[string]any{"dataSource": snapshot}, policy),
		claim("the data of anything", map[string]any{
			"dataSourceRef": map[string]any{"kind": "PersistentVolumeClaim", "apiGroup": "evil.example.com", "name": "x"},
		}, policy),
		claim("the settings of a driver", map[string]any{"volumeAttributesClassName": "fast"}, policy),
		claim("any volume without a class", map[string]any{"storageClassName": ""}, policy),
		claim("no class", map[string]any{"storageClassName": nil}, policy),
		claim("our virtual class", map[string]any{"storageClassName": "liqo"}, `must not have the storage class "liqo"`),
		note("a class by the old annotation", keys{"volume.beta.kubernetes.io/storage-class": "other"}, "peers.metadata.persistentVolumeClaims"),
		note("a node", keys{"volume.kubernetes.io/selected-node": "x"}, "peers.metadata.persistentVolumeClaims"),
	}
}

// TestAttackM6: with claims, a peer gets new, empty volumes of the classes that the provider shares, and nothing else.
func TestAttackM6(t *testing.T) {
	ctx, admin, root := installed(t)
	const remote, policy = "web-rome-000000", claimsPolicy
	c := asPeer(ctx, t, admin, root, remote)
	inForce(t, "liqo-peers-claims", func() error {
		return c.Create(ctx, peerObject(remote, "PersistentVolumeClaim", nil, nil, claimOf(map[string]any{"volumeName": "x"})), client.DryRunAll)
	})
	inForce(t, "liqo-peers-objects", func() error { // it restricts the annotations
		return c.Create(ctx, peerObject(remote, "PersistentVolumeClaim", nil, keys{"volume.kubernetes.io/selected-node": "x"}, claimOf(nil)), client.DryRunAll)
	})
	for _, test := range claimAttacks() {
		test.check(ctx, t, c, remote)
	}
	held := peerObject(remote, "PersistentVolumeClaim", nil, nil, claimOf(nil))
	held.SetFinalizers([]string{"example.com/held"})
	if err := c.Create(ctx, held, client.DryRunAll); err == nil || !strings.Contains(err.Error(), policy) {
		t.Errorf("a claim with a finalizer: %v", err)
	}

	// What Kubernetes adds to a claim does not stop the peer from changing it.
	bound := peerObject(remote, "PersistentVolumeClaim", nil, nil, claimOf(nil))
	bound.SetName("bound")
	if err := c.Create(ctx, bound); err != nil {
		t.Fatal(err)
	}
	patch := func(by client.Client, text string, options ...client.PatchOption) error {
		return by.Patch(ctx, bound.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)), options...)
	}
	if err := patch(root, `{"metadata":{"annotations":{"pv.kubernetes.io/bind-completed":"yes"}},"spec":{"volumeName":"disk-1"}}`); err != nil {
		t.Fatal(err)
	}
	for text, refused := range map[string]string{
		`{"metadata":{"labels":{"app":"x"}}}`:                                      "",
		`{"metadata":{"finalizers":["example.com/held"]}}`:                         policy,
		`{"metadata":{"annotations":{"pv.kubernetes.io/bind-completed":"again"}}}`: "peers.metadata.persistentVolumeClaims",
	} {
		if err := patch(c, text, client.DryRunAll); refused == "" && err != nil || refused != "" && (err == nil || !strings.Contains(err.Error(), refused)) {
			t.Errorf("%s: %v, want a refusal with %q", text, err, refused)
		}
	}

	for _, object := range charttest.Render(t, "peers.storageClasses={gold}", "storage.virtualStorageClasses.fast.remoteStorageClassName=gold") {
		if strings.HasPrefix(object.GetName(), "liqo-peers-claims") {
			if err := root.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("helm"), client.ForceOwnership); err != nil {
				t.Fatal(err)
			}
		}
	}
	inForce(t, "liqo-peers-claims", func() error {
		return c.Create(ctx, peerObject(remote, "PersistentVolumeClaim", nil, nil, claimOf(nil)), client.DryRunAll)
	})
	claim := claimAttempt
	for _, test := range []attempt{
		claim("a class that is shared", map[string]any{"storageClassName": "gold"}, ""),
		claim("a class that is not", nil, `must not have the storage class "disk"; the administrator of this cluster can add it to the value peers.storageClasses`),
		claim("another virtual class", map[string]any{"storageClassName": "fast"}, policy),
	} {
		test.check(ctx, t, c, remote)
	}
}

// TestAttackNM1: what TestAttackM6 refuses does not come by way of a pod, whose ephemeral volume Kubernetes makes a claim of.
func TestAttackNM1(t *testing.T) {
	ctx, admin, root := installed(t)
	const remote, kubernetes, pods = "web-rome-000000",
		"system:serviceaccount:kube-system:ephemeral-volume-controller", "ValidatingAdmissionPolicy 'liqo-peers-pods'"
	asPeer(ctx, t, admin, root, remote)
	as := func(user string) client.Client {
		config := rest.CopyConfig(admin)
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
		return connect(t, config)
	}
	c := as(kubernetes)
	ofPod := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: "1", Controller: new(true), BlockOwnerDeletion: new(true)}}
	create := func(by client.Client, one attempt, owners []metav1.OwnerReference) error {
		claim := peerObject(remote, one.kind, one.labels, one.annotations, one.fields)
		claim.SetOwnerReferences(owners)
		return by.Create(ctx, claim, client.DryRunAll)
	}
	run := func(one attempt) error {
		var template corev1.PersistentVolumeClaimTemplate
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(peerObject("", one.kind, one.labels, one.annotations, one.fields).
			Object, &template); err != nil {
			t.Fatal(err)
		}
		template.Name, template.Namespace = "", ""
		volume := volumeOf(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &template}})
		if problem := shadow.Check(&vkv1alpha1.ShadowPod{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: keys{"virtualkubelet.liqo.io/origin": "rome"}}, Spec: vkv1alpha1.ShadowPodSpec{Pod: shadowPodOf(volume)},
		}, "rome", shadow.Baseline); problem != "" && one.refused == "" {
			t.Errorf("%s in a ShadowPod: %s", one.what, problem)
		} else if problem == "" && one.refused == claimsPolicy && one.what != "no class" {
			t.Errorf("%s in a ShadowPod is admitted", one.what)
		}
		return root.Create(ctx, finalPod(remote, volume), client.DryRunAll)
	}
	if err := root.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: remote, Name: "default"}}); err != nil {
		t.Fatal(err)
	}
	worst := claimAttempt("", map[string]any{"volumeName": "x"}, claimsPolicy)
	kubetest.Eventually(t, "the policies are in force", func() error {
		if err := create(c, worst, ofPod); err == nil {
			return errors.New("a claim for a chosen volume is admitted")
		}
		if err := root.Create(ctx, finalPod(remote, func(pod *corev1.Pod) { pod.Spec.HostNetwork = true }), client.DryRunAll); err == nil {
			return errors.New("a pod in the node's network is admitted")
		}
		return nil
	})
	for _, one := range claimAttacks() {
		judge := func(how string, err error, policy string) {
			t.Helper()
			if one.refused == "" && err != nil || one.refused != "" && (err == nil || !strings.Contains(err.Error(), policy)) {
				t.Errorf("%s %s: %v, want a refusal: %t", one.what, how, err, one.refused != "")
			}
		}
		judge("by Kubernetes for a pod", create(c, one, ofPod), one.refused)
		judge("by any account for a pod", create(root, one, ofPod), one.refused)
		if one.what != "no class" { // the claim gets the default class, and is judged with it
			judge("in a pod", run(one), pods)
		}
	}
	if err := create(root, worst, nil); err != nil {
		t.Errorf("a claim of the administrator: %v", err)
	}
	if err := create(c, worst, nil); err != nil {
		t.Errorf("a claim for a workload of the administrator, who opened the namespace: %v", err)
	}

	// Kubernetes binds a claim afterwards.
	bound := peerObject(remote, "PersistentVolumeClaim", nil, nil, claimOf(nil))
	bound.SetOwnerReferences(ofPod)
	if err := c.Create(ctx, bound); err != nil {
		t.Fatal(err)
	}
	for user, text := range map[string]string{
		"system:kube-scheduler": `{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"worker"}}}`,
		"system:serviceaccount:kube-system:persistent-volume-binder": `{"metadata":{"annotations":{"pv.kubernetes.io/bind-completed":"yes"}},` +
			`"spec":{"volumeName":"disk-1"}}`,
	} {
		if err := as(user).Patch(ctx, bound.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)), client.DryRunAll); err != nil {
			t.Errorf("%s: %v", user, err)
		}
	}
}

// shadowPodOf returns the pod of a ShadowPod with a change.
func shadowPodOf(change func(*corev1.Pod)) corev1.PodSpec {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}}}
	change(pod)
	return pod.Spec
}
