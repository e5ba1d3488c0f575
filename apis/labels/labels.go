// SPDX-License-Identifier: Apache-2.0

// Package labels names every label, annotation, finalizer, taint and field owner that users,
// their scripts and our own processes rely on. It knows no kind and no client; the conventions
// TestLabels keeps such strings out of other packages.
package labels

// Labels of virtual nodes and of what is replicated to a peer.
const (
	// Type marks a virtual node, with the value TypeVirtualNode.
	Type            = "liqo.io/type"
	TypeVirtualNode = "virtual-node"
	// RemoteClusterID is on virtual nodes, namespace maps and twin namespaces: the peer's cluster ID.
	RemoteClusterID = "liqo.io/remote-cluster-id"
	// StorageAvailable is "true" on virtual nodes whose provider offers storage.
	StorageAvailable = "storage.liqo.io/available"
	// Provider is on virtual nodes: the kind of the provider's cluster.
	Provider = "liqo.io/provider"

	// SchedulingEnabled is "true" on offloaded namespaces whose pods may run elsewhere: their pods pass our webhook.
	SchedulingEnabled = "liqo.io/scheduling-enabled"
	// LabelProbe is on events that are never stored: the answer to one tells whether the API server knows of SchedulingEnabled.
	LabelProbe = "liqo.io/label-probe"

	// Origin is on objects that one cluster runs for another: the cluster ID of the one they belong to.
	Origin = "virtualkubelet.liqo.io/origin"
	// Destination is on the same: the cluster ID of the one that runs them.
	Destination = "virtualkubelet.liqo.io/destination"
	// ManagedBy is on pods and endpoint slices that one of our controllers makes from a peer's wish.
	ManagedBy                    = "liqo.io/managed-by"
	ManagedByShadowPod           = "shadowpod"
	ManagedByShadowEndpointSlice = "shadowendpointslice"
	// EndpointSliceReflection is the value of endpointslice.kubernetes.io/managed-by on slices that come from a peer.
	EndpointSliceReflection = "endpointslice.reflection.liqo.io"

	// Replication is "true" on an object that is to be copied to the peer, "false" on the copy.
	Replication = "liqo.io/replication"
	// RemoteID is the cluster an object is to be copied to.
	RemoteID = "liqo.io/remoteID"
	// OriginID is, on a copy, the cluster it came from.
	OriginID = "liqo.io/originID"
	// Replicated is "true" on a copy.
	Replicated = "liqo.io/replicated"
)

// Labels of peers and of what belongs to one.
const (
	// ClusterID is on foreign clusters, tenant namespaces and Secrets: the peer's cluster ID.
	ClusterID = "discovery.liqo.io/cluster-id"
	// DiscoveryType says how a foreign cluster came to be: one of the Discovery constants.
	DiscoveryType     = "discovery.liqo.io/discovery-type"
	DiscoveryManual   = "Manual"
	DiscoveryLAN      = "LAN"
	DiscoveryIncoming = "IncomingPeering"
	// TenantNamespace is "true" on the namespace of a peer.
	TenantNamespace = "discovery.liqo.io/tenant-namespace"
	// AuthToken is on Secrets that hold the token for first contact with a peer.
	AuthToken = "discovery.liqo.io/auth-token"
	// LocalIdentity is "true" on the Secret with our identity in a peer.
	LocalIdentity = "discovery.liqo.io/local-identity"
	// PinnedKey is "true" on the ConfigMap that pins a peer's public key.
	PinnedKey = "auth.liqo.io/pinned-key"
	// PeeringPermissions is on cluster roles bound to a peer: basic, incoming or outgoing.
	PeeringPermissions = "auth.liqo.io/remote-peering-permissions"
)

// Labels of the network.
const (
	// Gateway is "true" on the Services of gateways and "active" on their pods.
	Gateway       = "net.liqo.io/gateway"
	GatewayActive = "active"
	// GatewayLane is, on the same, the number of the lane, from 0.
	GatewayLane = "net.liqo.io/lane"
	// TunnelCluster is on tunnel endpoints: the peer's cluster ID.
	TunnelCluster = "clusterID"
	// Ownership says who made a network configuration: OwnershipConfig.
	Ownership       = "liqo.io/ownership"
	OwnershipConfig = "netcfgCreator"
)

// Labels of pods and what they need, on their way to a peer and there.
const (
	// ShadowPod is "true" on a local pod that runs in a peer.
	ShadowPod = "liqo.io/shadowPod"
	// TokenPod and TokenServiceAccount are on the Secret with the tokens of a pod: whose they are.
	TokenPod            = "virtualkubelet.liqo.io/service-account-for-pod-name"
	TokenServiceAccount = "virtualkubelet.liqo.io/service-account-name"
)

// Labels of Kubernetes that we read or set.
const (
	AppName      = "app.kubernetes.io/name"
	AppInstance  = "app.kubernetes.io/instance"
	AppComponent = "app.kubernetes.io/component"
	AppPartOf    = "app.kubernetes.io/part-of"
	AppManagedBy = "app.kubernetes.io/managed-by"
	AppVersion   = "app.kubernetes.io/version"
	// PartOf is the value of AppPartOf on all that is ours.
	PartOf = "liqo"
)

