// SPDX-License-Identifier: Apache-2.0

package action

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	discoveryac "liqo.io/liqo/apis/applyconfiguration/discovery/v1alpha1"
	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/ending"
	"liqo.io/liqo/internal/peering/auth"
)

// PeerOptions name the cluster to peer with. The fields from AuthURL on are for PeerOutOfBand only.
type PeerOptions struct {
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
	Networks NetworkWords
	// Labels are those of the other cluster that cluster selectors may use.
	Labels LabelWords
}

// means reports whether a ForeignCluster is the one of these options.
func (o *PeerOptions) means(fc *discoveryv1alpha1.ForeignCluster) bool {
	return fc.Name == o.Name || identityOf(fc) == o.ClusterID
}

// Peer enables the outgoing peering with a cluster whose ForeignCluster has an authentication URL: one that this cluster
// used before, or that uses this one and offers to be used in turn.
func Peer(ctx context.Context, c client.WithWatch, o PeerOptions, p Progress) error {
	fc, err := ForeignCluster(ctx, c, o.Name)
	if err != nil {
		return err
	}
	if ending.Is(fc) {
		return fmt.Errorf("%s; when it is gone, run `liqoctl generate peer-command` in the other cluster, and the printed command here", EndingPeer(fc))
	}
	if fc.Spec.ForeignAuthURL == "" {
		return fmt.Errorf("ForeignCluster %q has no authentication URL: the remote cluster uses this one, and does not offer to be used in turn, because it allows no incoming peerings, "+
			"or its authentication service has no address that other clusters reach; if it may be used, run `liqoctl generate peer-command` there, and the printed command here", o.Name)
	}
	if err := o.Networks.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if err := judgeNetworks(ctx, c, o, fc, p); err != nil {
		return err
	}
	if err := o.Networks.write(ctx, c, fc.Name, p); err != nil {
		return err
	}
	if err := setOutgoing(ctx, c, fc, discoveryv1alpha1.PeeringYes, nil); err != nil {
		return fmt.Errorf("enable the outgoing peering with %q: %w", o.Name, err)
	}
	p.Done("Peering enabled")
	if err := waitPeering(ctx, c, fc, o.Timeout, p); err != nil {
		return err
	}
	o.Labels.accept(ctx, c, fc.Name, p)
	hintNetworks(ctx, c, fc.Name, p)
	return nil
}

// PeerOutOfBand makes this cluster a consumer of a provider whose API server and authentication service are reachable
// directly. It runs all checks, applies a Secret and a ForeignCluster, and then watches the conditions.
func PeerOutOfBand(ctx context.Context, c client.WithWatch, o PeerOptions, p Progress) error {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if err := o.Networks.check(); err != nil {
		return err
	}
	if err := awaitGone(ctx, c, o.Timeout, o.means, p); err != nil {
		return err
	}
	facts, err := runPreflight(ctx, c, o, p)
	if err != nil {
		return err
	}
	if err := judgeNetworks(ctx, c, o, facts.same, p); err != nil {
		return err
	}
	fc := facts.intent(o)
	if *fc.Name != o.Name {
		p.Info(fmt.Sprintf("This cluster knows %s already, as ForeignCluster %q, and uses that object", o.ClusterID, *fc.Name))
	}
	if err = storeToken(ctx, c, o, "token", map[string][]byte{tokenKey: []byte(o.Token)}); err == nil {
		err = applyForeign(ctx, c, fc)
	}
	if err != nil {
		return withdrawToken(ctx, c, o, *fc.Name, err)
	}
	p.Done("Peering enabled")
	if err := o.Networks.write(ctx, c, *fc.Name, p); err != nil {
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
	o.Labels.accept(ctx, c, live.Name, p)
	hintNetworks(ctx, c, live.Name, p)
	return nil
}

// storeToken stores what a provider has handed out, the token or what it goes with.
func storeToken(ctx context.Context, c client.Client, o PeerOptions, what string, content map[string][]byte) error {
	secret := corev1ac.Secret(auth.TokenSecretName(o.ClusterID), o.Namespace).
		WithLabels(map[string]string{labels.ClusterID: o.ClusterID, labels.AuthToken: ""}).
		WithType(corev1.SecretTypeOpaque).
		WithData(content)
	if err := retry(ctx, func(ctx context.Context) error {
		return c.Apply(ctx, secret, client.FieldOwner(labels.OwnerCLI), client.ForceOwnership)
	}); err != nil {
		return fmt.Errorf("store the %s of %q in Secret %s/%s: %w", what, o.Name, o.Namespace, *secret.Name, err)
	}
	return nil
}

// withdrawToken deletes the Secret of a peering that failed or was interrupted before it had a ForeignCluster, because no other command or controller would.
// It returns the failure, and what stays. The context may have ended.
func withdrawToken(ctx context.Context, c client.Client, o PeerOptions, foreign string, failed error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	// The Secret is read first, and deleted only as it was then: another command may be writing both.
	var secret corev1.Secret
	err := retry(ctx, func(ctx context.Context) error {
		return c.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: auth.TokenSecretName(o.ClusterID)}, &secret)
	})
	if err == nil {
		// A failed write may have reached the API server, and a peering that was there before needs the token.
		err = retry(ctx, func(ctx context.Context) error {
			return c.Get(ctx, client.ObjectKey{Name: foreign}, &discoveryv1alpha1.ForeignCluster{})
		})
		if err == nil {
			return failed
		}
		if apierrors.IsNotFound(err) {
			err = retry(ctx, func(ctx context.Context) error {
				err := c.Delete(ctx, &secret, client.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion})
				if apierrors.IsConflict(err) {
					return nil
				}
				return err
			})
		}
	}
	if client.IgnoreNotFound(err) == nil {
		return failed
	}
	return fmt.Errorf("%w; the token may still be in Secret %s/%s: %w; run the command again, or delete the Secret", failed, o.Namespace, auth.TokenSecretName(o.ClusterID), err)
}

