// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/apis/reasons"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/storage/data"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;update
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=list;watch
// +kubebuilder:rbac:groups=sharing.liqo.io,resources=resourceslices,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo-storage,groups="",resources=persistentvolumeclaims,verbs=create;patch;delete
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch

const (
	// bindTime is how long one attempt waits for the real class to make a volume; another attempt follows.
	bindTime = 20 * time.Second
	workers  = 16
	// first and most are the pauses after a failed attempt.
	firstPause, mostPause = time.Second, time.Minute
)

// Options of the provisioner.
type Options struct {
	// Namespace has the real claims of this cluster.
	Namespace string
	// RealClass is the storage class of the real claims, if a virtual class names none; empty for the default of the cluster.
	RealClass string
}

// provisioner makes the volumes of claims of virtual storage classes.
type provisioner struct {
	options Options
	cached  client.Reader
	own     client.Client
	kube    kubernetes.Interface
	events  events.EventRecorder
}

// Setup adds the provisioner to a manager. It runs in the leader only.
func Setup(mgr manager.Manager, o Options) error {
	kube, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("client of the provisioner: %w", err)
	}
	p := &provisioner{options: o, cached: mgr.GetClient(), own: mgr.GetClient(), kube: kube, events: mgr.GetEventRecorder("liqo-storage")}
	if err := setupGrowth(mgr, kube, o.Namespace); err != nil {
		return err
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		// The manager elects the leader.
		controller.NewProvisionController(ctx, kube, data.Provisioner, p,
			controller.LeaderElection(false), controller.Threadiness(workers), controller.FailedProvisionThreshold(0), controller.FailedDeleteThreshold(0),
			controller.RateLimiter(workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstPause, mostPause)),
		).Run(ctx)
		return nil
	}))
}

// SupportsBlock implements controller.BlockProvisioner.
func (p *provisioner) SupportsBlock(context.Context) bool { return true }

// Provision implements controller.Provisioner.
func (p *provisioner) Provision(ctx context.Context, o controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	if reason := unsupported(o.PVC, o.StorageClass); reason != "" {
		return nil, controller.ProvisioningFinished, p.refuse(o.PVC, reason)
	}
	if o.SelectedNodeName == "" {
		return nil, controller.ProvisioningFinished, p.refuse(
			o.PVC,
			fmt.Sprintf("storage class %s must have volumeBindingMode WaitForFirstConsumer: the volume is made where the first pod runs", o.StorageClass.Name),
		)
	}
	var node corev1.Node
	switch err := p.cached.Get(ctx, client.ObjectKey{Name: o.SelectedNodeName}, &node); {
	case apierrors.IsNotFound(err):
		return p.provisionWithoutNode(ctx, &o)
	case err != nil:
		return nil, controller.ProvisioningNoChange, err
	}
	if node.Labels[labels.Type] == labels.TypeVirtualNode {
		return p.provisionRemotely(ctx, &o, &node)
	}
	return p.provisionHere(ctx, &o)
}

// refuse reports to the user what to change. Another attempt would change nothing, so there is none until the claim changes.
func (p *provisioner) refuse(claim *corev1.PersistentVolumeClaim, reason string) error {
	p.events.Eventf(claim, nil, corev1.EventTypeWarning, reasons.ProvisioningFailed, "Provision", "%s", reason)
	return &controller.IgnoredError{Reason: reason}
}

// provisionRemotely asks nothing of the provider: the virtual kubelet makes the claim there as soon as this one is bound.
func (p *provisioner) provisionRemotely(
	ctx context.Context, o *controller.ProvisionOptions, node *corev1.Node,
) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	at := location{clusterID: node.Labels[labels.RemoteClusterID], node: node.Name}
	source, state, err := p.source(ctx, o.PVC, at.clusterID)
	if err != nil {
		return nil, state, err
	}
	class, reason, err := grantedClass(ctx, p.cached, o.StorageClass, node)
	if err != nil {
		return nil, controller.ProvisioningNoChange, err
	}
	if reason != "" {
		return nil, controller.ProvisioningReschedule, errors.New(reason)
	}
	at.class = class.StorageClassName
	if source != nil {
		if !class.Clones {
			return nil, controller.ProvisioningFinished, p.refuse(o.PVC, cannotCopy(fmt.Sprintf("%s of cluster %s", at.class, node.Name)))
		}
		at.source = data.RemoteClaim(source)
	}
	return remoteVolume(o.PVName, o.PVC, o.StorageClass, at), controller.ProvisioningFinished, nil
}

// RemoteClass returns the class that claims of a virtual class get at the provider that a virtual node stands for. reason is why there is none.
func RemoteClass(ctx context.Context, cached client.Reader, class *storagev1.StorageClass, node *corev1.Node) (name, reason string, err error) {
	got, reason, err := grantedClass(ctx, cached, class, node)
	return got.StorageClassName, reason, err
}

