// SPDX-License-Identifier: Apache-2.0

package refused

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestRefusalPauses: what is refused is tried again after ever longer pauses, and logged once, and again if the reason changes.
func TestRefusalPauses(t *testing.T) {
	var logged []string
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, text string) { logged = append(logged, text) }, funcr.Options{}))
	web := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"}}
	forbidden := func(why string) error {
		return ByRule(apierrors.NewForbidden(corev1.Resource("pods"), "web", errors.New(why)))
	}
	invalid := ByRule(apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", nil))
	r := New(0)
	attempt := func(err error, lines int) time.Duration {
		t.Helper()
		before := len(logged)
		result, left := r.Retry(ctx, web, reconcile.Result{}, err)
		if left != nil || len(logged)-before != lines {
			t.Errorf("%v: %v is left, %d lines of log: %v", err, left, len(logged)-before, logged)
		}
		return result.RequeueAfter
	}
	last := attempt(forbidden("a quota"), 1)
	for range 8 {
		next := attempt(forbidden("a quota"), 0)
		if next < last || next > fitRetry || next == last && next != fitRetry {
			t.Errorf("%v follows %v", next, last)
		}
		last = next
	}
	if got := attempt(forbidden("another quota"), 1); got != fitRetry {
		t.Errorf("another reason: %v", got)
	}
	for range soon {
		last = attempt(forbidden("another quota"), 0)
	}
	if last != defaultRefusalRetry {
		t.Errorf("in the end it waits %v", last)
	}
	if attempt(nil, 0) != 0 || attempt(invalid, 1) != firstRetry {
		t.Error("a success forgets what was refused")
	}
	for range 20 {
		last = attempt(invalid, 0)
	}
	if last != defaultRefusalRetry {
		t.Errorf("invalid, in the end: %v", last)
	}
	for _, other := range []error{
		errors.New("connection refused"), apierrors.NewConflict(corev1.Resource("pods"), "web", errors.New("changed")),
		apierrors.NewTooManyRequests("slow", 1),
	} {
		if _, err := r.Retry(ctx, web, reconcile.Result{}, ByRule(other)); err == nil {
			t.Errorf("%v is no refusal", other)
		}
	}
	if all := strings.Join(logged, ""); !strings.Contains(all, "another quota") {
		t.Errorf("logged: %s", all)
	}
}
