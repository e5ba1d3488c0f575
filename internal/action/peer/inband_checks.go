// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"fmt"

	"liqo.io/liqo/internal/action/pair"
	"liqo.io/liqo/internal/action/preflight"
)

// judgeInBand returns what forbids an in-band peering in the directions that are to be enabled. It is pure.
func judgeInBand(local, remote *pair.Cluster) (failures []preflight.Finding) {
	fail := func(check, evidence, remedy string) {
		failures = append(failures, preflight.Finding{Check: check, Level: preflight.LevelFailure, Evidence: evidence, Remedy: remedy})
	}
	for _, s := range []*pair.Cluster{local, remote} {
		if s.Facts.Err != nil {
			fail(s.Prefix+"Liqo", s.Facts.Err.Error(), "install it, or choose another cluster with --context and --remote-context")
		}
	}
	if len(failures) > 0 {
		return failures
	}
	here, there := &local.Facts, &remote.Facts
	switch {
	case here.Identity.ClusterID == there.Identity.ClusterID:
		fail("clusters", fmt.Sprintf("both are %s (%s): local and remote clusters must be different", here.Identity.ClusterName, here.Identity.ClusterID),
			"choose the other one with --remote-context or --remote-kubeconfig")
		return failures
	case here.Identity.ClusterName == there.Identity.ClusterName:
		fail("names", fmt.Sprintf("both clusters have the name %s", here.Identity.ClusterName), "install one of them with another --cluster-name")
	}
	if found := preflight.JudgeName(local.Name); found != nil {
		fail("name", found.Evidence, found.Remedy)
	}
	for _, s := range []*pair.Cluster{local, remote} {
		for _, found := range s.Judge() {
			found.Check, found.Level = s.Prefix+found.Check, preflight.LevelFailure
			failures = append(failures, found)
		}
	}
	for _, s := range []*pair.Cluster{local, remote} {
		if s.Other.Outgoing && s.RefusesOther() {
			fail(s.Prefix+"incoming peering", "its settings do not let the other cluster use it",
				"set discovery.config.incomingPeeringEnabled in that cluster, or spec.incomingPeeringEnabled of its ForeignCluster, to Yes")
		}
	}
	return failures
}
