// SPDX-License-Identifier: Apache-2.0

// Package deletion describes what is being deleted already, with what holds it, and waits until it is gone: such things are not
// refused. It must not delete anything. Its proof is deletion_test.go of package apiserver.
package deletion

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/await"
	"liqo.io/liqo/internal/action/foreign"
	"liqo.io/liqo/internal/kube/ending"
	"liqo.io/liqo/internal/kube/printable"
)

// What is ending already is not refused: the commands name what holds it, and wait.

// MaxText is the most that is printed about one thing that is ending, in bytes, and maxFar what of it other clusters report.
const MaxText, maxFar = 900, 400

// Peer describes a ForeignCluster that is being deleted, or whose directions end, and what they wait for.
func Peer(fc *discoveryv1alpha1.ForeignCluster) string {
	text := fmt.Sprintf("the peering with %q is still ending", fc.Name)
	if ending.Is(fc) {
		text = fmt.Sprintf("ForeignCluster %q is still being deleted%s", fc.Name, ending.Since(fc))
	}
	for _, kind := range []discoveryv1alpha1.PeeringConditionType{
		discoveryv1alpha1.OutgoingPeering, discoveryv1alpha1.IncomingPeering,
		discoveryv1alpha1.NetworkStatus,
	} {
		switch now := foreign.Condition(fc, kind); now.Status {
		case discoveryv1alpha1.StatusNone, discoveryv1alpha1.StatusExternal, "":
		default:
			text += "; " + foreign.Describe(now)
		}
	}
	if held := ending.Finalizers(fc); ending.Is(fc) && held != "" {
		text += "; it has " + held
	}
	return printable.Line(text, MaxText)
}

// Offloading describes an offloading that ends, and what it waits for; namespace is nil if it is not known.
func Offloading(offloading *offloadingv1alpha1.NamespaceOffloading, namespace *corev1.Namespace) string {
	text := fmt.Sprintf("the offloading of namespace %q is still ending%s", offloading.Namespace, ending.Since(offloading))
	if namespace != nil && ending.Is(namespace) {
		text = fmt.Sprintf("namespace %q is still being deleted%s, and its offloading with it", offloading.Namespace, ending.Since(namespace))
	}
	if far := NotReady(offloading); far != "" {
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
	return printable.Line(text, MaxText)
}

// Namespace reads a namespace, as far as the user may; nil if not.
func Namespace(ctx context.Context, c client.Reader, name string) *corev1.Namespace {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), await.CallTimeout)
	defer cancel()
	var namespace corev1.Namespace
	if c.Get(ctx, client.ObjectKey{Name: name}, &namespace) != nil {
		return nil // it only explains
	}
	return &namespace
}

// AwaitPeers waits until no ForeignCluster that is meant is being deleted. The progress names what they wait for, and so does the error when the time is over.
func AwaitPeers(ctx context.Context, c client.WithWatch, timeout time.Duration, meant func(*discoveryv1alpha1.ForeignCluster) bool, p action.Progress) error {
	var now discoveryv1alpha1.ForeignClusterList
	first, cancel := context.WithTimeout(ctx, await.CallTimeout)
	defer cancel()
	if c.List(first, &now) != nil || !slices.ContainsFunc(now.Items, func(fc discoveryv1alpha1.ForeignCluster) bool { return ending.Is(&fc) && meant(&fc) }) {
		return nil // the checks that follow read it again, and report why it cannot be read
	}
	state, name := "", ""
	err := await.Follow(ctx, c, &discoveryv1alpha1.ForeignClusterList{}, func(all []discoveryv1alpha1.ForeignCluster) (bool, error) {
		for i := range all {
			if !ending.Is(&all[i]) || !meant(&all[i]) {
				continue
			}
			if text := Peer(&all[i]); text != state {
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
		return fmt.Errorf("nothing was changed: after %s, %s; the controllers continue, so try again; if that cluster will not come back: `liqoctl unpeer %s "+
			"--force` (%w)", timeout, state, name, err)
	case err != nil:
		p.Stop()
		return fmt.Errorf("read whether a ForeignCluster is being deleted: %w", err)
	}
	p.Done(fmt.Sprintf("ForeignCluster %q is gone", name))
	return nil
}

// NotReady is a line with the clusters whose remote namespace is not ready, and the reasons.
func NotReady(offloading *offloadingv1alpha1.NamespaceOffloading) string {
	return printable.Line(strings.Join(unreadyClusters(offloading), "; "), maxFar)
}

// AwaitNamespace waits until a namespace that is being deleted is gone, as long as ctx lasts.
func AwaitNamespace(ctx context.Context, c client.WithWatch, namespace *corev1.Namespace, p action.Progress) error {
	last := namespace
	state := func() string {
		text := fmt.Sprintf("namespace %q is still being deleted%s", last.Name, ending.Since(last))
		if reported := ending.Obstacles(last); reported != "" {
			text += "; Kubernetes reports: " + reported
		}
		return printable.Line(text, MaxText)
	}
	p.Info(state())
	err := await.UntilGone(ctx, c, &corev1.NamespaceList{}, namespace, func(now *corev1.Namespace) {
		last = now
		p.Start("Waiting until it is gone: " + state())
	})
	if err != nil {
		p.Stop()
		return fmt.Errorf("%s; `kubectl get namespace %s -o yaml` shows what holds it (%w)", state(), last.Name, err)
	}
	return nil
}

func unreadyClusters(offloading *offloadingv1alpha1.NamespaceOffloading) (texts []string) {
	for _, cluster := range slices.Sorted(maps.Keys(offloading.Status.RemoteNamespacesConditions)) {
		for _, one := range offloading.Status.RemoteNamespacesConditions[cluster] {
			if one.Type == offloadingv1alpha1.ConditionReady && one.Status != corev1.ConditionTrue {
				texts = append(texts, fmt.Sprintf("%s: %s (%s)", cluster, one.Message, one.Reason))
			}
		}
	}
	return texts
}

// Unready lists the clusters whose remote namespace is not ready, with the reasons.
func Unready(offloading *offloadingv1alpha1.NamespaceOffloading) string {
	texts := unreadyClusters(offloading)
	if len(texts) == 0 {
		return "no cluster has a status yet; is Deployment liqo-controller-manager running?"
	}
	return strings.Join(texts, "; ")
}
