// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	vkapply "liqo.io/liqo/apis/applyconfiguration/virtualkubelet/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/metadata"
	"liqo.io/liqo/internal/offloading/reflection/project"
	"liqo.io/liqo/internal/offloading/shadow"
)

// ownPodLabels are labels of pods that have no meaning in another cluster. The API server of this cluster copies zone and region of the node to each pod that
// it binds (Kubernetes 1.35 and later), and that of the other cluster does the same there.
var ownPodLabels = []string{labels.ShadowPod, corev1.LabelTopologyZone, corev1.LabelTopologyRegion}

// Options is what a remote pod gets beyond the specification of the local pod.
type Options struct {
	APIServer APIServer
}

// ShadowPod returns the ShadowPod of a pod that the peer does not have yet; see Amended for an existing one. The error is ErrRefused if the pod has to be
// changed first.
func ShadowPod(m project.NamespaceMapping, local *corev1.Pod, options Options) (*vkapply.ShadowPodApplyConfiguration, error) {
	spec := podSpec(local.Spec.DeepCopy())
	var err error
	if spec.Affinity, err = affinity(local, project.Without(local.Labels, m.Skip.Labels, ownPodLabels...)); err != nil {
		return nil, err
	}
	if spec.TopologySpreadConstraints, err = spread(local, spec.TopologySpreadConstraints); err != nil {
		return nil, err
	}
	projectVolumes(m, local, &spec, options.APIServer.Enabled)
	nameHost(m, local, &spec)
	fields := newDownward(m, local)
	fields.rewrite(&spec)
	if options.APIServer.Enabled {
		if err := options.APIServer.inject(m, local, &spec); err != nil {
			return nil, err
		}
	}
	return vkapply.ShadowPod(local.Name, m.Remote).
		WithLabels(m.LabelsOf(local, ownPodLabels...)).WithAnnotations(fields.addTo(podAnnotations(m, local))).
		WithSpec(vkapply.ShadowPodSpec().WithFence(string(local.UID)).WithPod(spec)), nil
}

// podAnnotations leaves out annotations with which add-ons give pods access that pods of peers must not have. The peer would refuse them.
func podAnnotations(m project.NamespaceMapping, local *corev1.Pod) map[string]string {
	kept := m.AnnotationsOf(local, labels.DeletionPeriod, labels.LocalGeneration)
	maps.DeleteFunc(kept, func(key, _ string) bool { return metadata.Reach(key) != "" })
	if kept == nil {
		kept = map[string]string{}
	}
	if named := architectures(&local.Spec); len(named) > 0 {
		kept[labels.Architectures] = strings.Join(named, ",")
	}
	if servers := homeDNS(m, local.Spec.DNSConfig); len(servers) > 0 {
		kept[labels.HomeDNS] = strings.Join(servers, ",")
	}
	if local.Generation > 1 { // that of a new pod is 1, and costs no annotation
		kept[labels.LocalGeneration] = strconv.FormatInt(local.Generation, 10)
	}
	return kept
}

// podSpec copies the fields that are reflected. The others are not: the peer decides where a pod runs, and with which priority; the controllers behind
// readiness gates are in this cluster (see podstatus.Of). It reuses parts of local.
func podSpec(local *corev1.PodSpec) corev1.PodSpec {
	no := false
	remote := corev1.PodSpec{
		Volumes: local.Volumes, Containers: local.Containers, InitContainers: local.InitContainers, EphemeralContainers: local.EphemeralContainers,
		RestartPolicy: local.RestartPolicy, ActiveDeadlineSeconds: local.ActiveDeadlineSeconds,
		TerminationGracePeriodSeconds: local.TerminationGracePeriodSeconds, DNSPolicy: local.DNSPolicy, DNSConfig: local.DNSConfig,
		EnableServiceLinks: local.EnableServiceLinks, HostAliases: local.HostAliases,
		Hostname: local.Hostname, Subdomain: local.Subdomain, SetHostnameAsFQDN: local.SetHostnameAsFQDN, HostnameOverride: local.HostnameOverride,
		ImagePullSecrets: local.ImagePullSecrets, Resources: withoutClaims(local.Resources),
		SecurityContext: local.SecurityContext, ShareProcessNamespace: local.ShareProcessNamespace, HostUsers: local.HostUsers,
		TopologySpreadConstraints: local.TopologySpreadConstraints, OS: linux(local.OS),
		Tolerations: slices.DeleteFunc(originalTolerations(local.Tolerations), func(toleration corev1.Toleration) bool {
			return toleration.Key == labels.TaintVirtualNode || toleration.Key == labels.TaintNoNewPods
		}),
		AutomountServiceAccountToken: &no, // its tokens are those of this cluster, from a Secret
	}
	eachContainer(&remote, func(container *corev1.Container) {
		container.Resources.Claims = nil
		if local.HostNetwork { // Kubernetes sets the host ports of such pods
			for i := range container.Ports {
				container.Ports[i].HostPort = 0
			}
		}
	})
	return remote
}

