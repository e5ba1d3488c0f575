// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/gateways"
	"liqo.io/liqo/internal/network/keyring"
	"liqo.io/liqo/internal/network/tenants"
)

// +kubebuilder:rbac:namespace=liqo,groups="",resources=secrets,verbs=create
// +kubebuilder:rbac:namespace=liqo,groups="",resources=secrets,resourceNames=liqo-gateway-keys,verbs=get;list;watch;update
// +kubebuilder:rbac:namespace=liqo,groups=apps,resources=deployments,resourceNames=liqo-controller-manager,verbs=get

// managerDeployment runs these controllers. It owns the Secret, so that Kubernetes deletes the keys with it, however it is removed.
const managerDeployment = "liqo-controller-manager"

// Options is whose keys they are.
type Options struct {
	// Namespace is the install namespace, where the gateways run.
	Namespace string
	Gateways  *gateways.Reader
	// Now is the clock.
	Now func() time.Time
}

// reconciler creates the keys of the gateways, and rotates them when the annotation requests it.
type reconciler struct {
	Options
	client client.Client
	live   client.Reader // bypasses the cache
	// settled is since when all peers have answered to the advertised keys; zero if not all have.
	settled time.Time
	// owner is the Deployment of this process as it was when the process started; nil before the first reconciliation, and without a UID outside of the cluster.
	owner *metav1.PartialObjectMetadata
}

// Setup registers the controller of the keys of gateways.
func Setup(mgr manager.Manager, o Options) error {
	r := &reconciler{Options: o, client: mgr.GetClient(), live: mgr.GetAPIReader()}
	once := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: keyring.Name(r.Namespace)}}
	})
	err := builder.ControllerManagedBy(mgr).Named("gatewaykeys").
		WatchesRawSource(source.Kind[client.Object](o.Gateways.Cache, &corev1.Secret{}, once)).
		WatchesRawSource(atStart(reconcile.Request{NamespacedName: keyring.Name(r.Namespace)})).
		Watches(&netv1alpha1.NetworkConfig{}, once).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the controller of gateway keys: %w", err)
	}
	return nil
}

// Reconcile takes the next step on the Secret. Every write carries the version that was read, so no concurrent write is lost, and an
// unreadable key is never overwritten.
func (r *reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if err := r.findOwner(ctx); err != nil {
		return reconcile.Result{}, err
	}
	var secret corev1.Secret
	err := r.Gateways.Cache.Get(ctx, keyring.Name(r.Namespace), &secret)
	if apierrors.IsNotFound(err) {
		return reconcile.Result{}, r.create(ctx)
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read Secret %s with the keys of the gateways: %w", keyring.Name(r.Namespace), err)
	}
	keys, err := keyring.Read(&secret)
	if err != nil {
		return reconcile.Result{}, err
	}
	if keys.Missing() {
		if err := keys.Fill(rand.Reader); err != nil {
			return reconcile.Result{}, err
		}
		return reconcile.Result{}, r.update(ctx, &secret, &keys)
	}
	now := r.Now()
	if err := r.observe(ctx, &keys, now); err != nil {
		return reconcile.Result{}, err
	}
	switch step, wait := keys.Rotate(r.settled, now); step {
	case keyring.RotationStart:
		keys.Begun, keys.BegunAt = keys.Wanted, now
		r.settled = time.Time{}
		log.FromContext(ctx).Info("key rotation started", "annotation", keys.Wanted)
		return reconcile.Result{}, r.update(ctx, &secret, &keys)
	case keyring.RotationWait:
		return reconcile.Result{RequeueAfter: wait}, nil
	case keyring.RotationPromote:
		if err := keys.Promote(rand.Reader); err != nil {
			return reconcile.Result{}, err
		}
		log.FromContext(ctx).Info("keys rotated", "annotation", keys.Wanted, "allPeersKnew", !r.settled.IsZero())
		return reconcile.Result{}, r.update(ctx, &secret, &keys)
	case keyring.RotationIdle:
	}
	return reconcile.Result{}, nil
}

// observe records since when all peers have the advertised keys.
func (r *reconciler) observe(ctx context.Context, keys *keyring.Ring, now time.Time) error {
	var all netv1alpha1.NetworkConfigList
	if err := r.client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list network configurations: %w", err)
	}
	for i := range all.Items {
		if own := &all.Items[i]; tenants.IsOwn(own) && !knows(own, keys) {
			r.settled = time.Time{}
			return nil
		}
	}
	if r.settled.IsZero() {
		r.settled = now
	}
	return nil
}

// knows reports whether the peer has answered to the advertised keys.
func knows(own *netv1alpha1.NetworkConfig, keys *keyring.Ring) bool {
	for i := range own.Spec.Lanes {
		if own.Spec.Lanes[i].PublicKey != keys.Advertised(int(own.Spec.Lanes[i].Number)) {
			return false
		}
	}
	return own.Status.Processed && own.Status.ObservedGeneration == own.Generation
}

func (r *reconciler) create(ctx context.Context) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: r.Namespace, Name: keyring.SecretName, Labels: map[string]string{labels.AppPartOf: labels.PartOf},
	}}
	keys := keyring.Ring{Lanes: map[int]keyring.KeyPair{}}
	if err := keys.Fill(rand.Reader); err != nil {
		return err
	}
	keys.Write(secret)
	if owner := r.owner; owner.UID != "" {
		secret.OwnerReferences = []metav1.OwnerReference{{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID}}
	}
	// If it exists, the cache was late.
	if err := r.client.Create(ctx, secret); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// findOwner asks once for the Deployment of this process. Asked for it later, when an uninstallation has deleted it and the keys, and this process
// has not ended yet, the keys would be created again without an owner, and stay.
func (r *reconciler) findOwner(ctx context.Context) error {
	if r.owner != nil {
		return nil
	}
	owner := &metav1.PartialObjectMetadata{}
	owner.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	err := r.live.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: managerDeployment}, owner)
	if client.IgnoreNotFound(err) != nil { // without the Deployment, the process runs outside of the cluster and the keys have no owner
		return fmt.Errorf("get Deployment %s/%s, the owner of the keys of the gateways: %w", r.Namespace, managerDeployment, err)
	}
	r.owner = owner
	return nil
}

func (r *reconciler) update(ctx context.Context, secret *corev1.Secret, keys *keyring.Ring) error {
	after := secret.DeepCopy()
	keys.Write(after)
	after.ManagedFields = nil
	// On a conflict the event of the other write enqueues the Secret again.
	if err := r.client.Update(ctx, after); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("update Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

func atStart(request reconcile.Request) source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(request)
		return nil
	})
}
