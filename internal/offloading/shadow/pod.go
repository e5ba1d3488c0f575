// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/metadata"
)

const Kind = "ShadowPod"

// defaultAccount is the only ServiceAccount of this cluster that a peer's pods run as, without its token.
const defaultAccount = "default"

// Pod returns the pod to create for a ShadowPod of the peer. It sets the fields that a peer must not decide, even if the ShadowPod was
// admitted with them, and leaves out metadata and tolerations that are not allowed.
func Pod(shadow *vkv1alpha1.ShadowPod, peer string, allowed metadata.Allowed) *corev1.Pod {
	fresh := shadow.DeepCopy()
	fresh.Spec.Pod.EphemeralContainers = nil // they are added to the running pod
	spec := fresh.Spec.Pod
	spec.ServiceAccountName, spec.DeprecatedServiceAccount = defaultAccount, ""
	spec.AutomountServiceAccountToken = new(false)
	spec.HostNetwork, spec.HostPID, spec.HostIPC = false, false, false
	spec.NodeName, spec.SchedulerName = "", ""
	spec.Priority, spec.PriorityClassName, spec.PreemptionPolicy = nil, "", nil
	spec.RuntimeClassName, spec.Overhead = nil, nil
	spec.Tolerations = tolerations(spec.Tolerations, allowed)
	if allowed.AlwaysPull {
		alwaysPull(&spec)
	}

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: shadow.Namespace, Name: shadow.Name, Labels: podLabels(shadow, peer, allowed), Annotations: podAnnotations(shadow, allowed),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(shadow, vkv1alpha1.GroupVersion.WithKind(Kind))},
		},
		Spec: spec,
	}
	pod.Annotations[labels.ShadowPodRevision] = Revision(fresh)
	if keys := givenKeys(pod); len(keys) <= maxKeys {
		pod.Annotations[labels.ShadowPodKeys] = keys
	}
	if sent := recordOf(fieldsOf(fresh, peer, allowed)).text(Revision(fresh)); sent != "" {
		pod.Annotations[labels.ShadowPodSent] = sent
	}
	if spec.RestartPolicy == corev1.RestartPolicyNever || spec.RestartPolicy == corev1.RestartPolicyOnFailure {
		pod.Finalizers = []string{labels.FinalizerPodEnd}
	}
	return pod
}

// alwaysPull has each image of a new pod pulled when it starts.
func alwaysPull(spec *corev1.PodSpec) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			containers[i].ImagePullPolicy = corev1.PullAlways
		}
	}
	for i := range spec.Volumes {
		if image := spec.Volumes[i].Image; image != nil {
			image.PullPolicy = corev1.PullAlways
		}
	}
}

// tolerations returns the requested tolerations that a pod of a peer may have.
func tolerations(requested []corev1.Toleration, allowed metadata.Allowed) []corev1.Toleration {
	return slices.DeleteFunc(slices.Clone(requested), func(toleration corev1.Toleration) bool { return !allowed.Toleration(toleration.Key) })
}

func podLabels(shadow *vkv1alpha1.ShadowPod, peer string, allowed metadata.Allowed) map[string]string {
	all := map[string]string{}
	for key, value := range shadow.Labels {
		if allowed.Label(key) {
			all[key] = value
		}
	}
	all[labels.ManagedBy], all[labels.Origin] = labels.ManagedByShadowPod, peer
	return all
}

func podAnnotations(shadow *vkv1alpha1.ShadowPod, allowed metadata.Allowed) map[string]string {
	all := map[string]string{}
	for key, value := range shadow.Annotations {
		if !metadata.Reserved(key) && allowed.Annotation(key) {
			all[key] = value
		}
	}
	return all
}

// everything is for revisions: what is allowed may change with each start of this process, which must not change running pods.
var everything = metadata.Allowed{Labels: metadata.Keys{"*"}, Annotations: metadata.Keys{"*"}}

// Revision returns the UID of a ShadowPod and a hash of its mutable fields. A pod carries the revision that it was last brought to.
func Revision(shadow *vkv1alpha1.ShadowPod) string {
	state := struct {
		Labels, Annotations map[string]string
		Containers, Init    []image
		Deadline            *int64
		Tolerations         []corev1.Toleration
		Ephemeral           []corev1.EphemeralContainer
		Sizes               []size `json:",omitempty"`
	}{
		Labels: podLabels(shadow, "", everything), Annotations: podAnnotations(shadow, everything),
		Containers: images(shadow.Spec.Pod.Containers), Init: images(shadow.Spec.Pod.InitContainers),
		Deadline: shadow.Spec.Pod.ActiveDeadlineSeconds, Tolerations: shadow.Spec.Pod.Tolerations, Ephemeral: shadow.Spec.Pod.EphemeralContainers,
		Sizes: sizes(shadow),
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

// image is the mutable part of a container.
type image struct{ Name, Image string }

func images(containers []corev1.Container) (all []image) {
	for i := range containers {
		all = append(all, image{containers[i].Name, containers[i].Image})
	}
	return all
}

// Trim drops from a ShadowPod what Plan, Revision and a quota do not read, which is most of the memory of a cache.
func Trim(shadow *vkv1alpha1.ShadowPod) {
	from := &shadow.Spec.Pod
	shadow.Spec.Pod = corev1.PodSpec{
		RestartPolicy: from.RestartPolicy, ActiveDeadlineSeconds: from.ActiveDeadlineSeconds, Tolerations: from.Tolerations,
		TerminationGracePeriodSeconds: from.TerminationGracePeriodSeconds,
		Containers:                    trimContainers(from.Containers), InitContainers: trimContainers(from.InitContainers),
		EphemeralContainers: from.EphemeralContainers, Resources: from.Resources, Volumes: inMemory(from.Volumes),
	}
}

// inMemory returns the volumes that count as memory.
func inMemory(from []corev1.Volume) (kept []corev1.Volume) {
	for i := range from {
		if dir := from[i].EmptyDir; dir != nil && dir.Medium == corev1.StorageMediumMemory {
			kept = append(kept, from[i])
		}
	}
	return kept
}

func trimContainers(from []corev1.Container) (kept []corev1.Container) {
	for i := range from {
		container := &from[i]
		kept = append(kept, corev1.Container{
			Name: container.Name, Image: container.Image, RestartPolicy: container.RestartPolicy,
			Resources: corev1.ResourceRequirements{Limits: container.Resources.Limits, Requests: container.Resources.Requests},
		})
	}
	return kept
}

// withoutTrace returns a security context without SYS_PTRACE.
func withoutTrace(context *corev1.SecurityContext) *corev1.SecurityContext {
	if context == nil || context.Capabilities == nil {
		return context
	}
	context = context.DeepCopy()
	context.Capabilities.Add = slices.DeleteFunc(context.Capabilities.Add, func(capability corev1.Capability) bool { return capability == "SYS_PTRACE" })
	return context
}
