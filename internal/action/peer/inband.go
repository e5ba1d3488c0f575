// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"
	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/accept"
	"liqo.io/liqo/internal/action/await"
	"liqo.io/liqo/internal/action/foreign"
	"liqo.io/liqo/internal/action/installed"
	"liqo.io/liqo/internal/action/pair"
	"liqo.io/liqo/internal/action/preflight"
	"liqo.io/liqo/internal/peering/replicate/carry"
)

// InBandOptions name two clusters whose control planes reach each other through their tunnel only.
type InBandOptions struct {
	// Name of the other cluster in this one. If empty: the other cluster's own name.
	Name string
	// Bidirectional: the other cluster uses this one as well.
	Bidirectional bool
	// Timeout bounds the whole action.
	Timeout time.Duration
	// Networks are those of both clusters that the other one uses as they are.
	Networks accept.NetworkWords
	// Labels are those of a provider that cluster selectors may use, in both clusters.
	Labels accept.LabelWords
	// Local is the consumer.
	Local, Remote pair.Access
}

// InBand makes the local cluster a consumer of the remote one, through the tunnel between them. It pins the key of each cluster in the other one,
// exchanges their networks until the tunnel is up, and then watches the conditions: everything else is the work of the clusters, through the tunnel.
func InBand(ctx context.Context, o InBandOptions, p action.Progress) error {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if err := o.Networks.Check(); err != nil {
		return err
	}
	p.Start("Checking both clusters")
	local, remote, err := pair.Read(ctx, o.Local, o.Remote, o.Name)
	if err == nil {
		var waited bool
		if waited, err = pair.AwaitGone(ctx, []*pair.Cluster{local, remote}, o.Timeout, p); waited && err == nil {
			local, remote, err = pair.Read(ctx, o.Local, o.Remote, o.Name)
		}
	}
	if err != nil {
		p.Stop()
		return err
	}
	local.Outgoing, remote.Outgoing = true, o.Bidirectional
	if failures := judgeInBand(local, remote); len(failures) > 0 {
		p.Stop()
		return &preflight.Error{Findings: failures}
	}
	p.Done("All checks of both clusters passed")
	clusters := []*pair.Cluster{local, remote}
	if err := pair.Both(clusters, func(s *pair.Cluster) error { return judgeNetworks(ctx, s, o.Networks, p) }); err != nil {
		return err
	}
	if err := pair.Both(clusters, func(s *pair.Cluster) error { return s.Apply(ctx) }); err != nil {
		return err
	}
	p.Done("Peering enabled")
	if err := pair.Both(clusters, func(s *pair.Cluster) error {
		return o.Networks.Write(ctx, s.Client, s.Name, action.Prefix(p, s.Prefix))
	}); err != nil {
		return err
	}
	p.Start("Exchanging the networks of the clusters")
	if err := pair.Both(clusters, func(s *pair.Cluster) error { return s.WaitTenant(ctx) }); err != nil {
		p.Stop()
		return inBandError(o.Timeout, local, remote, err)
	}
	carrying, stop := context.WithCancel(ctx)
	carried := make(chan error, 1)
	go func() { carried <- exchange(carrying, local, remote) }()
	err = followInBand(ctx, o, clusters, p)
	stop()
	if last := <-carried; err != nil && last != nil && !errors.Is(last, context.Canceled) {
		err = errors.Join(err, fmt.Errorf("exchange the networks of the clusters: %w", last))
	}
	if err != nil {
		p.Stop()
		return inBandError(o.Timeout, local, remote, err)
	}
	return nil
}

// followInBand writes the address of the other one's proxy into each cluster as soon as the networks are agreed, and waits until the peering is complete.
func followInBand(ctx context.Context, o InBandOptions, clusters []*pair.Cluster, p action.Progress) error {
	local, remote := clusters[0], clusters[1]
	if err := pair.Both(clusters, func(s *pair.Cluster) error {
		if err := s.WaitProxy(ctx); err != nil {
			return err
		}
		return s.Apply(ctx)
	}); err != nil {
		return err
	}
	p.Done("Networks exchanged")
	if err := waitPeering(ctx, local.Client, local.Foreign(), o.Timeout, action.Prefix(p, "(local) ")); err != nil {
		return err
	}
	o.Labels.Apply(ctx, local.Client, local.Name, action.Prefix(p, "(local) "))
	accept.HintOverlap(ctx, local.Client, local.Name, p) // it is the same for both
	if !o.Bidirectional {
		return remote.WaitNetwork(ctx)
	}
	if err := waitPeering(ctx, remote.Client, remote.Foreign(), o.Timeout, action.Prefix(p, "(remote) ")); err != nil {
		return err
	}
	o.Labels.Apply(ctx, remote.Client, remote.Name, action.Prefix(p, "(remote) "))
	return nil
}

