// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
)

// PeeringType is how the two control planes reach each other.
// +kubebuilder:validation:Enum=OutOfBand;InBand
type PeeringType string

const (
	// OutOfBand: API server and authentication service of the provider are reachable directly.
	OutOfBand PeeringType = "OutOfBand"
	// InBand: both are reached through the tunnel between the clusters.
	InBand PeeringType = "InBand"
)

// AuthURLInside is the URL of the authentication service of any cluster that is reached through the tunnel to it.
const AuthURLInside = "https://liqo-auth"

// ProxyPort is the port of the proxy of any cluster.
const ProxyPort = 8118

// maxURL is the limit of the fields with URLs, and authURLPattern the pattern of foreignAuthUrl.
const maxURL = 2 << 10

var authURLPattern = regexp.MustCompile(`^https://[a-zA-Z0-9.\-\[\]:]+(:[0-9]{1,5})?(/[a-zA-Z0-9._~/\-]*)?$`)

// ValidAuthURL reports whether a peer may state this URL of its authentication service. It accepts the empty one, of a cluster that the other cannot reach.
func ValidAuthURL(raw string) bool {
	if raw == "" {
		return true
	}
	parsed, err := url.Parse(raw)
	return err == nil && len(raw) <= maxURL && authURLPattern.MatchString(raw) && parsed.Hostname() != ""
}

// PeeringEnabled is whether one direction of a peering is desired.
type PeeringEnabled string

// The desired states of one direction.
const (
	// PeeringAuto follows the settings of the cluster.
	PeeringAuto PeeringEnabled = "Auto"
	PeeringNo   PeeringEnabled = "No"
	PeeringYes  PeeringEnabled = "Yes"
	// PeeringManual is for incoming peerings: all is prepared, and an administrator decides with Yes or No.
	PeeringManual PeeringEnabled = "Manual"
)

// ClusterIdentity is the identity that a cluster claims.
type ClusterIdentity struct {
	// ClusterID is the cluster's UUID. Immutable once set.
	// +kubebuilder:validation:XValidation:rule="oldSelf == '' || self == oldSelf",message="clusterID cannot be changed; create another ForeignCluster"
	ClusterID string `json:"clusterID"`
	// ClusterName is the cluster's name, a DNS-1123 label. Immutable once set.
	// +kubebuilder:validation:XValidation:rule="oldSelf == '' || self == oldSelf",message="clusterName cannot be changed; create another ForeignCluster"
	ClusterName string `json:"clusterName"`
}

const (
	tenantPrefix = "liqo-tenant-"
	nodePrefix   = "liqo-"
	hashLength   = 6
	// maxLabel is the length of a DNS-1123 label: of a namespace, and of the label with the name of a node.
	maxLabel = 63
)

// UniqueName returns the cluster's name followed by six hexadecimal digits of the hash of its ID. A name of more than 44 characters is cut to
// them, so that the name of the tenant namespace, and of everything else that contains the unique name, is a DNS-1123 label.
func (c ClusterIdentity) UniqueName() string {
	sum := sha256.Sum256([]byte(c.ClusterID))
	name := c.ClusterName
	if most := maxLabel - len(tenantPrefix) - len("-") - hashLength; len(name) > most {
		name = strings.TrimRight(name[:most], "-")
	}
	return name + "-" + hex.EncodeToString(sum[:])[:hashLength]
}

// TenantNamespace returns the name of the namespace that another cluster has for this one.
func (c ClusterIdentity) TenantNamespace() string { return tenantPrefix + c.UniqueName() }

// NodeName returns the name of the virtual node for this cluster in another one, unless the name is taken. With the name of the cluster in full it
// could be too long for the label kubernetes.io/hostname; then it contains the unique name.
func (c ClusterIdentity) NodeName() string {
	if name := nodePrefix + c.ClusterName; len(name) <= maxLabel {
		return name
	}
	return nodePrefix + c.UniqueName()
}

// NetworkConfigName returns the name of the NetworkConfig with which this cluster publishes its network to another one, and of the copy
// there. It depends only on the ID of the sender, so the receiver knows it, whatever names the two have for each other.
func (c ClusterIdentity) NetworkConfigName() string { return "network-" + c.ClusterID }

