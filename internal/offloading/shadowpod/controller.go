// SPDX-License-Identifier: Apache-2.0

package shadowpod

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	vkapply "liqo.io/liqo/apis/applyconfiguration/virtualkubelet/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/apis/reasons"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/offloading/lifecycle"
	"liqo.io/liqo/internal/offloading/metadata"
	"liqo.io/liqo/internal/offloading/peers"
	"liqo.io/liqo/internal/offloading/quota"
	"liqo.io/liqo/internal/offloading/refused"
	"liqo.io/liqo/internal/offloading/shadow"
	"liqo.io/liqo/internal/offloading/verdict"
)

// Pods are written only in remote namespaces: their controller binds liqo-controller-manager-remote there. A namespace in deletion loses that binding, maybe
// before its ShadowPods, which it keeps until their finalizers are removed: they are released by rights in all namespaces.
// +kubebuilder:rbac:groups=virtualkubelet.liqo.io,resources=shadowpods,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:namespace=liqo-remote,groups=virtualkubelet.liqo.io,resources=shadowpods/status,verbs=patch
// +kubebuilder:rbac:namespace=liqo-remote,groups=virtualkubelet.liqo.io,resources=shadowpods/finalizers,verbs=update
// +kubebuilder:rbac:namespace=liqo-remote,groups="",resources=pods,verbs=create;patch;delete
// +kubebuilder:rbac:namespace=liqo-remote,groups="",resources=pods/ephemeralcontainers;pods/resize,verbs=patch

// Reasons of events on ShadowPods.
const (
	reasonRefused      = reasons.Refused
	reasonFailedCreate = reasons.FailedCreate
	reasonFailedUpdate = reasons.FailedUpdate
	reasonIncomplete   = reasons.ReflectionIncomplete
)

// Options of the controller.
type Options struct {
	RemoteNamespaces *peers.Namespaces
	// Level is how much of a node pods of peers may reach.
	Level shadow.Level
	// Allowed is what peers may decide about the metadata and tolerations of their pods.
	Allowed metadata.Allowed
	// Quota keeps peers within their grants; nil if none is enforced.
	Quota Quota
	// Defaults are what new pods get that state less; the quota counts with them.
	Defaults quota.Defaults
	// Names are the DNS settings of new pods; nil if they keep their own.
	Names Names
	// Workers is how many are reconciled at the same time.
	Workers int
	// RefusalRetry is the longest pause before a pod is created or changed again that a rule of this cluster has refused; 0 means five minutes.
	RefusalRetry time.Duration
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

// Quota keeps the pods of peers within their grants.
type Quota interface {
	// Reserve returns why a pod must not be created, or resized, now; if it returns nothing, the pod counts from now on. pod is the one to be resized;
	// nil if there is none.
	Reserve(peer string, shadowPod *vkv1alpha1.ShadowPod, pod *corev1.Pod, now time.Time) (string, error)
	// Release undoes Reserve.
	Release(shadowPod *vkv1alpha1.ShadowPod)
}

// reconciler creates the pods of ShadowPods.
type reconciler struct {
	options Options
	cached  client.Reader
	// live is a client without cache and rate limit: the number of workers limits its requests.
	live   client.Client
	status *ssa.Applier
	events peers.Warnings
	// refusals and incomplete are what was reported of ShadowPods.
	refusals   *refused.Memory
	incomplete *incomplete
	keptFields *keptFields
}

// Setup registers the controller.
func Setup(mgr manager.Manager, o Options) error {
	if o.Now == nil {
		o.Now = time.Now
	}
	kept := newKeptFields()
	live, err := kubemanager.Live(mgr, kept.count)
	if err != nil {
		return fmt.Errorf("client for shadow pods: %w", err)
	}
	r := &reconciler{
		options: o, cached: mgr.GetClient(), live: live,
		status: ssa.NewApplier(live, labels.OwnerShadowPod), events: peers.NewWarnings(mgr, "liqo-shadowpod", o.RemoteNamespaces),
		refusals: refused.New(o.RefusalRetry), incomplete: newIncomplete(), keptFields: kept,
	}
	err = builder.ControllerManagedBy(mgr).Named("shadowpod").
		For(&vkv1alpha1.ShadowPod{}).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: o.Workers,
			NewQueue:                kubemanager.FairQueue(o.Workers, o.RemoteNamespaces.KnownPeer),
			RateLimiter:             kubemanager.RetryBackoff(),
		}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofPod)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up controller of shadow pods: %w", err)
	}
	return nil
}

