// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	netapply "liqo.io/liqo/apis/applyconfiguration/net/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/special"
	"liqo.io/liqo/internal/network/carrier"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/nodes"
)

const (
	Backend = "wireguard"
	// MaxAddresses and maxCarriers are what the API allows.
	MaxAddresses, MaxCarriers = 16, 8
)

// Gateway is where the gateway of a lane can be reached. A gateway without carriers cannot be reached and must dial; one reachable side suffices.
type Gateway struct {
	Lane     int
	Port     int32
	Carriers []netv1alpha1.Carrier
	// Problem is why expected carriers are missing.
	Problem string
}

// LaneOf returns the lane number in the labels of a gateway's object.
func LaneOf(labelled map[string]string) (int, bool) {
	lane, err := strconv.Atoi(labelled[labels.GatewayLane])
	return lane, err == nil && lane >= 0 && lane < ipam.MaxLanes
}

// Gateways returns where the gateways of this cluster can be reached, sorted by lane. running is the node of the gateway pod of each lane.
func Gateways(services []corev1.Service, running map[int]string, nodes []corev1.Node) []Gateway {
	byLane, streams := map[int]*corev1.Service{}, map[int]*corev1.Service{}
	for i := range services {
		service := &services[i]
		of := byLane
		if portOf(service, corev1.ProtocolUDP) == nil && portOf(service, corev1.ProtocolTCP) != nil {
			of = streams
		}
		lane, ok := LaneOf(service.Labels)
		if ok && service.DeletionTimestamp == nil && (of[lane] == nil || service.Name < of[lane].Name) {
			of[lane] = service
		}
	}
	var all []Gateway
	for lane := range ipam.MaxLanes {
		service := byLane[lane]
		if service == nil {
			continue
		}
		at := endpointOf(service, running[lane], nodes)
		at.Lane = lane
		if stream := streams[lane]; stream != nil {
			at.addStreams(endpointOf(stream, running[lane], nodes), stream)
		}
		all = append(all, at)
	}
	return all
}

// addStreams adds the ways over TCP to those over UDP, which come first.
func (e *Gateway) addStreams(tcp Gateway, service *corev1.Service) {
	at, proxied := service.Annotations[labels.WebSocketURL]
	for _, way := range tcp.Carriers {
		tls, socket := way, way
		tls.Type, socket.Type, socket.Path = netv1alpha1.CarrierTLS, netv1alpha1.CarrierWebSocket, carrier.PathOf(e.Lane)
		if e.Carriers = append(e.Carriers, tls); !proxied {
			e.Carriers = append(e.Carriers, socket)
		}
	}
	if proxied {
		socket, err := webSocketAt(at, e.Lane)
		if err != nil {
			e.Problem = cmp.Or(e.Problem, fmt.Sprintf("annotation %s of Service %s/%s: %v", labels.WebSocketURL, service.Namespace, service.Name, err))
		} else {
			e.Carriers = append(e.Carriers, socket)
		}
	}
	e.Problem = cmp.Or(e.Problem, tcp.Problem)
}

// webSocketAt returns the way to a WebSocket behind a proxy.
func webSocketAt(text string, lane int) (way netv1alpha1.Carrier, err error) {
	at, err := url.Parse(text)
	if err != nil || at.User != nil || at.RawQuery != "" || at.Fragment != "" {
		return way, fmt.Errorf("%.100q is not a URL like https://gateway.example.org/liqo/lane-0", text)
	}
	way = netv1alpha1.Carrier{
		Type: netv1alpha1.CarrierWebSocket, Addresses: []string{at.Hostname()}, Port: 443, Path: cmp.Or(at.EscapedPath(), carrier.PathOf(lane)),
	}
	switch at.Scheme {
	case "https", "wss":
	case "http", "ws":
		way.Type, way.Port = netv1alpha1.CarrierPlainWebSocket, 80
	default:
		return way, fmt.Errorf("%.100q has the scheme %.20q; want https, or http for a proxy without TLS", text, at.Scheme)
	}
	if at.Port() != "" {
		port, err := strconv.ParseUint(at.Port(), 10, 16)
		if err != nil || port == 0 {
			return way, fmt.Errorf("%.100q has the port %.20q; want 1 to 65535", text, at.Port())
		}
		way.Port = int32(port)
	}
	if !CarrierPath.MatchString(way.Path) || !carrier.IsPathOf(way.Path, lane) {
		return way, fmt.Errorf("%.100q has the path %.100q; want letters, digits and ._~/- only, with /lane-%d at the end", text, way.Path, lane)
	}
	return way, checkHost(at.Hostname(), nil)
}

