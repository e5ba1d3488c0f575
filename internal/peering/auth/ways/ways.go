// SPDX-License-Identifier: Apache-2.0

// Package ways finds at which addresses the gateways of this cluster can be reached, for a cluster that is about to peer: so it can try them before anything is
// changed. They are no part of the peering, whose clusters announce their gateways themselves. It must not know who asks, and writes nothing. The proof is
// ways_test.go.
package ways

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/peering/auth/published"
)

// +kubebuilder:rbac:namespace=liqo,groups="",resources=services,verbs=list

// Way is one at which the first gateway can be reached.
type Way struct {
	// Kind is one of the carriers of package net.liqo.io, PlainWebSocket among them.
	Kind string `json:"kind"`
	Host string `json:"host"`
	Port int32  `json:"port"`
	// Path of a WebSocket.
	Path string `json:"path,omitempty"`
}

const (
	// maxWays and maxText bound what is believed of a provider.
	maxWays = 16
	maxText = 16 << 10
)

// Finder reads the Services of the gateways.
type Finder struct {
	Client    corev1client.CoreV1Interface
	Namespace string
}

// Find returns the ways, in the order of preference, as [Parse] reads them; none if no gateway runs or none can be reached.
func (f Finder) Find(ctx context.Context) ([]byte, error) {
	services, err := f.Client.Services(f.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.Gateway + "=true," + labels.GatewayLane + "=0"})
	if err != nil {
		return nil, fmt.Errorf("list the Services of the gateways: %w", err)
	}
	var nodes corev1.NodeList
	if slices.ContainsFunc(services.Items, func(one corev1.Service) bool { return one.Spec.Type == corev1.ServiceTypeNodePort }) {
		all, err := f.Client.Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list the nodes, for the addresses of NodePort Services: %w", err)
		}
		nodes = *all
	}
	all := of(services.Items, nodes.Items)
	if len(all) == 0 {
		return nil, nil
	}
	return json.Marshal(all)
}

// of returns the ways to the gateway behind these Services.
func of(services []corev1.Service, nodes []corev1.Node) (all []Way) {
	var streams []Way
	for i := range services {
		service := &services[i]
		if len(service.Spec.Ports) == 0 || service.DeletionTimestamp != nil {
			continue
		}
		facts := published.Facts{Service: *service, Nodes: nodes}
		// The error is why it cannot be reached there: then the other ways count.
		host, port, err := facts.Endpoint()
		if service.Spec.Ports[0].Protocol == corev1.ProtocolUDP {
			if err == nil {
				all = append(all, Way{Kind: netv1alpha1.CarrierUDP, Host: host, Port: port})
			}
			continue
		}
		if err == nil {
			streams = append(streams, Way{Kind: netv1alpha1.CarrierTLS, Host: host, Port: port})
		}
		if text, stated := service.Annotations[labels.WebSocketURL]; stated {
			if way, ok := webSocket(text); ok {
				streams = append(streams, way)
			}
		} else if err == nil {
			streams = append(streams, Way{Kind: netv1alpha1.CarrierWebSocket, Host: host, Port: port, Path: "/liqo/lane-0"})
		}
	}
	return append(all, streams...)
}

// webSocket reads the URL of a WebSocket behind a proxy.
func webSocket(text string) (way Way, is bool) {
	at, err := url.Parse(text)
	if err != nil || at.Hostname() == "" {
		return way, false
	}
	way = Way{Kind: netv1alpha1.CarrierWebSocket, Host: at.Hostname(), Port: 443, Path: at.EscapedPath()}
	if at.Scheme == "http" || at.Scheme == "ws" {
		way.Kind, way.Port = netv1alpha1.CarrierPlainWebSocket, 80
	}
	if at.Port() != "" {
		port, err := strconv.ParseUint(at.Port(), 10, 16)
		if err != nil {
			return way, false
		}
		way.Port = int32(port)
	}
	return way, true
}

// Parse reads what a provider states. It leaves out what is not usable, and kinds that a later version may add.
func Parse(text []byte) (all []Way) {
	var stated []Way
	if len(text) > maxText || json.Unmarshal(text, &stated) != nil {
		return nil
	}
	kinds := []string{netv1alpha1.CarrierUDP, netv1alpha1.CarrierTLS, netv1alpha1.CarrierWebSocket, netv1alpha1.CarrierPlainWebSocket}
	const longest = 253
	for _, one := range stated {
		usable := len(all) < maxWays && slices.Contains(kinds, one.Kind) && one.Port > 0 &&
			one.Port <= 65535 && one.Host != "" && len(one.Host) <= longest && len(one.Path) <= longest
		if usable && printable(one.Host) && printable(one.Path) {
			all = append(all, one)
		}
	}
	return all
}

// printable reports whether a text has only characters of hosts and paths: it is shown on a terminal.
func printable(text string) bool {
	return strings.IndexFunc(text, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`"'\<>`, c) }) < 0
}
