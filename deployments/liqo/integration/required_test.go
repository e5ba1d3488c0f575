// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/engine"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/deployments/liqo/charttest"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/kube/policies"
	"liqo.io/liqo/internal/offloading/peers"
	"liqo.io/liqo/internal/offloading/remotenamespace"
)

// TestAttackM8: a cluster without admission policies is refused, unless its administrator accepts it; and when a policy is removed later, a peer gets no
// further namespace and no pod until it is there again.
func TestAttackM8(t *testing.T) {
	for value, refused := range map[string]bool{"required": true, "ifPossible": false} {
		values := charttest.Required()
		charttest.Set(values, "policies", value)
		all, err := util.ToRenderValues(
			charttest.Load(t), values, common.ReleaseOptions{Name: "liqo", Namespace: "liqo", IsInstall: true, Revision: 1},
			common.DefaultCapabilities,
		)
		if err != nil {
			t.Fatal(err)
		}
		rendered, err := engine.Render(charttest.Load(t), all)
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "policies=ifPossible") {
			t.Errorf("policies=%s on an old cluster: %v", value, err)
		}
		if !refused {
			oldRights(t, rendered["liqo/templates/peers.yaml"])
		}
	}
	var names []string
	for _, object := range charttest.Render(t, "restrictInstallNamespace=false") { // that policy does not limit peers, and is a choice
		if object.GetKind() == "ValidatingAdmissionPolicy" && charttest.Field(t, object, "spec", "failurePolicy") == "Fail" {
			names = append(names, object.GetName())
		}
	}
	slices.Sort(names)
	if want := slices.Sorted(slices.Values(policies.Names)); !slices.Equal(names, want) {
		t.Errorf("the chart has the policies %v, the controller manager requires %v", names, want)
	}

	s := newSide(t, kubetest.Cluster(t))
	s.Must(admissionv1.AddToScheme(s.Scheme()))
	s.peer()
	var remoteNamespaces *peers.Namespaces
	s.manager(func(mgr ctrl.Manager) error {
		guard, err := policies.New(t.Context(), mgr)
		if err != nil {
			return err
		}
		if remoteNamespaces, err = peers.Watch(mgr); err != nil {
			return err
		}
		remoteNamespaces.Policies = guard
		return remotenamespace.Setup(mgr, remotenamespace.Options{Namespace: liqoItself, Policies: guard})
	})
	namespaceMap := &vkv1alpha1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: inMilan, Name: "milan", Labels: map[string]string{labels.Replicated: "true", labels.Replication: "false"}},
		Spec:       vkv1alpha1.NamespaceMapSpec{DesiredMapping: map[string]string{"before": "before-rome"}},
	}
	s.Make(namespaceMap)
	hooks := charttest.Find(t, rulesOf(t), "ValidatingWebhookConfiguration", "liqo")
	write(t, s.Client, hooks)
	answer := func(local string, phase vkv1alpha1.MappingPhase, part string) {
		t.Helper()
		s.Until(local+" is "+string(phase), func() bool {
			s.Read(namespaceMap)
			one := namespaceMap.Status.CurrentMapping[local]
			return one.Phase == phase && strings.Contains(one.Message, part)
		})
	}
	accepted := func(want bool) {
		t.Helper()
		s.Until("pods are admitted, or not", func() bool {
			is, err := remoteNamespaces.Accepted(t.Context(), "rome-id")
			return is == want && (err != nil) != want
		})
	}
	answer("before", vkv1alpha1.MappingAccepted, "")
	accepted(true)

	// It is enough that the binding is gone, or only warns.
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "liqo-remote-namespaces"}}
	s.Edit(binding, func() { binding.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn} })
	accepted(false)
	s.Edit(namespaceMap, func() { namespaceMap.Spec.DesiredMapping["late"] = "late-rome" })
	answer("late", vkv1alpha1.MappingCreationLoopBackOff, "liqo-remote-namespaces")
	answer("before", vkv1alpha1.MappingAccepted, "")
	s.Must(s.Delete(t.Context(), binding, client.Preconditions{UID: &binding.UID}))
	accepted(false)
	write(t, s.Client, charttest.Find(t, rulesOf(t), "ValidatingAdmissionPolicyBinding", binding.Name))
	answer("late", vkv1alpha1.MappingAccepted, "")
	accepted(true)

	// Or that a rule is not the chart's any more, or the webhooks are gone.
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "liqo-peers"}}
	s.Edit(policy, func() { policy.Spec.Validations[0].Expression = "true" })
	accepted(false)
	write(t, s.Client, charttest.Find(t, rulesOf(t), "ValidatingAdmissionPolicy", policy.Name))
	accepted(true)
	s.Must(s.Delete(t.Context(), hooks.DeepCopy()))
	accepted(false)
	s.Edit(namespaceMap, func() { namespaceMap.Spec.DesiredMapping["later"] = "later-rome" })
	answer("later", vkv1alpha1.MappingCreationLoopBackOff, "ValidatingWebhookConfiguration liqo")
	answer("before", vkv1alpha1.MappingAccepted, "")
	write(t, s.Client, hooks)
	answer("later", vkv1alpha1.MappingAccepted, "")
	accepted(true)
	if refused := s.denied.All(); len(refused) > 0 {
		t.Errorf("refused: %s", strings.Join(refused, "\n"))
	}
}

// oldRights checks that, without policies for claims, a peer has no right to them except to list them: it could take any free volume of the provider.
func oldRights(t *testing.T, peers string) {
	t.Helper()
	found := false
	for _, document := range strings.Split(peers, "\n---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			if !slices.Contains(rule.Resources, "persistentvolumeclaims") {
				continue
			}
			if found = true; !slices.Equal(rule.Verbs, []string{"list"}) {
				t.Errorf("role %s without policies: %v", role.Name, rule)
			}
		}
	}
	if !found {
		t.Error("no role has the rule for claims; the test is to be changed")
	}
}
