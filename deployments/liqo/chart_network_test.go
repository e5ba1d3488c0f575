// SPDX-License-Identifier: Apache-2.0

package liqo_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/deployments/liqo/charttest"
)

// ofTheNetwork returns the objects that exist only with the network, and the controller manager, whose arguments depend on it.
// chart_rights_test.go checks the rights.
func ofTheNetwork(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	return slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool {
		switch object.GetLabels()[labels.AppComponent] {
		case "gateway", "route":
			return strings.HasSuffix(object.GetKind(), "Binding")
		case "controller-manager":
			return object.GetKind() != "Deployment"
		}
		return true
	})
}

func convert[T any](t *testing.T, object *unstructured.Unstructured) (out T) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestProxyHasNoRights: the process that peers reach first has no token, and no role is bound to its account.
func TestProxyHasNoRights(t *testing.T) {
	seen := 0
	for _, object := range charttest.Render(t, charttest.Internal) {
		switch {
		case strings.HasSuffix(object.GetKind(), "Binding"):
			if strings.Contains(text(t, []*unstructured.Unstructured{object}), "liqo-proxy") {
				t.Errorf("%s %s gives rights to the proxy", object.GetKind(), object.GetName())
			}
		case object.GetName() == "liqo-proxy" && object.GetKind() == "ServiceAccount":
			seen++
			if automount := convert[corev1.ServiceAccount](t, object).AutomountServiceAccountToken; automount == nil || *automount {
				t.Error("the account of the proxy gives pods a token")
			}
		case object.GetName() == "liqo-proxy" && object.GetKind() == "Deployment":
			seen++
			if automount := convert[appsv1.Deployment](t, object).Spec.Template.Spec.AutomountServiceAccountToken; automount == nil || *automount {
				t.Error("the pod of the proxy has a token")
			}
		}
	}
	if seen != 2 {
		t.Errorf("%d of an account and a Deployment", seen)
	}
}

// TestExternalNetwork: without the internal network, none of its objects exists.
func TestExternalNetwork(t *testing.T) {
	for _, object := range charttest.Render(t, "networking.internal=false,gateway.metrics.enabled=true,gateway.metrics.serviceMonitor.enabled=true") {
		if component := object.GetLabels()[labels.AppComponent]; component == "gateway" || component == "route" || component == "proxy" {
			t.Errorf("%s %s", object.GetKind(), object.GetName())
		}
		if object.GetName() == "liqo-controller-manager" && object.GetKind() == "Deployment" {
			args := strings.Join(convert[appsv1.Deployment](t, object).Spec.Template.Spec.Containers[0].Args, " ")
			// It needs the own networks, which no address of a peer may be in, and nothing of how networks are joined.
			if !strings.Contains(args, "--disable-internal-network=true") ||
				!strings.Contains(args, "--pod-cidr=10.200.0.0/16") || strings.Contains(args, "--reserved-") {
				t.Error(args)
			}
		}
	}
}

