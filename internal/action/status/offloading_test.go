// SPDX-License-Identifier: Apache-2.0

package status

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

func TestOffloadedNamespaces(t *testing.T) {
	offloading := func(
		namespace string, phase offloadingv1alpha1.OffloadingPhase, conditions map[string]offloadingv1alpha1.RemoteNamespaceConditions,
	) offloadingv1alpha1.NamespaceOffloading {
		return offloadingv1alpha1.NamespaceOffloading{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: offloadingv1alpha1.NamespaceOffloadingName},
			Spec:       offloadingv1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1alpha1.PodsRemote},
			Status: offloadingv1alpha1.NamespaceOffloadingStatus{
				OffloadingPhase: phase, RemoteNamespaceName: namespace + "-rome", RemoteNamespacesConditions: conditions,
			},
		}
	}
	chosen := offloadingv1alpha1.RemoteNamespaceCondition{Type: offloadingv1alpha1.ConditionOffloadingRequired, Status: "True"}
	not := offloadingv1alpha1.RemoteNamespaceCondition{Type: offloadingv1alpha1.ConditionOffloadingRequired, Status: "False"}
	failed := offloadingv1alpha1.RemoteNamespaceCondition{
		Type: offloadingv1alpha1.ConditionReady, Status: "False", Reason: offloadingv1alpha1.ReasonCreationLoopBackOff, Message: "the name is taken",
	}
	got := newOffloadedNamespaces([]offloadingv1alpha1.NamespaceOffloading{
		offloading("web", offloadingv1alpha1.OffloadingAllFailed, map[string]offloadingv1alpha1.RemoteNamespaceConditions{"milan": {chosen, failed}}),
		offloading(
			"shop", offloadingv1alpha1.OffloadingReady,
			map[string]offloadingv1alpha1.RemoteNamespaceConditions{"turin": {not}, "naples": {chosen}, "milan": {chosen}},
		),
	})
	want := []OffloadedNamespace{
		{Namespace: "shop", Phase: "Ready", Pods: "Remote", Clusters: []string{"milan", "naples"}, Remote: "shop-rome"},
		{
			Namespace: "web", Phase: "AllFailed", Pods: "Remote", Clusters: []string{"milan"}, Remote: "web-rome",
			Message: "milan: the name is taken (CreationLoopBackOff)",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestRemoteNamespaces(t *testing.T) {
	mapped := func(name string, phase vkv1alpha1.MappingPhase) vkv1alpha1.RemoteNamespaceStatus {
		return vkv1alpha1.RemoteNamespaceStatus{RemoteNamespace: name, Phase: phase}
	}
	ours := vkv1alpha1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{labels.Replication: "true", labels.RemoteID: "milan-id"}},
		Spec:       vkv1alpha1.NamespaceMapSpec{DesiredMapping: map[string]string{"web": "web-rome", "shop": "shop-rome"}},
		Status: vkv1alpha1.NamespaceMapStatus{CurrentMapping: map[string]vkv1alpha1.RemoteNamespaceStatus{
			"shop": mapped("shop-rome", vkv1alpha1.MappingAccepted), "old": mapped("old-rome", vkv1alpha1.MappingTerminating),
		}},
	}
	theirs := vkv1alpha1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{labels.Replicated: "true", labels.OriginID: "milan-id", labels.RemoteID: "rome-id"}},
		Spec:       vkv1alpha1.NamespaceMapSpec{DesiredMapping: map[string]string{"data": "data-milan"}},
	}
	offloaded, hosted := newRemoteNamespaces("milan-id", []vkv1alpha1.NamespaceMap{ours, theirs})
	if diff := cmp.Diff([]RemoteNamespace{
		{"old", "old-rome", "Terminating", ""}, {"shop", "shop-rome", "Accepted", ""}, {"web", "web-rome", "Creating", ""},
	}, offloaded); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]RemoteNamespace{{"data", "data-milan", "Creating", ""}}, hosted); diff != "" {
		t.Error(diff)
	}
	if offloaded, hosted := newRemoteNamespaces("turin-id", []vkv1alpha1.NamespaceMap{ours, theirs}); len(offloaded)+len(hosted) > 0 {
		t.Errorf("of an unknown peer: %v %v", offloaded, hosted)
	}
}
