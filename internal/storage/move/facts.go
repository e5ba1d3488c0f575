// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	volumehelpers "k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	v1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/storage"
	"liqo.io/liqo/internal/storage/data"
	"liqo.io/liqo/internal/storage/move/plan"
)

// +kubebuilder:rbac:groups="",resources=nodes;namespaces,verbs=get
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=persistentvolumes;persistentvolumeclaims,verbs=get;list;watch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get
// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=list;watch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=list;watch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=get;list;watch
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespaceoffloadings,verbs=get
// +kubebuilder:rbac:groups=virtualkubelet.liqo.io,resources=namespacemaps,verbs=list
// +kubebuilder:rbac:groups=sharing.liqo.io,resources=resourceslices,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo-offloaded,groups="",resources=services,verbs=get
// +kubebuilder:rbac:namespace=liqo-offloaded,groups="",resources=events,verbs=list
// +kubebuilder:rbac:namespace=liqo-offloaded,groups=networking.k8s.io,resources=networkpolicies,verbs=get

// read gets an object, nil if it does not exist.
func read[T any, P interface {
	*T
	client.Object
}](ctx context.Context, r client.Reader, namespace, name string) (P, error) {
	object := P(new(T))
	switch err := r.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, object); {
	case name == "" || apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %T %s: %w", object, name, err)
	}
	return object, nil
}

// facts reads what the next step depends on.
func (c *controller) facts(ctx context.Context, move *v1alpha1.VolumeMove) (f plan.Facts, err error) {
	f = plan.Facts{Now: c.now(), Move: move, Image: c.options.Image, PullPolicy: c.options.PullPolicy, PullSecrets: c.options.PullSecrets, Install: c.options.Namespace}
	if plan.Finished(move) {
		return f, nil
	}
	if f.Claim, err = read[corev1.PersistentVolumeClaim](ctx, c.live, move.Namespace, move.Name); err != nil {
		return f, err
	}
	for _, part := range []func(context.Context, *plan.Facts) error{c.target, c.volumes, c.pods, c.objects} {
		if err := part(ctx, &f); err != nil {
			return f, err
		}
	}
	return f, nil
}

// target reads what decides whether a move is possible. Nothing of it matters once the move has begun.
func (c *controller) target(ctx context.Context, f *plan.Facts) (err error) {
	move := f.Move
	if move.Status.Phase != "" || f.Claim == nil {
		return nil
	}
	if f.Node, err = read[corev1.Node](ctx, c.live, "", move.Spec.TargetNode); err != nil {
		return err
	}
	if f.Claim.Spec.StorageClassName != nil {
		f.Class, err = read[storagev1.StorageClass](ctx, c.live, "", *f.Claim.Spec.StorageClassName)
	}
	if err != nil || f.Node == nil || f.Class == nil {
		return err
	}
	if cluster := f.Node.Labels[labels.RemoteClusterID]; f.Node.Labels[labels.Type] == labels.TypeVirtualNode {
		if _, f.NoClass, err = storage.RemoteClass(ctx, c.client, f.Class, f.Node); err != nil {
			return err
		}
		var maps vkv1alpha1.NamespaceMapList
		if err := c.live.List(ctx, &maps, client.MatchingLabels{labels.RemoteClusterID: cluster}); err != nil {
			return fmt.Errorf("list namespace maps: %w", err)
		}
		for i := range maps.Items {
			f.Offloaded = f.Offloaded || maps.Items[i].Status.CurrentMapping[move.Namespace].Phase == vkv1alpha1.MappingAccepted
		}
	}
	offloading, err := read[offloadingv1alpha1.NamespaceOffloading](ctx, c.live, move.Namespace, offloadingv1alpha1.NamespaceOffloadingName)
	if err != nil {
		return err
	}
	if offloading != nil {
		f.Strategy = string(offloading.Spec.PodOffloadingStrategy)
	}
	namespace, err := read[corev1.Namespace](ctx, c.live, "", move.Namespace)
	if namespace != nil {
		f.Restricted = namespace.Labels["pod-security.kubernetes.io/enforce"] == "restricted"
	}
	return err
}

