// SPDX-License-Identifier: Apache-2.0

package main

import "slices"

// given are the variables that give tests clusters of the playground that is up, the consumer first (see test/env).
func given(clusters ...string) (variables []string) {
	for i, name := range []string{"CONSUMER", "PROVIDER", "THIRD"}[:len(clusters)] {
		variables = append(variables, "LIQO_E2E_"+name+"_KUBECONFIG=/var/lib/liqo-playground/kubeconfig/"+clusters[i]+".yaml")
	}
	return variables
}

// onClusters runs suites in their short form, one after the other. -p 1: they share the clusters. -parallel 8: tests in namespaces of their own wait
// for the clusters more than they compute.
func onClusters(environment []string, suites ...string) command {
	return command{args: append([]string{"go", "test", "-count=1", "-p", "1", "-parallel", "8", "-timeout", "60m", "-v"}, suites...), env: environment}
}

// journey brings one pair of clusters up and runs on it what a user does with Liqo.
func journey(found facts) stage {
	s := stage{
		name: "journey", last: true,
		about: "two real clusters: the Quick Start, peering, connectivity, offloading, a fault for each law that two clusters can show, purge",
		commands: []command{
			{args: []string{"bin/playground", "down"}},
			{args: []string{"bin/playground", "up", "quick-start", "--audit"}},
			onClusters(given("rome", "milan"), "./test/e2e", "./test/offload", "./test/field", "./test/quickstart"),
		},
		after: []command{{args: []string{"bin/playground", "down"}}},
	}
	return withRoot(s, found)
}

// up brings the clusters of the gate up, which tests then share pair by pair.
func up(found facts) stage {
	return withRoot(stage{name: "clusters", about: "six real clusters", last: true, commands: []command{
		{args: []string{"bin/playground", "down"}},
		{args: []string{"bin/playground", "up", "test/gate.yaml", "--audit"}},
	}}, found)
}

// down takes the clusters of the gate away.
func down(found facts) stage {
	return withRoot(stage{name: "end", about: "the clusters go", always: true, commands: []command{{args: []string{"bin/playground", "down"}}}}, found)
}

// clusterLanes are the suites on the clusters of the gate, in two lanes of about the same length: of each, the suites that need the same pair.
func clusterLanes(found facts) []stage {
	first := []stage{
		{name: "journey", about: "the Quick Start, peering, connectivity, a fault for each law that two clusters can show, purge", commands: []command{
			onClusters(given("rome", "milan"), "./test/e2e", "./test/quickstart"),
		}},
		{name: "several", about: "one application in a consumer and two providers, traffic from one provider to the other", commands: []command{
			onClusters(given("rome", "milan", "genoa"), "./test/several"),
		}},
	}
	second := []stage{
		{name: "offload", about: "offloading: each kind that is reflected, volumes, silence; programs as people have them", commands: []command{
			onClusters(given("turin", "naples"), "./test/offload", "./test/field"),
		}},
		{name: "stateful", about: "a database of two clusters, by the commands of its guide, without the loss of a cluster", commands: []command{
			{args: []string{"make", "--no-print-directory", "stateful-images"}},
			onClusters(given("turin", "lyon"), "./test/stateful"),
		}},
	}
	all := slices.Concat(inLane("first clusters", first...), inLane("second clusters", second...))
	for i := range all {
		all[i].last = true
		all[i] = withRoot(all[i], found)
	}
	return all
}
