// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
)

func TestWantsOutgoing(t *testing.T) {
	now := metav1.Now()
	for _, c := range []struct {
		enabled  discoveryv1alpha1.PeeringEnabled
		kind     string
		autoJoin bool
		deleted  bool
		want     bool
	}{
		{discoveryv1alpha1.PeeringYes, labels.DiscoveryManual, false, false, true},
		{discoveryv1alpha1.PeeringYes, labels.DiscoveryManual, true, true, false},
		{discoveryv1alpha1.PeeringNo, labels.DiscoveryLAN, true, false, false},
		{discoveryv1alpha1.PeeringAuto, labels.DiscoveryLAN, true, false, true},
		{discoveryv1alpha1.PeeringAuto, labels.DiscoveryLAN, false, false, false},
		{discoveryv1alpha1.PeeringAuto, labels.DiscoveryIncoming, true, false, false},
	} {
		fc := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{labels.DiscoveryType: c.kind}}}
		fc.Spec.OutgoingPeeringEnabled = c.enabled
		if c.deleted {
			fc.DeletionTimestamp = &now
		}
		if have := WantsOutgoing(fc, c.autoJoin); have != c.want {
			t.Errorf("%+v: %t", c, have)
		}
	}
}

func TestCheckPeer(t *testing.T) {
	fc := func(name, id string, second int64) discoveryv1alpha1.ForeignCluster {
		fc := discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(second, 0)}}
		fc.Spec.ClusterIdentity = &discoveryv1alpha1.ClusterIdentity{ClusterID: id, ClusterName: name}
		return fc
	}
	local := discoveryv1alpha1.ClusterIdentity{ClusterID: "me", ClusterName: "rome"}
	old, young, sameAge, other := fc("milan", "a", 1), fc("milano", "a", 2), fc("mailand", "a", 1), fc("turin", "b", 1)
	self := fc("self", "me", 1)
	all := []discoveryv1alpha1.ForeignCluster{old, young, sameAge, other}
	for _, c := range []struct {
		fc   discoveryv1alpha1.ForeignCluster
		want string
	}{
		{old, discoveryv1alpha1.ReasonClusterIDRepetition}, // mailand is as old, and first by name
		{young, discoveryv1alpha1.ReasonClusterIDRepetition},
		{sameAge, ""},
		{other, ""},
		{self, discoveryv1alpha1.ReasonLocalCluster},
	} {
		have := Check(&c.fc, local, all)
		if c.want == "" != (have == nil) || have != nil && have.Reason != c.want {
			t.Errorf("%s: %v, want %q", c.fc.Name, have, c.want)
		}
	}
}

func TestNodeName(t *testing.T) {
	milan := discoveryv1alpha1.ClusterIdentity{ClusterID: "a", ClusterName: "milan"}
	node := func(id string) []corev1.Node {
		return []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "liqo-milan", Labels: map[string]string{labels.RemoteClusterID: id}}}}
	}
	request := func(id string) []sharingv1alpha1.ResourceSlice {
		return []sharingv1alpha1.ResourceSlice{{Spec: sharingv1alpha1.ResourceSliceSpec{NodeName: "liqo-milan", ProviderClusterID: id}}}
	}
	if have := NodeName(milan, "liqo-tenant-mailand-000000", nil, nil); have != "liqo-mailand-000000" {
		t.Errorf("in the namespace of an earlier name: %s", have)
	}
	for _, c := range []struct {
		nodes  []corev1.Node
		slices []sharingv1alpha1.ResourceSlice
		want   string
	}{
		{nil, nil, "liqo-milan"},
		{node("a"), request("a"), "liqo-milan"},
		{node("b"), nil, "liqo-" + milan.UniqueName()},
		{node(""), nil, "liqo-" + milan.UniqueName()},
		{nil, request("b"), "liqo-" + milan.UniqueName()},
	} {
		if have := NodeName(milan, milan.TenantNamespace(), c.nodes, c.slices); have != c.want {
			t.Errorf("%v %v: %s, want %s", c.nodes, c.slices, have, c.want)
		}
	}
}

func TestUnusedSince(t *testing.T) {
	made, ended := time.Unix(100, 0), time.Unix(200, 0)
	fc := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(made)}}
	if have := UnusedSince(fc); !have.Equal(made) {
		t.Errorf("without conditions: %v", have)
	}
	fc.Status.PeeringConditions = []discoveryv1alpha1.PeeringCondition{
		{Type: discoveryv1alpha1.OutgoingPeering, LastTransitionTime: metav1.Unix(300, 0)},
		{Type: discoveryv1alpha1.IncomingPeering, LastTransitionTime: metav1.NewTime(ended)},
	}
	if have := UnusedSince(fc); !have.Equal(ended) {
		t.Errorf("after the last request: %v", have)
	}
}
