// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// Bounds on one pod. More is a mistake, or an attack.
const (
	maxContainers  = 64
	maxVolumes     = 128
	maxTolerations = 64
)

// Check returns in one sentence why a ShadowPod of the peer is refused; nothing if it is valid. Reflection never sends what is refused
// here, so only users see a refusal who write a ShadowPod by hand, or run pods that no provider accepts.
func Check(shadow *vkv1alpha1.ShadowPod, peer string, level Level) string {
	if origin := shadow.Labels[labels.Origin]; origin != peer {
		return fmt.Sprintf("label %s is %.63q, but this namespace is cluster %s's", labels.Origin, origin, peer)
	}
	if len(shadow.OwnerReferences) > 0 {
		return "metadata.ownerReferences must be empty: what a ShadowPod belongs to is in another cluster"
	}
	if len(shadow.Name) > 253 || strings.Contains(shadow.Name, "/") {
		return "metadata.name is not a valid name of a pod"
	}
	for _, check := range []func(*corev1.PodSpec) string{checkSize, checkHost, checkIdentity, checkScheduling, checkVolumes} {
		if problem := check(&shadow.Spec.Pod); problem != "" {
			return "spec.pod." + problem
		}
	}
	for key := range shadow.Annotations {
		if strings.HasPrefix(key, "kubernetes.io/config.") {
			return fmt.Sprintf("annotation %.253s is for kubelets only", key)
		}
	}
	if level != Privileged {
		if problem := checkStandard(shadow, level); problem != "" {
			return fmt.Sprintf("%s; pods of peers keep to the Pod Security Standard %q here: change the pod, or ask the provider (peerPodSecurity)", problem, level)
		}
	}
	return ""
}

func checkSize(spec *corev1.PodSpec) string {
	containers := len(spec.Containers) + len(spec.InitContainers) + len(spec.EphemeralContainers)
	switch {
	case len(spec.Containers) == 0:
		return "containers must not be empty"
	case containers > maxContainers:
		return fmt.Sprintf("containers, initContainers and ephemeralContainers: %d, at most %d are accepted", containers, maxContainers)
	case len(spec.Volumes) > maxVolumes:
		return fmt.Sprintf("volumes: %d, at most %d are accepted", len(spec.Volumes), maxVolumes)
	case len(spec.Tolerations) > maxTolerations:
		return fmt.Sprintf("tolerations: %d, at most %d are accepted", len(spec.Tolerations), maxTolerations)
	}
	return ""
}

func checkHost(spec *corev1.PodSpec) string {
	for field, set := range map[string]bool{"hostNetwork": spec.HostNetwork, "hostPID": spec.HostPID, "hostIPC": spec.HostIPC} {
		if set {
			return field + " must be false: pods of a peer never use the namespaces of a node"
		}
	}
	return ""
}

// checkIdentity ensures that a peer never gets a token of this cluster.
func checkIdentity(spec *corev1.PodSpec) string {
	for field, account := range map[string]string{"serviceAccountName": spec.ServiceAccountName, "serviceAccount": spec.DeprecatedServiceAccount} {
		if account != "" && account != defaultAccount {
			return fmt.Sprintf("%s is %.253q, but pods of a peer have no ServiceAccount in this cluster; leave it empty", field, account)
		}
	}
	if spec.AutomountServiceAccountToken != nil && *spec.AutomountServiceAccountToken {
		return "automountServiceAccountToken must be false: pods of a peer get no token of this cluster"
	}
	return ""
}

// checkScheduling ensures that the provider alone decides where pods run, and which pods they preempt.
func checkScheduling(spec *corev1.PodSpec) string {
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"nodeName", spec.NodeName != ""},
		{"nodeSelector", len(spec.NodeSelector) > 0},
		{"schedulerName", spec.SchedulerName != ""},
		{"schedulingGates", len(spec.SchedulingGates) > 0},
		{"priorityClassName", spec.PriorityClassName != ""},
		{"priority", spec.Priority != nil},
		{"preemptionPolicy", spec.PreemptionPolicy != nil},
		{"runtimeClassName", spec.RuntimeClassName != nil},
		{"overhead", len(spec.Overhead) > 0},
		{"resourceClaims", len(spec.ResourceClaims) > 0},
		{"schedulingGroup", spec.SchedulingGroup != nil},
		{"evictionResponders", len(spec.EvictionResponders) > 0},
		{"affinity.nodeAffinity", spec.Affinity != nil && spec.Affinity.NodeAffinity != nil},
		{"affinity.podAffinity", spec.Affinity != nil && spec.Affinity.PodAffinity != nil},
	} {
		if field.set {
			return field.name + " must be empty: it has a meaning only in the cluster that the pod comes from"
		}
	}
	for i := range spec.Tolerations {
		if spec.Tolerations[i].Key == labels.TaintVirtualNode {
			return fmt.Sprintf("tolerations[%d] tolerates %s: pods of a peer are not passed on", i, labels.TaintVirtualNode)
		}
	}
	return checkTerms(spec.Affinity)
}

// checkTerms refuses other namespaces in anti-affinity: from where its pods are not scheduled, a peer could learn which pods others run.
func checkTerms(affinity *corev1.Affinity) string {
	if affinity == nil || affinity.PodAntiAffinity == nil {
		return ""
	}
	terms := slices.Clone(affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	for i := range affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		terms = append(terms, affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[i].PodAffinityTerm)
	}
	for i := range terms {
		if len(terms[i].Namespaces) > 0 || terms[i].NamespaceSelector != nil {
			return "affinity.podAntiAffinity names namespaces: it may select only pods in its own namespace"
		}
	}
	return ""
}

