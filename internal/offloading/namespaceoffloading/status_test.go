// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/controllertest"
	"liqo.io/liqo/internal/offloading/provider"
)

// TestOffloadingStatus: every reason, and the phase of each mixture, as documented.
func TestOffloadingStatus(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const name = "shop-rome-1"
	reporting := func(phase vkv1alpha1.MappingPhase, called string) provider.Provider {
		p := provider.Provider{Name: "milan-1", NodeName: "liqo-milan", Node: controllertest.NodeWith(nil), Namespaces: &vkv1alpha1.NamespaceMap{}}
		p.Namespaces.Spec.DesiredMapping = map[string]string{"shop": name}
		if phase != "" {
			p.Namespaces.Status.CurrentMapping = map[string]vkv1alpha1.RemoteNamespaceStatus{"shop": {RemoteNamespace: called, Phase: phase, Message: "why"}}
		}
		return p
	}
	unselected := reporting("", "")
	unselected.Node.Labels["no"] = "no"
	unselected.Namespaces.Spec.DesiredMapping = nil
	given := unselected
	given.Namespaces = &vkv1alpha1.NamespaceMap{}
	given.Namespaces.Status.CurrentMapping = map[string]vkv1alpha1.RemoteNamespaceStatus{"shop": {RemoteNamespace: name, Phase: vkv1alpha1.MappingTerminating}}
	ready, failed := reporting(vkv1alpha1.MappingAccepted, name), reporting(vkv1alpha1.MappingCreationLoopBackOff, name)
	leaving := unselected
	leaving.Leaving = true
	for what, test := range map[string]struct {
		providers []provider.Provider
		deleted   bool
		phase     offloadingv1alpha1.OffloadingPhase
		reasons   string // of the first cluster
	}{
		"no cluster":        {nil, false, "NoClusterSelected", ""},
		"none chosen":       {[]provider.Provider{unselected}, false, "NoClusterSelected", "ClusterNotSelected"},
		"given up":          {[]provider.Provider{given}, false, "NoClusterSelected", "ClusterNotSelected Terminating"},
		"leaving":           {[]provider.Provider{leaving}, false, "NoClusterSelected", ""},
		"asked":             {[]provider.Provider{reporting("", "")}, false, "InProgress", "ClusterSelected Creating"},
		"ready":             {[]provider.Provider{ready}, false, "Ready", "ClusterSelected NamespaceCreated"},
		"another name":      {[]provider.Provider{reporting(vkv1alpha1.MappingAccepted, "kube-system")}, false, "InProgress", "ClusterSelected Creating"},
		"deleted there":     {[]provider.Provider{reporting(vkv1alpha1.MappingTerminating, name)}, false, "InProgress", "ClusterSelected Terminating"},
		"failed":            {[]provider.Provider{failed}, false, "AllFailed", "ClusterSelected CreationLoopBackOff"},
		"both failed":       {[]provider.Provider{failed, failed}, false, "AllFailed", "ClusterSelected CreationLoopBackOff"},
		"one failed":        {[]provider.Provider{failed, ready}, false, "SomeFailed", "ClusterSelected CreationLoopBackOff"},
		"one failed so far": {[]provider.Provider{failed, reporting("", "")}, false, "SomeFailed", "ClusterSelected CreationLoopBackOff"},
		"one to come":       {[]provider.Provider{ready, reporting("", "")}, false, "InProgress", "ClusterSelected NamespaceCreated"},
		"others unselected": {[]provider.Provider{ready, unselected}, false, "Ready", "ClusterSelected NamespaceCreated"},
		"deleted":           {[]provider.Provider{ready}, true, "Terminating", "ClusterNotSelected Terminating"},
	} {
		offloading := &offloadingv1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "offloading", Generation: 3}}
		offloading.Spec.ClusterSelector.NodeSelectorTerms = []corev1.NodeSelectorTerm{controllertest.Term("no", corev1.NodeSelectorOpDoesNotExist)}
		if test.deleted {
			offloading.DeletionTimestamp = &metav1.Time{Time: now}
		}
		for i := range test.providers {
			test.providers[i].Name = fmt.Sprint("cluster-", i)
		}
		status := offloadingStatus(offloading, name, test.providers, now)
		var reasons []string
		for _, condition := range status.RemoteNamespacesConditions["cluster-0"] {
			reasons = append(reasons, condition.Reason)
			if condition.Message == "" || condition.LastTransitionTime.IsZero() {
				t.Errorf("%s: %+v", what, condition)
			}
			if what == "deleted there" && condition.Reason == "Terminating" && !strings.HasSuffix(condition.Message, "why") {
				t.Errorf("the provider's reason is missing: %s", condition.Message)
			}
		}
		if status.OffloadingPhase != test.phase || strings.Join(reasons, " ") != test.reasons ||
			status.ObservedGeneration != 3 || status.RemoteNamespaceName != name {
			t.Errorf("%s: %s %v, want %s %s", what, status.OffloadingPhase, reasons, test.phase, test.reasons)
		}
		// Time passes; what is the same stays the same.
		offloading.Status = status
		if diff := cmp.Diff(status, offloadingStatus(offloading, name, test.providers, now.Add(time.Hour))); diff != "" {
			t.Errorf("%s, an hour later: %s", what, diff)
		}
	}
}
