// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/internal/action/actiontest"
	"liqo.io/liqo/internal/action/installed"
	"liqo.io/liqo/internal/action/pair"
)

// sides are two clusters that may peer.
func sides() (local, remote *pair.Cluster) {
	local = &pair.Cluster{
		Prefix: "(local) ", Name: "milan",
		Facts: pair.Facts{Identity: discoveryv1alpha1.ClusterIdentity{ClusterID: actiontest.LocalID, ClusterName: "rome"}, Proxy: true},
	}
	remote = &pair.Cluster{
		Prefix: "(remote) ", Name: "rome",
		Facts: pair.Facts{Identity: discoveryv1alpha1.ClusterIdentity{ClusterID: actiontest.RemoteID, ClusterName: "milan"}, Proxy: true},
	}
	local.Other, remote.Other = remote, local
	local.Outgoing = true
	return local, remote
}

func TestJudgeInBand(t *testing.T) {
	foreign := func(name, id string, kind discoveryv1alpha1.PeeringType) *discoveryv1alpha1.ForeignCluster {
		fc := &discoveryv1alpha1.ForeignCluster{}
		fc.Name, fc.Spec.PeeringType, fc.Spec.ClusterIdentity = name, kind, &discoveryv1alpha1.ClusterIdentity{ClusterID: id, ClusterName: name}
		return fc
	}
	for name, row := range map[string]struct {
		change func(local, remote *pair.Cluster)
		want   []string // parts of the findings, in order; none: they may peer
	}{
		"two clusters": {func(*pair.Cluster, *pair.Cluster) {}, nil},
		"in-band already": {func(l, _ *pair.Cluster) {
			l.Facts.Known = append(l.Facts.Known, foreign("milan", actiontest.RemoteID, discoveryv1alpha1.InBand))
		}, nil},
		"not installed":        {func(_, r *pair.Cluster) { r.Facts.Err = installed.ErrNotServed }, []string{"(remote) Liqo"}},
		"the same cluster":     {func(l, r *pair.Cluster) { r.Facts.Identity = l.Facts.Identity }, []string{"must be different"}},
		"the same name":        {func(_, r *pair.Cluster) { r.Facts.Identity.ClusterName = "rome" }, []string{"the name rome"}},
		"a bad name":           {func(l, _ *pair.Cluster) { l.Name = "Mi lan" }, []string{`"Mi lan"`}},
		"no network here":      {func(l, _ *pair.Cluster) { l.Facts.External = true }, []string{"(local) network"}},
		"no network there":     {func(_, r *pair.Cluster) { r.Facts.External = true }, []string{"(remote) network"}},
		"an old version there": {func(_, r *pair.Cluster) { r.Facts.Proxy = false }, []string{"(remote) proxy"}},
		"out-of-band here": {func(l, _ *pair.Cluster) {
			l.Facts.Known = append(l.Facts.Known, foreign("milan", actiontest.RemoteID, discoveryv1alpha1.OutOfBand))
		}, []string{"(local) known clusters: the clusters are peered already"}},
		"out-of-band there": {func(_, r *pair.Cluster) {
			r.Facts.Known = append(r.Facts.Known, foreign("rome", actiontest.LocalID, discoveryv1alpha1.OutOfBand))
		}, []string{"(remote) known clusters: the clusters are peered already"}},
		"the name is taken": {func(_, r *pair.Cluster) {
			r.Facts.Known = append(r.Facts.Known, foreign("rome", "another", discoveryv1alpha1.InBand))
		}, []string{"(remote) known clusters: the ForeignCluster \"rome\" belongs to another cluster"}},
		"another name": {func(l, _ *pair.Cluster) {
			l.Facts.Known = append(l.Facts.Known, foreign("mailand", actiontest.RemoteID, discoveryv1alpha1.InBand))
		}, []string{"another name"}},
		"another key": {func(l, r *pair.Cluster) {
			fc := foreign("milan", actiontest.RemoteID, discoveryv1alpha1.InBand)
			fc.Spec.ClusterKey, r.Facts.Key = "known", "other"
			l.Facts.Known = append(l.Facts.Known, fc)
		}, []string{"(local) known clusters: the cluster " + actiontest.RemoteID + " is known here by another key"}},
		"another key here": {func(l, r *pair.Cluster) {
			fc := foreign("rome", actiontest.LocalID, discoveryv1alpha1.InBand)
			fc.Spec.ClusterKey, l.Facts.Key, l.Facts.Previous = "known", "other", "older"
			r.Facts.Known = append(r.Facts.Known, fc)
		}, []string{"(remote) known clusters: the cluster " + actiontest.LocalID + " is known here by another key"}},
		"a key that was replaced": {func(l, r *pair.Cluster) {
			fc := foreign("milan", actiontest.RemoteID, discoveryv1alpha1.InBand)
			fc.Spec.ClusterKey, r.Facts.Key, r.Facts.Previous = "known", "other", "known"
			l.Facts.Known = append(l.Facts.Known, fc)
		}, nil},
		"being deleted": {func(l, _ *pair.Cluster) {
			fc := foreign("milan", actiontest.RemoteID, discoveryv1alpha1.InBand)
			fc.DeletionTimestamp = new(metav1.Now())
			l.Facts.Known = append(l.Facts.Known, fc)
		}, []string{"in deletion"}},
		"the provider refuses all": {func(_, r *pair.Cluster) { r.Facts.Refuses = true }, []string{"(remote) incoming peering"}},
		"this cluster refuses all": {func(l, _ *pair.Cluster) { l.Facts.Refuses = true }, nil},
		"this cluster refuses all, and is to be used": {func(l, r *pair.Cluster) {
			l.Facts.Refuses, r.Outgoing = true, true
		}, []string{"(local) incoming peering"}},
		"this cluster refuses the other one, and is to be used": {func(l, r *pair.Cluster) {
			fc := foreign("milan", actiontest.RemoteID, discoveryv1alpha1.InBand)
			fc.Spec.IncomingPeeringEnabled = discoveryv1alpha1.PeeringNo
			l.Facts.Known, r.Outgoing = append(l.Facts.Known, fc), true
		}, []string{"(local) incoming peering"}},
		"both refuse": {func(l, r *pair.Cluster) {
			l.Facts.Refuses, r.Facts.Refuses, r.Outgoing = true, true, true
		}, []string{"(local) incoming peering", "(remote) incoming peering"}},
		"all but this one": {func(_, r *pair.Cluster) {
			fc := foreign("rome", actiontest.LocalID, discoveryv1alpha1.InBand)
			fc.Spec.IncomingPeeringEnabled = discoveryv1alpha1.PeeringYes
			r.Facts.Refuses, r.Facts.Known = true, append(r.Facts.Known, fc)
		}, nil},
		"two problems": {func(l, r *pair.Cluster) { l.Facts.External, r.Facts.External = true, true }, []string{"(local) network", "(remote) network"}},
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
