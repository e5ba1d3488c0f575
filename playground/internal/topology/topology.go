// SPDX-License-Identifier: Apache-2.0

// Package topology turns a scenario into names and addresses: every namespace, link,
// address and directory of a playground follows from the scenario alone.
//
// It is pure. Because all names share one prefix and all paths one directory, `down` can
// clean up without any record of what was made. Its proof is topology_test.go.
package topology

import (
	"fmt"
	"net/netip"
	"path"
	"slices"

	"liqo.io/liqo/playground/internal/scenario"
)

// Names that identify everything of the playground on a machine.
const (
	// Prefix starts the name of every network namespace.
	Prefix = "lpg-"
	// Router is the namespace in which clusters meet each other and the host.
	Router = Prefix + "wan"
	// HostLink is the only link in the host's own network namespace.
	HostLink = "lpg0"
	// RouterHostLink is its other end, inside Router.
	RouterHostLink = "host"
	// NodeLink is the name of a node's interface, inside the node.
	NodeLink = "eth0"
	// Cgroup is the subtree, below each hierarchy's root, that holds every process.
	Cgroup = "liqo-playground"
	// NetNSDir is where iproute2 keeps named network namespaces.
	NetNSDir = "/run/netns"
	// StateDir holds everything that `down` removes.
	StateDir = "/var/lib/liqo-playground"
	// RuntimeDir holds control sockets and the lock.
	RuntimeDir = "/run/liqo-playground"
	// APIPort is the API server's port on the control plane's address.
	APIPort = 6443
)

const (
	controlPlaneHost = 10  // host part of the control plane's address
	poolFirst        = 200 // first and last host part of LoadBalancer addresses
	poolLast         = 250
	maxNodes         = poolFirst - controlPlaneHost
)

// MaxExtras is how many machines other than nodes a node network has addresses for.
const MaxExtras = 254 - poolLast

// Topology is a scenario with every name and address decided.
type Topology struct {
	Scenario scenario.Scenario
	// HostAddress and RouterAddress are the two ends of the host's link, both in HostNet.
	HostNet                    netip.Prefix
	HostAddress, RouterAddress netip.Addr
	Clusters                   []Cluster
}

// Cluster is a scenario's cluster with its names and addresses.
type Cluster struct {
	scenario.Cluster
	// Number is the position of its node network inside the playground's; it names the bridge.
	Number int
	// Bridge is the cluster's segment inside Router, Gateway its address there.
	Bridge  string
	Gateway netip.Addr
	// ControlPlane is the address of the API server; NetNS the namespace it lives in, which
	// it shares with the first node, so that webhooks can reach ClusterIPs.
	ControlPlane Endpoint
	Nodes        []Node
	// DNS and API are the cluster's service addresses of CoreDNS and of the API server.
	DNS, API netip.Addr
	// PoolFirst and PoolLast bound the addresses of LoadBalancer services.
	PoolFirst, PoolLast netip.Addr
	// Bursts: hollow nodes take pods by the hundred, in this cluster or through it in another one.
	Bursts bool
	// Dir holds the cluster's files.
	Dir string
}

// Endpoint is a namespace with its address and the router's port to it.
type Endpoint struct {
	Name    string
	NetNS   string
	Address netip.Addr
	// Port is the router's end of the link, at most 15 characters.
	Port string
}

// Node is a real node.
type Node struct {
	Endpoint
	Role   scenario.Role
	Labels map[string]string
	// Dir holds the node's files; its root directory is Dir/root.
	Dir string
}

// New decides names and addresses. The error names what does not fit.
func New(s scenario.Scenario) (Topology, error) {
	s, err := s.Assign()
	if err != nil {
		return Topology{}, err
	}
	base := s.Network.Masked().Addr()
	t := Topology{
		Scenario: s, HostNet: netip.PrefixFrom(base, 24),
		HostAddress: host(base, 1), RouterAddress: host(base, 2),
	}
	bursts := slices.ContainsFunc(s.Clusters, func(c scenario.Cluster) bool { return len(c.Hollow) > 0 })
	for _, c := range s.Clusters {
		if len(c.Nodes) > maxNodes {
			return Topology{}, fmt.Errorf(
				"cluster %s asks for %d real nodes; its network has addresses for %d (use hollow nodes for scale)", c.Name, len(c.Nodes), maxNodes,
			)
		}
		made := newCluster(base, c)
		made.Bursts = bursts
		t.Clusters = append(t.Clusters, made)
	}
	return t, nil
}

