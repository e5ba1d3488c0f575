// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/network/claim"
	"liqo.io/liqo/internal/network/signature"
	"liqo.io/liqo/internal/network/tenants"
)

// +kubebuilder:rbac:namespace=liqo,groups="",resources=secrets,resourceNames=liqo-cluster-key,verbs=list;watch
// +kubebuilder:rbac:groups=discovery.liqo.io,resources=foreignclusters/status,verbs=patch

// Identity reads the keys with which this cluster signs. Its cache has their Secret only.
type Identity struct {
	Cache cache.Cache
	name  client.ObjectKey
}

func NewIdentity(mgr manager.Manager, namespace string) (*Identity, error) {
	own, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}: {Namespaces: map[string]cache.Config{namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", clusterkey.Secret)}}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("create cache of the cluster key: %w", err)
	}
	return &Identity{own, client.ObjectKey{Namespace: namespace, Name: clusterkey.Secret}}, mgr.Add(own)
}

// Keys returns nil if the Secret does not exist yet: the controller of ForeignClusters creates it when it starts.
func (i *Identity) Keys(ctx context.Context) (*clusterkey.Keys, error) {
	var secret corev1.Secret
	if err := i.Cache.Get(ctx, i.name, &secret); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read the cluster key: %w", err)
	}
	keys, err := clusterkey.Parse(&secret)
	return &keys, err
}

// Latest returns what we announced last: what the cache has, unless this process signed something later, which the cache does not have yet. The peer refuses a
// version that is older than one that it used.
func Latest(cached *netv1alpha1.NetworkConfig, signed *netv1alpha1.NetworkConfigSpec) *netv1alpha1.NetworkConfig {
	if signed != nil && (cached == nil || cached.Spec.Version < signed.Version) {
		return &netv1alpha1.NetworkConfig{Spec: *signed}
	}
	return cached
}

// Sign sets the version and the signatures of what we announce. Version and signatures stay while the content and the keys do, so that nothing is
// written. The version is a time, so that it grows also after the object, or the whole cluster, was restored from a backup.
func Sign(keys clusterkey.Keys, local string, spec *netv1alpha1.NetworkConfigSpec, before *netv1alpha1.NetworkConfig, now time.Time) {
	spec.Version = now.UnixMilli()
	if before != nil && signedByUs(keys, local, &before.Spec) {
		old, stated := before.Spec.Carried(), spec.Carried()
		if old.Signatures, spec.Version, stated.Version = nil, old.Version, old.Version; !equality.Semantic.DeepEqual(old, stated) {
			spec.Version = max(now.UnixMilli(), old.Version+1)
		}
	}
	spec.Signatures = signature.Config(keys, local, spec)
}

// signedByUs reports whether our announcement is what this cluster signed: then its version is ours.
func signedByUs(keys clusterkey.Keys, local string, spec *netv1alpha1.NetworkConfigSpec) bool {
	return signature.CheckConfig(keys.Fingerprint(), local, spec) == nil ||
		keys.Previous != nil && signature.CheckConfig(clusterkey.Fingerprint(clusterkey.Public(keys.Previous)), local, spec) == nil
}

// Distrust returns why a peer's NetworkConfig is not believed; nil if it is. A replayed one was signed by the peer, but may have keys that were stolen
// and replaced since, so its version must not go back.
func Distrust(fc *discoveryv1alpha1.ForeignCluster, tunnel *netv1alpha1.TunnelEndpoint, theirs *netv1alpha1.NetworkConfig) *claim.Refusal {
	id, name := fc.Spec.ClusterIdentity.ClusterID, fc.Spec.ClusterIdentity.ClusterName
	switch err := signature.CheckConfig(fc.Spec.ClusterKey, id, &theirs.Spec); {
	case errors.Is(err, signature.ErrUnpinned):
		return claim.Refuse(netv1alpha1.ReasonKeyNotPinned, "cluster %s has not proven its key to this one yet, so its network is not believed; "+
			"first contact sets spec.clusterKey of ForeignCluster %s: "+
			"see `liqoctl status peer %[2]s`", name, fc.Name)
	case errors.Is(err, signature.ErrUnsigned):
		return claim.Refuse(
			netv1alpha1.ReasonNotSigned,
			"cluster %s did not sign its network, so another one may have written it; upgrade Liqo in that cluster if its version is an earlier one",
			name,
		)
	case err != nil:
		return claim.Refuse(netv1alpha1.ReasonSignatureInvalid, "this is not what cluster %s signed: %v. Check who else can write NetworkConfigs in namespace %s; "+
			"if that cluster has a new key, run `liqoctl generate peer-command` there, and the printed command here", name, err, theirs.Namespace)
	}
	last := fc.Status.NetworkVersion
	if tunnel != nil {
		last = max(last, tunnel.Spec.PeerVersion)
	}
	if theirs.Spec.Version < last {
		return claim.Refuse(netv1alpha1.ReasonVersionOld, "version %d of the network of cluster %s is older than %d, which this cluster used "+
			"before, so another one may have replayed it. "+
			"Check who else can write NetworkConfigs in namespace %s, and the clock of that cluster; if that was set back, unpeer and peer again", theirs.Spec.Version,
			name, last, theirs.Namespace)
	}
	return nil
}

// AnswerOf returns the prefixes under which the peer reaches our two networks, if the peer signed them. Of the rest of its answer nothing is believed:
// a refusal needs no signature, because an established tunnel stays as it is.
func AnswerOf(local string, to *tenants.Tenant, ours *netv1alpha1.NetworkConfig) (pods, external netip.Prefix, err error) {
	err = signature.CheckAnswer(to.FC.Spec.ClusterKey, signature.Exchange{
		Asker: local, Answerer: to.Peer.ClusterID, Config: &ours.Spec, Answer: &ours.Status,
	})
	if err != nil {
		return pods, external, err
	}
	return claim.ReadAnswer(ours)
}
