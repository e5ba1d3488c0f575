// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"path/filepath"
	"strings"

	"liqo.io/liqo/playground/internal/scenario"
	"liqo.io/liqo/playground/internal/topology"
)

// Machine is a machine of the playground: its name, its control socket, and what must be done
// to its network when it is switched.
type Machine struct {
	Name   string
	Socket string
	// Node is where the machine is connected; nil for a control plane, which uses its first node's.
	Node *topology.Endpoint
	// Cable is the node's link if the node alone uses it.
	Cable *topology.Endpoint
}

// Machines lists the machines of a cluster, its control plane first.
func Machines(c topology.Cluster) []Machine {
	out := []Machine{{Name: c.ControlPlaneMachine(), Socket: topology.Socket(c.ControlPlaneMachine())}}
	for _, n := range c.Nodes {
		out = append(out, NodeMachine(c, n))
	}
	return out
}

// NodeMachine is the machine of a node.
func NodeMachine(c topology.Cluster, n topology.Node) Machine {
	r := Machine{Name: c.NodeMachine(n.Name), Socket: topology.Socket(c.NodeMachine(n.Name)), Node: &n.Endpoint}
	if n.Role == scenario.RoleWorker {
		r.Cable = &n.Endpoint // the first node's also serves the control plane, which stays up
	}
	return r
}

// SpecPath is the file from which a machine is started again.
func SpecPath(machine string) string {
	return filepath.Join(topology.StateDir, "machine", machine+".json")
}

// Node returns a real node and its cluster, or an error that names those there are.
func Node(t topology.Topology, clusterName, nodeName string) (topology.Cluster, topology.Node, error) {
	c, err := Cluster(t, clusterName)
	if err != nil {
		return c, topology.Node{}, err
	}
	n, found := c.Node(nodeName)
	if !found {
		names := make([]string, 0, len(c.Nodes))
		for _, n := range c.Nodes {
			names = append(names, n.Name)
		}
		return c, n, fmt.Errorf("cluster %s has no real node %q; it has: %s", clusterName, nodeName, strings.Join(names, ", "))
	}
	return c, n, nil
}

// ShortName drops the cluster, which the reader knows: "control plane" or the node's name.
func ShortName(c topology.Cluster, machineName string) string {
	if machineName == c.ControlPlaneMachine() {
		return ControlPlane
	}
	return strings.TrimPrefix(machineName, c.Name+".")
}

// ControlPlane is the name of the control plane's machine in commands that otherwise take a node.
const ControlPlane = "control-plane"
