// SPDX-License-Identifier: Apache-2.0

package action

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
)

// sides are two clusters that may peer.
func sides() (local, remote *side) {
	local = &side{prefix: "(local) ", name: "milan", facts: sideFacts{identity: discoveryv1alpha1.ClusterIdentity{ClusterID: localID, ClusterName: "rome"}, proxy: true}}
	remote = &side{prefix: "(remote) ", name: "rome", facts: sideFacts{identity: discoveryv1alpha1.ClusterIdentity{ClusterID: remoteID, ClusterName: "milan"}, proxy: true}}
	local.other, remote.other = remote, local
	local.outgoing = true
	return local, remote
}

func TestJudgeInBand(t *testing.T) {
	foreign := func(name, id string, kind discoveryv1alpha1.PeeringType) *discoveryv1alpha1.ForeignCluster {
		fc := &discoveryv1alpha1.ForeignCluster{}
		fc.Name, fc.Spec.PeeringType, fc.Spec.ClusterIdentity = name, kind, &discoveryv1alpha1.ClusterIdentity{ClusterID: id, ClusterName: name}
		return fc
	}
	for name, row := range map[string]struct {
		change func(local, remote *side)
		want   []string // parts of the findings, in order; none: they may peer
	}{
		"two clusters": {func(*side, *side) {}, nil},
		"in-band already": {func(l, _ *side) {
			l.facts.known = append(l.facts.known, foreign("milan", remoteID, discoveryv1alpha1.InBand))
		}, nil},
		"not installed":        {func(_, r *side) { r.facts.err = errNotServed }, []string{"(remote) Liqo"}},
		"the same cluster":     {func(l, r *side) { r.facts.identity = l.facts.identity }, []string{"must be different"}},
		"the same name":        {func(_, r *side) { r.facts.identity.ClusterName = "rome" }, []string{"the name rome"}},
		"a bad name":           {func(l, _ *side) { l.name = "Mi lan" }, []string{`"Mi lan"`}},
		"no network here":      {func(l, _ *side) { l.facts.external = true }, []string{"(local) network"}},
		"no network there":     {func(_, r *side) { r.facts.external = true }, []string{"(remote) network"}},
		"an old version there": {func(_, r *side) { r.facts.proxy = false }, []string{"(remote) proxy"}},
		"out-of-band here": {func(l, _ *side) {
			l.facts.known = append(l.facts.known, foreign("milan", remoteID, discoveryv1alpha1.OutOfBand))
		}, []string{"(local) known clusters: the clusters are peered already"}},
		"out-of-band there": {func(_, r *side) {
			r.facts.known = append(r.facts.known, foreign("rome", localID, discoveryv1alpha1.OutOfBand))
		}, []string{"(remote) known clusters: the clusters are peered already"}},
		"the name is taken": {func(_, r *side) {
			r.facts.known = append(r.facts.known, foreign("rome", "another", discoveryv1alpha1.InBand))
		}, []string{"(remote) known clusters: the ForeignCluster \"rome\" belongs to another cluster"}},
		"another name": {func(l, _ *side) {
			l.facts.known = append(l.facts.known, foreign("mailand", remoteID, discoveryv1alpha1.InBand))
		}, []string{"another name"}},
		"another key": {func(l, r *side) {
			fc := foreign("milan", remoteID, discoveryv1alpha1.InBand)
			fc.Spec.ClusterKey, r.facts.key = "known", "other"
			l.facts.known = append(l.facts.known, fc)
		}, []string{"(local) known clusters: the cluster " + remoteID + " is known here by another key"}},
		"another key here": {func(l, r *side) {
			fc := foreign("rome", localID, discoveryv1alpha1.InBand)
			fc.Spec.ClusterKey, l.facts.key, l.facts.previous = "known", "other", "older"
			r.facts.known = append(r.facts.known, fc)
		}, []string{"(remote) known clusters: the cluster " + localID + " is known here by another key"}},
		"a key that was replaced": {func(l, r *side) {
			fc := foreign("milan", remoteID, discoveryv1alpha1.InBand)
			fc.Spec.ClusterKey, r.facts.key, r.facts.previous = "known", "other", "known"
			l.facts.known = append(l.facts.known, fc)
		}, nil},
		"being deleted": {func(l, _ *side) {
			fc := foreign("milan", remoteID, discoveryv1alpha1.InBand)
			fc.DeletionTimestamp = new(metav1.Now())
			l.facts.known = append(l.facts.known, fc)
		}, []string{"in deletion"}},
		"the provider refuses all": {func(_, r *side) { r.facts.refuses = true }, []string{"(remote) incoming peering"}},
		"this cluster refuses all": {func(l, _ *side) { l.facts.refuses = true }, nil},
		"this cluster refuses all, and is to be used": {func(l, r *side) {
			l.facts.refuses, r.outgoing = true, true
		}, []string{"(local) incoming peering"}},
		"this cluster refuses the other one, and is to be used": {func(l, r *side) {
			fc := foreign("milan", remoteID, discoveryv1alpha1.InBand)
			fc.Spec.IncomingPeeringEnabled = discoveryv1alpha1.PeeringNo
			l.facts.known, r.outgoing = append(l.facts.known, fc), true
		}, []string{"(local) incoming peering"}},
		"both refuse": {func(l, r *side) {
			l.facts.refuses, r.facts.refuses, r.outgoing = true, true, true
		}, []string{"(local) incoming peering", "(remote) incoming peering"}},
		"all but this one": {func(_, r *side) {
			fc := foreign("rome", localID, discoveryv1alpha1.InBand)
			fc.Spec.IncomingPeeringEnabled = discoveryv1alpha1.PeeringYes
			r.facts.refuses, r.facts.known = true, append(r.facts.known, fc)
		}, nil},
		"two problems": {func(l, r *side) { l.facts.external, r.facts.external = true, true }, []string{"(local) network", "(remote) network"}},
	} {
		t.Run(name, func(t *testing.T) {
			local, remote := sides()
			row.change(local, remote)
			got := judgeInBand(local, remote)
			if len(got) != len(row.want) {
				t.Fatalf("findings %v, want %q", got, row.want)
			}
			for i, want := range row.want {
				if !strings.Contains(got[i].String(), want) || got[i].Remedy == "" {
					t.Errorf("finding %q does not name %q, or no remedy", got[i], want)
				}
			}
		})
	}
}
