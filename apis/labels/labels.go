// SPDX-License-Identifier: Apache-2.0

// Package labels names every label, annotation, finalizer, taint and field owner that users,
// their scripts and our own processes rely on. It must not know any kind or client. TestLabels keeps these keys out of
// other packages.
package labels

// True is the value of labels and annotations that are set or not.
const True = "true"

// Labels of virtual nodes and of objects that are replicated to a peer.
const (
	// Type marks a virtual node, with the value TypeVirtualNode.
	Type            = "liqo.io/type"
	TypeVirtualNode = "virtual-node"
	// RemoteClusterID is on virtual nodes, NamespaceMaps and remote namespaces: the peer's cluster ID.
	RemoteClusterID = "liqo.io/remote-cluster-id"
	// OpenRemoteNamespace is an annotation that an administrator sets to "true" on a remote namespace: others than the peer may create pods, Secrets
	// and rights there, and the peer may execute nothing in its pods. Policies of the chart read it.
	OpenRemoteNamespace = "liqo.io/open-remote-namespace"
	// StorageProvisioner is on the namespace of the storage provisioner.
	StorageProvisioner = "liqo.io/storage-provisioner"
	// VirtualClaimNamespace and VirtualClaimName are on real claims: the claim of the user whose data they hold.
	VirtualClaimNamespace = "storage.liqo.io/virtual-pvc-namespace"
	VirtualClaimName      = "storage.liqo.io/virtual-pvc-name"
	// VirtualVolume is the name of the volume whose data a claim holds: a label of claims in the storage namespace, an annotation of those at a provider.
	VirtualVolume = "storage.liqo.io/virtual-volume"
	// RemoteNamespace, RemoteClaim and RemoteVolume are annotations of volumes whose data is at a provider: the namespace and the name of the claim there, and the
	// name of its volume, once the claim is bound. RemoteClaim may be there before; without it, the claim has the name of the one here.
	RemoteNamespace = "storage.liqo.io/remote-namespace"
	RemoteClaim     = "storage.liqo.io/remote-claim"
	RemoteVolume    = "storage.liqo.io/remote-volume"
	// RemoteStorageClass is an annotation of volumes whose data is at a provider: the storage class there.
	RemoteStorageClass = "storage.liqo.io/remote-storage-class"
	// RemoteDataSource is an annotation of volumes whose data is at a provider: the name of the claim there whose data it started with.
	RemoteDataSource = "storage.liqo.io/remote-data-source"
	// VolumeData is an annotation of volumes: the name of the volume that their data was made for, if a move gave them the data of another one.
	VolumeData = "storage.liqo.io/data"
	// Move is on every object of a move of a volume: the UID of the VolumeMove. MoveRole is what the object is for: one of the MoveRole constants.
	Move           = "storage.liqo.io/move"
	MoveRole       = "storage.liqo.io/move-role"
	MoveRoleSource = "source"
	MoveRoleTarget = "target"
	MoveRoleCopy   = "copy"
	MoveRoleProbe  = "probe"
	// ReclaimPolicy is an annotation of the second record of a volume that moves: the policy of the volume before. On the volume of the target it marks that the
	// claim gets its data.
	ReclaimPolicy = "storage.liqo.io/reclaim-policy"
	// ReturnedVolume is an annotation of claims that have moved: the UID of the volume that came back. Its change has Kubernetes look at the claim at once.
	ReturnedVolume = "storage.liqo.io/returned-volume"
	// ExternalClaim, with any value, is an annotation that a user sets on a claim: providers have a claim of that name with the same storage, which
	// others manage, so its pods may run there.
	ExternalClaim = "storage.liqo.io/external"
	// StorageAvailable is "true" on virtual nodes whose provider offers storage.
	StorageAvailable = "storage.liqo.io/available"
	// Provider is on virtual nodes: the kind of the provider's cluster.
	Provider = "liqo.io/provider"
	// ProviderLabels is an annotation of virtual nodes: the keys of the labels that the provider chose, separated by commas.
	ProviderLabels = "liqo.io/provider-labels"

	// SchedulingEnabled is "true" on offloaded namespaces whose pods may run in a peer: their pods pass our webhook.
	SchedulingEnabled = "liqo.io/scheduling-enabled"

	// Origin is on objects that one cluster runs for another: the cluster ID of their owner.
	Origin = "virtualkubelet.liqo.io/origin"
	// Destination is on the same objects: the ID of the cluster that runs them.
	Destination = "virtualkubelet.liqo.io/destination"
	// ManagedBy is on pods and EndpointSlices that one of our controllers creates for a peer.
	ManagedBy                    = "liqo.io/managed-by"
	ManagedByShadowPod           = "shadowpod"
	ManagedByShadowEndpointSlice = "shadowendpointslice"
	// EndpointSliceReflection is the value of endpointslice.kubernetes.io/managed-by on slices from a peer.
	EndpointSliceReflection = "endpointslice.reflection.liqo.io"

	// Replication is "true" on an object to be copied to the peer, "false" on the copy.
	Replication = "liqo.io/replication"
	// RemoteID is the ID of the cluster to which an object is copied.
	RemoteID = "liqo.io/remoteID"
	// OriginID is, on a copy, the ID of the cluster of the original.
	OriginID = "liqo.io/originID"
	// Replicated is "true" on a copy.
	Replicated = "liqo.io/replicated"

	// InstallRun is on the Helm record of an installation or upgrade: which run of liqoctl made it. InstallTimeout is how long that run may take.
	InstallRun     = "liqo.io/install-run"
	InstallTimeout = "liqo.io/install-timeout"

	// SpecDigest is on the admission policies, their bindings and the validating webhooks of the chart: the digest of what the chart made.
	SpecDigest = "liqo.io/spec-digest"
)

