// SPDX-License-Identifier: Apache-2.0

// Package pair is two clusters that an administrator reaches both, with what each has of the other one. It must not know which
// action is run in them. Its proof are inband_checks_test.go of package peer and inband_test.go of package apiserver.
package pair

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
	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/await"
	"liqo.io/liqo/internal/action/deletion"
	"liqo.io/liqo/internal/action/foreign"
	"liqo.io/liqo/internal/action/installed"
	"liqo.io/liqo/internal/action/preflight"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/kube/ending"
	"liqo.io/liqo/internal/peering/proxy"
	"liqo.io/liqo/internal/peering/replicate/carry"
)

// Access is how a cluster is reached from here.
type Access struct {
	Client client.WithWatch
	// Namespace of Liqo in it.
	Namespace string
}

// Cluster is one of the two clusters, with what it has of the other one.
type Cluster struct {
	Access
	// Prefix names it in messages.
	Prefix string
	Facts  Facts
	Other  *Cluster
	// Name is that of the other cluster here, tenant the namespace of its objects.
	Name, Tenant string
	Outgoing     bool
	// Annotations of its ForeignCluster.
	Annotations map[string]string
	// proxyURL is that of the other cluster's proxy, once known.
	proxyURL string
}

// Foreign is the ForeignCluster of the other cluster, as far as waiting needs it.
func (s *Cluster) Foreign() *discoveryv1alpha1.ForeignCluster {
	fc := &discoveryv1alpha1.ForeignCluster{}
	fc.Name, fc.Annotations = s.Name, s.Annotations
	fc.Spec.PeeringType = discoveryv1alpha1.InBand
	fc.Spec.ClusterIdentity = &discoveryv1alpha1.ClusterIdentity{ClusterID: s.Other.Facts.Identity.ClusterID, ClusterName: s.Name}
	return fc
}

