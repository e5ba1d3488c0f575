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

	discoveryac "liqo.io/liqo/apis/applyconfiguration/discovery/v1alpha1"
	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/peering/proxy"
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
	// Force sets every deadline of a teardown to zero.
	Force bool
	// Networks are those of both clusters that the other one uses as they are.
	Networks NetworkWords
	// Labels are those of a provider that cluster selectors may use, in both clusters.
	Labels LabelWords
	// Local is the consumer.
	Local, Remote Access
}

// Access is how a cluster is reached from here.
type Access struct {
	Client client.WithWatch
	// Namespace of Liqo in it.
	Namespace string
}

// prefixed puts the cluster before each message.
type prefixed struct {
	Progress
	prefix string
}

func (p prefixed) Start(text string) { p.Progress.Start(p.prefix + text) }
func (p prefixed) Done(text string)  { p.Progress.Done(p.prefix + text) }
func (p prefixed) Info(text string)  { p.Progress.Info(p.prefix + text) }
func (p prefixed) Warn(text string)  { p.Progress.Warn(p.prefix + text) }

// PeerInBand makes the local cluster a consumer of the remote one, through the tunnel between them. It pins the key of each cluster in the other one,
// exchanges their networks until the tunnel is up, and then watches the conditions: everything else is the work of the clusters, through the tunnel.
func PeerInBand(ctx context.Context, o InBandOptions, p Progress) error {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if err := o.Networks.check(); err != nil {
		return err
	}
	p.Start("Checking both clusters")
	local, remote, err := readSides(ctx, o)
	if err == nil {
		var waited bool
		if waited, err = awaitBoth(ctx, o, []*side{local, remote}, p); waited && err == nil {
			local, remote, err = readSides(ctx, o)
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
	if err := both(sides, func(s *side) error { return s.judgeNetworks(ctx, o.Networks, p) }); err != nil {
		return err
	}
	if err := both(sides, func(s *side) error { return s.apply(ctx) }); err != nil {
		return err
	}
	p.Done("Peering enabled")
	if err := both(sides, func(s *side) error { return o.Networks.write(ctx, s.Client, s.name, prefixed{p, s.prefix}) }); err != nil {
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
	if err := waitPeering(ctx, local.Client, local.foreign(), o.Timeout, prefixed{p, "(local) "}); err != nil {
		return err
	}
	o.Labels.accept(ctx, local.Client, local.name, prefixed{p, "(local) "})
	hintNetworks(ctx, local.Client, local.name, p) // it is the same for both
	if !o.Bidirectional {
		return remote.waitNetwork(ctx)
	}
	if err := waitPeering(ctx, remote.Client, remote.foreign(), o.Timeout, prefixed{p, "(remote) "}); err != nil {
		return err
	}
	o.Labels.accept(ctx, remote.Client, remote.name, prefixed{p, "(remote) "})
	return nil
}

// side is one of the two clusters, with what it has of the other one.
type side struct {
	Access
	// prefix names it in messages.
	prefix string
	facts  sideFacts
	other  *side
	// name is that of the other cluster here, tenant the namespace of its objects.
	name, tenant string
	outgoing     bool
	// annotations of its ForeignCluster.
	annotations map[string]string
	// proxyURL is that of the other cluster's proxy, once known.
	proxyURL string
}

// foreign is the ForeignCluster of the other cluster, as far as waiting needs it.
func (s *side) foreign() *discoveryv1alpha1.ForeignCluster {
	fc := &discoveryv1alpha1.ForeignCluster{}
	fc.Name, fc.Annotations = s.name, s.annotations
	fc.Spec.PeeringType = discoveryv1alpha1.InBand
	fc.Spec.ClusterIdentity = &discoveryv1alpha1.ClusterIdentity{ClusterID: s.other.facts.identity.ClusterID, ClusterName: s.name}
	return fc
}

// intent is the desired ForeignCluster of the other cluster. An outgoing peering that is there stays.
func (s *side) intent() *discoveryac.ForeignClusterApplyConfiguration {
	outgoing, insecure, name := discoveryv1alpha1.PeeringNo, true, s.name
	if same := s.facts.same(s.other.facts.identity.ClusterID); same != nil {
		if same.Spec.OutgoingPeeringEnabled == discoveryv1alpha1.PeeringYes {
			outgoing = discoveryv1alpha1.PeeringYes
		}
		if same.Spec.InsecureSkipTLSVerify != nil {
			insecure = *same.Spec.InsecureSkipTLSVerify
		}
		if identity := same.Spec.ClusterIdentity; identity != nil && identity.ClusterName != "" {
			name = identity.ClusterName
		}
		if s.proxyURL == "" {
			s.proxyURL = same.Spec.ForeignProxyURL // until the present one is known
		}
	}
	if s.outgoing {
		outgoing = discoveryv1alpha1.PeeringYes
	}
	spec := discoveryac.ForeignClusterSpec().
		WithPeeringType(discoveryv1alpha1.InBand).
		WithClusterIdentity(discoveryac.ClusterIdentity().WithClusterID(s.other.facts.identity.ClusterID).WithClusterName(name)).
		WithForeignAuthURL(discoveryv1alpha1.AuthURLInside).WithInsecureSkipTLSVerify(insecure).
		WithClusterKey(s.other.facts.key).WithOutgoingPeeringEnabled(outgoing)
	if s.proxyURL != "" {
		spec.WithForeignProxyURL(s.proxyURL)
	}
	return discoveryac.ForeignCluster(s.name).
		WithLabels(map[string]string{labels.ClusterID: s.other.facts.identity.ClusterID, labels.DiscoveryType: labels.DiscoveryManual}).
		WithAnnotations(s.annotations).WithSpec(spec)
}

func (s *side) apply(ctx context.Context) error {
	if err := applyForeign(ctx, s.Client, s.intent()); err != nil {
		return fmt.Errorf("%s%w", s.prefix, err)
	}
	return nil
}

// follow watches the ForeignCluster of the other cluster.
func (s *side) follow(ctx context.Context, observe func(*discoveryv1alpha1.ForeignCluster) bool) error {
	return Follow(ctx, s.Client, &discoveryv1alpha1.ForeignClusterList{}, func(fcs []discoveryv1alpha1.ForeignCluster) (bool, error) {
		if len(fcs) == 0 {
			return false, fmt.Errorf("%sForeignCluster %q was deleted during the wait for its peering", s.prefix, s.name)
		}
		return observe(&fcs[0]), nil
	}, client.MatchingFields{"metadata.name": s.name})
}

// waitTenant waits for the namespace in which the networks are exchanged.
func (s *side) waitTenant(ctx context.Context) error {
	return s.follow(ctx, func(fc *discoveryv1alpha1.ForeignCluster) bool {
		s.tenant = fc.Status.TenantNamespace.Local
		return s.tenant != ""
	})
}

func (s *side) waitNetwork(ctx context.Context) error {
	return s.follow(ctx, func(fc *discoveryv1alpha1.ForeignCluster) bool {
		return conditionOf(fc, discoveryv1alpha1.NetworkStatus).Status == discoveryv1alpha1.StatusEstablished
	})
}

// waitProxy waits until the other cluster has an address for its proxy, under which this one reaches it.
func (s *side) waitProxy(ctx context.Context) error {
	own := s.facts.identity.ClusterID
	address, err := s.other.proxyFor(ctx, own)
	if err != nil {
		return err
	}
	s.proxyURL, err = proxy.URL(s.other.facts.proxyKey, own, address)
	return err
}

// proxyFor waits until this cluster has an address for its proxy, under which a peer reaches it.
func (s *side) proxyFor(ctx context.Context, peer string) (address string, _ error) {
	err := Follow(ctx, s.Client, &netv1alpha1.IPMappingList{}, func(all []netv1alpha1.IPMapping) (bool, error) {
		for i := range all {
			if strings.HasPrefix(all[i].Name, proxy.Service+"-") {
				address = all[i].Status.PeerAddresses[peer]
			}
		}
		return address != "", nil
	}, client.MatchingLabels{labels.ClusterID: peer})
	return address, err
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

func (s *side) end() replicate.End {
	return replicate.End{Client: s.Client, ID: s.facts.identity.ClusterID, Namespace: s.tenant}
}

func carryBoth(ctx context.Context, a, b replicate.End) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var group errgroup.Group
	for _, way := range [][2]replicate.End{{a, b}, {b, a}} {
		group.Go(func() error { return replicate.CarryNetwork(ctx, way[0], way[1]) })
	}
	return group.Wait()
}

// both does something in both clusters at the same time.
func both(sides []*side, do func(*side) error) error {
	var group errgroup.Group
	for _, s := range sides {
		group.Go(func() error { return do(s) })
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
