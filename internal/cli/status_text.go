// SPDX-License-Identifier: Apache-2.0

package cli

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
)

// localBoxes are the boxes of `status`, from top to bottom.
func localBoxes(s status.Local, verbose bool) []box {
	var namespace textWriter
	if !s.Namespace.Exists {
		namespace.line("✗ the control plane namespace %q does not exist", s.Namespace.Name)
		return []box{{"Namespace existence check", namespace.lines}}
	}
	namespace.line("✓ the control plane namespace %q exists", s.Namespace.Name)
	boxes := []box{{"Namespace existence check", namespace.lines}, {"Control plane check", componentLines(s.Components, verbose)}}
	if s.Cluster != nil {
		boxes = append(boxes, box{"Local cluster information", clusterLines(s)})
	}
	return boxes
}

func componentLines(components []status.Component, verbose bool) []string {
	var w textWriter
	kind := ""
	for _, component := range components {
		if component.Kind != kind {
			kind, w.depth = component.Kind, 0
			w.line("%s", kind)
			w.depth = 1
		}
		if !component.Found {
			w.line("✗ %s: missing", component.Name)
			continue
		}
		symbol := "✓"
		if component.Ready < component.Desired || component.Available < component.Desired {
			symbol = "✗"
		}
		w.section(symbol+" "+component.Name, func() {
			w.line("Desired: %d, Ready: %d/%d, Available: %d/%d", component.Desired, component.Ready, component.Desired, component.Available, component.Desired)
			w.value("Reason", component.Message)
			if verbose {
				w.value("Images", strings.Join(component.Images, ", "))
			}
		})
	}
	return w.lines
}

func clusterLines(s status.Local) []string {
	var w textWriter
	w.section("Cluster identity", func() {
		w.value("Cluster ID", s.Cluster.ID)
		w.value("Cluster name", s.Cluster.Name)
		if len(s.Cluster.Labels) > 0 {
			w.section("Cluster labels", func() {
				for _, key := range slices.Sorted(maps.Keys(s.Cluster.Labels)) {
					w.value(key, s.Cluster.Labels[key])
				}
			})
		}
	})
	if s.Network != nil {
		w.section("Network", func() {
			if s.Network.PodCIDR == "" {
				w.value("Status", s.Network.Status)
				return
			}
			w.value("Pod CIDR", s.Network.PodCIDR)
			w.value("Service CIDR", s.Network.ServiceCIDR)
			w.value("External CIDR", s.Network.ExternalCIDR)
			w.value("Reserved Subnets", strings.Join(s.Network.ReservedSubnets, ", "))
		})
	}
	if s.Endpoints != nil {
		w.section("Endpoints", func() {
			for _, gateway := range s.Endpoints.Gateways {
				key := "Network gateway"
				if len(s.Endpoints.Gateways) > 1 {
					key = fmt.Sprintf("Network gateway, lane %d", gateway.Lane)
				}
				if gateway.Error != "" {
					w.value(key, "not published: "+gateway.Error)
				}
				w.value(key, gateway.URL)
			}
			if s.Endpoints.AuthenticationError != "" {
				w.value("Authentication", "not published: "+s.Endpoints.AuthenticationError)
			}
			w.value("Authentication", s.Endpoints.Authentication)
			w.value("Kubernetes API server", s.Endpoints.APIServer)
		})
	}
	if len(s.Offloaded) > 0 {
		w.section("Offloaded namespaces", func() {
			for _, one := range s.Offloaded {
				to := ""
				if len(one.Clusters) > 0 {
					to = " in " + strings.Join(one.Clusters, ", ")
				}
				w.value(one.Namespace, fmt.Sprintf("%s, pods %s%s", one.Phase, one.Pods, to))
				w.depth++
				w.value("Message", one.Message)
				w.depth--
			}
		})
	}
	if len(s.Kept) > 0 {
		w.section("Namespaces kept for the data of other clusters", func() {
			for _, one := range s.Kept {
				w.value(one.Namespace, "of cluster "+one.ClusterID+", "+one.State)
			}
		})
	}
	return w.lines
}

// peerBox is the box of `status peer`.
func peerBox(peers []status.Peer, verbose bool) box {
	var w textWriter
	for i, peer := range peers {
		if i > 0 {
			w.lines = append(w.lines, "")
		}
		if !peer.Found {
			w.section(peer.Name, func() { w.line("✗ Peer Not Found") })
			continue
		}
		w.section(peer.Name+" - "+peer.ClusterID, func() { peerLines(&w, peer, verbose) })
	}
	if len(peers) == 0 {
		w.line("This cluster is not peered with any remote cluster")
	}
	return box{"Peered Cluster Information", w.lines}
}

