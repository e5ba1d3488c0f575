// SPDX-License-Identifier: Apache-2.0

package networktest

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/matrix"
)

// end is one cluster, as far as the test knows it.
type end struct {
	id, name string
	// remote is true for the second one.
	remote bool
	view   view
	// nodes take part; left is the number of those that do not.
	nodes []node
	left  int
	// shown: the addresses that the other cluster's API shows for the pods here lead to them here as well.
	shown bool
	// shownAs are the networks under which any peer of the cluster shows its pods, where they lead to them here.
	shownAs []netip.Prefix
	// notice is the problem that the cluster itself reports for its network to the other one.
	notice     string
	image      string
	pullPolicy corev1.PullPolicy
	// pullSecrets are those of the installation, copied into the namespace of the test.
	pullSecrets []corev1.Secret
	namespace   string
	// pods are those that run, of the number that was wanted.
	pods   []pod
	wanted int
	// remoteService is a Service with the first pod of the other cluster as endpoint.
	remoteService service
}

type node struct {
	name    string
	address netip.Addr // its internal one
}

type pod struct {
	name, node string
	// kind is hostPod, networkPod or pairPod.
	kind    string
	address netip.Addr
}

// host reports whether a pod is in the network of its node.
func (p pod) host() bool { return p.kind == hostPod }

// service holds the address of a Service and its node port of each protocol.
type service struct {
	address   netip.Addr
	nodePorts map[string]int
}

// view holds the networks of both clusters from the view of one. Each has a second prefix, Seen: the one under which the other
// end reaches it.
type view struct {
	localPods, localPodsSeen         netip.Prefix // of this cluster, and the prefix under which the other one reaches them
	localExternal, localExternalSeen netip.Prefix
	remotePods, remotePodsSeen       netip.Prefix // of the other cluster, and the prefix under which this one reaches them
	remoteExternal, remoteExtSeen    netip.Prefix
}

func viewOf(spec *netv1alpha1.TunnelEndpointSpec) (v view, err error) {
	for _, one := range []struct {
		to, seen *netip.Prefix
		network  netv1alpha1.CIDR
		nat      string
		what     string
	}{
		{&v.localPods, &v.localPodsSeen, spec.LocalPodCIDR, spec.LocalNATPodCIDR, "local pod network"},
		{&v.localExternal, &v.localExternalSeen, spec.LocalExternalCIDR, spec.LocalNATExternalCIDR, "local external network"},
		{&v.remotePods, &v.remotePodsSeen, spec.RemotePodCIDR, spec.RemoteNATPodCIDR, "remote pod network"},
		{&v.remoteExternal, &v.remoteExtSeen, spec.RemoteExternalCIDR, spec.RemoteNATExternalCIDR, "remote external network"},
	} {
		if *one.to, err = netip.ParsePrefix(string(one.network)); err != nil {
			return v, fmt.Errorf("%s: %w", one.what, err)
		}
		*one.seen = *one.to
		if one.nat != "" && one.nat != netv1alpha1.NotRemapped {
			if *one.seen, err = netip.ParsePrefix(one.nat); err != nil {
				return v, fmt.Errorf("%s, remapped: %w", one.what, err)
			}
		}
	}
	return v, nil
}

// agree checks that both clusters recorded the same networks and remappings.
func agree(a, b *end) error {
	for _, one := range []struct {
		what       string
		here, over netip.Prefix
	}{
		{a.name + "'s pods", a.view.localPods, b.view.remotePods},
		{a.name + "'s pods as seen by " + b.name, a.view.localPodsSeen, b.view.remotePodsSeen},
		{a.name + "'s external network", a.view.localExternal, b.view.remoteExternal},
		{a.name + "'s external network as seen by " + b.name, a.view.localExternalSeen, b.view.remoteExtSeen},
		{b.name + "'s pods", a.view.remotePods, b.view.localPods},
		{b.name + "'s pods as seen by " + a.name, a.view.remotePodsSeen, b.view.localPodsSeen},
		{b.name + "'s external network", a.view.remoteExternal, b.view.localExternal},
		{b.name + "'s external network as seen by " + a.name, a.view.remoteExtSeen, b.view.localExternalSeen},
	} {
		if one.here != one.over {
			return fmt.Errorf("the two clusters do not agree on %s: %s in %s, %s in %s; see `liqoctl status peer --verbose` in both", one.what, one.here, a.name,
				one.over, b.name)
		}
	}
	return nil
}

// The cases in the order of the tests: later ones depend on earlier ones. Node ports of the other cluster are not among them:
// its kube-proxy decides whether a node serves them at the address that we know.
const (
	podToPod      = "pod to pod"
	nodeToPod     = "node to pod"
	podToService  = "pod to Service with a remote endpoint"
	podToNodePort = "pod to NodePort with a remote endpoint"
	podToShown    = "pod to pod of its cluster at the address that the other cluster shows"
)

var order = []string{podToPod, nodeToPod, podToService, podToNodePort, podToShown}

// smallBytes is the size up to which a test does not slow down the others.
const smallBytes = 64 << 10

// path is one way of a packet that is tested.
type path struct {
	title, fromCluster, from, toCluster, to string
	// remote: the pod that sends is in the remote cluster.
	remote         bool
	namespace, pod string
	protocol       string
	target         string
	bytes          int64
	// service: the path uses a Service that was just created.
	service bool
	// large paths are tested after all small ones, and fewer at a time.
	large bool
	// servers are the pods that may answer; sources are the networks that may be the source of the request, empty for any.
	servers []string
	sources []netip.Prefix
	// impossible is the reason why the path cannot be tested.
	impossible string
}

