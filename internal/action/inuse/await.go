// SPDX-License-Identifier: Apache-2.0

package inuse

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	storagev1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/purge"
)

const (
	// interval of looking whether what ends is gone, and repeatAfter how soon a change of what holds one thing is printed again.
	interval, repeatAfter = 500 * time.Millisecond, 10 * time.Second
)

// Check returns an *Error if Liqo is in use, whatever is ending.
func Check(ctx context.Context, c client.Reader) error {
	state, err := read(ctx, c)
	if err != nil {
		return err
	}
	if used, _ := Judge(state); used != nil {
		return used
	}
	return nil
}

// Await is Check, and waits for what is ending already until it is gone or ctx ends.
func Await(ctx context.Context, c client.Reader, progress action.Progress) error {
	began, looked := time.Now(), false
	var last []Ending
	var unread error
	printedAt := map[string]time.Time{}
	printed := map[string]string{}
	err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		state, err := read(ctx, c)
		if unread = err; err != nil {
			if !looked {
				return false, err // the first contact: nothing is waited for yet
			}
			return false, nil
		}
		looked = true
		used, now := Judge(state)
		if used != nil {
			return false, used
		}
		last = now
		for _, one := range now {
			if printed[one.What] != one.State && time.Since(printedAt[one.What]) >= repeatAfter {
				printedAt[one.What], printed[one.What] = time.Now(), one.State
				progress.Info("Waiting: " + one.State)
			}
		}
		if len(now) > 0 {
			progress.Start("Waiting until what is ending already is gone: " + now[0].State)
		}
		return len(now) == 0, nil
	})
	switch {
	case err == nil && len(printed) > 0:
		progress.Done("What was ending is gone")
		return nil
	case err == nil || !looked || ctx.Err() == nil:
		return err
	}
	text := fmt.Sprintf("Liqo was not uninstalled, and nothing was changed: after %s, these were still ending:\n- %s\nwhen they are gone, run the command "+
		"again; if nothing of it goes on, see the logs of Deployment liqo-controller-manager",
		time.Since(began).Round(time.Second), strings.Join(states(last), "\n- "))
	if unread != nil {
		text += fmt.Sprintf("; the last look at the cluster failed: %v", unread)
	}
	return fmt.Errorf("%s (%w)", text, err)
}

// read reads the state. Kinds that the cluster does not have are empty.
func read(ctx context.Context, c client.Reader) (State, error) {
	var peers discoveryv1alpha1.ForeignClusterList
	if err := c.List(ctx, &peers); err != nil && !purge.Absent(err) {
		return State{}, fmt.Errorf("list foreign clusters: %w", err)
	}
	var offloadings offloadingv1alpha1.NamespaceOffloadingList
	if err := c.List(ctx, &offloadings); err != nil && !purge.Absent(err) {
		return State{}, fmt.Errorf("list offloaded namespaces: %w", err)
	}
	var moves storagev1alpha1.VolumeMoveList
	if err := c.List(ctx, &moves); err != nil && !purge.Absent(err) {
		return State{}, fmt.Errorf("list moves of volumes: %w", err)
	}
	namespaces := map[string]*corev1.Namespace{}
	for i := range offloadings.Items {
		name := offloadings.Items[i].Namespace
		var namespace corev1.Namespace
		switch err := c.Get(ctx, client.ObjectKey{Name: name}, &namespace); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return State{}, fmt.Errorf("read namespace %s: %w", name, err)
		default:
			namespaces[name] = &namespace
		}
	}
	return State{Peers: peers.Items, Offloadings: offloadings.Items, Moves: moves.Items, Namespaces: namespaces}, nil
}