func peerLines(w *textWriter, peer status.Peer, verbose bool) {
	aspect := func(key string, a status.Aspect) {
		w.value(key, a.Status)
		if verbose || a.Bad() {
			w.depth++
			w.value("Reason", a.Reason)
			w.value("Message", a.Message)
			w.depth--
		}
	}
	w.value("Type", peer.Type)
	if peer.Processing.Bad() {
		aspect("Processing", peer.Processing)
	}
	w.section("Direction", func() {
		aspect("Outgoing", peer.Outgoing)
		aspect("Incoming", peer.Incoming)
	})
	w.section("Authentication", func() {
		aspect("Status", peer.Authentication)
		if verbose {
			w.value("Auth URL", peer.AuthURL)
			w.value("Auth Proxy URL", peer.ProxyURL)
			w.value("Remote version", peer.Version)
		}
	})
	if verbose || peer.APIServer.Bad() {
		w.section("API server", func() { aspect("Status", peer.APIServer) })
	}
	w.section("Network", func() {
		aspect("Status", peer.Network)
		if verbose && peer.Fabric != nil {
			seenLines(w, "Local CIDRs", peer.Fabric.Local)
			seenLines(w, "Remote CIDRs", peer.Fabric.Remote)
			w.value("Shown by the peer", peer.Fabric.Shown)
		}
		if peer.Fabric != nil {
			w.value("Addresses", peer.Fabric.Use)
			w.value("Not used", peer.Fabric.Refused)
			w.value("To accept", peer.Fabric.Accept)
			w.value("In conflict", peer.Fabric.Conflict)
		}
	})
	if verbose && peer.Fabric != nil {
		connectionLines(w, peer.Fabric.Connection)
	}
	w.section("Resources", func() {
		w.section("Total acquired", func() { resourceLines(w, peer.Resources.Acquired) })
		w.section("Total shared", func() { resourceLines(w, peer.Resources.Shared) })
	})
	remoteNamespaceLines(w, "Namespaces offloaded to it", peer.Offloaded)
	remoteNamespaceLines(w, "Namespaces offloaded by it", peer.Hosted)
	if len(peer.Volumes) > 0 {
		w.section("Claims whose data is in it", func() {
			for _, one := range peer.Volumes {
				text := one.Size + ", class " + one.StorageClass
				switch {
				case one.Deleted:
					text += ", deleted here and not there yet"
				case one.Volume == "":
					text += ", not bound there yet"
				}
				w.value(one.Claim, text)
			}
		})
	}
}

// remoteNamespaceLines lists namespaces with their names in the other cluster.
func remoteNamespaceLines(w *textWriter, title string, namespaces []status.RemoteNamespace) {
	if len(namespaces) == 0 {
		return
	}
	w.section(title, func() {
		for _, one := range namespaces {
			w.value(one.Namespace, fmt.Sprintf("%s as %s", one.Phase, one.Remote))
			w.depth++
			w.value("Message", one.Message)
			w.depth--
		}
	})
}

// seenLines lists networks with the prefixes under which the other side reaches them.
func seenLines(w *textWriter, title string, networks *status.SeenNetworks) {
	if networks == nil {
		w.line("%s: NetworkConfig Not Found", title)
		return
	}
	w.section(title, func() {
		w.section("Original", func() {
			w.value("Pod CIDR", networks.PodCIDR)
			w.value("External CIDR", networks.ExternalCIDR)
		})
		w.section("Remapped", func() {
			for _, one := range []struct{ key, network string }{{"Pod CIDR", networks.RemappedPodCIDR}, {"External CIDR", networks.RemappedExternalCIDR}} {
				switch one.network {
				case "":
					w.value(one.key, "not decided yet")
				case netv1alpha1.NotRemapped:
					w.value(one.key, "remapping not necessary")
				default:
					w.value(one.key, one.network)
				}
			}
		})
	})
}

func connectionLines(w *textWriter, connection *status.PeerConnection) {
	if connection == nil {
		w.line("Network connection: TunnelEndpoint Not Found")
		return
	}
	w.section("Network connection", func() {
		w.section("Gateway IPs", func() {
			w.value("Local", cmp.Or(connection.LocalGateway, "none: it dials the peer"))
			w.value("Remote", cmp.Or(connection.RemoteGateway, "none: the peer dials"))
		})
		for _, lane := range connection.Lanes {
			w.value(fmt.Sprintf("Lane %d", lane.Number), cmp.Or(strings.Join(lane.Endpoints, ", "), "the peer dials"))
		}
		w.value("Status", connection.Status)
		w.value("Message", connection.Message)
		w.value("Carrier", connection.Carrier)
		w.value("No better carrier", connection.CarrierReason)
		w.value("Latency", connection.Latency)
		if connection.MTU > 0 {
			w.value("MTU", strconv.Itoa(int(connection.MTU)))
		}
	})
}

// resourceLines lists the common resources first, and then the others by name.
func resourceLines(w *textWriter, list corev1.ResourceList) {
	if len(list) == 0 {
		w.line("none")
		return
	}
	first := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage}
	for _, name := range first {
		if quantity, ok := list[name]; ok {
			w.value(string(name), amount(name, quantity))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if !slices.Contains(first, name) {
			w.value(string(name), amount(name, list[name]))
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