// plan returns all paths from one cluster to the other.
func plan(from, to *end, large int64) (paths []path) {
	v := from.view
	newPath := func(source pod, title string) path {
		p := path{title: title, remote: from.remote, namespace: from.namespace, pod: source.name, fromCluster: from.name, toCluster: to.name, from: "pod on " +
			source.node}
		if source.host() {
			p.from = "node " + source.node
		}
		return p
	}
	first := to.first()
	for i, source := range from.pods {
		if source.kind == pairPod {
			continue
		}
		for _, target := range to.pods {
			if target.kind != networkPod {
				continue
			}
			p := newPath(source, podToPod)
			p.to, p.servers = "pod on "+target.node, []string{target.name}
			seen, ok := ipam.Swap(target.address, v.remotePods, v.remotePodsSeen)
			p.aim(seen, ok, matrix.Port)
			if source.host() {
				p.title, p.sources = nodeToPod, []netip.Prefix{v.localExternalSeen}
			} else {
				p.comesAs(source, v)
			}
			paths = append(paths, p)
		}
		if source.host() {
			continue
		}
		p := newPath(source, podToService)
		p.to, p.servers, p.service = "pod on "+first.node, []string{first.name}, true
		p.comesAs(source, v)
		p.aim(from.remoteService.address, true, matrix.Port)
		paths = append(paths, p)

		for _, protocol := range []string{matrix.TCP, matrix.UDP} {
			p := newPath(source, podToNodePort)
			next := from.nodes[(i+1)%len(from.nodes)] // another node, if there is one
			p.to, p.servers, p.service = "pod on "+first.node+" by node "+next.name, []string{first.name}, true
			p.sources = []netip.Prefix{v.localExternalSeen, v.localPodsSeen}
			p.aim(next.address, true, from.remoteService.nodePorts[protocol])
			p.protocol = protocol
			paths = append(paths, p)
		}
	}
	return spread(paths, large)
}

// spread multiplies each path by protocols and sizes.
func spread(paths []path, large int64) (all []path) {
	for _, p := range paths {
		for _, protocol := range []string{matrix.TCP, matrix.UDP} {
			if p.protocol != "" && p.protocol != protocol {
				continue
			}
			for _, bytes := range []int64{1, large} {
				one := p
				one.protocol, one.bytes, one.large = protocol, bytes, bytes > smallBytes
				all = append(all, one)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b path) int { return slices.Index(order, a.title) - slices.Index(order, b.title) })
	return all
}

// aim sets the target.
func (p *path) aim(address netip.Addr, ok bool, port int) {
	if !ok || !address.IsValid() || port == 0 {
		p.impossible = "the other end has no reachable address: it is not in the network that the clusters agreed on"
		return
	}
	p.target = netip.AddrPortFrom(address, uint16(port)).String()
}

// comesAs sets the source address that the other end must observe for a pod.
func (p *path) comesAs(source pod, v view) {
	seen, ok := ipam.Swap(source.address, v.localPods, v.localPodsSeen)
	if !ok {
		p.impossible = fmt.Sprintf("pod %s has the address %s, which is not in the network that the clusters agreed on, %s", source.name, source.address, v.localPods)
		return
	}
	p.sources = []netip.Prefix{netip.PrefixFrom(seen, seen.BitLen())}
}

// judge turns the answer of a pod into the result of the path.
func (p *path) judge(answer matrix.Answer) Result {
	r := Result{
		Case: p.title, FromCluster: p.fromCluster, From: p.from, ToCluster: p.toCluster, To: p.to, Protocol: p.protocol, Bytes: p.bytes, Target: p.target,
		Source: answer.Source, Took: answer.Took, Repeated: answer.Repeated, Error: answer.Error,
	}
	observed, err := netip.ParseAddr(answer.Source)
	switch {
	case p.impossible != "":
		r.Error = p.impossible
	case r.Error != "":
	case !slices.Contains(p.servers, answer.Server):
		r.Error = fmt.Sprintf("another pod answered: %q, want %v", answer.Server, p.servers)
	case len(p.sources) == 0:
	case err != nil || !slices.ContainsFunc(p.sources, func(n netip.Prefix) bool { return n.Contains(observed) }):
		r.Error = fmt.Sprintf("the other end saw the source %q, want %s: the address was changed on the way", answer.Source, either(p.sources))
	}
	return r
}

func either(networks []netip.Prefix) (text string) {
	for i, network := range networks {
		one := network.String()
		if network.IsSingleIP() {
			one = network.Addr().String()
		}
		if i > 0 {
			text += " or "
		}
		text += one
	}
	return text
}

// first returns the first pod outside the host network that is not of the pair.
func (s *end) first() pod {
	i := slices.IndexFunc(s.pods, func(p pod) bool { return p.kind == networkPod })
	if i < 0 {
		return pod{}
	}
	return s.pods[i]
}

// Size is the number of bytes in a readable form.
func (r Result) Size() string { return size(r.Bytes) }

func size(bytes int64) string {
	if bytes >= 1<<20 && bytes%(1<<20) == 0 {
		return strconv.FormatInt(bytes>>20, 10) + " MiB"
	}
	return strconv.FormatInt(bytes, 10) + " B"
}
