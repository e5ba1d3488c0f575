// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	klabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"liqo.io/liqo/apis/labels"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// RemoteNamespaces knows which peer a namespace was made for. It believes the namespace, which no peer can write, and nothing in it.
type RemoteNamespaces struct {
	cache.Cache
	live client.Reader
}

// WatchRemoteNamespaces watches the metadata of twins.
func WatchRemoteNamespaces(mgr manager.Manager) (*RemoteNamespaces, error) {
	has, err := klabels.NewRequirement(labels.RemoteClusterID, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	twins, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Namespace{}: {Label: klabels.NewSelector().Add(*has), Transform: cache.TransformStripManagedFields()},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cache of twin namespaces: %w", err)
	}
	t := &RemoteNamespaces{Cache: twins, live: mgr.GetAPIReader()}
	return t, mgr.Add(t)
}

// GetCache makes the manager start this cache with its own.
func (t *RemoteNamespaces) GetCache() cache.Cache { return t.Cache }

// Peer is the cluster ID of the peer that a namespace was made for; empty if it was made for none.
func (t *RemoteNamespaces) Peer(ctx context.Context, namespace string) (string, error) {
	twin := &metav1.PartialObjectMetadata{}
	twin.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := t.Get(ctx, client.ObjectKey{Name: namespace}, twin); err == nil {
		return twin.Labels[labels.RemoteClusterID], nil
	}
	// A new one, perhaps, or the cache is not filled yet.
	if err := t.live.Get(ctx, client.ObjectKey{Name: namespace}, twin); err != nil {
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "", fmt.Errorf("look for namespace %s: %w", namespace, err)
	}
	return twin.Labels[labels.RemoteClusterID], nil
}
