// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/storage/data"
)

// farClaim is a claim of this cluster whose data is at a peer.
type farClaim struct {
	key  client.ObjectKey
	uid  types.UID
	size string
	// clusterID is the peer.
	clusterID string
	// volume is the record of the data here. It stays if the data is retained.
	volume   string
	retained bool
	// deleted: the claim is gone, and its data is not yet.
	deleted bool
	// class and remote are the storage class and the volume at the peer; remote is empty until it exists.
	class, remote string
}

func (f *farClaim) text() string {
	if f.deleted {
		return fmt.Sprintf("%s (%s, deleted here and not there yet)", f.key.Name, f.size)
	}
	return fmt.Sprintf("%s (%s)", f.key.Name, f.size)
}

// farClaims returns the claims whose data is at a peer, ordered by name. The volumes are the record of that, also while the peer does not answer.
func farClaims(ctx context.Context, c client.Reader, choose func(farClaim) bool) (found []farClaim, err error) {
	var all corev1.PersistentVolumeList
	if err := retry(ctx, func(ctx context.Context) error { return c.List(ctx, &all, client.HasLabels{labels.RemoteClusterID}) }); err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	for i := range all.Items {
		volume := &all.Items[i]
		owner := volume.Spec.ClaimRef
		if owner == nil {
			continue
		}
		one := farClaim{
			key: client.ObjectKey{Namespace: owner.Namespace, Name: owner.Name}, uid: owner.UID, size: volume.Spec.Capacity.Storage().String(),
			clusterID: volume.Labels[labels.RemoteClusterID], volume: volume.Name,
			retained: volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain, deleted: volume.Status.Phase == corev1.VolumeReleased,
			class: volume.Annotations[labels.RemoteStorageClass], remote: volume.Annotations[labels.RemoteVolume],
		}
		if choose(one) {
			found = append(found, one)
		}
	}
	slices.SortFunc(found, func(a, b farClaim) int { return strings.Compare(a.key.String(), b.key.String()) })
	return found, nil
}

// deleteClaims deletes claims, and waits until their data is gone. Pods must not use them.
func deleteClaims(ctx context.Context, c client.WithWatch, namespace string, claims []farClaim, p Progress) error {
	if len(claims) == 0 {
		return nil
	}
	users, err := usersOf(ctx, c, namespace, claims)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return fmt.Errorf("namespace %q was not changed, because pods use the claims: %s; delete these pods, or what creates them, first", namespace, few(users, len(users)))
	}
	for _, one := range claims {
		claim := &corev1.PersistentVolumeClaim{}
		claim.Namespace, claim.Name = one.key.Namespace, one.key.Name
		err := retry(ctx, func(ctx context.Context) error {
			return client.IgnoreNotFound(c.Delete(ctx, claim, sameObject(one.uid)))
		})
		if err != nil && !apierrors.IsConflict(err) { // a conflict means another UID: this claim is gone
			return fmt.Errorf("delete claim %s: %w", one.key, err)
		}
	}
	p.Info(fmt.Sprintf("Deleted %d claims; waiting until their data is gone", len(claims)))
	var left []string
	err = Follow(ctx, c, &corev1.PersistentVolumeList{}, func(all []corev1.PersistentVolume) (bool, error) {
		left = left[:0]
		for _, one := range claims {
			if !one.retained && slices.ContainsFunc(all, func(volume corev1.PersistentVolume) bool { return volume.Name == one.volume }) {
				left = append(left, one.text())
			}
		}
		return len(left) == 0, nil
	}, client.HasLabels{labels.RemoteClusterID})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the claims were deleted, and their data was not gone in time: %s; the controllers continue, see: kubectl get events -n %s (%w)", few(left, len(left)), namespace, err)
	}
	return err
}

// usersOf returns the pods of a namespace that use any of the claims, and have not ended.
func usersOf(ctx context.Context, c client.Reader, namespace string, claims []farClaim) (users []string, err error) {
	var pods corev1.PodList
	if err := retry(ctx, func(ctx context.Context) error { return c.List(ctx, &pods, client.InNamespace(namespace)) }); err != nil {
		return nil, fmt.Errorf("list pods of namespace %q: %w", namespace, err)
	}
	for _, pod := range pods.Items {
		uses := slices.ContainsFunc(data.ClaimsOf(&pod), func(name string) bool {
			return slices.ContainsFunc(claims, func(one farClaim) bool { return one.key.Name == name })
		})
		if uses && !podphase.Final(pod.Status.Phase) {
			users = append(users, pod.Name)
		}
	}
	return users, nil
}

// few joins names, of which there are more in total than are listed.
func few(names []string, total int) string {
	const most = 10
	slices.Sort(names)
	names = names[:min(len(names), most)]
	if total > len(names) {
		return fmt.Sprintf("%s and %d more", strings.Join(names, ", "), total-len(names))
	}
	return strings.Join(names, ", ")
}
