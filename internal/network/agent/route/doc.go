// SPDX-License-Identifier: Apache-2.0

// Package route is the role of a node: packets for peers are led to a gateway, through the lane that the node itself found to work. A lane is
// probed from end to end; when the one in use fails and another works, one route is replaced. farewell.go decides what becomes of
// the host when the process ends.
//
// It must not know tunnels or keys, and writes nothing. Its proof: the role with a host of memory and probers on real sockets, and what
// remains of the host after each answer of a real API server about the DaemonSet.
package route

// What a node may read. It writes nothing.
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=net.liqo.io,resources=tunnelendpoints,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo,groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo,groups=apps,resources=daemonsets,resourceNames=liqo-route,verbs=get