// intent is the desired ForeignCluster of the other cluster. An outgoing peering that is there stays.
func (s *Cluster) intent() *discoveryac.ForeignClusterApplyConfiguration {
	outgoing, insecure, name := discoveryv1alpha1.PeeringNo, true, s.Name
	if same := s.Facts.Same(s.Other.Facts.Identity.ClusterID); same != nil {
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
	if s.Outgoing {
		outgoing = discoveryv1alpha1.PeeringYes
	}
	spec := discoveryac.ForeignClusterSpec().
		WithPeeringType(discoveryv1alpha1.InBand).
		WithClusterIdentity(discoveryac.ClusterIdentity().WithClusterID(s.Other.Facts.Identity.ClusterID).WithClusterName(name)).
		WithForeignAuthURL(discoveryv1alpha1.AuthURLInside).WithInsecureSkipTLSVerify(insecure).
		WithClusterKey(s.Other.Facts.Key).WithOutgoingPeeringEnabled(outgoing)
	if s.proxyURL != "" {
		spec.WithForeignProxyURL(s.proxyURL)
	}
	return discoveryac.ForeignCluster(s.Name).
		WithLabels(map[string]string{labels.ClusterID: s.Other.Facts.Identity.ClusterID, labels.DiscoveryType: labels.DiscoveryManual}).
		WithAnnotations(s.Annotations).WithSpec(spec)
}

func (s *Cluster) Apply(ctx context.Context) error {
	if err := foreign.Apply(ctx, s.Client, s.intent()); err != nil {
		return fmt.Errorf("%s%w", s.Prefix, err)
	}
	return nil
}

// follow watches the ForeignCluster of the other cluster.
func (s *Cluster) follow(ctx context.Context, observe func(*discoveryv1alpha1.ForeignCluster) bool) error {
	return await.Follow(ctx, s.Client, &discoveryv1alpha1.ForeignClusterList{}, func(fcs []discoveryv1alpha1.ForeignCluster) (bool, error) {
		if len(fcs) == 0 {
			return false, fmt.Errorf("%sForeignCluster %q was deleted during the wait for its peering", s.Prefix, s.Name)
		}
		return observe(&fcs[0]), nil
	}, client.MatchingFields{"metadata.name": s.Name})
}

// WaitTenant waits for the namespace in which the networks are exchanged.
func (s *Cluster) WaitTenant(ctx context.Context) error {
	return s.follow(ctx, func(fc *discoveryv1alpha1.ForeignCluster) bool {
		s.Tenant = fc.Status.TenantNamespace.Local
		return s.Tenant != ""
	})
}

func (s *Cluster) WaitNetwork(ctx context.Context) error {
	return s.follow(ctx, func(fc *discoveryv1alpha1.ForeignCluster) bool {
		return foreign.Condition(fc, discoveryv1alpha1.NetworkStatus).Status == discoveryv1alpha1.StatusEstablished
	})
}

// WaitProxy waits until the other cluster has an address for its proxy, under which this one reaches it.
func (s *Cluster) WaitProxy(ctx context.Context) error {
	own := s.Facts.Identity.ClusterID
	address, err := s.Other.ProxyFor(ctx, own)
	if err != nil {
		return err
	}
	s.proxyURL, err = proxy.URL(s.Other.Facts.ProxyKey, own, address)
	return err
}

// ProxyFor waits until this cluster has an address for its proxy, under which a peer reaches it.
func (s *Cluster) ProxyFor(ctx context.Context, peer string) (address string, _ error) {
	err := await.Follow(ctx, s.Client, &netv1alpha1.IPMappingList{}, func(all []netv1alpha1.IPMapping) (bool, error) {
		for i := range all {
			if strings.HasPrefix(all[i].Name, proxy.Service+"-") {
				address = all[i].Status.PeerAddresses[peer]
			}
		}
		return address != "", nil
	}, client.MatchingLabels{labels.ClusterID: peer})
	return address, err
}

func (s *Cluster) End() carry.End {
	return carry.End{Client: s.Client, ID: s.Facts.Identity.ClusterID, Namespace: s.Tenant}
}

// Both does something in both clusters at the same time.
func Both(clusters []*Cluster, do func(*Cluster) error) error {
	var group errgroup.Group
	for _, s := range clusters {
		group.Go(func() error { return do(s) })
	}
	return group.Wait()
}

// Facts are what the checks of an in-band peering know of one of the clusters.
type Facts struct {
	Identity discoveryv1alpha1.ClusterIdentity
	// Err is why Liqo does not run there; empty if it does.
	Err error
	// Key is the fingerprint of its key, previous that of the key before, until all peers know the new one; proxyKey is the one from which passes to its
	// proxy are derived.
	Key, Previous string
	ProxyKey      []byte
	Known         []*discoveryv1alpha1.ForeignCluster
	// External: its network is not that of Liqo. proxy: it has one.
	External, Proxy bool
	// Refuses: it lets no cluster use it by default.
	Refuses bool
}

// Same is the ForeignCluster of another cluster, nil if there is none.
func (f *Facts) Same(clusterID string) *discoveryv1alpha1.ForeignCluster {
	for _, fc := range f.Known {
		if foreign.IdentityOf(fc) == clusterID {
			return fc
		}
	}
	return nil
}

// Read reads the facts of both clusters at the same time. Only an API server that does not answer is an error.
func Read(ctx context.Context, here, there Access, name string) (local, remote *Cluster, err error) {
	local, remote = &Cluster{Access: here, Prefix: "(local) "}, &Cluster{Access: there, Prefix: "(remote) "}
	local.Other, remote.Other = remote, local
	if err := Both([]*Cluster{local, remote}, func(s *Cluster) error {
		ctx, cancel := context.WithTimeout(ctx, await.CallTimeout)
		defer cancel()
		if err := s.Read(ctx); err != nil {
			return fmt.Errorf("%s%w", s.Prefix, err)
		}
		return nil
	}); err != nil {
		return nil, nil, err
	}
	local.Name, remote.Name = name, local.Facts.Identity.ClusterName
	if local.Name == "" {
		local.Name = remote.Facts.Identity.ClusterName
		if same := local.Facts.Same(remote.Facts.Identity.ClusterID); same != nil {
			local.Name = same.Name
		}
	}
	if same := remote.Facts.Same(local.Facts.Identity.ClusterID); same != nil {
		remote.Name = same.Name
	}
	return local, remote, nil
}

func (s *Cluster) Read(ctx context.Context) error {
	f := &s.Facts
	if f.Identity, f.Err = installed.Identity(ctx, s.Client, s.Namespace); f.Err != nil {
		if errors.Is(f.Err, installed.ErrNotInstalled) {
			return nil
		}
		return f.Err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		keys, err := installed.Keys(ctx, s.Client, s.Namespace)
		if err != nil {
			return err
		}
		if f.Key = keys.Fingerprint(); keys.Previous != nil {
			f.Previous = clusterkey.Fingerprint(clusterkey.Public(keys.Previous))
		}
		return nil
	})
	group.Go(func() error {
		var secret corev1.Secret
		err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: proxy.KeySecret}, &secret)
		f.ProxyKey, f.Proxy = secret.Data[proxy.KeyName], err == nil
		return ignoreNotFound(err, "read the key of the proxy")
	})
	group.Go(func() error {
		var manager appsv1.Deployment
		err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: installed.ManagerName}, &manager)
		args := installed.Arguments([]appsv1.Deployment{manager}, installed.ManagerName)
		f.External = installed.Argument(args, "disable-internal-network") == Yes
		f.Refuses = installed.Argument(args, "enable-incoming-peering") == "false"
		return ignoreNotFound(err, "read Deployment "+installed.ManagerName)
	})
	group.Go(func() error {
		var list discoveryv1alpha1.ForeignClusterList
		if err := s.Client.List(ctx, &list); err != nil {
			return fmt.Errorf("list ForeignClusters: %w", err)
		}
		for i := range list.Items {
			f.Known = append(f.Known, &list.Items[i])
		}
		return nil
	})
	return group.Wait()
}

