// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
)

// TestLedgerReportsEachField: whatever of a node or a pod counts is reported when nothing else changes.
func TestLedgerReportsEachField(t *testing.T) {
	bare := func(n *corev1.Node) { n.Labels = map[string]string{} }
	taint := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "team", Effect: corev1.TaintEffectNoSchedule}}
	}
	windows := func(n *corev1.Node) { n.Labels[corev1.LabelOSStable] = "windows" }
	some := list("cpu", "4")
	for _, row := range []struct {
		name          string
		before, after *corev1.Node
		want          bool
	}{
		{"the first one, which counts for nothing", nil, node("n", nil, bare, dying), true},
		{"it has more", node("n", some), node("n", list("cpu", "5")), true},
		{"another system", node("n", some), node("n", some, windows), true},
		{"it counts, and has nothing yet", node("n", nil, cordoned), node("n", nil), true},
		{"a cordoned one admits no peer any more", node("n", some, cordoned), node("n", some, cordoned, taint), true},
		{"it becomes virtual", node("n", some, taint), node("n", some, taint, virtual), true},
		{"a virtual one becomes another", node("n", some, virtual), node("n", some, virtual, arm), false},
		{"the first virtual one", nil, node("n", some, virtual), false},
	} {
		ledger := NewLedger(nil)
		if row.before != nil {
			ledger.SetNode(row.before)
		}
		if got := ledger.SetNode(row.after); got != row.want {
			t.Errorf("%s: changed is %t", row.name, got)
		}
	}
	ledger := NewLedger(nil)
	ledger.SetPod(pod("a", "n1", "", some))
	for _, row := range []struct{ name, node, origin string }{{"another node", "n2", ""}, {"another origin", "n2", "rome-id"}} {
		if !ledger.SetPod(pod("a", row.node, row.origin, some)) {
			t.Errorf("%s: a pod with the same requests is reported as unchanged", row.name)
		}
	}
}

func node(name string, allocatable corev1.ResourceList, change ...func(*corev1.Node)) *corev1.Node {
	made := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux"}},
		Status: corev1.NodeStatus{
			Allocatable: allocatable,
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, apply := range change {
		apply(made)
	}
	return made
}

func notReady(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }
func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }
func virtual(n *corev1.Node)  { n.Labels[labels.Type] = labels.TypeVirtualNode }
func tainted(name, key string, effect corev1.TaintEffect) *corev1.Node {
	return node(name, list("cpu", "60"), func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: key, Effect: effect}} })
}
func dying(n *corev1.Node) { n.DeletionTimestamp = new(metav1.Now()) }
func arm(n *corev1.Node)   { n.Labels[corev1.LabelArchStable] = "arm64" }

func pod(name, node, origin string, requests corev1.ResourceList, change ...func(*corev1.Pod)) *corev1.Pod {
	made := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{
			{Name: "main", Resources: corev1.ResourceRequirements{Requests: requests}},
		}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if origin != "" {
		made.Labels = map[string]string{labels.Origin: origin}
	}
	for _, apply := range change {
		apply(made)
	}
	return made
}

func phase(p corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = p }
}

