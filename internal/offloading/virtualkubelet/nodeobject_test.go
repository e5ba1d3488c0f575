// SPDX-License-Identifier: Apache-2.0

package virtualkubelet

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/yaml"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
)

var rewrite = flag.Bool("update", false, "rewrite the golden files")

var testTime = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func granted(cpu, memory string) *sharingv1alpha1.ResourceSliceStatus {
	return &sharingv1alpha1.ResourceSliceStatus{
		Phase:     sharingv1alpha1.SliceAccepted,
		Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)},
	}
}

func testInputs() *nodeInputs {
	return &nodeInputs{
		name: "liqo-milan", clusterID: "milan-id", port: 10250, address: "10.0.0.9", version: "v1.37.1",
		extraLabels: map[string]string{"extra": "x"}, extraAnnotations: map[string]string{"note": "y"},
	}
}

// TestGolden compares whole nodes with testdata/*.yaml.
func TestGolden(t *testing.T) {
	full := testInputs()
	full.granted, full.reach = granted("12", "30G"), reachable
	full.granted.Resources["nvidia.com/gpu"] = resource.MustParse("1")
	full.granted.Labels = map[string]string{
		"liqo.io/provider": "k3s", "topology.kubernetes.io/region": "south", labels.Type: "not-decided-by-the-provider",
		corev1.LabelHostname: "kube-apiserver",
	}
	full.granted.Architectures, full.granted.OperatingSystems = []string{"arm64", "amd64"}, []string{"linux"}
	full.granted.StorageClasses = []sharingv1alpha1.StorageClass{{StorageClassName: "fast"}}
	full.granted.Images = []corev1.ContainerImage{{Names: []string{"a:1"}, SizeBytes: 5}}
	for name, inputs := range map[string]*nodeInputs{"granted": full, "before_grant": testInputs()} {
		t.Run(name, func(t *testing.T) {
			status := inputs.status()
			var documents []string
			for _, intent := range []*coreapply.NodeApplyConfiguration{
				inputs.initial(), inputs.meta("uid"), statusIntent(coreapply.Node(inputs.name), &corev1.NodeStatus{}, &status, testTime),
			} {
				text, err := yaml.Marshal(intent)
				if err != nil {
					t.Fatal(err)
				}
				documents = append(documents, string(text))
			}
			got, golden := strings.Join(documents, "---\n"), "testdata/"+name+".yaml"
			if *rewrite {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-want +got; rewrite with -update):\n%s", golden, diff)
			}
		})
	}
}

// TestHostile: values from a provider never make its node invalid, and never overwrite labels that it may not set.
func TestHostile(t *testing.T) {
	inputs := testInputs()
	inputs.granted = granted("1", "1")
	inputs.granted.Resources["example.com/debt"], inputs.granted.Resources["not a name"] = resource.MustParse("-1"), resource.MustParse("1")
	inputs.granted.Images = make([]corev1.ContainerImage, 1000)
	plain := len(inputs.nodeLabels())
	for key, want := range map[string]bool{
		"tier": true, "example.com/tier": true, "liqo.io/provider": true, "topology.kubernetes.io/zone": true, corev1.LabelInstanceTypeStable: true,
		"node-role.kubernetes.io/control-plane": false, "kubernetes.io/metadata.name": false, "node.k8s.io/x": false, "a.b.kubernetes.io/c": false,
		"notkubernetes.io/x": true, labels.StorageAvailable: false, "not a key": false, "/": false,
	} {
		inputs.granted.Labels = map[string]string{key: "v"}
		if _, got := inputs.nodeLabels()[key]; got != want {
			t.Errorf("label %q: %v", key, got)
		}
	}
	inputs.granted.Labels = map[string]string{"key": "not a value!"}
	if got := len(inputs.nodeLabels()); got != plain {
		t.Errorf("%d labels, want %d", got, plain)
	}
	inputs.granted.Architectures, inputs.granted.OperatingSystems = []string{"a b", "arm64"}, []string{"!"}
	if labels := inputs.nodeLabels(); labels[corev1.LabelArchStable] != "arm64" || labels[corev1.LabelOSStable] != "linux" {
		t.Errorf("labels %v", labels)
	}
	for amount, want := range map[string]string{"500m": "0", "1500m": "1", "2": "2", "1Ki": "1Ki", "9E": "9E"} {
		if got := amounts(corev1.ResourceList{"example.com/gpu": resource.MustParse(amount)})["example.com/gpu"]; got.Cmp(resource.MustParse(want)) != 0 {
			t.Errorf("%s of a resource without fractions: %s, want %s", amount, got.String(), want)
		}
	}
	status := inputs.status()
	if len(status.Capacity) != 2 || len(status.Allocatable) != 2 || len(status.Images) != maxImages {
		t.Errorf("capacity %v, allocatable %v, %d images", status.Capacity, status.Allocatable, len(status.Images))
	}
}

