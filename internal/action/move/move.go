// SPDX-License-Identifier: Apache-2.0

// Package move moves the data of a claim to another cluster, and takes such a move back. It must not know how data is copied. Its
// proof are answer_test.go and progress_test.go, and move_test.go of package apiserver.
package move

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	storagev1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/await"
	"liqo.io/liqo/internal/action/deletion"
	"liqo.io/liqo/internal/kube/ending"
	"liqo.io/liqo/internal/kube/printable"
)

// moveAnswer is how long the controller manager may take until a move starts.
const moveAnswer = 30 * time.Second

type Options struct {
	// Namespace and Claim name the claim whose data moves.
	Namespace, Claim string
	// TargetNode is the node where the data is to be.
	TargetNode                 string
	Online, KeepSource, DryRun bool
	// Resources of the containers of the two pods that copy.
	Resources corev1.ResourceRequirements
	// Timeout bounds how long the command follows the move; 0 for no limit. The move itself goes on.
	Timeout time.Duration
	// Logs streams the log of a pod; nil for no bytes in the progress.
	Logs func(ctx context.Context, namespace, pod string) (io.ReadCloser, error)
}

func (o *Options) spec() storagev1alpha1.VolumeMoveSpec {
	return storagev1alpha1.VolumeMoveSpec{TargetNode: o.TargetNode, Online: o.Online, KeepSource: o.KeepSource, DryRun: o.DryRun, Resources: o.Resources}
}

// bounded is a context that ends with the timeout.
func (o *Options) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.Timeout > 0 {
		return context.WithTimeout(ctx, o.Timeout)
	}
	return context.WithCancel(ctx)
}

// Volume moves the data of a claim to another node, and follows the move until it ends. A move that is under way already is followed.
func Volume(ctx context.Context, c client.WithWatch, o Options, p action.Progress) error {
	ctx, cancel := o.bounded(ctx)
	defer cancel()
	p.Start(fmt.Sprintf("Moving the volume of claim %q to node %q", o.Claim, o.TargetNode))
	if err := awaitTakenBack(ctx, c, &o, p); err != nil {
		p.Stop()
		return err
	}
	move, err := startMove(ctx, c, &o)
	if err != nil {
		p.Stop()
		return err
	}
	move, err = followMove(ctx, c, &o, move, p)
	p.Stop()
	if err != nil {
		return err
	}
	// The object has no more to report. It stays if this command is interrupted, and the next move replaces it.
	err = await.Retry(ctx, func(ctx context.Context) error {
		return client.IgnoreNotFound(c.Delete(ctx, move, await.SameObject(move.UID)))
	})
	switch {
	case move.Status.Phase == storagev1alpha1.MoveFailed:
		return fmt.Errorf("the volume of claim %q was not moved, and is as before: %s", o.Claim, move.Status.Message)
	case err != nil && !apierrors.IsConflict(err):
		return fmt.Errorf("delete the finished VolumeMove %q: %w", o.Claim, err)
	}
	p.Done(fmt.Sprintf("Claim %q: %s", o.Claim, movedText(move)))
	return nil
}

// startMove returns the move that is under way, or a new one.
func startMove(ctx context.Context, c client.WithWatch, o *Options) (*storagev1alpha1.VolumeMove, error) {
	move := &storagev1alpha1.VolumeMove{}
	err := await.Retry(ctx, func(ctx context.Context) error {
		move = &storagev1alpha1.VolumeMove{}
		err := c.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Claim}, move)
		if err == nil && move.Ended() { // of an earlier command
			if err := client.IgnoreNotFound(c.Delete(ctx, move, await.SameObject(move.UID))); err != nil {
				return err
			}
			err = apierrors.NewNotFound(storagev1alpha1.GroupVersion.WithResource("volumemoves").GroupResource(), o.Claim)
		}
		if apierrors.IsNotFound(err) {
			move = &storagev1alpha1.VolumeMove{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Claim}, Spec: o.spec()}
			err = c.Create(ctx, move, client.FieldOwner(labels.OwnerCLI))
		}
		return err
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("move the volume of claim %q: %w", o.Claim, err)
	case !equality.Semantic.DeepEqual(move.Spec, o.spec()):
		return nil, fmt.Errorf("another move of claim %q, to node %q, is in phase %s; wait until it ends, run the command that started it, or take it back: "+
			"liqoctl move volume %s -n %s --cancel",
			o.Claim, move.Spec.TargetNode, move.Status.Phase, o.Claim, o.Namespace)
	}
	return move, nil
}

