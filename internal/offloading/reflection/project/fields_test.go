// SPDX-License-Identifier: Apache-2.0

package project_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	networkingapply "k8s.io/client-go/applyconfigurations/networking/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/kinds"
	"liqo.io/liqo/internal/offloading/reflection/project"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
	"liqo.io/liqo/internal/offloading/reflection/project/podstatus"
)

var mapping = project.NamespaceMapping{
	LocalID: "1f0b9a3c-rome", LocalName: "rome", RemoteID: "7c2d11ee-milan", NodeName: "liqo-milan", Local: "shop", Remote: "shop-rome-ab12cd",
	Domain: "rome.example",
}

// swap translates only 10.10.0.0/16: remote addresses to 10.30.0.0/16, and ours to 10.40.0.0/16.
type swap struct{ err error }

func (s swap) ToLocal(address netip.Addr) (netip.Addr, error)  { return s.swap(address, 30) }
func (s swap) ToRemote(address netip.Addr) (netip.Addr, error) { return s.swap(address, 40) }

func (s swap) swap(address netip.Addr, second byte) (netip.Addr, error) {
	if s.err != nil {
		return netip.Addr{}, s.err
	}
	if !netip.MustParsePrefix("10.10.0.0/16").Contains(address) {
		return netip.Addr{}, fmt.Errorf("address %s: %w", address, project.ErrNoCounterpart)
	}
	bytes := address.As4()
	bytes[1] = second
	return netip.AddrFrom4(bytes), nil
}

// fate is what becomes of a field: it is copied, dropped, or forced to a value.
type fate struct {
	does string
	// without lists the paths below a copied field that are not copied.
	without []string
	want    any
}

var (
	copied  = fate{does: "copied"}
	dropped = fate{does: "dropped"}
)

func copiedBut(paths ...string) fate { return fate{does: "copied", without: paths} }
func forced(value any) fate          { return fate{does: "forced", want: value} }