func TestFree(t *testing.T) {
	hundred := []*corev1.Node{node("n1", list("cpu", "60")), node("n2", list("cpu", "40"))}
	for _, test := range []struct {
		name  string
		nodes []*corev1.Node
		pods  []*corev1.Pod
		want  corev1.ResourceList // of peer "rome"
	}{
		{"empty", nil, nil, list()},
		{"two nodes", hundred, nil, list("cpu", "100")},
		{"own pods take away", hundred, []*corev1.Pod{pod("a", "n1", "", list("cpu", "50"))}, list("cpu", "50")},
		{"its own pods do not", hundred, []*corev1.Pod{pod("a", "n1", "rome", list("cpu", "50"))}, list("cpu", "100")},
		{"another peer's do", hundred, []*corev1.Pod{pod("a", "n1", "milan", list("cpu", "50"))}, list("cpu", "50")},
		{"pending on a node counts", hundred, []*corev1.Pod{pod("a", "n1", "", list("cpu", "50"), phase(corev1.PodPending))}, list("cpu", "50")},
		{"without a node does not", hundred, []*corev1.Pod{pod("a", "", "", list("cpu", "50"), phase(corev1.PodPending))}, list("cpu", "100")},
		{"finished does not", hundred, []*corev1.Pod{
			pod("a", "n1", "", list("cpu", "50"), phase(corev1.PodSucceeded)), pod("b", "n1", "", list("cpu", "50"), phase(corev1.PodFailed)),
		}, list("cpu", "100")},
		{
			"NotReady gives nothing, and its pods take nothing",
			[]*corev1.Node{node("n1", list("cpu", "60"), notReady), node("n2", list("cpu", "40"))},
			[]*corev1.Pod{pod("a", "n1", "", list("cpu", "50")), pod("b", "n2", "", list("cpu", "1"))},
			list("cpu", "39"),
		},
		{"cordoned", []*corev1.Node{node("n1", list("cpu", "60"), cordoned), node("n2", list("cpu", "40"))}, nil, list("cpu", "40")},
		{
			"for control planes",
			[]*corev1.Node{tainted("n1", "node-role.kubernetes.io/control-plane", corev1.TaintEffectNoSchedule), node("n2", list("cpu", "40"))},
			nil, list("cpu", "40"),
		},
		{"set apart", []*corev1.Node{tainted("n1", "team", corev1.TaintEffectNoExecute), node("n2", list("cpu", "40"))}, nil, list("cpu", "40")},
		{"set apart, open to peers", []*corev1.Node{tainted("n1", "nvidia.com/gpu", corev1.TaintEffectNoSchedule)}, nil, list("cpu", "60")},
		{"set apart, if possible", []*corev1.Node{tainted("n1", "team", corev1.TaintEffectPreferNoSchedule)}, nil, list("cpu", "60")},
		{"short of memory", []*corev1.Node{tainted("n1", corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule)}, nil, list("cpu", "60")},
		{"being deleted", []*corev1.Node{node("n1", list("cpu", "60"), dying), node("n2", list("cpu", "40"))}, nil, list("cpu", "40")},
		{
			"virtual",
			[]*corev1.Node{node("n1", list("cpu", "60"), virtual), node("n2", list("cpu", "40"))},
			[]*corev1.Pod{pod("offloaded", "n1", "", list("cpu", "50"))},
			list("cpu", "40"),
		},
		{"more than there is", hundred, []*corev1.Pod{pod("a", "n1", "", list("cpu", "500"))}, list("cpu", "0")},
		{
			"what no node has",
			[]*corev1.Node{node("n1", list("cpu", "1", "hugepages-2Mi", "0"))},
			[]*corev1.Pod{pod("a", "n1", "", list("moon/dust", "1"))},
			list("cpu", "1"),
		},
		{
			"each pod is one of the pods",
			[]*corev1.Node{node("n1", list("cpu", "1", "pods", "110"))},
			[]*corev1.Pod{pod("a", "n1", "", nil)},
			list("cpu", "1", "pods", "109"),
		},
		{
			"a device in use",
			[]*corev1.Node{node("n1", list("cpu", "1", "nvidia.com/gpu", "1"))},
			[]*corev1.Pod{pod("a", "n1", "", list("nvidia.com/gpu", "1"))},
			list("cpu", "1", "nvidia.com/gpu", "0"),
		},
		{"overhead, sidecars and init containers", hundred, []*corev1.Pod{pod("a", "n1", "", list("cpu", "2"), func(p *corev1.Pod) {
			always := corev1.ContainerRestartPolicyAlways
			p.Spec.Overhead = list("cpu", "1")
			p.Spec.InitContainers = []corev1.Container{
				{Name: "sidecar", RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: list("cpu", "3")}},
				{Name: "init", Resources: corev1.ResourceRequirements{Requests: list("cpu", "6")}},
			}
		})}, list("cpu", "90")}, // max(2+3, 3+6) + 1
		{"resized in place", hundred, []*corev1.Pod{pod("a", "n1", "", list("cpu", "2"), func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", AllocatedResources: list("cpu", "7")}}
		})}, list("cpu", "93")},
		{"of the pod as a whole", hundred, []*corev1.Pod{pod("a", "n1", "", list("cpu", "2"), func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: list("cpu", "20")}
		})}, list("cpu", "80")},
	} {
		t.Run(test.name, func(t *testing.T) {
			gpus := func(key string) bool { return key == "nvidia.com/gpu" }
			whole, trimmed := NewLedger(gpus), NewLedger(gpus)
			for _, pod := range test.pods { // before their nodes
				whole.SetPod(pod)
				trimmed.SetPod(trim(t, TrimPod, pod))
			}
			for _, node := range test.nodes {
				whole.SetNode(node)
				trimmed.SetNode(trim(t, TrimNode, node))
			}
			for kind, ledger := range map[string]*Ledger{"whole objects": whole, "trimmed objects": trimmed} {
				if got := Share(ledger.Capacity().Free("rome"), 100); !Equal(got, test.want) {
					t.Errorf("%s: got %v, want %v", kind, text(got), text(test.want))
				}
			}
		})
	}
}

