// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
)

const (
	// claimWrites is how many API writes of Liqo a claim costs at most, in both clusters together, from its creation until its pod runs.
	claimWrites = 6
	// claimsIdle is how long unchanged claims are observed.
	claimsIdle = time.Minute
)

// TestClaimWrites counts, by the audit logs, what claims cost until they are bound, and while they do not change.
func TestClaimWrites(t *testing.T) {
	if !*long {
		t.Skip("NOT RUN: it observes idle claims for a minute; use -long")
	}
	installedAndPeered(t)
	clusters.NeedsPlayground(t, "audit logs")
	s := offload(t)
	const n = 4
	for name, where := range map[string]string{"here": "DoesNotExist", "there": "Exists"} {
		start := time.Now()
		for i := range n {
			claimName := fmt.Sprintf("%s-%d", name, i)
			s.apply(t, strings.ReplaceAll(claim, "NAME", claimName))
			s.mount(t, claimName, where)
		}
		// The record of the provider's volume and the last event follow the start of the pod.
		env.Eventually(t, env.Hang, "the claims have their events", func() (string, bool) {
			events := s.kubectl(t, "get", "events", "-o", `jsonpath={range .items[*]}{.involvedObject.name} {.reason}{"\n"}{end}`)
			for i := range n {
				if !strings.Contains(events, fmt.Sprintf("%s-%d ProvisioningSucceeded", name, i)) {
					return events, false
				}
			}
			recorded := rome.Kubectl(
				t, "get", "persistentvolumes", "-l", "liqo.io/remote-cluster-id", "-o",
				`jsonpath={range .items[?(@.spec.claimRef.namespace=="`+s.name+`")]}{.metadata.annotations.storage\.liqo\.io/remote-volume}{"\n"}{end}`,
			)
			return recorded, name == "here" || len(strings.Fields(recorded)) == n
		})
		total, calls := s.claimCalls(t, name, start)
		clusters.Measure("API writes of Liqo per claim, data "+name, "%.2f (limit %d): %s", float64(total)/n, claimWrites, calls)
		if total > claimWrites*n || total < n {
			t.Errorf("%d claims %s cost %d writes: %s", n, name, total, calls)
		}
	}
	start := time.Now()
	<-time.After(claimsIdle) // nothing happens meanwhile
	for _, name := range []string{"here", "there"} {
		if total, calls := s.claimCalls(t, name, start); total > 0 {
			t.Errorf("idle claims %s cost %d writes in %v: %s", name, total, claimsIdle, calls)
		}
	}
	clusters.Measure("API writes of Liqo for idle claims", "0 in %v", claimsIdle)
}

// claimCalls counts the writes that are about claims whose names have the prefix, about their volumes, and about their real claims.
func (s namespace) claimCalls(t *testing.T, prefix string, from time.Time) (total int, text string) {
	t.Helper()
	about := map[string]bool{} // RESOURCE/NAMESPACE/NAME
	for _, line := range strings.Fields(s.kubectl(t, "get", claimKindName, "-o", `jsonpath={range .items[*]}{.metadata.name}/{.metadata.uid}{"\n"}{end}`)) {
		if name, uid, _ := strings.Cut(line, "/"); strings.HasPrefix(name, prefix) {
			about["persistentvolumeclaims/"+s.name+"/"+name], about["persistentvolumeclaims/"+s.remote+"/"+name] = true, true
			about["persistentvolumeclaims/"+storageNamespace+"/"+uid], about["persistentvolumes//pvc-"+uid] = true, true
		}
	}
	for _, line := range strings.Fields(s.kubectl(
		t, "get", "events", "-o",
		`jsonpath={range .items[?(@.involvedObject.kind=="PersistentVolumeClaim")]}{.involvedObject.name}/{.metadata.name}{"\n"}{end}`,
	)) {
		if name, event, _ := strings.Cut(line, "/"); strings.HasPrefix(name, prefix) {
			about["events/"+s.name+"/"+event] = true
		}
	}
	sums := map[string]int{}
	for _, c := range clusters.Clusters {
		for _, call := range c.Calls(t, from, time.Time{}) {
			if object := call.ObjectRef; call.Writes() && about[object.Resource+"/"+object.Namespace+"/"+object.Name] {
				total++
				sums[c.Name+" "+call.Account()+" "+call.Verb+" "+call.Resource()]++
			}
		}
	}
	for _, what := range slices.Sorted(maps.Keys(sums)) {
		text += fmt.Sprintf("%d %s, ", sums[what], what)
	}
	return total, strings.TrimSuffix(text, ", ")
}