// fates is the contract: what becomes of every field of every reflected kind. A field without a row fails the test, so that a field which a new release of
// Kubernetes adds needs a decision.
var fates = map[string]map[string]fate{
	"PodSpec": {
		"volumes":        copiedBut("*.projected.sources.*.serviceAccountToken", "*.projected.sources.*.podCertificate", "*.projected.sources.*.clusterTrustBundle"),
		"containers":     copiedBut("*.resources.claims"),
		"initContainers": copiedBut("*.resources.claims"), "ephemeralContainers": copiedBut("*.resources.claims"), "tolerations": copied,
		"activeDeadlineSeconds": copied, "dnsConfig": copied, "dnsPolicy": copied, "enableServiceLinks": copied, "hostAliases": copied,
		"hostname": copied, "imagePullSecrets": copied, "restartPolicy": copied, "securityContext": copied,
		"setHostnameAsFQDN": copied, "shareProcessNamespace": copied, "subdomain": copied, "terminationGracePeriodSeconds": copied,
		"topologySpreadConstraints": copied, "hostUsers": copied, "hostnameOverride": copied, "resources": copiedBut("claims"),

		"affinity": dropped, "nodeSelector": dropped, "nodeName": dropped, "schedulerName": dropped, "priority": dropped,
		"priorityClassName": dropped, "preemptionPolicy": dropped, "serviceAccountName": dropped, "serviceAccount": dropped,
		"readinessGates": dropped, "runtimeClassName": dropped, "overhead": dropped, "os": dropped, "resourceClaims": dropped,
		"schedulingGates": dropped, "schedulingGroup": dropped, "evictionResponders": dropped,

		"automountServiceAccountToken": forced(false),
		"hostNetwork":                  forced(nil), "hostIPC": forced(nil), "hostPID": forced(nil), // false is not written
	},
	"ServiceSpec": {
		"type": copied, "selector": copied, "ports": copiedBut("*.nodePort"), "externalName": copied, "externalTrafficPolicy": copied,
		"internalTrafficPolicy": copied, "ipFamilyPolicy": copied, "sessionAffinity": copied, "publishNotReadyAddresses": copied,
		"allocateLoadBalancerNodePorts": copied, "loadBalancerClass": copied, "loadBalancerSourceRanges": copied, "trafficDistribution": copied,
		"sessionAffinityConfig": copied,
		"clusterIP":             dropped, "clusterIPs": dropped, "externalIPs": dropped, "loadBalancerIP": dropped, "healthCheckNodePort": dropped,
		"ipFamilies": dropped,
	},
	"IngressSpec": {"defaultBackend": copied, "rules": copied, "tls": copied, "ingressClassName": dropped},
	"ConfigMap":   {"data": copied, "binaryData": copied, "immutable": copied},
	"Secret":      {"data": copied, "type": copied, "immutable": copied, "stringData": dropped},
	"EndpointSlice": {
		"addressType": copied, "ports": copied,
		"endpoints": forced([]any{map[string]any{
			"addresses": []any{"10.40.1.5"}, "conditions": map[string]any{"ready": true, "terminating": true}, "hostname": "hostname", "nodeName": "rome",
			"zone":  "zone",
			"hints": map[string]any{"forZones": []any{map[string]any{"name": "name"}}, "forNodes": []any{map[string]any{"name": "rome"}}},
			"targetRef": map[string]any{
				"apiVersion": "apiVersion", "kind": "Remotekind", "namespace": "namespace", "name": "name", "uid": "uid", "fieldPath": "fieldPath",
			},
		}}),
	},
	// The remote status; the local one is empty.
	"PodStatus": {
		"phase": copied, "message": copied, "observedGeneration": forced(2.0),
		"conditions": forced([]any{map[string]any{
			"type": "type", "status": "False", "observedGeneration": 2.0, "reason": "reason", "message": "message",
			"lastProbeTime": "2025-05-01T12:00:00Z", "lastTransitionTime": "2025-05-01T12:00:00Z",
		}}), "reason": copied, "startTime": copied,
		"initContainerStatuses":      copiedBut("*.allocatedResourcesStatus", "*.volumeMounts.*.volumeStatus"),
		"containerStatuses":          copiedBut("*.allocatedResourcesStatus", "*.volumeMounts.*.volumeStatus"),
		"ephemeralContainerStatuses": copiedBut("*.allocatedResourcesStatus", "*.volumeMounts.*.volumeStatus"),
		"allocatedResources":         copied, "resources": copiedBut("claims"),
		"podIP": forced("10.30.1.5"), "podIPs": forced([]any{map[string]any{"ip": "10.30.1.5"}}),
		"hostIP": forced("10.10.9.9"), "hostIPs": forced([]any{map[string]any{"ip": "10.10.9.9"}}),
		"nominatedNodeName": dropped, "qosClass": dropped, "resize": dropped, "resourceClaimStatuses": dropped,
		"extendedResourceClaimStatus": dropped, "nodeAllocatableResourceClaimStatuses": dropped, "volumeHealth": dropped,
	},
}

// TestFields calls each projection with an object in which every field is set, at every depth, and checks what became of each field.
func TestFields(t *testing.T) {
	for _, kind := range []struct {
		name            string
		local, crossing any
	}{
		podFields(t), serviceFields(), ingressFields(), configMapFields(), secretFields(), endpointSliceFields(t), podStatusFields(t),
	} {
		before, after := fields(t, kind.local), fields(t, kind.crossing)
		t.Run(kind.name, func(t *testing.T) {
			rules := fates[kind.name]
			for name := range after {
				if _, ok := rules[name]; !ok {
					t.Errorf("%s.%s is in the result of the projection, but fates has no row for it", kind.name, name)
				}
			}
			for _, name := range fieldNames(kind.local) {
				if _, ok := rules[name]; !ok {
					t.Errorf("%s.%s exists, but fates has no row for it: decide whether it is reflected, and add it to fates and to the documentation", kind.name, name)
				}
			}
			for name, rule := range rules {
				t.Run(name+" "+rule.does, func(t *testing.T) {
					if !slices.Contains(fieldNames(kind.local), name) {
						t.Fatal("the field does not exist any more")
					}
					if before[name] == nil {
						t.Fatal("the test's object does not set the field, so the test proves nothing")
					}
					want := rule.want
					if rule.does == "copied" {
						want = before[name]
						for _, path := range rule.without {
							without(want, strings.Split(path, "."))
						}
					}
					if difference := cmp.Diff(want, after[name]); difference != "" {
						t.Error(difference)
					}
				})
			}
		})
	}
}

