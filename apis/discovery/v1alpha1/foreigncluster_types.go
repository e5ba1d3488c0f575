// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PeeringType says how the two control planes reach each other.
// +kubebuilder:validation:Enum=OutOfBand;InBand
type PeeringType string

const (
	// OutOfBand: API server and authentication service of the provider are reachable directly.
	OutOfBand PeeringType = "OutOfBand"
	// InBand: both are reached through the network fabric.
	InBand PeeringType = "InBand"
)

// PeeringEnabled says whether one direction of a peering is wanted.
// +kubebuilder:validation:Enum=Auto;No;Yes
type PeeringEnabled string

// The wishes for one direction.
const (
	// PeeringAuto follows the settings of the cluster.
	PeeringAuto PeeringEnabled = "Auto"
	PeeringNo   PeeringEnabled = "No"
	PeeringYes  PeeringEnabled = "Yes"
)

// ClusterIdentity is who a cluster says it is.
type ClusterIdentity struct {
	// ClusterID is the cluster's UUID. Immutable once set.
	// +kubebuilder:validation:XValidation:rule="oldSelf == '' || self == oldSelf",message="clusterID cannot be changed; create another ForeignCluster"
	ClusterID string `json:"clusterID"`
	// ClusterName is the cluster's name, a DNS-1123 label. Immutable once set.
	// +kubebuilder:validation:XValidation:rule="oldSelf == '' || self == oldSelf",message="clusterName cannot be changed; create another ForeignCluster"
	ClusterName string `json:"clusterName"`
}

// UniqueName is the cluster's name followed by six hexadecimal digits of the hash of its ID.
func (c ClusterIdentity) UniqueName() string {
	sum := sha256.Sum256([]byte(c.ClusterID))
	return c.ClusterName + "-" + hex.EncodeToString(sum[:])[:6]
}

// TenantNamespace is the name of the namespace that another cluster keeps for this one.
func (c ClusterIdentity) TenantNamespace() string { return "liqo-tenant-" + c.UniqueName() }

// NodeName is the name of the virtual node that stands for this cluster in another one, unless it is taken.
func (c ClusterIdentity) NodeName() string { return "liqo-" + c.ClusterName }

// NetworkConfigName is the name of the NetworkConfig by which this cluster tells another one of its network, and of the copy there. It is
// the sender's, and of the ID alone: the receiver knows it without asking, whatever names the two have for each other.
func (c ClusterIdentity) NetworkConfigName() string { return "network-" + c.ClusterID }

// ForeignClusterSpec is what is wanted of one remote cluster.
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.clusterIdentity) || has(self.clusterIdentity)",message="clusterIdentity cannot be removed; create another ForeignCluster"
type ForeignClusterSpec struct {
	// PeeringType says how the two control planes reach each other. Immutable.
	// +kubebuilder:default=OutOfBand
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="peeringType cannot be changed; unpeer, then peer again"
	// +optional
	PeeringType PeeringType `json:"peeringType,omitempty"`
	// ClusterIdentity is who the remote cluster is. If empty, it is asked at ForeignAuthURL.
	// +optional
	ClusterIdentity *ClusterIdentity `json:"clusterIdentity,omitempty"`
	// OutgoingPeeringEnabled says whether this cluster is to use resources of the remote one.
	// +kubebuilder:default=Auto
	// +optional
	OutgoingPeeringEnabled PeeringEnabled `json:"outgoingPeeringEnabled,omitempty"`
	// IncomingPeeringEnabled says whether the remote cluster may use resources of this one.
	// +kubebuilder:default=Auto
	// +optional
	IncomingPeeringEnabled PeeringEnabled `json:"incomingPeeringEnabled,omitempty"`
	// ForeignAuthURL is where the remote authentication service listens. It may be missing only in a
	// ForeignCluster that an incoming peering created, as long as no outgoing peering is wanted.
	// +kubebuilder:validation:Pattern=`^(https://[a-zA-Z0-9.\-\[\]:]+(:[0-9]{1,5})?(/.*)?)?$`
	// +optional
	ForeignAuthURL string `json:"foreignAuthUrl,omitempty"`
	// ForeignProxyURL is an HTTP CONNECT proxy through which the remote cluster is reached.
	// +optional
	ForeignProxyURL string `json:"foreignProxyUrl,omitempty"`
	// InsecureSkipTLSVerify accepts any certificate of the authentication service, which signs its own by default.
	// +kubebuilder:default=true
	// +optional
	InsecureSkipTLSVerify *bool `json:"insecureSkipTLSVerify,omitempty"`
	// TTL, for discovered clusters: seconds without a sign of life after which this object is removed.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TTL int `json:"ttl,omitempty"`
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
	// Reason says why, in one word that programs may compare.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message says why to people: what was checked, what was seen, what to try.
	// +optional
	Message string `json:"message,omitempty"`
}

// TenantNamespaces are the namespaces that the pair of clusters exchanges objects in.
type TenantNamespaces struct {
	// Local is the remote cluster's namespace in this cluster.
	// +optional
	Local string `json:"local,omitempty"`
	// Remote is this cluster's namespace in the remote one.
	// +optional
	Remote string `json:"remote,omitempty"`
}

// ForeignClusterStatus is what is known of one remote cluster.
type ForeignClusterStatus struct {
	// TenantNamespace names the two namespaces of this peering.
	// +optional
	TenantNamespace TenantNamespaces `json:"tenantNamespace,omitempty"`
	// PeeringConditions holds one condition per aspect.
	// +listType=map
	// +listMapKey=type
	// +optional
	PeeringConditions []PeeringCondition `json:"peeringConditions,omitempty"`
	// ObservedGeneration is the generation of the spec that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// RemoteVersion is the version of Liqo in the remote cluster, if known.
	// +optional
	RemoteVersion string `json:"remoteVersion,omitempty"`
}

// ForeignCluster is one remote cluster: which peerings are wanted with it, and how they stand.
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

// OwnerOf returns the ForeignCluster that stands for a cluster: the oldest one, if several claim to. The others are refused. It is nil
// if there is none.
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