// Labels of peers and of their objects.
const (
	// ClusterID is on foreign clusters, tenant namespaces and Secrets: the peer's cluster ID.
	ClusterID = "discovery.liqo.io/cluster-id"
	// DiscoveryType is how a ForeignCluster was created: one of the Discovery constants.
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
	// PinnedKey is "true" on the ConfigMap that pins a peer's public key, "replacement" on the one with keys that are to replace it, and
	// "provider" on the one with the key of a provider that may register in turn.
	PinnedKey = "auth.liqo.io/pinned-key"
	// OwnKey is the fingerprint of the key of this cluster that the peer knows, on the Secret with our identity there; on a ForeignCluster, of the key
	// that the peer is to know: then the identity is renewed at once.
	OwnKey = "auth.liqo.io/own-key"
	// RenewedInside is why our identity in a peer was renewed through the tunnel, on the Secret with it; without it, it was not.
	RenewedInside = "auth.liqo.io/renewed-inside"
	// RenewalsOnly is "true" on the IPMapping of the proxy for a peer that may renew its identity there, and reach nothing else.
	RenewalsOnly = "auth.liqo.io/renewals-only"
	// RotatedAt is when `liqoctl rotate identity` replaced the keys, on the Secrets with the keys of this cluster. RFC 3339.
	RotatedAt = "auth.liqo.io/rotated-at"
	// SpentToken is "true" on the ConfigMap that records the use of a token that only one cluster may use.
	SpentToken = "auth.liqo.io/spent-token"
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
	// TunnelInBand is "true" on the tunnel endpoint of an in-band peering: the processes of Liqo reach the peer through it.
	TunnelInBand = "net.liqo.io/in-band"
	// TunnelShown is "true" on the tunnel endpoint of a peer that shows our pods under a network that leads nowhere else here: nodes lead it to these pods.
	TunnelShown = "net.liqo.io/shown"
	// Invitation is on the ForeignCluster of an invitation, and on the tunnel endpoint to it, which leads to the proxy only: the ID of the token that it
	// goes with.
	Invitation = "net.liqo.io/invitation"
	// ComponentManager is the value of AppComponent on the pods of the controller manager.
	ComponentManager = "controller-manager"
	// Ownership is the creator of a NetworkConfig: OwnershipConfig.
	Ownership       = "liqo.io/ownership"
	OwnershipConfig = "netcfgCreator"
)

