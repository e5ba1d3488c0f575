// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/deployments/liqo/charttest"
	"liqo.io/liqo/internal/kube/kubetest"
)

// TestAttackNM3: a peer does not run images that this cluster keeps from it: in containers of any kind and image volumes, from the beginning or
// later, however it spells their registry; nor what lies on a node already, if that is asked for. A pod that ran before the values changed can still
// be changed and ended.
func TestAttackNM3(t *testing.T) {
	ctx, _, root := installed(t)
	const remote = "images-rome-000000"
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: remote, Labels: map[string]string{"liqo.io/remote-cluster-id": "rome"},
			Annotations: map[string]string{"liqo.io/open-remote-namespace": "true"},
		}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: remote, Name: "default"}},
	} {
		if err := root.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
	with := func(image string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Spec.Containers[1].Image = image }
	}
	try := func(change func(*corev1.Pod)) error {
		pod := finalPod(remote, change)
		pod.Name = "tried"
		return root.Create(ctx, pod, client.DryRunAll)
	}
	values := func(set string) {
		t.Helper()
		for _, object := range charttest.Render(t, set) {
			if object.GetName() == "liqo-peers-images" {
				if err := root.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("helm"), client.ForceOwnership); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	refused := func(what string, err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "liqo-peers-images") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want a refusal with %q", what, err, want)
		}
	}
	accepted := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v, want it accepted", what, err)
		}
	}
	private := "registry.provider.example/billing:1"
	accepted("by default", try(with(private)))
	old := finalPod(remote, func(pod *corev1.Pod) {
		with(private)(pod)
		pod.Name, pod.Finalizers = "old", []string{"virtualkubelet.liqo.io/pod-end"}
	})
	web := finalPod(remote, func(*corev1.Pod) {})
	for _, pod := range []*corev1.Pod{old, web} {
		if err := root.Create(ctx, pod); err != nil {
			t.Fatal(err)
		}
	}

	values("peers.images.deny={registry.provider.example/*,quay.io/provider/secret}")
	kubetest.Eventually(t, "the images are denied", func() error {
		if err := try(with(private)); err == nil {
			return fmt.Errorf("%s is accepted", private)
		}
		return nil
	})
	later := func(change func(*corev1.Pod)) error {
		now := web.DeepCopy()
		change(now)
		return root.Update(ctx, now, client.DryRunAll)
	}
	debug := func(image string, policy corev1.PullPolicy) error {
		now := web.DeepCopy()
		now.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debugger", Image: image, ImagePullPolicy: policy, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		}}}
		return root.SubResource("ephemeralcontainers").Update(ctx, now, &client.SubResourceUpdateOptions{
			UpdateOptions: client.UpdateOptions{DryRun: []string{metav1.DryRunAll}},
		})
	}
	volume := func(image string, policy corev1.PullPolicy) func(*corev1.Pod) {
		return volumeOf(corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: image, PullPolicy: policy}})
	}
	const denied = "peers.images.deny"
	for _, image := range []string{
		private, "registry.provider.example/billing@sha256:" + strings.Repeat("a", 64), "REGISTRY.Provider.example/billing",
		"registry.provider.example:443/billing", "quay.io/provider/secret", "quay.io/provider/secret:2",
	} {
		refused("a container", try(with(image)), denied)
	}
	refused("an init container", try(func(pod *corev1.Pod) { pod.Spec.InitContainers = []corev1.Container{{Name: "init", Image: private}} }), denied)
	refused("an image volume", try(volume(private, "")), denied)
	refused("an ephemeral container", debug(private, corev1.PullIfNotPresent), denied)
	refused("another image later", later(with(private)), denied)
	for _, image := range []string{"image", "quay.io/provider/secrets", "docker.io/registry.provider.example/billing", "registry.provider.example.org/billing"} {
		accepted(image, try(with(image)))
	}
	accepted("another image later", later(with("image:2")))
	accepted("an ephemeral container", debug("shell", corev1.PullIfNotPresent))

	values("peers.images.allow={docker.io/library/*,ghcr.io/shop/web:1.*},peers.images.deny={docker.io/library/miner}")
	kubetest.Eventually(t, "only some images are allowed", func() error {
		if err := try(with("quay.io/other/image")); err == nil {
			return fmt.Errorf("quay.io/other/image is accepted")
		}
		return nil
	})
	for _, image := range []string{"nginx", "nginx:1.27", "library/nginx", "docker.io/nginx", "index.docker.io/library/nginx", "ghcr.io/shop/web:1.2"} {
		accepted(image, try(with(image)))
	}
	for _, image := range []string{
		"quay.io/other/image", "shop/web", "ghcr.io/shop/web:2.0", "ghcr.io/shop/web", "localhost/nginx", "nginx.example/library/nginx", private,
	} {
		refused(image, try(with(image)), "peers.images.allow")
	}
	refused("allowed, and denied", try(with("miner:3")), denied)
	if err := root.Get(ctx, client.ObjectKeyFromObject(old), old); err != nil {
		t.Fatal(err)
	}
	old.Labels["tier"] = "back"
	accepted("a label of a pod that runs such an image", root.Update(ctx, old))
	old.Finalizers = nil
	accepted("the end of a pod that runs such an image", root.Update(ctx, old))
	accepted("its deletion", root.Delete(ctx, old, client.GracePeriodSeconds(0)))

	values("peers.images.alwaysPull=true")
	kubetest.Eventually(t, "images are pulled always", func() error {
		if err := try(with("image:1")); err == nil || !strings.Contains(err.Error(), "peers.images.alwaysPull") {
			return fmt.Errorf("the usual policy: %v", err)
		}
		return nil
	})
	const always = "peers.images.alwaysPull"
	refused("an image that is on the node", try(func(pod *corev1.Pod) { pulled(pod); pod.Spec.Containers[1].ImagePullPolicy = corev1.PullNever }), always)
	refused("the usual policy", try(func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "image:1" }), always)
	refused("an init container", try(func(pod *corev1.Pod) {
		pulled(pod)
		pod.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "image:1"}}
	}), always)
	refused("an image volume", try(func(pod *corev1.Pod) { volume("image:1", corev1.PullIfNotPresent)(pod); pulled(pod) }), always)
	accepted("an image volume", try(func(pod *corev1.Pod) { volume("image:1", corev1.PullAlways)(pod); pulled(pod) }))
	refused("an ephemeral container", debug("shell", corev1.PullIfNotPresent), always)
	accepted("an ephemeral container", debug("shell", corev1.PullAlways))
	accepted("any image", try(func(pod *corev1.Pod) { with(private)(pod); pulled(pod) }))
	accepted("a pod that runs", later(func(pod *corev1.Pod) { pod.Labels["tier"] = "back" }))
}

// pulled has a pod pull the images of its containers always.
func pulled(pod *corev1.Pod) {
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].ImagePullPolicy = corev1.PullAlways
	}
}
