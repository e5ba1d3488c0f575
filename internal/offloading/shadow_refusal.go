// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// defaultRefusalRetry is when to repeat a write that a rule of this cluster has refused: no event leads here when its administrator changes the rule. The virtual
// kubelet of the peer waits as long.
const defaultRefusalRetry = 5 * time.Minute

// refused is the error of a write that a rule of this cluster refuses, until its administrator changes the rule.
type refused struct{ error }

func (r refused) Unwrap() error { return r.error }

// whenInvalid decides when a write of an object for a peer is repeated that has failed with err. What is invalid may not stay so: an admission policy refuses with
// that reason, and limit ranges and webhooks change an object before its fields are judged.
func whenInvalid(err error) error {
	if apierrors.IsInvalid(err) {
		return refused{err}
	}
	return err
}

// retryRefused replaces the backoff after an error that whenInvalid has marked by a longer wait.
func retryRefused(ctx context.Context, result reconcile.Result, err error, wait time.Duration) (reconcile.Result, error) {
	if !errors.As(err, &refused{}) {
		return result, err
	}
	log.FromContext(ctx).Error(err, "write refused, it will be repeated", "after", wait)
	if result.RequeueAfter == 0 || result.RequeueAfter > wait {
		result.RequeueAfter = wait
	}
	return result, nil
}