func checkVolumes(spec *corev1.PodSpec) string {
	for i := range spec.Volumes {
		if ephemeral := spec.Volumes[i].Ephemeral; ephemeral != nil && ephemeral.VolumeClaimTemplate != nil {
			if problem := checkTemplate(ephemeral.VolumeClaimTemplate); problem != "" {
				return fmt.Sprintf("volumes[%d].ephemeral.volumeClaimTemplate.%s", i, problem)
			}
		}
		projected := spec.Volumes[i].Projected
		if projected == nil {
			continue
		}
		for j := range projected.Sources {
			if projected.Sources[j].ServiceAccountToken != nil || projected.Sources[j].PodCertificate != nil {
				return fmt.Sprintf("volumes[%d].projected.sources[%d] asks for a credential of this cluster: pods of a peer get none", i, j)
			}
		}
	}
	return ""
}

// checkTemplate refuses what is refused in a claim that a peer writes itself: Kubernetes makes a claim of the template, with rights of its own. Policies know
// the storage classes and keys that this cluster lets peers use.
func checkTemplate(template *corev1.PersistentVolumeClaimTemplate) string {
	spec := &template.Spec
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"metadata.finalizers", len(template.Finalizers) > 0},
		{"metadata.ownerReferences", len(template.OwnerReferences) > 0},
		{"spec.volumeName", spec.VolumeName != ""},
		{"spec.selector", spec.Selector != nil},
		{"spec.volumeAttributesClassName", spec.VolumeAttributesClassName != nil && *spec.VolumeAttributesClassName != ""},
		{"spec.dataSource", spec.DataSource != nil && !isClaim(spec.DataSource.APIGroup, spec.DataSource.Kind)},
		{"spec.dataSourceRef", spec.DataSourceRef != nil && (spec.DataSourceRef.Namespace != nil || !isClaim(spec.DataSourceRef.APIGroup, spec.DataSourceRef.Kind))},
	} {
		if field.set {
			return field.name + " must be empty: a volume of a peer is new, and starts with the data of a claim in its namespace or with none"
		}
	}
	if class := spec.StorageClassName; class != nil && *class == "" {
		return "spec.storageClassName must not be empty: without a class, the claim would get any volume that has none"
	}
	return ""
}

func isClaim(group *string, kind string) bool {
	return kind == "PersistentVolumeClaim" && (group == nil || *group == "")
}

// CheckUpdate returns why an update of a ShadowPod is refused. The same fields may change as in a pod: images, CPU and memory, a shorter deadline,
// further tolerations, further ephemeral containers.
func CheckUpdate(before, after *vkv1alpha1.ShadowPod) string {
	if before.Spec.Fence != after.Spec.Fence {
		return "spec.fence cannot be changed; another pod needs another ShadowPod"
	}
	old, now := &before.Spec.Pod, after.Spec.Pod.DeepCopy()
	if len(now.Containers) != len(old.Containers) || len(now.InitContainers) != len(old.InitContainers) {
		return "spec.pod: containers cannot be added or removed"
	}
	for i := range now.Containers {
		now.Containers[i].Image = old.Containers[i].Image
		restore(&old.Containers[i].Resources, &now.Containers[i].Resources)
	}
	for i := range now.InitContainers {
		now.InitContainers[i].Image = old.InitContainers[i].Image
		restore(&old.InitContainers[i].Resources, &now.InitContainers[i].Resources)
	}
	if old.Resources != nil && now.Resources != nil {
		restore(old.Resources, now.Resources)
	}
	if problem := longer(old.ActiveDeadlineSeconds, now.ActiveDeadlineSeconds); problem != "" {
		return problem
	}
	for i := range old.Tolerations {
		if !slices.ContainsFunc(now.Tolerations, func(toleration corev1.Toleration) bool { return reflect.DeepEqual(toleration, old.Tolerations[i]) }) {
			return "spec.pod.tolerations: existing tolerations cannot be removed or changed"
		}
	}
	if len(now.EphemeralContainers) < len(old.EphemeralContainers) ||
		!equality.Semantic.DeepEqual(now.EphemeralContainers[:len(old.EphemeralContainers)], old.EphemeralContainers) {
		return "spec.pod.ephemeralContainers: they can be added, but not removed or changed"
	}
	now.ActiveDeadlineSeconds, now.Tolerations, now.EphemeralContainers = old.ActiveDeadlineSeconds, old.Tolerations, old.EphemeralContainers
	if !equality.Semantic.DeepEqual(old, now) {
		return "spec.pod cannot be changed except for images, cpu and memory, a shorter activeDeadlineSeconds, further tolerations and " +
			"ephemeralContainers; create another pod"
	}
	return ""
}

func longer(old, now *int64) string {
	if old != nil && (now == nil || *now > *old) || old == nil && now != nil && *now <= 0 {
		return "spec.pod.activeDeadlineSeconds can only be set, or made shorter"
	}
	return ""
}

// CheckFinalizers returns which finalizer may not be added: with one, a peer could block the deletion of a namespace for ever. A new ShadowPod, whose before is
// nil, may have the one that it gets anyway.
func CheckFinalizers(before, after *vkv1alpha1.ShadowPod) string {
	known := []string{labels.FinalizerPodGone}
	if before != nil {
		known = before.Finalizers
	}
	for _, finalizer := range after.Finalizers {
		if !slices.Contains(known, finalizer) {
			return fmt.Sprintf("metadata.finalizers: %.253q could block the deletion of a namespace of this cluster", finalizer)
		}
	}
	return ""
}