// Labels of offloaded pods and of the objects they need.
const (
	// ShadowPod is "true" on a local pod that runs in a peer.
	ShadowPod = "liqo.io/shadowPod"
	// TokenPod and TokenServiceAccount are on the Secret with the tokens of a pod: the names of the pod and of its ServiceAccount.
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
	// PartOf is the value of AppPartOf on all objects of Liqo.
	PartOf = "liqo"
)

// Annotations.
const (
	// OverrideAddress and OverridePort, on the Services liqo-auth and liqo-gateway, replace the address and port that are published to peers.
	OverrideAddress = "liqo.io/override-address"
	OverridePort    = "liqo.io/override-port"
	// WebSocketURL, on the Service of a gateway's streams, is where peers open WebSockets: at a proxy that leads to it.
	WebSocketURL = "liqo.io/websocket-url"
	// GatewayNodeIP, on the Service of a gateway, is the address of the node its pod runs on.
	GatewayNodeIP = "net.liqo.io/gatewayNodeIP"
	// RotateKeys, on the Secret liqo-gateway-keys, makes new keys for the tunnels when its value changes.
	RotateKeys = "net.liqo.io/rotate-keys"
	// InvitationExpires is when an invitation ends, on its ForeignCluster. RFC 3339.
	InvitationExpires = "net.liqo.io/invitation-expires"
	// Invited is "true" on the ForeignCluster of a provider that invited this cluster, because no administrator has access to both.
	Invited = "net.liqo.io/invited"
	// ForceUnpeer, "true" on a ForeignCluster, sets every deadline for ending the peering to zero.
	ForceUnpeer = "liqo.io/force-unpeer"
	// ShadowPodRevision, on the pod of a ShadowPod, is the UID of the ShadowPod and a hash of the fields that the pod last received from it.
	ShadowPodRevision = "virtualkubelet.liqo.io/shadow-pod"
	// ShadowPodKeys, on the pod of a ShadowPod, are the keys of its labels, then a semicolon and those of its annotations, that come from the ShadowPod and go
	// when the ShadowPod loses them, separated by commas.
	ShadowPodKeys = "virtualkubelet.liqo.io/shadow-pod-keys"
	// ShadowPodSent, on the pod of a ShadowPod, are hashes of the fields that the pod last received from it, so that only what changes is sent.
	ShadowPodSent = "virtualkubelet.liqo.io/shadow-pod-sent"
	// PodArchitecture, on the pod of a ShadowPod that names no architecture, is the value of kubernetes.io/arch that the provider has chosen for it.
	PodArchitecture = "virtualkubelet.liqo.io/architecture"
	// ManagedByNamespaceMap, on a remote namespace, is the NamespaceMap that requested it: NAMESPACE/NAME.
	ManagedByNamespaceMap = "liqo.io/managed-by-namespace-map"
	// KeptForData is on a remote namespace that is not requested any more, and holds claims: "not-requested", or "no-peer" once its consumer is no peer.
	KeptForData = "liqo.io/kept-for-data"
	// OwnerKey, on a remote namespace, is the fingerprint of the key of the cluster that it was made for. Only that cluster gets data back that is kept there.
	OwnerKey = "liqo.io/owner-key"
	// OriginalName, on a remote namespace, is the name of the namespace in the consumer.
	OriginalName = "liqo.io/original-name"
	// ClusterDomain, on a NamespaceMap, is the DNS domain of the cluster that requests the namespaces.
	ClusterDomain = "liqo.io/cluster-domain"
	// APIServerSupport, on a NamespaceOffloading, is "false" if pods of the namespace that run in a peer get neither tokens for this
	// cluster's API server nor its address. "true" is the default.
	APIServerSupport = "liqo.io/apiserver-support"
	// CountRemoteContents, on a NamespaceOffloading, asks for the contents of remote namespaces, in its status: a word of at most 64 characters that
	// no earlier request had, and the unique names of the clusters.
	CountRemoteContents = "liqo.io/count-remote-contents"
	// SharingPercentage, on a foreign cluster, replaces the cluster's sharing percentage for this peer: an integer from 0 to 100.
	SharingPercentage = "sharing.liqo.io/resource-sharing-percentage"
	// InstalledPercentage, on the ConfigMap liqo-resource-sharing, is the value of the chart at the last upgrade. If data has another one, it was
	// changed in the cluster.
	InstalledPercentage = "liqo.io/installed-percentage"
)