// trim applies a transform function twice, as a cache may.
func trim[T any](t *testing.T, transform func(any) (any, error), object T) T {
	t.Helper()
	once, err := transform(object)
	if err != nil {
		t.Fatal(err)
	}
	twice, err := transform(once)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(once, twice) {
		t.Errorf("trimming twice differs:\n%v\n%v", once, twice)
	}
	return twice.(T)
}

// The example of the documents, step by step.
func TestDocumentedExample(t *testing.T) {
	ledger := NewLedger(nil)
	grant := func() string {
		share := Share(ledger.Capacity().Free("rome"), 90)
		cpu := share[corev1.ResourceCPU]
		return cpu.String()
	}
	steps := []struct {
		what string
		do   func()
		want string
	}{
		{"100 CPU", func() { ledger.SetNode(node("n1", list("cpu", "100"))) }, "90"},
		{"50 of them used", func() { ledger.SetPod(pod("app", "n1", "", list("cpu", "50"))) }, "45"},
		{"200, all unused", func() { ledger.DeletePod("default", "app"); ledger.SetNode(node("n2", list("cpu", "100"))) }, "180"},
	}
	for _, step := range steps {
		if step.do(); grant() != step.want {
			t.Errorf("%s: the virtual node gets %s, want %s", step.what, grant(), step.want)
		}
	}
}

