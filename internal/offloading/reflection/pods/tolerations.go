// SPDX-License-Identifier: Apache-2.0

package pods

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
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
)

// +kubebuilder:rbac:namespace=liqo-offloaded,groups="",resources=pods,verbs=patch

// defaultUnreachableTimeout is well below the five minutes after which Kubernetes deletes the pods of a node that is not Ready, and long enough that a
// restart of the peer's API server costs no write.
const defaultUnreachableTimeout = 30 * time.Second

// keepPods makes Kubernetes wait longer for the pods of a peer that has become unreachable, in namespaces that want it: they go on running there, or have ended
// and keep their logs.
// A pod whose owner chose how long it tolerates a lost node keeps that choice.
func (p *Pods) keepPods(ctx context.Context) {
	unfinished := true // an earlier process may have taken the first of the two steps only
	for ctx.Err() == nil {
		reachable := p.engine.Remote.WhenReachable()
		if unfinished {
			reachable = nil // the second step is due whether the peer answers or not
		}
		select {
		case <-ctx.Done():
		case <-reachable:
			select {
			case <-ctx.Done():
			case <-p.unreachable:
			}
		case <-time.After(p.options.UnreachableTimeout):
			unreachable := !p.engine.Remote.Reachable()
			unfinished = p.extendTolerations(ctx, unreachable)
			if unreachable {
				p.enqueueInbound() // they are not ready any more; afterwards, because each write of a status would make a change of tolerations conflict
			}
		}
	}
}

// extendTolerations takes the next of the two steps of podspec.ExtendTolerations for every pod that needs one. unfinished: a write failed, or a pod needs
// the second step.
func (p *Pods) extendTolerations(ctx context.Context, unreachable bool) (unfinished bool) {
	kept, failed := 0, 0
	var last error
	for _, object := range p.Local.All(fanin.Every) {
		pod, _ := object.(*corev1.Pod)
		if pod == nil || pod.DeletionTimestamp != nil || pod.Status.StartTime == nil {
			continue // the peer has nothing of it to keep: no containers, and no logs
		}
		wanted := int64(0)
		if mapping, _ := p.engine.Namespaces.Local(pod.Namespace); mapping != nil {
			wanted = mapping.UnreachableSeconds()
		}
		longer, changed := podspec.ExtendTolerations(pod.Spec.Tolerations, wanted, unreachable)
		if !changed {
			continue
		}
		switch err := p.patchTolerations(ctx, pod, longer); {
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
		p.engine.Log.Error(last, "the peer is unreachable, and Kubernetes may delete its pods: tolerations not extended", "pods", failed, "kept", kept)
	case kept > 0:
		p.engine.Log.Info("the peer is unreachable; extended the tolerations of its pods", "pods", kept)
	}
	return unfinished
}

func (p *Pods) patchTolerations(ctx context.Context, pod *corev1.Pod, tolerations []corev1.Toleration) error {
	change, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"spec":     map[string]any{"tolerations": tolerations},
	})
	if err != nil {
		return fmt.Errorf("encode the tolerations of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	patched := &corev1.Pod{}
	patched.Namespace, patched.Name = pod.Namespace, pod.Name
	return p.engine.Local.Patch(ctx, patched, client.RawPatch(types.MergePatchType, change))
}
