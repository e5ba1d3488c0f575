// SPDX-License-Identifier: Apache-2.0

package resourceslice

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	applyv1alpha1 "liqo.io/liqo/apis/applyconfiguration/sharing/v1alpha1"
	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/kube/finalizer"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/grant"
	"liqo.io/liqo/internal/peering/plugin"
)

// tenantID returns the cluster ID of the tenant, or "" if the namespace belongs to no tenant. It trusts only the label of
// the namespace: the peer writes the slice.
func (r *reconciler) tenantID(ctx context.Context, name string) (string, error) {
	var namespace corev1.Namespace
	if err := r.client.Get(ctx, types.NamespacedName{Name: name}, &namespace); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	if namespace.Labels[labels.TenantNamespace] != labels.True {
		return "", nil
	}
	return namespace.Labels[labels.ClusterID], nil
}

// copies returns the peer's slices: those that stay, the oldest first, and those that wait for our finalizer.
func (r *reconciler) copies(ctx context.Context, reader client.Reader, namespace string) (live, dying []*sharingv1alpha1.ResourceSlice, _ error) {
	var list sharingv1alpha1.ResourceSliceList
	if err := reader.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list resource slices of %s: %w", namespace, err)
	}
	for i := range list.Items {
		switch slice := &list.Items[i]; {
		case !slice.IsCopy():
		case slice.DeletionTimestamp == nil:
			live = append(live, slice)
		case controllerutil.ContainsFinalizer(slice, labels.FinalizerGrant):
			dying = append(dying, slice)
		}
	}
	sortSlices(live)
	return live, dying, nil
}

// foreignCluster returns our ForeignCluster of a peer, or nil if the API server, not only the cache, has none.
func (r *reconciler) foreignCluster(ctx context.Context, clusterID string) (*discoveryv1alpha1.ForeignCluster, error) {
	for _, reader := range []client.Reader{r.client, r.live} {
		var list discoveryv1alpha1.ForeignClusterList
		if err := reader.List(ctx, &list); err != nil {
			return nil, fmt.Errorf("find foreign cluster %s: %w", clusterID, err)
		}
		if owner := discoveryv1alpha1.OwnerOf(list.Items, clusterID); owner != nil {
			return owner, nil
		}
	}
	return nil, nil
}

// endIncoming ends the incoming peering with the last slice of a peer. If the peer only used us, it deletes the
// ForeignCluster, whose controller deletes the tenant. It does so before the slice is released, so that a restart in
// between loses nothing.
func (r *reconciler) endIncoming(ctx context.Context, peer *discoveryv1alpha1.ForeignCluster, clusterID string) error {
	logger := log.FromContext(ctx).WithValues("clusterID", clusterID)
	if peer != nil && peer.OnlyIncoming() {
		// The key is deleted before the slice is released: a consumer whose slice is gone may register again with another key.
		pin := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.options.Namespace, Name: auth.PinName(clusterID)}}
		if err := r.client.Delete(ctx, pin); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete the key of %s: %w", clusterID, err)
		}
	}
	for peer != nil && peer.DeletionTimestamp == nil && peer.OnlyIncoming() {
		// With the resource version as a precondition, because a user may be enabling the other direction.
		err := r.client.Delete(ctx, peer, client.Preconditions{UID: &peer.UID, ResourceVersion: &peer.ResourceVersion})
		if apierrors.IsConflict(err) {
			// Usually only its status changed: read it and try again.
			peer = &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: peer.Name}}
			err = r.live.Get(ctx, types.NamespacedName{Name: peer.Name}, peer)
			if err == nil {
				continue
			}
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete foreign cluster %s after its last resource slice: %w", peer.Name, err)
		}
		logger.Info("incoming peering ended", "foreigncluster", peer.Name)
		break
	}
	if r.plugin != nil {
		// A failure is not retried: a plugin that is down must not keep the namespace of a peer.
		if err := r.plugin.Remove(ctx, clusterID); err != nil {
			logger.Info("resource plugin not notified of the removal of a peer", "reason", err.Error())
		}
	}
	return nil
}