func TestLedgerReportsChanges(t *testing.T) {
	ledger := NewLedger(nil)
	changed := func(want, got bool, what string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: changed is %t", what, got)
		}
	}
	changed(true, ledger.SetNode(node("n1", list("cpu", "4"))), "first node")
	changed(false, ledger.SetNode(node("n1", list("cpu", "4"), func(n *corev1.Node) {
		n.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
	})), "heartbeat")
	changed(true, ledger.SetNode(node("n1", list("cpu", "4"), cordoned)), "cordoned")
	changed(false, ledger.SetNode(node("n1", list("cpu", "8"), cordoned)), "grown while cordoned")
	changed(true, ledger.SetNode(node("n1", list("cpu", "8"))), "back")
	changed(true, ledger.SetNode(node("n1", list("cpu", "8"), arm)), "other architecture")
	changed(false, ledger.SetNode(node("v1", list("cpu", "8"), virtual)), "virtual node")
	changed(true, ledger.SetPod(pod("a", "n1", "", list("cpu", "1"))), "pod")
	changed(false, ledger.SetPod(pod("a", "n1", "", list("cpu", "1"), func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.1" })), "pod got an address")
	changed(true, ledger.SetPod(pod("a", "n1", "", list("cpu", "2"))), "pod resized")
	changed(true, ledger.SetPod(pod("a", "n1", "", list("cpu", "2"), phase(corev1.PodSucceeded))), "pod finished")
	changed(false, ledger.DeletePod("default", "a"), "finished pod deleted")
	changed(false, ledger.SetPod(pod("b", "", "", list("cpu", "1"))), "pod without a node")
	changed(false, ledger.DeletePod("default", "never-seen"), "unknown pod deleted")
	changed(true, ledger.DeleteNode("n1"), "node deleted")
	changed(false, ledger.DeleteNode("n1"), "node deleted again")
	if len(ledger.pods) != 0 || len(ledger.used) != 0 {
		t.Errorf("left over: %v %v", ledger.pods, ledger.used)
	}
}

func TestArchitecturesMostFrequentFirst(t *testing.T) {
	ledger := NewLedger(nil)
	ledger.SetNode(node("a", nil))
	ledger.SetNode(node("b", nil, arm))
	ledger.SetNode(node("c", nil, arm))
	ledger.SetNode(node("d", nil, arm, notReady))
	ledger.SetNode(node("e", nil, func(n *corev1.Node) { // a node that only the kubelet described
		n.Labels = nil
		n.Status.NodeInfo = corev1.NodeSystemInfo{Architecture: "riscv64", OperatingSystem: "linux"}
	}))
	capacity := ledger.Capacity()
	alone := NewLedger(nil)
	alone.SetNode(node("v", nil, virtual))
	alone.SetNode(node("a", nil, arm, cordoned))
	if got := alone.Capacity().Architectures; !slices.Equal(got, []string{"arm64"}) {
		t.Errorf("of cordoned nodes, when there are no others: %v", got)
	}
	// A pod may wait for a node that is cordoned or not Ready; one with a taint takes none.
	ledger.SetNode(node("away", nil, cordoned, func(n *corev1.Node) { n.Labels[corev1.LabelArchStable] = "s390x" }))
	ledger.SetNode(node("lost", nil, notReady, func(n *corev1.Node) { n.Labels[corev1.LabelArchStable] = "ppc64le" }))
	ledger.SetNode(node("also", nil, notReady, func(n *corev1.Node) { n.Labels[corev1.LabelArchStable] = "ppc64le" }))
	ledger.SetNode(node("plane", nil, func(n *corev1.Node) {
		n.Labels[corev1.LabelArchStable] = "mips"
		n.Spec.Taints = []corev1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}}
	}))
	capacity = ledger.Capacity()
	if want := []string{"arm64", "amd64", "riscv64", "ppc64le", "s390x"}; !slices.Equal(capacity.Architectures, want) {
		t.Errorf("architectures %v, want %v", capacity.Architectures, want)
	}
	if want := []string{"linux"}; !slices.Equal(capacity.OperatingSystems, want) {
		t.Errorf("operating systems %v, want %v", capacity.OperatingSystems, want)
	}
}