// TestStorageLabel: the label is true, or workloads would select a node for storage that it does not have.
func TestStorageLabel(t *testing.T) {
	classes := []sharingv1alpha1.StorageClass{{StorageClassName: "fast", Default: true}}
	for _, test := range []struct {
		storage bool
		classes []sharingv1alpha1.StorageClass
		want    string
	}{{true, classes, "true"}, {true, nil, ""}, {false, classes, ""}} {
		inputs := testInputs()
		inputs.storage, inputs.granted = test.storage, granted("1", "1")
		inputs.granted.StorageClasses = test.classes
		if got := inputs.nodeLabels()[labels.StorageAvailable]; got != test.want {
			t.Errorf("enabled %t, %d classes: %q, want %q", test.storage, len(test.classes), got, test.want)
		}
	}
	inputs := testInputs()
	inputs.granted = nil
	if got := inputs.nodeLabels()[labels.StorageAvailable]; got != "" {
		t.Errorf("without a grant: %q", got)
	}
}

func TestReady(t *testing.T) {
	for _, c := range []struct {
		name    string
		granted *sharingv1alpha1.ResourceSliceStatus
		reach   reach
		want    string
	}{
		{"before the grant", nil, reachable, "Unknown KubeletNotReady the remote cluster has granted nothing yet"},
		{"all works", granted("1", "1"), reachable, "True KubeletReady the remote cluster answers and grants resources"},
		{"no answer", granted("1", "1"), unreachable, "False KubeletNotReady the API server of the remote cluster does not answer: why"},
		{"no identity", granted("1", "1"), unidentified, "False KubeletNotReady why"},
		{
			"no cpu", granted("0", "1"), reachable,
			"True KubeletReady the remote cluster answers; it takes no further pods, see the ResourceSlice of this node; running ones stay",
		},
		{"nothing, and no answer", granted("0", "0"), unreachable, "False KubeletNotReady the API server of the remote cluster does not answer: why"},
	} {
		inputs := testInputs()
		inputs.granted, inputs.reach, inputs.reachMessage = c.granted, c.reach, "why"
		if c.granted != nil {
			inputs.closed = closedBy(&sharingv1alpha1.ResourceSlice{Status: *c.granted})
		}
		status, reason, message := inputs.ready()
		if got := fmt.Sprintf("%s %s %s", status, reason, message); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		for _, other := range inputs.conditions() {
			if (other.Status == corev1.ConditionUnknown) != (c.granted == nil) {
				t.Errorf("%s: %s is %s", c.name, other.Type, other.Status)
			}
		}
	}
}

