// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vkapply "liqo.io/liqo/apis/applyconfiguration/virtualkubelet/v1alpha1"
	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

func withCPU(amount string) corev1.Container {
	cpu := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
	return corev1.Container{Name: "web", Image: "web:1", Resources: corev1.ResourceRequirements{Requests: cpu, Limits: cpu}}
}

// TestWithout: what the peer refuses of a change stays as it is there, and the rest of the change is applied, without the generation that asked for all of it.
func TestWithout(t *testing.T) {
	debug := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "debug:1"}}
	full := &vkv1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{UID: "s"},
		Spec:       vkv1alpha1.ShadowPodSpec{Pod: corev1.PodSpec{Containers: []corev1.Container{withCPU("1")}}},
	}
	wanted := corev1.PodSpec{Containers: []corev1.Container{withCPU("2")}, EphemeralContainers: []corev1.EphemeralContainer{debug}}
	wanted.Containers[0].Image = "web:2"
	want := vkapply.ShadowPod("web", "shop").WithAnnotations(map[string]string{labels.LocalGeneration: "3", "note": "x"}).
		WithSpec(vkapply.ShadowPodSpec().WithFence("f").WithPod(wanted))
	changed := Amended(want, full)
	if changed.UID == nil || *changed.UID != "s" {
		t.Errorf("the change of the ShadowPod with the UID s is one of %v", changed.UID)
	}
	if parts := PartsOf(changed, full); !slices.Equal(parts, []Part{Ephemeral, Resources}) {
		t.Errorf("parts %v", parts)
	}
	for name, c := range map[string]struct {
		refused    []Part
		cpu        string
		debugs     int
		generation string
	}{
		"nothing":    {nil, "2", 1, "3"},
		"containers": {[]Part{Ephemeral}, "2", 0, ""},
		"resources":  {[]Part{Resources}, "1", 1, ""},
		"both":       {[]Part{Ephemeral, Resources}, "1", 0, ""},
	} {
		got := Without(changed, full, c.refused)
		pod := got.Spec.Pod
		if cpu := pod.Containers[0].Resources.Requests.Cpu(); cpu.String() != c.cpu || len(pod.EphemeralContainers) != c.debugs ||
			pod.Containers[0].Image != "web:2" {
			t.Errorf("%s is refused: cpu %s, %d ephemeral containers, image %s", name, cpu, len(pod.EphemeralContainers), pod.Containers[0].Image)
		}
		if got.Annotations[labels.LocalGeneration] != c.generation || got.Annotations["note"] != "x" {
			t.Errorf("%s is refused: annotations %v", name, got.Annotations)
		}
	}
	if changed.Annotations[labels.LocalGeneration] != "3" || len(PartsOf(changed, full)) != 2 {
		t.Errorf("the intent has changed: %+v", changed)
	}
}

// TestAffects: what this cluster writes itself about a pod sends nothing.
func TestAffects(t *testing.T) {
	reads := corev1.PodSpec{Containers: []corev1.Container{{Env: []corev1.EnvVar{{Name: "IP", ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['" + labels.PodIP + "']"},
	}}}}}}
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"nothing":                    {func(*corev1.Pod) {}, false},
		"the specification":          {func(p *corev1.Pod) { p.Generation = 2 }, true},
		"a server without the field": {func(p *corev1.Pod) { p.Generation = 0 }, true},
		"a label":                    {func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} }, true},
		"our label":                  {func(p *corev1.Pod) { p.Labels = map[string]string{labels.ShadowPod: "true"} }, false},
		"an annotation":              {func(p *corev1.Pod) { p.Annotations = map[string]string{"note": "x"} }, true},
		"readiness":                  {func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady}} }, false},
		"the end":                    {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, true},
		"deletion":                   {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, true},
		"a shorter grace period":     {func(p *corev1.Pod) { p.DeletionGracePeriodSeconds = new(int64(1)) }, true},
		"an address that it reads":   {func(p *corev1.Pod) { p.Spec, p.Status.PodIP = reads, "10.0.0.1" }, true},
		"an address":                 {func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.1" }, false},
	} {
		old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Generation: 1}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		now := old.DeepCopy()
		c.change(now)
		if got := Affects(old, now); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// TestWithClaims: a pod uses the claims of the peer that have its data, also those of its ephemeral volumes; the local pod stays as it is.
func TestWithClaims(t *testing.T) {
	claim := func(name string) corev1.VolumeSource {
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
	}
	volumes := []corev1.Volume{
		{Name: "data", VolumeSource: claim("data")},
		{Name: "other", VolumeSource: claim("other")},
		{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
	}
	local := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.PodSpec{Volumes: volumes}}
	intent := vkapply.ShadowPod("web", "shop-rome").WithSpec(vkapply.ShadowPodSpec().WithPod(corev1.PodSpec{Volumes: slices.Clone(volumes)}))
	WithClaims(local, intent, func(namespace, claim string) (string, bool) {
		name, ok := map[string]string{"shop/data": "data-1", "shop/web-scratch": "scratch-1"}[namespace+"/"+claim]
		return name, ok
	})
	var got []string
	for _, volume := range intent.Spec.Pod.Volumes {
		got = append(got, volume.PersistentVolumeClaim.ClaimName)
	}
	if want := []string{"data-1", "other", "scratch-1"}; !slices.Equal(got, want) {
		t.Errorf("claims %v, want %v", got, want)
	}
	if local.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "data" {
		t.Error("the local pod has changed")
	}
}