// followMove waits until a move ends, and returns how.
func followMove(ctx context.Context, c client.WithWatch, o *Options, started *storagev1alpha1.VolumeMove,
	p action.Progress,
) (*storagev1alpha1.VolumeMove, error) {
	last, printed := started, ""
	bytes := &byteProgress{options: o, progress: p}
	defer bytes.stop()
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	unanswered := time.AfterFunc(moveAnswer, func() { cancel(errUnanswered) })
	defer unanswered.Stop()
	if started.Status.Phase != "" { // the controller manager has started it, however long our first list takes
		unanswered.Stop()
	}
	err := await.Follow(waiting, c, &storagev1alpha1.VolumeMoveList{}, func(all []storagev1alpha1.VolumeMove) (bool, error) {
		if len(all) == 0 || all[0].UID != started.UID {
			return false, fmt.Errorf("the move of claim %q was cancelled by another command; the volume is as before unless the data had been switched already", o.Claim)
		}
		last = &all[0]
		if last.Status.Phase != "" {
			unanswered.Stop()
		}
		if text := Text(last); text != printed {
			printed = text
			p.Start(text)
		}
		bytes.follow(waiting, last)
		return last.Ended(), nil
	}, client.InNamespace(o.Namespace), client.MatchingFields{"metadata.name": o.Claim})
	switch {
	case err == nil || last.Ended():
		return last, nil
	case errors.Is(context.Cause(waiting), errUnanswered) && last.Status.Phase == "":
		// A move that the controller manager has started since goes on: it has another version.
		err := c.Delete(context.WithoutCancel(ctx), last, client.Preconditions{UID: &last.UID, ResourceVersion: &last.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("%w, and it was not taken back; run the same command to follow it, or with --cancel to take it back: %w", errUnanswered, err)
		}
		return nil, fmt.Errorf("%w; nothing was changed. Is the chart's storage.enable true and storage.moverImage set? See: kubectl logs -n liqo "+
			"deployment/liqo-controller-manager", errUnanswered)
	case waiting.Err() != nil:
		return nil, fmt.Errorf("the move goes on without this command (phase %s: %s); run the same command to follow it, or with --cancel to take it back: %w",
			last.Status.Phase, last.Status.Message, err)
	}
	return nil, err
}

var errUnanswered = fmt.Errorf("the controller manager did not start the move within %v", moveAnswer)

// Text is one line about where a move is.
func Text(move *storagev1alpha1.VolumeMove) string {
	status := &move.Status
	texts := map[storagev1alpha1.MovePhase]string{
		"": "Checking the move", storagev1alpha1.MovePreparing: "Preparing the target", storagev1alpha1.MoveMeasuring: "Counting the files",
		storagev1alpha1.MoveCopying: "Copying from " + status.From + " to " + status.To, storagev1alpha1.MoveStopping: "Taking the volume away from its pods",
		storagev1alpha1.MoveFinishing: "Copying the last differences, and verifying every file", storagev1alpha1.MoveSwitching: "Giving the claim its volume " +
			"in " + status.To,
		storagev1alpha1.MoveRemoving: "Removing what is left", storagev1alpha1.MoveRestoring: "Bringing the volume back as it was",
	}
	text := texts[status.Phase]
	if status.Message != "" && status.Phase != "" {
		text += ": " + status.Message
	}
	return text
}

// movedText is the last line.
func movedText(move *storagev1alpha1.VolumeMove) string {
	text := move.Status.Message
	if n := len(move.Status.Passes); n > 0 {
		last := move.Status.Passes[n-1]
		text += fmt.Sprintf("; %d files (%s) verified", last.All.Files, byteText(last.All.Bytes))
	}
	if from, to := move.Status.StoppedAt, move.Status.StartedAt; from != nil && to != nil {
		text += fmt.Sprintf("; pods could not use it for %v", to.Sub(from.Time).Round(time.Second))
	}
	return text
}

// byteText is a size for people.
func byteText(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, at := float64(n)/unit, 0
	for value >= unit && at < 3 {
		value, at = value/unit, at+1
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGT"[at])
}

// Cancel takes a move back: the volume is as before, unless the data has been switched already. The error of a claim that does not move, or whose last move
// has failed, is about that: the object of a failed move stays for moments after its command.
func Cancel(ctx context.Context, c client.WithWatch, o Options, p action.Progress) error {
	ctx, cancel := o.bounded(ctx)
	defer cancel()
	p.Start(fmt.Sprintf("Taking back the move of claim %q", o.Claim))
	defer p.Stop()
	move := &storagev1alpha1.VolumeMove{}
	err := await.Retry(ctx, func(ctx context.Context) error {
		if err := c.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Claim}, move); err != nil {
			return err
		}
		return client.IgnoreNotFound(c.Delete(ctx, move, await.SameObject(move.UID)))
	})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("claim %q does not move; to list all moves: kubectl get volumemoves -A", o.Claim)
	case err != nil && !apierrors.IsConflict(err):
		return fmt.Errorf("take back the move of claim %q: %w", o.Claim, err)
	case move.Status.Phase == storagev1alpha1.MoveFailed:
		return fmt.Errorf("claim %q does not move: its last move failed, and the volume is as before: %s", o.Claim, move.Status.Message)
	}
	last := move
	err = await.UntilGone(ctx, c, &storagev1alpha1.VolumeMoveList{}, move, func(now *storagev1alpha1.VolumeMove) {
		last = now
		p.Start(Text(last))
	})
	if err != nil {
		return fmt.Errorf("the move of claim %q is not taken back yet (phase %s: %s): %w", o.Claim, last.Status.Phase, last.Status.Message, err)
	}
	switch phase := last.Status.Phase; {
	case last.Spec.DryRun:
		p.Done(fmt.Sprintf("The dry run of claim %q is taken back; it has changed nothing", o.Claim))
	case phase == storagev1alpha1.MoveSwitching, phase == storagev1alpha1.MoveRemoving, phase == storagev1alpha1.MoveCompleted:
		p.Done(fmt.Sprintf("It was too late: the data of claim %q is in %s", o.Claim, last.Status.To))
	default:
		p.Done(fmt.Sprintf("The move of claim %q is taken back; its volume is as before", o.Claim))
	}
	return nil
}

// awaitTakenBack waits until a move of the claim that is being taken back is gone.
func awaitTakenBack(ctx context.Context, c client.WithWatch, o *Options, p action.Progress) error {
	var move storagev1alpha1.VolumeMove
	err := await.Retry(ctx, func(ctx context.Context) error {
		return c.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: o.Claim}, &move)
	})
	if err != nil || move.Ended() || !ending.Is(&move) {
		return nil // what starts the move reads it again, and reports why it cannot be read
	}
	text := func() string {
		return printable.Line(fmt.Sprintf("the move of claim %q to node %q is still being taken back: %s", o.Claim, move.Spec.TargetNode, Text(&move)),
			deletion.MaxText)
	}
	p.Info(text())
	err = await.UntilGone(ctx, c, &storagev1alpha1.VolumeMoveList{}, &move, func(now *storagev1alpha1.VolumeMove) {
		move = *now
		p.Start(text())
	})
	if err != nil {
		return fmt.Errorf("nothing was changed: %s; run the command again when it is gone: %w", text(), err)
	}
	return nil
}
