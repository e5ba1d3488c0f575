// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/shadow"
)

// keptFields remembers which fields that isolate a pod the API server of this cluster was seen to keep.
type keptFields struct {
	mu   sync.Mutex
	kept map[string]bool
}

func newKeptFields() *keptFields { return &keptFields{kept: map[string]bool{}} }

// unknown returns the fields of which that was not seen.
func (i *keptFields) unknown(fields []string) (unknown []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, one := range fields {
		if !i.kept[one] {
			unknown = append(unknown, one)
		}
	}
	return unknown
}

func (i *keptFields) keeps(fields []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, one := range fields {
		i.kept[one] = true
	}
}

// isolated returns an error if the API server of this cluster would drop a field that isolates a new pod: what ran without would have more rights than it asked for.
// It asks once for each of these fields, with a request that changes nothing. If it is refused, so is the creation; a failure of the moment
// decides nothing, and is tried again.
func (r *shadowPods) isolated(ctx context.Context, shadowPod *vkv1alpha1.ShadowPod, pod *corev1.Pod) error {
	unknown := r.keptFields.unknown(shadow.Isolating(&pod.Spec))
	if len(unknown) == 0 {
		return nil
	}
	trial := pod.DeepCopy()
	switch err := r.live.Create(ctx, trial, client.FieldOwner(labels.OwnerShadowPod), client.DryRunAll); {
	case err == nil:
	case shadow.Judges(err) || apierrors.IsAlreadyExists(err):
		return nil
	default:
		return fmt.Errorf("ask whether the API server keeps %s of pod %s/%s: %w", strings.Join(unknown, ", "), shadowPod.Namespace, shadowPod.Name, err)
	}
	has := shadow.Isolating(&trial.Spec)
	r.keptFields.keeps(has)
	dropped := strings.Join(slices.DeleteFunc(unknown, func(one string) bool { return slices.Contains(has, one) }), ", ")
	if dropped == "" {
		return nil
	}
	r.events.warn(shadowPod, reasonRefused, "Create",
		"the API server of this cluster drops %s, without which the pod would have more rights than it asks for: its version does not have that, or has it switched off; keep the pod away from this cluster", dropped)
	return refused{fmt.Errorf("pod %s/%s: this API server drops %s", shadowPod.Namespace, shadowPod.Name, dropped), false}
}

// without reports to the peer what the API server of this cluster has dropped from a new pod.
func (r *shadowPods) without(shadowPod *vkv1alpha1.ShadowPod, sent, has *corev1.PodSpec) {
	if dropped := shadow.Dropped(sent, has); len(dropped) > 0 {
		r.events.warn(shadowPod, reasonIncomplete, "Create",
			"the API server of this cluster drops fields that its version does not have, or has switched off, so the pod runs without: %.700s", strings.Join(dropped, ", "))
	}
}
