// SPDX-License-Identifier: Apache-2.0

package peering

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
	"liqo.io/liqo/internal/peering/grant"
	"liqo.io/liqo/internal/peering/plugin"
)

// tenantID is the cluster ID of the tenant, or nothing if the namespace is nobody's. The label of the namespace is
// the only source: the slice was written by the peer.
func (r *sliceReconciler) tenantID(ctx context.Context, name string) (string, error) {
	var namespace corev1.Namespace
	if err := r.client.Get(ctx, types.NamespacedName{Name: name}, &namespace); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	if namespace.Labels[labels.TenantNamespace] != annotationTrue {
		return "", nil
	}
	return namespace.Labels[labels.ClusterID], nil
}

// copies are the peer's slices: those that stay, the oldest first, and those that wait for our finalizer.
func (r *sliceReconciler) copies(ctx context.Context, reader client.Reader, namespace string) (live, dying []*sharingv1alpha1.ResourceSlice, _ error) {
	var list sharingv1alpha1.ResourceSliceList
	if err := reader.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list resource slices of %s: %w", namespace, err)
	}
	for i := range list.Items {
		switch slice := &list.Items[i]; {
		case !isSliceCopy(slice):
		case slice.DeletionTimestamp == nil:
			live = append(live, slice)
		case controllerutil.ContainsFinalizer(slice, labels.FinalizerGrant):
			dying = append(dying, slice)
		}
	}
	sortSlices(live)
	return live, dying, nil
}

// foreignCluster is our record of a peer. That there is none is only believed of the API server itself.
func (r *sliceReconciler) foreignCluster(ctx context.Context, clusterID string) (*discoveryv1alpha1.ForeignCluster, error) {
	for _, reader := range []client.Reader{r.client, r.live} {
		var list discoveryv1alpha1.ForeignClusterList
		if err := reader.List(ctx, &list); err != nil {
			return nil, fmt.Errorf("look for the foreign cluster %s: %w", clusterID, err)
		}
		if owner := discoveryv1alpha1.OwnerOf(list.Items, clusterID); owner != nil {
			return owner, nil
		}
	}
	return nil, nil
}

// endIncoming follows the last slice of a peer. If the peer only used us, its foreign cluster goes, too: it is
// deleted before the slice is let go, as the mark that survives our own end; the rest is taken down from there.
func (r *sliceReconciler) endIncoming(ctx context.Context, peer *discoveryv1alpha1.ForeignCluster, clusterID string) error {
	logger := log.FromContext(ctx).WithValues("clusterID", clusterID)
	if peer != nil && onlyIncoming(peer) {
		// Its key goes before the slice does: when the consumer sees the slice gone, it may come back at once, with another key.
		pin := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.options.Namespace, Name: pinName(clusterID)}}
		if err := r.client.Delete(ctx, pin); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete the key of %s: %w", clusterID, err)
		}
	}
	for peer != nil && peer.DeletionTimestamp == nil && onlyIncoming(peer) {
		// The resource version, too: a user may ask for the other direction in this moment.
		err := r.client.Delete(ctx, peer, client.Preconditions{UID: &peer.UID, ResourceVersion: &peer.ResourceVersion})
		if apierrors.IsConflict(err) {
			// Its status has moved on, as a rule: look again.
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
		// It is told, not asked: a plugin that is down holds nobody's namespace.
		if err := r.plugin.Remove(ctx, clusterID); err != nil {
			logger.Info("resource plugin not told that a peer is gone", "reason", err.Error())
		}
	}
	return nil
}

