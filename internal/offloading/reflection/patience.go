// SPDX-License-Identifier: Apache-2.0

package reflection

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
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// +kubebuilder:rbac:namespace=liqo-offloaded,groups="",resources=pods,verbs=patch

// silence is how long the peer does not answer before its pods are kept: well below the five minutes after which Kubernetes deletes those of a node
// that is not Ready, and long enough that a restart over there costs nothing.
const silence = 30 * time.Second

// keep lets Kubernetes wait for pods that are at a silent peer. They go on there, or have ended and keep their logs; only whoever chose how
// long a lost node is tolerated wants them replaced.
func (p *pods) keep(ctx context.Context) {
	unfinished := true // a process before this one may have left some halfway
	for ctx.Err() == nil {
		open := p.engine.remote.opening()
		if unfinished {
			open = nil // whether it answers or not
		}
		select {
		case <-ctx.Done():
		case <-open:
			select {
			case <-ctx.Done():
			case <-p.silent:
			}
		case <-time.After(p.engine.options.Patience):
			unfinished = p.lengthen(ctx, !p.engine.remote.answers())
		}
	}
}

// lengthen takes the next step to longer tolerations for all pods that are there, which is none for most of them. What fails is unfinished, as are
// those that need another step.
func (p *pods) lengthen(ctx context.Context, silent bool) (unfinished bool) {
	kept, failed := 0, 0
	var last error
	for _, object := range p.local.All(fanin.Every) {
		pod, _ := object.(*corev1.Pod)
		if pod == nil || pod.DeletionTimestamp != nil || pod.Status.StartTime == nil {
			continue // nothing of it is there: neither what runs, nor what has ended and can still be looked into
		}
		longer, changed := project.Patient(pod.Spec.Tolerations, silent)
		if !changed {
			continue
		}
		switch err := p.tolerate(ctx, pod, longer); {
		case err == nil && project.Halfway(longer):
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
		p.engine.said.log.Error(last, "the peer is silent, and Kubernetes may delete pods that are there", "pods", failed, "kept", kept)
	case kept > 0:
		p.engine.said.log.Info("the peer is silent; pods that are there are kept", "pods", kept)
	}
	return unfinished
}

func (p *pods) tolerate(ctx context.Context, pod *corev1.Pod, tolerations []corev1.Toleration) error {
	change, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"spec":     map[string]any{"tolerations": tolerations},
	})
	if err != nil {
		return fmt.Errorf("tolerations of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	there := &corev1.Pod{}
	there.Namespace, there.Name = pod.Namespace, pod.Name
	return p.engine.local.Patch(ctx, there, client.RawPatch(types.MergePatchType, change))
}