// Trim is a cache transform that keeps the fields which the controller and the quota read.
func Trim(in any) (any, error) {
	if shadowPod, ok := in.(*vkv1alpha1.ShadowPod); ok {
		shadow.Trim(shadowPod)
	}
	return kubemanager.Trim(in)
}

// ofPod maps a pod to the ShadowPod of its name.
func (r *reconciler) ofPod(ctx context.Context, pod client.Object) []reconcile.Request {
	key := client.ObjectKeyFromObject(pod)
	if pod.GetLabels()[labels.ManagedBy] != labels.ManagedByShadowPod {
		if r.cached.Get(ctx, key, &vkv1alpha1.ShadowPod{}, client.UnsafeDisableDeepCopy) != nil {
			return nil
		}
	}
	return []reconcile.Request{{NamespacedName: key}}
}

// Reconcile brings the pod of one ShadowPod to its desired state.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	result, err := r.reconcile(ctx, request)
	return r.refusals.Retry(ctx, request, result, err)
}

func (r *reconciler) reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	facts, err := r.read(ctx, r.cached, request.NamespacedName, true)
	if err != nil {
		return reconcile.Result{}, err
	}
	if facts.Shadow == nil {
		r.status.Forget(request.NamespacedName)
		r.incomplete.forget(request.NamespacedName)
		r.keptFields.settled(request.NamespacedName)
	} else if err := r.settle(ctx, facts.Shadow); err != nil {
		return reconcile.Result{}, err
	}
	step := lifecycle.Plan(facts)
	if step.NeedsPod {
		if facts.Pod, err = readPod(ctx, r.live, request.NamespacedName); err != nil {
			return reconcile.Result{}, err
		}
		facts.PodLive = true
		step = lifecycle.Plan(facts)
	}
	if step.NeedsLive {
		if facts, err = r.read(ctx, r.live, request.NamespacedName, facts.Pod != nil); err != nil {
			return reconcile.Result{}, err
		}
		step = lifecycle.Plan(facts)
	}
	if step.Create {
		taken, err := r.create(ctx, facts.Shadow)
		if err != nil || !taken {
			return reconcile.Result{}, err
		}
		if facts, err = r.read(ctx, r.live, request.NamespacedName, true); err != nil {
			return reconcile.Result{}, err
		}
		if facts.Shadow != nil {
			if err := r.settle(ctx, facts.Shadow); err != nil {
				return reconcile.Result{}, err
			}
		}
		if step = lifecycle.Plan(facts); step.Create {
			return reconcile.Result{RequeueAfter: 10 * time.Millisecond}, nil // the pod was deleted in between
		}
	}
	return reconcile.Result{RequeueAfter: step.RequeueAfter}, r.take(ctx, facts, step)
}

// read gets the pod first, then the ShadowPod: see shadow.Facts.
func (r *reconciler) read(ctx context.Context, from client.Reader, key types.NamespacedName, withPod bool) (lifecycle.Facts, error) {
	facts := lifecycle.Facts{Shadow: &vkv1alpha1.ShadowPod{}, Live: from == r.live, Now: r.options.Now()}
	if withPod {
		var err error
		if facts.Pod, err = readPod(ctx, from, key); err != nil {
			return facts, err
		}
	}
	if err := from.Get(ctx, key, facts.Shadow); apierrors.IsNotFound(err) {
		facts.Shadow = nil
	} else if err != nil {
		return facts, fmt.Errorf("look for shadow pod %s: %w", key, err)
	}
	return facts, nil
}

