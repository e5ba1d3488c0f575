// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
)

// Status reads the state of Liqo in this cluster. What is wrong with Liqo is in its Problems; the
// error is for what kept us from looking.
func Status(ctx context.Context, c client.Client, namespace string) (LocalStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	o := localObjects{namespace: namespace}
	var found corev1.Namespace
	switch err := c.Get(ctx, client.ObjectKey{Name: namespace}, &found); {
	case apierrors.IsNotFound(err):
		return newLocalStatus(o), nil
	case err != nil:
		return LocalStatus{}, fmt.Errorf("read namespace %s: %w", namespace, err)
	}
	o.exists = true

	var deployments appsv1.DeploymentList
	if err := c.List(ctx, &deployments, client.InNamespace(namespace)); err != nil {
		return LocalStatus{}, fmt.Errorf("list the Deployments in namespace %s: %w", namespace, err)
	}
	o.deployments = deployments.Items
	o.identity, o.identityErr = LocalIdentity(ctx, c, namespace)

	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes); err != nil {
		return LocalStatus{}, fmt.Errorf("list nodes: %w", err)
	}
	o.nodes = nodes.Items
	var services corev1.ServiceList
	if err := c.List(ctx, &services, client.InNamespace(namespace), client.MatchingFields{"metadata.name": authService}); err != nil {
		return LocalStatus{}, fmt.Errorf("read Service %s/%s: %w", namespace, authService, err)
	}
	o.authURL, o.authErr = AuthURL(ctx, c, namespace, services.Items)
	return newLocalStatus(o), nil
}

// PeerStatuses reads the state of the peers with these names, or of all, ordered by name.
func PeerStatuses(ctx context.Context, c client.Reader, names []string) ([]PeerStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var fcs discoveryv1alpha1.ForeignClusterList
	if err := c.List(ctx, &fcs); notServed(err) {
		return nil, errNotServed
	} else if err != nil {
		return nil, fmt.Errorf("list ForeignClusters: %w", err)
	}
	var grants sharingv1alpha1.ResourceSliceList
	if err := c.List(ctx, &grants); err != nil {
		return nil, fmt.Errorf("list ResourceSlices: %w", err)
	}
	return newPeerStatuses(fcs.Items, grants.Items, names), nil
}
