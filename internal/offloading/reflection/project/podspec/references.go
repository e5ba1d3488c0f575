// SPDX-License-Identifier: Apache-2.0

package podspec

import corev1 "k8s.io/api/core/v1"

// Reference is a ConfigMap or Secret that another object of its namespace names.
type Reference struct{ Kind, Name string }

// References returns the ConfigMaps and Secrets that a pod refers to, each once.
func References(pod *corev1.Pod) []Reference {
	var found collector
	for _, secret := range pod.Spec.ImagePullSecrets {
		found.secret(secret.Name)
	}
	for i := range pod.Spec.Volumes {
		found.volume(&pod.Spec.Volumes[i])
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			found.environment(containers[i].Env, containers[i].EnvFrom)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		found.environment(pod.Spec.EphemeralContainers[i].Env, pod.Spec.EphemeralContainers[i].EnvFrom)
	}
	return found.all
}

type collector struct {
	all  []Reference
	seen map[Reference]bool
}

func (c *collector) add(kind, name string) {
	reference := Reference{kind, name}
	if name == "" || c.seen[reference] {
		return
	}
	if c.seen == nil {
		c.seen = map[Reference]bool{}
	}
	c.seen[reference] = true
	c.all = append(c.all, reference)
}

func (c *collector) secret(name string)    { c.add("Secret", name) }
func (c *collector) configMap(name string) { c.add("ConfigMap", name) }

func (c *collector) environment(variables []corev1.EnvVar, from []corev1.EnvFromSource) {
	for _, variable := range variables {
		switch source := variable.ValueFrom; {
		case source == nil:
		case source.SecretKeyRef != nil:
			c.secret(source.SecretKeyRef.Name)
		case source.ConfigMapKeyRef != nil:
			c.configMap(source.ConfigMapKeyRef.Name)
		}
	}
	for _, source := range from {
		switch {
		case source.SecretRef != nil:
			c.secret(source.SecretRef.Name)
		case source.ConfigMapRef != nil:
			c.configMap(source.ConfigMapRef.Name)
		}
	}
}

// volume knows the volumes that pods of peers may have. The providers refuse those of storage systems that name Secrets.
func (c *collector) volume(volume *corev1.Volume) {
	switch {
	case volume.Secret != nil:
		c.secret(volume.Secret.SecretName)
	case volume.ConfigMap != nil:
		c.configMap(volume.ConfigMap.Name)
	case volume.CSI != nil && volume.CSI.NodePublishSecretRef != nil:
		c.secret(volume.CSI.NodePublishSecretRef.Name)
	case volume.Projected != nil:
		for _, source := range volume.Projected.Sources {
			switch {
			case source.Secret != nil:
				c.secret(source.Secret.Name)
			case source.ConfigMap != nil:
				c.configMap(source.ConfigMap.Name)
			}
		}
	}
}
