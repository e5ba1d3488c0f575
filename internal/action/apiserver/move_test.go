// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	"liqo.io/liqo/internal/action/actiontest"
	"liqo.io/liqo/internal/action/move"
)

// testMove does the work of the controller: each row sets the status of the move that the command makes or finds.
func testMove(t *testing.T, config *rest.Config) {
	c := actiontest.Installed(t, config)
	actiontest.Ensure(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "moves"}})
	amount := storagev1alpha1.MoveAmount{Files: 3, Bytes: 5 << 20}
	stopped := metav1.Now()
	started := metav1.NewTime(stopped.Add(4 * time.Second))
	for name, test := range map[string]struct {
		// found is the target of a move that is there before the command, with foundPhase.
		found      string
		foundPhase storagev1alpha1.MovePhase
		status     storagev1alpha1.VolumeMoveStatus
		want       []string
		wantError  string
	}{
		"completed": {
			status: storagev1alpha1.VolumeMoveStatus{
				Phase: storagev1alpha1.MoveCompleted, Message: "the data is in liqo-milan", Passes: []storagev1alpha1.MovePass{{All: amount}},
				StoppedAt: &stopped, StartedAt: &started,
			},
			want: []string{"the data is in liqo-milan", "3 files (5.0 MiB) verified", "could not use it for 4s"},
		},
		"refused": {
			status:    storagev1alpha1.VolumeMoveStatus{Phase: storagev1alpha1.MoveFailed, Message: "node liqo-milan is cordoned"},
			wantError: "is as before: node liqo-milan is cordoned",
		},
		"an earlier one has ended": {
			found: "liqo-turin", foundPhase: storagev1alpha1.MoveCompleted,
			status: storagev1alpha1.VolumeMoveStatus{Phase: storagev1alpha1.MoveCompleted, Message: "there"}, want: []string{"there"},
		},
		"the same one is under way": {
			found: "liqo-milan", foundPhase: storagev1alpha1.MoveCopying,
			status: storagev1alpha1.VolumeMoveStatus{Phase: storagev1alpha1.MoveCompleted, Message: "there"}, want: []string{"there"},
		},
		"another one to a node is under way": {
			found: "liqo-turin", foundPhase: storagev1alpha1.MoveCopying,
			wantError: `another move of claim "data", to node "liqo-turin", is in phase Copying`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			key := client.ObjectKey{Namespace: "moves", Name: "data"}
			if test.found != "" {
				move := &storagev1alpha1.VolumeMove{
					ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Spec: storagev1alpha1.VolumeMoveSpec{TargetNode: test.found},
				}
				actiontest.Create(t, c, move)
				move.Status.Phase = test.foundPhase
				if err := c.Status().Update(t.Context(), move); err != nil {
					t.Fatal(err)
				}
			}
			done := make(chan error, 1)
			reported := &actiontest.Recorder{}
			go func() {
				done <- move.Volume(t.Context(), c, move.Options{Namespace: key.Namespace, Claim: key.Name, TargetNode: "liqo-milan"}, reported)
			}()
			if test.status.Phase != "" {
				follows := move.Text(&storagev1alpha1.VolumeMove{})
				if test.found == "liqo-milan" {
					follows = move.Text(&storagev1alpha1.VolumeMove{Status: storagev1alpha1.VolumeMoveStatus{Phase: test.foundPhase}})
				}
				err := actiontest.Eventually(t.Context(), func(ctx context.Context) error {
					// A move that ends before the command has found it is an earlier one to the command.
					if !strings.Contains(reported.Text(), follows) {
						return errors.New("the command does not follow the move yet")
					}
					move := &storagev1alpha1.VolumeMove{}
					if err := c.Get(ctx, key, move); err != nil {
						return err
					}
					move.Status = test.status
					return c.Status().Update(ctx, move)
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			err := <-done
			if (err != nil) != (test.wantError != "") || err != nil && !strings.Contains(err.Error(), test.wantError) {
				t.Fatalf("error %v, want %q", err, test.wantError)
			}
			for _, text := range test.want {
				if !strings.Contains(reported.Text(), text) {
					t.Errorf("%q is missing in: %s", text, reported.Text())
				}
			}
			if test.status.Phase != "" && !apierrors.IsNotFound(c.Get(t.Context(), key, &storagev1alpha1.VolumeMove{})) {
				t.Error("the finished move is left")
			}
		})
	}
}

// testCancelMove: what --cancel reports for each state of the move that it finds. A finalizer keeps the object for moments, as the controller's does.
func testCancelMove(t *testing.T, config *rest.Config) {
	c := actiontest.Installed(t, config)
	actiontest.Ensure(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "cancelled"}})
	for phase, test := range map[storagev1alpha1.MovePhase]struct{ want, wantError string }{
		"none":                        {wantError: "does not move; to list"},
		storagev1alpha1.MoveCopying:   {want: "taken back"},
		storagev1alpha1.MoveCompleted: {want: "too late"},
		storagev1alpha1.MoveFailed:    {wantError: "does not move: its last move failed, and the volume is as before: cordoned"},
	} {
		t.Run(string(phase), func(t *testing.T) {
			key := client.ObjectKey{Namespace: "cancelled", Name: "data"}
			if phase != "none" {
				move := &storagev1alpha1.VolumeMove{
					ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Finalizers: []string{"test.liqo.io/controller"}},
					Spec:       storagev1alpha1.VolumeMoveSpec{TargetNode: "liqo-milan"},
				}
				actiontest.Create(t, c, move)
				move.Status.Phase, move.Status.Message = phase, "cordoned"
				if err := c.Status().Update(t.Context(), move); err != nil {
					t.Fatal(err)
				}
				released := make(chan error, 1)
				go func() {
					released <- actiontest.Eventually(t.Context(), func(ctx context.Context) error {
						move := &storagev1alpha1.VolumeMove{}
						if err := c.Get(ctx, key, move); err != nil {
							return err
						}
						if move.DeletionTimestamp == nil {
							return errors.New("the command has not deleted the move yet")
						}
						move.Finalizers = nil
						return c.Update(ctx, move)
					})
				}()
				defer func() {
					if err := <-released; err != nil {
						t.Error(err)
					}
				}()
			}
			reported := &actiontest.Recorder{}
			if phase == storagev1alpha1.MoveCopying {
				err := move.Cancel(t.Context(), c, move.Options{Namespace: key.Namespace, Claim: key.Name, Timeout: time.Nanosecond}, &actiontest.Recorder{})
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("without time: %v", err)
				}
			}
			err := move.Cancel(t.Context(), c, move.Options{Namespace: key.Namespace, Claim: key.Name}, reported)
			switch {
			case test.wantError == "" && err != nil, test.wantError != "" && (err == nil || !strings.Contains(err.Error(), test.wantError)):
				t.Errorf("%v, want %q", err, test.wantError)
			case !strings.Contains(reported.Text(), test.want):
				t.Errorf("reported %q, want %q", reported.Text(), test.want)
			}
		})
	}
}
