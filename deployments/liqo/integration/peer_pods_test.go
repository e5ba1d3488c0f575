// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/deployments/liqo/charttest"
	"liqo.io/liqo/internal/kube/kubetest"
)

// finalPod returns a pod as Liqo makes it for a peer, after a webhook of the provider has changed it.
func finalPod(namespace string, change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "web",
			Labels: map[string]string{"virtualkubelet.liqo.io/origin": "rome", "liqo.io/managed-by": "shadowpod"},
		},
		Spec: corev1.PodSpec{
			ServiceAccountName: "default", AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{Name: "c", Image: "image"}, {Name: "side-car", Image: "injected"}},
		},
	}
	change(pod)
	return pod
}

func volumeOf(source corev1.VolumeSource) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: source}} }
}

func projectedOf(source corev1.VolumeProjection) func(*corev1.Pod) {
	return volumeOf(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{source}}})
}

func contextOf(context corev1.SecurityContext) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.Containers[1].SecurityContext = &context }
}

// always are changes that no level allows, levelled those that the level baseline forbids, and their refusals.
var (
	always = []struct {
		what   string
		change func(*corev1.Pod)
		want   string
	}{
		{"a token", projectedOf(corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}), "token"},
		{"the usual token", func(pod *corev1.Pod) { pod.Spec.AutomountServiceAccountToken = new(true) }, "token"},
		{"another account", func(pod *corev1.Pod) { pod.Spec.ServiceAccountName = "other" }, "service account"},
		{"the node's network", func(pod *corev1.Pod) { pod.Spec.HostNetwork = true }, "its node"},
		{"the node's processes", func(pod *corev1.Pod) { pod.Spec.HostPID = true }, "its node"},
	}
	levelled = []struct {
		what   string
		change func(*corev1.Pod)
		want   string
	}{
		{"a path of the node", volumeOf(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}), "volumes of its node"},
		{"a driver", volumeOf(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "csi-image.warm-metal.tech"}}), "volumes of its node"},
		{"a file server", volumeOf(corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/"}}), "volumes of its node"},
		{"privileges", contextOf(corev1.SecurityContext{Privileged: new(true)}), "privileged"},
		{"a capability", contextOf(corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}}}), "capabilities"},
		{"a capability of an init container", func(pod *corev1.Pod) {
			pod.Spec.InitContainers = []corev1.Container{
				{Name: "init", Image: "injected", SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_RAW"}}}},
			}
		}, "capabilities"},
		{"a port of the node", func(pod *corev1.Pod) {
			pod.Spec.Containers[1].Ports = []corev1.ContainerPort{{ContainerPort: 22, HostPort: 22}}
		}, "ports of its node"},
		{"no seccomp", contextOf(corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}}), "seccomp"},
		{"no seccomp for the pod", func(pod *corev1.Pod) {
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}}
		}, "seccomp"},
		{"no AppArmor", contextOf(corev1.SecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}}), "AppArmor"},
		{"another type of SELinux", contextOf(corev1.SecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Type: "spc_t"}}), "SELinux"},
		{"a switch of the kernel", func(pod *corev1.Pod) {
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel.msgmax", Value: "1"}}}
		}, "sysctls"},
		{"a request of the node", func(pod *corev1.Pod) {
			pod.Spec.Containers[1].LivenessProbe = &corev1.Probe{
				ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "169.254.169.254", Port: intstr.FromInt32(80)}},
			}
		}, "probes"},
		{"a request of the node, at last", func(pod *corev1.Pod) {
			pod.Spec.Containers[1].Lifecycle = &corev1.Lifecycle{
				PreStop: &corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{Host: "127.0.0.1", Port: intstr.FromInt32(80)}},
			}
		}, "probes"},
	}
)

