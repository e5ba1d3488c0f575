// SPDX-License-Identifier: Apache-2.0

package shadowpod

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/lifecycle"
	"liqo.io/liqo/internal/offloading/refused"
	"liqo.io/liqo/internal/offloading/verdict"
)

const (
	// lessIsolated is the grace period in seconds of a pod that has more rights than it asked for.
	lessIsolated = 1
	// undoTimeout is how long its deletion may take while this process ends.
	undoTimeout = 5 * time.Second
)

// isolated returns an error if the API server of this cluster would drop a field that isolates a pod: what ran without would have more rights than it
// asked for. It calls try once for each of these fields and connection, which asks with a request that changes nothing and returns what is kept. If
// that is refused, so is what follows; a failure of the moment decides nothing, and is tried again.
func (r *reconciler) isolated(shadowPod *vkv1alpha1.ShadowPod, asked []string, try func() (kept []string, err error)) error {
	dropped, unknown, connection := r.keptFields.judge(asked, r.options.Now())
	if len(dropped) == 0 && len(unknown) > 0 {
		has, err := try()
		switch {
		case err == nil:
		case verdict.Judges(err) || apierrors.IsAlreadyExists(err):
			return nil
		default:
			return fmt.Errorf("ask whether the API server keeps %s of pod %s/%s: %w", strings.Join(unknown, ", "), shadowPod.Namespace, shadowPod.Name, err)
		}
		r.keptFields.keeps(has, connection)
		dropped = lacking(unknown, has)
	}
	if len(dropped) == 0 {
		return nil
	}
	return r.refuseDropped(shadowPod, dropped)
}

// lacking returns the fields that something has not.
func lacking(asked, has []string) []string {
	return slices.DeleteFunc(slices.Clone(asked), func(field string) bool { return slices.Contains(has, field) })
}

// refuseDropped reports to the peer that its pod does not run, because a field that isolates it would be lost.
func (r *reconciler) refuseDropped(shadowPod *vkv1alpha1.ShadowPod, dropped []string) error {
	names := strings.Join(dropped, ", ")
	r.events.Warn(shadowPod, reasonRefused, "Create",
		"the API server of this cluster drops %s, without which the pod would have more rights than it asks for: its version does not have that, "+
			"or has it switched off; keep the pod away from this cluster", names)
	return refused.Stays(fmt.Errorf("pod %s/%s: this API server drops %s", shadowPod.Namespace, shadowPod.Name, names))
}

// created creates a pod that was asked for with fields that isolate it, and deletes it if it lacks one: the API server that was asked before may not
// be the one that has created it. The answer may be lost, and the deletion may fail: until it is known, settle follows the pod.
func (r *reconciler) created(ctx context.Context, shadowPod *vkv1alpha1.ShadowPod, asked []string, create func() (*corev1.Pod, error)) (*corev1.Pod, error) {
	if len(asked) == 0 {
		return create()
	}
	r.keptFields.unsettled(shadowPod, asked)
	pod, err := create()
	switch {
	case err == nil:
		return pod, r.undo(ctx, shadowPod, pod, asked)
	case verdict.Judges(err):
		r.keptFields.settled(client.ObjectKeyFromObject(shadowPod))
	}
	return pod, err
}

// settle deletes the pod of a ShadowPod if it lacks a field that isolates it, and that is not known to have been seen or done when it was created.
func (r *reconciler) settle(ctx context.Context, shadowPod *vkv1alpha1.ShadowPod) error {
	asked := r.keptFields.unsure(shadowPod)
	if len(asked) == 0 {
		return nil
	}
	pod, err := readPod(ctx, r.live, client.ObjectKeyFromObject(shadowPod))
	if err != nil || pod == nil || lifecycle.Owner(pod) != string(shadowPod.UID) {
		return err // without a pod, the request may still be on its way; the next creation finds out
	}
	return r.undo(ctx, shadowPod, pod, asked)
}

// undo deletes a pod if it lacks a field that isolates it, and returns why.
func (r *reconciler) undo(ctx context.Context, shadowPod *vkv1alpha1.ShadowPod, pod *corev1.Pod, asked []string) error {
	dropped := lacking(asked, verdict.Isolating(&pod.Spec))
	if len(dropped) > 0 {
		r.keptFields.drops(dropped, r.options.Now())
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		if err := r.remove(ctx, pod, lessIsolated); err != nil {
			return err
		}
		if r.options.Quota != nil {
			r.options.Quota.Release(shadowPod)
		}
	}
	r.keptFields.settled(client.ObjectKeyFromObject(shadowPod))
	if len(dropped) > 0 {
		return r.refuseDropped(shadowPod, dropped)
	}
	return nil
}

// without reports to the peer what the API server of this cluster has dropped from a new pod, or from new containers of it.
func (r *reconciler) without(shadowPod *vkv1alpha1.ShadowPod, sent, has *corev1.PodSpec) {
	if dropped := verdict.Dropped(sent, has); len(dropped) > 0 {
		r.events.Warn(shadowPod, reasonIncomplete, "Create",
			"the API server of this cluster drops fields that its version does not have, or has switched off, so the pod runs without: %.700s",
			strings.Join(dropped, ", "))
	}
}
