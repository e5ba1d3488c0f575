// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/action/await"
	"liqo.io/liqo/internal/action/claims"
	"liqo.io/liqo/internal/action/installed"
	"liqo.io/liqo/internal/peering/auth/published"
)

// Read reads the state of Liqo in this cluster. Faults of Liqo are in its Problems; the error means that the state could
// not be read.
func Read(ctx context.Context, c client.Client, namespace string) (Local, error) {
	ctx, cancel := context.WithTimeout(ctx, await.CallTimeout)
	defer cancel()
	o := &localObjects{namespace: namespace}
	var found corev1.Namespace
	switch err := c.Get(ctx, client.ObjectKey{Name: namespace}, &found); {
	case apierrors.IsNotFound(err):
		return newLocalStatus(o), nil
	case err != nil:
		return Local{}, fmt.Errorf("read namespace %s: %w", namespace, err)
	}
	o.exists = true

	var deployments appsv1.DeploymentList
	if err := c.List(ctx, &deployments, client.InNamespace(namespace)); err != nil {
		return Local{}, fmt.Errorf("list the Deployments in namespace %s: %w", namespace, err)
	}
	o.deployments = deployments.Items
	if o.internal() {
		if err := o.readNetwork(ctx, c); err != nil {
			return Local{}, err
		}
	}
	o.identity, o.identityErr = installed.Identity(ctx, c, namespace)

	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes); err != nil {
		return Local{}, fmt.Errorf("list nodes: %w", err)
	}
	o.nodes = nodes.Items
	var services corev1.ServiceList
	if err := c.List(ctx, &services, client.InNamespace(namespace), client.MatchingFields{"metadata.name": published.Service}); err != nil {
		return Local{}, fmt.Errorf("read Service %s/%s: %w", namespace, published.Service, err)
	}
	o.authURL, o.authErr = installed.AuthURL(ctx, c, namespace, services.Items)
	var offloadings offloadingv1alpha1.NamespaceOffloadingList
	if err := c.List(ctx, &offloadings); err != nil && !installed.NotServed(err) {
		return Local{}, fmt.Errorf("list NamespaceOffloadings: %w", err)
	}
	o.offloadings = offloadings.Items
	var remote corev1.NamespaceList
	if err := c.List(ctx, &remote, client.HasLabels{labels.RemoteClusterID}); err != nil {
		return Local{}, fmt.Errorf("list namespaces of peers: %w", err)
	}
	o.remote = remote.Items
	return newLocalStatus(o), nil
}

// readNetwork reads the objects that exist only if the network is Liqo's own.
func (o *localObjects) readNetwork(ctx context.Context, c client.Reader) error {
	var sets appsv1.DaemonSetList
	if err := c.List(ctx, &sets, client.InNamespace(o.namespace)); err != nil {
		return fmt.Errorf("list the DaemonSets in namespace %s: %w", o.namespace, err)
	}
	var services corev1.ServiceList
	if err := c.List(ctx, &services, client.InNamespace(o.namespace), client.MatchingLabels{labels.Gateway: "true"}); err != nil {
		return fmt.Errorf("list the gateways' Services in namespace %s: %w", o.namespace, err)
	}
	var recorded corev1.ConfigMap
	if err := c.Get(ctx, client.ObjectKey{Namespace: o.namespace, Name: installed.NetworksName}, &recorded); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read ConfigMap %s/%s: %w", o.namespace, installed.NetworksName, err)
	}
	var configs netv1alpha1.NetworkConfigList
	if err := c.List(ctx, &configs); err != nil && !installed.NotServed(err) {
		return fmt.Errorf("list NetworkConfigs: %w", err)
	}
	o.daemonSets, o.services, o.networks, o.configs = sets.Items, services.Items, recorded.Data, configs.Items
	return nil
}

// Peers reads the state of the peers with these names, or of all, ordered by name.
func Peers(ctx context.Context, c client.Reader, names []string) ([]Peer, error) {
	ctx, cancel := context.WithTimeout(ctx, await.CallTimeout)
	defer cancel()
	var fcs discoveryv1alpha1.ForeignClusterList
	if err := c.List(ctx, &fcs); installed.NotServed(err) {
		return nil, installed.ErrNotServed
	} else if err != nil {
		return nil, fmt.Errorf("list ForeignClusters: %w", err)
	}
	var grants sharingv1alpha1.ResourceSliceList
	if err := c.List(ctx, &grants); err != nil {
		return nil, fmt.Errorf("list ResourceSlices: %w", err)
	}
	var configs netv1alpha1.NetworkConfigList
	if err := c.List(ctx, &configs); err != nil && !installed.NotServed(err) {
		return nil, fmt.Errorf("list NetworkConfigs: %w", err)
	}
	var tunnels netv1alpha1.TunnelEndpointList
	if err := c.List(ctx, &tunnels); err != nil && !installed.NotServed(err) {
		return nil, fmt.Errorf("list TunnelEndpoints: %w", err)
	}
	var maps vkv1alpha1.NamespaceMapList
	if err := c.List(ctx, &maps); err != nil && !installed.NotServed(err) {
		return nil, fmt.Errorf("list NamespaceMaps: %w", err)
	}
	claims, err := claims.List(ctx, c, func(claims.Claim) bool { return true })
	if err != nil {
		return nil, err
	}
	return newPeerStatuses(&peerObjects{fcs.Items, grants.Items, configs.Items, tunnels.Items, maps.Items, claims}, names), nil
}
