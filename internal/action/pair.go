// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryac "liqo.io/liqo/apis/applyconfiguration/discovery/v1alpha1"
	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/kube/ending"
	"liqo.io/liqo/internal/peering/proxy"
	"liqo.io/liqo/internal/peering/replicate"
)

// Access is how a cluster is reached from here.
type Access struct {
	Client client.WithWatch
	// Namespace of Liqo in it.
	Namespace string
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

func (s *side) end() replicate.End {
	return replicate.End{Client: s.Client, ID: s.facts.identity.ClusterID, Namespace: s.tenant}
}

// both does something in both clusters at the same time.
func both(sides []*side, do func(*side) error) error {
	var group errgroup.Group
	for _, s := range sides {
		group.Go(func() error { return do(s) })
	}
	return group.Wait()
}

// sideFacts are what the checks of an in-band peering know of one of the clusters.
type sideFacts struct {
	identity discoveryv1alpha1.ClusterIdentity
	// err is why Liqo does not run there; empty if it does.
	err error
	// key is the fingerprint of its key, previous that of the key before, until all peers know the new one; proxyKey is the one from which passes to its
	// proxy are derived.
	key, previous string
	proxyKey      []byte
	known         []*discoveryv1alpha1.ForeignCluster
	// external: its network is not that of Liqo. proxy: it has one.
	external, proxy bool
	// refuses: it lets no cluster use it by default.
	refuses bool
}

// same is the ForeignCluster of another cluster, nil if there is none.
func (f *sideFacts) same(clusterID string) *discoveryv1alpha1.ForeignCluster {
	for _, fc := range f.known {
		if identityOf(fc) == clusterID {
			return fc
		}
	}
	return nil
}

// readSides reads the facts of both clusters at the same time. Only an API server that does not answer is an error.
func readSides(ctx context.Context, here, there Access, name string) (local, remote *side, err error) {
	local, remote = &side{Access: here, prefix: "(local) "}, &side{Access: there, prefix: "(remote) "}
	local.other, remote.other = remote, local
	if err := both([]*side{local, remote}, func(s *side) error {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		if err := s.read(ctx); err != nil {
			return fmt.Errorf("%s%w", s.prefix, err)
		}
		return nil
	}); err != nil {
		return nil, nil, err
	}
	local.name, remote.name = name, local.facts.identity.ClusterName
	if local.name == "" {
		local.name = remote.facts.identity.ClusterName
		if same := local.facts.same(remote.facts.identity.ClusterID); same != nil {
			local.name = same.Name
		}
	}
	if same := remote.facts.same(local.facts.identity.ClusterID); same != nil {
		remote.name = same.Name
	}
	return local, remote, nil
}

func (s *side) read(ctx context.Context) error {
	f := &s.facts
	if f.identity, f.err = LocalIdentity(ctx, s.Client, s.Namespace); f.err != nil {
		if errors.Is(f.err, ErrNotInstalled) {
			return nil
		}
		return f.err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		keys, err := clusterKeys(ctx, s.Client, s.Namespace)
		if err != nil {
			return err
		}
		if f.key = keys.Fingerprint(); keys.Previous != nil {
			f.previous = clusterkey.Fingerprint(clusterkey.Public(keys.Previous))
		}
		return nil
	})
	group.Go(func() error {
		var secret corev1.Secret
		err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: proxy.KeySecret}, &secret)
		f.proxyKey, f.proxy = secret.Data[proxy.KeyName], err == nil
		return ignoreNotFound(err, "read the key of the proxy")
	})
	group.Go(func() error {
		var manager appsv1.Deployment
		err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: managerName}, &manager)
		args := argsOf([]appsv1.Deployment{manager}, managerName)
		f.external = argument(args, "disable-internal-network") == annotationYes
		f.refuses = argument(args, "enable-incoming-peering") == "false"
		return ignoreNotFound(err, "read Deployment "+managerName)
	})
	group.Go(func() error {
		var list discoveryv1alpha1.ForeignClusterList
		if err := s.Client.List(ctx, &list); err != nil {
			return fmt.Errorf("list ForeignClusters: %w", err)
		}
		for i := range list.Items {
			f.known = append(f.known, &list.Items[i])
		}
		return nil
	})
	return group.Wait()
}