// TestGrant: what a peer's pods use stays granted where no further ones start, so that the cordon of one node takes nothing from the others.
func TestGrant(t *testing.T) {
	for _, test := range []struct {
		name  string
		nodes []*corev1.Node
		pods  []*corev1.Pod
		want  corev1.ResourceList // of peer "rome", at 50 %
		open  int
	}{
		{"open", []*corev1.Node{node("n1", list("cpu", "60"))}, []*corev1.Pod{pod("a", "n1", "rome", list("cpu", "10"))}, list("cpu", "30"), 1},
		{
			"the only node is cordoned",
			[]*corev1.Node{node("n1", list("cpu", "60", "pods", "9"), cordoned)},
			[]*corev1.Pod{pod("a", "n1", "rome", list("cpu", "10"))},
			list("cpu", "10", "pods", "1"), 0,
		},
		{
			"all nodes are drained, and what was evicted waits for one",
			[]*corev1.Node{node("n1", list("cpu", "60"), cordoned), node("n2", list("cpu", "40"), cordoned)},
			[]*corev1.Pod{pod("a", "", "rome", list("cpu", "10"), phase(corev1.PodPending)), pod("b", "n1", "rome", list("cpu", "10"), phase(corev1.PodFailed))},
			list(), 0,
		},
		{
			"one of two is drained, half of the pods have moved",
			[]*corev1.Node{node("n1", list("cpu", "60"), cordoned), node("n2", list("cpu", "40"))},
			[]*corev1.Pod{pod("a", "n1", "rome", list("cpu", "10")), pod("b", "n2", "rome", list("cpu", "10"))},
			list("cpu", "30", "pods", "1"), 1,
		},
		{"and nothing runs", []*corev1.Node{node("n1", list("cpu", "60"), cordoned)}, nil, list(), 0},
		{
			"and only others' pods run",
			[]*corev1.Node{node("n1", list("cpu", "60"), cordoned)},
			[]*corev1.Pod{pod("a", "n1", "", list("cpu", "1")), pod("b", "n1", "milan", list("cpu", "1"))},
			list(), 0,
		},
		{
			"one of two is cordoned",
			[]*corev1.Node{node("n1", list("cpu", "60"), cordoned), node("n2", list("cpu", "40"))},
			[]*corev1.Pod{pod("a", "n1", "rome", list("cpu", "30")), pod("b", "n2", "", list("cpu", "10"))},
			list("cpu", "45", "pods", "1"), 1,
		},
		{
			"set apart",
			[]*corev1.Node{tainted("n1", "team", corev1.TaintEffectNoExecute)},
			[]*corev1.Pod{pod("a", "n1", "rome", list("cpu", "10"))},
			list("cpu", "10", "pods", "1"), 0,
		},
		{
			"not Ready",
			[]*corev1.Node{node("n1", list("cpu", "60"), notReady)},
			[]*corev1.Pod{pod("a", "n1", "rome", list("cpu", "10"))},
			list("cpu", "10", "pods", "1"), 0,
		},
		{"on a virtual node", []*corev1.Node{node("n1", list("cpu", "60"), virtual)}, []*corev1.Pod{pod("a", "n1", "rome", list("cpu", "10"))}, list(), 0},
		{"on a node that is gone", nil, []*corev1.Pod{pod("a", "n1", "rome", list("cpu", "10"))}, list(), 0},
		{
			"a device",
			[]*corev1.Node{node("n1", list("cpu", "60", "nvidia.com/gpu", "2"), cordoned)},
			[]*corev1.Pod{pod("a", "n1", "rome", list("cpu", "10", "nvidia.com/gpu", "2"))},
			list("cpu", "10", "pods", "1", "nvidia.com/gpu", "2"),
			0,
		},
	} {
		ledger := NewLedger(nil)
		for _, pod := range test.pods {
			ledger.SetPod(pod)
		}
		for _, node := range test.nodes {
			ledger.SetNode(node)
		}
		capacity := ledger.Capacity()
		if got := capacity.Grant("rome", 50); !Equal(got, test.want) || capacity.Nodes != test.open {
			t.Errorf("%s: %v on %d nodes, want %v on %d", test.name, text(got), capacity.Nodes, text(test.want), test.open)
		}
	}
}

