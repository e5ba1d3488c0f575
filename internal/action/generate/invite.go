// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryac "liqo.io/liqo/apis/applyconfiguration/discovery/v1alpha1"
	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/await"
	"liqo.io/liqo/internal/action/pair"
	"liqo.io/liqo/internal/action/tokens"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/network/signature"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/invitation"
	"liqo.io/liqo/internal/peering/proxy"
	"liqo.io/liqo/internal/peering/replicate/carry"
)

// InviteCommand is what another cluster needs to peer in-band with this one, when no administrator has access to both.
type InviteCommand struct {
	PeerCommand
	// Invitation is secret, as the token.
	Invitation invitation.Invitation
	// Name is that of the ForeignCluster of the invitation, and Expires when it ends.
	Name    string
	Expires time.Time
}

// Args are the arguments of liqoctl in the other cluster.
func (c InviteCommand) Args() []string {
	return []string{"peer", "in-band", c.ClusterName, "--cluster-id", c.ClusterID, "--auth-token", c.Token, "--invitation", c.Invitation.String()}
}

// inviteTimeout bounds the wait for the tunnel of an invitation.
const inviteTimeout = 30 * time.Second

// guest is the peer that an invitation pretends to be until it is used: it has a key of WireGuard, and no API server. The private half of keys, which signs
// its network, is forgotten with this process.
type guest struct {
	discoveryv1alpha1.ClusterIdentity
	keys            clusterkey.Keys
	private, public []byte
}

func newGuest() (*guest, error) {
	random := make([]byte, 4)
	_, _ = rand.Read(random) // never fails
	g := &guest{ClusterIdentity: discoveryv1alpha1.ClusterIdentity{ClusterID: string(uuid.NewUUID()), ClusterName: fmt.Sprintf("invitation-%x", random)}}
	var err error
	if g.keys, err = clusterkey.Generate(); err != nil {
		return nil, err
	}
	g.private, g.public, err = invitation.NewKey()
	return g, err
}

// networks are those that the guest claims. The cluster assigns others if these are taken.
func (g *guest) networks() (pods, external string) {
	block := byte(g.public[0])
	return fmt.Sprintf("172.31.%d.64/30", block), fmt.Sprintf("172.31.%d.16/28", block)
}

// Invite prepares an in-band peering in this cluster, the provider, so that the other one needs one command.
func Invite(ctx context.Context, c client.WithWatch, namespace string, o tokens.Options, p action.Progress) (*InviteCommand, error) {
	if o.Shared {
		return nil, errors.New("an invitation is for one cluster, and so is its token: leave out --shared")
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &pair.Cluster{Access: pair.Access{Client: c, Namespace: namespace}}
	if err := s.Read(ctx); err != nil {
		return nil, err
	}
	switch f := &s.Facts; {
	case f.Err != nil:
		return nil, f.Err
	case f.External:
		return nil, errors.New("the network of Liqo is off (networking.internal=false), and an in-band peering goes through it; use the command without --in-band")
	case !f.Proxy:
		return nil, fmt.Errorf("there is no Secret %s, so this version of Liqo has no proxy yet; run `liqoctl upgrade`", proxy.KeySecret)
	}
	g, err := newGuest()
	if err != nil {
		return nil, err
	}
	command := &InviteCommand{
		PeerCommand: PeerCommand{ClusterName: s.Facts.Identity.ClusterName, ClusterID: s.Facts.Identity.ClusterID, AuthURL: discoveryv1alpha1.AuthURLInside},
		Name:        g.ClusterName, Expires: time.Now().Add(cmp.Or(o.Expires, tokens.Lifetime)).UTC().Truncate(time.Second),
	}
	secret, err := tokens.Issue(ctx, c, namespace, o, time.Now())
	if err != nil {
		return nil, err
	}
	command.Token = auth.Token{Secret: secret, Fingerprint: s.Facts.Key}.String()
	s.Name, s.Other = g.ClusterName, &pair.Cluster{Facts: pair.Facts{Identity: g.ClusterIdentity, Key: g.keys.Fingerprint()}}
	p.Start("Opening a way for the invitation")
	ctx, cancel := context.WithTimeout(ctx, inviteTimeout)
	defer cancel()
	if err := open(ctx, s, g, command, auth.TokenID(secret)); err != nil {
		p.Stop()
		fc := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: g.ClusterName}}
		last, end := context.WithTimeout(context.WithoutCancel(ctx), await.CallTimeout)
		defer end()
		return nil, errors.Join(fmt.Errorf("open a way for the invitation: %w", err), client.IgnoreNotFound(c.Delete(last, fc)))
	}
	p.Stop()
	return command, nil
}

