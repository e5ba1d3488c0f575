// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	storagev1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	"liqo.io/liqo/internal/kube/ending"
	"liqo.io/liqo/internal/kube/printable"
)

// What is ending already is not refused: the commands name what holds it, and wait.

// maxEnding is the most that is printed about one thing that is ending, in bytes, and maxFar what of it other clusters report.
const maxEnding, maxFar = 900, 400

// EndingPeer describes a ForeignCluster that is being deleted, or whose directions end, and what they wait for.
func EndingPeer(fc *discoveryv1alpha1.ForeignCluster) string {
	text := fmt.Sprintf("the peering with %q is still ending", fc.Name)
	if ending.Is(fc) {
		text = fmt.Sprintf("ForeignCluster %q is still being deleted%s", fc.Name, ending.Since(fc))
	}
	for _, kind := range []discoveryv1alpha1.PeeringConditionType{discoveryv1alpha1.OutgoingPeering, discoveryv1alpha1.IncomingPeering, discoveryv1alpha1.NetworkStatus} {
		switch now := conditionOf(fc, kind); now.Status {
		case discoveryv1alpha1.StatusNone, discoveryv1alpha1.StatusExternal, "":
		default:
			text += "; " + describe(now)
		}
	}
	if held := ending.Finalizers(fc); ending.Is(fc) && held != "" {
		text += "; it has " + held
	}
	return printable.Line(text, maxEnding)
}

// EndingOffloading describes an offloading that ends, and what it waits for; namespace is nil if it is not known.
func EndingOffloading(offloading *offloadingv1alpha1.NamespaceOffloading, namespace *corev1.Namespace) string {
	text := fmt.Sprintf("the offloading of namespace %q is still ending%s", offloading.Namespace, ending.Since(offloading))
	if namespace != nil && ending.Is(namespace) {
		text = fmt.Sprintf("namespace %q is still being deleted%s, and its offloading with it", offloading.Namespace, ending.Since(namespace))
	}
	if far := notReady(offloading); far != "" {
		text += "; in other clusters: " + far
	}
	if held := ending.Finalizers(offloading); held != "" {
		text += "; the NamespaceOffloading has " + held
	}
	if namespace != nil && ending.Is(namespace) {
		if reported := ending.Obstacles(namespace); reported != "" {
			text += "; Kubernetes reports: " + reported
		}
	}
	return printable.Line(text, maxEnding)
}

// namespaceOf reads a namespace, as far as the user may; nil if not.
func namespaceOf(ctx context.Context, c client.Reader, name string) *corev1.Namespace {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	var namespace corev1.Namespace
	if c.Get(ctx, client.ObjectKey{Name: name}, &namespace) != nil {
		return nil // it only explains
	}
	return &namespace
}

// awaitGone waits until no ForeignCluster that is meant is being deleted. The progress names what they wait for, and so does the error when the time is over.
func awaitGone(ctx context.Context, c client.WithWatch, timeout time.Duration, meant func(*discoveryv1alpha1.ForeignCluster) bool, p Progress) error {
	var now discoveryv1alpha1.ForeignClusterList
	first, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if c.List(first, &now) != nil || !slices.ContainsFunc(now.Items, func(fc discoveryv1alpha1.ForeignCluster) bool { return ending.Is(&fc) && meant(&fc) }) {
		return nil // the checks that follow read it again, and report why it cannot be read
	}
	state, name := "", ""
	err := Follow(ctx, c, &discoveryv1alpha1.ForeignClusterList{}, func(all []discoveryv1alpha1.ForeignCluster) (bool, error) {
		for i := range all {
			if !ending.Is(&all[i]) || !meant(&all[i]) {
				continue
			}
			if text := EndingPeer(&all[i]); text != state {
				if state == "" {
					p.Info(text)
				}
				state, name = text, all[i].Name
				p.Start("Waiting until it is gone: " + text)
			}
			return false, nil
		}
		return true, nil
	})
	switch {
	case state == "" && err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded) && state != "":
		p.Stop()
		return fmt.Errorf("nothing was changed: after %s, %s; the controllers continue, so try again; if that cluster will not come back: `liqoctl unpeer %s --force` (%w)", timeout, state, name, err)
	case err != nil:
		p.Stop()
		return fmt.Errorf("read whether a ForeignCluster is being deleted: %w", err)
	}
	p.Done(fmt.Sprintf("ForeignCluster %q is gone", name))
	return nil
}

