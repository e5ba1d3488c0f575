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

// side is one cluster, as far as the test knows it.
type side struct {
	id, name string
	// remote tells the second one from the first.
	remote bool
	view   view
	// nodes take part, left do not.
	nodes []node
	left  int
	// notice is what the cluster itself has against its network to the other one.
	notice     string
	image      string
	pullPolicy corev1.PullPolicy
	namespace  string
	pods       []pod
	// far leads to the first pod of the other cluster.
	far service
}

type node struct {
	name    string
	address netip.Addr // its internal one
}

type pod struct {
	name, node string
	// host pods are in the network of their node.
	host    bool
	address netip.Addr
}

// service is how a Service is reached: its address, and its node port of each protocol.
type service struct {
	address   netip.Addr
	nodePorts map[string]int
}

// view is how one cluster numbers itself and the other one. Seen networks are as the other end sees them.
type view struct {
	localPods, localPodsSeen         netip.Prefix // ours, and as what the other cluster sees them
	localExternal, localExternalSeen netip.Prefix
	remotePods, remotePodsSeen       netip.Prefix // theirs, and as what we see them
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

// agree tells whether both clusters have the same idea of who is seen as what.
func agree(a, b *side) error {
	for _, one := range []struct {
		what       string
		here, over netip.Prefix
	}{
		{a.name + "'s pods", a.view.localPods, b.view.remotePods},
		{a.name + "'s pods in the eyes of " + b.name, a.view.localPodsSeen, b.view.remotePodsSeen},
		{a.name + "'s external network", a.view.localExternal, b.view.remoteExternal},
		{a.name + "'s external network in the eyes of " + b.name, a.view.localExternalSeen, b.view.remoteExtSeen},
		{b.name + "'s pods", a.view.remotePods, b.view.localPods},
		{b.name + "'s pods in the eyes of " + a.name, a.view.remotePodsSeen, b.view.localPodsSeen},
		{b.name + "'s external network", a.view.remoteExternal, b.view.localExternal},
		{b.name + "'s external network in the eyes of " + a.name, a.view.remoteExtSeen, b.view.localExternalSeen},
	} {
		if one.here != one.over {
			return fmt.Errorf("the two clusters do not agree on %s: %s in %s, %s in %s; see `liqoctl status peer --verbose` in both", one.what, one.here, a.name, one.over, b.name)
		}
	}
	return nil
}

// The cases, in the order in which they are tried: what the later ones need comes first. Node ports of the other cluster are not among
// them: whether a node serves them at the address that we have for it is its kube-proxy's choice.
const (
	podToPod      = "pod to pod"
	nodeToPod     = "node to pod"
	podToService  = "pod to Service with a remote endpoint"
	podToNodePort = "pod to NodePort with a remote endpoint"
)

var order = []string{podToPod, nodeToPod, podToService, podToNodePort}

// smallBytes is the most that one path can send without being noticed by the others.
const smallBytes = 64 << 10

// path is one way to be tried.
type path struct {
	title, fromCluster, from, toCluster, to string
	// remote: it begins in the remote cluster, in this pod.
	remote         bool
	namespace, pod string
	protocol       string
	target         string
	bytes          int64
	// service: it goes through a Service that was made just now.
	service bool
	// large: it comes after all those that are not, and with fewer beside it.
	large bool
	// servers may answer; sources are the networks from which they are to see the request come; none: any.
	servers []string
	sources []netip.Prefix
	// impossible is why it cannot be tried.
	impossible string
}

// plan is all that is to be tried from one cluster to the other.
func plan(from, to *side, large int64) (paths []path) {
	v := from.view
	begin := func(p pod, title string) path {
		l := path{title: title, remote: from.remote, namespace: from.namespace, pod: p.name, fromCluster: from.name, toCluster: to.name, from: "pod on " + p.node}
		if p.host {
			l.from = "node " + p.node
		}
		return l
	}
	first := to.first()
	for i, p := range from.pods {
		for _, q := range to.pods {
			if q.host {
				continue
			}
			l := begin(p, podToPod)
			l.to, l.servers = "pod on "+q.node, []string{q.name}
			seen, ok := ipam.Swap(q.address, v.remotePods, v.remotePodsSeen)
			l.aim(seen, ok, matrix.Port)
			if p.host {
				l.title, l.sources = nodeToPod, []netip.Prefix{v.localExternalSeen}
			} else {
				l.comesAs(p, v)
			}
			paths = append(paths, l)
		}
		if p.host {
			continue
		}
		l := begin(p, podToService)
		l.to, l.servers, l.service = "pod on "+first.node, []string{first.name}, true
		l.comesAs(p, v)
		l.aim(from.far.address, true, matrix.Port)
		paths = append(paths, l)

		for _, protocol := range []string{matrix.TCP, matrix.UDP} {
			l := begin(p, podToNodePort)
			next := from.nodes[(i+1)%len(from.nodes)] // another one, if there is
			l.to, l.servers, l.service = "pod on "+first.node+" by node "+next.name, []string{first.name}, true
			l.sources = []netip.Prefix{v.localExternalSeen, v.localPodsSeen}
			l.aim(next.address, true, from.far.nodePorts[protocol])
			l.protocol = protocol
			paths = append(paths, l)
		}
	}
	return spread(paths, large)
}

// spread makes of each path one for each protocol and size.
func spread(paths []path, large int64) (all []path) {
	for _, l := range paths {
		for _, protocol := range []string{matrix.TCP, matrix.UDP} {
			if l.protocol != "" && l.protocol != protocol {
				continue
			}
			for _, bytes := range []int64{1, large} {
				one := l
				one.protocol, one.bytes, one.large = protocol, bytes, bytes > smallBytes
				all = append(all, one)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b path) int { return slices.Index(order, a.title) - slices.Index(order, b.title) })
	return all
}

// aim sets the target.
func (l *path) aim(address netip.Addr, ok bool, port int) {
	if !ok || !address.IsValid() || port == 0 {
		l.impossible = "the other end has no address that can be reached: it is not in the network that the clusters agreed on"
		return
	}
	l.target = netip.AddrPortFrom(address, uint16(port)).String()
}

// comesAs says as whom the other end must see a pod.
func (l *path) comesAs(p pod, v view) {
	seen, ok := ipam.Swap(p.address, v.localPods, v.localPodsSeen)
	if !ok {
		l.impossible = fmt.Sprintf("pod %s has the address %s, which is not in the network that the clusters agreed on, %s", p.name, p.address, v.localPods)
		return
	}
	l.sources = []netip.Prefix{netip.PrefixFrom(seen, seen.BitLen())}
}

// judge says what an answer means.
func (l *path) judge(answer matrix.Answer) Result {
	r := Result{
		Case: l.title, FromCluster: l.fromCluster, From: l.from, ToCluster: l.toCluster, To: l.to, Protocol: l.protocol, Bytes: l.bytes, Target: l.target,
		Source: answer.Source, Took: answer.Took, Repeated: answer.Repeated, Error: answer.Error,
	}
	source, err := netip.ParseAddr(answer.Source)
	switch {
	case l.impossible != "":
		r.Error = l.impossible
	case r.Error != "":
	case !slices.Contains(l.servers, answer.Server):
		r.Error = fmt.Sprintf("another pod answered: %q, want %v", answer.Server, l.servers)
	case len(l.sources) == 0:
	case err != nil || !slices.ContainsFunc(l.sources, func(n netip.Prefix) bool { return n.Contains(source) }):
		r.Error = fmt.Sprintf("the other end saw the source %q, want %s: the address was changed on the way", answer.Source, either(l.sources))
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

// first pod that is not in the network of its node.
func (s *side) first() pod {
	i := slices.IndexFunc(s.pods, func(p pod) bool { return !p.host })
	if i < 0 {
		return pod{}
	}
	return s.pods[i]
}

// Size writes an amount of bytes for people.
func (r Result) Size() string { return size(r.Bytes) }

func size(bytes int64) string {
	if bytes >= 1<<20 && bytes%(1<<20) == 0 {
		return strconv.FormatInt(bytes>>20, 10) + " MiB"
	}
	return strconv.FormatInt(bytes, 10) + " B"
}