// open makes the tunnel of an invitation: it writes what the guest would write, if it had an API server.
func open(ctx context.Context, s *pair.Cluster, g *guest, command *InviteCommand, tokenID string) error {
	fc := discoveryac.ForeignCluster(g.ClusterName).
		WithLabels(map[string]string{labels.ClusterID: g.ClusterID, labels.DiscoveryType: labels.DiscoveryManual, labels.Invitation: tokenID}).
		WithAnnotations(map[string]string{labels.InvitationExpires: command.Expires.Format(time.RFC3339)}).
		WithSpec(discoveryac.ForeignClusterSpec().WithPeeringType(discoveryv1alpha1.InBand).
			WithClusterIdentity(discoveryac.ClusterIdentity().WithClusterID(g.ClusterID).WithClusterName(g.ClusterName)).
			WithForeignAuthURL(discoveryv1alpha1.AuthURLInside).WithClusterKey(g.keys.Fingerprint()).
			WithOutgoingPeeringEnabled(discoveryv1alpha1.PeeringNo).WithIncomingPeeringEnabled(discoveryv1alpha1.PeeringManual))
	if err := s.Client.Apply(ctx, fc, client.FieldOwner(labels.OwnerCLI), client.ForceOwnership); err != nil {
		return fmt.Errorf("apply ForeignCluster %q: %w", g.ClusterName, err)
	}
	if err := s.WaitTenant(ctx); err != nil {
		return err
	}
	to := s.End()
	ours, err := waitConfig(ctx, s, s.Facts.Identity.NetworkConfigName(), func(config *netv1alpha1.NetworkConfig) bool {
		return len(config.Spec.Lanes) > 0 && len(config.Spec.Signatures) > 0
	})
	if err != nil {
		return err
	}
	lane, endpoints := reachable(ours.Spec.Lanes)
	if len(endpoints) == 0 {
		return errors.New("no gateway of this cluster has an address at which others reach it over UDP; see `kubectl -n liqo get services -l net.liqo.io/gateway`")
	}
	pods, external := g.networks()
	spec := &netv1alpha1.NetworkConfigSpec{
		Cluster: netv1alpha1.ClusterIdentity{ClusterID: s.Facts.Identity.ClusterID, ClusterName: s.Facts.Identity.ClusterName},
		PodCIDR: netv1alpha1.CIDR(pods), ExternalCIDR: netv1alpha1.CIDR(external), BackendType: ours.Spec.BackendType, Version: time.Now().UnixMilli(),
		BackendConfig: map[string]string{"publicKey": base64.StdEncoding.EncodeToString(g.public)},
		Lanes:         []netv1alpha1.Lane{{Number: lane.Number, PublicKey: base64.StdEncoding.EncodeToString(g.public)}},
	}
	spec.Signatures = signature.Config(g.keys, g.ClusterID, spec)
	if err := carry.Announce(ctx, to, g.ClusterID, spec); err != nil {
		return err
	}
	if err := carry.Answer(ctx, to, ours, func(answer *netv1alpha1.NetworkConfigStatus) []netv1alpha1.Signature {
		return signature.Answer(g.keys, signature.Exchange{Asker: s.Facts.Identity.ClusterID, Answerer: g.ClusterID, Config: &ours.Spec, Answer: answer})
	}); err != nil {
		return err
	}
	theirs, err := waitConfig(ctx, s, g.NetworkConfigName(), func(config *netv1alpha1.NetworkConfig) bool { return config.Status.Processed })
	if err != nil {
		return err
	}
	command.Invitation.Endpoints = endpoints
	if command.Invitation.PublicKey, err = base64.StdEncoding.DecodeString(lane.PublicKey); err != nil {
		return fmt.Errorf("the key of gateway %d is not readable", lane.Number)
	}
	return complete(ctx, s, g, command, theirs)
}

// complete waits for the address of the proxy in the tunnel, and completes the command.
func complete(ctx context.Context, s *pair.Cluster, g *guest, command *InviteCommand, theirs *netv1alpha1.NetworkConfig) error {
	seen := theirs.Status.PodCIDRNAT
	if seen == "" || seen == netv1alpha1.NotRemapped {
		seen = string(theirs.Spec.PodCIDR)
	}
	network, err := netip.ParsePrefix(seen)
	if err != nil {
		return fmt.Errorf("the network of the invitation is %.60q", seen)
	}
	address, err := s.ProxyFor(ctx, g.ClusterID)
	if err != nil {
		return err
	}
	at, err := netip.ParseAddr(address)
	if err != nil {
		return fmt.Errorf("the address of the proxy is %.60q", address)
	}
	pass, err := proxy.Pass(s.Facts.ProxyKey, g.ClusterID)
	if err != nil {
		return err
	}
	to := &command.Invitation
	to.PrivateKey, to.Address, to.Proxy, to.User, to.Pass = g.private, network.Addr().Next(), netip.AddrPortFrom(at, proxy.Port), g.ClusterID, pass
	return nil
}

// waitConfig waits for a NetworkConfig in the namespace of the other cluster.
func waitConfig(ctx context.Context, s *pair.Cluster, name string, done func(*netv1alpha1.NetworkConfig) bool) (found *netv1alpha1.NetworkConfig, _ error) {
	err := await.Follow(ctx, s.Client, &netv1alpha1.NetworkConfigList{}, func(all []netv1alpha1.NetworkConfig) (bool, error) {
		for i := range all {
			if found = &all[i]; found.Name == name && done(found) {
				return true, nil
			}
		}
		return false, nil
	}, client.InNamespace(s.Tenant))
	if err != nil {
		return nil, fmt.Errorf("wait for network configuration %s/%s: %w; see `liqoctl status`", s.Tenant, name, err)
	}
	return found, nil
}

// reachable is the first lane whose gateway others reach over UDP, and where.
func reachable(lanes []netv1alpha1.Lane) (lane *netv1alpha1.Lane, endpoints []string) {
	for i := range lanes {
		for _, carrier := range lanes[i].Carriers {
			if carrier.Type != netv1alpha1.CarrierUDP {
				continue
			}
			for _, address := range carrier.Addresses {
				endpoints = append(endpoints, net.JoinHostPort(address, strconv.Itoa(int(carrier.Port))))
			}
		}
		if len(endpoints) > 0 {
			return &lanes[i], endpoints
		}
	}
	return nil, nil
}