// TestLostFields: of each field of a pod that does not cross, lostFields has what that means for the pod. What has no row crosses.
func TestLostFields(t *testing.T) {
	lost := podspec.LostFields()
	for name, rule := range fates["PodSpec"] {
		if why, ok := lost[name]; ok != (rule.does != "copied") || ok && why == "" {
			t.Errorf("%s is %s, and lostFields has %q: decide whether a pod that asks for it is sent", name, rule.does, why)
		}
	}
}

// TestUnreported: each field of a status that does not come back has a reason, and no other field has. A field
// that a new release of Kubernetes adds is one more.
func TestUnreported(t *testing.T) {
	want := map[string]bool{}
	for name, rule := range fates["PodStatus"] {
		if rule.does == "dropped" {
			want["PodStatus."+name] = true
		}
	}
	for _, path := range fates["PodStatus"]["containerStatuses"].without {
		want["ContainerStatus."+strings.ReplaceAll(strings.TrimPrefix(path, "*."), "*.", "")] = true
	}
	want["PodStatus.resources.claims"] = true
	for kind, status := range map[string]any{"ServiceStatus": corev1.ServiceStatus{}, "IngressStatus": networkingv1.IngressStatus{}} { // none of it comes back
		for _, name := range fieldNames(status) {
			want[kind+"."+name] = true
		}
	}
	reasons := kinds.Unreported()
	for name := range want {
		if reasons[name] == "" {
			t.Errorf("%s does not come back, and has no reason: project it, or add the reason to unreported", name)
		}
	}
	for name := range reasons {
		if !want[name] {
			t.Errorf("%s has a reason not to come back, and comes back", name)
		}
	}
}

type kindFields = struct {
	name            string
	local, crossing any
}

func podFields(t *testing.T) kindFields {
	pod := &corev1.Pod{}
	fill(reflect.ValueOf(&pod.Spec))
	pod.Annotations = map[string]string{labels.SpreadPreset: labels.SpreadPropagate} // otherwise constraints become preferences: golden cases spread
	pod.Spec.HostNetwork = false                                                     // with it, host ports are dropped: golden case host-namespaces
	spec := mustShadowPod(t, pod, podspec.Options{}).Spec.Pod
	pod.Spec.HostNetwork = true
	return kindFields{"PodSpec", pod.Spec, *spec}
}

func serviceFields() kindFields {
	service := &corev1.Service{}
	fill(reflect.ValueOf(&service.Spec))
	service.Spec.Type = corev1.ServiceTypeLoadBalancer // others have no policy for clients outside
	return kindFields{"ServiceSpec", service.Spec, kinds.CopyService(mapping, service).Spec}
}

func ingressFields() kindFields {
	ingress := &networkingv1.Ingress{}
	fill(reflect.ValueOf(&ingress.Spec))
	return kindFields{"IngressSpec", ingress.Spec, kinds.Ingress.Copy(mapping, ingress).(*networkingapply.IngressApplyConfiguration).Spec}
}

func configMapFields() kindFields {
	local := &corev1.ConfigMap{}
	fill(reflect.ValueOf(local))
	local.ObjectMeta, local.TypeMeta = metav1.ObjectMeta{}, metav1.TypeMeta{}
	remote := kinds.ConfigMap.Copy(mapping, local).(*coreapply.ConfigMapApplyConfiguration)
	return kindFields{"ConfigMap", *local, map[string]any{"data": remote.Data, "binaryData": remote.BinaryData, "immutable": remote.Immutable}}
}

