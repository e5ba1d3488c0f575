// SPDX-License-Identifier: Apache-2.0

package route

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/client-go/rest"

	"liqo.io/liqo/internal/network/hoststate"
)

const (
	// askTimeout and cleanTimeout together are less than the termination grace period of the pod.
	askTimeout   = 700 * time.Millisecond
	cleanTimeout = 3 * time.Second
)

// cleanIfUninstalled leaves the host as it is while the DaemonSet may exist: the next agent takes the state over, and no connection
// notices the restart. It cleans the host only if no agent will come back.
func (r *Route) cleanIfUninstalled(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	gone, err := r.isUninstalled(asking)
	cancel()
	if err != nil {
		r.o.Log.Info("host left as it is, because the API server did not confirm that the DaemonSet is gone", "reason", err.Error())
	}
	if !gone {
		return nil
	}
	cleaning, cancel := context.WithTimeout(ctx, cleanTimeout)
	defer cancel()
	changes, err := r.host.Apply(cleaning, hoststate.State{})
	if err != nil {
		return fmt.Errorf("clean the host after DaemonSet %s is gone: %w", r.o.DaemonSet, err)
	}
	r.o.Log.Info("host cleaned, because the DaemonSet is gone", "daemonset", r.o.DaemonSet, "count", len(changes))
	return nil
}

// isUninstalled is true only on positive proof: the DaemonSet does not exist, or is being deleted. A refused token proves nothing, because
// the token ends with the pod, which may have been deleted by force.
func (r *Route) isUninstalled(ctx context.Context) (bool, error) {
	cfg := rest.CopyConfig(r.cfg)
	cfg.QPS = -1
	apps, err := appsv1.NewForConfig(cfg)
	if err != nil {
		return false, err
	}
	set, err := apps.DaemonSets(r.o.Namespace).Get(ctx, r.o.DaemonSet, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("get the DaemonSet %s in namespace %s: %w", r.o.DaemonSet, r.o.Namespace, err)
	}
	return set.DeletionTimestamp != nil, nil
}
