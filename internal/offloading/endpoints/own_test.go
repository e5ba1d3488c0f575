// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/metadata"
)

// TestOwnPods: an endpoint that is a pod here has the address and the place that this cluster knows, whatever the peer writes about these, and is
// used only while both clusters want that. It depends on no network between the clusters.
func TestOwnPods(t *testing.T) {
	running := OwnPod{UID: "u", Node: "n1", Zone: "z1", IPs: []string{"10.200.1.5", "fd00::5"}, Ready: true}
	with := func(change func(*OwnPod)) OwnPod {
		pod := running
		change(&pod)
		return pod
	}
	starts, ends := with(func(p *OwnPod) { p.Ready = false }), with(func(p *OwnPod) { p.Ends = true })
	no, yes := new(false), new(true)
	ready := discoveryv1.EndpointConditions{Ready: yes, Serving: yes, Terminating: no}
	const place = `,"hostname":"web-0","targetRef":{"kind":"Pod","namespace":"remote","name":"web-0","uid":"u"},"nodeName":"n1","zone":"z1"`
	for name, row := range map[string]struct {
		pod    OwnPod
		family discoveryv1.AddressType
		given  vkv1alpha1.Endpoint
		want   string
	}{
		"ready":            {running, "IPv4", vkv1alpha1.Endpoint{Conditions: ready}, `{"ready":true}`},
		"nothing is given": {running, "IPv4", vkv1alpha1.Endpoint{}, `{"ready":true}`},
		"not ready there": {
			running, "IPv4",
			vkv1alpha1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: no, Serving: no}},
			`{"ready":false,"serving":false}`,
		},
		"a new pod, not ready": {starts, "IPv4", vkv1alpha1.Endpoint{Conditions: ready}, `{"ready":false,"serving":false}`},
		"published, not ready": {
			starts, "IPv4",
			vkv1alpha1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: yes, Serving: no}},
			`{"ready":true,"serving":false}`,
		},
		"ends there": {
			running, "IPv4",
			vkv1alpha1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: no, Serving: yes, Terminating: yes}},
			`{"ready":false,"serving":true,"terminating":true}`,
		},
		"ends here, of itself": {ends, "IPv4", vkv1alpha1.Endpoint{Conditions: ready}, `{"ready":false,"serving":true,"terminating":true}`},
		"ends, and is published": {
			ends, "IPv4",
			vkv1alpha1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: yes, Serving: yes, Terminating: yes}},
			`{"ready":true,"terminating":true}`,
		},
		"another node and address": {
			running, "IPv4",
			vkv1alpha1.Endpoint{Conditions: ready, Addresses: []string{"10.96.0.1"}, NodeName: new("control-plane"), Zone: new("z9")},
			`{"ready":true}`,
		},
	} {
		row.given.Hostname, row.given.TargetRef = new("web-0"), &corev1.ObjectReference{Kind: PodKind, Namespace: "kube-system", Name: "web-0", UID: "x"}
		for _, reachable := range []bool{true, false} {
			got := ownEndpoints(t, row.family, reachable, map[string]OwnPod{"web-0": row.pod}, row.given)
			if want := `[{"addresses":["10.200.1.5"],"conditions":` + row.want + place + `}]`; got != want {
				t.Errorf("%s, reachable %v: %s, want %s", name, reachable, got, want)
			}
		}
	}
	ref := func(kind, name string) vkv1alpha1.Endpoint {
		return vkv1alpha1.Endpoint{Addresses: []string{"10.200.1.9"}, TargetRef: &corev1.ObjectReference{Kind: kind, Name: name}}
	}
	for name, row := range map[string]struct {
		family discoveryv1.AddressType
		given  vkv1alpha1.Endpoint
		want   string
	}{
		"a pod of another peer": {"IPv4", ref(PodKind, "vault"), `[]`},
		"no name":               {"IPv4", ref(PodKind, ""), `[]`},
		"an address of a pod":   {"IPv4", ref("Pod", "web-0"), `[]`},
		"no such family":        {"FQDN", ref(PodKind, "web-0"), `[]`},
		"the other family": {"IPv6", ref(PodKind, "web-0"), `[{"addresses":["fd00::5"],"conditions":{"ready":true},"targetRef":{"kind":"Pod",` +
			`"namespace":"remote","name":"web-0","uid":"u"},"nodeName":"n1","zone":"z1"}]`},
	} {
		if got := ownEndpoints(t, row.family, true, map[string]OwnPod{"web-0": running}, row.given); got != row.want {
			t.Errorf("%s: %s, want %s", name, got, row.want)
		}
	}
	hinted := ref(PodKind, "web-0")
	hinted.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "a"}}, ForNodes: []discoveryv1.ForNode{{Name: "liqo-milan"}}}
	if got, want := ownEndpoints(t, "IPv4", true, map[string]OwnPod{"web-0": {IPs: []string{"10.200.1.5"}, Node: "n1", Zone: "z1", Ready: true}}, hinted),
		`[{"addresses":["10.200.1.5"],"conditions":{"ready":true},"targetRef":{"kind":"Pod","namespace":"remote","name":"web-0","uid":""},`+
			`"nodeName":"n1","zone":"z1","hints":{"forZones":[{"name":"z1"}],"forNodes":[{"name":"n1"}]}}]`; got != want {
		t.Errorf("hints: %s, want %s", got, want)
	}
}