// Laws of several peers: what one peer uses is missing from all others and not from itself; no peer gets more than
// there is; and the shares of the free part plus what is used never exceed the nodes when the percentages of all
// peers sum up to at most 100.
func TestSumOverPeers(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 14))
	for range 200 {
		ledger, peers := NewLedger(nil), []string{"rome", "milan", "turin"}
		for i := range 1 + random.IntN(4) {
			ledger.SetNode(node(fmt.Sprint("n", i), list("cpu", fmt.Sprint(1+random.IntN(64)), "nvidia.com/gpu", fmt.Sprint(random.IntN(3)))))
		}
		for i := range random.IntN(20) {
			origin := append(peers, "")[random.IntN(4)]
			ledger.SetPod(pod(fmt.Sprint("p", i), fmt.Sprint("n", random.IntN(4)), origin, list("cpu", fmt.Sprintf("%dm", random.IntN(4000)))))
		}
		before := ledger.Capacity()
		const cpu = corev1.ResourceCPU
		var used, promised int64
		for _, amounts := range before.Used {
			used += amounts[cpu]
		}
		for _, peer := range peers {
			free := before.Free(peer)[cpu]
			if free > before.Allocatable[cpu] || free < 0 {
				t.Fatalf("%s may use %d of %d", peer, free, before.Allocatable[cpu])
			}
			promised += (free - before.Used[peer][cpu]) / int64(len(peers))
		}
		if all := before.Allocatable[cpu]; used <= all && used+promised > all {
			t.Fatalf("used %d and promised %d of %d", used, promised, all)
		}
		ledger.SetPod(pod("extra", "n0", "rome", list("cpu", "1")))
		after := ledger.Capacity()
		if after.Free("rome")[cpu] != before.Free("rome")[cpu] {
			t.Fatal("a peer's own pod changed what it may use")
		}
		for _, other := range []string{"milan", "turin", ""} {
			if want := max(before.Free(other)[cpu]-1000, 0); used <= before.Allocatable[cpu]-1000 && after.Free(other)[cpu] != want {
				t.Fatalf("%q may use %d, want %d", other, after.Free(other)[cpu], want)
			}
		}
	}
}

// FuzzLedger plays events in any order and compares with a count from nothing.
func FuzzLedger(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Add([]byte("set a node, set a pod, take both away, and once more"))
	f.Add([]byte{255, 254, 1, 128, 0, 64, 32, 200, 100, 50, 25, 12, 6, 3})
	f.Fuzz(func(t *testing.T, events []byte) {
		ledger := NewLedger(nil)
		nodes, pods := map[string]*corev1.Node{}, map[string]*corev1.Pod{}
		states := []func(*corev1.Node){func(*corev1.Node) {}, notReady, cordoned, virtual}
		phases := []corev1.PodPhase{corev1.PodRunning, corev1.PodPending, corev1.PodSucceeded, corev1.PodRunning}
		for i := 0; i+2 < len(events); i += 3 {
			what, which, value := events[i], events[i+1], events[i+2]
			nodeName, podName := fmt.Sprint("n", which%3), fmt.Sprint("p", which%5)
			before := ledger.Capacity()
			var changed bool
			switch what % 4 {
			case 0:
				nodes[nodeName] = node(nodeName, list("cpu", fmt.Sprint(value), "pods", "3"), states[value%4])
				changed = ledger.SetNode(nodes[nodeName])
			case 1:
				delete(nodes, nodeName)
				changed = ledger.DeleteNode(nodeName)
			case 2:
				origin := []string{"", "rome", "milan"}[value%3]
				pods[podName] = pod(podName, fmt.Sprint("n", value%4), origin, corev1.ResourceList{
					corev1.ResourceCPU: *resource.NewMilliQuantity(int64(value)*int64(which), resource.DecimalSI),
				}, phase(phases[which%4]))
				changed = ledger.SetPod(pods[podName])
			case 3:
				delete(pods, podName)
				changed = ledger.DeletePod("default", podName)
			}
			after := ledger.Capacity()
			if !changed && !reflect.DeepEqual(before, after) {
				t.Fatalf("event %d changed the sums and was not reported as a change:\n%v\n%v", i, before, after)
			}
		}
		fresh := NewLedger(nil)
		for _, name := range slices.Sorted(maps.Keys(nodes)) {
			fresh.SetNode(nodes[name])
		}
		for _, name := range slices.Sorted(maps.Keys(pods)) {
			fresh.SetPod(pods[name])
		}
		if got, want := ledger.Capacity(), fresh.Capacity(); !reflect.DeepEqual(got, want) {
			t.Errorf("after all events: %v\ncounted from nothing: %v", got, want)
		}
		for _, peer := range []string{"", "rome", "milan", "unknown"} {
			for name, value := range ledger.Capacity().Free(peer) {
				if value < 0 || value > ledger.Capacity().Allocatable[name] {
					t.Errorf("%q may use %d of %d %s", peer, value, ledger.Capacity().Allocatable[name], name)
				}
			}
		}
	})
}

