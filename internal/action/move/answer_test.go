// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	storagev1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	"liqo.io/liqo/internal/action/actiontest"
)

// moves returns a client of a cluster that has these moves.
func moves(t *testing.T, calls interceptor.Funcs, all ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := storagev1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	move := &storagev1alpha1.VolumeMove{}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(all...).WithStatusSubresource(move).WithInterceptorFuncs(calls).
		WithIndex(move, "metadata.name", func(one client.Object) []string { return []string{one.GetName()} }).Build()
}

func moveOf(phase storagev1alpha1.MovePhase) *storagev1alpha1.VolumeMove {
	return &storagev1alpha1.VolumeMove{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "1"}, Spec: storagev1alpha1.VolumeMoveSpec{TargetNode: "liqo-milan"},
		Status: storagev1alpha1.VolumeMoveStatus{Phase: phase, To: "liqo-milan"},
	}
}

// TestSlowAnswer: lists of the API server take longer than the controller manager may take to start a move. A command cancels no move that was started.
func TestSlowAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		found *storagev1alpha1.VolumeMove
		// phase is what the controller manager sets while the list takes its time.
		phase       storagev1alpha1.MovePhase
		wantError   string
		wantDeleted bool
	}{
		"the move is under way":                    {found: moveOf(storagev1alpha1.MoveCopying), phase: storagev1alpha1.MoveCompleted, wantDeleted: true},
		"the move of the command starts meanwhile": {phase: storagev1alpha1.MovePreparing, wantError: "was not taken back"},
		"the move of the command does not start":   {wantError: "nothing was changed", wantDeleted: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var found []client.Object
				if test.found != nil {
					found = append(found, test.found)
				}
				key := client.ObjectKey{Namespace: "shop", Name: "data"}
				var once sync.Once
				slow := time.Now().Add(moveAnswer + time.Second) // until then, no list is answered
				c := moves(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					once.Do(func() {
						if test.phase != "" {
							move := &storagev1alpha1.VolumeMove{}
							if err := c.Get(ctx, key, move); err != nil {
								t.Error(err)
							}
							move.Status.Phase = test.phase
							if err := c.Status().Update(ctx, move); err != nil {
								t.Error(err)
							}
						}
					})
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(time.Until(slow)):
					}
					return c.List(ctx, list, options...)
				}}, found...)
				err := Volume(t.Context(), c, Options{Namespace: key.Namespace, Claim: key.Name, TargetNode: "liqo-milan"}, &actiontest.Recorder{})
				if (err != nil) != (test.wantError != "") || err != nil && !strings.Contains(err.Error(), test.wantError) {
					t.Errorf("%v, want %q", err, test.wantError)
				}
				if left := c.Get(t.Context(), key, &storagev1alpha1.VolumeMove{}); apierrors.IsNotFound(left) != test.wantDeleted {
					t.Errorf("the move afterwards: %v, want it deleted: %t", left, test.wantDeleted)
				}
			})
		})
	}
}

// TestCancelDryRun: a dry run moves nothing, so it is never too late to take it back.
func TestCancelDryRun(t *testing.T) {
	for _, phase := range []storagev1alpha1.MovePhase{storagev1alpha1.MoveMeasuring, storagev1alpha1.MoveRemoving, storagev1alpha1.MoveCompleted} {
		move := moveOf(phase)
		move.Spec.DryRun, move.Finalizers = true, []string{"test.liqo.io/controller"}
		c := moves(t, interceptor.Funcs{}, move)
		released := make(chan error, 1)
		go func() {
			released <- actiontest.Eventually(t.Context(), func(ctx context.Context) error {
				now := &storagev1alpha1.VolumeMove{}
				if err := c.Get(ctx, client.ObjectKeyFromObject(move), now); err != nil {
					return err
				}
				if now.DeletionTimestamp == nil {
					return errors.New("the command has not deleted the move yet")
				}
				now.Finalizers = nil
				return c.Update(ctx, now)
			})
		}()
		reported := &actiontest.Recorder{}
		if err := Cancel(t.Context(), c, Options{Namespace: "shop", Claim: "data"}, reported); err != nil {
			t.Fatal(err)
		}
		if err := <-released; err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(reported.Text(), "has changed nothing") || strings.Contains(reported.Text(), "too late") {
			t.Errorf("phase %s: %q", phase, reported.Text())
		}
	}
}