// endpointOf reads one Service: annotations of the administrator come first, then the addresses of its type.
func endpointOf(service *corev1.Service, runsOn string, nodes []corev1.Node) Gateway {
	port := cmp.Or(portOf(service, corev1.ProtocolUDP), portOf(service, corev1.ProtocolTCP))
	if port == nil {
		return Gateway{Problem: fmt.Sprintf("Service %s/%s has neither a UDP port nor a TCP port", service.Namespace, service.Name)}
	}
	at := Gateway{Port: port.Port}
	var addresses []string
	switch service.Spec.Type {
	case corev1.ServiceTypeLoadBalancer:
		addresses = balancerAddresses(service)
		if len(addresses) == 0 {
			at.Problem = fmt.Sprintf("LoadBalancer Service %s/%s has no address yet; see `kubectl -n %[1]s describe service %[2]s`, or set annotation %s on it",
				service.Namespace, service.Name, labels.OverrideAddress)
		}
	case corev1.ServiceTypeNodePort:
		at.Port = port.NodePort
		addresses = nodeAddresses(service, runsOn, nodes)
		switch local := service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal; {
		case len(addresses) > 0:
		case local:
			at.Problem = fmt.Sprintf("only the node of the gateway pod serves NodePort Service %s/%s, because its externalTrafficPolicy is Local, "+
				"and no gateway pod is on a node with an address; "+
				"see `kubectl -n %[1]s get pods -l net.liqo.io/gateway=active -o wide`", service.Namespace, service.Name)
		default:
			at.Problem = fmt.Sprintf("no Ready node has an address for NodePort Service %s/%s; see `kubectl get nodes -o wide`", service.Namespace, service.Name)
		}
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName:
	}
	if text, ok := service.Annotations[labels.OverridePort]; ok {
		number, err := strconv.ParseUint(text, 10, 16)
		if err != nil || number == 0 {
			at.Problem = fmt.Sprintf("annotation %s of Service %s/%s is %.40q, want a port from 1 to 65535", labels.OverridePort, service.Namespace, service.Name, text)
			return at
		}
		at.Port = int32(number)
	}
	if address, ok := service.Annotations[labels.OverrideAddress]; ok {
		if err := checkHost(address, nil); err != nil {
			at.Problem = fmt.Sprintf("annotation %s of Service %s/%s: %v", labels.OverrideAddress, service.Namespace, service.Name, err)
			return at
		}
		addresses, at.Problem = []string{address}, ""
	}
	if len(addresses) > 0 && at.Port > 0 {
		at.Carriers = []netv1alpha1.Carrier{{Type: netv1alpha1.CarrierUDP, Addresses: addresses[:min(len(addresses), MaxAddresses)], Port: at.Port}}
	}
	return at
}

func portOf(service *corev1.Service, protocol corev1.Protocol) *corev1.ServicePort {
	for i := range service.Spec.Ports {
		if service.Spec.Ports[i].Protocol == protocol {
			return &service.Spec.Ports[i]
		}
	}
	return nil
}

// balancerAddresses returns IP addresses before names, because they need no DNS.
func balancerAddresses(service *corev1.Service) (addresses []string) {
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		if checkHost(ingress.IP, nil) == nil {
			addresses = append(addresses, ingress.IP)
		}
	}
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		if ingress.Hostname != "" && checkHost(ingress.Hostname, nil) == nil {
			addresses = append(addresses, ingress.Hostname)
		}
	}
	return addresses
}

// nodeAddresses starts with the node of the gateway pod, which needs no further hop and is alive if the pod is. The other Ready nodes follow by name.
func nodeAddresses(service *corev1.Service, runsOn string, all []corev1.Node) (addresses []string) {
	add := func(address string) {
		if checkHost(address, nil) == nil && !slices.Contains(addresses, address) {
			addresses = append(addresses, address)
		}
	}
	if stated := service.Annotations[labels.GatewayNodeIP]; stated != "" {
		add(stated)
	}
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b corev1.Node) int {
		if first := a.Name == runsOn; first != (b.Name == runsOn) {
			if first {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	for i := range sorted {
		node := &sorted[i]
		switch {
		case nodes.IsVirtual(node), node.Name != runsOn && !nodes.IsReady(node):
		case node.Name != runsOn && service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal:
		default:
			for _, kind := range []corev1.NodeAddressType{corev1.NodeExternalIP, corev1.NodeInternalIP} {
				for _, address := range node.Status.Addresses {
					if address.Type == kind {
						add(address.Address)
					}
				}
			}
		}
	}
	return addresses
}

// CheckRemote accepts hosts that a peer may announce: those of checkHost, except names that are not fully qualified, because those resolve to
// another host in each cluster.
func CheckRemote(host string, inside []netip.Prefix) error {
	if err := checkHost(host, inside); err != nil {
		return err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	dot := strings.LastIndexByte(host, '.')
	if top := host[dot+1:]; dot < 0 || top == "default" || strings.HasPrefix(top, "kube-") {
		return fmt.Errorf("%.60q resolves differently in each cluster; want a fully qualified name", host)
	}
	return nil
}

// checkHost accepts hosts that a gateway can dial: an IPv4 address of a host outside of the networks inside, or a DNS name.
func checkHost(host string, inside []netip.Prefix) error {
	if address, err := netip.ParseAddr(host); err == nil {
		switch {
		case !address.Is4():
			return fmt.Errorf("address %.60s: only IPv4 is supported", host)
		case special.Is(address) || address.As4()[0] >= 224:
			return fmt.Errorf("address %s is loopback, link-local, multicast or reserved; want that of a host", address)
		}
		for _, network := range inside {
			if network.Contains(address) {
				return fmt.Errorf("address %s is in %s, which this cluster uses for itself or for a peer", address, network)
			}
		}
		return nil
	}
	if len(validation.IsDNS1123Subdomain(host)) > 0 || strings.Trim(host, "0123456789.") == "" {
		return fmt.Errorf("%.60q is neither an IPv4 address nor a DNS name", host)
	}
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || strings.HasSuffix(host, ".cluster.local") || strings.HasSuffix(host, ".svc") {
		return fmt.Errorf("%.60q resolves differently in each cluster; want a public name or address", host)
	}
	return nil
}

// CarrierPath is the form of the path of a WebSocket.
var CarrierPath = regexp.MustCompile(`^/[a-zA-Z0-9._~/-]*$`)

func ApplyLane(lane netv1alpha1.Lane) *netapply.LaneApplyConfiguration {
	out := netapply.Lane().WithNumber(lane.Number).WithPublicKey(lane.PublicKey)
	for i := range lane.Carriers {
		carrier := &lane.Carriers[i]
		way := netapply.Carrier().WithType(carrier.Type).WithAddresses(carrier.Addresses...).WithPort(carrier.Port)
		if carrier.Path != "" {
			way.WithPath(carrier.Path)
		}
		out.WithCarriers(way)
	}
	return out
}
