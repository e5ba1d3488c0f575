// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestReferences: every place of a pod that names a ConfigMap or a Secret.
func TestReferences(t *testing.T) {
	named := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	secretVariable := func(name string) corev1.EnvVar {
		return corev1.EnvVar{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named(name)}}}
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		ImagePullSecrets: []corev1.LocalObjectReference{named("registry"), named("")},
		InitContainers:   []corev1.Container{{Env: []corev1.EnvVar{secretVariable("init"), {Value: "x"}}}},
		Containers: []corev1.Container{{
			Env: []corev1.EnvVar{
				{ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: named("variable")}}},
				{ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
				secretVariable("init"),
			},
			EnvFrom: []corev1.EnvFromSource{
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: named("all")}}, {ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named("all")}},
			},
		}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Env: []corev1.EnvVar{secretVariable("debug")}}}},
		Volumes: []corev1.Volume{
			{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "volume"}}},
			{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: named("volume")}}},
			{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: &corev1.LocalObjectReference{Name: "csi"}}}},
			{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{Secret: &corev1.SecretProjection{LocalObjectReference: named("projected")}},
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: named("kube-root-ca.crt")}},
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}},
			}}}},
		},
	}}
	want := []Reference{
		{"Secret", "registry"},
		{"Secret", "volume"},
		{"ConfigMap", "volume"},
		{"Secret", "csi"},
		{"Secret", "projected"},
		{"ConfigMap", "kube-root-ca.crt"},
		{"Secret", "init"},
		{"ConfigMap", "variable"},
		{"Secret", "all"},
		{"ConfigMap", "all"},
		{"Secret", "debug"},
	}
	if got := References(pod); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
