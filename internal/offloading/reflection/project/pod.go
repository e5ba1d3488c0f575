// SPDX-License-Identifier: Apache-2.0

package project

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"

	vkapply "liqo.io/liqo/apis/applyconfiguration/virtualkubelet/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/shadow"
)

// PodOptions are what a pod is given that is not in its own specification.
type PodOptions struct {
	APIServer APIServer
}

// ShadowPod is what a pod is in the peer, if it is made now; see Amended for one that is there. The error is ErrRefused if the pod itself has
// to be changed.
func ShadowPod(m NamespaceMapping, local *corev1.Pod, options PodOptions) (*vkapply.ShadowPodApplyConfiguration, error) {
	spec := podSpec(local.Spec.DeepCopy())
	var err error
	if spec.Affinity, err = affinity(local, copied(local.Labels, m.Skip.Labels, labels.ShadowPod)); err != nil {
		return nil, err
	}
	projectVolumes(m, local, &spec, options.APIServer.Enabled)
	if options.APIServer.Enabled {
		if err := options.APIServer.give(local, &spec); err != nil {
			return nil, err
		}
	}
	return vkapply.ShadowPod(local.Name, m.Remote).
		WithLabels(m.labelsOf(local, labels.ShadowPod)).WithAnnotations(podAnnotations(m, local)).
		WithSpec(vkapply.ShadowPodSpec().WithFence(string(local.UID)).WithPod(spec)), nil
}

// podAnnotations are without those by which add-ons give pods what pods of peers must not have. The peer refuses them.
func podAnnotations(m NamespaceMapping, local *corev1.Pod) map[string]string {
	kept := m.annotationsOf(local)
	maps.DeleteFunc(kept, func(key, _ string) bool { return shadow.Reach(key) != "" })
	return kept
}

// podSpec has what crosses as it is. What is not named does not: where a pod may run, and with which rank, is the peer's to say.
// It takes the local one to pieces.
func podSpec(local *corev1.PodSpec) corev1.PodSpec {
	no := false
	remote := corev1.PodSpec{
		Volumes: local.Volumes, Containers: local.Containers, InitContainers: local.InitContainers, EphemeralContainers: local.EphemeralContainers,
		RestartPolicy: local.RestartPolicy, ActiveDeadlineSeconds: local.ActiveDeadlineSeconds,
		TerminationGracePeriodSeconds: local.TerminationGracePeriodSeconds, ReadinessGates: local.ReadinessGates,
		DNSPolicy: local.DNSPolicy, DNSConfig: local.DNSConfig, EnableServiceLinks: local.EnableServiceLinks, HostAliases: local.HostAliases,
		Hostname: local.Hostname, Subdomain: local.Subdomain, SetHostnameAsFQDN: local.SetHostnameAsFQDN, HostnameOverride: local.HostnameOverride,
		ImagePullSecrets: local.ImagePullSecrets, Resources: withoutClaims(local.Resources),
		SecurityContext: local.SecurityContext, ShareProcessNamespace: local.ShareProcessNamespace, HostUsers: local.HostUsers,
		TopologySpreadConstraints: local.TopologySpreadConstraints,
		Tolerations: slices.DeleteFunc(asMade(local.Tolerations), func(toleration corev1.Toleration) bool {
			return toleration.Key == labels.TaintVirtualNode
		}),
		AutomountServiceAccountToken: &no, // its tokens are of this cluster, and come in a Secret
	}
	eachContainer(&remote, func(container *corev1.Container) {
		container.Resources.Claims = nil
		if local.HostNetwork { // these ports are what Kubernetes filled in for the network of the host
			for i := range container.Ports {
				container.Ports[i].HostPort = 0
			}
		}
	})
	return remote
}

func withoutClaims(resources *corev1.ResourceRequirements) *corev1.ResourceRequirements {
	if resources != nil {
		resources.Claims = nil
	}
	return resources
}

