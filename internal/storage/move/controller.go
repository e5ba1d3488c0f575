// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	"liqo.io/liqo/internal/storage/move/plan"
)

// +kubebuilder:rbac:groups=storage.liqo.io,resources=volumemoves,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=storage.liqo.io,resources=volumemoves/status,verbs=patch

// workers is how many moves are processed at the same time.
const workers = 4

// Options of the controller.
type Options struct {
	// Namespace is that of Liqo, Storage that of real claims.
	Namespace, Storage string
	// Image of the two pods of a move, and when it is pulled.
	Image      string
	PullPolicy corev1.PullPolicy
	// PullSecrets of the pods. They are Secrets of the namespace of the claim: its users could read what we copied there.
	PullSecrets []corev1.LocalObjectReference
}

type controller struct {
	options Options
	client  client.Client
	live    client.Reader
	now     func() time.Time
}

// Setup adds the controller to a manager. It runs in the leader only.
func Setup(mgr manager.Manager, o Options) error {
	c := &controller{options: o, client: mgr.GetClient(), live: mgr.GetAPIReader(), now: time.Now}
	made := builder.ControllerManagedBy(mgr).Named("volumemove").For(&v1alpha1.VolumeMove{}).WithOptions(controllerOptions())
	for _, object := range watched() {
		made = made.Watches(object, c.wake())
	}
	if err := made.Complete(c); err != nil {
		return fmt.Errorf("set up controller of moves: %w", err)
	}
	return nil
}

// Reconcile takes one step of a move.
func (c *controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var move v1alpha1.VolumeMove
	if err := c.live.Get(ctx, request.NamespacedName, &move); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	before := move.Status.Phase
	step, next, err := c.step(ctx, &move)
	if err != nil {
		c.report(ctx, &move, err)
		return reconcile.Result{}, fmt.Errorf("move of claim %s: %w", request.NamespacedName, err)
	}
	if step.Status != nil && step.Status.Phase != before {
		log.FromContext(ctx).Info("volume moves", "phase", step.Status.Phase, "message", step.Status.Message)
	}
	return reconcile.Result{RequeueAfter: next}, nil
}

// step reads, decides and acts. A move that waits for a change looks again after next at the latest; zero: not before.
func (c *controller) step(ctx context.Context, move *v1alpha1.VolumeMove) (step plan.Step, next time.Duration, err error) {
	facts, err := c.facts(ctx, move)
	if err != nil {
		return plan.Step{}, 0, err
	}
	step = plan.Plan(facts)
	var kept []string
	for _, one := range step.Do {
		err := c.do(ctx, move, one)
		if one.Verb == plan.Evict && answered(err) { // the others may end
			kept = append(kept, fmt.Sprintf("pod %s: %v", one.Object.GetName(), err))
			continue
		}
		if (one.Verb == plan.Create || one.Verb == plan.MakeKeys) && denied(err) {
			if back := plan.Denied(facts, err.Error()); back != nil {
				return *back, plan.Next(facts, *back), c.save(ctx, move, back.Status)
			}
		}
		if err != nil {
			return plan.Step{}, 0, fmt.Errorf("%s %T %s: %w", one.Verb, one.Object, one.Object.GetName(), err)
		}
	}
	if len(kept) > 0 {
		const most = 400
		why := strings.Join(kept, "; ")
		step = plan.Kept(facts, strings.ToValidUTF8(why[:min(len(why), most)], ""))
	}
	if step.Status != nil {
		err = c.save(ctx, move, step.Status)
	}
	return step, plan.Next(facts, step), err
}

// answered reports whether an error is the answer of the API server, not that of the network.
func answered(err error) bool {
	var answer apierrors.APIStatus
	return errors.As(err, &answer)
}

// denied reports whether an object was refused by its content, not because a right of ours is missing, which may be on its way.
func denied(err error) bool {
	missing := err != nil && (strings.Contains(err.Error(), "cannot create resource") || strings.Contains(err.Error(), "cannot delete resource"))
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) && !missing
}

// report shows the user an error that may last. The attempt after this one replaces the message, so another error changes nothing.
func (c *controller) report(ctx context.Context, move *v1alpha1.VolumeMove, cause error) {
	const most = 500
	text := "it failed, and is tried again: " + cause.Error()
	status := move.Status.DeepCopy()
	if status.Message = text[:min(len(text), most)]; status.Message == move.Status.Message || plan.Finished(move) {
		return
	}
	if err := c.save(ctx, move, status); err != nil {
		log.FromContext(ctx).V(1).Info("an error could not be reported to the user", "reason", err.Error())
	}
}