// TestLanes: each lane has a Deployment with one pod, and a Service that selects only this pod.
func TestLanes(t *testing.T) {
	for replicas := 1; replicas <= 8; replicas += 7 {
		objects := charttest.Render(t, charttest.Internal, fmt.Sprintf("gateway.replicas=%d", replicas))
		var services []corev1.Service
		var deployments []appsv1.Deployment
		for _, object := range objects {
			if object.GetLabels()[labels.AppComponent] != "gateway" {
				continue
			}
			switch object.GetKind() {
			case "Service":
				services = append(services, convert[corev1.Service](t, object))
			case "Deployment":
				deployments = append(deployments, convert[appsv1.Deployment](t, object))
			}
		}
		if len(services) != replicas || len(deployments) != replicas {
			t.Fatalf("%d replicas: %d Services, %d Deployments", replicas, len(services), len(deployments))
		}
		for i, deployment := range deployments {
			lane, name := fmt.Sprint(i), "liqo-gateway"
			if i > 0 {
				name += "-" + lane
			}
			pod := deployment.Spec.Template
			if deployment.Name != name || *deployment.Spec.Replicas != 1 || deployment.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
				t.Errorf("lane %d: Deployment %s, %d replicas, %s", i, deployment.Name, *deployment.Spec.Replicas, deployment.Spec.Strategy.Type)
			}
			if pod.Labels[labels.Gateway] != labels.GatewayActive || pod.Labels[labels.GatewayLane] != lane ||
				!slices.Contains(pod.Spec.Containers[0].Args, "--lane="+lane) {
				t.Errorf("lane %d: pod %v %v", i, pod.Labels, pod.Spec.Containers[0].Args)
			}
			for j, service := range services {
				if leads(service.Spec.Selector, pod.Labels) != (i == j) || leads(deployments[j].Spec.Selector.MatchLabels, pod.Labels) != (i == j) {
					t.Errorf("Service or Deployment %s selects the pod of lane %d", service.Name, i)
				}
			}
			if service := services[i]; service.Name != name || service.Labels[labels.Gateway] != "true" || service.Labels[labels.GatewayLane] != lane ||
				service.Spec.Ports[0].Protocol != corev1.ProtocolUDP || service.Spec.Ports[0].Port != 5871 {
				t.Errorf("lane %d: %+v", i, service)
			}
		}
	}
	// The address that the user gives is that of the first one.
	objects := charttest.Render(t, charttest.Lavish)
	first, second := charttest.Find(t, objects, "Service", "liqo-gateway"), charttest.Find(t, objects, "Service", "liqo-gateway-1")
	want := map[string]string{labels.OverrideAddress: "gateway.example.org", labels.OverridePort: "30871"}
	if diff := cmp.Diff(want, first.GetAnnotations()); diff != "" || len(second.GetAnnotations()) > 0 {
		t.Error(diff, second.GetAnnotations())
	}
}

// TestLanesOverNodes: with several lanes, a load balancer reaches each gateway only over its own node; a single gateway is reached over all nodes.
func TestLanesOverNodes(t *testing.T) {
	for set, want := range map[string][]corev1.ServiceExternalTrafficPolicy{
		"": {""},
		"gateway.service.externalTrafficPolicy=Local":                      {"Local"},
		"gateway.replicas=2":                                               {"Local", "Local"},
		"gateway.replicas=2,gateway.service.externalTrafficPolicy=Cluster": {"Cluster", "Cluster"},
		"gateway.replicas=2,gateway.service.type=NodePort":                 {"", ""},
		"gateway.replicas=2,gateway.service.type=ClusterIP":                {"", ""},
		"gateway.replicas=2,gateway.config.addressOverride=192.0.2.1":      {"", ""},
	} {
		objects := charttest.Render(t, charttest.Internal, set)
		for lane, name := range []string{"liqo-gateway", "liqo-gateway-1"}[:len(want)] {
			service := convert[corev1.Service](t, charttest.Find(t, objects, "Service", name))
			if got := service.Spec.ExternalTrafficPolicy; got != want[lane] {
				t.Errorf("with %q, Service %s has policy %q, want %q", set, name, got, want[lane])
			}
		}
	}
}

func leads(selector, marks map[string]string) bool {
	for key, value := range selector {
		if marks[key] != value {
			return false
		}
	}
	return true
}

// TestOneNode: gateways prefer different nodes, but may share a single one. Only the exclusion of virtual nodes is a hard rule.
func TestOneNode(t *testing.T) {
	for _, name := range []string{"liqo-gateway", "liqo-gateway-1"} {
		pod := convert[appsv1.Deployment](t, charttest.Find(t, charttest.Render(t, charttest.Internal, "gateway.replicas=2"), "Deployment", name)).Spec.Template.Spec
		apart := pod.Affinity.PodAntiAffinity
		if len(apart.RequiredDuringSchedulingIgnoredDuringExecution) > 0 ||
			len(apart.PreferredDuringSchedulingIgnoredDuringExecution) != 1 || len(pod.TopologySpreadConstraints) > 0 {
			t.Errorf("%s: %+v", name, apart)
		}
		for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
			if !slices.ContainsFunc(pod.Tolerations, func(one corev1.Toleration) bool {
				return one.Key == taint && one.TolerationSeconds != nil && *one.TolerationSeconds == 10
			}) {
				t.Errorf("%s stays on a failed node: %+v", name, pod.Tolerations)
			}
		}
	}
}

