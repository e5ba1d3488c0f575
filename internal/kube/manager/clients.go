// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"liqo.io/liqo/internal/kube/ssa"
)

// Live returns a client without cache and rate limit. Its applies are lean.
func Live(mgr manager.Manager, changes ...func(*rest.Config)) (client.Client, error) {
	cfg := rest.CopyConfig(mgr.GetConfig())
	cfg.QPS = -1
	cfg.Wrap(ssa.LeanApplies)
	for _, change := range changes {
		change(cfg)
	}
	return client.New(cfg, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
}

// RetryBackoff starts short, because most failures are rights or objects that appear a moment later.
func RetryBackoff() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](20*time.Millisecond, 30*time.Second)
}
