// SPDX-License-Identifier: Apache-2.0

package shadowpod

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/names"
)

// +kubebuilder:rbac:groups=virtualkubelet.liqo.io,resources=namespacemaps,verbs=get;list;watch

// Names knows the DNS settings of new pods.
type Names interface {
	// Settings are empty if pods keep their own. It fails while this is not known: a pod keeps what it is created with.
	Settings() (names.Settings, error)
}

// names returns what gives the new pod of a ShadowPod its DNS settings. It reads caches only.
func (r *reconciler) names(ctx context.Context, shadowPod *vkv1alpha1.ShadowPod) (func(*corev1.PodSpec), error) {
	nothing := func(*corev1.PodSpec) {}
	if r.options.Names == nil {
		return nothing, nil
	}
	settings, err := r.options.Names.Settings()
	if err != nil || !settings.Server.IsValid() {
		return nothing, err
	}
	metadata, err := r.options.RemoteNamespaces.Metadata(ctx, shadowPod.Namespace)
	if err != nil || metadata == nil {
		return nothing, err
	}
	announced, err := r.announced(ctx, metadata.Annotations[labels.ManagedByNamespaceMap])
	if err != nil {
		return nothing, err
	}
	at, _, found := names.Where(metadata, func(string) string { return announced })
	if !found {
		return nothing, nil
	}
	at.DNS = strings.Split(shadowPod.Annotations[labels.HomeDNS], ",")
	return func(spec *corev1.PodSpec) { settings.Configure(spec, at) }, nil
}

// announced returns the domain that a peer has announced on its NamespaceMap.
func (r *reconciler) announced(ctx context.Context, namespaceMap string) (string, error) {
	tenant, name, _ := strings.Cut(namespaceMap, "/")
	var its vkv1alpha1.NamespaceMap
	err := r.cached.Get(ctx, client.ObjectKey{Namespace: tenant, Name: name}, &its, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("look for namespace map %s: %w", namespaceMap, err)
	}
	return its.Annotations[labels.ClusterDomain], nil
}