// awaitBoth waits in both clusters until what they have of each other, and is being deleted, is gone. If it waited, both have to be read again.
func awaitBoth(ctx context.Context, o InBandOptions, sides []*side, p Progress) (waited bool, err error) {
	for _, s := range sides {
		id := s.other.facts.identity.ClusterID
		meant := func(fc *discoveryv1alpha1.ForeignCluster) bool {
			return fc.Name == s.name || id != "" && identityOf(fc) == id
		}
		if !slices.ContainsFunc(s.facts.known, func(fc *discoveryv1alpha1.ForeignCluster) bool { return ending.Is(fc) && meant(fc) }) {
			continue
		}
		waited = true
		if err := awaitGone(ctx, s.Client, o.Timeout, meant, prefixed{p, s.prefix}); err != nil {
			return waited, fmt.Errorf("%s%w", s.prefix, err)
		}
	}
	return waited, nil
}

// awaitUnoffloaded waits until an offloading that ends is gone.
func awaitUnoffloaded(ctx context.Context, c client.WithWatch, o OffloadOptions, before *offloadingv1alpha1.NamespaceOffloading, p Progress) error {
	last := before
	p.Info(EndingOffloading(last, nil))
	err := followUntilGone(ctx, c, &offloadingv1alpha1.NamespaceOffloadingList{}, before, func(now *offloadingv1alpha1.NamespaceOffloading) {
		last = now
		p.Start("Waiting until it is gone: " + EndingOffloading(last, nil))
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("nothing was changed: after %s, %s; wait with `liqoctl unoffload namespace %s`, then try again (%w)", o.Timeout, EndingOffloading(last, nil), o.Namespace, err)
	case err != nil:
		return fmt.Errorf("wait until the former offloading of namespace %q is gone: %w", o.Namespace, err)
	}
	return nil
}

// notReady is a line with the clusters whose remote namespace is not ready, and the reasons.
func notReady(offloading *offloadingv1alpha1.NamespaceOffloading) string {
	return printable.Line(strings.Join(unreadyClusters(offloading), "; "), maxFar)
}

// AwaitNamespace waits until a namespace that is being deleted is gone, as long as ctx lasts.
func AwaitNamespace(ctx context.Context, c client.WithWatch, namespace *corev1.Namespace, p Progress) error {
	last := namespace
	state := func() string {
		text := fmt.Sprintf("namespace %q is still being deleted%s", last.Name, ending.Since(last))
		if reported := ending.Obstacles(last); reported != "" {
			text += "; Kubernetes reports: " + reported
		}
		return printable.Line(text, maxEnding)
	}
	p.Info(state())
	err := followUntilGone(ctx, c, &corev1.NamespaceList{}, namespace, func(now *corev1.Namespace) {
		last = now
		p.Start("Waiting until it is gone: " + state())
	})
	if err != nil {
		p.Stop()
		return fmt.Errorf("%s; `kubectl get namespace %s -o yaml` shows what holds it (%w)", state(), last.Name, err)
	}
	return nil
}

// awaitTakenBack waits until a move of the claim that is being taken back is gone.
func awaitTakenBack(ctx context.Context, c client.WithWatch, o *MoveOptions, p Progress) error {
	var move storagev1alpha1.VolumeMove
	err := retry(ctx, func(ctx context.Context) error {
		return c.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: o.Claim}, &move)
	})
	if err != nil || move.Ended() || !ending.Is(&move) {
		return nil // what starts the move reads it again, and reports why it cannot be read
	}
	text := func() string {
		return printable.Line(fmt.Sprintf("the move of claim %q to node %q is still being taken back: %s", o.Claim, move.Spec.TargetNode, moveText(&move)), maxEnding)
	}
	p.Info(text())
	err = followUntilGone(ctx, c, &storagev1alpha1.VolumeMoveList{}, &move, func(now *storagev1alpha1.VolumeMove) {
		move = *now
		p.Start(text())
	})
	if err != nil {
		return fmt.Errorf("nothing was changed: %s; run the command again when it is gone: %w", text(), err)
	}
	return nil
}