// Annotations.
const (
	// OverrideAddress and OverridePort, on the Services liqo-auth and liqo-gateway, replace what is published to peers.
	OverrideAddress = "liqo.io/override-address"
	OverridePort    = "liqo.io/override-port"
	// GatewayNodeIP, on the Service of a gateway, is the address of the node its pod runs on.
	GatewayNodeIP = "net.liqo.io/gatewayNodeIP"
	// RotateKeys, on the Secret liqo-gateway-keys, makes new keys for the tunnels when its value changes.
	RotateKeys = "net.liqo.io/rotate-keys"
	// ForceUnpeer, "true" on a foreign cluster, sets every deadline of taking the peering down to zero.
	ForceUnpeer = "liqo.io/force-unpeer"
	// ShadowPodRevision, on the pod of a ShadowPod, is the UID of the ShadowPod and a hash of the fields that the pod last received from it.
	ShadowPodRevision = "virtualkubelet.liqo.io/shadow-pod"
	// ManagedByNamespaceMap, on a twin namespace, is the namespace map that asked for it: NAMESPACE/NAME.
	ManagedByNamespaceMap = "liqo.io/managed-by-namespace-map"
	// OriginalName, on a twin namespace, is the name of the namespace in the cluster that it belongs to.
	OriginalName = "liqo.io/original-name"
	// APIServerSupport, on a NamespaceOffloading, is "false" if pods of the namespace that run elsewhere get no tokens for this cluster's
	// API server and are not told where it is. "true" is as if it were not there.
	APIServerSupport = "liqo.io/apiserver-support"
	// SharingPercentage, on a foreign cluster, replaces the cluster's sharing percentage for this peer: an integer from 0 to 100.
	SharingPercentage = "sharing.liqo.io/resource-sharing-percentage"
)

// Annotations of reflected objects.
const (
	// Fence is on shadow pods and, from there, on their pods: the UID of the pod here that they are for.
	Fence = "virtualkubelet.liqo.io/fence"
	// SkipReflection, whatever its value, keeps an object from the peers.
	SkipReflection = "liqo.io/skip-reflection"
	// ForceRemoteNodePort, "true" on a Service, asks the peers for the same node ports.
	ForceRemoteNodePort = "liqo.io/force-remote-node-port"
	// AntiAffinityPreset, on a pod, spreads pods over the nodes of the peer: one of the AntiAffinity constants.
	AntiAffinityPreset    = "liqo.io/anti-affinity-preset"
	AntiAffinitySoft      = "soft"
	AntiAffinityHard      = "hard"
	AntiAffinityPropagate = "propagate"
	// AntiAffinityLabels are the keys of the labels, with commas between, that tell whom the preset spreads.
	AntiAffinityLabels = "liqo.io/anti-affinity-labels"
	// TokenPodUID and TokenExpiration are on the Secret with the tokens of a pod: its UID here, and when the first token ends.
	TokenPodUID     = "virtualkubelet.liqo.io/service-account-for-pod-uid"
	TokenExpiration = "virtualkubelet.liqo.io/service-account-expiration"
	// TokenLifetime is for how many seconds the token with the shortest life was given, which may be less than was asked for.
	TokenLifetime = "virtualkubelet.liqo.io/service-account-lifetime"
)

// TaintVirtualNode keeps pods that are not offloaded away from virtual nodes; value "true", effect NoExecute.
const TaintVirtualNode = "virtual-node.liqo.io/not-allowed"

// Finalizers. Each is removed by one controller of the same cluster, within a deadline.
const (
	// FinalizerPeer is on foreign clusters: identity, tenant and rights of the peer are taken away first.
	FinalizerPeer = "foreigncluster.liqo.io/finalizer"
	// FinalizerReplication is on replicated objects: the copy is deleted first.
	FinalizerReplication = "crdReplicator.liqo.io"
	// FinalizerNode is on the consumer's resource slice: its virtual node is drained and deleted first.
	FinalizerNode = "liqo.io/node"
	// FinalizerGrant is on the provider's copy of a resource slice: what the peer runs here is taken away first.
	FinalizerGrant = "liqo.io/grant"
	// FinalizerPodEnd is on pods of shadow pods that may end for good: how they ended is written down first.
	FinalizerPodEnd = "virtualkubelet.liqo.io/pod-end"
	// FinalizerNamespaceOffloading is on namespace offloadings: the twins of the namespace are deleted first.
	FinalizerNamespaceOffloading = "namespaceoffloading-controller.liqo.io/finalizer"
	// FinalizerNamespaceMap is on the provider's copy of a namespace map: its twins are deleted first.
	FinalizerNamespaceMap = "namespacemap-controller.liqo.io/finalizer"
)

// Field owners of server-side apply, one per part that writes.
const (
	OwnerForeignCluster   = "liqo-foreigncluster"
	OwnerTenant           = "liqo-tenant"
	OwnerReplicate        = "liqo-replicate"
	OwnerGrant            = "liqo-grant"
	OwnerVirtualNode      = "liqo-virtualnode"
	OwnerVirtualKubelet   = "liqo-virtual-kubelet"
	OwnerShadowPod        = "shadow-pod"
	OwnerShadowSlice      = "shadow-endpointslice-controller"
	OwnerReflection       = "reflection.liqo.io"
	OwnerNetwork          = "liqo-network"
	OwnerOffloading       = "liqo-namespaceoffloading"
	OwnerNamespaceMap     = "liqo-namespacemap"
	OwnerRemoteNamespaces = "liqo-twins"
	OwnerCLI              = "liqoctl"
)
