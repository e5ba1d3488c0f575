// SPDX-License-Identifier: Apache-2.0

// Package published finds the address at which other clusters reach a Service of this one, above all that of authentication: from its type, the addresses of
// nodes, an Ingress, or annotations of an administrator. It must not know who asks, and writes nothing. The proof is published_test.go.
package published

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/nodeready"
)

// Service is the name of the Service of authentication.
const Service = "liqo-auth"

// ErrPending means that the address may still come.
var ErrPending = errors.New("the load balancer has no address yet")

// URL returns the URL of a Service of authentication. It reads nodes or ingresses if the type of the Service needs them.
func URL(ctx context.Context, nodes, ingresses client.Reader, service *corev1.Service) (string, error) {
	known := Facts{Service: *service}
	switch service.Spec.Type {
	case corev1.ServiceTypeNodePort:
		var list corev1.NodeList
		if err := nodes.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return "", fmt.Errorf("read the nodes, for the address of the NodePort Service %s: %w", service.Name, err)
		}
		known.Nodes = list.Items
	case corev1.ServiceTypeClusterIP:
		var list networkingv1.IngressList
		if err := ingresses.List(ctx, &list, client.InNamespace(service.Namespace)); err != nil && !apierrors.IsNotFound(err) {
			return "", fmt.Errorf("read the ingresses in namespace %s: %w", service.Namespace, err)
		}
		known.Ingresses = list.Items
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName:
	}
	return known.url()
}

// Facts are what the address of a Service follows from.
type Facts struct {
	Service   corev1.Service
	Nodes     []corev1.Node
	Ingresses []networkingv1.Ingress
}

func (f Facts) url() (string, error) {
	host, port, err := f.Endpoint()
	if err != nil {
		return "", err
	}
	return "https://" + HostPort(host, port), nil
}

// Endpoint is the host and the port: overriding annotations win over the address that follows from the Service's type.
func (f Facts) Endpoint() (host string, port int32, err error) {
	service := f.Service
	if len(service.Spec.Ports) == 0 {
		return "", 0, fmt.Errorf("the Service %s/%s has no port; `liqoctl upgrade` restores it", service.Namespace, service.Name)
	}
	host, port, err = f.published()
	if override := service.Annotations[labels.OverrideAddress]; override != "" {
		host = override
		if err != nil {
			port, err = service.Spec.Ports[0].Port, nil
		}
	}
	if err != nil {
		return "", 0, err
	}
	if override := service.Annotations[labels.OverridePort]; override != "" {
		number, err := strconv.ParseUint(override, 10, 16)
		if err != nil || number == 0 {
			return "", 0, fmt.Errorf(
				"annotation %s=%q of the Service %s/%s is not a port number from 1 to 65535", labels.OverridePort, override, service.Namespace,
				service.Name,
			)
		}
		port = int32(number)
	}
	return host, port, nil
}

// HostPort joins a host and a port. It leaves out the default port of https.
func HostPort(host string, port int32) string {
	// An override may come with brackets around an IPv6 address; JoinHostPort adds its own.
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	switch {
	case port != 443:
		return net.JoinHostPort(host, strconv.Itoa(int(port)))
	case strings.Contains(host, ":"):
		return "[" + host + "]"
	}
	return host
}

// published is the address without overriding annotations.
func (f Facts) published() (host string, port int32, err error) {
	service := f.Service
	switch service.Spec.Type {
	case corev1.ServiceTypeLoadBalancer:
		for _, ingress := range service.Status.LoadBalancer.Ingress {
			if host := cmp.Or(ingress.Hostname, ingress.IP); host != "" {
				return host, service.Spec.Ports[0].Port, nil
			}
		}
		return "", 0, ErrPending
	case corev1.ServiceTypeNodePort:
		if service.Spec.Ports[0].NodePort == 0 {
			return "", 0, fmt.Errorf("the Service %s/%s of type NodePort has no node port yet; try again in a moment", service.Namespace, service.Name)
		}
		if host = nodeAddress(f.Nodes); host == "" {
			return "", 0, fmt.Errorf("none of the %d nodes is Ready and has an address, so the NodePort of %s/%s cannot be published; "+
				"annotate the Service with %s=ADDRESS", len(f.Nodes), service.Namespace, service.Name, labels.OverrideAddress)
		}
		return host, service.Spec.Ports[0].NodePort, nil
	default:
		for _, ingress := range f.Ingresses {
			for _, rule := range ingress.Spec.Rules {
				if rule.Host != "" && pointsTo(rule, service.Name) {
					return rule.Host, 443, nil
				}
			}
		}
		return "", 0, fmt.Errorf("the Service %s/%s has type %s and no Ingress with a host leads to it, so other clusters cannot reach it; "+
			"annotate it with %s=ADDRESS, or run `liqoctl upgrade` with --service-type LoadBalancer or NodePort, or with --set "+
			"auth.ingress.enable=true,auth.ingress.host=HOST",
			service.Namespace, service.Name, service.Spec.Type, labels.OverrideAddress)
	}
}

func pointsTo(rule networkingv1.IngressRule, service string) bool {
	return rule.HTTP != nil && slices.ContainsFunc(rule.HTTP.Paths, func(path networkingv1.HTTPIngressPath) bool {
		return path.Backend.Service != nil && path.Backend.Service.Name == service
	})
}

// nodeAddress is the address of the first Ready physical node by name: its external address if it has one.
func nodeAddress(nodes []corev1.Node) string {
	sorted := slices.SortedFunc(slices.Values(nodes), func(a, b corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, node := range sorted {
		if node.Labels[labels.Type] == labels.TypeVirtualNode || !nodeReady(&node) {
			continue
		}
		for _, kind := range []corev1.NodeAddressType{corev1.NodeExternalIP, corev1.NodeInternalIP, corev1.NodeHostName} {
			for _, address := range node.Status.Addresses {
				if address.Type == kind && address.Address != "" {
					return address.Address
				}
			}
		}
	}
	return ""
}

func nodeReady(node *corev1.Node) bool {
	return nodeready.Is(node.Status.Conditions)
}
