// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	klabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/policies"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// Namespaces returns the peer of each remote namespace. It trusts only the labels of the namespace, which no peer can write.
type Namespaces struct {
	cache.Cache
	live client.Reader
	// foreignClusters has all ForeignClusters.
	foreignClusters client.Reader
	// Policies knows whether the admission policies that limit peers are in force; nil if they are not required.
	Policies *policies.Guard
	// known has the peer of each namespace in the cache.
	known sync.Map
}

// Watch adds a cache of the metadata of remote namespaces to the manager.
func Watch(mgr manager.Manager) (*Namespaces, error) {
	has, err := klabels.NewRequirement(labels.RemoteClusterID, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	cached, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Namespace{}: {Label: klabels.NewSelector().Add(*has), Transform: cache.TransformStripManagedFields()},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cache of remote namespaces: %w", err)
	}
	r := &Namespaces{Cache: cached, live: mgr.GetAPIReader(), foreignClusters: mgr.GetClient()}
	namespaces, err := cached.GetInformer(context.Background(), namespaceMetadata(), cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch remote namespaces: %w", err)
	}
	if _, err := namespaces.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    r.note,
		UpdateFunc: func(_, object any) { r.note(object) },
		DeleteFunc: func(object any) {
			if key, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
				r.known.Delete(key)
			}
		},
	}); err != nil {
		return nil, fmt.Errorf("follow remote namespaces: %w", err)
	}
	return r, mgr.Add(r)
}

func namespaceMetadata() *metav1.PartialObjectMetadata {
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return metadata
}

func (r *Namespaces) note(object any) {
	if namespace, ok := object.(metav1.Object); ok {
		r.known.Store(namespace.GetName(), namespace.GetLabels()[labels.RemoteClusterID])
	}
}

// KnownPeer returns the cluster ID of the peer that a namespace was created for, if the cache has the namespace, and otherwise the name of the
// namespace, as if it were a peer of its own. It never waits, so it serves only to treat peers equally.
func (r *Namespaces) KnownPeer(namespace string) string {
	if peer, found := r.known.Load(namespace); found {
		return peer.(string)
	}
	return namespace
}

// Of returns the remote namespaces of a peer that the cache has.
func (r *Namespaces) Of(peer string) (namespaces []string) {
	r.known.Range(func(namespace, of any) bool {
		if of == peer {
			namespaces = append(namespaces, namespace.(string))
		}
		return true
	})
	return namespaces
}

// GetCache makes the manager start this cache with its own.
func (r *Namespaces) GetCache() cache.Cache { return r.Cache }

// Peer returns the cluster ID of the peer that a namespace was created for; empty if it was created for none.
func (r *Namespaces) Peer(ctx context.Context, namespace string) (string, error) {
	metadata, err := r.Metadata(ctx, namespace)
	if err != nil || metadata == nil {
		return "", err
	}
	return metadata.Labels[labels.RemoteClusterID], nil
}

// Metadata returns that of a namespace; nil if there is none of the name.
func (r *Namespaces) Metadata(ctx context.Context, namespace string) (*metav1.PartialObjectMetadata, error) {
	metadata := namespaceMetadata()
	if err := r.Get(ctx, client.ObjectKey{Name: namespace}, metadata); err == nil {
		return metadata, nil
	}
	// The namespace may be new, or the cache not filled yet.
	if err := r.live.Get(ctx, client.ObjectKey{Name: namespace}, metadata); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("look for namespace %s: %w", namespace, err)
	}
	return metadata, nil
}

// Accepted reports whether a peer may create pods in this cluster. While admission policies are missing, it returns an error, so that its callers try
// again.
func (r *Namespaces) Accepted(ctx context.Context, peer string) (bool, error) {
	switch missing, err := r.Policies.Missing(ctx); {
	case err != nil:
		return false, err
	case missing != "":
		return false, fmt.Errorf("no pods of peers are admitted now: %s", missing)
	}
	fc, err := ForeignCluster(ctx, r.foreignClusters, peer)
	return fc != nil && fc.Accepts(), err
}

// ForeignCluster returns the ForeignCluster of a cluster ID, nil if there is none.
func ForeignCluster(ctx context.Context, reader client.Reader, clusterID string) (*discoveryv1alpha1.ForeignCluster, error) {
	var all discoveryv1alpha1.ForeignClusterList
	if err := reader.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list foreign clusters: %w", err)
	}
	return discoveryv1alpha1.OwnerOf(all.Items, clusterID), nil
}

func ClusterID(fc *discoveryv1alpha1.ForeignCluster) string {
	if fc.Spec.ClusterIdentity == nil {
		return ""
	}
	return fc.Spec.ClusterIdentity.ClusterID
}
