// SPDX-License-Identifier: Apache-2.0

// Package gateway is the role of a gateway pod: one end of the tunnels of one lane to all peers. dial.go decides where and when each peer is
// dialled; keys.go follows a peer that changes its key; status.go builds the report for the controller manager and Prometheus, serve.go
// serves it.
//
// The role must not know how a tunnel is made, and writes no object. Its proof: the state machines of dial.go and keys.go on a
// simulated clock, and the role with a host in memory and two probers on real sockets.
package gateway

// What a gateway may read. It writes nothing.
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=net.liqo.io,resources=tunnelendpoints;ipmappings,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo,groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo,groups="",resources=secrets,resourceNames=liqo-gateway-keys,verbs=list;watch
