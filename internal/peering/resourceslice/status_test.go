// SPDX-License-Identifier: Apache-2.0

package resourceslice

import (
	"slices"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/kube/storageclass"
	"liqo.io/liqo/internal/peering/grant"
	"liqo.io/liqo/internal/peering/reach"
)

func TestRefusal(t *testing.T) {
	peer := func(enabled discoveryv1alpha1.PeeringEnabled) *discoveryv1alpha1.ForeignCluster {
		return &discoveryv1alpha1.ForeignCluster{Spec: discoveryv1alpha1.ForeignClusterSpec{IncomingPeeringEnabled: enabled}}
	}
	waits := peer(discoveryv1alpha1.PeeringYes)
	waits.Status.Incoming = &discoveryv1alpha1.IncomingStatus{State: discoveryv1alpha1.IncomingWaiting, Message: "policies are missing"}
	deleted := peer(discoveryv1alpha1.PeeringYes)
	deleted.DeletionTimestamp = new(metav1.Now())
	for _, test := range []struct {
		name     string
		peer     *discoveryv1alpha1.ForeignCluster
		incoming discoveryv1alpha1.PeeringEnabled
		want     string
	}{
		{"auto, on", peer(discoveryv1alpha1.PeeringAuto), discoveryv1alpha1.PeeringYes, ""},
		{"auto, off", peer(discoveryv1alpha1.PeeringAuto), discoveryv1alpha1.PeeringNo, sharingv1alpha1.ReasonIncomingDisabled},
		{"auto, manual", peer(discoveryv1alpha1.PeeringAuto), discoveryv1alpha1.PeeringManual, sharingv1alpha1.ReasonIncomingWaiting},
		{"not defaulted, off", peer(""), discoveryv1alpha1.PeeringNo, sharingv1alpha1.ReasonIncomingDisabled},
		{"yes, off", peer(discoveryv1alpha1.PeeringYes), discoveryv1alpha1.PeeringNo, ""},
		{"no, on", peer(discoveryv1alpha1.PeeringNo), discoveryv1alpha1.PeeringYes, sharingv1alpha1.ReasonIncomingDisabled},
		{"yes, and the decision waits for policies", waits, discoveryv1alpha1.PeeringYes, sharingv1alpha1.ReasonIncomingWaiting},
		{"being deleted", deleted, discoveryv1alpha1.PeeringYes, sharingv1alpha1.ReasonProviderWithdrawing},
		{"no record", nil, discoveryv1alpha1.PeeringYes, sharingv1alpha1.ReasonProviderWithdrawing},
	} {
		facts := &sliceFacts{peer: test.peer, incoming: test.incoming}
		if reason, message := refusal(facts); reason != test.want || (reason == "") != (message == "") {
			t.Errorf("%s: %q, %q", test.name, reason, message)
		}
	}
}