// ForeignClusterSpec is the desired peering with one remote cluster.
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.clusterIdentity) || has(self.clusterIdentity)",message="clusterIdentity cannot be removed; create another ForeignCluster"
type ForeignClusterSpec struct {
	// PeeringType is how the two control planes reach each other: OutOfBand, directly, or InBand, through the tunnel between the clusters. Immutable.
	// +kubebuilder:default=OutOfBand
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="peeringType cannot be changed; unpeer, then peer again"
	// +optional
	PeeringType PeeringType `json:"peeringType,omitempty"`
	// ClusterIdentity is the identity of the remote cluster. If empty, the service at ForeignAuthURL is asked for it.
	// +optional
	ClusterIdentity *ClusterIdentity `json:"clusterIdentity,omitempty"`
	// OutgoingPeeringEnabled is whether this cluster uses resources of the remote one.
	// +kubebuilder:default=Auto
	// +kubebuilder:validation:Enum=Auto;No;Yes
	// +optional
	OutgoingPeeringEnabled PeeringEnabled `json:"outgoingPeeringEnabled,omitempty"`
	// IncomingPeeringEnabled is whether the remote cluster may use resources of this one.
	// +kubebuilder:default=Auto
	// +kubebuilder:validation:Enum=Auto;No;Yes;Manual
	// +optional
	IncomingPeeringEnabled PeeringEnabled `json:"incomingPeeringEnabled,omitempty"`
	// ForeignAuthURL is the URL of the remote authentication service. It may be missing only in a
	// ForeignCluster that an incoming peering created, as long as no outgoing peering is desired.
	// +kubebuilder:validation:Pattern=`^(https://[a-zA-Z0-9.\-\[\]:]+(:[0-9]{1,5})?(/.*)?)?$`
	// +optional
	ForeignAuthURL string `json:"foreignAuthUrl,omitempty"`
	// ForeignProxyURL is an HTTP CONNECT proxy through which the remote cluster is reached. In-band, it is the proxy of the remote cluster, and has a
	// pass, which only counts the connections of this cluster there.
	// +optional
	ForeignProxyURL string `json:"foreignProxyUrl,omitempty"`
	// ClusterKey is the fingerprint of the remote cluster's key: the SHA-256 of its Ed25519 public key in unpadded base64url. Liqo takes it from
	// the token, and follows a rotation that the key itself signed. Nothing is sent to a cluster that does not prove to have this key.
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9_-]{43})?$`
	// +optional
	ClusterKey string `json:"clusterKey,omitempty"`
	// InsecureSkipProviderVerify accepts any key of the remote cluster if none is known, and keeps the first one. A machine on the way can then take
	// the place of the remote cluster.
	// +optional
	InsecureSkipProviderVerify bool `json:"insecureSkipProviderVerify,omitempty"`
	// InsecureSkipTLSVerify accepts any certificate of the authentication service, which signs its own by default. It affects only who can read
	// the names of the clusters on the way: the remote cluster is proven by ClusterKey.
	// +kubebuilder:default=true
	// +optional
	InsecureSkipTLSVerify *bool `json:"insecureSkipTLSVerify,omitempty"`
	// AcceptedLabels are the labels of the remote cluster that cluster selectors of NamespaceOffloadings consider: KEY, KEY=VALUE, PREFIX/* for all keys
	// with that prefix, or * for all. The others are also on the virtual node, but a remote cluster cannot get a namespace with them. If missing:
	// liqo.io/provider, topology.kubernetes.io/*, topology.liqo.io/* and node.kubernetes.io/instance-type.
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=381
	// +kubebuilder:validation:items:MinLength=1
	// +listType=set
	// +optional
	AcceptedLabels []string `json:"acceptedLabels,omitempty"`
	// NamespaceSelector selects, by their labels, the namespaces that the remote cluster may receive; kubernetes.io/metadata.name is the name. If
	// missing: all. A namespace that it no longer selects loses its remote namespace, with everything in it.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// Network is what the administrator knows of the remote cluster's network.
	// +optional
	Network *PeerNetwork `json:"network,omitempty"`
	// TTL is for discovered clusters, which a later version may have: seconds without an advertisement after which
	// this object is removed. No effect in this version.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TTL int `json:"ttl,omitempty"`
}

// PeerNetwork is what the administrator knows of the remote cluster's network. With Liqo's network, a network of the remote cluster that is listed exactly
// as announced is used as it is, and every other one is remapped. Where another network joins the clusters (networking.internal=false), no other
// address of the remote cluster counts.
type PeerNetwork struct {
	// PodCIDRs are the networks of the remote cluster's pods, and of what else of it is reached here (its external network), in CIDR notation. Nothing
	// else that nodes or pods of this cluster must reach may have an address in them: they lead to the remote cluster. Where another network joins the
	// clusters, this cluster believes no other address of the remote cluster: neither that of a pod, nor that of an endpoint.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Pattern=`^[0-9a-fA-F.:]{2,45}/[0-9]{1,3}$`
	// +listType=atomic
	// +optional
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// AcceptedCIDRs are networks to which the remote cluster may change, in CIDR notation. With Liqo's network, a change of its networks while they are in use
	// is refused, unless the new ones are listed here, and are remapped, or in PodCIDRs, and are used as they are.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Pattern=`^[0-9a-fA-F.:]{2,45}/[0-9]{1,3}$`
	// +listType=atomic
	// +optional
	AcceptedCIDRs []string `json:"acceptedCIDRs,omitempty"`
	// ForcedCIDRs are networks as in PodCIDRs that lead to the remote cluster although nodes of this cluster reach them without it (NodeReports). What the
	// nodes reach there now, they reach no more.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Pattern=`^[0-9a-fA-F.:]{2,45}/[0-9]{1,3}$`
	// +listType=atomic
	// +optional
	ForcedCIDRs []string `json:"forcedCIDRs,omitempty"`
}

// PeeringCondition is the state of one aspect of a peering.
type PeeringCondition struct {
	// Type names the aspect.
	Type PeeringConditionType `json:"type"`
	// Status is its state.
	// +kubebuilder:default=None
	Status PeeringConditionStatus `json:"status"`
	// LastTransitionTime is when Status last changed.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// Reason is the cause of the status, as one word that programs may compare.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is for people: what was checked, what was observed, what to try.
	// +optional
	Message string `json:"message,omitempty"`
}

// TenantNamespaces are the namespaces in which the two clusters exchange objects.
type TenantNamespaces struct {
	// Local is the remote cluster's namespace in this cluster.
	// +optional
	Local string `json:"local,omitempty"`
	// Remote is this cluster's namespace in the remote one.
	// +optional
	Remote string `json:"remote,omitempty"`
}

// IncomingState is whether this cluster lets the remote one use it.
// +kubebuilder:validation:Enum=Accepted;Waiting;Withdrawing;Refused
type IncomingState string

// The states of the incoming direction.
const (
	// IncomingAccepted: the remote cluster gets the rights of a consumer, namespaces, pods within its grant, and the network.
	IncomingAccepted IncomingState = "Accepted"
	// IncomingWaiting: an administrator of this cluster decides.
	IncomingWaiting IncomingState = "Waiting"
	// IncomingWithdrawing: it was accepted and is not any more. It gets nothing new, and has time to take its pods away.
	IncomingWithdrawing IncomingState = "Withdrawing"
	// IncomingRefused: it gets nothing.
	IncomingRefused IncomingState = "Refused"
)

// IncomingStatus is the decision on the incoming direction. All that this cluster gives to the remote one follows it.
type IncomingStatus struct {
	// State is the decision.
	State IncomingState `json:"state"`
	// Since is when State last changed.
	// +optional
	Since metav1.Time `json:"since,omitempty"`
	// Message is the reason of the decision, for people.
	// +optional
	Message string `json:"message,omitempty"`
}

// ForeignClusterStatus is the observed state of one remote cluster and of the peering with it.
type ForeignClusterStatus struct {
	// TenantNamespace names the two namespaces of this peering.
	// +optional
	TenantNamespace TenantNamespaces `json:"tenantNamespace,omitempty"`
	// Incoming is whether this cluster lets the remote one use it.
	// +optional
	Incoming *IncomingStatus `json:"incoming,omitempty"`
	// PeeringConditions holds one condition per aspect.
	// +listType=map
	// +listMapKey=type
	// +optional
	PeeringConditions []PeeringCondition `json:"peeringConditions,omitempty"`
	// ObservedGeneration is the generation of the spec to which the conditions refer.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// RemoteVersion is the version of Liqo in the remote cluster, if known.
	// +optional
	RemoteVersion string `json:"remoteVersion,omitempty"`
	// NetworkVersion is spec.version of the NetworkConfig of the remote cluster that was believed last, recorded when the tunnel ends. An older one
	// is not believed any more.
	// +optional
	NetworkVersion int64 `json:"networkVersion,omitempty"`
}

// ForeignCluster is one remote cluster: the desired peerings with it, and their state.
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=liqo
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.peeringType`
// +kubebuilder:printcolumn:name="ClusterID",type=string,priority=1,JSONPath=`.spec.clusterIdentity.clusterID`
// +kubebuilder:printcolumn:name="ClusterName",type=string,priority=1,JSONPath=`.spec.clusterIdentity.clusterName`
// +kubebuilder:printcolumn:name="Outgoing peering",type=string,JSONPath=`.status.peeringConditions[?(@.type == 'OutgoingPeering')].status`
// +kubebuilder:printcolumn:name="Incoming peering",type=string,JSONPath=`.status.peeringConditions[?(@.type == 'IncomingPeering')].status`
// +kubebuilder:printcolumn:name="Networking",type=string,JSONPath=`.status.peeringConditions[?(@.type == 'NetworkStatus')].status`
// +kubebuilder:printcolumn:name="API Server",type=string,priority=1,JSONPath=`.status.peeringConditions[?(@.type == 'APIServerStatus')].status`
// +kubebuilder:printcolumn:name="Authentication",type=string,JSONPath=`.status.peeringConditions[?(@.type == 'AuthenticationStatus')].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ForeignCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ForeignClusterSpec   `json:"spec,omitempty"`
	Status ForeignClusterStatus `json:"status,omitempty"`
}