func ownEndpoints(t *testing.T, family discoveryv1.AddressType, reachable bool, pods map[string]OwnPod, given ...vkv1alpha1.Endpoint) string {
	t.Helper()
	s := &vkv1alpha1.ShadowEndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "remote", Name: "web-1"},
		Spec:       vkv1alpha1.ShadowEndpointSliceSpec{Template: vkv1alpha1.EndpointSliceTemplate{AddressType: family, Endpoints: given}},
	}
	intent, _ := EndpointSlice(s, Origin{ClusterID: "rome-id", Reachable: reachable, Networks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, Pods: pods})
	text, err := json.Marshal(intent.Endpoints)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) == "null" {
		return "[]"
	}
	return string(text)
}

func TestPodOf(t *testing.T) {
	made := func(change func(*corev1.Pod)) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Labels: map[string]string{labels.ManagedBy: labels.ManagedByShadowPod}}}
		pod.Spec.NodeName = "n1"
		pod.Status = corev1.PodStatus{
			Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.200.1.5"}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		}
		change(pod)
		return pod
	}
	for name, row := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"runs":               {func(*corev1.Pod) {}, "{u n1 z1 [10.200.1.5] true false} true"},
		"is not ready":       {func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionUnknown }, "{u n1 z1 [10.200.1.5] false false} true"},
		"ends":               {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, "{u n1 z1 [10.200.1.5] true true} true"},
		"has ended":          {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, "{   [] false false} false"},
		"has no address":     {func(p *corev1.Pod) { p.Status.PodIPs = nil }, "{   [] false false} false"},
		"is of this cluster": {func(p *corev1.Pod) { p.Labels = map[string]string{"app": "vault"} }, "{   [] false false} false"},
	} {
		if pod, runs := PodOf(made(row.change), "z1"); fmt.Sprint(pod, runs) != row.want {
			t.Errorf("%s: %v %v, want %s", name, pod, runs, row.want)
		}
	}
	s := &vkv1alpha1.ShadowEndpointSlice{}
	for _, name := range []string{"b", "a", "b", ""} {
		s.Spec.Template.Endpoints = append(s.Spec.Template.Endpoints, vkv1alpha1.Endpoint{TargetRef: &corev1.ObjectReference{Kind: PodKind, Name: name}},
			vkv1alpha1.Endpoint{Addresses: []string{"10.1.0.5"}, TargetRef: &corev1.ObjectReference{Kind: "RemotePod", Name: "c"}})
	}
	if got := PodsOf(s); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("pods %v", got)
	}
}

// TestKept: what is a key of every provider is one that no list of an administrator has to name.
func TestKept(t *testing.T) {
	for key, want := range map[string]bool{
		"app": true, "app.kubernetes.io/name": true, "statefulset.kubernetes.io/pod-name": true, "apps.kubernetes.io/pod-index": true, "role": true,
		"db.example.com/role": false, "cnpg.io/instanceRole": false, "topology.kubernetes.io/zone": false, "kubernetes.io/hostname": false,
		"liqo.io/managed-by": false, "virtualkubelet.liqo.io/origin": false,
	} {
		if got := metadata.Kept(key); got != want || got && !(metadata.Allowed{}).Label(key) {
			t.Errorf("%s: %v, want %v", key, got, want)
		}
	}
}
