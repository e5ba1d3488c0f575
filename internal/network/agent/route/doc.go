// SPDX-License-Identifier: Apache-2.0

// Package route is the role of a node. The node routes packets for peers to a gateway, through a lane that its own probes found to work.
// It probes each lane from end to end; when the lane in use fails and another works, it replaces one route. stop.go decides whether the
// host keeps its state when the process ends.
//
// The role must not know tunnels or keys, and writes no object. Its proof: the role with a host in memory and probers on real sockets, and
// the state of the host after each answer of a real API server about the DaemonSet.
package route

// What a node may read. It writes nothing.
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=net.liqo.io,resources=tunnelendpoints,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo,groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo,groups=apps,resources=daemonsets,resourceNames=liqo-route,verbs=get