// TestAttackM5FinalPod: what webhooks of the provider add to a pod of a peer is checked, too.
func TestAttackM5FinalPod(t *testing.T) {
	ctx, _, root := installed(t)
	const remote = "web-rome-000000"
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: remote, Labels: map[string]string{"liqo.io/remote-cluster-id": "rome"},
			Annotations: map[string]string{"liqo.io/open-remote-namespace": "true"},
		}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: remote, Name: "default"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: remote, Name: "other"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "default"}},
	} {
		if err := root.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
	try := func(namespace string, change func(*corev1.Pod)) error {
		pod := finalPod(namespace, change)
		pod.Name = "tried"
		return root.Create(ctx, pod, client.DryRunAll)
	}
	inForce(t, "liqo-peers-pods", func() error { return try(remote, always[0].change) })
	refused := func(what string, err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "liqo-peers-pods") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want a refusal with %q", what, err, want)
		}
	}
	for _, one := range always {
		refused(one.what, try(remote, one.change), one.want)
	}
	for _, one := range levelled {
		refused(one.what, try(remote, one.change), one.want)
	}
	for what, change := range map[string]func(*corev1.Pod){
		"an ordinary pod": func(*corev1.Pod) {},
		"ordinary volumes": func(pod *corev1.Pod) {
			pod.Spec.Volumes = []corev1.Volume{
				{Name: "a", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "b", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}},
				{Name: "c", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
					Sources: []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "web-token"}}}},
				}}},
				{Name: "d", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}},
			}
		},
		"less than usual": contextOf(corev1.SecurityContext{
			Privileged: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_BIND_SERVICE"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}, SELinuxOptions: &corev1.SELinuxOptions{Level: "s0:c1,c2"},
		}),
		"a probe": func(pod *corev1.Pod) {
			pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80)}}}
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "net.ipv4.tcp_keepalive_time", Value: "60"}}}
		},
	} {
		if err := try(remote, change); err != nil {
			t.Errorf("%s: %v, want it accepted", what, err)
		}
	}
	if err := try("other", levelled[0].change); err != nil {
		t.Errorf("a pod of this cluster: %v", err)
	}

	web := finalPod(remote, func(*corev1.Pod) {})
	if err := root.Create(ctx, web); err != nil {
		t.Fatal(err)
	}
	debug := func(context *corev1.SecurityContext) error {
		now := web.DeepCopy()
		now.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debugger", Image: "shell", ImagePullPolicy: corev1.PullIfNotPresent, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
			SecurityContext: context,
		}}}
		return root.SubResource("ephemeralcontainers").Update(ctx, now, &client.SubResourceUpdateOptions{
			UpdateOptions: client.UpdateOptions{DryRun: []string{metav1.DryRunAll}},
		})
	}
	if err := debug(&corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_PTRACE"}}}); err != nil {
		t.Errorf("what kubectl debug adds: %v", err)
	}
	refused("privileges later", debug(&corev1.SecurityContext{Privileged: new(true)}), "privileged")
	refused("a capability later", debug(&corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}}), "capabilities")

	level := func(name string) {
		t.Helper()
		for _, object := range charttest.Render(t, "controllerManager.config.peerPodSecurity="+name) {
			if strings.HasPrefix(object.GetName(), "liqo-peers-pods") {
				if err := root.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("helm"), client.ForceOwnership); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	level("restricted")
	inForce(t, "liqo-peers-pods", func() error { return try(remote, func(*corev1.Pod) {}) })
	strict := func(change func(*corev1.Pod)) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			}
			for i := range pod.Spec.Containers {
				pod.Spec.Containers[i].SecurityContext = &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				}
			}
			change(pod)
		}
	}
	if err := try(remote, strict(func(*corev1.Pod) {})); err != nil {
		t.Errorf("a restricted pod: %v", err)
	}
	for what, test := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"root":                        {func(pod *corev1.Pod) { pod.Spec.Containers[1].SecurityContext.RunAsUser = new(int64(0)) }, "runAsNonRoot"},
		"root is not excluded":        {func(pod *corev1.Pod) { pod.Spec.SecurityContext.RunAsNonRoot = nil }, "runAsNonRoot"},
		"a side car that may be root": {func(pod *corev1.Pod) { pod.Spec.Containers[1].SecurityContext.RunAsNonRoot = new(false) }, "runAsNonRoot"},
		"no seccomp profile":          {func(pod *corev1.Pod) { pod.Spec.SecurityContext.SeccompProfile = nil }, "seccomp"},
		"the usual capabilities":      {func(pod *corev1.Pod) { pod.Spec.Containers[1].SecurityContext.Capabilities = nil }, "capability ALL"},
		"more privileges than its parent": {
			func(pod *corev1.Pod) { pod.Spec.Containers[1].SecurityContext.AllowPrivilegeEscalation = nil }, "allowPrivilegeEscalation",
		},
		"a side car without a context": {func(pod *corev1.Pod) { pod.Spec.Containers[1].SecurityContext = nil }, "capability ALL"},
		"a path of the node":           {levelled[0].change, "volumes of its node"},
	} {
		refused(what, try(remote, strict(test.change)), test.want)
	}
	level("privileged")
	kubetest.Eventually(t, "the level privileged is in force", func() error { return try(remote, levelled[0].change) })
	for _, one := range always {
		refused(one.what+", from one that is trusted", try(remote, one.change), one.want)
	}
	for _, one := range levelled {
		if err := try(remote, one.change); err != nil {
			t.Errorf("%s, from one that is trusted: %v", one.what, err)
		}
	}
}
