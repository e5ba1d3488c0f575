// SPDX-License-Identifier: Apache-2.0

package pullsecret

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/apis/reasons"
	"liqo.io/liqo/internal/kube/ssa"
)

// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo,groups="",resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:namespace=liqo-tenant,groups="",resources=secrets,verbs=get;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const (
	// Name is the Secret beside a virtual kubelet.
	Name = "virtual-kubelet-image-pull"
	// kubelet is the Deployment of a virtual kubelet.
	kubelet = "virtual-kubelet"
)

// Options of the controller.
type Options struct {
	// Namespace is the install namespace, which has the Secrets.
	Namespace string
	// Secrets are their names; none if nodes need no credentials.
	Secrets []string
}

// reconciler keeps the Secret beside one virtual kubelet.
type reconciler struct {
	options Options
	client  client.Client
	own     *ssa.Applier
	events  events.EventRecorder
}

// Setup registers the controller.
func Setup(mgr manager.Manager, o Options) error {
	r := &reconciler{
		options: o, client: mgr.GetClient(), own: ssa.NewApplier(mgr.GetClient(), labels.OwnerPullSecret),
		events: mgr.GetEventRecorder("liqo-pullsecret"),
	}
	b := builder.ControllerManagedBy(mgr).Named("pullsecret").
		For(&appsv1.Deployment{}, builder.WithPredicates(predicate.NewPredicateFuncs(isKubelet), predicate.GenerationChangedPredicate{}))
	for _, name := range o.Secrets {
		own, err := cache.New(mgr.GetConfig(), cache.Options{
			HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Secret{}: {Namespaces: map[string]cache.Config{o.Namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", name)}}},
			},
		})
		if err != nil {
			return fmt.Errorf("create cache of pull Secret %s: %w", name, err)
		}
		if err := mgr.Add(own); err != nil {
			return err
		}
		b = b.WatchesRawSource(source.Kind[client.Object](own, &corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.kubelets)))
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("set up controller of pull Secrets: %w", err)
	}
	return nil
}

func isKubelet(object client.Object) bool {
	return object.GetName() == kubelet && object.GetLabels()[labels.AppPartOf] == labels.PartOf
}

// kubelets returns all virtual kubelets, because each has the credentials of a Secret that changed.
func (r *reconciler) kubelets(ctx context.Context, _ client.Object) (all []reconcile.Request) {
	var list appsv1.DeploymentList
	if err := r.client.List(ctx, &list); err != nil {
		return nil // the cache does not fail
	}
	for i := range list.Items {
		if isKubelet(&list.Items[i]) {
			all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return all
}

// Reconcile writes the Secret beside one virtual kubelet, or removes it if the chart names no pull Secrets any more.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var deployment appsv1.Deployment
	if err := r.client.Get(ctx, request.NamespacedName, &deployment); err != nil || deployment.DeletionTimestamp != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var tenant corev1.Namespace
	if err := r.client.Get(ctx, client.ObjectKey{Name: deployment.Namespace}, &tenant); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if tenant.Labels[labels.TenantNamespace] != "true" { // elsewhere, a user may create such a Deployment, and would read the credentials
		return reconcile.Result{}, nil
	}
	live := &corev1.Secret{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: deployment.Namespace, Name: Name}, live)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("look for Secret %s/%s: %w", deployment.Namespace, Name, err)
	}
	if len(r.options.Secrets) == 0 {
		return reconcile.Result{}, r.remove(ctx, live)
	}
	content, err := r.content(ctx, &deployment)
	if err != nil {
		return reconcile.Result{}, err
	}
	intent := coreapply.Secret(Name, deployment.Namespace).
		WithLabels(map[string]string{labels.AppName: kubelet, labels.AppPartOf: labels.PartOf}).
		WithOwnerReferences(metaapply.OwnerReference().WithAPIVersion("apps/v1").WithKind("Deployment").WithName(deployment.Name).WithUID(deployment.UID)).
		WithType(corev1.SecretTypeDockerConfigJson).WithData(map[string][]byte{corev1.DockerConfigJsonKey: content})
	if err := r.own.ApplyTo(ctx, intent, live); err != nil && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, nil
}

// content reads the pull Secrets. One that is missing or unusable leaves an event, and the others count.
func (r *reconciler) content(ctx context.Context, deployment *appsv1.Deployment) ([]byte, error) {
	var all []map[string]json.RawMessage
	for _, name := range r.options.Secrets {
		var secret corev1.Secret
		err := r.client.Get(ctx, client.ObjectKey{Namespace: r.options.Namespace, Name: name}, &secret)
		if apierrors.IsNotFound(err) {
			err = fmt.Errorf(
				"value imagePullSecrets names Secret %s/%s, which does not exist; create it with `kubectl create secret docker-registry`",
				r.options.Namespace, name,
			)
		} else if err != nil {
			return nil, fmt.Errorf("read pull Secret %s/%s: %w", r.options.Namespace, name, err)
		}
		var config map[string]json.RawMessage
		if err == nil {
			config, err = credentials(&secret)
		}
		if err != nil {
			r.events.Eventf(deployment, nil, corev1.EventTypeWarning, reasons.PullSecretUnusable, "CopyPullSecret", "%s", err.Error())
			continue
		}
		all = append(all, config)
	}
	return merged(all)
}

// remove deletes the Secret that an earlier value made.
func (r *reconciler) remove(ctx context.Context, live *corev1.Secret) error {
	if live.UID == "" || live.Labels[labels.AppPartOf] != labels.PartOf {
		return nil
	}
	err := r.client.Delete(ctx, live, client.Preconditions{UID: &live.UID})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete Secret %s/%s: %w", live.Namespace, live.Name, err)
	}
	return nil
}
