// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	vkapply "liqo.io/liqo/apis/applyconfiguration/virtualkubelet/v1alpha1"
	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/offloading/shadow"
)

// Pods are written in twins only: whoever makes a twin binds liqo-controller-manager-twin in it.
// +kubebuilder:rbac:groups=virtualkubelet.liqo.io,resources=shadowpods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:namespace=liqo-twin,groups=virtualkubelet.liqo.io,resources=shadowpods/status,verbs=patch
// +kubebuilder:rbac:namespace=liqo-twin,groups=virtualkubelet.liqo.io,resources=shadowpods/finalizers,verbs=update
// +kubebuilder:rbac:namespace=liqo-twin,groups="",resources=pods,verbs=get;create;patch;delete
// +kubebuilder:rbac:namespace=liqo-twin,groups="",resources=pods/ephemeralcontainers,verbs=patch

// Reasons of events on ShadowPods.
const (
	reasonNameTaken    = "NameTaken"
	reasonRefused      = "Refused"
	reasonFailedCreate = "FailedCreate"
	reasonFailedUpdate = "FailedUpdate"
)

// ShadowPodOptions is what the controller needs to know.
type ShadowPodOptions struct {
	RemoteNamespaces *RemoteNamespaces
	// Level is how much of a node pods of peers may reach.
	Level shadow.Level
	// Workers is how many are looked at at the same time.
	Workers int
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

// shadowPods makes pods of ShadowPods.
type shadowPods struct {
	options ShadowPodOptions
	cached  client.Reader
	// live asks the API server, and is not slowed down: the number of workers is limit enough.
	live   client.Client
	status *ssa.Applier
	events warnings
}

// SetupShadowPod registers the controller.
func SetupShadowPod(mgr manager.Manager, o ShadowPodOptions) error {
	if o.Now == nil {
		o.Now = time.Now
	}
	live, err := newLive(mgr)
	if err != nil {
		return fmt.Errorf("client for shadow pods: %w", err)
	}
	r := &shadowPods{
		options: o, cached: mgr.GetClient(), live: live,
		status: ssa.NewApplier(live, labels.OwnerShadowPod), events: newWarnings(mgr, "liqo-shadowpod"),
	}
	err = builder.ControllerManagedBy(mgr).Named("shadowpod").
		For(&vkv1alpha1.ShadowPod{}).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: o.Workers,
			NewQueue:                kubemanager.FairQueue(o.Workers),
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](20*time.Millisecond, 30*time.Second),
		}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofPod)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up controller of shadow pods: %w", err)
	}
	return nil
}

// warnings tell a peer, on what it wishes for, why that is not so. The other peers are told even if one has much to be told.
type warnings struct {
	to   events.EventRecorder
	each *kubemanager.Allowance
}

func newWarnings(mgr manager.Manager, from string) warnings {
	return warnings{to: mgr.GetEventRecorder(from), each: kubemanager.NewAllowance(5, 50)}
}

func (w warnings) warn(about client.Object, reason, action, note string, args ...any) {
	if w.each.Allow(about.GetNamespace()) {
		w.to.Eventf(about, nil, corev1.EventTypeWarning, reason, action, note, args...)
	}
}

