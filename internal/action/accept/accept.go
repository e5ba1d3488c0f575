// SPDX-License-Identifier: Apache-2.0

// Package accept decides and writes what of a peer this cluster accepts: the networks that it announces and the labels that it
// presents. The commands that peer use it as well, because they can do the same at once. It must not know how clusters become
// peers. Its proof are accept_test.go, networks_test.go, overlap_test.go, and package apiserver.
package accept

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/await"
	"liqo.io/liqo/internal/action/foreign"
	"liqo.io/liqo/internal/action/installed"
	"liqo.io/liqo/internal/kube/printable"
)

// Networks agrees to other networks of a peer than those in use. Each must be one that the peer announces now, so that a mistyped one, or one that the
// peer has changed again since, is not agreed to.
func Networks(ctx context.Context, c client.Client, name string, networks []string, p action.Progress) error {
	if err := CheckNetworks("networks", networks); err != nil {
		return err
	}
	fc, err := foreign.Get(ctx, c, name)
	if err != nil {
		return err
	}
	config, err := announcement(ctx, c, fc)
	if err != nil {
		return err
	}
	if config == nil {
		return fmt.Errorf("cluster %q announces no networks, so there is nothing to accept; see `liqoctl status peer %[1]s`", name)
	}
	announces := networksOf(config)
	for _, one := range networks {
		if !slices.Contains(announces, one) {
			return fmt.Errorf("%s is not what cluster %q announces now, which is %s; nothing was changed", one, name,
				printable.Line(strings.Join(announces, " and "), 100))
		}
	}
	err = writeNetworks(ctx, c, name, func(network *discoveryv1alpha1.PeerNetwork) {
		network.AcceptedCIDRs = added(network.AcceptedCIDRs, networks)
	})
	if err != nil {
		return err
	}
	p.Done(fmt.Sprintf("Networks of cluster %q accepted: %s; see `liqoctl status peer %[1]s` for the addresses under which this cluster reaches them", name,
		strings.Join(networks, ", ")))
	return nil
}

// announcement is what a peer announces; nil if it does not yet.
func announcement(ctx context.Context, c client.Client, fc *discoveryv1alpha1.ForeignCluster) (*netv1alpha1.NetworkConfig, error) {
	if fc.Spec.ClusterIdentity == nil || fc.Status.TenantNamespace.Local == "" {
		return nil, nil
	}
	var config netv1alpha1.NetworkConfig
	key := client.ObjectKey{Namespace: fc.Status.TenantNamespace.Local, Name: fc.Spec.ClusterIdentity.NetworkConfigName()}
	err := await.Retry(ctx, func(ctx context.Context) error { return c.Get(ctx, key, &config) })
	switch {
	case apierrors.IsNotFound(err) || installed.NotServed(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read what cluster %q announces, NetworkConfig %s: %w", fc.Name, key, err)
	}
	return &config, nil
}

// networksOf returns what a peer announces. The peer wrote it, so it may be no network.
func networksOf(config *netv1alpha1.NetworkConfig) []string {
	return []string{string(config.Spec.PodCIDR), string(config.Spec.ExternalCIDR)}
}

// Command is what an administrator types to agree to the networks that a peer announces; empty if they are not refused for being others than before.
func Command(name string, config *netv1alpha1.NetworkConfig, inUse *netv1alpha1.TunnelEndpoint) string {
	ready := meta.FindStatusCondition(config.Status.Conditions, netv1alpha1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionFalse || ready.Reason != netv1alpha1.ReasonNetworkChanged || inUse == nil {
		return ""
	}
	var changed []string
	for _, one := range []struct{ now, is netv1alpha1.CIDR }{
		{config.Spec.PodCIDR, inUse.Spec.RemotePodCIDR},
		{config.Spec.ExternalCIDR, inUse.Spec.RemoteExternalCIDR},
	} {
		// The peer wrote it, and the administrator copies the command into a shell.
		if one.now != one.is && CheckNetworks("", []string{string(one.now)}) == nil {
			changed = append(changed, string(one.now))
		}
	}
	if len(changed) == 0 {
		return ""
	}
	return fmt.Sprintf("liqoctl accept networks %s %s", name, strings.Join(changed, " "))
}
