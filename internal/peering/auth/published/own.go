// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Interval is how often the URL of the authentication service is to be read: it changes rarely, and no event reports it.
const Interval = 5 * time.Minute

// Own remembers the URL of the authentication service of this cluster.
type Own struct {
	// Client may have a cache, Live has none.
	Client, Live client.Reader
	// Namespace is the install namespace.
	Namespace string

	mu  sync.Mutex
	url string
	at  time.Time
}

// URL returns the URL; empty if other clusters cannot reach it.
func (o *Own) URL(ctx context.Context, now time.Time) (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if age := now.Sub(o.at); age >= 0 && age < Interval/2 {
		return o.url, nil
	}
	var service corev1.Service
	err := o.Live.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: Service}, &service)
	url := ""
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return "", fmt.Errorf("read the Service of authentication: %w", err)
	default:
		if url, err = URL(ctx, o.Client, o.Live, &service); err != nil {
			log.FromContext(ctx).V(1).Info("providers cannot use this cluster in turn, because they cannot reach its authentication service", "reason", err.Error())
			url = ""
		}
	}
	o.url, o.at = url, now
	return url, nil
}