// Annotations of reflected objects.
const (
	// Fence is on ShadowPods and on their pods: the UID of the consumer's pod.
	Fence = "virtualkubelet.liqo.io/fence"
	// DeletionPeriod is on ShadowPods that are deleted with another grace period than that of their pod: its seconds.
	DeletionPeriod = "virtualkubelet.liqo.io/deletion-grace-period-seconds"
	// HomeDNS, on a ShadowPod, are those name servers in the dnsConfig of its pod that are the DNS of the consumer, separated by commas.
	HomeDNS = "virtualkubelet.liqo.io/home-dns"
	// PodIP is no annotation of any object: a container at a peer that reads it by the downward API gets the address that the consumer shows for its pod.
	PodIP = "liqo.io/pod-ip"
	// Downward starts the keys of annotations of ShadowPods and their pods that carry what containers read by the downward API: the value of the consumer's pod.
	Downward = "virtualkubelet.liqo.io/downward-"
	// Reflect is "true" on ConfigMaps and Secrets that are reflected although nothing refers to them.
	Reflect = "liqo.io/reflect"
	// SkipReflection, with any value, excludes an object from reflection.
	SkipReflection = "liqo.io/skip-reflection"
	// ReflectTo, on an object that is reflected, are the virtual nodes to whose clusters it is, separated by commas. Without it, to those of all.
	ReflectTo = "liqo.io/reflect-to"
	// LocalGeneration, on the copy of a custom resource, on a ShadowPod and on its pod, is the generation of the local object that it has. Of a pod whose spec was
	// never changed, it is missing.
	LocalGeneration = "liqo.io/local-generation"
	// Architectures, on a pod and its ShadowPod, are the values of kubernetes.io/arch of the nodes on which the pod may run in a peer, separated by
	// commas. Without it, the one of the virtual node. A pod that names them in its node selector or node affinity has it from there.
	Architectures = "liqo.io/architectures"
	// ByName is a key in the selector of a copied Service that no pod has: its endpoints in the peer are those that the consumer names.
	ByName = "virtualkubelet.liqo.io/by-name"
	// ForceRemoteNodePort, "true" on a Service, requests the same node ports in the peers.
	ForceRemoteNodePort = "liqo.io/force-remote-node-port"
	// AntiAffinityPreset, on a pod, spreads pods over the nodes of the peer: one of the AntiAffinity constants.
	AntiAffinityPreset    = "liqo.io/anti-affinity-preset"
	AntiAffinitySoft      = "soft"
	AntiAffinityHard      = "hard"
	AntiAffinityPropagate = "propagate"
	// AntiAffinityLabels are the keys, separated by commas, of the labels that select the pods that the preset spreads.
	AntiAffinityLabels = "liqo.io/anti-affinity-labels"
	// SpreadPreset, on a pod, is what becomes of its spread constraints in the peer: one of the Spread constants. Without it, soft.
	SpreadPreset    = "liqo.io/topology-spread-preset"
	SpreadSoft      = "soft"
	SpreadPropagate = "propagate"
	// TokenPodUID and TokenExpiration are on the Secret with the tokens of a pod: the UID of the consumer's pod, and the time at which the
	// first token expires.
	TokenPodUID     = "virtualkubelet.liqo.io/service-account-for-pod-uid"
	TokenExpiration = "virtualkubelet.liqo.io/service-account-expiration"
	// TokenLifetime is the shortest lifetime of the tokens, in seconds, which may be less than requested.
	TokenLifetime = "virtualkubelet.liqo.io/service-account-lifetime"
)