// exchange carries the networks over after each change in one of the clusters, until ctx ends. It returns the last error.
func exchange(ctx context.Context, a, b *pair.Cluster) error {
	changed := make(chan struct{}, 1)
	notify := func([]netv1alpha1.NetworkConfig) (bool, error) {
		select {
		case changed <- struct{}{}:
		default:
		}
		return false, nil
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, one := range []*pair.Cluster{a, b} {
		group.Go(func() error {
			return await.Follow(ctx, one.Client, &netv1alpha1.NetworkConfigList{}, notify, client.InNamespace(one.Tenant))
		})
	}
	var last error
	group.Go(func() error {
		for {
			select {
			case <-changed:
			case <-time.After(carryAgain): // after an error, for example of a webhook that restarts
				if last == nil {
					continue
				}
			case <-ctx.Done():
				return nil
			}
			last = carryBoth(ctx, a.End(), b.End())
		}
	})
	_ = group.Wait() // the watches end with ctx
	return last
}

// carryAgain is when an exchange that failed is repeated.
const carryAgain = time.Second

func carryBoth(ctx context.Context, a, b carry.End) error {
	ctx, cancel := context.WithTimeout(ctx, await.CallTimeout)
	defer cancel()
	var group errgroup.Group
	for _, way := range [][2]carry.End{{a, b}, {b, a}} {
		group.Go(func() error { return carry.Network(ctx, way[0], way[1]) })
	}
	return group.Wait()
}

// inBandError explains a timeout with the state of both clusters.
func inBandError(timeout time.Duration, local, remote *pair.Cluster, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), await.CallTimeout)
	defer cancel()
	var seen []string
	for _, s := range []*pair.Cluster{local, remote} {
		fc, readErr := foreign.Get(ctx, s.Client, s.Name)
		if readErr != nil {
			seen = append(seen, s.Prefix+readErr.Error())
			continue
		}
		for _, kind := range []discoveryv1alpha1.PeeringConditionType{discoveryv1alpha1.NetworkStatus, discoveryv1alpha1.ProcessForeignClusterStatus} {
			if one := foreign.Condition(fc, kind); one.Status != discoveryv1alpha1.StatusEstablished && one.Status != discoveryv1alpha1.StatusSuccess {
				seen = append(seen, s.Prefix+foreign.Describe(one))
			}
		}
	}
	if len(seen) == 0 {
		return err
	}
	return fmt.Errorf("the peering was not complete after %s: %s. The clusters keep trying, and the command can be repeated (%w)", timeout,
		strings.Join(seen, "; "), err)
}

// judgeNetworks judges the words in one of two clusters. The network that the other one is going to announce for its pods is on record there.
func judgeNetworks(ctx context.Context, s *pair.Cluster, words accept.NetworkWords, p action.Progress) error {
	var recorded corev1.ConfigMap
	key := client.ObjectKey{Namespace: s.Other.Namespace, Name: installed.NetworksName}
	err := await.Retry(ctx, func(ctx context.Context) error { return s.Other.Client.Get(ctx, key, &recorded) })
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("%sread ConfigMap %s: %w", s.Other.Prefix, key, err)
	}
	var announces []string
	if pods, _, _ := strings.Cut(recorded.Data["POD_CIDR"], ","); accept.CheckNetworks("", []string{pods}) == nil {
		announces = []string{pods}
	}
	all, err := accept.ReadLeads(ctx, s.Client, s.Namespace, s.Other.Facts.Identity.ClusterID)
	if err != nil {
		return fmt.Errorf("%s%w", s.Prefix, err)
	}
	if err := words.JudgeBoth(announces, all, action.Prefix(p, s.Prefix)); err != nil {
		return fmt.Errorf("%s%w", s.Prefix, err)
	}
	return nil
}
