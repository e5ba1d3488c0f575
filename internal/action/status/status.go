// SPDX-License-Identifier: Apache-2.0

// Package status reads the state of Liqo in this cluster and of its peers. read.go reads objects, everything else turns them into
// values. It must not know how they are shown. Its tests prove the values.
package status

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/action/claims"
	"liqo.io/liqo/internal/action/foreign"
	"liqo.io/liqo/internal/action/installed"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/auth/published"
	"liqo.io/liqo/internal/peering/proxy"
)

// components are the Deployments of the control plane in the order of the output. Those of the network follow, if it is Liqo's.
var components = []string{installed.ManagerName, installed.AuthName}

const metricAgent = "liqo-metric-agent"

// optional are the Deployments that not every installation has.
var optional = []string{metricAgent, proxy.Service}

// Local is the state of Liqo in one cluster. Its JSON form is what `-o json` prints.
type Local struct {
	Namespace  Namespace   `json:"namespace"`
	Components []Component `json:"components,omitempty"`
	Cluster    *Cluster    `json:"cluster,omitempty"`
	Network    *Network    `json:"network,omitempty"`
	Endpoints  *Endpoints  `json:"endpoints,omitempty"`
	// Offloaded are the namespaces that extend to other clusters.
	Offloaded []OffloadedNamespace `json:"offloadedNamespaces,omitempty"`
	// Kept are namespaces of other clusters that hold their data and nothing else.
	Kept []KeptNamespace `json:"keptNamespaces,omitempty"`
	// Problems name each failed check; it is empty if there is none.
	Problems []string `json:"problems,omitempty"`
}

// Namespace reports whether the namespace of the control plane exists.
type Namespace struct {
	Name   string `json:"name"`
	Exists bool   `json:"exists"`
}

type Component struct {
	Kind      string   `json:"kind"`
	Name      string   `json:"name"`
	Found     bool     `json:"found"`
	Desired   int32    `json:"desired"`
	Ready     int32    `json:"ready"`
	Available int32    `json:"available"`
	Images    []string `json:"images,omitempty"`
	Message   string   `json:"message,omitempty"`
}

type Cluster struct {
	ID     string            `json:"id"`
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
}

// Endpoints holds the addresses at which other clusters reach this one.
type Endpoints struct {
	Gateways            []GatewayEndpoint `json:"gateways,omitempty"`
	Authentication      string            `json:"authentication,omitempty"`
	AuthenticationError string            `json:"authenticationError,omitempty"`
	APIServer           string            `json:"apiServer,omitempty"`
}

type localObjects struct {
	namespace   string
	exists      bool
	deployments []appsv1.Deployment
	daemonSets  []appsv1.DaemonSet
	identity    discoveryv1alpha1.ClusterIdentity
	identityErr error
	nodes       []corev1.Node
	services    []corev1.Service
	networks    map[string]string
	configs     []netv1alpha1.NetworkConfig
	authURL     string
	authErr     error
	offloadings []offloadingv1alpha1.NamespaceOffloading
	remote      []corev1.Namespace // made for peers
}

// internal reports whether the network between clusters is Liqo's own, according to the flags of the controller manager.
func (o *localObjects) internal() bool {
	return installed.Argument(installed.Arguments(o.deployments, installed.ManagerName), "disable-internal-network") == "false"
}

// components returns the state of the expected components.
func (o *localObjects) components() (all []Component) {
	names := slices.Clone(components)
	for i := range o.deployments {
		if slices.Contains(optional, o.deployments[i].Name) {
			names = append(names, o.deployments[i].Name)
		}
	}
	if o.internal() {
		names = append(names, lanes(o.deployments)...)
	}
	for _, name := range names {
		component := Component{Kind: "Deployment", Name: name}
		if at := slices.IndexFunc(o.deployments, func(d appsv1.Deployment) bool { return d.Name == name }); at >= 0 {
			component = newComponent(&o.deployments[at])
		}
		all = append(all, component)
	}
	if o.internal() {
		component := Component{Kind: "DaemonSet", Name: installed.RouteName}
		if at := slices.IndexFunc(o.daemonSets, func(d appsv1.DaemonSet) bool { return d.Name == installed.RouteName }); at >= 0 {
			component = newDaemonSet(&o.daemonSets[at])
		}
		all = append(all, component)
	}
	return all
}