const Yes = "true"

func ignoreNotFound(err error, doing string) error {
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// RefusesOther reports whether the settings of this cluster do not let the other one use it.
func (s *Cluster) RefusesOther() bool {
	fc := s.Facts.Same(s.Other.Facts.Identity.ClusterID)
	if fc != nil && fc.Spec.IncomingPeeringEnabled == discoveryv1alpha1.PeeringNo {
		return true
	}
	return s.Facts.Refuses && (fc == nil || fc.Spec.IncomingPeeringEnabled != discoveryv1alpha1.PeeringYes)
}

// Judge returns what forbids an in-band peering in one of the clusters.
func (s *Cluster) Judge() (all []preflight.Finding) {
	id := s.Other.Facts.Identity.ClusterID
	switch {
	case s.Facts.External:
		all = append(all, preflight.Finding{Check: "network", Evidence: "the network of Liqo is off (networking.internal=false), and an in-band peering goes " +
			"through it", Remedy: "peer out-of-band"})
	case !s.Facts.Proxy:
		all = append(all, preflight.Finding{
			Check: "proxy", Evidence: "there is no Secret " + proxy.KeySecret + ", so its version has no proxy yet",
			Remedy: "run `liqoctl upgrade` there",
		})
	}
	for _, fc := range s.Facts.Known {
		switch known := foreign.IdentityOf(fc); {
		case fc.Name == s.Name && known != id:
			all = append(all, preflight.Finding{Check: "known clusters", Evidence: fmt.Sprintf("the ForeignCluster %q belongs to another cluster, %s", fc.Name,
				known), Remedy: "choose another name, or end that peering first"})
		case known != id:
		case fc.Spec.PeeringType != discoveryv1alpha1.InBand:
			all = append(all, preflight.Finding{
				Check: "known clusters", Evidence: fmt.Sprintf("the clusters are peered already, and the ForeignCluster %q has the type %s", fc.Name, fc.Spec.PeeringType),
				Remedy: fmt.Sprintf("end that peering first, because the type cannot be changed: `liqoctl unpeer out-of-band %s`", fc.Name),
			})
		case fc.DeletionTimestamp != nil:
			all = append(all, preflight.Finding{Check: "known clusters", Evidence: fmt.Sprintf("the ForeignCluster %q has been in deletion since %s", fc.Name,
				fc.DeletionTimestamp.UTC().Format(time.RFC3339)), Remedy: "try again when it is gone"})
		case fc.Spec.ClusterKey != "" && fc.Spec.ClusterKey != s.Other.Facts.Key && fc.Spec.ClusterKey != s.Other.Facts.Previous:
			// Cluster IDs are public, so another cluster may have this one.
			all = append(all, preflight.Finding{
				Check: "known clusters", Evidence: fmt.Sprintf("the cluster %s is known here by another key, with the fingerprint %s, so this may be another cluster",
					id, fc.Spec.ClusterKey),
				Remedy: fmt.Sprintf("if it was installed again, end the old peering first, here: `liqoctl unpeer in-band %s --force`", fc.Name),
			})
		case fc.Name != s.Name:
			all = append(all, preflight.Finding{Check: "known clusters", Evidence: fmt.Sprintf("the cluster %s is known under another name, as ForeignCluster %q",
				id, fc.Name), Remedy: "use that name"})
		}
	}
	return all
}

// AwaitGone waits in both clusters until what they have of each other, and is being deleted, is gone. If it waited, both have to be read again.
func AwaitGone(ctx context.Context, clusters []*Cluster, timeout time.Duration, p action.Progress) (waited bool, err error) {
	for _, s := range clusters {
		id := s.Other.Facts.Identity.ClusterID
		meant := func(fc *discoveryv1alpha1.ForeignCluster) bool {
			return fc.Name == s.Name || id != "" && foreign.IdentityOf(fc) == id
		}
		if !slices.ContainsFunc(s.Facts.Known, func(fc *discoveryv1alpha1.ForeignCluster) bool { return ending.Is(fc) && meant(fc) }) {
			continue
		}
		waited = true
		if err := deletion.AwaitPeers(ctx, s.Client, timeout, meant, action.Prefix(p, s.Prefix)); err != nil {
			return waited, fmt.Errorf("%s%w", s.Prefix, err)
		}
	}
	return waited, nil
}
