// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/deployments/liqo/charttest"
	"liqo.io/liqo/internal/kube/kubetest"
)

// TestAttackM14: an attacker who may create pods in the namespace of Liqo, which cannot enforce a Pod Security Standard, gets no node with them.
func TestAttackM14(t *testing.T) {
	ctx, _, root := installed(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}}
	if err := root.Get(ctx, client.ObjectKeyFromObject(namespace), namespace); err != nil {
		t.Fatal(err)
	}
	namespace.Labels["app.kubernetes.io/part-of"] = "liqo" // as liqoctl creates it
	if err := root.Update(ctx, namespace); err != nil {
		t.Fatal(err)
	}
	// The pods of the chart as their controllers create them.
	pods := map[string]*corev1.Pod{}
	for _, object := range charttest.Render(t, charttest.Lavish) {
		switch object.GetKind() {
		case "Deployment", "DaemonSet", "Job":
		default:
			continue
		}
		var template corev1.PodTemplateSpec
		raw, _ := charttest.Field(t, object, "spec", "template").(map[string]any)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &template); err != nil {
			t.Fatal(err)
		}
		pods[object.GetName()] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "try", Labels: template.Labels}, Spec: template.Spec}
	}
	if len(pods) < 7 {
		t.Fatalf("the chart has pods of %d objects", len(pods))
	}
	try := func(pod *corev1.Pod, change func(*corev1.Pod)) error {
		pod = pod.DeepCopy()
		pod.Spec.PriorityClassName = "" // the API server of this test has none
		if change != nil {
			change(pod)
		}
		return root.Create(ctx, pod, client.DryRunAll)
	}
	escape := func(pod *corev1.Pod) {
		pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	}
	kubetest.Eventually(t, "the API server applies the policy", func() error {
		if try(pods["liqo-auth"], escape) != nil {
			return nil
		}
		return errors.New("a privileged pod is admitted")
	})
	for name, pod := range pods {
		if err := try(pod, nil); err != nil {
			t.Errorf("%s itself: %v", name, err)
		}
	}
	volume := func(source corev1.VolumeSource) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "x", VolumeSource: source})
		}
	}
	attacks := map[string]func(*corev1.Pod){
		"privileged": func(pod *corev1.Pod) {
			escape(pod)
			pod.Spec.Containers[0].Image = "evil"
		},
		"another image": func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "evil" },
		"another init image": func(pod *corev1.Pod) {
			pod.Spec.InitContainers = append(slices.Clone(pod.Spec.InitContainers), corev1.Container{Name: "x", Image: "evil"})
		},
		"another program":  func(pod *corev1.Pod) { pod.Spec.Containers[0].Command = []string{"/var/run/wireguard/evil"} },
		"another role":     func(pod *corev1.Pod) { pod.Spec.Containers[0].Args = []string{"controller-manager"} },
		"no arguments":     func(pod *corev1.Pod) { pod.Spec.Containers[0].Args = nil },
		"the node's files": volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}),
		"another account":  func(pod *corev1.Pod) { pod.Spec.ServiceAccountName = "liqo-controller-manager" },
		"a program in place of ours": func(pod *corev1.Pod) {
			volume(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "evil"}}})(pod)
			pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "x", MountPath: "/usr/bin"})
		},
	}
	for _, name := range []string{"liqo-gateway", "liqo-route"} {
		for attack, change := range attacks {
			if err := try(pods[name], change); err == nil || !strings.Contains(err.Error(), "liqo-install-namespace") {
				t.Errorf("%s with %s: %v", name, attack, err)
			}
		}
	}
	for attack, change := range map[string]func(*corev1.Pod){
		"the node's network":   func(pod *corev1.Pod) { pod.Spec.HostNetwork = true },
		"the node's processes": func(pod *corev1.Pod) { pod.Spec.HostPID = true },
		"the node's files":     volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}),
		"capabilities": func(pod *corev1.Pod) {
			pod.Spec.Containers[0].SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADMIN"}
		},
		"root": func(pod *corev1.Pod) { pod.Spec.SecurityContext.RunAsNonRoot = nil },
		"the gateways' account, and no part of them": func(pod *corev1.Pod) {
			escape(pod)
			pod.Spec.ServiceAccountName = "liqo-gateway"
		},
	} {
		if err := try(pods["liqo-auth"], change); err == nil || !strings.Contains(err.Error(), "liqo-install-namespace") {
			t.Errorf("another pod with %s: %v", attack, err)
		}
	}
	// Another namespace, and this one if an administrator shares it with other programs, stay as they are.
	elsewhere := pods["liqo-auth"].DeepCopy()
	elsewhere.Namespace, elsewhere.Spec.ServiceAccountName = "default", "default"
	if err := try(elsewhere, escape); err != nil {
		t.Errorf("in another namespace: %v", err)
	}
}
