// SPDX-License-Identifier: Apache-2.0

package virtualkubelet

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"

	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
)

// cheap matches quantities that are parsed in a bounded time. With an exponent of many digits, that takes hours.
var cheap = regexp.MustCompile(`^[-+.0-9]{1,32}([a-zA-Z]{0,2}|[eE][-+]?[0-9]{1,2})$`)

// FuzzNode: an API server accepts the node of any grant, and the provider sets neither the labels that this cluster sets nor those of Kubernetes.
func FuzzNode(f *testing.F) {
	for _, key := range []string{
		"topology.kubernetes.io/zone", corev1.LabelInstanceTypeStable, "a/b", "node-role.kubernetes.io/control-plane",
		"node.kubernetes.io/exclude-from-external-load-balancers",
		"kubernetes.io/os", "x.k8s.io/y", "K8S.io/y", "/x", "a/b/c", "", labels.Type, labels.RemoteClusterID, labels.StorageAvailable,
		corev1.LabelHostname, "extra", "notkubernetes.io/a",
	} {
		f.Add(key, "value", "cpu", "4", "amd64")
	}
	f.Add("a", "not a value", "memory", "8Gi", "not an architecture")
	for _, amount := range []string{
		"1500m", "-1", "1n", "9223372036854775807", "9.223372036854775E", "9.223372036854775807E", "9999999999999999999E", "1e99",
		"12345678901234567.123456789Ei", "0",
	} {
		f.Add("a", "", "example.com/gpu", amount, "")
		f.Add("a", "", "cpu", amount, "")
		f.Add("a", "", "pods", amount, "")
	}
	f.Add("a", "", "not a resource", "1", "arm64")
	f.Add("a", "", "", "1", strings.Repeat("a", 64))
	f.Fuzz(func(t *testing.T, key, value, name, amount, architecture string) {
		if !cheap.MatchString(amount) {
			return // the ResourceSlice of such an amount is refused
		}
		quantity, err := resource.ParseQuantity(amount)
		if err != nil {
			return
		}
		inputs := testInputs()
		inputs.granted = &sharingv1alpha1.ResourceSliceStatus{
			Labels: map[string]string{key: value}, Resources: corev1.ResourceList{corev1.ResourceName(name): quantity},
			Architectures: []string{architecture}, OperatingSystems: []string{architecture, "linux"},
		}
		all := inputs.nodeLabels()
		for key, value := range all {
			if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
				t.Errorf("label %q=%q", key, value)
			}
		}
		ours := testInputs()
		ours.granted = &sharingv1alpha1.ResourceSliceStatus{Architectures: inputs.granted.Architectures, OperatingSystems: inputs.granted.OperatingSystems}
		if !contains(all, ours.nodeLabels()) {
			t.Errorf("with label %q=%q of the provider, the node has %v", key, value, all)
		}
		domain, _, _ := strings.Cut(key, "/")
		system := strings.HasSuffix("."+domain, ".kubernetes.io") || strings.HasSuffix("."+domain, ".k8s.io")
		if _, ok := ours.nodeLabels()[key]; ok {
			system = false
		}
		if _, ok := all[key]; ok && strings.Contains(key, "/") && system && domain != "topology.kubernetes.io" &&
			key != corev1.LabelInstanceTypeStable || all[labels.StorageAvailable] != "" {
			t.Errorf("the provider sets label %q", key)
		}
		status := inputs.status()
		for name, fit := range status.Allocatable {
			fractions := name == corev1.ResourceCPU || name == corev1.ResourceMemory
			if fit.Sign() < 0 || fit.Cmp(quantity) > 0 || len(validation.IsQualifiedName(string(name))) > 0 || !fractions && fit.MilliValue()%1000 != 0 {
				t.Errorf("%s of %s for %s", fit.String(), name, amount)
			}
		}
		if len(status.Conditions) != 5 || status.NodeInfo.Architecture == "" || len(validation.IsValidLabelValue(status.NodeInfo.Architecture)) > 0 {
			t.Errorf("%+v", status)
		}
		text, err := json.Marshal(statusIntent(coreapply.Node("n"), &corev1.NodeStatus{}, &status, testTime))
		if err != nil {
			t.Fatal(err)
		}
		var sent corev1.Node
		if err := json.Unmarshal(text, &sent); err != nil || !statusCurrent(&sent.Status, &status) {
			t.Errorf("%s does not show %+v: %v", text, status, err)
		}
	})
}
