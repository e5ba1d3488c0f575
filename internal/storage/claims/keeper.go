// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/apis/reasons"
	"liqo.io/liqo/internal/kube/fanin"
	"liqo.io/liqo/internal/storage/data"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:namespace=liqo-offloaded,groups="",resources=persistentvolumeclaims,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo-offloaded,groups="",resources=persistentvolumeclaims/status,verbs=patch

const (
	// first and most are the pauses after a failure.
	firstPause, mostPause = 50 * time.Millisecond, time.Minute
	// refusedRetry is when to try again what the provider has refused: its quota or its policies may have changed.
	refusedRetry = time.Minute
	// recordedRetry is when to look again at a remote claim of which no event comes; recordedTimeout bounds the look.
	recordedRetry, recordedTimeout = 5 * time.Second, 10 * time.Second
)

// Reasons of our events.
const (
	reasonFailed = data.ReasonRefused
	reasonData   = reasons.DataNotAvailable
)

// Peer is the provider, as the reflection knows it.
type Peer interface {
	// Client waits until the provider is reachable.
	Client(ctx context.Context) (client.WithWatch, error)
	// Remote returns the remote namespace of a namespace; false if it has none.
	Remote(namespace string) (remote string, offloaded bool)
	// Local is the inverse.
	Local(remote string) (namespace string, offloaded bool)
	// Labels returns the labels of the remote copy of an object.
	Labels(object client.Object) map[string]string
	// Declined reports whether the provider refused nothing but labels, which Labels leaves out from now on. The user gets an event.
	Declined(object client.Object, err error) bool
	// Report writes a warning about an object, once as long as it does not change.
	Report(about client.Object, reason string, err error)
	// Resolved forgets the last warning about an object.
	Resolved(about client.Object)
	// PodsOf looks at the pods of a namespace again: what Held answers may have changed.
	PodsOf(namespace string)
}

// Options of the keeper.
type Options struct {
	// Local is a client of this cluster.
	Local client.WithWatch
	// ClusterID is the provider's.
	ClusterID string
	Peer      Peer
	// Workers is how many volumes are processed at the same time.
	Workers int
}

// Keeper keeps the claims of one provider.
type Keeper struct {
	options                Options
	volumes, local, remote *fanin.Source
	queue                  workqueue.TypedRateLimitingInterface[string] // names of volumes
}

// New returns a keeper that does nothing yet.
func New(o Options) *Keeper {
	k := &Keeper{options: o, queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstPause, mostPause))}
	here := func(context.Context) (client.WithWatch, error) { return o.Local, nil }
	lists := func() client.ObjectList { return &corev1.PersistentVolumeClaimList{} }
	k.volumes = fanin.New(fanin.Options{
		Object: &corev1.PersistentVolume{}, List: func() client.ObjectList { return &corev1.PersistentVolumeList{} }, Client: here, Trim: trim,
		Select:  []client.ListOption{client.MatchingLabels{labels.RemoteClusterID: o.ClusterID}},
		Changed: func(before, after client.Object) { k.changed(either(before, after).GetName()) },
		Synced:  func(string) { k.enqueueAll() }, Resumed: func(string) { k.enqueueAll() },
	})
	k.local = fanin.New(fanin.Options{
		Object: &corev1.PersistentVolumeClaim{}, List: lists, Client: here, Trim: trim,
		Changed: k.localChanged,
		Synced:  func(string) { k.enqueueAll() }, Resumed: func(string) { k.enqueueAll() },
	})
	k.remote = fanin.New(fanin.Options{
		Object: &corev1.PersistentVolumeClaim{}, List: lists, Client: o.Peer.Client, Trim: trim,
		Changed: k.remoteChanged,
		Synced:  func(string) { k.enqueueAll() }, Resumed: func(string) { k.enqueueAll() },
	})
	return k
}

func trim(object client.Object) { object.SetManagedFields(nil) }

func either(before, after client.Object) client.Object {
	if after != nil {
		return after
	}
	return before
}

