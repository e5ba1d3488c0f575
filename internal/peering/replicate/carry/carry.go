// SPDX-License-Identifier: Apache-2.0

// Package carry does once what a connection of package replicate does all the time, for clusters that have none yet.
package carry

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/peering/replicate/kinds"
)

// End is one of two clusters between which a NetworkConfig is carried.
type End struct {
	Client client.Client
	// ID is the cluster's, Namespace that of the other one's tenant in this cluster.
	ID, Namespace string
}

// Network copies the NetworkConfig that one cluster publishes for another one to that cluster, and the answer back, as a connection does: with the
// same values, and for the same owner of fields, so that a connection goes on from there. It is for in-band peerings, whose
// clusters have no connection before they have a tunnel, and is called again after each change.
func Network(ctx context.Context, from, to End) error {
	var original, copy netv1alpha1.NetworkConfig
	name := discoveryv1alpha1.ClusterIdentity{ClusterID: from.ID}.NetworkConfigName()
	if err := from.Client.Get(ctx, client.ObjectKey{Namespace: from.Namespace, Name: name}, &original); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !kinds.IsFor(&original, to.ID) || original.DeletionTimestamp != nil {
		return nil
	}
	intent := kinds.NetworkSpecIntent(&original, kinds.Copied(&original, from.ID, to.Namespace))
	if err := ssa.Apply(ctx, to.Client, intent, labels.OwnerReplicate); err != nil {
		return fmt.Errorf("copy network configuration %s/%s: %w", from.Namespace, name, err)
	}
	if err := to.Client.Get(ctx, client.ObjectKey{Namespace: to.Namespace, Name: name}, &copy); err != nil {
		return client.IgnoreNotFound(err)
	}
	answer := kinds.NetworkStatusIntent(&original, &copy)
	if answer == nil {
		return nil
	}
	if err := from.Client.Status().Apply(ctx, answer, client.FieldOwner(labels.OwnerReplicate), client.ForceOwnership); err != nil {
		return fmt.Errorf("bring the answer to network configuration %s/%s: %w", from.Namespace, name, err)
	}
	return nil
}

// Announce writes the NetworkConfig of a cluster that has no API server, that of an invitation, as a connection of that cluster would.
func Announce(ctx context.Context, to End, cluster string, spec *netv1alpha1.NetworkConfigSpec) error {
	original := &netv1alpha1.NetworkConfig{Spec: *spec}
	original.Name = discoveryv1alpha1.ClusterIdentity{ClusterID: cluster}.NetworkConfigName()
	original.Labels = map[string]string{labels.Replication: labels.True, labels.RemoteID: to.ID, labels.ClusterID: to.ID, labels.AppPartOf: labels.PartOf}
	if err := ssa.Apply(ctx, to.Client, kinds.NetworkSpecIntent(original, kinds.Copied(original, cluster, to.Namespace)), labels.OwnerReplicate); err != nil {
		return fmt.Errorf("write network configuration %s/%s: %w", to.Namespace, original.Name, err)
	}
	return nil
}

// Answer writes the answer of such a cluster, which sees the networks of the cluster as they are.
func Answer(ctx context.Context, to End, ours *netv1alpha1.NetworkConfig, signed func(*netv1alpha1.NetworkConfigStatus) []netv1alpha1.Signature) error {
	copy := ours.DeepCopy()
	copy.Status = netv1alpha1.NetworkConfigStatus{
		Processed: true, PodCIDRNAT: netv1alpha1.NotRemapped, ExternalCIDRNAT: netv1alpha1.NotRemapped, ObservedGeneration: copy.Generation,
	}
	copy.Status.Signatures = signed(&copy.Status)
	if err := to.Client.Status().Apply(ctx, kinds.NetworkStatusIntent(ours, copy), client.FieldOwner(labels.OwnerReplicate), client.ForceOwnership); err != nil {
		return fmt.Errorf("answer network configuration %s/%s: %w", ours.Namespace, ours.Name, err)
	}
	return nil
}