func secretFields() kindFields {
	local := &corev1.Secret{}
	fill(reflect.ValueOf(local))
	local.ObjectMeta, local.TypeMeta = metav1.ObjectMeta{}, metav1.TypeMeta{}
	remote := kinds.Secret.Copy(mapping, local).(*coreapply.SecretApplyConfiguration)
	return kindFields{"Secret", *local, map[string]any{"data": remote.Data, "type": remote.Type, "immutable": remote.Immutable}}
}

func endpointSliceFields(t *testing.T) kindFields {
	local := &discoveryv1.EndpointSlice{}
	fill(reflect.ValueOf(local))
	local.ObjectMeta, local.TypeMeta = metav1.ObjectMeta{Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}, metav1.TypeMeta{}
	local.Endpoints[0].Addresses = []string{"10.10.1.5"}
	remote, err := kinds.ShadowEndpointSlice(mapping, local, kinds.There{Found: true}, swap{})
	if err != nil {
		t.Fatal(err)
	}
	return kindFields{"EndpointSlice", *local, remote.Spec.Template}
}

func podStatusFields(t *testing.T) kindFields {
	local, remote := &corev1.Pod{}, &corev1.Pod{}
	fill(reflect.ValueOf(&local.Spec))
	fill(reflect.ValueOf(&remote.Status))
	remote.Status.Phase = corev1.PodRunning
	local.Generation, remote.Generation, remote.Annotations = 3, 7, map[string]string{labels.LocalGeneration: "2"}
	remote.Status.PodIP, remote.Status.PodIPs[0].IP = "10.10.1.5", "10.10.1.5"
	remote.Status.Conditions[0].Status = corev1.ConditionFalse
	for _, statuses := range [][]corev1.ContainerStatus{
		remote.Status.InitContainerStatuses, remote.Status.ContainerStatuses, remote.Status.EphemeralContainerStatuses,
	} {
		// One state at a time; the golden case "hostile" has several.
		statuses[0].State.Waiting, statuses[0].State.Running = nil, nil
		statuses[0].LastTerminationState.Waiting, statuses[0].LastTerminationState.Running = nil, nil
		statuses[0].Resources.Claims = nil
	}
	status, err := podstatus.Of(podstatus.Facts{Mapping: mapping, Local: local, Remote: remote, Translator: swap{}, HostIP: "10.10.9.9"})
	if err != nil {
		t.Fatal(err)
	}
	return kindFields{"PodStatus", remote.Status, status}
}

// fieldNames returns the JSON names of an object's fields, without its metadata.
func fieldNames(object any) []string {
	var names []string
	for kind, i := reflect.TypeOf(object), 0; i < kind.NumField(); i++ {
		if name, _, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ","); name != "" && name != "metadata" {
			names = append(names, name)
		}
	}
	return names
}

// fields returns an object in its JSON form.
func fields(t *testing.T, object any) (fields map[string]any) {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

// without deletes the value at a path; * is every item of a list. It also deletes items that become empty.
func without(value any, path []string) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			without(item, path[1:])
		}
	case map[string]any:
		if len(path) == 1 {
			delete(value, path[0])
			return
		}
		without(value[path[0]], path[1:])
		if items, ok := value[path[0]].([]any); ok {
			value[path[0]] = slices.DeleteFunc(items, func(item any) bool { return reflect.DeepEqual(item, map[string]any{}) })
		}
	}
}

// fill sets every field to a value that is not its zero: strings to the name of the field.
func fill(value reflect.Value) { fillAs(value, "") }

