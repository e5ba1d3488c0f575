// SPDX-License-Identifier: Apache-2.0

// Package tolerations makes Kubernetes wait longer for the pods of a peer that has become unreachable, in namespaces that want it. It must not know how
// tolerations are extended, which package podspec does. The tests of package reflection cover it.
package tolerations

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/kube/fanin"
	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
)

// +kubebuilder:rbac:namespace=liqo-offloaded,groups="",resources=pods,verbs=patch

// DefaultTimeout is well below the five minutes after which Kubernetes deletes the pods of a node that is not Ready, and long enough that a
// restart of the peer's API server costs no write.
const DefaultTimeout = 30 * time.Second

// Keeper extends the tolerations of pods.
type Keeper struct {
	Engine *engine.Engine
	// Local caches the pods of the node.
	Local *fanin.Source
	// Timeout is how long the peer may be unreachable before.
	Timeout time.Duration
	// Unreachable receives a value when the peer becomes unreachable. Extended is called once tolerations were extended while it is.
	Unreachable <-chan struct{}
	Extended    func()
}

// Run keeps the pods of an unreachable peer until ctx ends: they go on running there, or have ended and keep their logs.
// A pod whose owner chose how long it tolerates a lost node keeps that choice.
func (k *Keeper) Run(ctx context.Context) {
	unfinished := true // an earlier process may have taken the first of the two steps only
	for ctx.Err() == nil {
		reachable := k.Engine.Remote.WhenReachable()
		if unfinished {
			reachable = nil // the second step is due whether the peer answers or not
		}
		select {
		case <-ctx.Done():
		case <-reachable:
			select {
			case <-ctx.Done():
			case <-k.Unreachable:
			}
		case <-time.After(k.Timeout):
			unreachable := !k.Engine.Remote.Reachable()
			unfinished = k.extend(ctx, unreachable)
			if unreachable {
				k.Extended() // they are not ready any more; afterwards, because each write of a status would make a change of tolerations conflict
			}
		}
	}
}

// extend takes the next of the two steps of podspec.ExtendTolerations for every pod that needs one. unfinished: a write failed, or a pod needs
// the second step.
func (k *Keeper) extend(ctx context.Context, unreachable bool) (unfinished bool) {
	kept, failed := 0, 0
	var last error
	for _, object := range k.Local.All(fanin.Every) {
		pod, _ := object.(*corev1.Pod)
		if pod == nil || pod.DeletionTimestamp != nil || pod.Status.StartTime == nil {
			continue // the peer has nothing of it to keep: no containers, and no logs
		}
		wanted := int64(0)
		if mapping, _ := k.Engine.Namespaces.Local(pod.Namespace); mapping != nil {
			wanted = mapping.UnreachableSeconds()
		}
		longer, changed := podspec.ExtendTolerations(pod.Spec.Tolerations, wanted, unreachable)
		if !changed {
			continue
		}
		switch err := k.patch(ctx, pod, longer); {
		case err == nil && podspec.ExtensionPending(longer):
			kept, unfinished = kept+1, true
		case err != nil && !apierrors.IsNotFound(err):
			unfinished = true
			if !apierrors.IsConflict(err) {
				failed, last = failed+1, err
			}
		}
	}
	switch {
	case ctx.Err() != nil:
	case last != nil:
		k.Engine.Log.Error(last, "the peer is unreachable, and Kubernetes may delete its pods: tolerations not extended", "pods", failed, "kept", kept)
	case kept > 0:
		k.Engine.Log.Info("the peer is unreachable; extended the tolerations of its pods", "pods", kept)
	}
	return unfinished
}

func (k *Keeper) patch(ctx context.Context, pod *corev1.Pod, tolerations []corev1.Toleration) error {
	change, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"spec":     map[string]any{"tolerations": tolerations},
	})
	if err != nil {
		return fmt.Errorf("encode the tolerations of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	patched := &corev1.Pod{}
	patched.Namespace, patched.Name = pod.Namespace, pod.Name
	return k.Engine.Local.Patch(ctx, patched, client.RawPatch(types.MergePatchType, change))
}
