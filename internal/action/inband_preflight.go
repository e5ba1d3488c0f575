// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/peering/proxy"
)

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
func readSides(ctx context.Context, o InBandOptions) (local, remote *side, err error) {
	local, remote = &side{Access: o.Local, prefix: "(local) "}, &side{Access: o.Remote, prefix: "(remote) "}
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
	local.name, remote.name = o.Name, local.facts.identity.ClusterName
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
		err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: components[0]}, &manager)
		args := (&localObjects{deployments: []appsv1.Deployment{manager}}).args(components[0])
		f.external = argument(args, "disable-internal-network") == annotationYes
		f.refuses = argument(args, "enable-incoming-peering") == "false"
		return ignoreNotFound(err, "read Deployment "+components[0])
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

// judgeInBand returns what forbids an in-band peering in the directions that are to be enabled. It is pure.
func judgeInBand(local, remote *side) (failures []Finding) {
	fail := func(check, evidence, remedy string) {
		failures = append(failures, Finding{Check: check, Level: LevelFailure, Evidence: evidence, Remedy: remedy})
	}
	for _, s := range []*side{local, remote} {
		if s.facts.err != nil {
			fail(s.prefix+"Liqo", s.facts.err.Error(), "install it, or choose another cluster with --context and --remote-context")
		}
	}
	if len(failures) > 0 {
		return failures
	}
	here, there := &local.facts, &remote.facts
	switch {
	case here.identity.ClusterID == there.identity.ClusterID:
		fail("clusters", fmt.Sprintf("both are %s (%s): local and remote clusters must be different", here.identity.ClusterName, here.identity.ClusterID),
			"choose the other one with --remote-context or --remote-kubeconfig")
		return failures
	case here.identity.ClusterName == there.identity.ClusterName:
		fail("names", fmt.Sprintf("both clusters have the name %s", here.identity.ClusterName), "install one of them with another --cluster-name")
	}
	if found := checkName(&facts{options: PeerOptions{Name: local.name}}); found != nil {
		fail("name", found.Evidence, found.Remedy)
	}
	for _, s := range []*side{local, remote} {
		for _, found := range s.judge() {
			found.Check, found.Level = s.prefix+found.Check, LevelFailure
			failures = append(failures, found)
		}
	}
	for _, s := range []*side{local, remote} {
		if s.other.outgoing && s.refusesOther() {
			fail(s.prefix+"incoming peering", "its settings do not let the other cluster use it",
				"set discovery.config.incomingPeeringEnabled in that cluster, or spec.incomingPeeringEnabled of its ForeignCluster, to Yes")
		}
	}
	return failures
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
