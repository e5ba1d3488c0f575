// SPDX-License-Identifier: Apache-2.0

package refusals

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/internal/offloading/reflection/project"
)

// TestRefusals: what a peer refuses is remembered for an hour, is bounded, and concerns only what the object has.
func TestRefusals(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": ""}, Annotations: map[string]string{"b.example/c": ""}}}
	refusal := func(labels, annotations string) error {
		return fmt.Errorf("apply: %w", apierrors.NewForbidden(corev1.Resource("configmaps"), "x",
			fmt.Errorf("metadata refused: labels [%s], annotations [%s]", labels, annotations)))
	}
	r := NewMetadata()
	if r.Learn(object, errors.New("metadata refused: labels [a], annotations []"), now) {
		t.Error("an error of no API server")
	}
	if r.Learn(object, refusal("other, virtualkubelet.liqo.io/origin", "a"), now) || r.Lacks(object) != nil {
		t.Error("keys that the object does not have")
	}
	if !r.Learn(object, refusal("a", ""), now) || r.Learn(object, refusal("a", ""), now) || r.Lacks(object) == nil {
		t.Error("a label is refused once")
	}
	if !r.Learn(object, refusal("a", "b.example/c"), now.Add(time.Minute)) {
		t.Error("an annotation more")
	}
	denied := project.Denied{Labels: project.Keys{"user"}}
	if got := r.Skip(denied, now.Add(MetadataRetry)); len(got.Labels) != 1 || len(got.Annotations) != 1 || len(denied.Labels) != 1 {
		t.Errorf("an hour later it leaves out %v", got)
	}
	many := object.DeepCopy()
	for i := range 2 * maxRefusals {
		key := fmt.Sprintf("key%d", i)
		many.Labels[key] = ""
		r.Learn(many, refusal(key, ""), now)
	}
	if len(r.labels) != maxRefusals {
		t.Errorf("%d keys are remembered", len(r.labels))
	}
}
