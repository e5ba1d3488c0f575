// SPDX-License-Identifier: Apache-2.0

// Package programs runs programs as their users have them in an offloaded namespace, with replicas in both clusters. Their manifests, in
// testdata, are those that a cluster without us would have: nothing in them is there for a pod that runs elsewhere.
//
// It knows the programs, kubectl and the API. What each program needed is in docs/programs.md. It brings a scenario of the playground up and takes
// it down: quick-start, two clusters with the same addresses, or stateful, two whose networks do not overlap. Run it with: make test-long SUITE=programs
package programs

import (
	"embed"
	"flag"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/execution"
)

var (
	keep = flag.Bool("keep", false, "use the clusters that are up, with Liqo installed and peered if it is, and leave them up (for work on these tests)")

	scenario = flag.String(
		"scenario", env.Pair,
		"of two clusters; in stateful, addresses that programs at the provider read from the API are those at which they reach pods",
	)

	clusters    *env.Env
	rome, milan *env.Cluster // consumer and provider

	//go:embed testdata
	manifests embed.FS
)

func TestMain(m *testing.M) {
	flag.Parse()
	env.Main(m, *scenario, keep, func(e *env.Env) error {
		clusters, rome, milan = e, e.Clusters[0], e.Clusters[1]
		return e.LoadNeeded("liqo-image.tar", "mover-image.tar", "tools")
	})
}

// Where a replica runs, in the names of tests.
const (
	here  = "here"
	there = "at the provider"
)

func virtualNode() string { return "liqo-" + milan.Name }

// overlapping skips what learns addresses at the provider, by the API or its peers, if they are those of other pods there.
func overlapping(t *testing.T, at string) {
	t.Helper()
	if at == there && *scenario == env.Pair {
		t.Skip("SKIPPED: the clusters have the same addresses, which this program learns from the API or its peers: -scenario stateful")
	}
}

// program is what runs in a namespace that is offloaded, under another name.
type program struct{ namespace string }

// start must be the first call of a test: it makes the namespace, and puts the image of the program on all nodes.
func start(t *testing.T, name string, images ...string) program {
	t.Helper()
	clusters.Step(t)
	for _, c := range clusters.Clusters {
		if *scenario != env.Pair && c.TryLiqoctl("status").Code != 0 {
			c.Install(t, "--set", "networkManager.config.unmappedNetworks={10.200.0.0/14}")
			env.Healthy(t, c)
		}
	}
	env.Peered(t, rome, milan)
	if err := clusters.LoadNeeded(images...); err != nil {
		t.Fatal(err)
	}
	// The nodes of the consumer are in its region, as those of a cloud are; the virtual node has that of the provider.
	for _, node := range rome.Nodes {
		rome.Kubectl(t, "label", "node", node.Name, "topology.liqo.io/region="+rome.Name, "--overwrite")
	}
	p := program{namespace: "program-" + name}
	rome.TryKubectl("", "wait", "namespace/"+p.namespace, "--for=delete", "--timeout=120s") // of an earlier run
	rome.Kubectl(t, "create", "namespace", p.namespace)
	t.Cleanup(func() {
		if t.Failed() {
			for _, args := range [][]string{{"get", "all,endpointslices,leases", "-o", "wide"}, {"events"}, {"describe", "pods"}} {
				t.Log(rome.TryKubectl("", append([]string{"-n", p.namespace}, args...)...).Out)
			}
		}
		rome.Kubectl(t, "delete", "namespace", p.namespace, "--wait=false")
	})
	rome.Liqoctl(t, "offload", "namespace", p.namespace)
	return p
}

// apply applies a manifest of testdata, with the name of the namespace, and further texts that stand for values: FROM, TO, FROM, TO.
func (p program) apply(t *testing.T, name string, values ...string) {
	t.Helper()
	text, err := manifests.ReadFile("testdata/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	manifest := strings.NewReplacer(append(values, "OFFLOADED", p.namespace, "HOME", rome.Name)...).Replace(string(text))
	if r := rome.TryKubectl(manifest, "-n", p.namespace, "apply", "-f", "-"); r.Code != 0 {
		t.Fatal(r)
	}
}

func (p program) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return rome.Kubectl(t, append([]string{"-n", p.namespace}, args...)...)
}

func (p program) try(args ...string) execution.Result {
	return rome.TryKubectl("", append([]string{"-n", p.namespace}, args...)...)
}

// ready waits until as many pods with these labels are Ready as are wanted, and returns those of rome and those of milan.
func (p program) ready(t *testing.T, want int, labels ...string) (home, remote []corev1.Pod) {
	t.Helper()
	match := client.MatchingLabels{}
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		match[key] = value
	}
	env.Eventually(t, env.Hang, fmt.Sprintf("%d pods %v are Ready", want, labels), func() (string, bool) {
		var all corev1.PodList
		if err := rome.API.List(t.Context(), &all, client.InNamespace(p.namespace), match); err != nil {
			return err.Error(), false
		}
		home, remote = nil, nil
		var seen []string
		for _, pod := range all.Items {
			seen = append(seen, fmt.Sprintf("%s on %q Ready=%s", pod.Name, pod.Spec.NodeName, env.Condition(&pod, corev1.PodReady)))
			switch {
			case env.Condition(&pod, corev1.PodReady) != corev1.ConditionTrue || pod.DeletionTimestamp != nil:
			case pod.Spec.NodeName == virtualNode():
				remote = append(remote, pod)
			default:
				home = append(home, pod)
			}
		}
		return strings.Join(seen, ", "), len(home)+len(remote) == want && len(all.Items) == want
	})
	return home, remote
}

// without deletes pods, and keeps the cluster in which they ran closed to their successors until the test ends; turn is the other cluster.
func (p program) without(t *testing.T, turn string, pods ...string) {
	t.Helper()
	closed := []string{virtualNode()}
	if turn == there {
		closed = nil
		for _, node := range rome.Nodes {
			closed = append(closed, node.Name)
		}
	}
	t.Cleanup(func() { rome.Kubectl(t, append([]string{"uncordon"}, closed...)...) })
	rome.Kubectl(t, append([]string{"cordon"}, closed...)...)
	p.kubectl(t, append([]string{"delete", "pod"}, pods...)...)
}

// client starts a pod here that has a shell and curl.
func (p program) client(t *testing.T) {
	t.Helper()
	p.apply(t, "client")
	p.kubectl(t, "wait", "pod/client", "--for=condition=Ready", "--timeout=120s")
}