// newLocalStatus is pure.
func newLocalStatus(o *localObjects) Local {
	s := Local{Namespace: Namespace{Name: o.namespace, Exists: o.exists}}
	if !o.exists {
		s.Problems = append(s.Problems, fmt.Sprintf("the namespace %s does not exist: Liqo is not installed, or in another namespace (--namespace)", o.namespace))
		return s
	}
	s.Components = o.components()
	for _, component := range s.Components {
		switch what := fmt.Sprintf("%s %s/%s", component.Kind, o.namespace, component.Name); {
		case !component.Found:
			s.Problems = append(s.Problems, what+" is missing; `liqoctl upgrade` restores it")
		case component.Kind == "Deployment" && component.Desired == 0: // the chart allows it for none, and an interrupted uninstallation leaves it
			s.Problems = append(s.Problems, what+" is scaled to 0; `liqoctl upgrade` restores it, and `liqoctl uninstall` goes on with an uninstallation that "+
				"was interrupted")
		case component.Ready < component.Desired || component.Available < component.Desired:
			s.Problems = append(s.Problems, strings.TrimSuffix(
				fmt.Sprintf("%s has %d of %d pods ready: %s", what, component.Ready, component.Desired, component.Message), ": "))
		}
	}
	if o.identityErr != nil {
		s.Problems = append(s.Problems, o.identityErr.Error())
		return s
	}
	s.Offloaded, s.Kept = newOffloadedNamespaces(o.offloadings), newKeptNamespaces(o.remote)
	s.Cluster = &Cluster{ID: o.identity.ClusterID, Name: o.identity.ClusterName, Labels: parseLabels(installed.Argument(installed.Arguments(o.deployments,
		installed.ManagerName), "cluster-labels"))}
	s.Network = &Network{Status: string(discoveryv1alpha1.StatusExternal)}
	s.Endpoints = &Endpoints{Authentication: o.authURL, APIServer: apiServerURL(installed.Argument(installed.Arguments(o.deployments, installed.AuthName),
		"advertise-api-server-address"), o.nodes)}
	if o.internal() {
		s.Network = newNetworkStatus(o.networks, o.configs)
		s.Endpoints.Gateways = newGatewayEndpoints(o.services, o.nodes)
	}
	if o.authErr != nil {
		// This is not a failure: a cluster that only uses others needs no address of its own.
		s.Endpoints.AuthenticationError = o.authErr.Error()
	}
	return s
}

func newComponent(d *appsv1.Deployment) Component {
	component := Component{
		Kind: "Deployment", Name: d.Name, Found: true, Desired: 1,
		Ready: d.Status.ReadyReplicas, Available: d.Status.AvailableReplicas,
	}
	if d.Spec.Replicas != nil {
		component.Desired = *d.Spec.Replicas
	}
	for _, container := range d.Spec.Template.Spec.Containers {
		component.Images = append(component.Images, container.Image)
	}
	for _, condition := range d.Status.Conditions {
		if condition.Type == appsv1.DeploymentAvailable && condition.Status != corev1.ConditionTrue {
			component.Message = condition.Message
		}
	}
	return component
}

// redacted is a URL without its password.
func redacted(text string) string {
	parsed, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return parsed.Redacted()
}

func parseLabels(text string) map[string]string {
	parsed := map[string]string{}
	for label := range strings.SplitSeq(text, ",") {
		if key, value, ok := strings.Cut(label, "="); ok {
			parsed[key] = value
		}
	}
	return parsed
}

// apiServerURL is the address that peers receive: the configured one, otherwise that of a control plane node.
func apiServerURL(configured string, nodes []corev1.Node) string {
	if address, err := auth.ParseAddress(configured); err == nil && address != "" {
		return address
	}
	planes := slices.DeleteFunc(slices.Clone(nodes), func(node corev1.Node) bool {
		_, plane := node.Labels["node-role.kubernetes.io/control-plane"]
		return !plane
	})
	slices.SortFunc(planes, func(a, b corev1.Node) int {
		if ready := installed.NodeReady(&a); ready != installed.NodeReady(&b) {
			return map[bool]int{true: -1, false: 1}[ready]
		}
		return cmp.Compare(a.Name, b.Name)
	})
	for _, node := range planes {
		for _, address := range node.Status.Addresses {
			if address.Type == corev1.NodeInternalIP {
				return "https://" + published.HostPort(address.Address, 6443)
			}
		}
	}
	return ""
}

// Peer is the state of one peer. Its JSON form is what `-o json` prints.
type Peer struct {
	Name           string `json:"name"`
	Found          bool   `json:"found"`
	ClusterID      string `json:"clusterID,omitempty"`
	ClusterName    string `json:"clusterName,omitempty"`
	Type           string `json:"type,omitempty"`
	Version        string `json:"version,omitempty"`
	Outgoing       Aspect `json:"outgoing,omitzero"`
	Incoming       Aspect `json:"incoming,omitzero"`
	Authentication Aspect `json:"authentication,omitzero"`
	AuthURL        string `json:"authUrl,omitempty"`
	ProxyURL       string `json:"proxyUrl,omitempty"`
	APIServer      Aspect `json:"apiServer,omitzero"`
	Network        Aspect `json:"network,omitzero"`
	// Fabric is the network to this peer; nil if it is not Liqo's.
	Fabric     *PeerNetwork     `json:"fabric,omitempty"`
	Processing Aspect           `json:"processing,omitzero"`
	Resources  *SharedResources `json:"resources,omitempty"`
	// Offloaded are namespaces that this cluster offloads to the peer, Hosted those that the peer offloads to this cluster.
	Offloaded []RemoteNamespace `json:"offloadedNamespaces,omitempty"`
	Hosted    []RemoteNamespace `json:"hostedNamespaces,omitempty"`
	// Volumes are claims of this cluster whose data is at the peer.
	Volumes []RemoteVolume `json:"volumes,omitempty"`
}

