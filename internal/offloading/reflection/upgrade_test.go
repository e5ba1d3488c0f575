// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/reflection/project"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
)

// readsOf returns the reads since the last reset whose path contains a text.
func (r *requests) readsOf(part string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.reads), func(path string) bool { return !strings.Contains(path, part) })
}

// TestUpgrade: a pod that an earlier version projected, with other variables, aliases and fields, stays as it is. The upgrade writes nothing, and a later
// change of its labels costs what it cost before: one write, and no reading of the ShadowPod each time.
func TestUpgrade(t *testing.T) {
	e := newEnv(t)
	e.options = func(o *Options) {
		o.APIServer = func() (podspec.APIServer, error) {
			return podspec.APIServer{Enabled: true, Address: netip.MustParseAddr("10.60.0.1"), ServicePort: "443"}, nil
		}
	}
	local, remoteNS := e.offload()
	e.runProvider(remoteNS)
	pod := e.pod(local, "web")
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{
		Name:      "POD_NAMESPACE",
		ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}},
	}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "info", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		Items: []corev1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}},
	}}}}
	e.must(e.consumer.Create(t.Context(), pod))
	mapping := project.NamespaceMapping{LocalID: localID, LocalName: "rome", RemoteID: remoteID, NodeName: e.node, Local: local, Remote: remoteNS}
	old, err := podspec.ShadowPod(mapping, pod, podspec.Options{})
	e.must(err)
	old.Spec.Pod.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: "KUBERNETES_SERVICE_HOST", Value: "kubernetes.default"})
	old.Spec.Pod.Volumes = pod.Spec.Volumes
	old.Annotations = map[string]string{labels.Fence: string(pod.UID)}
	e.must(e.provider.Apply(t.Context(), old, client.FieldOwner(labels.OwnerReflection), client.ForceOwnership))
	shadow := &vkv1alpha1.ShadowPod{ObjectMeta: named(remoteNS, "web")}
	e.must(e.provider.Get(t.Context(), client.ObjectKeyFromObject(shadow), shadow))
	before := shadow.DeepCopy()

	e.run()
	e.untilPod(local, "web", "Ready", isReady)
	e.waitIdle()
	if got := e.toProvider.writesTo("shadowpods"); len(got) != 0 {
		t.Errorf("the upgrade writes %v", got)
	}
	e.toProvider.reset()
	changed := &corev1.Pod{ObjectMeta: named(local, "web")}
	for _, version := range []string{"1", "2", "3"} {
		e.edit(e.consumer, changed, func() { changed.Labels["version"] = version })
		e.until("the label follows", func() bool { return e.exists(e.provider, shadow) && shadow.Labels["version"] == version })
		e.waitIdle()
	}
	if writes, reads := e.toProvider.writesTo("shadowpods"), e.toProvider.readsOf("shadowpods"); len(writes) != 3 || len(reads) != 3 {
		t.Errorf("three changes cost the writes %v and the reads %v", writes, reads)
	}
	e.toProvider.reset()
	for range 3 {
		e.reflection.pods.Outbound.Add(client.ObjectKeyFromObject(changed))
		e.waitIdle()
	}
	if writes, reads := e.toProvider.writesTo("shadowpods"), e.toProvider.readsOf("shadowpods"); len(writes)+len(reads) != 0 {
		t.Errorf("nothing has changed: writes %v, reads %v", writes, reads)
	}
	if got, want := shadow.Spec.Pod, before.Spec.Pod; got.String() != want.String() {
		t.Errorf("the pod has become\n%s, was\n%s", got.String(), want.String())
	}
	for key := range shadow.Annotations {
		if strings.HasPrefix(key, labels.Downward) {
			t.Errorf("annotation %s, which no container reads", key)
		}
	}
}

// TestPodAddress: a pod that reads the address that this cluster shows gets it, which costs one more write; other pods do not.
func TestPodAddress(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.runProvider(remoteNS)
	e.run()
	reads := e.pod(local, "reads")
	reads.Spec.Volumes = []corev1.Volume{{Name: "info", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		Items: []corev1.DownwardAPIVolumeFile{{Path: "ip", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['" + labels.PodIP + "']"}}},
	}}}}
	e.must(e.consumer.Create(t.Context(), reads))
	e.must(e.consumer.Create(t.Context(), e.pod(local, "other")))
	e.untilPod(local, "other", "Ready", isReady)
	shown := e.untilPod(local, "reads", "Ready", isReady).Status.PodIP
	shadow := &vkv1alpha1.ShadowPod{ObjectMeta: named(remoteNS, "reads")}
	e.until("the address follows", func() bool {
		return e.exists(e.provider, shadow) && slices.ContainsFunc(slices.Collect(maps.Keys(shadow.Annotations)), func(key string) bool {
			return strings.HasPrefix(key, labels.Downward) && shadow.Annotations[key] == shown
		})
	})
	e.waitIdle()
	if got := e.toProvider.writesTo("shadowpods/reads"); len(got) != 2 {
		t.Errorf("written: %v", got)
	}
	if got := e.toProvider.writesTo("shadowpods/other"); len(got) != 1 {
		t.Errorf("written: %v", got)
	}
}