func grantedClass(
	ctx context.Context, cached client.Reader, class *storagev1.StorageClass, node *corev1.Node,
) (got sharingv1alpha1.StorageClass, reason string, err error) {
	var all sharingv1alpha1.ResourceSliceList
	if err := cached.List(ctx, &all, client.MatchingLabels{labels.Replication: "true"}, client.UnsafeDisableDeepCopy); err != nil {
		return got, "", fmt.Errorf("list resource slices: %w", err)
	}
	var granted []sharingv1alpha1.StorageClass
	for i := range all.Items {
		if slice := &all.Items[i]; slice.Spec.NodeName == node.Name && slice.Spec.ProviderClusterID == node.Labels[labels.RemoteClusterID] {
			granted = slice.Status.StorageClasses
			break
		}
	}
	got, reason = remoteClass(class, node.Name, granted)
	return got, reason, nil
}

// provisionHere makes the real claim, and waits until it is bound.
func (p *provisioner) provisionHere(ctx context.Context, o *controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	class := o.StorageClass.Parameters[realClassParameter]
	if class == "" {
		class = p.options.RealClass
	}
	if class == o.StorageClass.Name {
		return nil, controller.ProvisioningFinished, p.refuse(
			o.PVC, fmt.Sprintf("storage class %s is its own real class; set %s to another one", class, realClassParameter),
		)
	}
	name := string(o.PVC.UID)
	existing, err := p.kube.CoreV1().PersistentVolumeClaims(p.options.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		var state controller.ProvisioningState
		if existing, state, err = p.createReal(ctx, o, class); err != nil {
			return nil, state, err
		}
	case err != nil:
		return nil, controller.ProvisioningNoChange, fmt.Errorf("read claim %s/%s: %w", p.options.Namespace, name, err)
	case existing.Spec.VolumeName == "" && existing.Annotations[data.SelectedNode] == "":
		// Its provisioner has refused the node.
		return p.elsewhere(ctx, o, existing)
	}
	bound, err := p.await(ctx, existing)
	if err != nil {
		return nil, controller.ProvisioningInBackground, err
	}
	if bound.Spec.VolumeName == "" {
		return p.elsewhere(ctx, o, bound)
	}
	real, err := p.kube.CoreV1().PersistentVolumes().Get(ctx, bound.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return nil, controller.ProvisioningInBackground, fmt.Errorf("read volume %s: %w", bound.Spec.VolumeName, err)
	}
	return localVolume(o.PVName, o.PVC, o.StorageClass, real), controller.ProvisioningFinished, nil
}

// createReal makes the real claim, with the data of another one if the user's claim asks for that.
func (p *provisioner) createReal(
	ctx context.Context, o *controller.ProvisionOptions, class string,
) (*corev1.PersistentVolumeClaim, controller.ProvisioningState, error) {
	name := ""
	switch source, state, err := p.source(ctx, o.PVC, ""); {
	case err != nil:
		return nil, state, err
	case source != nil:
		real, reason, err := p.realSource(ctx, source, class)
		if err != nil {
			return nil, controller.ProvisioningNoChange, err
		}
		if reason != "" {
			return nil, controller.ProvisioningFinished, p.refuse(o.PVC, reason)
		}
		name = real.Name
		if class == "" && real.Spec.StorageClassName != nil {
			class = *real.Spec.StorageClassName // whose driver was checked
		}
	}
	switch problem, err := quotaProblem(ctx, p.cached, p.kube, o.PVC, class); {
	case err != nil:
		return nil, controller.ProvisioningNoChange, err
	case problem != "":
		return nil, controller.ProvisioningFinished, errors.New(problem) // the quota may change
	}
	intent := realClaim(o.PVC, p.options.Namespace, class, o.SelectedNodeName, name)
	real, err := p.kube.CoreV1().PersistentVolumeClaims(p.options.Namespace).Apply(ctx, intent, metav1.ApplyOptions{FieldManager: labels.OwnerStorage})
	if err != nil {
		return nil, controller.ProvisioningNoChange, fmt.Errorf("create claim %s/%s of the real class: %w", p.options.Namespace, *intent.Name, err)
	}
	log.FromContext(ctx).Info("real claim created", "claim", client.ObjectKeyFromObject(o.PVC), "node", o.SelectedNodeName)
	return real, controller.ProvisioningInBackground, nil
}

// provisionWithoutNode has the scheduler select another node, which may be virtual. So the real claim of an earlier attempt goes, unless it has a volume.
func (p *provisioner) provisionWithoutNode(
	ctx context.Context, o *controller.ProvisionOptions,
) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	real, err := p.kube.CoreV1().PersistentVolumeClaims(p.options.Namespace).Get(ctx, string(o.PVC.UID), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, controller.ProvisioningReschedule, fmt.Errorf("node %s is gone", o.SelectedNodeName)
	case err != nil:
		return nil, controller.ProvisioningNoChange, fmt.Errorf("read claim %s/%s: %w", p.options.Namespace, o.PVC.UID, err)
	case real.Spec.VolumeName == "":
		return p.elsewhere(ctx, o, real)
	}
	return p.provisionHere(ctx, o)
}