// readPod returns nil if there is no pod.
func readPod(ctx context.Context, from client.Reader, key types.NamespacedName) (*corev1.Pod, error) {
	var pod corev1.Pod
	switch err := from.Get(ctx, key, &pod); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look for pod %s: %w", key, err)
	}
	return &pod, nil
}

// take executes a step, except for the creation.
func (r *reconciler) take(ctx context.Context, facts lifecycle.Facts, step lifecycle.Step) error {
	if step.Unmanaged {
		r.events.Warn(facts.Shadow, reasons.NameTaken, "Create",
			"this namespace has another pod of the name %s, which is not touched; delete it, or rename the pod of the other cluster", facts.Pod.Name)
		return nil
	}
	if step.Delete {
		return r.remove(ctx, facts.Pod, step.Period)
	}
	if step.Free {
		if err := r.patch(ctx, facts.Shadow, lifecycle.Free(facts.Shadow)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("finalizer of shadow pod %s/%s: %w", facts.Shadow.Namespace, facts.Shadow.Name, err)
		}
		return nil
	}
	if step.Phase != "" {
		if err := r.writePhase(ctx, facts, step.Phase); err != nil {
			return err
		}
	}
	if step.Release {
		if err := r.patch(ctx, facts.Pod, lifecycle.Release(facts)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("finalizer of pod %s/%s: %w", facts.Pod.Namespace, facts.Pod.Name, err)
		}
	}
	if step.Amend {
		return r.amend(ctx, client.ObjectKeyFromObject(facts.Pod))
	}
	return nil
}

// create creates the pod. It returns taken if a pod of the name exists.
func (r *reconciler) create(ctx context.Context, shadowPod *vkv1alpha1.ShadowPod) (taken bool, _ error) {
	peer, err := r.admit(ctx, shadowPod)
	if err != nil || peer == "" {
		return false, err
	}
	configure, err := r.names(ctx, shadowPod)
	if err != nil {
		return false, err
	}
	reported, err := r.architectures(ctx, shadowPod.Namespace)
	if err != nil {
		return false, err
	}
	pod := shadow.Pod(shadowPod, peer, r.options.Allowed)
	configure(&pod.Spec)
	architectures, chosen := shadow.Architectures(shadowPod, reported)
	shadow.RunOn(&pod.Spec, architectures)
	shadow.Choose(pod, chosen)
	r.options.Defaults.Fill(&pod.Spec)
	write := func(how ...client.CreateOption) (*corev1.Pod, error) {
		made := pod.DeepCopy()
		return made, r.live.Create(ctx, made, append(how, client.FieldOwner(labels.OwnerShadowPod))...)
	}
	asked := verdict.Isolating(&pod.Spec)
	if err := r.isolated(shadowPod, asked, func() ([]string, error) {
		trial, err := write(client.DryRunAll)
		return verdict.Isolating(&trial.Spec), err
	}); err != nil {
		return false, err
	}
	if err := r.reserve(peer, shadowPod, nil); err != nil {
		return false, err
	}
	made, err := r.created(ctx, shadowPod, asked, func() (*corev1.Pod, error) { return write() })
	switch {
	case err == nil:
		log.FromContext(ctx).V(1).Info("pod of a peer created", "clusterID", peer, "podUID", made.UID)
		r.leftOut(shadowPod)
		r.without(shadowPod, &pod.Spec, &made.Spec)
		return false, nil
	case made.UID != "": // it is less isolated than it asked for, and deleted, or will be
		return false, err
	case apierrors.IsAlreadyExists(err):
		return true, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return false, nil
	}
	if r.options.Quota != nil && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) { // after any other error, the pod may exist
		r.options.Quota.Release(shadowPod)
	}
	r.events.Warn(shadowPod, reasonFailedCreate, "Create", "the pod cannot be created: %s", verdict.Refusal(err, shadowPod.Namespace, verdict.Names(shadowPod)...))
	return false, refused.ByRule(fmt.Errorf("create pod %s/%s: %w", shadowPod.Namespace, shadowPod.Name, err))
}