func TestCompareSlice(t *testing.T) {
	facts := &sliceFacts{peer: &discoveryv1alpha1.ForeignCluster{}, incoming: discoveryv1alpha1.PeeringYes, percentage: 100, labels: map[string]string{"a": "b"}}
	facts.capacity = grant.Capacity{Nodes: 1, Allocatable: grant.Amounts{"cpu": 100_000, "memory": 1e9}, Architectures: []string{"amd64"}}
	slice := &sharingv1alpha1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
	answer := func() *sharingv1alpha1.ResourceSliceStatus {
		return &sliceAnswers(facts, []sliceQuery{{slice, &slice.Status}})[0]
	}
	if got := compareSlice(&slice.Status, answer(), 5); got != majorChange {
		t.Errorf("first answer: %d", got)
	}
	last := answer()
	for _, step := range []struct {
		name   string
		change func()
		want   sliceChange
	}{
		{"nothing", func() {}, unchanged},
		{"five percent", func() { facts.capacity.Allocatable["cpu"] = 95_000 }, minorChange},
		{"six percent", func() { facts.capacity.Allocatable["cpu"] = 94_000 }, majorChange},
		{"as before", func() { facts.capacity.Allocatable["cpu"] = 100_000 }, unchanged},
		{"another label", func() { facts.labels = map[string]string{"a": "c"} }, majorChange},
		{"as before", func() { facts.labels = map[string]string{"a": "b"} }, unchanged},
		{"an architecture", func() { facts.capacity.Architectures = []string{"arm64", "amd64"} }, majorChange},
		{"as before", func() { facts.capacity.Architectures = []string{"amd64"} }, unchanged},
		{"a storage class", func() { facts.storage = []sharingv1alpha1.StorageClass{{StorageClassName: "x"}} }, majorChange},
		{"as before", func() { facts.storage = nil }, unchanged},
		{"one percent of the percentage", func() { facts.percentage = 99 }, majorChange},
		{"as before", func() { facts.percentage = 100 }, unchanged},
		{"another request", func() { slice.Generation++ }, majorChange},
	} {
		step.change()
		if got := compareSlice(last, answer(), 5); got != step.want {
			t.Errorf("%s: %d, want %d", step.name, got, step.want)
		}
	}
}

func TestIsSliceCopy(t *testing.T) {
	for name, test := range map[string]struct {
		labels     map[string]string
		finalizers []string
		want       bool
	}{
		"a copy":                           {map[string]string{labels.Replicated: "true", labels.Replication: "false"}, nil, true},
		"our own request":                  {map[string]string{labels.Replication: "true"}, []string{labels.FinalizerReplication}, false},
		"ours, labelled by a hostile peer": {map[string]string{labels.Replication: "true", labels.Replicated: "true"}, nil, false},
		"a copy that we wrote into":        {map[string]string{labels.Replication: "true", labels.Replicated: "true"}, []string{labels.FinalizerGrant}, true},
		"a copy without its label":         {nil, []string{labels.FinalizerGrant}, true},
		"unmanaged":                        {nil, nil, false},
	} {
		slice := &sharingv1alpha1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Labels: test.labels, Finalizers: test.finalizers}}
		if got := slice.IsCopy(); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestSharedClasses(t *testing.T) {
	old, young := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	byDefault := map[string]string{storageclass.DefaultAnnotation: "true"}
	classes := []storagev1.StorageClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "c", CreationTimestamp: old, Annotations: byDefault}, Provisioner: "x"},
		{
			ObjectMeta:  metav1.ObjectMeta{Name: "b", CreationTimestamp: young, Annotations: map[string]string{storageclass.OlderDefaultAnnotation: "true"}},
			Provisioner: "x",
		},
		{ObjectMeta: metav1.ObjectMeta{Name: "liqo", CreationTimestamp: young, Annotations: byDefault}, Provisioner: virtualProvisioner},
		{ObjectMeta: metav1.ObjectMeta{Name: "a", CreationTimestamp: young}, Provisioner: "x"},
	}
	classes[0].Provisioner = "disk.example.com"
	drivers := []storagev1.CSIDriver{{ObjectMeta: metav1.ObjectMeta{Name: "disk.example.com"}}}
	storage := sharedStorageClasses(classes, drivers, []string{"*"})
	if want := []sharingv1alpha1.StorageClass{
		{StorageClassName: "a"}, {StorageClassName: "b", Default: true}, {StorageClassName: "c", Clones: true},
	}; !slices.Equal(storage, want) {
		t.Errorf("storage classes %v", storage)
	}
	if some := sharedStorageClasses(classes, nil, []string{"a", "liqo", "d"}); !slices.Equal(some, []sharingv1alpha1.StorageClass{{StorageClassName: "a"}}) {
		t.Errorf("of some names: %v", some)
	}
	if none := sharedStorageClasses(classes, nil, nil); len(none) > 0 {
		t.Errorf("of no names: %v", none)
	}
	ingress := sharedIngressClasses([]networkingv1.IngressClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "z", Annotations: map[string]string{defaultIngressClass: "true"}}}, {ObjectMeta: metav1.ObjectMeta{Name: "y"}},
	})
	if want := []sharingv1alpha1.IngressClass{{IngressClassName: "y"}, {IngressClassName: "z", Default: true}}; !slices.Equal(ingress, want) {
		t.Errorf("ingress classes %v", ingress)
	}
}