// TestNetwork: without the network the node is not Ready, unless it is being removed.
func TestNetwork(t *testing.T) {
	tunnel := func(status netv1alpha1.ConnectionStatus, message string) *netv1alpha1.TunnelEndpoint {
		return &netv1alpha1.TunnelEndpoint{Status: netv1alpha1.TunnelEndpointStatus{Connection: netv1alpha1.Connection{Status: status, StatusMessage: message}}}
	}
	usable := tunnel(netv1alpha1.ConnectionError, "node n1")
	usable.Status.Conditions = []metav1.Condition{{Type: netv1alpha1.ConditionUsable, Status: metav1.ConditionTrue}}
	for _, c := range []struct {
		name             string
		check, leaving   bool
		tunnel           *netv1alpha1.TunnelEndpoint
		ready, down      corev1.ConditionStatus
		message, because string
	}{
		{"network not checked", false, false, nil, "True", "False", "joined by other means", ""},
		{"not ours, but reported", false, false, tunnel(netv1alpha1.ConnectionError, "x"), "True", "False", "joined by other means", ""},
		{"nothing agreed", true, false, nil, "False", "True", "no tunnel", "no tunnel"},
		{"no report", true, false, tunnel("", ""), "False", "True", "is not up", "is not up"},
		{"comes up", true, false, tunnel(netv1alpha1.Connecting, "no handshake"), "False", "True", "is not up (Connecting): no handshake", "no handshake"},
		{"up", true, false, tunnel(netv1alpha1.Connected, "latency 3 ms"), "True", "False", "is up", "answers"},
		{"broken", true, false, tunnel(netv1alpha1.ConnectionError, "all probes lost"), "False", "True", "(Error): all probes lost", "all probes lost"},
		{"a few nodes are cut off", true, false, usable, "True", "False", "up for most nodes: node n1", "answers"},
		{"broken while pods leave", true, true, tunnel(netv1alpha1.ConnectionError, "all probes lost"), "True", "True", "(Error): all probes lost", "answers"},
	} {
		inputs := testInputs()
		inputs.granted, inputs.reach = granted("1", "1"), reachable
		inputs.checkNetwork, inputs.leaving, inputs.tunnel = c.check, c.leaving, c.tunnel
		conditions := inputs.conditions()
		ready, down := find(conditions, corev1.NodeReady), find(conditions, corev1.NodeNetworkUnavailable)
		if ready.Status != c.ready || down.Status != c.down || !strings.Contains(down.Message, c.message) || !strings.Contains(ready.Message, c.because) {
			t.Errorf("%s: Ready %s (%s), NetworkUnavailable %s (%s)", c.name, ready.Status, ready.Message, down.Status, down.Message)
		}
		if want := map[corev1.ConditionStatus]string{"True": "LiqoNetworkingDown", "False": "LiqoNetworkingUp"}[c.down]; down.Reason != want {
			t.Errorf("%s: reason %s", c.name, down.Reason)
		}
	}
}

func TestNext(t *testing.T) {
	now := metav1.Now()
	node, used := &corev1.Node{}, &corev1.Node{Status: corev1.NodeStatus{Allocatable: granted("1", "1").Resources}}
	leaving := &corev1.Node{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}}
	slice := func(phase sharingv1alpha1.SlicePhase, deleting bool) *sharingv1alpha1.ResourceSlice {
		s := &sharingv1alpha1.ResourceSlice{Status: sharingv1alpha1.ResourceSliceStatus{Phase: phase}}
		if deleting {
			s.DeletionTimestamp = &now
		}
		return s
	}
	const accepted, pending, refused = sharingv1alpha1.SliceAccepted, sharingv1alpha1.SlicePending, sharingv1alpha1.SliceRefused
	for _, c := range []struct {
		name     string
		phase    sharingv1alpha1.SlicePhase
		deleting bool
		node     *corev1.Node
		want     [4]action // unasked, unidentified, reachable, unreachable
	}{
		{"asked", pending, false, nil, [4]action{wait, wait, wait, wait}},
		{"granted", accepted, false, nil, [4]action{wait, probeNow, register, wait}},
		{"granted and registered", accepted, false, node, [4]action{wait, update, update, update}},
		{"asked again", pending, false, node, [4]action{wait, update, update, update}},
		{"granted before, and the answer is gone", pending, false, used, [4]action{wait, hold, hold, hold}},
		{"granted before, and the status is gone", "", false, used, [4]action{wait, hold, hold, hold}},
		{"withdrawn while the answer is gone", pending, true, used, [4]action{wait, observe, observe, observe}},
		{"waits for an administrator", sharingv1alpha1.SliceManualActionRequired, false, used, [4]action{wait, update, update, update}},
		{"withdrawn", refused, false, node, [4]action{wait, observe, observe, observe}},
		{"unpeered", accepted, true, node, [4]action{wait, observe, observe, observe}},
		{"withdrawn and removed", refused, false, nil, [4]action{wait, wait, wait, wait}},
		{"unpeered and removed", accepted, true, nil, [4]action{wait, wait, wait, wait}},
		{"node is leaving", accepted, false, leaving, [4]action{wait, wait, wait, wait}},
	} {
		for state, want := range c.want {
			if got := next(slice(c.phase, c.deleting), c.node, reach(state)); got != want {
				t.Errorf("%s, reach %d: %d, want %d", c.name, state, got, want)
			}
		}
	}
}