func newCluster(base netip.Addr, c scenario.Cluster) Cluster {
	net := c.NodeCIDR.Addr()
	number := int(number(net)-number(base)) >> 8
	out := Cluster{
		Cluster: c, Number: number,
		Bridge: fmt.Sprintf("br%d", number), Gateway: host(net, 1),
		DNS: host(c.ServiceCIDR.Masked().Addr(), 10), API: host(c.ServiceCIDR.Masked().Addr(), 1),
		PoolFirst: host(net, poolFirst), PoolLast: host(net, poolLast),
		Dir: path.Join(StateDir, "clusters", c.Name),
	}
	out.ControlPlane = out.endpoint(NodeName(c.Name, 0), controlPlaneHost)
	for i, n := range c.Nodes {
		name := NodeName(c.Name, i)
		out.Nodes = append(out.Nodes, Node{
			Endpoint: out.endpoint(name, controlPlaneHost+i), Role: n.Role, Labels: n.Labels,
			Dir: path.Join(out.Dir, "nodes", name),
		})
	}
	return out
}

// Extra is the endpoint of a machine on the node network that is no node; i is less than MaxExtras.
func (c Cluster) Extra(name string, i int) Endpoint { return c.endpoint(name, poolLast+1+i) }

func (c Cluster) endpoint(name string, part int) Endpoint {
	return Endpoint{
		Name: name, NetNS: path.Join(NetNSDir, Prefix+name),
		Address: host(c.NodeCIDR.Addr(), uint32(part)), Port: fmt.Sprintf("p%d-%d", c.Number, part),
	}
}

// NodeName follows kind: rome-control-plane, rome-worker, rome-worker2, ...
func NodeName(cluster string, i int) string {
	switch i {
	case 0:
		return cluster + "-control-plane"
	case 1:
		return cluster + "-worker"
	}
	return fmt.Sprintf("%s-worker%d", cluster, i)
}

// Server is the URL of the API server, reachable from the host and from every cluster.
func (c Cluster) Server() string {
	return fmt.Sprintf("https://%s:%d", c.ControlPlane.Address, APIPort)
}

// Kubeconfig is the path of the administrator's kubeconfig inside the state directory.
func (c Cluster) Kubeconfig() string { return path.Join(c.Dir, "admin.kubeconfig") }

// ControlPlaneMachine is the name of the machine that runs the control plane.
func (c Cluster) ControlPlaneMachine() string { return c.Name + ".control-plane" }

// NodeMachine is the name of the machine that runs a node.
func (c Cluster) NodeMachine(node string) string { return c.Name + "." + node }

// Total is the number of nodes, real and hollow.
func (c Cluster) Total() int {
	n := len(c.Nodes)
	for _, h := range c.Hollow {
		n += h.Count
	}
	return n
}

// Endpoints lists every namespace of the cluster; a cluster without nodes also has one.
func (c Cluster) Endpoints() []Endpoint {
	if len(c.Nodes) == 0 {
		return []Endpoint{c.ControlPlane}
	}
	out := make([]Endpoint, 0, len(c.Nodes))
	for _, n := range c.Nodes {
		out = append(out, n.Endpoint)
	}
	return out
}

// Cluster returns the cluster of that name.
func (t Topology) Cluster(name string) (Cluster, bool) {
	for _, c := range t.Clusters {
		if c.Name == name {
			return c, true
		}
	}
	return Cluster{}, false
}

// Node returns the real node of that name.
func (c Cluster) Node(name string) (Node, bool) {
	for _, n := range c.Nodes {
		if n.Name == name {
			return n, true
		}
	}
	return Node{}, false
}

// Socket is the path of a machine's control socket. It is short because the kernel allows
// 107 bytes.
func Socket(machine string) string { return path.Join(RuntimeDir, machine+".sock") }

func number(a netip.Addr) uint32 {
	b := a.As4()
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

func host(network netip.Addr, n uint32) netip.Addr {
	v := number(network) + n
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
}