// elsewhere has the scheduler select another node, and the real claim follow it.
func (p *provisioner) elsewhere(
	ctx context.Context, o *controller.ProvisionOptions, real *corev1.PersistentVolumeClaim,
) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	if o.SelectedNodeName != "" {
		if err := p.remove(ctx, real.Name, client.Preconditions{UID: &real.UID}); err != nil { // it is bound to nothing
			return nil, controller.ProvisioningInBackground, err
		}
	}
	return nil, controller.ProvisioningReschedule, fmt.Errorf(
		"no volume of the real class can be made on node %s; see the events of claim %s/%s", o.SelectedNodeName, real.Namespace, real.Name,
	)
}

// await returns the real claim once it is bound, or once its provisioner has refused the node.
func (p *provisioner) await(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	if claim.Status.Phase == corev1.ClaimBound {
		return claim, nil
	}
	ctx, cancel := context.WithTimeout(ctx, bindTime)
	defer cancel()
	one := cache.NewListWatchFromClient(p.kube.CoreV1().
		RESTClient(), "persistentvolumeclaims", claim.Namespace, fields.OneTermEqualSelector("metadata.name", claim.Name))
	last, err := watchtools.UntilWithSync(ctx, one, &corev1.PersistentVolumeClaim{}, nil, func(event watch.Event) (bool, error) {
		now, is := event.Object.(*corev1.PersistentVolumeClaim)
		if !is || event.Type == watch.Deleted {
			return false, fmt.Errorf("claim %s/%s was deleted", claim.Namespace, claim.Name)
		}
		return now.Status.Phase == corev1.ClaimBound || now.Spec.VolumeName == "" && now.Annotations[data.SelectedNode] == "", nil
	})
	switch {
	case wait.Interrupted(err):
		return nil, fmt.Errorf("claim %s/%s is not bound yet; see its events", claim.Namespace, claim.Name)
	case err != nil:
		return nil, err
	}
	now, is := last.Object.(*corev1.PersistentVolumeClaim)
	if !is {
		return nil, fmt.Errorf("claim %s/%s was not observed", claim.Namespace, claim.Name)
	}
	return now, nil
}

// ShouldDelete implements controller.DeletionGuard: the virtual kubelet deletes what is at its provider.
func (p *provisioner) ShouldDelete(_ context.Context, volume *corev1.PersistentVolume) bool {
	return !data.IsRemote(volume)
}

// Delete implements controller.Provisioner. The library calls it for a volume whose claim was deleted, if its policy is to delete the data, as its cache
// shows it. It also calls it for a volume that it could not save, although an API server that does not answer may have saved it. So all of that is read again.
// While a volume moves, two volumes record the same data: it goes with the last one that keeps it.
func (p *provisioner) Delete(ctx context.Context, volume *corev1.PersistentVolume) error {
	volumes, err := p.kube.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("find other records of the data of volume %s: %w", volume.Name, err)
	}
	lives, err := p.claimLives(ctx, volume)
	if err != nil {
		return err
	}
	if reason := stays(volume, volumes.Items, lives); reason != "" {
		return &controller.IgnoredError{Reason: reason}
	}
	for i := range volumes.Items {
		if data.Shared(volume, &volumes.Items[i]) {
			return nil
		}
	}
	all, err := p.kube.CoreV1().PersistentVolumeClaims(p.options.Namespace).
		List(ctx, metav1.ListOptions{LabelSelector: labels.VirtualVolume + "=" + data.Name(volume)})
	if err != nil {
		return fmt.Errorf("find the claim of volume %s: %w", volume.Name, err)
	}
	for i := range all.Items {
		if err := p.remove(ctx, all.Items[i].Name, client.Preconditions{UID: &all.Items[i].UID}); err != nil {
			return err
		}
	}
	return nil
}

// claimLives reports whether the user's claim of a volume exists.
func (p *provisioner) claimLives(ctx context.Context, volume *corev1.PersistentVolume) (bool, error) {
	owner := volume.Spec.ClaimRef
	if owner == nil {
		return false, nil
	}
	claim, err := p.kube.CoreV1().PersistentVolumeClaims(owner.Namespace).Get(ctx, owner.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("read claim %s/%s: %w", owner.Namespace, owner.Name, err)
	}
	return err == nil && claim.UID == owner.UID, nil
}

func (p *provisioner) remove(ctx context.Context, name string, preconditions ...client.DeleteOption) error {
	claim := &corev1.PersistentVolumeClaim{}
	claim.Namespace, claim.Name = p.options.Namespace, name
	if err := p.own.Delete(ctx, claim, preconditions...); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete claim %s/%s: %w", p.options.Namespace, name, err)
	}
	return nil
}

var _ interface {
	controller.Provisioner
	controller.BlockProvisioner
	controller.DeletionGuard
} = &provisioner{}