func TestStatusCurrent(t *testing.T) {
	inputs := testInputs()
	inputs.granted, inputs.reach = granted("2", "1G"), reachable
	for name, change := range map[string]struct {
		change func(*corev1.NodeStatus)
		want   bool
	}{
		"nothing":                 {func(*corev1.NodeStatus) {}, true},
		"another form of a value": {func(s *corev1.NodeStatus) { s.Capacity[corev1.ResourceCPU] = resource.MustParse("2000m") }, true},
		"resource, address, condition of another client": {func(s *corev1.NodeStatus) {
			s.Capacity["example.com/dongle"] = resource.MustParse("1")
			s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "1.2.3.4"})
			s.Conditions = append(s.Conditions, corev1.NodeCondition{Type: "Sunny", Status: corev1.ConditionTrue})
		}, true},
		"a heartbeat":        {func(s *corev1.NodeStatus) { s.Conditions[0].LastHeartbeatTime = metav1.Now() }, true},
		"capacity":           {func(s *corev1.NodeStatus) { s.Capacity[corev1.ResourceCPU] = resource.MustParse("3") }, false},
		"allocatable":        {func(s *corev1.NodeStatus) { delete(s.Allocatable, corev1.ResourceMemory) }, false},
		"address":            {func(s *corev1.NodeStatus) { s.Addresses[0].Address = "10.0.0.10" }, false},
		"version":            {func(s *corev1.NodeStatus) { s.NodeInfo.KubeletVersion = "v1.0.0" }, false},
		"port":               {func(s *corev1.NodeStatus) { s.DaemonEndpoints.KubeletEndpoint.Port = 1 }, false},
		"images":             {func(s *corev1.NodeStatus) { s.Images = []corev1.ContainerImage{{}} }, false},
		"Ready by a monitor": {func(s *corev1.NodeStatus) { s.Conditions[0].Status = corev1.ConditionUnknown }, false},
		"no condition":       {func(s *corev1.NodeStatus) { s.Conditions = s.Conditions[1:] }, false},
	} {
		live, wanted := inputs.status(), inputs.status()
		change.change(&live)
		if got := statusCurrent(&live, &wanted); got != change.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestConditionTimes: a condition keeps the time of its last change.
func TestConditionTimes(t *testing.T) {
	inputs := testInputs()
	inputs.granted, inputs.reach = granted("2", "1G"), reachable
	earlier := metav1.NewTime(testTime.Add(-time.Hour))
	live := inputs.status()
	for i := range live.Conditions {
		live.Conditions[i].LastTransitionTime = earlier
	}
	inputs.reach = unreachable
	status := inputs.status()
	for _, condition := range statusIntent(coreapply.Node("n"), &live, &status, testTime).Status.Conditions {
		want := earlier
		if *condition.Type == corev1.NodeReady {
			want = metav1.NewTime(testTime)
		}
		if !condition.LastTransitionTime.Equal(&want) {
			t.Errorf("%s changed at %s, want %s", *condition.Type, condition.LastTransitionTime, want)
		}
	}
}
