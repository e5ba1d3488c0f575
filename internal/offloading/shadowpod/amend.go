// SPDX-License-Identifier: Apache-2.0

package shadowpod

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/lifecycle"
	"liqo.io/liqo/internal/offloading/refused"
	"liqo.io/liqo/internal/offloading/shadow"
	"liqo.io/liqo/internal/offloading/verdict"
)

// amend applies a change of the ShadowPod to the running pod.
func (r *reconciler) amend(ctx context.Context, key types.NamespacedName) error {
	facts, err := r.read(ctx, r.live, key, true)
	if err != nil || !lifecycle.Plan(facts).Amend {
		return err // it has changed since, and an event follows
	}
	peer, err := r.admit(ctx, facts.Shadow)
	if err != nil || peer == "" {
		return err
	}
	patches := shadow.Amend(facts.Shadow, facts.Pod, peer, labels.OwnerShadowPod, r.options.Allowed)
	ephemeral := r.addContainers(ctx, facts, patches)
	rest, resized := patches.Rest, r.resize(ctx, peer, facts, patches.Resize)
	if ephemeral != nil || resized != nil {
		rest = patches.Unrecorded // what else has changed does not wait for what is refused
	}
	if err := r.patch(ctx, facts.Pod, rest); err != nil {
		return r.unamended(facts.Shadow, err)
	}
	r.leftOut(facts.Shadow)
	if ephemeral == nil || resized != nil && errors.As(ephemeral, &refused.Error{}) {
		return resized
	}
	return ephemeral // retried, which also retries the resize
}

// addContainers adds ephemeral containers to a running pod, unless they would be less isolated than they are asked for: Kubernetes never removes one.
func (r *reconciler) addContainers(ctx context.Context, facts lifecycle.Facts, patches shadow.Patches) error {
	if patches.Ephemeral == nil {
		return nil
	}
	has := func(pod *corev1.Pod) *corev1.PodSpec {
		return &corev1.PodSpec{EphemeralContainers: pod.Spec.EphemeralContainers}
	}
	sent := &corev1.PodSpec{EphemeralContainers: patches.Added}
	if err := r.isolated(facts.Shadow, verdict.Isolating(sent), func() ([]string, error) {
		trial, err := r.patchPart(ctx, facts.Pod, "ephemeralcontainers", patches.Ephemeral, client.DryRunAll)
		return verdict.Isolating(has(trial)), err
	}); err != nil {
		return err
	}
	changed, err := r.patchPart(ctx, facts.Pod, "ephemeralcontainers", patches.Ephemeral)
	if err != nil {
		return r.unamended(facts.Shadow, err)
	}
	r.without(facts.Shadow, sent, has(changed))
	return nil
}

// resize changes CPU and memory of a running pod, within the grant of the peer. It reports why that is not possible.
func (r *reconciler) resize(ctx context.Context, peer string, facts lifecycle.Facts, ops []shadow.Op) error {
	if ops == nil {
		return nil
	}
	if err := r.reserve(peer, facts.Shadow, facts.Pod); err != nil {
		return err
	}
	_, err := r.patchPart(ctx, facts.Pod, "resize", ops)
	switch {
	case err == nil:
		return nil
	case apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse): // there is no such subresource
		r.events.Warn(
			facts.Shadow, reasonFailedUpdate, "Update",
			"this cluster cannot change CPU and memory of a running pod, which needs Kubernetes 1.33: create another pod",
		)
		return reconcile.TerminalError(fmt.Errorf("resize pod %s/%s: %w", facts.Pod.Namespace, facts.Pod.Name, err))
	}
	return r.unamended(facts.Shadow, err)
}

// patchPart patches a subresource of a pod, and returns the pod as it is then.
func (r *reconciler) patchPart(ctx context.Context, pod *corev1.Pod, part string, ops []shadow.Op, how ...client.SubResourcePatchOption) (*corev1.Pod, error) {
	changed := pod.DeepCopy()
	patch, err := jsonPatch(ops)
	if err != nil || len(ops) == 0 {
		return changed, err
	}
	return changed, r.live.SubResource(part).Patch(ctx, changed, patch, append(how, client.FieldOwner(labels.OwnerShadowPod))...)
}

func (r *reconciler) unamended(shadowPod *vkv1alpha1.ShadowPod, err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	r.events.Warn(shadowPod, reasonFailedUpdate, "Update", "the pod cannot be changed: %s", verdict.Refusal(err, shadowPod.Namespace, verdict.Names(shadowPod)...))
	return refused.ByRule(fmt.Errorf("change pod %s/%s: %w", shadowPod.Namespace, shadowPod.Name, err))
}

func (r *reconciler) patch(ctx context.Context, object client.Object, ops []shadow.Op) error {
	patch, err := jsonPatch(ops)
	if err != nil || len(ops) == 0 {
		return err
	}
	return r.live.Patch(ctx, object.DeepCopyObject().(client.Object), patch, client.FieldOwner(labels.OwnerShadowPod))
}

func jsonPatch(ops []shadow.Op) (client.Patch, error) {
	text, err := json.Marshal(ops)
	if err != nil {
		return nil, fmt.Errorf("encode a patch: %w", err)
	}
	return client.RawPatch(types.JSONPatchType, text), nil
}
