// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"liqo.io/liqo/apis/labels"
)

// Patch returns the patch that sets the status, in the form that kubelets send; nil if nothing differs. The patch also sets the label that shows
// users where the pod runs.
func Patch(local *corev1.Pod, status *corev1.PodStatus) ([]byte, error) {
	setLabel := !slices.Contains([]string{OffloadingBackOff, RequestNotMet, PredecessorEnding}, status.Reason) && local.Labels[labels.ShadowPod] != "true"
	before := corev1.Pod{Status: local.Status}
	after := corev1.Pod{Status: *status}
	if setLabel {
		after.Labels = map[string]string{labels.ShadowPod: "true"}
	}
	old, err := json.Marshal(before)
	if err != nil {
		return nil, fmt.Errorf("compare statuses of pod %s/%s: %w", local.Namespace, local.Name, err)
	}
	wanted, err := json.Marshal(after)
	if err != nil {
		return nil, fmt.Errorf("compare statuses of pod %s/%s: %w", local.Namespace, local.Name, err)
	}
	if string(old) == string(wanted) {
		return nil, nil
	}
	after.UID = local.UID // a precondition: another pod of that name must not get the status
	if wanted, err = json.Marshal(after); err != nil {
		return nil, fmt.Errorf("compare statuses of pod %s/%s: %w", local.Namespace, local.Name, err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(old, wanted, corev1.Pod{})
	if err != nil {
		return nil, fmt.Errorf("compare statuses of pod %s/%s: %w", local.Namespace, local.Name, err)
	}
	return patch, nil
}