func fillAs(value reflect.Value, name string) {
	switch special := value.Interface().(type) {
	case metav1.Time:
		value.Set(reflect.ValueOf(metav1.Date(2025, time.May, 1, 12, 0, 0, 0, time.UTC)))
		return
	case resource.Quantity:
		value.Set(reflect.ValueOf(resource.MustParse("2")))
		return
	case metav1.FieldsV1:
		value.Set(reflect.ValueOf(*metav1.NewFieldsV1("{}")))
		return
	case intstr.IntOrString:
		value.Set(reflect.ValueOf(intstr.FromInt32(8080)))
		return
	case corev1.ResourceName:
		value.SetString("cpu") // the same in a specification and its status
		return
	case []corev1.VolumeProjection:
		// A source has exactly one of the fields.
		for i := range reflect.TypeOf(corev1.VolumeProjection{}).NumField() {
			var source corev1.VolumeProjection
			fillAs(reflect.ValueOf(&source).Elem().Field(i), "source")
			special = append(special, source)
		}
		value.Set(reflect.ValueOf(special))
		return
	}
	switch value.Kind() {
	case reflect.Pointer:
		if value.IsNil() {
			value.Set(reflect.New(value.Type().Elem()))
		}
		fillAs(value.Elem(), name)
	case reflect.Struct:
		for i := range value.NumField() {
			field, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
			fillAs(value.Field(i), field)
		}
	case reflect.Slice:
		value.Set(reflect.MakeSlice(value.Type(), 1, 1))
		fillAs(value.Index(0), name)
	case reflect.Map:
		key, item := reflect.New(value.Type().Key()).Elem(), reflect.New(value.Type().Elem()).Elem()
		fillAs(key, name)
		fillAs(item, name)
		value.Set(reflect.MakeMap(value.Type()))
		value.SetMapIndex(key, item)
	case reflect.String:
		value.SetString(name)
	case reflect.Bool:
		value.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		value.SetInt(7)
	case reflect.Uint8:
		value.SetUint(7)
	default:
		panic("no value for " + value.Type().String())
	}
}

// TestMetadata: metadata is reflected in the same way for every kind.
func TestMetadata(t *testing.T) {
	meta := metav1.ObjectMeta{
		Name: "web", Namespace: "shop", UID: "1",
		Labels: map[string]string{
			"app": "web", "secret.example.com/key": "x", "internal": "y", labels.Origin: "forged", labels.Destination: "forged",
			discoveryv1.LabelServiceName: "web",
		},
		Annotations: map[string]string{
			"note": "kept", "build.example.com/host": "x", "kubernetes.io/config.source": "file", corev1.LastAppliedConfigAnnotation: "{}",
			corev1.EndpointsLastChangeTriggerTime: "now",
		},
		Finalizers: []string{"example.com/finalizer"}, OwnerReferences: []metav1.OwnerReference{{Name: "owner"}}, GenerateName: "web-",
	}
	denying := mapping
	denying.Skip = project.Denied{Labels: project.Keys{"secret.example.com/*", "internal", labels.Origin}, Annotations: project.Keys{"build.example.com/*"}}
	slice, err := kinds.ShadowEndpointSlice(denying, &discoveryv1.EndpointSlice{
		ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.10.1.5"}}},
	}, kinds.There{Found: true}, swap{})
	if err != nil {
		t.Fatal(err)
	}
	pod, err := podspec.ShadowPod(denying, &corev1.Pod{ObjectMeta: meta}, podspec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, intent := range map[string]any{
		"Pod": pod, "EndpointSlice": slice, "Service": kinds.CopyService(denying, &corev1.Service{ObjectMeta: meta}),
		"Ingress":   kinds.Ingress.Copy(denying, &networkingv1.Ingress{ObjectMeta: meta}),
		"ConfigMap": kinds.ConfigMap.Copy(denying, &corev1.ConfigMap{ObjectMeta: meta}),
		"Secret":    kinds.Secret.Copy(denying, &corev1.Secret{ObjectMeta: meta}),
	} {
		t.Run(name, func(t *testing.T) {
			want := map[string]any{
				"name": "web", "namespace": "shop-rome-ab12cd", "annotations": map[string]any{"note": "kept"},
				"labels": map[string]any{
					"app": "web", labels.Origin: mapping.LocalID, labels.Destination: mapping.RemoteID, discoveryv1.LabelServiceName: "web",
				},
			}
			if name == "EndpointSlice" {
				want["labels"].(map[string]any)[discoveryv1.LabelManagedBy] = labels.EndpointSliceReflection
			}
			if difference := cmp.Diff(want, fields(t, intent)["metadata"]); difference != "" {
				t.Error(difference)
			}
		})
	}
}