// Run works until ctx ends. Stopping deletes nothing.
func (k *Keeper) Run(ctx context.Context) error {
	k.volumes.Add(ctx, fanin.Every)
	var working sync.WaitGroup
	for range k.options.Workers {
		working.Go(func() {
			for k.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	k.queue.ShutDown()
	working.Wait()
	return nil
}

// Start follows a namespace and its remote namespace, Stop no longer.
func (k *Keeper) Start(ctx context.Context, namespace, remote string) {
	k.local.Add(ctx, namespace)
	k.remote.Add(ctx, remote)
	k.enqueueAll()
}

// Stop ends what Start started.
func (k *Keeper) Stop(namespace, remote string) {
	k.local.Remove(namespace)
	k.remote.Remove(remote)
	k.enqueueAll()
}

func (k *Keeper) enqueueAll() {
	for _, volume := range k.volumes.All(fanin.Every) {
		k.queue.Add(volume.GetName())
	}
}

// changed processes a volume, and has the pods of its namespace looked at again.
func (k *Keeper) changed(volume string) {
	k.queue.Add(volume)
	if known := k.volume(volume); known != nil && known.Spec.ClaimRef != nil {
		k.options.Peer.PodsOf(known.Spec.ClaimRef.Namespace)
	}
}

func (k *Keeper) localChanged(before, after client.Object) {
	if claim, _ := either(before, after).(*corev1.PersistentVolumeClaim); claim != nil {
		k.changed(data.VolumeOf(claim))
	}
}

func (k *Keeper) remoteChanged(before, after client.Object) {
	remote, _ := either(before, after).(*corev1.PersistentVolumeClaim)
	if remote == nil {
		return
	}
	k.changed(volumeOf(remote))
	// Another volume may have waited for the name.
	local, is := k.options.Peer.Local(remote.Namespace)
	for _, one := range k.volumes.All(fanin.Every) {
		if volume, _ := one.(*corev1.PersistentVolume); is && volume != nil && volume.Spec.ClaimRef != nil &&
			volume.Spec.ClaimRef.Namespace == local && data.RemoteClaim(volume) == remote.Name {
			k.changed(volume.Name)
		}
	}
}

func (k *Keeper) volume(name string) *corev1.PersistentVolume {
	volume, _ := k.volumes.Get(types.NamespacedName{Name: name}).(*corev1.PersistentVolume)
	return volume
}

// claimIn returns a claim, and whether its namespace was current at that moment: then nil means that it does not exist.
func claimIn(source *fanin.Source, namespace, name string) (claim *corev1.PersistentVolumeClaim, current bool) {
	found, current := source.Look(types.NamespacedName{Namespace: namespace, Name: name})
	claim, _ = found.(*corev1.PersistentVolumeClaim)
	return claim, current
}

func (k *Keeper) facts(volume *corev1.PersistentVolume) Facts {
	facts := Facts{Volume: volume}
	if volume == nil || volume.Spec.ClaimRef == nil {
		return facts
	}
	owner := volume.Spec.ClaimRef
	claim, current := claimIn(k.local, owner.Namespace, owner.Name)
	if claim != nil && claim.UID == owner.UID {
		facts.Claim = claim
	}
	facts.LocalKnown, facts.VolumesKnown = current, k.volumes.Current(fanin.Every)
	facts.Shared = volume.Status.Phase == corev1.VolumeReleased && k.shared(volume)
	facts.Namespace, _ = k.options.Peer.Remote(owner.Namespace)
	if facts.Namespace == "" {
		return facts
	}
	facts.Remote, facts.RemoteKnown = claimIn(k.remote, facts.Namespace, data.RemoteClaim(volume))
	facts.Kept = facts.Remote != nil && k.kept(facts.Remote, volume)
	return facts
}

func (k *Keeper) next(ctx context.Context) bool {
	name, closed := k.queue.Get()
	if closed {
		return false
	}
	defer k.queue.Done(name)
	volume := k.volume(name)
	if volume == nil {
		k.queue.Forget(name)
		return true
	}
	retry, err := k.sync(ctx, k.facts(volume))
	switch {
	case err != nil && ctx.Err() == nil:
		log.FromContext(ctx).V(1).Info("volume not processed; it is retried", "volume", name, "reason", err.Error())
		k.queue.AddRateLimited(name)
	case retry > 0:
		k.queue.AddAfter(name, retry)
	default:
		k.queue.Forget(name)
	}
	return true
}

// sync carries out one step. Whatever it writes causes an event, and so the next step.
func (k *Keeper) sync(ctx context.Context, f Facts) (retry time.Duration, err error) {
	step := Plan(f)
	subject := k.subject(f)
	if step.ReadRecorded {
		if f, err = k.readRecorded(ctx, f); err != nil {
			k.options.Peer.Report(subject, reasonData, fmt.Errorf("the data of the deleted claim %s is still at the provider: %w", subject.GetName(), err))
			return refusedRetry, nil
		}
		step, retry = Plan(f), recordedRetry
	}
	switch {
	case step.Warn != "":
		k.options.Peer.Report(subject, reasonData, errors.New(step.Warn))
	case step == (Step{}):
		k.options.Peer.Resolved(subject)
	}
	switch {
	case step.DeleteRemote != "":
		return retry, k.deleteRemote(ctx, f, step.DeleteRemote)
	case step.DeleteVolume:
		log.FromContext(ctx).Info("data of a deleted claim is gone", "volume", f.Volume.Name)
		err := k.options.Local.Delete(
			ctx, &corev1.PersistentVolume{ObjectMeta: f.Volume.ObjectMeta},
			client.Preconditions{UID: &f.Volume.UID, ResourceVersion: &f.Volume.ResourceVersion},
		)
		return 0, client.IgnoreNotFound(err)
	case step.Apply:
		if retry, err := k.apply(ctx, f); err != nil || retry > 0 {
			return retry, err
		}
	}
	if step.Rename != "" {
		return 0, k.patch(ctx, f.Volume, map[string]any{"metadata": map[string]any{"annotations": map[string]string{labels.RemoteClaim: step.Rename}}}, false)
	}
	if step.Record != "" {
		if err := k.patch(ctx, f.Volume, map[string]any{"metadata": map[string]any{"annotations": map[string]string{
			labels.RemoteNamespace: f.Remote.Namespace, labels.RemoteClaim: f.Remote.Name, labels.RemoteVolume: step.Record,
		}}}, false); err != nil {
			return 0, err
		}
	}
	if step.Capacity != nil {
		capacity := map[string]any{"capacity": corev1.ResourceList{corev1.ResourceStorage: *step.Capacity}}
		if err := k.patch(ctx, f.Volume, map[string]any{"spec": capacity}, false); err != nil {
			return 0, err
		}
		return 0, k.patch(ctx, f.Claim, map[string]any{"status": capacity}, true)
	}
	return retry, nil
}

// subject is what warnings are about: the claim, even if it is gone.
func (k *Keeper) subject(f Facts) client.Object {
	if f.Claim != nil {
		return f.Claim
	}
	claim := &corev1.PersistentVolumeClaim{}
	if owner := f.Volume.Spec.ClaimRef; owner != nil {
		claim.Namespace, claim.Name, claim.UID = owner.Namespace, owner.Name, owner.UID
	}
	return claim
}

func (k *Keeper) apply(ctx context.Context, f Facts) (retry time.Duration, err error) {
	c, err := k.options.Peer.Client(ctx)
	if err != nil {
		return 0, err
	}
	class := f.Volume.Annotations[labels.RemoteStorageClass]
	if f.Remote != nil && f.Remote.Spec.StorageClassName != nil {
		class = *f.Remote.Spec.StorageClassName // it cannot be changed
	}
	at := types.NamespacedName{Namespace: f.Namespace, Name: data.RemoteClaim(f.Volume)}
	intent := remoteClaim(f.Claim, data.Name(f.Volume), at, class, k.options.Peer.Labels(f.Claim))
	if f.Remote == nil {
		// A late cache may lack the record, and a claim that is made in place of a lost one would be empty.
		var now corev1.PersistentVolume
		if err := k.options.Local.Get(ctx, types.NamespacedName{Name: f.Volume.Name}, &now); client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("read volume %s before its claim is made at the provider: %w", f.Volume.Name, err)
		} else if err != nil || now.UID != f.Volume.UID || now.Annotations[labels.RemoteVolume] != "" {
			return firstPause, nil
		}
		if source := f.Volume.Annotations[labels.RemoteDataSource]; source != "" {
			intent.Spec.WithDataSource(coreapply.TypedLocalObjectReference().WithKind("PersistentVolumeClaim").WithName(source))
		}
		err = create(ctx, c, intent)
	} else {
		intent.WithUID(f.Remote.UID) // a claim that was deleted meanwhile must not be made again: it would be empty
		err = c.Apply(ctx, intent, client.FieldOwner(labels.OwnerReflection), client.ForceOwnership)
	}
	switch {
	case apierrors.IsAlreadyExists(err):
		return firstPause, nil // our cache is late; whose claim it is will be seen
	case err != nil && k.options.Peer.Declined(f.Claim, err):
		return 0, fmt.Errorf("claim %s has labels that the provider does not accept: %w", at, err)
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
		k.options.Peer.Report(f.Claim, reasonFailed, err)
		return refusedRetry, nil
	case err != nil:
		return 0, fmt.Errorf("claim %s at the provider: %w", at, err)
	}
	return 0, nil
}

// create makes a claim unless one has its name. An apply would take over a claim that we have not observed yet, and that may be the provider's own.
func create(ctx context.Context, c client.Client, intent *coreapply.PersistentVolumeClaimApplyConfiguration) error {
	body, err := json.Marshal(intent)
	if err != nil {
		return err
	}
	claim := &corev1.PersistentVolumeClaim{}
	if err := json.Unmarshal(body, claim); err != nil {
		return err
	}
	return c.Create(ctx, claim, client.FieldOwner(labels.OwnerReflection))
}

// patch merges a change into an object of this cluster, unless another one has its name by now.
func (k *Keeper) patch(ctx context.Context, object client.Object, change map[string]any, status bool) error {
	metadata, _ := change["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["uid"] = object.GetUID()
	change["metadata"] = metadata
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	patch := client.RawPatch(types.MergePatchType, body)
	target, is := object.DeepCopyObject().(client.Object)
	if !is {
		return fmt.Errorf("%T is no object", object)
	}
	if status {
		err = k.options.Local.Status().Patch(ctx, target, patch, client.FieldOwner(labels.OwnerReflection))
	} else {
		err = k.options.Local.Patch(ctx, target, patch, client.FieldOwner(labels.OwnerReflection))
	}
	return client.IgnoreNotFound(err)
}
