// SPDX-License-Identifier: Apache-2.0

// Package boxes turns the values of actions into what people read: boxes with lines. It must not read clusters. Its proof are the
// golden files of package cli.
package boxes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/action/status"
	"liqo.io/liqo/internal/cli/output"
)

// Local are the boxes of `status`, from top to bottom.
func Local(s status.Local, verbose bool) []output.Box {
	var namespace output.Text
	if !s.Namespace.Exists {
		namespace.Line("✗ the control plane namespace %q does not exist", s.Namespace.Name)
		return []output.Box{{Title: "Namespace existence check", Lines: namespace.Lines}}
	}
	namespace.Line("✓ the control plane namespace %q exists", s.Namespace.Name)
	boxes := []output.Box{
		{Title: "Namespace existence check", Lines: namespace.Lines},
		{Title: "Control plane check", Lines: componentLines(s.Components, verbose)},
	}
	if s.Cluster != nil {
		boxes = append(boxes, output.Box{Title: "Local cluster information", Lines: clusterLines(s)})
	}
	return boxes
}

func componentLines(components []status.Component, verbose bool) []string {
	var w output.Text
	kind := ""
	for _, component := range components {
		if component.Kind != kind {
			kind, w.Depth = component.Kind, 0
			w.Line("%s", kind)
			w.Depth = 1
		}
		if !component.Found {
			w.Line("✗ %s: missing", component.Name)
			continue
		}
		symbol := "✓"
		if component.Ready < component.Desired || component.Available < component.Desired {
			symbol = "✗"
		}
		w.Section(symbol+" "+component.Name, func() {
			w.Line("Desired: %d, Ready: %d/%d, Available: %d/%d", component.Desired, component.Ready, component.Desired, component.Available, component.Desired)
			w.Value("Reason", component.Message)
			if verbose {
				w.Value("Images", strings.Join(component.Images, ", "))
			}
		})
	}
	return w.Lines
}

func clusterLines(s status.Local) []string {
	var w output.Text
	w.Section("Cluster identity", func() {
		w.Value("Cluster ID", s.Cluster.ID)
		w.Value("Cluster name", s.Cluster.Name)
		if len(s.Cluster.Labels) > 0 {
			w.Section("Cluster labels", func() {
				for _, key := range slices.Sorted(maps.Keys(s.Cluster.Labels)) {
					w.Value(key, s.Cluster.Labels[key])
				}
			})
		}
	})
	if s.Network != nil {
		w.Section("Network", func() {
			if s.Network.PodCIDR == "" {
				w.Value("Status", s.Network.Status)
				return
			}
			w.Value("Pod CIDR", s.Network.PodCIDR)
			w.Value("Service CIDR", s.Network.ServiceCIDR)
			w.Value("External CIDR", s.Network.ExternalCIDR)
			w.Value("Reserved Subnets", strings.Join(s.Network.ReservedSubnets, ", "))
		})
	}
	if s.Endpoints != nil {
		w.Section("Endpoints", func() {
			for _, gateway := range s.Endpoints.Gateways {
				key := "Network gateway"
				if len(s.Endpoints.Gateways) > 1 {
					key = fmt.Sprintf("Network gateway, lane %d", gateway.Lane)
				}
				if gateway.Error != "" {
					w.Value(key, "not published: "+gateway.Error)
				}
				w.Value(key, gateway.URL)
			}
			if s.Endpoints.AuthenticationError != "" {
				w.Value("Authentication", "not published: "+s.Endpoints.AuthenticationError)
			}
			w.Value("Authentication", s.Endpoints.Authentication)
			w.Value("Kubernetes API server", s.Endpoints.APIServer)
		})
	}
	if len(s.Offloaded) > 0 {
		w.Section("Offloaded namespaces", func() {
			for _, one := range s.Offloaded {
				to := ""
				if len(one.Clusters) > 0 {
					to = " in " + strings.Join(one.Clusters, ", ")
				}
				w.Value(one.Namespace, fmt.Sprintf("%s, pods %s%s", one.Phase, one.Pods, to))
				w.Depth++
				w.Value("Message", one.Message)
				w.Depth--
			}
		})
	}
	if len(s.Kept) > 0 {
		w.Section("Namespaces kept for the data of other clusters", func() {
			for _, one := range s.Kept {
				w.Value(one.Namespace, "of cluster "+one.ClusterID+", "+one.State)
			}
		})
	}
	return w.Lines
}

// Peers is the box of `status peer`.
func Peers(peers []status.Peer, verbose bool) output.Box {
	var w output.Text
	for i, peer := range peers {
		if i > 0 {
			w.Lines = append(w.Lines, "")
		}
		if !peer.Found {
			w.Section(peer.Name, func() { w.Line("✗ Peer Not Found") })
			continue
		}
		w.Section(peer.Name+" - "+peer.ClusterID, func() { peerLines(&w, peer, verbose) })
	}
	if len(peers) == 0 {
		w.Line("This cluster is not peered with any remote cluster")
	}
	return output.Box{Title: "Peered Cluster Information", Lines: w.Lines}
}

