// SPDX-License-Identifier: Apache-2.0

package action

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
	"liqo.io/liqo/internal/peering/replicate"
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
	Networks NetworkWords
	// Labels are those of a provider that cluster selectors may use, in both clusters.
	Labels LabelWords
	// Local is the consumer.
	Local, Remote Access
}

// PeerInBand makes the local cluster a consumer of the remote one, through the tunnel between them. It pins the key of each cluster in the other one,
// exchanges their networks until the tunnel is up, and then watches the conditions: everything else is the work of the clusters, through the tunnel.
func PeerInBand(ctx context.Context, o InBandOptions, p Progress) error {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if err := o.Networks.check(); err != nil {
		return err
	}
	p.Start("Checking both clusters")
	local, remote, err := readSides(ctx, o.Local, o.Remote, o.Name)
	if err == nil {
		var waited bool
		if waited, err = awaitBoth(ctx, []*side{local, remote}, o.Timeout, p); waited && err == nil {
			local, remote, err = readSides(ctx, o.Local, o.Remote, o.Name)
		}
	}
	if err != nil {
		p.Stop()
		return err
	}
	local.outgoing, remote.outgoing = true, o.Bidirectional
	if failures := judgeInBand(local, remote); len(failures) > 0 {
		p.Stop()
		return &PreflightError{Findings: failures}
	}
	p.Done("All checks of both clusters passed")
	sides := []*side{local, remote}
	if err := both(sides, func(s *side) error { return judgeNetworks(ctx, s, o.Networks, p) }); err != nil {
		return err
	}
	if err := both(sides, func(s *side) error { return s.apply(ctx) }); err != nil {
		return err
	}
	p.Done("Peering enabled")
	if err := both(sides, func(s *side) error { return o.Networks.write(ctx, s.Client, s.name, Prefixed{p, s.prefix}) }); err != nil {
		return err
	}
	p.Start("Exchanging the networks of the clusters")
	if err := both(sides, func(s *side) error { return s.waitTenant(ctx) }); err != nil {
		p.Stop()
		return inBandError(o.Timeout, local, remote, err)
	}
	carrying, stop := context.WithCancel(ctx)
	carried := make(chan error, 1)
	go func() { carried <- carry(carrying, local, remote) }()
	err = followInBand(ctx, o, sides, p)
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
func followInBand(ctx context.Context, o InBandOptions, sides []*side, p Progress) error {
	local, remote := sides[0], sides[1]
	if err := both(sides, func(s *side) error {
		if err := s.waitProxy(ctx); err != nil {
			return err
		}
		return s.apply(ctx)
	}); err != nil {
		return err
	}
	p.Done("Networks exchanged")
	if err := waitPeering(ctx, local.Client, local.foreign(), o.Timeout, Prefixed{p, "(local) "}); err != nil {
		return err
	}
	o.Labels.accept(ctx, local.Client, local.name, Prefixed{p, "(local) "})
	hintNetworks(ctx, local.Client, local.name, p) // it is the same for both
	if !o.Bidirectional {
		return remote.waitNetwork(ctx)
	}
	if err := waitPeering(ctx, remote.Client, remote.foreign(), o.Timeout, Prefixed{p, "(remote) "}); err != nil {
		return err
	}
	o.Labels.accept(ctx, remote.Client, remote.name, Prefixed{p, "(remote) "})
	return nil
}

// carry exchanges the networks after each change in one of the clusters, until ctx ends. It returns the last error.
func carry(ctx context.Context, a, b *side) error {
	changed := make(chan struct{}, 1)
	notify := func([]netv1alpha1.NetworkConfig) (bool, error) {
		select {
		case changed <- struct{}{}:
		default:
		}
		return false, nil
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, one := range []*side{a, b} {
		group.Go(func() error {
			return Follow(ctx, one.Client, &netv1alpha1.NetworkConfigList{}, notify, client.InNamespace(one.tenant))
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
			last = carryBoth(ctx, a.end(), b.end())
		}
	})
	_ = group.Wait() // the watches end with ctx
	return last
}

// carryAgain is when an exchange that failed is repeated.
const carryAgain = time.Second

func carryBoth(ctx context.Context, a, b replicate.End) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var group errgroup.Group
	for _, way := range [][2]replicate.End{{a, b}, {b, a}} {
		group.Go(func() error { return replicate.CarryNetwork(ctx, way[0], way[1]) })
	}
	return group.Wait()
}

// inBandError explains a timeout with the state of both clusters.
func inBandError(timeout time.Duration, local, remote *side, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	var seen []string
	for _, s := range []*side{local, remote} {
		fc, readErr := ForeignCluster(ctx, s.Client, s.name)
		if readErr != nil {
			seen = append(seen, s.prefix+readErr.Error())
			continue
		}
		for _, kind := range []discoveryv1alpha1.PeeringConditionType{discoveryv1alpha1.NetworkStatus, discoveryv1alpha1.ProcessForeignClusterStatus} {
			if one := conditionOf(fc, kind); one.Status != discoveryv1alpha1.StatusEstablished && one.Status != discoveryv1alpha1.StatusSuccess {
				seen = append(seen, s.prefix+describe(one))
			}
		}
	}
	if len(seen) == 0 {
		return err
	}
	return fmt.Errorf("the peering was not complete after %s: %s. The clusters keep trying, and the command can be repeated (%w)", timeout, strings.Join(seen, "; "), err)
}

// judgeNetworks judges the words in one of two clusters. The network that the other one is going to announce for its pods is on record there.
func judgeNetworks(ctx context.Context, s *side, words NetworkWords, p Progress) error {
	var recorded corev1.ConfigMap
	key := client.ObjectKey{Namespace: s.other.Namespace, Name: networksName}
	err := retry(ctx, func(ctx context.Context) error { return s.other.Client.Get(ctx, key, &recorded) })
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("%sread ConfigMap %s: %w", s.other.prefix, key, err)
	}
	var announces []string
	if pods, _, _ := strings.Cut(recorded.Data["POD_CIDR"], ","); checkNetworks("", []string{pods}) == nil {
		announces = []string{pods}
	}
	all, err := readLeads(ctx, s.Client, s.Namespace, s.other.facts.identity.ClusterID)
	if err != nil {
		return fmt.Errorf("%s%w", s.prefix, err)
	}
	if err := words.JudgeBoth(announces, all, Prefixed{p, s.prefix}); err != nil {
		return fmt.Errorf("%s%w", s.prefix, err)
	}
	return nil
}
