// SPDX-License-Identifier: Apache-2.0

// Package claims lists the claims of this cluster whose data is at a peer, and deletes them with their data. It must not decide
// whether that may be lost. Its proof is claims_test.go of package apiserver.
package claims

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
	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/await"
	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/storage/data"
)

// Claim is a claim of this cluster whose data is at a peer.
type Claim struct {
	Key  client.ObjectKey
	uid  types.UID
	Size string
	// ClusterID is the peer.
	ClusterID string
	// volume is the record of the data here. It stays if the data is retained.
	volume   string
	retained bool
	// Deleted: the claim is gone, and its data is not yet.
	Deleted bool
	// Class and remote are the storage class and the volume at the peer; remote is empty until it exists.
	Class, Remote string
}

func (f *Claim) Text() string {
	if f.Deleted {
		return fmt.Sprintf("%s (%s, deleted here and not there yet)", f.Key.Name, f.Size)
	}
	return fmt.Sprintf("%s (%s)", f.Key.Name, f.Size)
}

// List returns the claims whose data is at a peer, ordered by name. The volumes are the record of that, also while the peer does not answer.
func List(ctx context.Context, c client.Reader, choose func(Claim) bool) (found []Claim, err error) {
	var all corev1.PersistentVolumeList
	if err := await.Retry(ctx, func(ctx context.Context) error { return c.List(ctx, &all, client.HasLabels{labels.RemoteClusterID}) }); err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	for i := range all.Items {
		volume := &all.Items[i]
		owner := volume.Spec.ClaimRef
		if owner == nil {
			continue
		}
		one := Claim{
			Key: client.ObjectKey{Namespace: owner.Namespace, Name: owner.Name}, uid: owner.UID, Size: volume.Spec.Capacity.Storage().String(),
			ClusterID: volume.Labels[labels.RemoteClusterID], volume: volume.Name,
			retained: volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain, Deleted: volume.Status.Phase == corev1.VolumeReleased,
			Class: volume.Annotations[labels.RemoteStorageClass], Remote: volume.Annotations[labels.RemoteVolume],
		}
		if choose(one) {
			found = append(found, one)
		}
	}
	slices.SortFunc(found, func(a, b Claim) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	return found, nil
}

// Delete deletes claims, and waits until their data is gone. Pods must not use them.
func Delete(ctx context.Context, c client.WithWatch, namespace string, claims []Claim, p action.Progress) error {
	if len(claims) == 0 {
		return nil
	}
	users, err := usersOf(ctx, c, namespace, claims)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return fmt.Errorf("namespace %q was not changed, because pods use the claims: %s; delete these pods, or what creates them, first", namespace,
			Few(users, len(users)))
	}
	for _, one := range claims {
		claim := &corev1.PersistentVolumeClaim{}
		claim.Namespace, claim.Name = one.Key.Namespace, one.Key.Name
		err := await.Retry(ctx, func(ctx context.Context) error {
			return client.IgnoreNotFound(c.Delete(ctx, claim, await.SameObject(one.uid)))
		})
		if err != nil && !apierrors.IsConflict(err) { // a conflict means another UID: this claim is gone
			return fmt.Errorf("delete claim %s: %w", one.Key, err)
		}
	}
	p.Info(fmt.Sprintf("Deleted %d claims; waiting until their data is gone", len(claims)))
	var left []string
	err = await.Follow(ctx, c, &corev1.PersistentVolumeList{}, func(all []corev1.PersistentVolume) (bool, error) {
		left = left[:0]
		for _, one := range claims {
			if !one.retained && slices.ContainsFunc(all, func(volume corev1.PersistentVolume) bool { return volume.Name == one.volume }) {
				left = append(left, one.Text())
			}
		}
		return len(left) == 0, nil
	}, client.HasLabels{labels.RemoteClusterID})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the claims were deleted, and their data was not gone in time: %s; the controllers continue, see: kubectl get events -n %s (%w)",
			Few(left, len(left)), namespace, err)
	}
	return err
}

// usersOf returns the pods of a namespace that use any of the claims, and have not ended.
func usersOf(ctx context.Context, c client.Reader, namespace string, claims []Claim) (users []string, err error) {
	var pods corev1.PodList
	if err := await.Retry(ctx, func(ctx context.Context) error { return c.List(ctx, &pods, client.InNamespace(namespace)) }); err != nil {
		return nil, fmt.Errorf("list pods of namespace %q: %w", namespace, err)
	}
	for _, pod := range pods.Items {
		uses := slices.ContainsFunc(data.ClaimsOf(&pod), func(name string) bool {
			return slices.ContainsFunc(claims, func(one Claim) bool { return one.Key.Name == name })
		})
		if uses && !podphase.Final(pod.Status.Phase) {
			users = append(users, pod.Name)
		}
	}
	return users, nil
}

// Few joins names, of which there are more in total than are listed.
func Few(names []string, total int) string {
	const most = 10
	slices.Sort(names)
	names = names[:min(len(names), most)]
	if total > len(names) {
		return fmt.Sprintf("%s and %d more", strings.Join(names, ", "), total-len(names))
	}
	return strings.Join(names, ", ")
}