// eachContainer changes all containers of a pod, of whatever kind.
func eachContainer(spec *corev1.PodSpec, change func(*corev1.Container)) {
	for i := range spec.InitContainers {
		change(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		change(&spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		container := corev1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon)
		change(&container)
		spec.EphemeralContainers[i].EphemeralContainerCommon = corev1.EphemeralContainerCommon(container)
	}
}

// projectVolumes makes volumes and variables name what they name here: the certificate of our API server, and the tokens of a pod of ours.
func projectVolumes(m NamespaceMapping, local *corev1.Pod, spec *corev1.PodSpec, tokens bool) {
	for i := range spec.Volumes {
		volume := &spec.Volumes[i]
		if volume.ConfigMap != nil {
			volume.ConfigMap.Name = ConfigMapName(m, volume.ConfigMap.Name)
		}
		if volume.Projected == nil {
			continue
		}
		for i := range volume.Projected.Sources {
			if source := volume.Projected.Sources[i].ConfigMap; source != nil {
				source.Name = ConfigMapName(m, source.Name)
			}
		}
		volume.Projected.Sources = tokenSources(local, volume.Name, volume.Projected.Sources, tokens)
	}
	eachContainer(spec, func(container *corev1.Container) {
		for i := range container.EnvFrom {
			if source := container.EnvFrom[i].ConfigMapRef; source != nil {
				source.Name = ConfigMapName(m, source.Name)
			}
		}
		for i := range container.Env {
			if from := container.Env[i].ValueFrom; from != nil && from.ConfigMapKeyRef != nil {
				from.ConfigMapKeyRef.Name = ConfigMapName(m, from.ConfigMapKeyRef.Name)
			}
		}
	})
}

// Lost names what a pod asks for and does not have in a peer, for an event: it runs without.
func Lost(local *corev1.Pod) []string {
	var lost []string
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"hostNetwork", local.Spec.HostNetwork},
		{"hostPID", local.Spec.HostPID},
		{"hostIPC", local.Spec.HostIPC},
		{"runtimeClassName", local.Spec.RuntimeClassName != nil},
		{"resourceClaims", len(local.Spec.ResourceClaims) > 0},
		{"podCertificate", slices.ContainsFunc(local.Spec.Volumes, func(volume corev1.Volume) bool {
			return volume.Projected != nil && slices.ContainsFunc(volume.Projected.Sources, certified)
		})},
	} {
		if field.set {
			lost = append(lost, field.name)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(local.Annotations)) {
		if shadow.Reach(key) != "" {
			lost = append(lost, "annotation "+key)
		}
	}
	return lost
}

// Amended is a specification that the peer has already, with what changed since in the wish for it, as far as Kubernetes takes changes of a
// pod. The rest stays as the pod was made, whatever is decided for new ones.
func Amended(there, wish *corev1.PodSpec) *corev1.PodSpec {
	amended := there.DeepCopy()
	for _, pair := range [][2][]corev1.Container{{amended.InitContainers, wish.InitContainers}, {amended.Containers, wish.Containers}} {
		for i := range pair[0] {
			for _, container := range pair[1] {
				if container.Name == pair[0][i].Name && container.Image != "" {
					pair[0][i].Image = container.Image
				}
			}
		}
	}
	if deadline := wish.ActiveDeadlineSeconds; deadline != nil && (there.ActiveDeadlineSeconds == nil || *deadline < *there.ActiveDeadlineSeconds) {
		amended.ActiveDeadlineSeconds = some(*deadline)
	}
	for _, toleration := range wish.Tolerations {
		if !slices.ContainsFunc(amended.Tolerations, func(has corev1.Toleration) bool { return reflect.DeepEqual(has, toleration) }) {
			amended.Tolerations = append(amended.Tolerations, *toleration.DeepCopy())
		}
	}
	for _, container := range wish.EphemeralContainers {
		if !slices.ContainsFunc(amended.EphemeralContainers, func(has corev1.EphemeralContainer) bool { return has.Name == container.Name }) {
			amended.EphemeralContainers = append(amended.EphemeralContainers, *container.DeepCopy())
		}
	}
	return amended
}

// refused says which field of a pod, what was seen there, and what to try.
func refused(field, seen, try string) error {
	return fmt.Errorf("%w: %s is %q; %s", ErrRefused, field, seen, try)
}
