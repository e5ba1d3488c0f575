// SPDX-License-Identifier: Apache-2.0

package several

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
)

// remade is the time within which a deleted remote namespace is back; outage is what a user would call one.
const remade, outage = 10 * time.Second, 30 * time.Second

// selectors: the labels of a cluster, given to its installation, are those of its virtual node; a selector of two labels wants both, two selectors want
// one of them.
func selectors(t *testing.T) {
	peered(t, star()...)
	for _, c := range []*env.Cluster{milan, turin} {
		node, err := rome.VirtualNode(c)
		if err != nil {
			t.Fatal(err)
		}
		for pair := range strings.SplitSeq(labelsOf[slices.Index(clusters.Clusters, c)], ",") {
			if key, value, _ := strings.Cut(pair, "="); node.Labels[key] != value {
				t.Errorf("the virtual node of %s has the labels %v, want %s", c.Name, node.Labels, pair)
			}
		}
	}
	a := app{"chosen", rome, clusters.Clusters}
	a.offload(t)
	for _, one := range []struct {
		flags []string
		in    []*env.Cluster
	}{
		{[]string{"-l", "topology.liqo.io/region=north,topology.liqo.io/tier=edge"}, []*env.Cluster{milan}},
		{[]string{"-l", "topology.liqo.io/region=north,topology.liqo.io/tier=cloud"}, []*env.Cluster{turin}},
		{[]string{"-l", "topology.liqo.io/region=north"}, []*env.Cluster{milan, turin}},
		{[]string{"-l", "topology.liqo.io/tier notin (edge)"}, []*env.Cluster{turin}},
		{[]string{"-l", "topology.liqo.io/tier=edge", "-l", "topology.liqo.io/region=north,topology.liqo.io/tier=cloud"}, []*env.Cluster{milan, turin}},
		{[]string{"-l", "topology.liqo.io/region=north,topology.liqo.io/tier=none"}, nil},
	} {
		if r := rome.TryLiqoctl(append([]string{"offload", "namespace", a.name}, one.flags...)...); r.Code != 0 {
			t.Errorf("offload with %v: %s", one.flags, r)
		}
		name := a.namespace(t, milan) // the same in both
		for _, c := range []*env.Cluster{milan, turin} {
			want := false
			for _, chosen := range one.in {
				want = want || chosen == c
			}
			env.Eventually(t, env.Hang, fmt.Sprintf("with %v, a namespace in %s: %v", one.flags, c.Name, want), func() (string, bool) {
				r := c.TryKubectl("", "get", "namespace", name)
				return r.Out + r.Err, (r.Code == 0) == want
			})
		}
	}
}

// nameIsTakenInOne: turin has a namespace of the name that rome enforces. The application works in milan, and in turin as soon as the name is free.
func nameIsTakenInOne(t *testing.T) {
	peered(t, star()...)
	a := app{"taken", rome, clusters.Clusters}
	turin.Kubectl(t, "create", "namespace", a.name)
	t.Cleanup(func() { _ = turin.TryKubectl("", "delete", "namespace", a.name) }) // it is gone if the test passes
	rome.Kubectl(t, "create", "namespace", a.name)
	t.Cleanup(func() {
		_ = rome.TryLiqoctl("unoffload", "namespace", a.name) // the test may have failed before it was offloaded
		rome.Kubectl(t, "delete", "namespace", a.name, "--timeout=120s")
	})
	result := rome.TryLiqoctl("offload", "namespace", a.name, "--namespace-mapping-strategy", "EnforceSameName")
	for _, want := range []string{"SomeFailed", "turin", "was not made for this cluster"} {
		if !strings.Contains(result.Out+result.Err, want) {
			t.Errorf("offload with a name that one of two providers has taken does not mention %q: %s", want, result)
		}
	}
	if phase := a.phase(t); phase != "SomeFailed" {
		t.Errorf("the phase is %s, want SomeFailed", phase)
	}
	a.apply(t, service)
	for _, c := range clusters.Clusters {
		a.start(t, "web-"+c.Name, c)
	}
	a.ready(t, rome, milan)
	a.answersEverywhere(t, []*env.Cluster{rome, milan}, []*env.Cluster{rome, milan})
	env.Eventually(t, env.Hang, "the pod that cannot run in turin reports it", func() (string, bool) {
		status := rome.Kubectl(t, "-n", a.name, "get", "pod", "web-turin", "-o", "jsonpath={.status.phase} {.status.reason}")
		return status, status == "Pending OffloadingBackOff"
	})
	if found := turin.Kubectl(t, "-n", a.name, "get", "pods,services,endpointslices", "-o", "name"); found != "" {
		t.Errorf("turin has in its own namespace: %s", found)
	}
	before := a.state(t, milan, rome)

	turin.Kubectl(t, "delete", "namespace", a.name, "--timeout=60s")
	env.Eventually(t, env.Hang, "the phase is Ready", func() (string, bool) {
		phase := a.phase(t)
		return phase, phase == "Ready"
	})
	a.ready(t, turin)
	a.answersEverywhere(t, a.in, a.in)
	if after := a.state(t, milan, rome); after != before {
		t.Errorf("in milan, before: %s\nand after the conflict in turin was healed: %s", before, after)
	}
}

func (a app) phase(t *testing.T) string {
	t.Helper()
	return a.consumer.Kubectl(t, "-n", a.name, "get", "namespaceoffloading", "offloading", "-o", "jsonpath={.status.offloadingPhase}")
}

// remoteNamespaceDeleted: an administrator of milan deletes the remote namespace. It is back soon with all that was in it, and nothing changes in turin.
func remoteNamespaceDeleted(t *testing.T) {
	peered(t, star()...)
	a := deploy(t, rome, "remade", milan, turin)
	a.answersEverywhere(t, a.in, a.in)
	before, name := a.state(t, turin, rome), a.namespace(t, milan)
	old := milan.Kubectl(t, "get", "namespace", name, "-o", "jsonpath={.metadata.uid}")
	milan.Kubectl(t, "delete", "namespace", name, "--timeout=60s")
	took := env.Eventually(t, env.Hang, "the remote namespace is back", func() (string, bool) {
		r := milan.TryKubectl("", "get", "namespace", name, "-o", "jsonpath={.metadata.uid} {.status.phase}")
		return r.Out + r.Err, r.Code == 0 && !strings.HasPrefix(r.Out, old) && strings.HasSuffix(r.Out, " Active")
	})
	clusters.Measure("remote namespace deleted in one provider, until it is back", "%.1f s (target %s)", took.Seconds(), remade)
	if took > outage {
		t.Errorf("the remote namespace was away for %s", took)
	}
	a.ready(t, a.in...)
	a.answersEverywhere(t, a.in, a.in)
	if after := a.state(t, turin, rome); after != before {
		t.Errorf("in turin, before: %s\nand after the namespace in milan was deleted: %s", before, after)
	}
}
