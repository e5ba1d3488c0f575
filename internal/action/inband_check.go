// SPDX-License-Identifier: Apache-2.0

package action

import (
	"fmt"
)

// judgeInBand returns what forbids an in-band peering in the directions that are to be enabled. It is pure.
func judgeInBand(local, remote *side) (failures []Finding) {
	fail := func(check, evidence, remedy string) {
		failures = append(failures, Finding{Check: check, Level: LevelFailure, Evidence: evidence, Remedy: remedy})
	}
	for _, s := range []*side{local, remote} {
		if s.facts.err != nil {
			fail(s.prefix+"Liqo", s.facts.err.Error(), "install it, or choose another cluster with --context and --remote-context")
		}
	}
	if len(failures) > 0 {
		return failures
	}
	here, there := &local.facts, &remote.facts
	switch {
	case here.identity.ClusterID == there.identity.ClusterID:
		fail("clusters", fmt.Sprintf("both are %s (%s): local and remote clusters must be different", here.identity.ClusterName, here.identity.ClusterID),
			"choose the other one with --remote-context or --remote-kubeconfig")
		return failures
	case here.identity.ClusterName == there.identity.ClusterName:
		fail("names", fmt.Sprintf("both clusters have the name %s", here.identity.ClusterName), "install one of them with another --cluster-name")
	}
	if found := judgeName(local.name); found != nil {
		fail("name", found.Evidence, found.Remedy)
	}
	for _, s := range []*side{local, remote} {
		for _, found := range s.judge() {
			found.Check, found.Level = s.prefix+found.Check, LevelFailure
			failures = append(failures, found)
		}
	}
	for _, s := range []*side{local, remote} {
		if s.other.outgoing && s.refusesOther() {
			fail(s.prefix+"incoming peering", "its settings do not let the other cluster use it",
				"set discovery.config.incomingPeeringEnabled in that cluster, or spec.incomingPeeringEnabled of its ForeignCluster, to Yes")
		}
	}
	return failures
}
