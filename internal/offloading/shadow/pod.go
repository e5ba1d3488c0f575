// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

const kind = "ShadowPod"

// defaultAccount is the only ServiceAccount of this cluster that a peer's pods run as, without its token.
const defaultAccount = "default"

// Pod is the pod of a wish, as it is created for the peer. What a peer must not decide is set here, whoever let the wish in.
func Pod(shadow *vkv1alpha1.ShadowPod, peer string) *corev1.Pod {
	fresh := shadow.DeepCopy()
	fresh.Spec.Pod.EphemeralContainers = nil // they are added to pods that run
	spec := fresh.Spec.Pod
	spec.ServiceAccountName, spec.DeprecatedServiceAccount = defaultAccount, ""
	spec.AutomountServiceAccountToken = new(false)
	spec.HostNetwork, spec.HostPID, spec.HostIPC = false, false, false
	spec.NodeName, spec.SchedulerName = "", ""
	spec.Priority, spec.PriorityClassName, spec.PreemptionPolicy = nil, "", nil
	spec.RuntimeClassName, spec.Overhead = nil, nil
	spec.Tolerations = tolerations(spec.Tolerations)

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: shadow.Namespace, Name: shadow.Name, Labels: podLabels(shadow, peer), Annotations: podAnnotations(shadow),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(shadow, vkv1alpha1.GroupVersion.WithKind(kind))},
		},
		Spec: spec,
	}
	pod.Annotations[labels.ShadowPodRevision] = Revision(fresh)
	if spec.RestartPolicy == corev1.RestartPolicyNever || spec.RestartPolicy == corev1.RestartPolicyOnFailure {
		pod.Finalizers = []string{labels.FinalizerPodEnd}
	}
	return pod
}

// guarded are the taints that keep pods of users away, by the begin of their keys: of the control plane, of nodes that are closed or not ready to
// be used, and of other clusters, to which pods of peers are not passed on.
var guarded = []string{"node-role.kubernetes.io/", corev1.TaintNodeUnschedulable, "node.cloudprovider.kubernetes.io/", labels.TaintVirtualNode}

// tolerations are those of a wish that mean something to a pod of a peer. One without a key would be for all taints, those above with them.
func tolerations(wished []corev1.Toleration) []corev1.Toleration {
	return slices.DeleteFunc(slices.Clone(wished), func(one corev1.Toleration) bool {
		return one.Key == "" || slices.ContainsFunc(guarded, func(begin string) bool { return strings.HasPrefix(one.Key, begin) })
	})
}

func podLabels(shadow *vkv1alpha1.ShadowPod, peer string) map[string]string {
	all := maps.Clone(shadow.Labels)
	if all == nil {
		all = map[string]string{}
	}
	all[labels.ManagedBy], all[labels.Origin] = labels.ManagedByShadowPod, peer
	return all
}

func podAnnotations(shadow *vkv1alpha1.ShadowPod) map[string]string {
	all := map[string]string{}
	for key, value := range shadow.Annotations {
		if !reserved(key) {
			all[key] = value
		}
	}
	return all
}

// reserved are annotations by which kubelets, kubectl and we ourselves mean something.
func reserved(key string) bool {
	return key == labels.ShadowPodRevision || key == corev1.LastAppliedConfigAnnotation || strings.HasPrefix(key, "kubernetes.io/config.")
}

// Revision identifies a ShadowPod, by UID, and a hash of the fields that its pod copies. Pods carry the one that they were made from.
func Revision(shadow *vkv1alpha1.ShadowPod) string {
	state := struct {
		Labels, Annotations map[string]string
		Containers, Init    []image
		Deadline            *int64
		Tolerations         []corev1.Toleration
		Ephemeral           []corev1.EphemeralContainer
	}{
		Labels: podLabels(shadow, ""), Annotations: podAnnotations(shadow),
		Containers: images(shadow.Spec.Pod.Containers), Init: images(shadow.Spec.Pod.InitContainers),
		Deadline: shadow.Spec.Pod.ActiveDeadlineSeconds, Tolerations: shadow.Spec.Pod.Tolerations, Ephemeral: shadow.Spec.Pod.EphemeralContainers,
	}
	if len(state.Tolerations) == 0 {
		state.Tolerations = nil
	}
	if len(state.Ephemeral) == 0 {
		state.Ephemeral = nil
	}
	text, err := json.Marshal(state)
	if err != nil {
		panic(err) // plain data
	}
	sum := sha256.Sum256(text)
	return string(shadow.UID) + "/" + hex.EncodeToString(sum[:8])
}

// image is what of a container can change.
type image struct{ Name, Image string }

func images(containers []corev1.Container) (all []image) {
	for i := range containers {
		all = append(all, image{containers[i].Name, containers[i].Image})
	}
	return all
}

// Trim drops from a ShadowPod what plan, mark and ledger do not need: most of the memory of a cache.
func Trim(shadow *vkv1alpha1.ShadowPod) {
	from := &shadow.Spec.Pod
	shadow.Spec.Pod = corev1.PodSpec{
		RestartPolicy: from.RestartPolicy, ActiveDeadlineSeconds: from.ActiveDeadlineSeconds, Tolerations: from.Tolerations,
		Containers: trimContainers(from.Containers), InitContainers: trimContainers(from.InitContainers),
		EphemeralContainers: from.EphemeralContainers, Resources: from.Resources,
	}
}

func trimContainers(from []corev1.Container) (kept []corev1.Container) {
	for i := range from {
		one := &from[i]
		kept = append(kept, corev1.Container{
			Name: one.Name, Image: one.Image, RestartPolicy: one.RestartPolicy, Resources: corev1.ResourceRequirements{Limits: one.Resources.Limits},
		})
	}
	return kept
}
