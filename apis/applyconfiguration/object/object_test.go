// SPDX-License-Identifier: Apache-2.0

package object

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
)

// TestSameAsGenerated: an object states the same as the apply configuration that is generated for its kind, and has the same identity.
func TestSameAsGenerated(t *testing.T) {
	ours := func() *Configuration[coreapply.PodSpecApplyConfiguration, coreapply.PodStatusApplyConfiguration] {
		return New[coreapply.PodSpecApplyConfiguration, coreapply.PodStatusApplyConfiguration]("v1", "Pod", "space", "name")
	}
	generated := func() *coreapply.PodApplyConfiguration { return coreapply.Pod("name", "space") }
	generatedAnywhere := func() *coreapply.PodApplyConfiguration {
		pod := generated()
		pod.Namespace = nil
		return pod
	}
	owner := metaapply.OwnerReference().WithAPIVersion("v1").WithKind("Node").WithName("n").WithUID("owner")
	first, second := map[string]string{"a": "1", "b": "1"}, map[string]string{"b": "2"}
	spec := coreapply.PodSpec().WithNodeName("n")
	running, failed := coreapply.PodStatus().WithPhase(corev1.PodRunning), coreapply.PodStatus().WithMessage("failed")
	type identified interface {
		IsApplyConfiguration()
		GetAPIVersion() *string
		GetKind() *string
		GetNamespace() *string
		GetName() *string
	}
	decoded := &Configuration[coreapply.PodSpecApplyConfiguration, coreapply.PodStatusApplyConfiguration]{}
	decoded.WithName("name").WithLabels(first).TypeMetaApplyConfiguration = ours().TypeMetaApplyConfiguration
	for name, pair := range map[string]struct{ ours, generated identified }{
		"nothing but its identity": {ours(), generated()},
		"of the whole cluster":     {New[struct{}, struct{}]("v1", "Node", "", "name"), coreapply.Node("name")},
		"decoded without metadata": {decoded, generatedAnywhere().WithLabels(first)},
		"labels twice":             {ours().WithLabels(first).WithLabels(second), generated().WithLabels(first).WithLabels(second)},
		"annotations twice":        {ours().WithAnnotations(first).WithAnnotations(second), generated().WithAnnotations(first).WithAnnotations(second)},
		"no annotations":           {ours().WithAnnotations(nil), generated().WithAnnotations(nil)},
		"UID, finalizers and owner": {
			ours().WithUID("u").WithFinalizers("f", "g").WithOwnerReferences(owner),
			generated().WithUID("u").WithFinalizers("f", "g").WithOwnerReferences(owner),
		},
		"spec, and a status replaced": {
			ours().WithSpec(spec).WithStatus(failed).WithStatus(running), generated().WithSpec(spec).WithStatus(failed).WithStatus(running),
		},
	} {
		has, err := json.Marshal(pair.ours)
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(pair.generated)
		if err != nil {
			t.Fatal(err)
		}
		if string(has) != string(want) {
			t.Errorf("%s: %s, generated: %s", name, has, want)
		}
		if a, b := pair.ours, pair.generated; *a.GetKind() != *b.GetKind() || *a.GetAPIVersion() != *b.GetAPIVersion() || *a.GetName() != *b.GetName() ||
			(a.GetNamespace() == nil) != (b.GetNamespace() == nil) {
			t.Errorf("%s: another identity than the generated one", name)
		}
	}
}
