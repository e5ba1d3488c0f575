// SPDX-License-Identifier: Apache-2.0

package liqo_test

import (
	"maps"
	"os"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"liqo.io/liqo/deployments/liqo/charttest"
	"liqo.io/liqo/internal/kube/kubetest/hardening"
)

// acceptedOfPods is what the pods of the chart may do or miss beyond the strictest standard, and why.
var acceptedOfPods = map[string]map[string]string{
	"Deployment liqo-auth":               {"auth: token": "creates tokens for peers, and pins their keys"},
	"Deployment liqo-controller-manager": {"controller-manager: token": "runs the controllers"},
	"Deployment liqo-dns":                {"dns: token": "watches where the pods of peers are"},
	"Deployment liqo-metric-agent":       {"metric-agent: token": "asks whether a caller may read, and reads the kubelets"},
	"Deployment liqo-proxy":              {},
	"Job liqo-cleanup":                   {"cleanup: token": "ends the peerings"},
	"Job liqo-crds":                      {"crds: token": "applies the definitions"},
	"Deployment liqo-gateway": {
		"gateway: token": "reads the tunnels", "gateway: adds NET_ADMIN": "devices, routes and packet filter of its pod",
		"gateway: adds MKNOD": "/dev/net/tun of userspace WireGuard", "gateway: may run as root": "only root gets capabilities",
		"prepare: privileged":          "only a privileged container can enable forwarding in /proc; it holds no token, and exits",
		"prepare: may run as root":     "it writes a file of root",
		"prepare: may gain privileges": "Kubernetes allows no other setting for a privileged container",
		"prepare: keeps capabilities":  "a privileged container has all of them",
	},
	"DaemonSet liqo-route": {
		"route: token": "reads the tunnels", "host network": "its job is the network of the host", "route: may run as root": "only root gets capabilities",
		"route: adds NET_ADMIN": "links, routes, rules and packet filter of the host", "route: adds SYS_NICE": "probes that are late under load would count as lost",
	},
}

var lane = regexp.MustCompile(`^(Deployment liqo-gateway)-\d+$`)

// podSpecs finds the pods in an object, wherever its kind has them: a kind that is new in the chart cannot be forgotten.
func podSpecs(value any) (found []map[string]any) {
	switch value := value.(type) {
	case map[string]any:
		containers, isList := value["containers"].([]any)
		if isList && len(containers) > 0 {
			if first, isMap := containers[0].(map[string]any); isMap && first["image"] != nil {
				return append(found, value)
			}
		}
		for _, inner := range value {
			found = append(found, podSpecs(inner)...)
		}
	case []any:
		for _, inner := range value {
			found = append(found, podSpecs(inner)...)
		}
	}
	return found
}

// TestHardening: each pod of the chart, with default values and with all of them, is as restricted as the list lists, and no account gives tokens to
// pods that do not ask for one. TestAttackM14 shows that an attacker cannot create other pods beside them.
func TestHardening(t *testing.T) {
	raw, err := os.ReadFile("testdata/full-values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var full map[string]any
	if err := yaml.UnmarshalStrict(raw, &full); err != nil {
		t.Fatal(err)
	}
	with, err := charttest.RenderValues(t, nil, full)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for name, objects := range map[string][]*unstructured.Unstructured{
		"default": charttest.Render(t), "full": with, "lavish": charttest.Render(t, charttest.Lavish), "internal": charttest.Render(t, charttest.Internal),
	} {
		accounts := map[string]bool{}
		for _, object := range objects {
			if object.GetKind() == "ServiceAccount" {
				accounts[object.GetName()] = true
				if charttest.Field(t, object, "automountServiceAccountToken") != false {
					t.Errorf("%s: ServiceAccount %s gives each pod a token: set automountServiceAccountToken: false", name, object.GetName())
				}
			}
		}
		for _, object := range objects {
			for _, raw := range podSpecs(object.Object) {
				key := lane.ReplaceAllString(object.GetKind()+" "+object.GetName(), "$1")
				accepted, known := acceptedOfPods[key]
				if !known {
					t.Errorf("%s: %s is not in acceptedOfPods: add it, with what it may do and why", name, key)
				}
				seen[key] = true
				var pod corev1.PodSpec
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &pod); err != nil {
					t.Fatal(err)
				}
				if !accounts[pod.ServiceAccountName] {
					t.Errorf("%s: %s runs as the account %q, which the chart does not make", name, key, pod.ServiceAccountName)
				}
				hardening.Check(t, name+": "+key, hardening.Lasting(object.GetKind() != "Job"), &pod, accepted)
			}
		}
	}
	for key := range maps.Keys(acceptedOfPods) {
		if !seen[key] {
			t.Errorf("%s is in acceptedOfPods, but not in the chart", key)
		}
	}
}
