// SPDX-License-Identifier: Apache-2.0

package network

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
)

// usersReport is what `liqoctl test network -o json` prints, as a user's script reads it.
type usersReport struct {
	Failed  int `json:"failed"`
	Results []struct {
		Case        string `json:"case"`
		FromCluster string `json:"fromCluster"`
		Protocol    string `json:"protocol"`
	} `json:"results"`
}

// usersTest is `liqoctl test network`: where everything works it says so, of each kind of way and in both directions; where nothing does it
// fails and names the ways; and both times it leaves nothing.
func usersTest(t *testing.T) {
	namespaces := func() string {
		return alpha.Kubectl(t, "get", "namespaces", "-o", "name") + "\n" + beta.Kubectl(t, "get", "namespaces", "-o", "name")
	}
	before := namespaces()
	args := []string{"test", "network", "--remote-kubeconfig", beta.Kubeconfig(), "--bytes", "1000000", "-o", "json"}
	began := time.Now()
	said := alpha.Liqoctl(t, args...)
	var report usersReport
	if err := json.Unmarshal([]byte(said.Out), &report); err != nil {
		t.Fatalf("%v in %s", err, said.Out)
	}
	kinds := map[string]bool{}
	for _, one := range report.Results {
		kinds[one.FromCluster+" "+one.Case+" "+one.Protocol] = true
	}
	if report.Failed > 0 || len(report.Results) < 40 || len(kinds) < 12 {
		t.Errorf("%d of %d ways failed, of %d kinds: %v", report.Failed, len(report.Results), len(kinds), kinds)
	}
	clusters.Measure("liqoctl test network, "+alpha.Name+" and "+beta.Name, "%d ways in %.1f s", len(report.Results), time.Since(began).Seconds())

	clusters.Do(t, "fault", "partition", alpha.Name, beta.Name)
	broken := alpha.TryLiqoctl(args...)
	clusters.Do(t, "fault", "heal", alpha.Name, beta.Name)
	if broken.Code != 1 || !strings.Contains(broken.Err, "ways do not work") || !strings.Contains(broken.Err, beta.Name) {
		t.Errorf("while the clusters are cut off from each other: %s", broken)
	}
	for _, pair := range directions() {
		established(t, pair[0], pair[1], 30*time.Second)
	}
	// It asks for their end and does not wait: their pods have seconds to stop, and their clusters were cut off from each other.
	env.Eventually(t, time.Minute, "the namespaces that there were before", func() (string, bool) {
		after := namespaces()
		return after, after == before
	})
}