func TestTrimKeepsWhatOthersNeed(t *testing.T) {
	big := pod("a", "n1", "rome", list("cpu", "1"), func(p *corev1.Pod) {
		p.UID, p.ResourceVersion = "uid", "7"
		p.Labels["app"] = "x"
		p.Annotations = map[string]string{
			"kubectl.kubernetes.io/last-applied-configuration": "long", corev1.MirrorPodAnnotationKey: "yes", labels.ForceUnpeer: "true",
		}
		p.OwnerReferences = []metav1.OwnerReference{{Name: "set"}}
		p.Spec.Containers[0].Image = "image"
		p.Spec.Volumes = []corev1.Volume{{Name: "v"}}
	})
	got := trim(t, TrimPod, big)
	if got.UID != "uid" || got.ResourceVersion != "7" || len(got.OwnerReferences) != 1 || got.Labels[labels.Origin] != "rome" ||
		len(got.Labels) != 1 || len(got.Annotations) != 2 || got.Spec.Volumes != nil || got.Spec.Containers[0].Image != "" {
		t.Errorf("trimmed pod: %+v", got)
	}
	if big.Spec.Containers[0].Image != "image" || len(big.Labels) != 2 {
		t.Error("the pod that was handed in was changed")
	}
	if done := trim(t, TrimPod, pod("a", "n1", "", list("cpu", "1"), phase(corev1.PodFailed))); len(done.Spec.Containers) != 0 {
		t.Errorf("a finished pod keeps %v", done.Spec.Containers)
	}
	status := func(p *corev1.Pod) {
		p.Status.PodIPs = []corev1.PodIP{{IP: "10.1.0.5"}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled}, {Type: corev1.PodReady, Status: corev1.ConditionTrue, Message: "long"}}
	}
	endpoint := trim(
		t, TrimPod,
		pod("a", "n1", "", list("cpu", "1"), status, func(p *corev1.Pod) { p.Labels = map[string]string{labels.ManagedBy: labels.ManagedByShadowPod} }),
	)
	if len(endpoint.Status.PodIPs) != 1 || len(endpoint.Status.Conditions) != 1 ||
		endpoint.Status.Conditions[0].Status != corev1.ConditionTrue || endpoint.Status.Conditions[0].Message != "" {
		t.Errorf("a pod of a peer, which may be an endpoint of its Services: %+v", endpoint.Status)
	}
	if other := trim(t, TrimPod, pod("a", "n1", "", list("cpu", "1"), status)); other.Status.PodIPs != nil || other.Status.Conditions != nil {
		t.Errorf("another pod: %+v", other.Status)
	}
	machine := trim(t, TrimNode, node("n1", list("cpu", "1"), func(n *corev1.Node) {
		n.Status.Images = []corev1.ContainerImage{{Names: []string{"a"}}}
		n.Labels["rack"] = "7"
	}))
	if machine.Status.Images != nil || machine.Labels["rack"] != "7" || len(machine.Status.Conditions) != 1 {
		t.Errorf("trimmed node: %+v", machine)
	}
	type tombstone struct{}
	if same, err := TrimPod(tombstone{}); err != nil || same != any(tombstone{}) {
		t.Errorf("what is no pod: %v, %v", same, err)
	}
}
