// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"liqo.io/liqo/internal/kube/nodeready"
	"liqo.io/liqo/internal/peering/proxy"
)

const (
	controlPlaneRole = "node-role.kubernetes.io/control-plane"
	apiServerPort    = "6443"
)

// Address finds the address of this cluster's API server that peers get.
type Address struct {
	// URL, as ParseAddress returns it. If empty, the address of a control plane node is used.
	URL   string
	Nodes corev1client.NodesGetter
	// TrustedCA: a public authority signed the certificate of the API server, so peers get no CA.
	TrustedCA bool
	// CA returns the CA that this cluster's own pods trust, in PEM. It is called each time, because the CA may be replaced.
	CA func() ([]byte, error)
}

// Find returns the URL of the API server and its CA.
func (a Address) Find(ctx context.Context) (address string, ca []byte, err error) {
	if address = a.URL; address == "" {
		list, err := a.Nodes.Nodes().List(ctx, metav1.ListOptions{LabelSelector: controlPlaneRole})
		if err != nil {
			return "", nil, fmt.Errorf("list control plane nodes: %w", err)
		}
		if address, err = nodeAddress(list.Items); err != nil {
			return "", nil, err
		}
	}
	if a.TrustedCA {
		return address, nil, nil
	}
	ca, err = a.authority()
	return address, ca, err
}

// Inside returns what peers use that come through the proxy of this cluster: the URL that pods may use, and the CA that they trust.
func (a Address) Inside() (address string, ca []byte, err error) {
	ca, err = a.authority()
	return proxy.APIServerURL, ca, err
}

func (a Address) authority() ([]byte, error) {
	ca, err := a.CA()
	if err != nil {
		return nil, fmt.Errorf("read the CA of the API server: %w", err)
	}
	return ca, nil
}

var errNoAddress = errors.New("no control plane node has an internal IP address, so the address of the API server is unknown; " +
	"set it: liqoctl upgrade --set apiServer.address=https://HOST:PORT")

// nodeAddress prefers Ready nodes, then the first by name, so that peers get the same address each time.
func nodeAddress(nodes []corev1.Node) (string, error) {
	nodes = slices.SortedFunc(slices.Values(nodes), func(a, b corev1.Node) int {
		if ready(a) != ready(b) {
			return map[bool]int{true: -1, false: 1}[ready(a)]
		}
		return cmp.Compare(a.Name, b.Name)
	})
	for _, node := range nodes {
		for _, address := range node.Status.Addresses {
			if address.Type == corev1.NodeInternalIP && net.ParseIP(address.Address) != nil {
				return "https://" + net.JoinHostPort(address.Address, apiServerPort), nil
			}
		}
	}
	return "", errNoAddress
}

func ready(node corev1.Node) bool {
	return nodeready.Is(node.Status.Conditions)
}
