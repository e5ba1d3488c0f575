// SPDX-License-Identifier: Apache-2.0

// Package peer makes this cluster a consumer of another one: out-of-band, in-band with access to both clusters, or by an
// invitation. It checks before it changes anything (checks.go, facts.go, inband_checks.go), applies the desired state, and then
// watches the conditions that the controllers report (wait.go). Its tests prove the checks, and those of package apiserver the rest.
package peer

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryac "liqo.io/liqo/apis/applyconfiguration/discovery/v1alpha1"
	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/accept"
	"liqo.io/liqo/internal/action/deletion"
	"liqo.io/liqo/internal/action/foreign"
	"liqo.io/liqo/internal/action/tokens"
	"liqo.io/liqo/internal/kube/ending"
	"liqo.io/liqo/internal/peering/auth"
)

// Options name the cluster to peer with. The fields from AuthURL on are for PeerOutOfBand only.
type Options struct {
	// Name of the ForeignCluster.
	Name string
	// Namespace of Liqo in this cluster.
	Namespace string
	// Timeout bounds the whole action.
	Timeout time.Duration

	AuthURL   string
	ClusterID string
	// Token is the provider's token: the text that `generate peer-command` prints.
	Token string
	// InsecureSkipProviderVerify accepts a token without the fingerprint of the provider's key.
	InsecureSkipProviderVerify bool
	// SkipPreflight only warns if this machine cannot reach the provider.
	SkipPreflight bool
	// Networks are those of the other cluster that this one uses as they are.
	Networks accept.NetworkWords
	// Labels are those of the other cluster that cluster selectors may use.
	Labels accept.LabelWords
}

// held is the Secret for the provider's token.
func (o *Options) held() tokens.Held {
	return tokens.Held{Name: o.Name, ClusterID: o.ClusterID, Namespace: o.Namespace}
}

// means reports whether a ForeignCluster is the one of these options.
func (o *Options) means(fc *discoveryv1alpha1.ForeignCluster) bool {
	return fc.Name == o.Name || foreign.IdentityOf(fc) == o.ClusterID
}

