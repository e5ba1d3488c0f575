// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestDropped(t *testing.T) {
	sent := func(change func(*corev1.PodSpec)) *corev1.PodSpec {
		spec := &corev1.PodSpec{
			HostUsers: new(false), Hostname: "web", HostnameOverride: new("web.example.com"),
			Volumes: []corev1.Volume{
				{Name: "model", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "model:1"}}},
				{Name: "all", VolumeSource: corev1.VolumeSource{
					Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ConfigMap: &corev1.ConfigMapProjection{}}}},
				}},
			},
			Containers: []corev1.Container{{
				Name: "main", Command: []string{"a", "b"}, Lifecycle: &corev1.Lifecycle{StopSignal: new(corev1.SIGUSR1)},
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 1}}, PeriodSeconds: 1},
				Env:            []corev1.EnvVar{{Name: "A", Value: "a"}},
				VolumeMounts:   []corev1.VolumeMount{{Name: "all", MountPath: "/a", BindMountOptions: []string{"noexec"}}},
			}},
			Tolerations: []corev1.Toleration{{Key: "a"}},
		}
		change(spec)
		return spec
	}
	for name, test := range map[string]struct {
		has  func(*corev1.PodSpec)
		want []string
	}{
		"everything is there": {func(*corev1.PodSpec) {}, nil},
		"what an API server does not have": {func(s *corev1.PodSpec) {
			s.HostUsers, s.HostnameOverride, s.Volumes[0].VolumeSource = nil, nil, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
			s.Containers[0].Lifecycle.StopSignal, s.Containers[0].ReadinessProbe.GRPC, s.Containers[0].VolumeMounts[0].BindMountOptions = nil, nil, nil
		}, []string{
			"volumes[model].image", "containers[main].volumeMounts[all].bindMountOptions", "containers[main].readinessProbe.grpc",
			"containers[main].lifecycle.stopSignal", "hostUsers", "hostnameOverride",
		}},
		"what it adds, and what admission changes, adds and removes": {func(s *corev1.PodSpec) {
			s.DNSPolicy, s.Hostname, s.Tolerations = corev1.DNSClusterFirst, "another", append([]corev1.Toleration{{Key: "b"}}, s.Tolerations...)
			s.Containers = append([]corev1.Container{{Name: "injected"}}, s.Containers...)
			s.Containers[1].Command, s.Containers[1].Env[0].Name = []string{"c"}, "B"
			s.Volumes[1].Projected.Sources = append(s.Volumes[1].Projected.Sources, corev1.VolumeProjection{})
		}, nil},
		"a list": {func(s *corev1.PodSpec) { s.Tolerations, s.Containers[0].Env = []corev1.Toleration{}, nil }, []string{"containers[main].env", "tolerations"}},
	} {
		if got := Dropped(sent(func(*corev1.PodSpec) {}), sent(test.has)); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	twice := func(change func([]corev1.VolumeMount)) *corev1.PodSpec {
		mounts := []corev1.VolumeMount{{Name: "all", MountPath: "/a"}, {Name: "all", MountPath: "/b", SubPath: "x", ReadOnly: true}, {Name: "all", MountPath: "/c"}}
		change(mounts)
		return &corev1.PodSpec{Containers: []corev1.Container{{Name: "main", VolumeMounts: mounts}}}
	}
	same := twice(func([]corev1.VolumeMount) {})
	if got := Dropped(same, same); got != nil {
		t.Errorf("a volume that is mounted three times: %q", got)
	}
	if got := Dropped(same, twice(func(m []corev1.VolumeMount) {
		m[1].SubPath = ""
	})); !slices.Equal(got, []string{"containers[main].volumeMounts[all].subPath"}) {
		t.Errorf("a mount without its path: %q", got)
	}
	injected := twice(func([]corev1.VolumeMount) {})
	injected.Containers[0].VolumeMounts = append([]corev1.VolumeMount{{Name: "injected"}}, injected.Containers[0].VolumeMounts...)
	if got := Dropped(same, injected); got != nil {
		t.Errorf("a volume that is mounted three times, and one that admission adds: %q", got)
	}
	var long corev1.PodSpec
	long.Containers = []corev1.Container{{Name: "main"}}
	for i := range 100_000 { // a search for each of them would take minutes
		long.Containers[0].Env = append(long.Containers[0].Env, corev1.EnvVar{Name: strconv.Itoa(i), Value: "a"})
	}
	if got := Dropped(&long, &long); got != nil {
		t.Errorf("many variables: %q", got)
	}
	var many, none corev1.PodSpec
	for i := range 64 {
		name := string(rune('A' + i))
		many.Containers, none.Containers = append(many.Containers, corev1.Container{Name: name, Image: "a"}), append(none.Containers, corev1.Container{Name: name})
	}
	if got := Dropped(&many, &none); len(got) != maxDropped {
		t.Errorf("%d names", len(got))
	}
}

func TestIsolating(t *testing.T) {
	local, enabled, ifPossible := &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost}, corev1.RecursiveReadOnlyEnabled,
		corev1.RecursiveReadOnlyIfPossible
	strict, merge := corev1.SupplementalGroupsPolicyStrict, corev1.SupplementalGroupsPolicyMerge
	mount := func(volumeMount corev1.VolumeMount) corev1.PodSpec {
		return corev1.PodSpec{InitContainers: []corev1.Container{{VolumeMounts: []corev1.VolumeMount{volumeMount}}}}
	}
	for name, test := range map[string]struct {
		spec corev1.PodSpec
		want string
	}{
		"nothing":                    {corev1.PodSpec{Containers: []corev1.Container{{}}}, ""},
		"a user namespace":           {corev1.PodSpec{HostUsers: new(false)}, "hostUsers"},
		"none":                       {corev1.PodSpec{HostUsers: new(true)}, ""},
		"only the groups of the pod": {corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{SupplementalGroupsPolicy: &strict}}, "supplementalGroupsPolicy"},
		"those of the image as well": {corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{SupplementalGroupsPolicy: &merge}}, ""},
		"a profile":                  {corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{AppArmorProfile: local}}, "appArmorProfile"},
		"a profile of a container": {
			corev1.PodSpec{Containers: []corev1.Container{{SecurityContext: &corev1.SecurityContext{AppArmorProfile: local}}}}, "appArmorProfile",
		},
		"mounts below that are ro":    {mount(corev1.VolumeMount{RecursiveReadOnly: &enabled}), "recursiveReadOnly"},
		"the same, if it is possible": {mount(corev1.VolumeMount{RecursiveReadOnly: &ifPossible}), ""},
		"a mount without programs":    {mount(corev1.VolumeMount{BindMountOptions: []string{"noexec"}}), "bindMountOptions"},
	} {
		if got := Isolating(&test.spec); len(got) > 1 || len(got) == 1 != (test.want != "") || test.want != "" && got[0] != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
