// SPDX-License-Identifier: Apache-2.0

package unpeer

import (
	"context"
	"errors"
	"fmt"
	"time"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/foreign"
	"liqo.io/liqo/internal/action/pair"
)

// InBandOptions name the two clusters of an in-band peering.
type InBandOptions struct {
	// Name of the other cluster in the local one. If empty: that of the remote cluster.
	Name string
	// Timeout bounds the whole action.
	Timeout time.Duration
	// Force sets every deadline of the teardown to zero.
	Force bool
	// Remote without a client is a cluster that cannot be reached.
	Local, Remote pair.Access
}

// InBand ends both directions of an in-band peering, then the tunnel, in both clusters. Without access to the remote one, and with force, it does so
// in the local one only.
func InBand(ctx context.Context, o InBandOptions, p action.Progress) error {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if o.Remote.Client == nil {
		fc, err := foreign.Get(ctx, o.Local.Client, o.Name)
		if err != nil {
			return err
		}
		return endInBand(ctx, []leaving{{&pair.Cluster{Access: o.Local, Prefix: "(local) ", Name: fc.Name}, fc}}, o, p)
	}
	local, remote, err := pair.Read(ctx, o.Local, o.Remote, o.Name)
	if err != nil {
		return err
	}
	if err := sameCluster(local, remote); err != nil {
		return err
	}
	var ends []leaving
	for _, s := range []*pair.Cluster{local, remote} {
		fc := s.Facts.Same(s.Other.Facts.Identity.ClusterID)
		if s == local && fc != nil && o.Name != "" && fc.Name != o.Name {
			return fmt.Errorf("(local) the remote cluster %s is the ForeignCluster %q, not %q; nothing was changed", remote.Facts.Identity.ClusterName, fc.Name, o.Name)
		}
		if fc != nil {
			s.Name = fc.Name
			ends = append(ends, leaving{s, fc})
		}
	}
	if len(ends) == 0 {
		return fmt.Errorf("the clusters %s and %s are not peered", local.Facts.Identity.ClusterName, remote.Facts.Identity.ClusterName)
	}
	return endInBand(ctx, ends, o, p)
}

// Alone reports whether `unpeer in-band` changes this cluster only: by force, or because its peering began with an invitation.
func Alone(ctx context.Context, o InBandOptions) (bool, error) {
	if o.Name == "" {
		if o.Force {
			return false, errors.New("which peering? Add the name of the other cluster")
		}
		return false, nil
	}
	fc, err := foreign.Get(ctx, o.Local.Client, o.Name)
	if err != nil {
		return false, err
	}
	return o.Force || fc.Annotations[labels.Invited] != "" || fc.Labels[labels.DiscoveryType] == labels.DiscoveryIncoming, nil
}

func sameCluster(local, remote *pair.Cluster) error {
	for _, s := range []*pair.Cluster{local, remote} {
		if s.Facts.Err != nil {
			return fmt.Errorf("%s%w", s.Prefix, s.Facts.Err)
		}
	}
	if local.Facts.Identity.ClusterID == remote.Facts.Identity.ClusterID {
		return fmt.Errorf("both clusters are %s: local and remote clusters must be different", local.Facts.Identity.ClusterName)
	}
	return nil
}

// leaving is a cluster with its ForeignCluster of the other one.
type leaving struct {
	*pair.Cluster
	fc *discoveryv1alpha1.ForeignCluster
}

// endInBand first checks everything, then ends the outgoing peerings while the tunnel is up, and then deletes the ForeignClusters.
func endInBand(ctx context.Context, ends []leaving, o InBandOptions, p action.Progress) error {
	for _, e := range ends {
		if e.fc.Spec.PeeringType != discoveryv1alpha1.InBand {
			return fmt.Errorf("%sthe peering with %q is of type %s, which `unpeer in-band` cannot end; use `liqoctl unpeer out-of-band %s`", e.Prefix, e.fc.Name,
				e.fc.Spec.PeeringType, e.fc.Name)
		}
		if err := AssessVolumes(ctx, e.Client, e.fc, o.Force, action.Prefix(p, e.Prefix)); err != nil {
			return fmt.Errorf("%s%w", e.Prefix, err)
		}
	}
	for _, step := range []func(leaving) error{
		func(e leaving) error {
			return endOutgoing(ctx, e.Client, e.fc, e.options(o), action.Prefix(p, e.Prefix))
		},
		func(e leaving) error { return forget(ctx, e.Client, e.fc, e.options(o), action.Prefix(p, e.Prefix)) },
	} {
		// One after the other, so that what is printed can be read; both clusters work all the time.
		for _, e := range ends {
			if err := step(e); err != nil {
				return fmt.Errorf("%s%w", e.Prefix, err)
			}
		}
	}
	return nil
}

func (e leaving) options(o InBandOptions) Options {
	return Options{Name: e.fc.Name, Timeout: o.Timeout, Force: o.Force}
}