// TaintVirtualNode keeps pods that are not offloaded away from virtual nodes; value "true", effect NoExecute.
const TaintVirtualNode = "virtual-node.liqo.io/not-allowed"

// TaintNoNewPods is on a virtual node whose provider answers and takes no further pods; the value is the reason, effect NoSchedule.
const TaintNoNewPods = "virtual-node.liqo.io/no-new-pods"

// Finalizers. Each is removed by one controller of the same cluster, within a deadline.
const (
	// FinalizerPeer is on ForeignClusters: identity, tenant and rights of the peer are removed first.
	FinalizerPeer = "foreigncluster.liqo.io/finalizer"
	// FinalizerReplication is on replicated objects: the copy is deleted first.
	FinalizerReplication = "crdReplicator.liqo.io"
	// FinalizerNode is on the consumer's ResourceSlice: its virtual node is drained and deleted first.
	FinalizerNode = "liqo.io/node"
	// FinalizerGrant is on the provider's copy of a ResourceSlice: the pods of the peer are removed first.
	FinalizerGrant = "liqo.io/grant"
	// FinalizerPodEnd is on pods of ShadowPods that may finish: their result is recorded first.
	FinalizerPodEnd = "virtualkubelet.liqo.io/pod-end"
	// FinalizerPodGone is on ShadowPods: the pod of each is gone first, so its name is not free before.
	FinalizerPodGone = "virtualkubelet.liqo.io/pod-gone"
	// FinalizerNamespaceOffloading is on NamespaceOffloadings: the remote namespaces are deleted first.
	FinalizerNamespaceOffloading = "namespaceoffloading-controller.liqo.io/finalizer"
	// FinalizerNamespaceMap is on the provider's copy of a NamespaceMap: its remote namespaces are deleted first.
	FinalizerNamespaceMap = "namespacemap-controller.liqo.io/finalizer"
	// FinalizerMove is on VolumeMoves: the volume comes back, or what is left of the move is removed, first.
	FinalizerMove = "storage.liqo.io/move"
)

// Field owners of server-side apply, one per component that writes.
const (
	OwnerForeignCluster   = "liqo-foreigncluster"
	OwnerTenant           = "liqo-tenant"
	OwnerReplicate        = "liqo-replicate"
	OwnerGrant            = "liqo-grant"
	OwnerVirtualNode      = "liqo-virtualnode"
	OwnerVirtualKubelet   = "liqo-virtual-kubelet"
	OwnerPullSecret       = "liqo-pullsecret"
	OwnerShadowPod        = "shadow-pod"
	OwnerShadowSlice      = "shadow-endpointslice-controller"
	OwnerReflection       = "reflection.liqo.io"
	OwnerNetwork          = "liqo-network"
	OwnerRoute            = "liqo-route"
	OwnerOffloading       = "liqo-namespaceoffloading"
	OwnerNamespaceMap     = "liqo-namespacemap"
	OwnerRemoteNamespaces = "liqo-remote-namespaces"
	OwnerRemoteContents   = "liqo-remote-contents"
	OwnerStandby          = "liqo-standby"
	OwnerStorage          = "liqo-storage"
	OwnerMove             = "liqo-move"
	OwnerCLI              = "liqoctl"
)