// newLive is a client without a cache, and without a limit of its own. Of what it applies it learns the metadata only.
func newLive(mgr manager.Manager) (client.Client, error) {
	cfg := rest.CopyConfig(mgr.GetConfig())
	cfg.QPS = -1
	cfg.Wrap(ssa.MetadataAnswers)
	return client.New(cfg, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
}

// TrimShadowPod is a transform for a cache: it keeps what the controller and the quota look at.
func TrimShadowPod(in any) (any, error) {
	if wish, ok := in.(*vkv1alpha1.ShadowPod); ok {
		shadow.Trim(wish)
	}
	return kubemanager.Trim(in)
}

// ofPod is the ShadowPod that a pod belongs to, or is in the way of.
func (r *shadowPods) ofPod(ctx context.Context, pod client.Object) []reconcile.Request {
	key := client.ObjectKeyFromObject(pod)
	if pod.GetLabels()[labels.ManagedBy] != labels.ManagedByShadowPod {
		if r.cached.Get(ctx, key, &vkv1alpha1.ShadowPod{}, client.UnsafeDisableDeepCopy) != nil {
			return nil
		}
	}
	return []reconcile.Request{{NamespacedName: key}}
}

// Reconcile looks at one name.
func (r *shadowPods) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	facts, err := r.read(ctx, r.cached, request.NamespacedName, true)
	if err != nil {
		return reconcile.Result{}, err
	}
	if facts.Shadow == nil {
		r.status.Forget(request.NamespacedName)
	}
	step := shadow.Plan(facts)
	if step.NeedsLive {
		if facts, err = r.read(ctx, r.live, request.NamespacedName, facts.Pod != nil); err != nil {
			return reconcile.Result{}, err
		}
		step = shadow.Plan(facts)
	}
	if step.Create {
		taken, err := r.create(ctx, facts.Shadow)
		if err != nil || !taken {
			return reconcile.Result{}, err
		}
		if facts, err = r.read(ctx, r.live, request.NamespacedName, true); err != nil {
			return reconcile.Result{}, err
		}
		if step = shadow.Plan(facts); step.Create {
			return reconcile.Result{RequeueAfter: 10 * time.Millisecond}, nil // it went in this moment
		}
	}
	return reconcile.Result{RequeueAfter: step.RequeueAfter}, r.take(ctx, facts, step)
}

// read gets the pod first, then the wish: see shadow.Facts.
func (r *shadowPods) read(ctx context.Context, from client.Reader, key types.NamespacedName, withPod bool) (shadow.Facts, error) {
	facts := shadow.Facts{Shadow: &vkv1alpha1.ShadowPod{}, Live: from == r.live, Now: r.options.Now()}
	if withPod {
		facts.Pod = &corev1.Pod{}
		if err := from.Get(ctx, key, facts.Pod); apierrors.IsNotFound(err) {
			facts.Pod = nil
		} else if err != nil {
			return facts, fmt.Errorf("look for pod %s: %w", key, err)
		}
	}
	if err := from.Get(ctx, key, facts.Shadow); apierrors.IsNotFound(err) {
		facts.Shadow = nil
	} else if err != nil {
		return facts, fmt.Errorf("look for shadow pod %s: %w", key, err)
	}
	return facts, nil
}

// take does what was decided, but for the creation.
func (r *shadowPods) take(ctx context.Context, facts shadow.Facts, step shadow.Step) error {
	if step.Unmanaged {
		r.events.warn(facts.Shadow, reasonNameTaken, "Create",
			"this namespace has another pod of the name %s, which is not touched; delete it, or give the pod of the other cluster another name", facts.Pod.Name)
		return nil
	}
	if step.Delete {
		return r.remove(ctx, facts.Pod)
	}
	if step.Phase != "" {
		if err := r.say(ctx, facts.Shadow, step.Phase, facts.Pod.UID); err != nil {
			return err
		}
	}
	if step.Release {
		if err := r.patch(ctx, facts.Pod, shadow.Release(facts.Pod)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("finalizer of pod %s/%s: %w", facts.Pod.Namespace, facts.Pod.Name, err)
		}
	}
	if step.Amend {
		return r.amend(ctx, client.ObjectKeyFromObject(facts.Pod))
	}
	return nil
}

// create makes the pod, once. It says so if the name is taken.
func (r *shadowPods) create(ctx context.Context, wish *vkv1alpha1.ShadowPod) (taken bool, _ error) {
	peer, err := r.admit(ctx, wish)
	if err != nil || peer == "" {
		return false, err
	}
	pod := shadow.Pod(wish, peer)
	err = r.live.Create(ctx, pod, client.FieldOwner(labels.OwnerShadowPod))
	switch {
	case err == nil:
		log.FromContext(ctx).V(1).Info("pod of a peer created", "clusterID", peer, "podUID", pod.UID)
		return false, nil
	case apierrors.IsAlreadyExists(err):
		return true, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return false, nil
	}
	r.events.warn(wish, reasonFailedCreate, "Create", "the pod cannot be created: %.900s", err.Error())
	err = fmt.Errorf("create pod %s/%s: %w", wish.Namespace, wish.Name, err)
	if apierrors.IsInvalid(err) {
		err = reconcile.TerminalError(err) // it will not be better tomorrow
	}
	return false, err
}

