// SPDX-License-Identifier: Apache-2.0

package network

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
)

// testReport is the output of `liqoctl test network -o json`, as a user's script would read it.
type testReport struct {
	Failed    int      `json:"failed"`
	NotTested []string `json:"notTested"`
	Results   []struct {
		Case        string `json:"case"`
		FromCluster string `json:"fromCluster"`
		Protocol    string `json:"protocol"`
	} `json:"results"`
}

// liqoctlTest runs `liqoctl test network`. If everything works, it reports success for each kind of path in both directions. If the clusters
// are cut off from each other, it fails and names the paths. In both cases it leaves nothing.
func liqoctlTest(t *testing.T) {
	namespaces := func() string {
		return alpha.Kubectl(t, "get", "namespaces", "-o", "name") + "\n" + beta.Kubectl(t, "get", "namespaces", "-o", "name")
	}
	before := namespaces()
	args := []string{"test", "network", "--remote-kubeconfig", beta.Kubeconfig(), "--bytes", "1000000", "-o", "json"}
	start := time.Now()
	result := alpha.Liqoctl(t, args...)
	var report testReport
	if err := json.Unmarshal([]byte(result.Out), &report); err != nil {
		t.Fatalf("%v in %s", err, result.Out)
	}
	kinds := map[string]bool{}
	for _, one := range report.Results {
		kinds[one.FromCluster+" "+one.Case+" "+one.Protocol] = true
	}
	if report.Failed > 0 || len(report.Results) < 40 || len(kinds) < 12 {
		t.Errorf("%d of %d paths failed, of %d kinds: %v", report.Failed, len(report.Results), len(kinds), kinds)
	}
	for _, one := range []*env.Cluster{alpha, beta} { // the addresses that the other cluster shows, or why they are not tested
		shown := kinds[one.Name+" pod to pod of its cluster at the address that the other cluster shows TCP"]
		if named := slices.ContainsFunc(report.NotTested, func(why string) bool {
			return strings.Contains(why, "shows the pods of "+one.Name+" at ")
		}); shown == named {
			t.Errorf("shown addresses in %s: tested %t, reported as not tested %t: %q", one.Name, shown, named, report.NotTested)
		}
	}
	clusters.Measure("liqoctl test network, "+alpha.Name+" and "+beta.Name, "%d paths in %.1f s", len(report.Results), time.Since(start).Seconds())

	clusters.Do(t, "fault", "partition", alpha.Name, beta.Name)
	broken := alpha.TryLiqoctl(args...)
	clusters.Do(t, "fault", "heal", alpha.Name, beta.Name)
	if broken.Code != 1 || !strings.Contains(broken.Err, "ways do not work") || !strings.Contains(broken.Err, beta.Name) {
		t.Errorf("while the clusters are cut off from each other: %s", broken)
	}
	for _, pair := range directions() {
		established(t, pair[0], pair[1])
	}
	// liqoctl deletes its namespaces without waiting for their end, and the clusters were cut off from each other.
	env.Eventually(t, env.Hang, "the namespaces that there were before", func() (string, bool) {
		after := namespaces()
		return after, after == before
	})
}
