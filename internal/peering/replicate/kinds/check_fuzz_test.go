// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// decoded returns an object of a provider as a client decodes it; nil if the text is no object.
func decoded(text []byte) (object map[string]any) {
	if utiljson.Unmarshal(text, &object) != nil {
		return nil
	}
	return object
}

// statusOf returns the status of an intent as it is sent.
func statusOf(t *testing.T, intent any, status any) {
	t.Helper()
	text, err := json.Marshal(intent)
	if err != nil {
		t.Fatalf("the intent cannot be sent: %v", err)
	}
	sent := struct {
		Status any `json:"status"`
	}{status}
	if err := json.Unmarshal(text, &sent); err != nil {
		t.Fatalf("the intent %s is not an object of its kind: %v", text, err)
	}
}

// FuzzSlice: a ResourceSlice that passes the check decodes quickly, and what is copied from its status is small and valid in this cluster.
func FuzzSlice(f *testing.F) {
	f.Add([]byte(`{"metadata":{"generation":2},"spec":{"nodeName":"n","resources":{"cpu":"4","memory":"8Gi"}},"status":{"phase":"Accepted",` +
		`"observedGeneration":2,` +
		`"resources":{"cpu":"3","memory":8589934592,"example.com/gpu":"1e1"},"prices":{"cpu":"1m"},"labels":{"topology.kubernetes.io/zone":"a","not a label":"x"},` +
		`"architectures":["amd64","arm 64",""],"operatingSystems":["linux"],"images":[{"names":["a","b","c","d","e","f"],"sizeBytes":-1}],` +
		`"storageClasses":[{"storageClassName":"fast","default":true},{"storageClassName":"../x"}],"ingressClasses":[{"ingressClassName":"NGINX"}],` +
		`"conditions":[{"type":"Granted","status":"True","reason":"r","message":"m","lastTransitionTime":"2026-01-02T03:04:05Z"},` +
		`{"type":"NodeReady","status":"True"}]}}`))
	f.Add([]byte(`{"status":{"phase":"Accepted","resources":{"cpu":"1e-999999999"}}}`))
	f.Add([]byte(`{"status":{"phase":"Accepted","prices":{"cpu":"1234567890123456789e999999999"}}}`))
	f.Add([]byte(`{"spec":{"resources":{"cpu":1.5}},"status":{"resources":["cpu"]}}`))
	f.Add([]byte(`{"status":{"phase":"Evil","labels":{"a":"` + strings.Repeat("ä", 2000) +
		`"},"conditions":[{"type":"Granted","message":"` + strings.Repeat("ä", 2000) + `"}]}}`))
	f.Add([]byte(
		`{"status":{"observedGeneration":1,"architectures":["` + strings.Repeat(`a","`, 40) + `"],"images":[{"names":["` + strings.Repeat("ä", 2000) + `"]}]}}`,
	))
	f.Add([]byte(`{"status":{"phase":"Accepted","storageClasses":[` + strings.Repeat(`{"storageClassName":"a"},`, 100) +
		`{}],"images":[` + strings.Repeat(`{"names":["a"]},`, 100) + `{}]}}`))
	f.Add([]byte(`{"status":{"phase":"Denied","conditions":[{"type":"Granted","message":"\u001b[2Jgranted\u009b1A"}]}}`))
	f.Add([]byte(`{"status":{"phase":7}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		object := decoded(text)
		if object == nil || sliceCheck(object) != nil {
			return
		}
		var remote sharingv1alpha1.ResourceSlice
		if runtime.DefaultUnstructuredConverter.FromUnstructured(object, &remote) != nil {
			return
		}
		for _, list := range []corev1.ResourceList{remote.Spec.Resources, remote.Status.Resources} {
			for name, amount := range list {
				if len(list) > maxAmounts || len(amount.String()) > 64 {
					t.Errorf("%d amounts are accepted; %.80s of %.80s", len(list), amount.String(), name)
				}
			}
		}
		local := &sharingv1alpha1.ResourceSlice{Status: sharingv1alpha1.ResourceSliceStatus{ObservedGeneration: 1}}
		intent := sliceStatusIntent(local, &remote)
		if intent == nil {
			return
		}
		var status sharingv1alpha1.ResourceSliceStatus
		statusOf(t, intent, &status)
		for key, value := range status.Labels {
			if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 || remote.Status.Labels[key] != value {
				t.Errorf("label %q=%q is copied", key, value)
			}
		}
		for _, word := range slices.Concat(status.Architectures, status.OperatingSystems) {
			if word == "" || len(validation.IsValidLabelValue(word)) > 0 {
				t.Errorf("%q is copied", word)
			}
		}
		for _, condition := range status.Conditions {
			if condition.Type != sharingv1alpha1.ConditionGranted || len(status.Conditions) > 1 || !isLine(condition.Message) {
				t.Errorf("condition %+v is copied", condition)
			}
		}
		for _, image := range status.Images {
			for _, name := range image.Names {
				if len(image.Names) > maxNames || len(name) > maxText {
					t.Errorf("image %.600v is copied", image)
				}
			}
		}
		if len(status.Labels) > maxLabels || len(status.Architectures) > maxWords || len(status.OperatingSystems) > maxWords || len(status.Images) > maxImages ||
			len(status.StorageClasses) > maxClasses || len(status.IngressClasses) > maxClasses {
			t.Errorf("%d labels, %d architectures, %d systems, %d images, %d storage classes and %d ingress classes are copied", len(status.Labels),
				len(status.Architectures), len(status.OperatingSystems), len(status.Images), len(status.StorageClasses), len(status.IngressClasses))
		}
		for _, one := range status.StorageClasses {
			if len(validation.IsDNS1123Subdomain(one.StorageClassName)) > 0 {
				t.Errorf("storage class %q is copied", one.StorageClassName)
			}
		}
	})
}

// FuzzNetwork: a NetworkConfig that passes the check is bounded, and only an answer to our current network is copied.
func FuzzNetwork(f *testing.F) {
	const good = `{"metadata":{"generation":3},"spec":{"cluster":{"clusterID":"id","clusterName":"rome"},"podCIDR":"10.1.0.0/16","externalCIDR":"10.2.0.0/16",` +
		`"backendType":"wireguard","backend_config":{"publicKey":"k"},"lanes":[{"number":0,"publicKey":"k","carriers":[{"type":"UDP",` +
		`"addresses":["192.0.2.1"],"port":5871}]}]},` +
		`"status":{"processed":true,"podCIDRNAT":"None","externalCIDRNAT":"10.9.0.0/16","observedGeneration":3,"conditions":[{"type":"Ready",` +
		`"status":"True","reason":"r","message":"m"}]}}`
	f.Add([]byte(good))
	for before, after := range map[string]string{
		`"observedGeneration":3`: `"observedGeneration":2`, `"generation":3`: `"generation":-3`, `"number":0`: `"number":-1`, `"port":5871`: `"port":65536`,
		`"10.1.0.0/16"`: `"10.3.0.0/16"`, `"message":"m"`: `"message":"` + strings.Repeat("ä", 2000) + `"`, `"192.0.2.1"`: `"` + strings.Repeat("a", 254) + `"`,
		`["192.0.2.1"]`: `[` + strings.Repeat(`"a",`, 16) + `"a"]`, `"lanes":[`: `"lanes":[{"number":0,"publicKey":"other"},`,
		`"publicKey":"k"},`: `"` + strings.Repeat("k", 254) + `":""},`,
		`"spec":{`:          `"spec":{"additionalPodCIDRs":[` + strings.Repeat(`"a",`, 16) + `"a"],`,
	} {
		f.Add([]byte(strings.Replace(good, before, after, 1)))
	}
	f.Add([]byte(`{"spec":{"lanes":"x"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		object := decoded(text)
		if object == nil || networkCheck(object) != nil {
			return
		}
		var remote, original netv1alpha1.NetworkConfig
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &remote); err != nil {
			t.Fatalf("%v, which the check accepts, cannot be decoded: %v", object, err)
		}
		spec, err := json.Marshal(NetworkSpecIntent(&remote, Meta{name: "n", namespace: "here"}).Spec)
		if most := (maxNetworks+2*maxSettings+2*maxSignatures+maxLanes*(1+maxCarriers*(1+maxAddresses))+6)*6*(maxWord+64) + 1000; err != nil || len(spec) > most {
			t.Errorf("%d bytes are sent, %v", len(spec), err)
		}
		ports := 0
		for _, lane := range remote.Spec.Lanes {
			for _, carrier := range lane.Carriers {
				ports++
				if lane.Number < 0 || len(carrier.Addresses) > maxAddresses || carrier.Port < 1 || carrier.Port > 65535 {
					t.Errorf("%+v passes", lane)
				}
				for _, address := range carrier.Addresses {
					if len(address) > maxWord {
						t.Errorf("an address of %d bytes passes", len(address))
					}
				}
			}
		}
		for key, value := range remote.Spec.BackendConfig {
			if len(key) > maxWord || len(value) > maxWord {
				t.Errorf("a setting of %d bytes passes", len(key)+len(value))
			}
		}
		if ports > maxLanes*maxCarriers || len(remote.Spec.AdditionalPodCIDRs) > maxNetworks || len(remote.Status.PodCIDRNAT) > maxWord {
			t.Errorf("%+v passes", remote)
		}
		if utiljson.Unmarshal([]byte(good), &original) != nil {
			t.Fatal("no NetworkConfig")
		}
		original.Generation = 7
		intent := NetworkStatusIntent(&original, &remote)
		if intent == nil {
			return
		}
		var status netv1alpha1.NetworkConfigStatus
		statusOf(t, intent, &status)
		if remote.Status.ObservedGeneration != remote.Generation || fmt.Sprint(remote.Spec) != fmt.Sprint(original.Spec) || status.ObservedGeneration != 7 {
			t.Errorf("the answer %+v to another network %+v is copied", status, remote.Spec)
		}
		for _, condition := range status.Conditions {
			if condition.Type != netv1alpha1.ConditionReady || len(status.Conditions) > 1 || !isLine(condition.Message) || condition.ObservedGeneration != 7 {
				t.Errorf("condition %+v is copied", condition)
			}
		}
	})
}

// FuzzNamespaces: of a provider's status, only namespaces that this cluster requests, or is giving up, are copied, under the names that it knows. A virtual
// kubelet works in these.
func FuzzNamespaces(f *testing.F) {
	f.Add([]byte(
		`{"status":{"currentMapping":{"shop":{"remoteNamespace":"shop-rome","phase":"Accepted"},"old":{"remoteNamespace":"old-rome","phase":"Terminating"}}}}`,
	))
	f.Add([]byte(
		`{"status":{"currentMapping":{"shop":{"remoteNamespace":"kube-system","phase":"Accepted"},"old":{"remoteNamespace":"kube-system","phase":"Accepted"}}}}`,
	))
	f.Add([]byte(`{"status":{"currentMapping":{"shop":{"remoteNamespace":"","phase":"CreationLoopBackOff","message":"` +
		strings.Repeat("ä", 2000) + `"},"kube-system":{"remoteNamespace":"shop-rome","phase":"Accepted"}}}}`))
	f.Add([]byte(`{"spec":{"desiredMapping":{"old":"kube-system"}},"status":{"currentMapping":{"shop":{"remoteNamespace":"shop-rome",` +
		`"phase":"Evil"},"old":{"remoteNamespace":"old-rome","phase":"Accepted"}}}}`))
	f.Add([]byte(`{"status":{"currentMapping":{"old":{"remoteNamespace":"old-rome","phase":"CreationLoopBackOff"}}}}`))
	f.Add([]byte(`{"status":{"currentMapping":{"old":{"remoteNamespace":"old-rome","phase":"Accepted","message":"still used"}}}}`))
	f.Add(
		[]byte(`{"status":{"currentMapping":{"shop":{"remoteNamespace":"","phase":"CreationLoopBackOff","message":"\u001b[2J\u202eall is well\u0007\nReady"}}}}`),
	)
	f.Add([]byte(`{"status":{"currentMapping":[]}}`))
	f.Add([]byte(`{"status":{"currentMapping":{"shop":7}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		object := decoded(text)
		if object == nil || namespacesCheck(object) != nil {
			return
		}
		var local, remote vkv1alpha1.NamespaceMap
		if runtime.DefaultUnstructuredConverter.FromUnstructured(object, &remote) != nil {
			return
		}
		local.Spec.DesiredMapping = map[string]string{"shop": "shop-rome", "web": "web-rome"}
		local.Status.CurrentMapping = statuses{
			"shop": {RemoteNamespace: "before", Phase: vkv1alpha1.MappingAccepted},
			"old":  {RemoteNamespace: "old-rome", Phase: vkv1alpha1.MappingAccepted},
		}
		want := map[string]string{"shop": "shop-rome", "web": "web-rome", "old": "old-rome"}
		var status vkv1alpha1.NamespaceMapStatus
		statusOf(t, namespacesStatusIntent(&local, &remote), &status)
		for _, namespace := range slices.Sorted(maps.Keys(status.CurrentMapping)) {
			one, theirs := status.CurrentMapping[namespace], remote.Status.CurrentMapping[namespace]
			switch {
			case one.RemoteNamespace != want[namespace] || want[namespace] == "":
				t.Errorf("namespace %q is in %q", namespace, one.RemoteNamespace)
			case one.Phase == vkv1alpha1.MappingAccepted && (namespace == "old" || theirs.RemoteNamespace != one.RemoteNamespace || theirs.Phase != one.Phase):
				t.Errorf("namespace %q is accepted: %+v", namespace, theirs)
			case one.Phase != vkv1alpha1.MappingAccepted && one.Phase != vkv1alpha1.MappingTerminating && one.Phase != vkv1alpha1.MappingCreationLoopBackOff:
				t.Errorf("phase %q is copied", one.Phase)
			case !isLine(one.Message):
				t.Errorf("a message of %d bytes is copied", len(one.Message))
			}
		}
	})
}

// isLine reports whether a text of the peer may be shown: it is short, and has no control characters.
func isLine(text string) bool {
	return len(text) <= maxText && utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}