// volumes reads claims and volumes.
func (c *controller) volumes(ctx context.Context, f *plan.Facts) (err error) {
	move, name := f.Move, f.Move.Status.Volume
	if name == "" && f.Claim != nil {
		name = f.Claim.Spec.VolumeName
	}
	var all corev1.PersistentVolumeList
	if err := c.live.List(ctx, &all); err != nil {
		return fmt.Errorf("list volumes: %w", err)
	}
	for i := range all.Items {
		switch one := &all.Items[i]; {
		case one.Name == name:
			f.Volume = one
		case one.Name == plan.SourceVolumeName(move):
			f.SourceVolume = one
		case one.Spec.ClaimRef != nil && one.Spec.ClaimRef.Namespace == move.Namespace && one.Spec.ClaimRef.Name == plan.TargetName(move):
			f.TargetVolume = one
		}
	}
	var attachments storagev1.VolumeAttachmentList
	if err := c.live.List(ctx, &attachments); err != nil {
		return fmt.Errorf("list volume attachments: %w", err)
	}
	f.Attached = slices.ContainsFunc(attachments.Items, func(one storagev1.VolumeAttachment) bool {
		return one.Spec.Source.PersistentVolumeName != nil && *one.Spec.Source.PersistentVolumeName == name && name != ""
	})
	if f.Source, err = read[corev1.PersistentVolumeClaim](ctx, c.live, move.Namespace, plan.SourceName(move)); err != nil {
		return err
	}
	if f.Target, err = read[corev1.PersistentVolumeClaim](ctx, c.live, move.Namespace, plan.TargetName(move)); err != nil {
		return err
	}
	if f.TargetVolume == nil || data.IsRemote(f.TargetVolume) {
		return nil
	}
	var real corev1.PersistentVolumeClaimList
	if err := c.live.List(ctx, &real, client.InNamespace(c.options.Storage), client.MatchingLabels{labels.VirtualVolume: data.Name(f.TargetVolume)}); err != nil {
		return fmt.Errorf("list real claims: %w", err)
	}
	if len(real.Items) == 1 {
		f.Real = &real.Items[0]
	}
	return nil
}

// pods reads the pods of the move, and those that use the claim.
func (c *controller) pods(ctx context.Context, f *plan.Facts) error {
	var all corev1.PodList
	if err := c.live.List(ctx, &all, client.InNamespace(f.Move.Namespace)); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for i := range all.Items {
		pod := all.Items[i]
		switch {
		case pod.Labels[labels.Move] == string(f.Move.UID) && pod.Labels[labels.MoveRole] == labels.MoveRoleTarget:
			f.Server = &pod
		case pod.Labels[labels.Move] == string(f.Move.UID) && pod.Labels[labels.MoveRole] == labels.MoveRoleProbe:
			f.Probe = &pod
		case pod.Labels[labels.Move] == string(f.Move.UID):
			f.Copies = append(f.Copies, pod)
		case !podphase.Final(pod.Status.Phase) && slices.Contains(data.ClaimsOf(&pod), f.Move.Name):
			f.Users = append(f.Users, pod)
		}
	}
	if f.Move.Status.Phase != v1alpha1.MoveRemoving || f.Volume == nil {
		return nil
	}
	for i := range f.Users {
		pod := &f.Users[i]
		if pod.Spec.NodeName == "" || pod.Status.Phase != corev1.PodPending {
			continue
		}
		node, err := read[corev1.Node](ctx, c.live, "", pod.Spec.NodeName)
		if err != nil {
			return err
		}
		if node != nil && volumehelpers.CheckNodeAffinity(f.Volume, node.Labels) != nil {
			f.Misplaced = append(f.Misplaced, *pod)
		}
	}
	return nil
}

// refused is why the provider refuses a claim, such as its quota.
func (c *controller) refused(ctx context.Context, claim *corev1.PersistentVolumeClaim) (string, error) {
	var all corev1.EventList
	if err := c.live.List(ctx, &all, client.InNamespace(claim.Namespace), client.MatchingFields{"involvedObject.uid": string(claim.UID)}); err != nil {
		return "", fmt.Errorf("list events of claim %s: %w", claim.Name, err)
	}
	for i := range all.Items {
		if all.Items[i].Reason == data.ReasonRefused {
			return all.Items[i].Message, nil
		}
	}
	return "", nil
}

// objects reads the other objects of the move. Without the rights in the namespace, there are none.
func (c *controller) objects(ctx context.Context, f *plan.Facts) error {
	move, id := f.Move, plan.ID(f.Move)
	grant, err := read[rbacv1.RoleBinding](ctx, c.live, move.Namespace, id)
	if f.Granted = grant != nil; err != nil || !f.Granted {
		return err
	}
	if move.Status.Phase == v1alpha1.MovePreparing && f.Target != nil {
		if f.Refused, err = c.refused(ctx, f.Target); err != nil {
			return err
		}
	}
	service, err := read[corev1.Service](ctx, c.live, move.Namespace, id)
	if f.Service = service != nil; err != nil {
		return err
	}
	policy, err := read[networkingv1.NetworkPolicy](ctx, c.live, move.Namespace, id)
	if f.Fenced = policy != nil; err != nil || policy == nil {
		return err
	}
	for _, rule := range policy.Spec.Ingress {
		for _, from := range rule.From {
			if from.IPBlock != nil {
				f.Admitted = from.IPBlock.CIDR
			}
		}
	}
	return nil
}