// Enable enables the outgoing peering with a cluster whose ForeignCluster has an authentication URL: one that this cluster
// used before, or that uses this one and offers to be used in turn.
func Enable(ctx context.Context, c client.WithWatch, o Options, p action.Progress) error {
	fc, err := foreign.Get(ctx, c, o.Name)
	if err != nil {
		return err
	}
	if ending.Is(fc) {
		return fmt.Errorf("%s; when it is gone, run `liqoctl generate peer-command` in the other cluster, and the printed command here", deletion.Peer(fc))
	}
	if fc.Spec.ForeignAuthURL == "" {
		return fmt.Errorf("ForeignCluster %q has no authentication URL: the remote cluster uses this one, and does not offer to be used in turn, because it "+
			"allows no incoming peerings, "+
			"or its authentication service has no address that other clusters reach; if it may be used, run `liqoctl generate peer-command` there, and the "+
			"printed command here", o.Name)
	}
	if err := o.Networks.Check(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if err := o.Networks.JudgeFor(ctx, c, accept.Peer{Namespace: o.Namespace, ClusterID: o.ClusterID, Foreign: fc}, p); err != nil {
		return err
	}
	if err := o.Networks.Write(ctx, c, fc.Name, p); err != nil {
		return err
	}
	if err := foreign.SetOutgoing(ctx, c, fc, discoveryv1alpha1.PeeringYes, nil); err != nil {
		return fmt.Errorf("enable the outgoing peering with %q: %w", o.Name, err)
	}
	p.Done("Peering enabled")
	if err := waitPeering(ctx, c, fc, o.Timeout, p); err != nil {
		return err
	}
	o.Labels.Apply(ctx, c, fc.Name, p)
	accept.HintOverlap(ctx, c, fc.Name, p)
	return nil
}

// OutOfBand makes this cluster a consumer of a provider whose API server and authentication service are reachable
// directly. It runs all checks, applies a Secret and a ForeignCluster, and then watches the conditions.
func OutOfBand(ctx context.Context, c client.WithWatch, o Options, p action.Progress) error {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if err := o.Networks.Check(); err != nil {
		return err
	}
	if err := deletion.AwaitPeers(ctx, c, o.Timeout, o.means, p); err != nil {
		return err
	}
	facts, err := runPreflight(ctx, c, o, p)
	if err != nil {
		return err
	}
	if err := o.Networks.JudgeFor(ctx, c, accept.Peer{Namespace: o.Namespace, ClusterID: o.ClusterID, Foreign: facts.same}, p); err != nil {
		return err
	}
	fc := facts.intent(o)
	if *fc.Name != o.Name {
		p.Info(fmt.Sprintf("This cluster knows %s already, as ForeignCluster %q, and uses that object", o.ClusterID, *fc.Name))
	}
	if err = o.held().Store(ctx, c, "token", map[string][]byte{tokens.Key: []byte(o.Token)}); err == nil {
		err = foreign.Apply(ctx, c, fc)
	}
	if err != nil {
		return o.held().Withdraw(ctx, c, *fc.Name, err)
	}
	p.Done("Peering enabled")
	if err := o.Networks.Write(ctx, c, *fc.Name, p); err != nil {
		return err
	}

	live := &discoveryv1alpha1.ForeignCluster{}
	live.Name = *fc.Name
	live.Spec.ClusterIdentity = &discoveryv1alpha1.ClusterIdentity{
		ClusterID: *fc.Spec.ClusterIdentity.ClusterID, ClusterName: *fc.Spec.ClusterIdentity.ClusterName,
	}
	if err := waitPeering(ctx, c, live, o.Timeout, p); err != nil {
		return err
	}
	o.Labels.Apply(ctx, c, live.Name, p)
	accept.HintOverlap(ctx, c, live.Name, p)
	return nil
}

// intent is the desired ForeignCluster. There is one object per cluster ID, so a known cluster keeps its object, for
// example one that an incoming peering created.
func (f *facts) intent(o Options) *discoveryac.ForeignClusterApplyConfiguration {
	// The administrator chooses the name, and the virtual node is named after it.
	name, clusterName := o.Name, o.Name
	insecure, noProxy := true, false
	if f.same != nil {
		name = f.same.Name
		noProxy = hasNoProxy(f.same)
		if configured := f.same.Spec.InsecureSkipTLSVerify; configured != nil {
			insecure = *configured // keep a verification that the administrator has enabled
		}
		if identity := f.same.Spec.ClusterIdentity; identity != nil && identity.ClusterName != "" {
			clusterName = identity.ClusterName
		}
	}
	spec := discoveryac.ForeignClusterSpec().
		WithPeeringType(discoveryv1alpha1.OutOfBand).
		WithClusterIdentity(discoveryac.ClusterIdentity().WithClusterID(o.ClusterID).WithClusterName(clusterName)).
		WithForeignAuthURL(o.AuthURL).
		WithInsecureSkipTLSVerify(insecure).
		WithOutgoingPeeringEnabled(discoveryv1alpha1.PeeringYes)
	if noProxy {
		spec.WithForeignProxyURL("")
	}
	// The token is the word of the provider's administrator, so its key replaces one that was known before.
	if fingerprint := auth.ParseToken(o.Token).Fingerprint; fingerprint != "" {
		spec.WithClusterKey(fingerprint)
	}
	if o.InsecureSkipProviderVerify {
		spec.WithInsecureSkipProviderVerify(true)
	}
	return discoveryac.ForeignCluster(name).
		WithLabels(map[string]string{labels.ClusterID: o.ClusterID, labels.DiscoveryType: labels.DiscoveryManual}).
		WithSpec(spec)
}

// hasNoProxy reports whether a cluster that publishes its address is reached without the proxy on record: that in its tunnel leads to no published address, and
// once the object is of this command, the controllers no longer correct it. It stays true after this command has emptied the field: leaving it out would be
// another change. A proxy that an administrator has chosen stays.
func hasNoProxy(fc *discoveryv1alpha1.ForeignCluster) bool {
	return fc.Inside() || fc.Spec.ForeignProxyURL == "" && slices.ContainsFunc(fc.ManagedFields, func(one metav1.ManagedFieldsEntry) bool {
		return one.Manager == labels.OwnerCLI && one.FieldsV1 != nil && bytes.Contains(one.FieldsV1.GetRawBytes(), []byte(`"f:foreignProxyUrl"`))
	})
}
