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
	"liqo.io/liqo/internal/action"
)

// maxColumns is how wide a line gets before it is broken.
const maxColumns = 90

// textWriter is indented text that is being written: keys, values, and sections below each other.
type textWriter struct {
	lines []string
	depth int
}

func (o *textWriter) line(format string, args ...any) {
	o.lines = append(o.lines, strings.Repeat("  ", o.depth)+fmt.Sprintf(format, args...))
}

// value writes nothing for an empty value, and breaks a long one at spaces.
func (o *textWriter) value(key, value string) {
	if value == "" {
		return
	}
	text := key + ":"
	for word := range strings.FieldsSeq(value) {
		if len(text)+1+len(word) > maxColumns && text != key+":" {
			o.line("%s", text)
			text = " "
		}
		text += " " + word
	}
	o.line("%s", text)
}

func (o *textWriter) section(title string, inner func()) {
	o.line("%s", title)
	o.depth++
	inner()
	o.depth--
}

// localBoxes are the boxes of `status`, from top to bottom.
func localBoxes(s action.LocalStatus, verbose bool) []box {
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

func componentLines(components []action.ComponentStatus, verbose bool) []string {
	var o textWriter
	kind := ""
	for _, component := range components {
		if component.Kind != kind {
			kind, o.depth = component.Kind, 0
			o.line("%s", kind)
			o.depth = 1
		}
		if !component.Found {
			o.line("✗ %s: missing", component.Name)
			continue
		}
		mark := "✓"
		if component.Ready < component.Desired || component.Available < component.Desired {
			mark = "✗"
		}
		o.section(mark+" "+component.Name, func() {
			o.line("Desired: %d, Ready: %d/%d, Available: %d/%d", component.Desired, component.Ready, component.Desired, component.Available, component.Desired)
			o.value("Reason", component.Message)
			if verbose {
				o.value("Images", strings.Join(component.Images, ", "))
			}
		})
	}
	return o.lines
}

func clusterLines(s action.LocalStatus) []string {
	var o textWriter
	o.section("Cluster identity", func() {
		o.value("Cluster ID", s.Cluster.ID)
		o.value("Cluster name", s.Cluster.Name)
		if len(s.Cluster.Labels) > 0 {
			o.section("Cluster labels", func() {
				for _, key := range slices.Sorted(maps.Keys(s.Cluster.Labels)) {
					o.value(key, s.Cluster.Labels[key])
				}
			})
		}
	})
	if s.Network != nil {
		o.section("Network", func() {
			if s.Network.PodCIDR == "" {
				o.value("Status", s.Network.Status)
				return
			}
			o.value("Pod CIDR", s.Network.PodCIDR)
			o.value("Service CIDR", s.Network.ServiceCIDR)
			o.value("External CIDR", s.Network.ExternalCIDR)
			o.value("Reserved Subnets", strings.Join(s.Network.ReservedSubnets, ", "))
		})
	}
	if s.Endpoints != nil {
		o.section("Endpoints", func() {
			for _, gateway := range s.Endpoints.Gateways {
				key := "Network gateway"
				if len(s.Endpoints.Gateways) > 1 {
					key = fmt.Sprintf("Network gateway, lane %d", gateway.Lane)
				}
				if gateway.Error != "" {
					o.value(key, "not published: "+gateway.Error)
				}
				o.value(key, gateway.URL)
			}
			if s.Endpoints.AuthenticationError != "" {
				o.value("Authentication", "not published: "+s.Endpoints.AuthenticationError)
			}
			o.value("Authentication", s.Endpoints.Authentication)
			o.value("Kubernetes API server", s.Endpoints.APIServer)
		})
	}
	if len(s.Offloaded) > 0 {
		o.section("Offloaded namespaces", func() {
			for _, one := range s.Offloaded {
				to := ""
				if len(one.Clusters) > 0 {
					to = " in " + strings.Join(one.Clusters, ", ")
				}
				o.value(one.Namespace, fmt.Sprintf("%s, pods %s%s", one.Phase, one.Pods, to))
				o.depth++
				o.value("Message", one.Message)
				o.depth--
			}
		})
	}
	return o.lines
}

// peerBox is the box of `status peer`.
func peerBox(peers []action.PeerStatus, verbose bool) box {
	var o textWriter
	for i, peer := range peers {
		if i > 0 {
			o.lines = append(o.lines, "")
		}
		if !peer.Found {
			o.section(peer.Name, func() { o.line("✗ Peer Not Found") })
			continue
		}
		o.section(peer.Name+" - "+peer.ClusterID, func() { peerLines(&o, peer, verbose) })
	}
	if len(peers) == 0 {
		o.line("This cluster is not peered with any remote cluster")
	}
	return box{"Peered Cluster Information", o.lines}
}

func peerLines(o *textWriter, peer action.PeerStatus, verbose bool) {
	aspect := func(key string, a action.AspectStatus) {
		o.value(key, a.Status)
		if verbose || a.Bad() {
			o.depth++
			o.value("Reason", a.Reason)
			o.value("Message", a.Message)
			o.depth--
		}
	}
	o.value("Type", peer.Type)
	if peer.Processing.Bad() {
		aspect("Processing", peer.Processing)
	}
	o.section("Direction", func() {
		aspect("Outgoing", peer.Outgoing)
		aspect("Incoming", peer.Incoming)
	})
	o.section("Authentication", func() {
		aspect("Status", peer.Authentication)
		if verbose {
			o.value("Auth URL", peer.AuthURL)
			o.value("Auth Proxy URL", peer.ProxyURL)
			o.value("Remote version", peer.Version)
		}
	})
	if verbose || peer.APIServer.Bad() {
		o.section("API server", func() { aspect("Status", peer.APIServer) })
	}
	o.section("Network", func() {
		aspect("Status", peer.Network)
		if verbose && peer.Fabric != nil {
			seenLines(o, "Local CIDRs", peer.Fabric.Local)
			seenLines(o, "Remote CIDRs", peer.Fabric.Remote)
		}
	})
	if verbose && peer.Fabric != nil {
		connectionLines(o, peer.Fabric.Connection)
	}
	o.section("Resources", func() {
		o.section("Total acquired", func() { resourceLines(o, peer.Resources.Acquired) })
		o.section("Total shared", func() { resourceLines(o, peer.Resources.Shared) })
	})
	remoteNamespaceLines(o, "Namespaces offloaded to it", peer.Offloaded)
	remoteNamespaceLines(o, "Namespaces offloaded by it", peer.Hosted)
}

// remoteNamespaceLines are namespaces, and what they are called in the other cluster.
func remoteNamespaceLines(o *textWriter, title string, twins []action.RemoteNamespace) {
	if len(twins) == 0 {
		return
	}
	o.section(title, func() {
		for _, twin := range twins {
			o.value(twin.Namespace, fmt.Sprintf("%s as %s", twin.Phase, twin.Remote))
			o.depth++
			o.value("Message", twin.Message)
			o.depth--
		}
	})
}

// seenLines are networks, and as what the other side sees them.
func seenLines(o *textWriter, title string, networks *action.SeenNetworks) {
	if networks == nil {
		o.line("%s: NetworkConfig Not Found", title)
		return
	}
	o.section(title, func() {
		o.section("Original", func() {
			o.value("Pod CIDR", networks.PodCIDR)
			o.value("External CIDR", networks.ExternalCIDR)
		})
		o.section("Remapped", func() {
			for _, one := range []struct{ key, network string }{{"Pod CIDR", networks.RemappedPodCIDR}, {"External CIDR", networks.RemappedExternalCIDR}} {
				switch one.network {
				case "":
					o.value(one.key, "not decided yet")
				case netv1alpha1.NotRemapped:
					o.value(one.key, "remapping not necessary")
				default:
					o.value(one.key, one.network)
				}
			}
		})
	})
}

func connectionLines(o *textWriter, connection *action.PeerConnection) {
	if connection == nil {
		o.line("Network connection: TunnelEndpoint Not Found")
		return
	}
	o.section("Network connection", func() {
		o.section("Gateway IPs", func() {
			o.value("Local", cmp.Or(connection.LocalGateway, "none: it dials the peer"))
			o.value("Remote", cmp.Or(connection.RemoteGateway, "none: the peer dials"))
		})
		for _, lane := range connection.Lanes {
			o.value(fmt.Sprintf("Lane %d", lane.Number), cmp.Or(strings.Join(lane.Endpoints, ", "), "the peer dials"))
		}
		o.value("Status", connection.Status)
		o.value("Message", connection.Message)
		o.value("Latency", connection.Latency)
		if connection.MTU > 0 {
			o.value("MTU", strconv.Itoa(int(connection.MTU)))
		}
	})
}

// resourceLines begins with the resources that everybody asks for, and goes on by name.
func resourceLines(o *textWriter, list corev1.ResourceList) {
	if len(list) == 0 {
		o.line("none")
		return
	}
	first := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage}
	for _, name := range first {
		if quantity, ok := list[name]; ok {
			o.value(string(name), amount(name, quantity))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if !slices.Contains(first, name) {
			o.value(string(name), amount(name, list[name]))
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