// reserve counts a pod before it is created or resized. It returns an error if the pod does not fit, so that it is tried again: no event leads here
// when other pods end.
func (r *reconciler) reserve(peer string, shadowPod *vkv1alpha1.ShadowPod, pod *corev1.Pod) error {
	if r.options.Quota == nil {
		return nil
	}
	problem, err := r.options.Quota.Reserve(peer, shadowPod, pod, r.options.Now())
	if problem != "" {
		r.events.Warn(shadowPod, reasonRefused, "Create", "%.1000s", problem)
		err = refused.UntilFits(fmt.Errorf("pod %s/%s does not fit into the grant of cluster %s: %s", shadowPod.Namespace, shadowPod.Name, peer, problem))
	}
	return err
}

// admit returns the peer of a ShadowPod; empty if the ShadowPod is refused. The webhook may have been down when it was written.
func (r *reconciler) admit(ctx context.Context, shadowPod *vkv1alpha1.ShadowPod) (peer string, _ error) {
	peer, err := r.options.RemoteNamespaces.Peer(ctx, shadowPod.Namespace)
	if err != nil {
		return "", err
	}
	problem := "this namespace was not created for a peer (label " + labels.RemoteClusterID + ")"
	if peer != "" {
		accepted, err := r.options.RemoteNamespaces.Accepted(ctx, peer)
		if err != nil {
			return "", err
		}
		if !accepted { // an error, so that it is tried again: the decision may change, and its event does not lead here
			r.events.Warn(shadowPod, reasonRefused, "Create", "this cluster does not let the peer use its resources")
			return "", refused.UntilFits(fmt.Errorf("cluster %s may not use this cluster: see spec.incomingPeeringEnabled of its ForeignCluster", peer))
		}
		problem = shadow.Check(shadowPod, peer, r.options.Level)
	}
	if problem == "" {
		return peer, nil
	}
	r.events.Warn(shadowPod, reasonRefused, "Create", "%.1000s", problem)
	return "", nil
}

// writePhase records the phase of the pod. It is no error if the ShadowPod is gone or has ended.
func (r *reconciler) writePhase(ctx context.Context, facts lifecycle.Facts, phase vkv1alpha1.ShadowPodPhase) error {
	status := vkapply.ShadowPodStatus().WithPhase(phase).WithPodUID(string(facts.Pod.UID))
	if chosen := shadow.Architecture(facts.Shadow, facts.Pod); chosen != "" {
		status.WithArchitecture(chosen)
	}
	intent := vkapply.ShadowPod(facts.Shadow.Name, facts.Shadow.Namespace).WithUID(facts.Shadow.UID).WithStatus(status)
	err := r.status.ApplyStatusTo(ctx, intent, facts.Shadow)
	// the definition of an earlier version: without its phase, a pod would run again
	if err != nil && strings.Contains(err.Error(), ".status.architecture: field not declared") {
		status.Architecture = nil
		err = r.status.ApplyStatusTo(ctx, intent, facts.Shadow)
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil
	}
	return err
}

// remove deletes exactly this pod, with a grace period in seconds, or its own if that is 0.
func (r *reconciler) remove(ctx context.Context, pod *corev1.Pod, period int64) error {
	how := []client.DeleteOption{client.Preconditions{UID: &pod.UID}}
	if period > 0 {
		how = append(how, client.GracePeriodSeconds(period))
	}
	err := r.live.Delete(ctx, pod, how...)
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
}
