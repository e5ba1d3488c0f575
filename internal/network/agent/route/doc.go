// SPDX-License-Identifier: Apache-2.0

// Package route is the role of a node. The node routes packets for peers to a gateway, through a lane that its own probes found to work.
// It probes each lane from end to end; when the lane in use fails and another works, it replaces one route. stop.go decides whether the
// host keeps its state when the process ends. report.go writes which networks the node reaches without Liqo, so that none of them is led to a peer.
//
// The role must not know tunnels or keys, and writes no object but the report of its node. Its proof: the role with a host in memory and probers on
// real sockets, and the state of the host after each answer of a real API server about the DaemonSet.
package route

// What a node may read.
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=net.liqo.io,resources=tunnelendpoints,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo,groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo,groups=apps,resources=daemonsets,resourceNames=liqo-route,verbs=get
