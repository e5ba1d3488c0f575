// SPDX-License-Identifier: Apache-2.0

package virtualkubelet

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
)

// fields of a Node that kubelets and Kubernetes set: what a virtual node has. A field of a later Kubernetes needs a row here and in
// docs/internals/offloading.md.
const (
	set      = "set"
	byOthers = "set by Kubernetes or an administrator"
)

// nodeFields are the fields of a Node by JSON path; a row holds for all paths below it.
var nodeFields = map[string]string{
	"status.capacity": set, "status.allocatable": set, "status.conditions": set, "status.addresses": set, "status.daemonEndpoints": set, "status.images": set,
	"status.phase":            "kubelets do not set it any more",
	"status.config":           "kubelets do not set it any more",
	"status.volumesInUse":     "volumes are attached at the provider",
	"status.volumesAttached":  byOthers,
	"status.runtimeHandlers":  "the nodes of the provider differ",
	"status.features":         "the nodes of the provider differ",
	"status.declaredFeatures": "the nodes of the provider differ",

	"status.nodeInfo.machineID": set, "status.nodeInfo.systemUUID": set, "status.nodeInfo.osImage": set, "status.nodeInfo.containerRuntimeVersion": set,
	"status.nodeInfo.kubeletVersion": set, "status.nodeInfo.operatingSystem": set, "status.nodeInfo.architecture": set,
	"status.nodeInfo.bootID":                 "it does not boot",
	"status.nodeInfo.kernelVersion":          "it has no kernel",
	"status.nodeInfo.kubeProxyVersion":       "kubelets do not set it any more",
	"status.nodeInfo.swap":                   "no node of the provider is asked",
	"status.nodeInfo.runningInUserNamespace": "no node of the provider is asked",

	"spec.taints.*.key": set, "spec.taints.*.value": set, "spec.taints.*.effect": set,
	"spec.taints.*.timeAdded": "Kubernetes writes it for the taints that it adds itself",
	"spec.podCIDR":            byOthers, "spec.podCIDRs": byOthers, "spec.unschedulable": byOthers, "spec.podPreemptionPolicy": byOthers,
	"spec.providerID":   "no cloud has such a machine",
	"spec.configSource": "kubelets do not set it any more",
	"spec.externalID":   "kubelets do not set it any more",
}

// typePaths returns the paths of all fields of a type that are no structures themselves.
func typePaths(kind reflect.Type, at string) (all []string) {
	switch {
	case kind.Kind() == reflect.Pointer:
		return typePaths(kind.Elem(), at)
	case kind.Kind() == reflect.Slice:
		return typePaths(kind.Elem(), at+".*")
	case kind.Kind() != reflect.Struct, kind == reflect.TypeFor[metav1.Time]():
		return []string{at}
	}
	for i := range kind.NumField() {
		name, _, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ",")
		all = append(all, typePaths(kind.Field(i).Type, at+"."+name)...)
	}
	return all
}

// written adds the paths of the values of a JSON object that are not empty. Maps of resources are values.
func written(value any, at string, all map[string]bool) {
	switch value := value.(type) {
	case map[string]any:
		if at == "status.capacity" || at == "status.allocatable" {
			all[at] = true
			return
		}
		for name, field := range value {
			written(field, strings.TrimPrefix(at+"."+name, "."), all)
		}
	case []any:
		for _, item := range value {
			written(item, at+".*", all)
		}
	case nil:
	default:
		if value != "" {
			all[at] = true
		}
	}
}

// TestNodeFields: each field of a Node, at every depth, is in what is written, or left out for a reason.
func TestNodeFields(t *testing.T) {
	inputs := testInputs()
	inputs.granted, inputs.reach, inputs.closed = granted("2", "1G"), reachable, closure{closedNothing, "full"}
	inputs.granted.Images = []corev1.ContainerImage{{Names: []string{"a:1"}, SizeBytes: 5}}
	status := inputs.status()
	has := map[string]bool{}
	for _, intent := range []*coreapply.NodeApplyConfiguration{
		inputs.initial(), inputs.meta("uid"), statusIntent(coreapply.Node(inputs.name), &corev1.NodeStatus{}, &status, testTime),
	} {
		text, err := json.Marshal(intent)
		if err != nil {
			t.Fatal(err)
		}
		var object map[string]any
		if err := json.Unmarshal(text, &object); err != nil {
			t.Fatal(err)
		}
		written(object, "", has)
	}
	unused := maps.Clone(nodeFields)
	for _, path := range append(typePaths(reflect.TypeFor[corev1.NodeSpec](), "spec"), typePaths(reflect.TypeFor[corev1.NodeStatus](), "status")...) {
		reason := ""
		for at, row := range nodeFields {
			if path == at || strings.HasPrefix(path, at+".") {
				reason = row
				delete(unused, at)
			}
		}
		if reason == "" || has[path] != (reason == set) {
			t.Errorf(
				"%s: written is %t, and the row is %q: decide what it is on a virtual node, and add it to nodeFields and to the documentation", path,
				has[path], reason,
			)
		}
	}
	for at := range unused {
		t.Errorf("a Node has no field %s", at)
	}
	if again := inputs.status(); again.NodeInfo != status.NodeInfo || len(status.NodeInfo.SystemUUID) != 36 || len(status.NodeInfo.MachineID) != 32 {
		t.Errorf("%+v, then %+v", status.NodeInfo, again.NodeInfo)
	}
	other := testInputs()
	other.clusterID = "naples-id"
	if other.info().MachineID == status.NodeInfo.MachineID {
		t.Error("two providers are one machine")
	}
	page, err := os.ReadFile("../../../docs/internals/offloading.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, documented := range []string{
		"status.addresses", "status.capacity", "status.allocatable", "status.conditions", "status.nodeInfo", "status.images", "status.volumesInUse",
		"status.volumesAttached", "status.runtimeHandlers", "status.features", "status.declaredFeatures", "spec.podCIDR", "spec.taints", "spec.providerID",
	} {
		if !strings.Contains(string(page), "`"+documented+"`") {
			t.Errorf("docs/internals/offloading.md does not name %s", documented)
		}
	}
}