// admit is whose pod a wish is. Nobody's, if it is refused: the webhook may not have been there when it was written.
func (r *shadowPods) admit(ctx context.Context, wish *vkv1alpha1.ShadowPod) (peer string, _ error) {
	peer, err := r.options.RemoteNamespaces.Peer(ctx, wish.Namespace)
	if err != nil {
		return "", err
	}
	problem := "this namespace was not made for a peer (label " + labels.RemoteClusterID + ")"
	if peer != "" {
		problem = shadow.Check(wish, peer, r.options.Level)
	}
	if problem == "" {
		return peer, nil
	}
	r.events.warn(wish, reasonRefused, "Create", "%.1000s", problem)
	return "", nil
}

// say writes the phase. That nothing was written, because the wish is gone or has ended, is as good.
func (r *shadowPods) say(ctx context.Context, wish *vkv1alpha1.ShadowPod, phase vkv1alpha1.ShadowPodPhase, pod types.UID) error {
	intent := vkapply.ShadowPod(wish.Name, wish.Namespace).WithUID(wish.UID).
		WithStatus(vkapply.ShadowPodStatus().WithPhase(phase).WithPodUID(string(pod)))
	err := r.status.ApplyStatusTo(ctx, intent, wish)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil
	}
	return err
}

// remove deletes this very pod.
func (r *shadowPods) remove(ctx context.Context, pod *corev1.Pod) error {
	err := r.live.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
}

// amend brings a change of the wish to the running pod.
func (r *shadowPods) amend(ctx context.Context, key types.NamespacedName) error {
	facts, err := r.read(ctx, r.live, key, true)
	if err != nil || !shadow.Plan(facts).Amend {
		return err // it has changed since; an event tells
	}
	peer, err := r.admit(ctx, facts.Shadow)
	if err != nil || peer == "" {
		return err
	}
	ephemeral, rest := shadow.Amend(facts.Shadow, facts.Pod, peer, labels.OwnerShadowPod)
	if ephemeral != nil {
		patch, err := jsonPatch(ephemeral)
		if err == nil {
			err = r.live.SubResource("ephemeralcontainers").Patch(ctx, facts.Pod.DeepCopy(), patch, client.FieldOwner(labels.OwnerShadowPod))
		}
		if err != nil {
			return r.unamended(facts.Shadow, err)
		}
	}
	if err := r.patch(ctx, facts.Pod, rest); err != nil {
		return r.unamended(facts.Shadow, err)
	}
	return nil
}

func (r *shadowPods) unamended(wish *vkv1alpha1.ShadowPod, err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	r.events.warn(wish, reasonFailedUpdate, "Update", "the pod cannot be changed: %.900s", err.Error())
	err = fmt.Errorf("change pod %s/%s: %w", wish.Namespace, wish.Name, err)
	if apierrors.IsInvalid(err) {
		return reconcile.TerminalError(err)
	}
	return err
}

func (r *shadowPods) patch(ctx context.Context, pod *corev1.Pod, ops []shadow.Op) error {
	patch, err := jsonPatch(ops)
	if err != nil || len(ops) == 0 {
		return err
	}
	return r.live.Patch(ctx, pod.DeepCopy(), patch, client.FieldOwner(labels.OwnerShadowPod))
}

func jsonPatch(ops []shadow.Op) (client.Patch, error) {
	text, err := json.Marshal(ops)
	if err != nil {
		return nil, fmt.Errorf("encode a patch: %w", err)
	}
	return client.RawPatch(types.JSONPatchType, text), nil
}