func applyForeign(ctx context.Context, c client.Client, intent *discoveryac.ForeignClusterApplyConfiguration) error {
	if err := retry(ctx, func(ctx context.Context) error {
		return c.Apply(ctx, intent, client.FieldOwner(labels.OwnerCLI), client.ForceOwnership)
	}); err != nil {
		return fmt.Errorf("apply ForeignCluster %q: %w", *intent.Name, err)
	}
	return nil
}

// intent is the desired ForeignCluster. There is one object per cluster ID, so a known cluster keeps its object, for
// example one that an incoming peering created.
func (f *facts) intent(o PeerOptions) *discoveryac.ForeignClusterApplyConfiguration {
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

// setOutgoing applies the desired state of the outgoing direction, on top of the fields that liqoctl applied before.
func setOutgoing(ctx context.Context, c client.Client, fc *discoveryv1alpha1.ForeignCluster, outgoing discoveryv1alpha1.PeeringEnabled,
	change func(*discoveryac.ForeignClusterApplyConfiguration),
) error {
	return retry(ctx, func(ctx context.Context) error {
		// Each attempt reads the object again: an apply removes the fields that it leaves out.
		var live discoveryv1alpha1.ForeignCluster
		if err := c.Get(ctx, client.ObjectKeyFromObject(fc), &live); err != nil {
			return err
		}
		intent, err := appliedBefore(&live)
		if err != nil {
			return fmt.Errorf("read what liqoctl applied before: %w", err)
		}
		// With the UID, the API server refuses to change a namesake that was created in the meantime.
		intent.WithUID(fc.UID)
		intent.Spec.WithOutgoingPeeringEnabled(outgoing)
		if change != nil {
			change(intent)
		}
		return c.Apply(ctx, intent, client.FieldOwner(labels.OwnerCLI), client.ForceOwnership)
	})
}

// appliedBefore returns the fields that liqoctl has applied to an object and still owns, without the annotation of a forced
// end. Fields of other managers stay theirs: a GitOps tool keeps the fields of its manifest.
func appliedBefore(fc *discoveryv1alpha1.ForeignCluster) (*discoveryac.ForeignClusterApplyConfiguration, error) {
	intent := &discoveryac.ForeignClusterApplyConfiguration{}
	// The generated ExtractForeignCluster fails: the generated schema lacks the types of this API group. The deduced schema
	// suffices, because the object has no lists whose items have owners of their own.
	if err := managedfields.ExtractInto(fc, typed.DeducedParseableType, labels.OwnerCLI, intent, ""); err != nil {
		return nil, err
	}
	intent.WithName(fc.Name).WithKind("ForeignCluster").WithAPIVersion(discoveryv1alpha1.GroupVersion.String())
	delete(intent.Annotations, labels.ForceUnpeer)
	if intent.Spec == nil {
		intent.WithSpec(discoveryac.ForeignClusterSpec())
	}
	return intent, nil
}

// ForeignCluster reads one by name. If it does not exist, the error names the existing ones.
func ForeignCluster(ctx context.Context, c client.Reader, name string) (*discoveryv1alpha1.ForeignCluster, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var fc discoveryv1alpha1.ForeignCluster
	err := c.Get(ctx, client.ObjectKey{Name: name}, &fc)
	switch {
	case err == nil:
		return &fc, nil
	case notServed(err):
		return nil, errNotServed
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read ForeignCluster %q: %w", name, err)
	}
	names, err := ForeignClusterNames(ctx, c)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("there is no ForeignCluster %q: this cluster has no peers", name)
	}
	return nil, fmt.Errorf("there is no ForeignCluster %q; the existing ones are %s", name, strings.Join(names, ", "))
}

// ForeignClusterNames returns the sorted names of all clusters that this one knows.
func ForeignClusterNames(ctx context.Context, c client.Reader) ([]string, error) {
	var list discoveryv1alpha1.ForeignClusterList
	if err := c.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list ForeignClusters: %w", err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names, nil
}