type Aspect struct {
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Bad reports whether the condition needs the attention of the administrator.
func (a Aspect) Bad() bool {
	switch discoveryv1alpha1.PeeringConditionStatus(a.Status) {
	case discoveryv1alpha1.StatusError, discoveryv1alpha1.StatusDenied, discoveryv1alpha1.StatusEmptyDenied:
		return true
	}
	return false
}

// SharedResources are what two clusters grant each other.
type SharedResources struct {
	// Acquired is what the peer grants to this cluster; Shared is what this cluster grants to the peer.
	Acquired corev1.ResourceList `json:"acquired,omitempty"`
	Shared   corev1.ResourceList `json:"shared,omitempty"`
}

type peerObjects struct {
	fcs     []discoveryv1alpha1.ForeignCluster
	grants  []sharingv1alpha1.ResourceSlice
	configs []netv1alpha1.NetworkConfig
	tunnels []netv1alpha1.TunnelEndpoint
	maps    []vkv1alpha1.NamespaceMap
	claims  []claims.Claim
}

// newPeerStatuses is pure: it returns the peers of these names, or all if there are none, ordered by name.
func newPeerStatuses(o *peerObjects, names []string) []Peer {
	peers, fcs := []Peer{}, o.fcs
	for i := range fcs {
		if len(names) == 0 || slices.Contains(names, fcs[i].Name) {
			peer := newPeerStatus(&fcs[i], o.grants)
			if !externally(peer.Network) {
				peer.Fabric = newPeerNetwork(peer.Name, peer.ClusterID, o.configs, o.tunnels)
			}
			peer.Offloaded, peer.Hosted = newRemoteNamespaces(peer.ClusterID, o.maps)
			peer.Volumes = newRemoteVolumes(peer.ClusterID, o.claims)
			peers = append(peers, peer)
		}
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		if !slices.ContainsFunc(fcs, func(fc discoveryv1alpha1.ForeignCluster) bool { return fc.Name == name }) {
			peers = append(peers, Peer{Name: name})
		}
	}
	slices.SortFunc(peers, func(a, b Peer) int { return cmp.Compare(a.Name, b.Name) })
	return peers
}

func newPeerStatus(fc *discoveryv1alpha1.ForeignCluster, grants []sharingv1alpha1.ResourceSlice) Peer {
	aspect := func(kind discoveryv1alpha1.PeeringConditionType) Aspect {
		condition := foreign.Condition(fc, kind)
		return Aspect{Status: string(condition.Status), Reason: condition.Reason, Message: condition.Message}
	}
	peer := Peer{
		Name: fc.Name, Found: true, Type: string(fc.Spec.PeeringType), Version: fc.Status.RemoteVersion,
		Outgoing: aspect(discoveryv1alpha1.OutgoingPeering), Incoming: aspect(discoveryv1alpha1.IncomingPeering),
		Authentication: aspect(discoveryv1alpha1.AuthenticationStatus), APIServer: aspect(discoveryv1alpha1.APIServerStatus),
		Network: aspect(discoveryv1alpha1.NetworkStatus), Processing: aspect(discoveryv1alpha1.ProcessForeignClusterStatus),
		AuthURL: fc.Spec.ForeignAuthURL, ProxyURL: redacted(fc.Spec.ForeignProxyURL),
		Resources: &SharedResources{Acquired: corev1.ResourceList{}, Shared: corev1.ResourceList{}},
	}
	if fc.Spec.ClusterIdentity != nil {
		peer.ClusterID, peer.ClusterName = fc.Spec.ClusterIdentity.ClusterID, fc.Spec.ClusterIdentity.ClusterName
	}
	for i := range grants {
		switch grant := &grants[i]; {
		case peer.ClusterID == "":
		case grant.Labels[labels.Replicated] == "true":
			if grant.Labels[labels.OriginID] == peer.ClusterID {
				add(peer.Resources.Shared, grant.Status.Resources)
			}
		case grant.Labels[labels.RemoteID] == peer.ClusterID:
			add(peer.Resources.Acquired, grant.Status.Resources)
		}
	}
	return peer
}

func add(to, more corev1.ResourceList) {
	for name, quantity := range more {
		sum := to[name].DeepCopy()
		sum.Add(quantity)
		to[name] = sum
	}
}