// release removes our finalizer from deleted slices.
func (r *reconciler) release(ctx context.Context, dying []*sharingv1alpha1.ResourceSlice) error {
	var failures []error
	for _, slice := range dying {
		_, err := r.patchFinalizer(ctx, slice, controllerutil.RemoveFinalizer)
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// patchFinalizer returns the resource version after the patch, or "" if the object changed meanwhile: then its event
// triggers the next reconciliation.
func (r *reconciler) patchFinalizer(
	ctx context.Context, cached *sharingv1alpha1.ResourceSlice, change func(client.Object, string) bool,
) (string, error) {
	slice := &metav1.PartialObjectMetadata{ObjectMeta: *cached.ObjectMeta.DeepCopy()}
	slice.SetGroupVersionKind(sharingv1alpha1.GroupVersion.WithKind("ResourceSlice"))
	written, err := finalizer.Patch(ctx, r.client, slice, labels.FinalizerGrant, change)
	if err != nil || !written {
		return "", err
	}
	return slice.ResourceVersion, nil
}

// answer writes the grants of a tenant, and returns when to do it again, or 0. Slices beyond MaxAnswered get no answer.
func (r *reconciler) answer(
	ctx context.Context, tenant *sliceTenant, peer *discoveryv1alpha1.ForeignCluster, live []*sharingv1alpha1.ResourceSlice,
) (requeueAfter time.Duration, _ error) {
	live = live[:min(len(live), MaxAnswered)]
	tenant.prune(live)
	facts, requeueAfter, err := r.facts(ctx, tenant, peer)
	if err != nil {
		return 0, err
	}
	now := time.Now()
	queries := make([]sliceQuery, len(live))
	for i, slice := range live {
		queries[i] = sliceQuery{slice: slice, last: tenant.memory(slice.UID, r.nextRefresh(now)).lastStatus(slice)}
	}
	var failures []error
	for i, answer := range sliceAnswers(facts, queries) {
		wait, err := r.writeAnswer(ctx, tenant, queries[i], &answer)
		failures = append(failures, err)
		if wait > 0 && (requeueAfter == 0 || wait < requeueAfter) {
			requeueAfter = wait
		}
	}
	return requeueAfter, errors.Join(failures...)
}

func (r *reconciler) facts(
	ctx context.Context, tenant *sliceTenant, peer *discoveryv1alpha1.ForeignCluster,
) (facts *sliceFacts, requeueAfter time.Duration, _ error) {
	var storage storagev1.StorageClassList
	if err := r.client.List(ctx, &storage, client.UnsafeDisableDeepCopy); err != nil {
		return nil, 0, fmt.Errorf("list storage classes: %w", err)
	}
	var drivers storagev1.CSIDriverList
	if err := r.client.List(ctx, &drivers, client.UnsafeDisableDeepCopy); err != nil {
		return nil, 0, fmt.Errorf("list storage drivers: %w", err)
	}
	var ingress networkingv1.IngressClassList
	if err := r.client.List(ctx, &ingress, client.UnsafeDisableDeepCopy); err != nil {
		return nil, 0, fmt.Errorf("list ingress classes: %w", err)
	}
	facts = &sliceFacts{
		peer: peer, clusterID: tenant.clusterID, incoming: r.options.IncomingPeering,
		percentage: r.sharingPercentage(ctx), capacity: r.usage.Capacity(), labels: r.options.ClusterLabels,
		storage: sharedStorageClasses(storage.Items, drivers.Items, r.options.StorageClasses), ingress: sharedIngressClasses(ingress.Items),
	}
	if reason, _ := refusal(facts); reason == "" && r.plugin != nil {
		facts.plugin, requeueAfter = r.readPlugin(ctx, tenant)
	}
	return facts, requeueAfter, nil
}

// readPlugin returns the plugin's grant for a tenant. It calls the plugin after the plugin reported a change, and
// once per refresh interval.
func (r *reconciler) readPlugin(ctx context.Context, tenant *sliceTenant) (facts *pluginFacts, requeueAfter time.Duration) {
	now := time.Now()
	if r.tenants.takeStale(tenant, now, r.options.Refresh) {
		resources, err := r.plugin.Read(ctx, tenant.clusterID)
		tenant.plugin, tenant.readAt = pluginFacts{resources: resources}, now
		if err != nil {
			log.FromContext(ctx).Info("resource plugin failed", "clusterID", tenant.clusterID, "reason", err.Error())
			tenant.plugin.failure = pluginFailure(r.plugin.Address(), err)
			r.tenants.markStale(tenant)
		}
	}
	if tenant.plugin.failure != "" {
		return &tenant.plugin, pluginRetry
	}
	return &tenant.plugin, max(r.options.Refresh-now.Sub(tenant.readAt), time.Second)
}

// pluginFailure returns a message that stays the same from one attempt to the next, or each attempt would be a write.
func pluginFailure(address string, err error) string {
	if errors.Is(err, plugin.ErrAnswer) {
		return fmt.Sprintf("the provider's resource plugin returned an invalid answer (%v)", errors.Unwrap(err))
	}
	if errors.Is(err, plugin.ErrUnproven) {
		return fmt.Sprintf("what answers at %s did not prove by its certificate that it is the provider's resource plugin; its administrator "+
			"should read the log of the controller manager", address)
	}
	seen := ""
	if code := status.Code(err); code != codes.Unavailable && code != codes.DeadlineExceeded {
		seen = fmt.Sprintf(" (%s)", code)
	}
	return fmt.Sprintf("the provider's resource plugin at %s did not answer%s; its administrator should read the plugin's log", address, seen)
}

// sharingPercentage returns the percentage of the ConfigMap, or of the flag if the ConfigMap sets none.
func (r *reconciler) sharingPercentage(ctx context.Context) int {
	var config corev1.ConfigMap
	key := types.NamespacedName{Namespace: r.options.Namespace, Name: sharingConfigMap}
	err := r.config.Get(ctx, key, &config)
	text, found := config.Data[sharingKey]
	switch {
	case apierrors.IsNotFound(err), err == nil && !found:
		r.percentage.Store(int64(r.options.SharingPercentage))
	case err == nil:
		percentage, parsed := grant.ParsePercentage(text)
		if err = parsed; err == nil {
			r.percentage.Store(int64(percentage))
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		// The last valid one stays: a typing error must not grant more or take anything away.
		log.FromContext(ctx).Error(err, "sharing percentage not valid, the last one stays", "configmap", key.String(), "key", sharingKey)
	}
	return int(r.percentage.Load())
}

// writeAnswer writes an answer that differs enough from the last one. It returns when to write a smaller change, or 0.
func (r *reconciler) writeAnswer(
	ctx context.Context, tenant *sliceTenant, query sliceQuery, answer *sharingv1alpha1.ResourceSliceStatus,
) (requeueAfter time.Duration, _ error) {
	now := time.Now()
	slice, memory := query.slice, tenant.memory(query.slice.UID, r.nextRefresh(now))
	stale := []string{slice.ResourceVersion}
	if current := query.last == &slice.Status; !current {
		stale = append(memory.stale, stale...)
	} else if needsFinalizer(answer) {
		version, err := r.patchFinalizer(ctx, slice, controllerutil.AddFinalizer)
		if err != nil || version == "" {
			return 0, err
		}
		stale = append(stale, version)
	}
	switch compareSlice(query.last, answer, *r.options.UpdateThreshold) {
	case unchanged:
		return 0, nil
	case minorChange:
		if wait := memory.refreshAt.Sub(now); wait > 0 {
			return wait, nil
		}
	case majorChange:
	}
	stamp(query.last, answer, now)
	if err := r.client.Status().Apply(ctx, sliceStatus(slice, answer), client.FieldOwner(labels.OwnerGrant), client.ForceOwnership); err != nil {
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return 0, nil // deleted, or replaced under the same name; an event follows
		}
		return 0, fmt.Errorf("answer resource slice %s/%s: %w", slice.Namespace, slice.Name, err)
	}
	memory.written, memory.stale, memory.refreshAt = answer, stale, r.nextRefresh(now)
	log.FromContext(ctx).V(1).Info("resource slice answered", "slice", slice.Name, "phase", answer.Phase, "generation", answer.ObservedGeneration)
	return 0, nil
}

// stamp sets the transition time of the condition: now if its status changed, else the time before.
func stamp(last, answer *sharingv1alpha1.ResourceSliceStatus, now time.Time) {
	condition := &answer.Conditions[0]
	condition.LastTransitionTime = metav1.NewTime(now).Rfc3339Copy()
	if before := meta.FindStatusCondition(last.Conditions, condition.Type); before != nil && before.Status == condition.Status {
		condition.LastTransitionTime = before.LastTransitionTime
	}
}

// sliceStatus includes the UID, so that an answer is never written to another slice of the same name.
func sliceStatus(slice *sharingv1alpha1.ResourceSlice, answer *sharingv1alpha1.ResourceSliceStatus) *applyv1alpha1.ResourceSliceApplyConfiguration {
	condition := answer.Conditions[0]
	status := applyv1alpha1.ResourceSliceStatus().
		WithPhase(answer.Phase).
		WithObservedGeneration(answer.ObservedGeneration).
		WithLabels(answer.Labels).
		WithArchitectures(answer.Architectures...).
		WithOperatingSystems(answer.OperatingSystems...).
		WithConditions(applymetav1.Condition().WithType(condition.Type).WithStatus(condition.Status).WithReason(condition.Reason).
			WithMessage(condition.Message).WithObservedGeneration(condition.ObservedGeneration).WithLastTransitionTime(condition.LastTransitionTime))
	if answer.ProxyWanted {
		status = status.WithProxyWanted(true)
	}
	if len(answer.Resources) > 0 {
		status = status.WithResources(answer.Resources)
	}
	for _, class := range answer.StorageClasses {
		status = status.WithStorageClasses(applyv1alpha1.StorageClass().WithStorageClassName(class.StorageClassName).WithDefault(class.Default).
			WithClones(class.Clones))
	}
	for _, class := range answer.IngressClasses {
		status = status.WithIngressClasses(applyv1alpha1.IngressClass().WithIngressClassName(class.IngressClassName).WithDefault(class.Default))
	}
	return applyv1alpha1.ResourceSlice(slice.Name, slice.Namespace).WithUID(slice.UID).WithStatus(status)
}
