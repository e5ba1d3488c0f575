// SPDX-License-Identifier: Apache-2.0

package fanin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestYoung(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no rights"))
	start := time.Now()
	r := &refusal{}
	for _, step := range []struct {
		name  string
		err   error
		after time.Duration
		end   bool
		want  bool
	}{
		{"another error", errors.New("broken"), 0, false, false},
		{"refused", forbidden, time.Second, false, true},
		{"wrapped", fmt.Errorf("failed to list: %w", forbidden), 30 * time.Second, false, true},
		{"no rights are granted", forbidden, time.Second + refusalGrace, false, false},
		{"after the rights have been there", forbidden, time.Hour, true, true},
	} {
		if step.end {
			r.end()
		}
		if got := r.young(step.err, start.Add(step.after)); got != step.want {
			t.Errorf("%s: %t", step.name, got)
		}
	}
}

// TestRightsGoFirst: the rights in a namespace that is being deleted go before its watch, which is no error.
func TestRightsGoFirst(t *testing.T) {
	var mu sync.Mutex
	var logged []string
	logger := funcr.New(func(prefix, args string) {
		mu.Lock()
		defer mu.Unlock()
		logged = append(logged, args)
	}, funcr.Options{Verbosity: 0})
	asked := make(chan struct{}, 10)
	source := New(Options{
		Object: &corev1.ConfigMap{}, List: func() client.ObjectList { return &corev1.ConfigMapList{} },
		Client: func(context.Context) (client.WithWatch, error) {
			select {
			case asked <- struct{}{}:
			default:
			}
			return refusing{}, nil
		},
		Changed: func(client.Object, client.Object) {},
	})
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
	defer cancel()
	source.Add(ctx, "default")
	for range 5 { // the third has been reported when the fifth is made
		<-asked
	}
	mu.Lock()
	defer mu.Unlock()
	if len(logged) > 0 {
		t.Errorf("logged %q", logged)
	}
}

// refusing is a client without rights.
type refusing struct{ client.WithWatch }

func (refusing) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no rights"))
}

func (refusing) Watch(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
	return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no rights"))
}