// ForeignClusterList is a list of remote clusters.
// +kubebuilder:object:root=true
type ForeignClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ForeignCluster `json:"items"`
}

// OwnerOf returns the ForeignCluster of a cluster, nil if there is none. If several have the same cluster ID, it is the oldest; the
// others are refused.
func OwnerOf(all []ForeignCluster, clusterID string) (owner *ForeignCluster) {
	for i := range all {
		one := &all[i]
		if one.Spec.ClusterIdentity == nil || one.Spec.ClusterIdentity.ClusterID != clusterID {
			continue
		}
		if owner == nil || one.CreationTimestamp.Before(&owner.CreationTimestamp) ||
			one.CreationTimestamp.Equal(&owner.CreationTimestamp) && one.Name < owner.Name {
			owner = one
		}
	}
	return owner
}

// PodCIDRs returns the networks of the remote cluster's pods that the administrator wrote down.
func (fc *ForeignCluster) PodCIDRs() []string {
	if fc.Spec.Network == nil {
		return nil
	}
	return fc.Spec.Network.PodCIDRs
}

// Inside reports whether API server and authentication service of the remote cluster are reached through the tunnel: always if the peering is in-band, and
// otherwise if a consumer that is not reachable directly has offered that to its provider.
func (fc *ForeignCluster) Inside() bool {
	return fc.InBand() || fc.Spec.ForeignAuthURL == AuthURLInside
}

