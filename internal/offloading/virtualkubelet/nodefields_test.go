// SPDX-License-Identifier: Apache-2.0

package virtualkubelet

import (
	"os"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// fields of a Node that kubelets and Kubernetes set: what a virtual node has. A field of a later Kubernetes needs a row here and in docs/offloading.md.
const (
	set      = "set"
	byOthers = "set by Kubernetes or an administrator"
)

var nodeFields = map[string]map[string]string{
	"status": {
		"capacity": set, "allocatable": set, "conditions": set, "addresses": set, "daemonEndpoints": set, "nodeInfo": set, "images": set,
		"phase":            "kubelets do not set it any more",
		"config":           "kubelets do not set it any more",
		"volumesInUse":     "volumes are attached at the provider",
		"volumesAttached":  byOthers,
		"runtimeHandlers":  "the nodes of the provider differ",
		"features":         "the nodes of the provider differ",
		"declaredFeatures": "the nodes of the provider differ",
	},
	"status.nodeInfo": {
		"machineID": set, "systemUUID": set, "osImage": set, "containerRuntimeVersion": set, "kubeletVersion": set, "operatingSystem": set, "architecture": set,
		"bootID": "it does not boot", "kernelVersion": "it has no kernel", "kubeProxyVersion": "kubelets do not set it any more",
		"swap": "no node of the provider is asked", "runningInUserNamespace": "no node of the provider is asked",
	},
	"spec": {
		"podCIDR": byOthers, "podCIDRs": byOthers, "unschedulable": byOthers, "podPreemptionPolicy": byOthers,
		"taints":       set,
		"providerID":   "no cloud has such a machine",
		"configSource": "kubelets do not set it any more", "externalID": "kubelets do not set it any more",
	},
}

// TestNodeFields: each field of a Node is set, or left out for a reason.
func TestNodeFields(t *testing.T) {
	inputs := testInputs()
	inputs.granted, inputs.reach = granted("2", "1G"), reachable
	inputs.granted.Images = []corev1.ContainerImage{{Names: []string{"a:1"}}}
	status := inputs.status()
	for at, value := range map[string]any{"status": status, "status.nodeInfo": status.NodeInfo, "spec": corev1.NodeSpec{Taints: []corev1.Taint{{}}}} {
		rows := nodeFields[at]
		object := reflect.ValueOf(value)
		for i := range object.NumField() {
			name, _, _ := strings.Cut(object.Type().Field(i).Tag.Get("json"), ",")
			reason := rows[name]
			if there := !object.Field(i).IsZero(); there != (reason == set) {
				t.Errorf("%s.%s: set is %t, and the row is %q", at, name, there, reason)
			}
			delete(rows, name)
		}
		for name := range rows {
			t.Errorf("%s has no field %s", at, name)
		}
	}
	if again := inputs.status(); again.NodeInfo != status.NodeInfo || len(status.NodeInfo.SystemUUID) != 36 || len(status.NodeInfo.MachineID) != 32 {
		t.Errorf("%+v, then %+v", status.NodeInfo, again.NodeInfo)
	}
	other := testInputs()
	other.clusterID = "naples-id"
	if other.info().MachineID == status.NodeInfo.MachineID {
		t.Error("two providers are one machine")
	}
	page, err := os.ReadFile("../../../docs/offloading.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, documented := range []string{
		"status.addresses", "status.capacity", "status.allocatable", "status.conditions", "status.nodeInfo", "status.images", "status.volumesInUse",
		"status.volumesAttached", "status.runtimeHandlers", "status.features", "status.declaredFeatures", "spec.podCIDR", "spec.taints", "spec.providerID",
	} {
		if !strings.Contains(string(page), "`"+documented+"`") {
			t.Errorf("docs/offloading.md does not name %s", documented)
		}
	}
}