// linux returns the system of a pod if it is that of virtual nodes: Kubernetes demands it beside fields of one system, such as stopSignal. Another one would
// keep rules of the peer from the pod that this system does not have.
func linux(os *corev1.PodOS) *corev1.PodOS {
	if os == nil || os.Name != corev1.Linux {
		return nil
	}
	return os
}

func withoutClaims(resources *corev1.ResourceRequirements) *corev1.ResourceRequirements {
	if resources != nil {
		resources.Claims = nil
	}
	return resources
}

// eachContainer calls change for all containers of a pod: init, regular and ephemeral.
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

// projectVolumes makes volumes and variables refer to the remote names of what they refer to here: the certificate of our API server and the pod's tokens.
func projectVolumes(m project.NamespaceMapping, local *corev1.Pod, spec *corev1.PodSpec, tokens bool) {
	for i := range spec.Volumes {
		volume := &spec.Volumes[i]
		if volume.ConfigMap != nil {
			volume.ConfigMap.Name = project.ConfigMapName(m, volume.ConfigMap.Name)
		}
		if volume.Projected == nil {
			continue
		}
		for i := range volume.Projected.Sources {
			if source := volume.Projected.Sources[i].ConfigMap; source != nil {
				source.Name = project.ConfigMapName(m, source.Name)
			}
		}
		volume.Projected.Sources = tokenSources(local, volume, tokens)
	}
	eachContainer(spec, func(container *corev1.Container) {
		for i := range container.EnvFrom {
			if source := container.EnvFrom[i].ConfigMapRef; source != nil {
				source.Name = project.ConfigMapName(m, source.Name)
			}
		}
		for i := range container.Env {
			if from := container.Env[i].ValueFrom; from != nil && from.ConfigMapKeyRef != nil {
				from.ConfigMapKeyRef.Name = project.ConfigMapName(m, from.ConfigMapKeyRef.Name)
			}
		}
	})
}

// Amended returns the specification of an existing ShadowPod with those changes of the intent that Kubernetes allows for a pod. All other fields stay as
// they were when the pod was created, whatever new pods get.
func Amended(existing, intent *corev1.PodSpec) *corev1.PodSpec {
	amended := existing.DeepCopy()
	for _, lists := range [][2][]corev1.Container{{amended.InitContainers, intent.InitContainers}, {amended.Containers, intent.Containers}} {
		for i := range lists[0] {
			for _, container := range lists[1] {
				if container.Name != lists[0][i].Name {
					continue
				}
				if container.Image != "" {
					lists[0][i].Image = container.Image
				}
				lists[0][i].Resources = *shadow.Resize(&lists[0][i].Resources, &container.Resources)
			}
		}
	}
	if amended.Resources != nil && intent.Resources != nil {
		amended.Resources = shadow.Resize(amended.Resources, intent.Resources)
	}
	if deadline := intent.ActiveDeadlineSeconds; deadline != nil && (existing.ActiveDeadlineSeconds == nil || *deadline < *existing.ActiveDeadlineSeconds) {
		amended.ActiveDeadlineSeconds = project.Some(*deadline)
	}
	for _, toleration := range intent.Tolerations {
		if !slices.ContainsFunc(amended.Tolerations, func(has corev1.Toleration) bool { return reflect.DeepEqual(has, toleration) }) {
			amended.Tolerations = append(amended.Tolerations, *toleration.DeepCopy())
		}
	}
	for _, container := range intent.EphemeralContainers {
		if !slices.ContainsFunc(amended.EphemeralContainers, func(has corev1.EphemeralContainer) bool { return has.Name == container.Name }) {
			amended.EphemeralContainers = append(amended.EphemeralContainers, *container.DeepCopy())
		}
	}
	return amended
}

// refused returns an ErrRefused that names the field of a pod, its value, and what to try.
func refused(field, value, try string) error {
	return fmt.Errorf("%w: %s is %q; %s", project.ErrRefused, field, value, try)
}