// TestNoVirtualNodes: no pod of Liqo runs on a virtual node, even with an affinity and tolerations of the user.
func TestNoVirtualNodes(t *testing.T) {
	const terms = "common.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
	const theirs = terms + "[0].matchExpressions[0].key=a," + terms + "[0].matchExpressions[0].operator=Exists," +
		terms + "[1].matchExpressions[0].key=b," + terms + "[1].matchExpressions[0].operator=Exists"
	for _, set := range []string{"common.nodeSelector.x=y", theirs} {
		for _, object := range charttest.Render(t, charttest.Internal, set) {
			if kind := object.GetKind(); kind != "Deployment" && kind != "DaemonSet" && kind != "Job" {
				continue
			}
			pod := convert[appsv1.Deployment](t, object).Spec.Template.Spec // a template is where it is in all of these kinds
			terms := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			if want := strings.Count(set, "].key="); len(terms) != max(1, want) && object.GetKind() != "DaemonSet" {
				t.Errorf("%s: %d terms, want %d", object.GetName(), len(terms), max(1, want))
			}
			for _, term := range terms {
				if !slices.ContainsFunc(term.MatchExpressions, func(one corev1.NodeSelectorRequirement) bool {
					return one.Key == labels.Type && one.Operator == corev1.NodeSelectorOpNotIn && slices.Equal(one.Values, []string{labels.TypeVirtualNode})
				}) {
					t.Errorf("%s %s: %+v", object.GetKind(), object.GetName(), term)
				}
			}
		}
	}
}

// TestNetworkPods: the pods of the network have exactly these privileges.
func TestNetworkPods(t *testing.T) {
	objects := charttest.Render(t, charttest.Lavish)
	node := convert[appsv1.DaemonSet](t, charttest.Find(t, objects, "DaemonSet", "liqo-route")).Spec.Template.Spec
	gateway := convert[appsv1.Deployment](t, charttest.Find(t, objects, "Deployment", "liqo-gateway")).Spec.Template.Spec
	for name, test := range map[string]struct {
		pod  corev1.PodSpec
		caps []corev1.Capability
		host bool
	}{
		"route":   {node, []corev1.Capability{"NET_ADMIN", "SYS_NICE"}, true},
		"gateway": {gateway, []corev1.Capability{"NET_ADMIN", "MKNOD"}, false},
	} {
		pod := test.pod
		security := pod.Containers[0].SecurityContext
		if pod.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || security.Privileged != nil || *security.AllowPrivilegeEscalation ||
			!*security.ReadOnlyRootFilesystem || !slices.Equal(security.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
			!slices.Equal(security.Capabilities.Add, test.caps) {
			t.Errorf("%s: %+v %+v", name, pod.SecurityContext, security)
		}
		if pod.HostNetwork != test.host || pod.HostPID || pod.HostIPC {
			t.Errorf("%s: host network %t", name, pod.HostNetwork)
		}
		for _, volume := range pod.Volumes {
			if volume.HostPath != nil {
				t.Errorf("%s mounts %s of the host", name, volume.HostPath.Path)
			}
		}
	}
	if prepare := gateway.InitContainers; len(prepare) != 1 || !*prepare[0].SecurityContext.Privileged ||
		!slices.Equal(prepare[0].Args, []string{"gateway", "--prepare"}) {
		t.Errorf("the only privileged container, which enables forwarding: %+v", prepare)
	}
	probes := []*corev1.Probe{node.Containers[0].LivenessProbe, node.Containers[0].ReadinessProbe}
	for _, probe := range probes {
		if probe.HTTPGet.Host != "127.0.0.1" || !slices.Contains(node.Containers[0].Args, "--health-probe-address=127.0.0.1:"+probe.HTTPGet.Port.String()) {
			t.Errorf("route is probed at %s:%s, args %v", probe.HTTPGet.Host, probe.HTTPGet.Port.String(), node.Containers[0].Args)
		}
	}
	if len(node.Containers[0].Ports) > 0 {
		t.Errorf("host ports are used: %v", node.Containers[0].Ports)
	}
	if !slices.Equal(node.Tolerations, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}) || node.NodeSelector["zone"] != "" {
		t.Errorf("route does not run on all nodes: %v %v", node.Tolerations, node.NodeSelector)
	}
}
