// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/offloading/podplan"
	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/events"
	"liqo.io/liqo/internal/offloading/reflection/refusals"
)

// deleteShadow deletes a ShadowPod, which stays until its pod is gone: by the finalizer that the peer gave it, or, if it has none, because it is deleted in
// the foreground. If the peer refuses that, the local pod, which stays Terminating, or its successor, which stays Pending, gets an event.
func (p *Pods) deleteShadow(ctx context.Context, mapping *engine.Mapping, facts *podplan.Facts, period int64) (time.Duration, error) {
	local, shadow := facts.Local, facts.Shadow
	if p.justDeleted(shadow.UID) && period == 0 {
		return podplan.SettleTimeout, nil // the event of the deletion is still to come
	}
	if period > 0 && !(facts.Forced && p.drained(ctx)) {
		// A deletion does not wait for a period that only makes it faster: that is announced again.
		if err := p.announce(mapping, shadow, period); err != nil && !refusals.Visible(err) && local != nil && period > podplan.Manifest(local) {
			return 0, err
		}
	}
	how := metav1.DeletePropagationForeground
	if isKept(shadow) {
		how = metav1.DeletePropagationBackground // the garbage collector does nothing about it
	}
	if err := p.engine.Remote.Delete(mapping.Context, shadow, how); err != nil {
		if local != nil && refusals.Visible(err) {
			p.engine.Recorder.Failed(local, Kind, events.ReasonNotDeleted, err)
		}
		return 0, err
	}
	mapping.Applier(Kind).Forget(client.ObjectKeyFromObject(shadow))
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.deleted) >= maxForced { // of namespaces that are not offloaded any more
		maps.DeleteFunc(p.deleted, func(_ types.UID, at time.Time) bool { return time.Since(at) > podplan.SettleTimeout })
	}
	p.deleted[shadow.UID] = time.Now()
	return 0, nil
}

// justDeleted reports whether the peer has accepted the deletion of the ShadowPod with this UID a moment ago. What we report about a
// deletion is an event of its own, which comes first.
func (p *Pods) justDeleted(shadow types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.deleted[shadow]) < podplan.SettleTimeout
}

// shorten reports to the peer that the pod of a ShadowPod, which is being deleted, is to end sooner.
func (p *Pods) shorten(ctx context.Context, mapping *engine.Mapping, facts *podplan.Facts, period int64) (time.Duration, error) {
	if facts.Forced && p.drained(ctx) {
		return 0, nil
	}
	err := p.announce(mapping, facts.Shadow, period)
	if refusals.Visible(err) {
		if facts.Local != nil {
			p.engine.Recorder.Failed(facts.Local, Kind, events.ReasonNotDeleted, err)
		}
		return refusals.Retry, nil
	}
	return 0, err
}

// announce writes the grace period into a ShadowPod. Earlier versions of the provider's controller ignore it.
func (p *Pods) announce(mapping *engine.Mapping, shadow *metav1.PartialObjectMetadata, seconds int64) error {
	c, err := p.engine.Remote.Client()
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": shadow.UID, "annotations": map[string]string{labels.DeletionPeriod: strconv.FormatInt(seconds, 10)},
	}})
	if err != nil {
		return fmt.Errorf("encode the grace period of ShadowPod %s: %w", shadow.Name, err)
	}
	target := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: shadow.Namespace, Name: shadow.Name}}
	target.SetGroupVersionKind(shadowPod)
	err = c.Patch(mapping.Context, target, client.RawPatch(types.MergePatchType, patch))
	if client.IgnoreNotFound(err) == nil || apierrors.IsConflict(err) {
		return nil // the watch shows what there is now
	}
	return fmt.Errorf("set the grace period of ShadowPod %s/%s to %d s in the remote cluster: %w", shadow.Namespace, shadow.Name, seconds, err)
}

// maxForced bounds what is remembered of pods that are gone.
const maxForced = 10_000

// rememberForced records a local pod that others have removed while the peer runs it: what we remove ourselves has no ShadowPod any more.
func (p *Pods) rememberForced(local *corev1.Pod) {
	mapping, _ := p.engine.Namespaces.Local(local.Namespace)
	if mapping == nil || podphase.Final(local.Status.Phase) {
		return
	}
	shadow := p.Shadows.Get(types.NamespacedName{Namespace: mapping.Remote, Name: local.Name})
	isThere := shadow != nil && shadow.GetAnnotations()[labels.Fence] == string(local.UID)
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.memories[local.UID]
	if known != nil && known.Finished != "" || !isThere && (known == nil || !known.Sent) || len(p.forced) >= maxForced {
		return
	}
	p.forced[local.UID] = struct{}{}
}

// forgetDeletion forgets what is remembered of the deletion of a ShadowPod that is gone.
func (p *Pods) forgetDeletion(shadow metav1.Object) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.forced, types.UID(shadow.GetAnnotations()[labels.Fence]))
	delete(p.deleted, shadow.GetUID())
}

// drained reports whether the controller manager drains the node, at the end of a peering. It removes pods that do not leave in time, and their processes keep
// the time of their manifests.
func (p *Pods) drained(ctx context.Context) bool {
	nodes := &metav1.PartialObjectMetadataList{}
	nodes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := p.engine.Local.List(ctx, nodes, client.MatchingFields{"metadata.name": p.options.NodeName}); err != nil {
		log.FromContext(ctx).V(1).Info("it is not known whether the node is drained", "reason", err.Error())
		return false
	}
	return slices.ContainsFunc(nodes.Items, func(node metav1.PartialObjectMetadata) bool {
		return slices.ContainsFunc(node.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
			return entry.Manager == labels.OwnerVirtualNode && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" &&
				entry.FieldsV1 != nil && bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:unschedulable"`))
		})
	})
}