// release lets deleted slices go.
func (r *sliceReconciler) release(ctx context.Context, dying []*sharingv1alpha1.ResourceSlice) error {
	var failures []error
	for _, slice := range dying {
		_, err := r.patchFinalizer(ctx, slice, controllerutil.RemoveFinalizer)
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// patchFinalizer returns the resource version after the patch, or nothing if the object has moved on: then its own
// event brings us back.
func (r *sliceReconciler) patchFinalizer(
	ctx context.Context, cached *sharingv1alpha1.ResourceSlice, change func(client.Object, string) bool,
) (string, error) {
	slice := &metav1.PartialObjectMetadata{ObjectMeta: *cached.ObjectMeta.DeepCopy()}
	slice.SetGroupVersionKind(sharingv1alpha1.GroupVersion.WithKind("ResourceSlice"))
	before := slice.DeepCopy()
	if !change(slice, labels.FinalizerGrant) {
		return slice.ResourceVersion, nil
	}
	err := r.client.Patch(ctx, slice, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("finalizer of resource slice %s/%s: %w", cached.Namespace, cached.Name, err)
	}
	return slice.ResourceVersion, nil
}

// answer tells the peer what it may use, and returns after which time there may be more to tell.
func (r *sliceReconciler) answer(
	ctx context.Context, tenant *sliceTenant, peer *discoveryv1alpha1.ForeignCluster, live []*sharingv1alpha1.ResourceSlice,
) (again time.Duration, _ error) {
	tenant.prune(live)
	facts, again, err := r.facts(ctx, tenant, peer)
	if err != nil {
		return 0, err
	}
	now := time.Now()
	asks := make([]sliceAsk, len(live))
	for i, slice := range live {
		asks[i] = sliceAsk{slice: slice, told: tenant.memory(slice.UID, r.nextRefresh(now)).told(slice)}
	}
	var failures []error
	for i, answer := range sliceAnswers(facts, asks) {
		wait, err := r.tell(ctx, tenant, asks[i], &answer)
		failures = append(failures, err)
		if wait > 0 && (again == 0 || wait < again) {
			again = wait
		}
	}
	return again, errors.Join(failures...)
}

func (r *sliceReconciler) facts(
	ctx context.Context, tenant *sliceTenant, peer *discoveryv1alpha1.ForeignCluster,
) (facts *sliceFacts, again time.Duration, _ error) {
	var storage storagev1.StorageClassList
	if err := r.client.List(ctx, &storage, client.UnsafeDisableDeepCopy); err != nil {
		return nil, 0, fmt.Errorf("list storage classes: %w", err)
	}
	var ingress networkingv1.IngressClassList
	if err := r.client.List(ctx, &ingress, client.UnsafeDisableDeepCopy); err != nil {
		return nil, 0, fmt.Errorf("list ingress classes: %w", err)
	}
	facts = &sliceFacts{
		peer: peer, clusterID: tenant.clusterID, incoming: r.options.IncomingPeering,
		percentage: r.sharingPercentage(ctx), capacity: r.usage.Capacity(), labels: r.options.ClusterLabels,
		storage: sharedStorageClasses(storage.Items), ingress: sharedIngressClasses(ingress.Items),
	}
	if reason, _ := refusal(facts); reason == "" && r.plugin != nil {
		facts.plugin, again = r.ask(ctx, tenant)
	}
	return facts, again, nil
}

// ask returns what the plugin says of a tenant. It is asked when it reported news, and from time to time.
func (r *sliceReconciler) ask(ctx context.Context, tenant *sliceTenant) (facts *pluginFacts, again time.Duration) {
	now := time.Now()
	if r.tenants.takeStale(tenant, now, r.options.Refresh) {
		resources, err := r.plugin.Read(ctx, tenant.clusterID)
		tenant.plugin, tenant.asked = pluginFacts{resources: resources}, now
		if err != nil {
			log.FromContext(ctx).Info("resource plugin failed", "clusterID", tenant.clusterID, "reason", err.Error())
			tenant.plugin.failure = pluginFailure(r.plugin.Address(), err)
			r.tenants.markStale(tenant)
		}
	}
	if tenant.plugin.failure != "" {
		return &tenant.plugin, pluginRetry
	}
	return &tenant.plugin, max(r.options.Refresh-now.Sub(tenant.asked), time.Second)
}

// pluginFailure says what was seen in words that do not change from one attempt to the next, or each attempt would
// be a write.
func pluginFailure(address string, err error) string {
	if errors.Is(err, plugin.ErrAnswer) {
		return fmt.Sprintf("the provider's resource plugin gave an answer that cannot be used (%v)", errors.Unwrap(err))
	}
	seen := ""
	if code := status.Code(err); code != codes.Unavailable && code != codes.DeadlineExceeded {
		seen = fmt.Sprintf(" (%s)", code)
	}
	return fmt.Sprintf("the provider's resource plugin at %s did not answer%s; its administrator should look at the plugin's log", address, seen)
}

// sharingPercentage is the ConfigMap's, as long as it has a usable one.
func (r *sliceReconciler) sharingPercentage(ctx context.Context) int {
	var config corev1.ConfigMap
	key := types.NamespacedName{Namespace: r.options.Namespace, Name: sharingConfigMap}
	err := r.config.Get(ctx, key, &config)
	text, there := config.Data[sharingKey]
	switch {
	case apierrors.IsNotFound(err), err == nil && !there:
		r.percentage.Store(int64(r.options.SharingPercentage))
	case err == nil:
		percentage, parsed := grant.ParsePercentage(text)
		if err = parsed; err == nil {
			r.percentage.Store(int64(percentage))
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		// The last one stays: a slip of the pen must not give away more, or take anything.
		log.FromContext(ctx).Error(err, "sharing percentage not usable, the last one stays", "configmap", key.String(), "key", sharingKey)
	}
	return int(r.percentage.Load())
}

// tell writes an answer if it is new enough, and returns when to look again at one that is not.
func (r *sliceReconciler) tell(
	ctx context.Context, tenant *sliceTenant, ask sliceAsk, answer *sharingv1alpha1.ResourceSliceStatus,
) (again time.Duration, _ error) {
	now := time.Now()
	slice, memory := ask.slice, tenant.memory(ask.slice.UID, r.nextRefresh(now))
	behind := []string{slice.ResourceVersion}
	if current := ask.told == &slice.Status; !current {
		behind = append(memory.behind, behind...)
	} else if isHeld(answer) {
		version, err := r.patchFinalizer(ctx, slice, controllerutil.AddFinalizer)
		if err != nil || version == "" {
			return 0, err
		}
		behind = append(behind, version)
	}
	switch compareSlice(ask.told, answer, *r.options.UpdateThreshold) {
	case nothingNew:
		return 0, nil
	case smallNews:
		if wait := memory.refreshAt.Sub(now); wait > 0 {
			return wait, nil
		}
	case bigNews:
	}
	stamp(ask.told, answer, now)
	if err := r.client.Status().Apply(ctx, sliceStatus(slice, answer), client.FieldOwner(labels.OwnerGrant), client.ForceOwnership); err != nil {
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return 0, nil // gone, or another object under its name; an event tells
		}
		return 0, fmt.Errorf("answer resource slice %s/%s: %w", slice.Namespace, slice.Name, err)
	}
	memory.written, memory.behind, memory.refreshAt = answer, behind, r.nextRefresh(now)
	log.FromContext(ctx).V(1).Info("resource slice answered", "slice", slice.Name, "phase", answer.Phase, "generation", answer.ObservedGeneration)
	return 0, nil
}

// stamp gives the condition its time: that of the last change of its status.
func stamp(told, answer *sharingv1alpha1.ResourceSliceStatus, now time.Time) {
	condition := &answer.Conditions[0]
	condition.LastTransitionTime = metav1.NewTime(now).Rfc3339Copy()
	if before := meta.FindStatusCondition(told.Conditions, condition.Type); before != nil && before.Status == condition.Status {
		condition.LastTransitionTime = before.LastTransitionTime
	}
}

// sliceStatus carries the UID, so that an answer never lands on another slice of the same name.
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
	if len(answer.Resources) > 0 {
		status = status.WithResources(answer.Resources)
	}
	for _, class := range answer.StorageClasses {
		status = status.WithStorageClasses(applyv1alpha1.StorageClass().WithStorageClassName(class.StorageClassName).WithDefault(class.Default))
	}
	for _, class := range answer.IngressClasses {
		status = status.WithIngressClasses(applyv1alpha1.IngressClass().WithIngressClassName(class.IngressClassName).WithDefault(class.Default))
	}
	return applyv1alpha1.ResourceSlice(slice.Name, slice.Namespace).WithUID(slice.UID).WithStatus(status)
}