const annotationYes = "true"

func ignoreNotFound(err error, doing string) error {
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// refusesOther reports whether the settings of this cluster do not let the other one use it.
func (s *side) refusesOther() bool {
	fc := s.facts.same(s.other.facts.identity.ClusterID)
	if fc != nil && fc.Spec.IncomingPeeringEnabled == discoveryv1alpha1.PeeringNo {
		return true
	}
	return s.facts.refuses && (fc == nil || fc.Spec.IncomingPeeringEnabled != discoveryv1alpha1.PeeringYes)
}

// judge returns what forbids an in-band peering in one of the clusters.
func (s *side) judge() (all []Finding) {
	id := s.other.facts.identity.ClusterID
	switch {
	case s.facts.external:
		all = append(all, Finding{Check: "network", Evidence: "the network of Liqo is off (networking.internal=false), and an in-band peering goes through it", Remedy: "peer out-of-band"})
	case !s.facts.proxy:
		all = append(all, Finding{Check: "proxy", Evidence: "there is no Secret " + proxy.KeySecret + ", so its version has no proxy yet", Remedy: "run `liqoctl upgrade` there"})
	}
	for _, fc := range s.facts.known {
		switch known := identityOf(fc); {
		case fc.Name == s.name && known != id:
			all = append(all, Finding{Check: "known clusters", Evidence: fmt.Sprintf("the ForeignCluster %q belongs to another cluster, %s", fc.Name, known), Remedy: "choose another name, or end that peering first"})
		case known != id:
		case fc.Spec.PeeringType != discoveryv1alpha1.InBand:
			all = append(all, Finding{
				Check: "known clusters", Evidence: fmt.Sprintf("the clusters are peered already, and the ForeignCluster %q has the type %s", fc.Name, fc.Spec.PeeringType),
				Remedy: fmt.Sprintf("end that peering first, because the type cannot be changed: `liqoctl unpeer out-of-band %s`", fc.Name),
			})
		case fc.DeletionTimestamp != nil:
			all = append(all, Finding{Check: "known clusters", Evidence: fmt.Sprintf("the ForeignCluster %q has been in deletion since %s", fc.Name, fc.DeletionTimestamp.UTC().Format(time.RFC3339)), Remedy: "try again when it is gone"})
		case fc.Spec.ClusterKey != "" && fc.Spec.ClusterKey != s.other.facts.key && fc.Spec.ClusterKey != s.other.facts.previous:
			// Cluster IDs are public, so another cluster may have this one.
			all = append(all, Finding{
				Check: "known clusters", Evidence: fmt.Sprintf("the cluster %s is known here by another key, with the fingerprint %s, so this may be another cluster", id, fc.Spec.ClusterKey),
				Remedy: fmt.Sprintf("if it was installed again, end the old peering first, here: `liqoctl unpeer in-band %s --force`", fc.Name),
			})
		case fc.Name != s.name:
			all = append(all, Finding{Check: "known clusters", Evidence: fmt.Sprintf("the cluster %s is known under another name, as ForeignCluster %q", id, fc.Name), Remedy: "use that name"})
		}
	}
	return all
}

// awaitBoth waits in both clusters until what they have of each other, and is being deleted, is gone. If it waited, both have to be read again.
func awaitBoth(ctx context.Context, sides []*side, timeout time.Duration, p Progress) (waited bool, err error) {
	for _, s := range sides {
		id := s.other.facts.identity.ClusterID
		meant := func(fc *discoveryv1alpha1.ForeignCluster) bool {
			return fc.Name == s.name || id != "" && identityOf(fc) == id
		}
		if !slices.ContainsFunc(s.facts.known, func(fc *discoveryv1alpha1.ForeignCluster) bool { return ending.Is(fc) && meant(fc) }) {
			continue
		}
		waited = true
		if err := awaitGone(ctx, s.Client, timeout, meant, Prefixed{p, s.prefix}); err != nil {
			return waited, fmt.Errorf("%s%w", s.prefix, err)
		}
	}
	return waited, nil
}
