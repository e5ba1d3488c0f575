// SPDX-License-Identifier: Apache-2.0

package await

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"liqo.io/liqo/internal/action/actiontest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestFollowWatches: a change arrives through the watch, at once and without another list. The clock of the bubble stands
// still until all wait, so a relist after its interval would show as elapsed time.
func TestFollowWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists := 0
		c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				lists++
				return c.List(ctx, list, options...)
			},
		}).Build()
		start := time.Now()
		result := make(chan error, 1)
		go func() {
			result <- Follow(t.Context(), c, &corev1.ConfigMapList{}, func(maps []corev1.ConfigMap) (bool, error) { return len(maps) == 1, nil })
		}()
		synctest.Wait() // now Follow watches
		actiontest.Create(t, c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "follow", Name: "a"}})
		if err := <-result; err != nil {
			t.Fatal(err)
		}
		if lists != 1 || time.Since(start) != 0 {
			t.Errorf("the change arrived after %d lists and %s", lists, time.Since(start))
		}
	})
}

func TestRetry(t *testing.T) {
	kind := schema.GroupResource{Resource: "foreignclusters"}
	webhook := apierrors.NewInternalError(errors.New(`failed calling webhook "fc.validate.liqo.io": connection refused`))
	group := schema.GroupVersion{Group: "storage.liqo.io", Version: "v1alpha1"}
	loading := fmt.Errorf("find the kind: %w", &apiutil.ErrResourceDiscoveryFailed{group: apierrors.NewNotFound(kind, "")})
	for name, test := range map[string]struct {
		errs  []error // one per attempt; the last one repeats
		tries int
		want  func(error) bool
	}{
		"webhook comes back":     {[]error{webhook, webhook, nil}, 3, func(err error) bool { return err == nil }},
		"API server comes back":  {[]error{errors.New("connection refused"), nil}, 2, func(err error) bool { return err == nil }},
		"not found is final":     {[]error{apierrors.NewNotFound(kind, "x")}, 1, apierrors.IsNotFound},
		"forbidden for a moment": {[]error{apierrors.NewForbidden(kind, "x", nil), nil}, 2, func(err error) bool { return err == nil }},
		"forbidden every time":   {[]error{apierrors.NewForbidden(kind, "x", nil)}, maxRefusals, apierrors.IsForbidden},
		"definitions are loaded": {[]error{loading, loading, nil}, 3, func(err error) bool { return err == nil }},
		"a conflict is retried":  {[]error{apierrors.NewConflict(kind, "x", nil), nil}, 2, func(err error) bool { return err == nil }},
	} {
		t.Run(name, func(t *testing.T) {
			tries := 0
			err := Retry(t.Context(), func(context.Context) error {
				tries++
				return test.errs[min(tries, len(test.errs))-1]
			})
			if tries != test.tries || !test.want(err) {
				t.Errorf("%d tries, error %v", tries, err)
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := Retry(ctx, func(context.Context) error { return webhook })
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "fc.validate.liqo.io") {
		t.Errorf("at the end of the context, the error does not name the last failure: %v", err)
	}
}