func peerLines(w *output.Text, peer status.Peer, verbose bool) {
	aspect := func(key string, a status.Aspect) {
		w.Value(key, a.Status)
		if verbose || a.Bad() {
			w.Depth++
			w.Value("Reason", a.Reason)
			w.Value("Message", a.Message)
			w.Depth--
		}
	}
	w.Value("Type", peer.Type)
	if peer.Processing.Bad() {
		aspect("Processing", peer.Processing)
	}
	w.Section("Direction", func() {
		aspect("Outgoing", peer.Outgoing)
		aspect("Incoming", peer.Incoming)
	})
	w.Section("Authentication", func() {
		aspect("Status", peer.Authentication)
		if verbose {
			w.Value("Auth URL", peer.AuthURL)
			w.Value("Auth Proxy URL", peer.ProxyURL)
			w.Value("Remote version", peer.Version)
		}
	})
	if verbose || peer.APIServer.Bad() {
		w.Section("API server", func() { aspect("Status", peer.APIServer) })
	}
	w.Section("Network", func() {
		aspect("Status", peer.Network)
		if verbose && peer.Fabric != nil {
			seenLines(w, "Local CIDRs", peer.Fabric.Local)
			seenLines(w, "Remote CIDRs", peer.Fabric.Remote)
			w.Value("Shown by the peer", peer.Fabric.Shown)
		}
		if peer.Fabric != nil {
			w.Value("Addresses", peer.Fabric.Use)
			w.Value("Not used", peer.Fabric.Refused)
			w.Value("To accept", peer.Fabric.Accept)
			w.Value("In conflict", peer.Fabric.Conflict)
		}
	})
	if verbose && peer.Fabric != nil {
		connectionLines(w, peer.Fabric.Connection)
	}
	w.Section("Resources", func() {
		w.Section("Total acquired", func() { resourceLines(w, peer.Resources.Acquired) })
		w.Section("Total shared", func() { resourceLines(w, peer.Resources.Shared) })
	})
	remoteNamespaceLines(w, "Namespaces offloaded to it", peer.Offloaded)
	remoteNamespaceLines(w, "Namespaces offloaded by it", peer.Hosted)
	if len(peer.Volumes) > 0 {
		w.Section("Claims whose data is in it", func() {
			for _, one := range peer.Volumes {
				text := one.Size + ", class " + one.StorageClass
				switch {
				case one.Deleted:
					text += ", deleted here and not there yet"
				case one.Volume == "":
					text += ", not bound there yet"
				}
				w.Value(one.Claim, text)
			}
		})
	}
}

// remoteNamespaceLines lists namespaces with their names in the other cluster.
func remoteNamespaceLines(w *output.Text, title string, namespaces []status.RemoteNamespace) {
	if len(namespaces) == 0 {
		return
	}
	w.Section(title, func() {
		for _, one := range namespaces {
			w.Value(one.Namespace, fmt.Sprintf("%s as %s", one.Phase, one.Remote))
			w.Depth++
			w.Value("Message", one.Message)
			w.Depth--
		}
	})
}

// seenLines lists networks with the prefixes under which the other side reaches them.
func seenLines(w *output.Text, title string, networks *status.SeenNetworks) {
	if networks == nil {
		w.Line("%s: NetworkConfig Not Found", title)
		return
	}
	w.Section(title, func() {
		w.Section("Original", func() {
			w.Value("Pod CIDR", networks.PodCIDR)
			w.Value("External CIDR", networks.ExternalCIDR)
		})
		w.Section("Remapped", func() {
			for _, one := range []struct{ key, network string }{{"Pod CIDR", networks.RemappedPodCIDR}, {"External CIDR", networks.RemappedExternalCIDR}} {
				switch one.network {
				case "":
					w.Value(one.key, "not decided yet")
				case netv1alpha1.NotRemapped:
					w.Value(one.key, "remapping not necessary")
				default:
					w.Value(one.key, one.network)
				}
			}
		})
	})
}

func connectionLines(w *output.Text, connection *status.PeerConnection) {
	if connection == nil {
		w.Line("Network connection: TunnelEndpoint Not Found")
		return
	}
	w.Section("Network connection", func() {
		w.Section("Gateway IPs", func() {
			w.Value("Local", cmp.Or(connection.LocalGateway, "none: it dials the peer"))
			w.Value("Remote", cmp.Or(connection.RemoteGateway, "none: the peer dials"))
		})
		for _, lane := range connection.Lanes {
			w.Value(fmt.Sprintf("Lane %d", lane.Number), cmp.Or(strings.Join(lane.Endpoints, ", "), "the peer dials"))
		}
		w.Value("Status", connection.Status)
		w.Value("Message", connection.Message)
		w.Value("Carrier", connection.Carrier)
		w.Value("No better carrier", connection.CarrierReason)
		w.Value("Latency", connection.Latency)
		if connection.MTU > 0 {
			w.Value("MTU", strconv.Itoa(int(connection.MTU)))
		}
	})
}

// resourceLines lists the common resources first, and then the others by name.
func resourceLines(w *output.Text, list corev1.ResourceList) {
	if len(list) == 0 {
		w.Line("none")
		return
	}
	first := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage}
	for _, name := range first {
		if quantity, ok := list[name]; ok {
			w.Value(string(name), amount(name, quantity))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if !slices.Contains(first, name) {
			w.Value(string(name), amount(name, list[name]))
		}
	}
}

func amount(name corev1.ResourceName, quantity resource.Quantity) string {
	switch name {
	case corev1.ResourceCPU:
		return fmt.Sprintf("%dm", quantity.MilliValue())
	case corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return fmt.Sprintf("%.2fGiB", quantity.AsApproximateFloat64()/(1<<30))
	}
	return quantity.String()
}