// TestWantsProxy: a provider asks its consumer to open its proxy only if it is to use that cluster, and does not reach it.
func TestWantsProxy(t *testing.T) {
	t.Parallel()
	type made = discoveryv1alpha1.PeeringCondition
	condition := func(kind discoveryv1alpha1.PeeringConditionType, status discoveryv1alpha1.PeeringConditionStatus, reason string) made {
		return discoveryv1alpha1.PeeringCondition{Type: kind, Status: status, Reason: reason}
	}
	silent := condition(discoveryv1alpha1.AuthenticationStatus, discoveryv1alpha1.StatusError, discoveryv1alpha1.ReasonAuthNotReachable)
	consumer := func(change func(*discoveryv1alpha1.ForeignCluster)) *discoveryv1alpha1.ForeignCluster {
		fc := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{labels.DiscoveryType: labels.DiscoveryIncoming}}}
		fc.Spec.OutgoingPeeringEnabled, fc.Status.PeeringConditions = discoveryv1alpha1.PeeringYes, []discoveryv1alpha1.PeeringCondition{silent}
		change(fc)
		return fc
	}
	for name, row := range map[string]struct {
		change func(*discoveryv1alpha1.ForeignCluster)
		want   bool
	}{
		"silent": {func(*discoveryv1alpha1.ForeignCluster) {}, true},
		"not wanted": {func(fc *discoveryv1alpha1.ForeignCluster) {
			fc.Spec.OutgoingPeeringEnabled = discoveryv1alpha1.PeeringAuto
		}, false},
		"known to an administrator": {func(fc *discoveryv1alpha1.ForeignCluster) {
			fc.Labels[labels.DiscoveryType] = labels.DiscoveryManual
		}, false},
		"reached": {func(fc *discoveryv1alpha1.ForeignCluster) { fc.Status.PeeringConditions = nil }, false},
		"reached inside": {func(fc *discoveryv1alpha1.ForeignCluster) {
			fc.Status.PeeringConditions, fc.Spec.ForeignAuthURL = nil, discoveryv1alpha1.AuthURLInside
		}, true},
		"API server silent": {func(fc *discoveryv1alpha1.ForeignCluster) {
			fc.Status.PeeringConditions[0] = condition(discoveryv1alpha1.APIServerStatus, discoveryv1alpha1.StatusError, discoveryv1alpha1.ReasonAPIServerNotReady)
		}, true},
		"API server not asked yet": {func(fc *discoveryv1alpha1.ForeignCluster) {
			fc.Status.PeeringConditions[0] = condition(discoveryv1alpha1.APIServerStatus, discoveryv1alpha1.StatusPending, discoveryv1alpha1.ReasonAPIServerNotReady)
		}, false},
	} {
		if got := reach.WantsProxy(consumer(row.change)); got != row.want {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
	if reach.WantsProxy(nil) {
		t.Error("a cluster that is not known is asked")
	}
	before, after := consumer(func(fc *discoveryv1alpha1.ForeignCluster) { fc.Status.PeeringConditions = nil }),
		consumer(func(*discoveryv1alpha1.ForeignCluster) {})
	if !proxyWantedChanged.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) ||
		proxyWantedChanged.Update(event.UpdateEvent{ObjectOld: after, ObjectNew: after}) {
		t.Error("the change is not noticed, or what is none is")
	}
	asked := sharingv1alpha1.ResourceSliceStatus{}
	describe(&sliceFacts{peer: after}, &asked)
	if !asked.ProxyWanted {
		t.Error("the answer does not ask for it")
	}
}
