// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/internal/offloading/reflection/project"
)

// TestReferencesAreCounted: the first and the last reference count, whichever object has it.
func TestReferencesAreCounted(t *testing.T) {
	var r references
	pod := func(secrets ...string) *corev1.Pod {
		made := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
		for _, name := range secrets {
			made.Spec.ImagePullSecrets = append(made.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
		}
		return made
	}
	a := reference{"shop", project.Reference{Kind: "Secret", Name: "a"}}
	if changed := r.replace(nil, pod("a", "a", "b")); len(changed) != 2 {
		t.Errorf("two appear: %v", changed)
	}
	if changed := r.replace(nil, pod("a")); len(changed) != 0 {
		t.Errorf("the second reference changes nothing: %v", changed)
	}
	if changed := r.replace(pod("a", "a", "b"), pod("a")); len(changed) != 1 || changed[0].Name != "b" {
		t.Errorf("b disappears: %v", changed)
	}
	if changed := r.replace(pod("a"), nil); len(changed) != 0 || !r.has(a) {
		t.Errorf("one reference is left: %v", changed)
	}
	if changed := r.replace(pod("a"), nil); len(changed) != 1 || r.has(a) || len(r.count) != 0 {
		t.Errorf("none is left: %v, %v", changed, r.count)
	}
}