// InBand reports whether the peering is in-band.
func (fc *ForeignCluster) InBand() bool { return fc.Spec.PeeringType == InBand }

// OnlyIncoming reports whether it exists only because the remote cluster uses this one. It is then deleted with that use. In-band, the tunnel goes with it, and
// no direction could start again without that, so it stays as long as the tunnel works.
func (fc *ForeignCluster) OnlyIncoming() bool {
	return !fc.InBand() && fc.Labels[labels.DiscoveryType] == labels.DiscoveryIncoming && fc.Spec.OutgoingPeeringEnabled != PeeringYes
}

// Accepts reports whether the remote cluster may use this one: create namespaces and pods, and join the network.
func (fc *ForeignCluster) Accepts() bool {
	return fc.Status.Incoming != nil && fc.Status.Incoming.State == IncomingAccepted
}

// Keeps reports whether what the remote cluster has here stays for now: it is accepted, has time to take it away, or nothing is decided yet. The
// absence of a decision is no refusal.
func (fc *ForeignCluster) Keeps() bool {
	return fc.Status.Incoming == nil || fc.Status.Incoming.Keeps()
}

// Keeps reports whether what the remote cluster has here stays for now.
func (s *IncomingStatus) Keeps() bool {
	return s.State == IncomingAccepted || s.State == IncomingWithdrawing
}
