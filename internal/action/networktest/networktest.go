// SPDX-License-Identifier: Apache-2.0

// Package networktest tests the network between two clusters from inside: it creates a namespace in both, a pod on each node, and
// tests every path of a packet. The pods send the packets; the test calls them through the API server, so it needs access to both
// API servers and nothing else.
//
// paths.go is pure: it computes which pod must reach which one, at which address and from which source, from the networks that
// the clusters agreed on. trial.go tests the paths. The package must not know how the network works. Its proof is
// networktest_test.go: real API servers, with pods that answer as over a working or a broken network.
package networktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/installed"
	"liqo.io/liqo/internal/kube/nodeready"
)

// Cluster is one of the two clusters under test.
type Cluster struct {
	Client client.WithWatch
	// Asker makes pods send requests to others.
	Asker Asker
	// Namespace of Liqo.
	Namespace string
}

type Options struct {
	Local, Remote Cluster
	// Bytes of the large exchange; the small one is a single byte.
	Bytes int64
	// MaxNodes of each cluster take part; 0 is all.
	MaxNodes int
	// Keep does not delete the namespaces.
	Keep bool
	// Timeout bounds everything except for the clean-up.
	Timeout time.Duration
}

// Report is the result of a test. `-o json` prints its JSON form.
type Report struct {
	Local   string   `json:"local"`
	Remote  string   `json:"remote"`
	Results []Result `json:"results"`
	Failed  int      `json:"failed"`
	// NotTested are reasons why something needs no test, or cannot be expected to work.
	NotTested []string `json:"notTested,omitempty"`
}

type Result struct {
	Case string `json:"case"`
	// FromCluster and ToCluster are the names of the clusters; From and To are the ends in them.
	FromCluster string `json:"fromCluster"`
	From        string `json:"from"`
	ToCluster   string `json:"toCluster"`
	To          string `json:"to"`
	Protocol    string `json:"protocol"`
	Bytes       int64  `json:"bytes"`
	// Target is the destination address, Source the one that the other end observed.
	Target string `json:"target"`
	Source string `json:"source,omitempty"`
	// Took is the duration; Repeated counts datagrams that were lost and sent again.
	Took     time.Duration `json:"took"`
	Repeated int           `json:"repeated,omitempty"`
	// Error is the reason of a failure, otherwise empty.
	Error string `json:"error,omitempty"`
}

const (
	// atOnce is the number of small paths tested in parallel, manyAtOnce that of large ones.
	atOnce, manyAtOnce = 8, 4
	// settleTime bounds the time in which all nodes of a cluster must serve a new Service.
	settleTime, settlePause = 15 * time.Second, 500 * time.Millisecond
	// cleanTime bounds the clean-up.
	cleanTime = time.Minute
)

// Run tests all paths. The report holds the failures; the error means that not all paths could be tested.
func Run(ctx context.Context, o Options, p action.Progress) (report Report, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	p.Start("Reading both clusters")
	here, there, err := observe(ctx, o)
	if err != nil {
		return report, err
	}
	report.Local, report.Remote = here.name, there.name
	for _, s := range []*end{here, there} {
		if s.left > 0 {
			p.Info(fmt.Sprintf("In %s, %d nodes take part, and %d do not", s.name, len(s.nodes), s.left))
		}
		if s.notice != "" {
			p.Warn(fmt.Sprintf("%s reports a problem of the network: %s", s.name, s.notice))
		}
	}
	suffix, key := rand.String(5), rand.String(32)
	both := []struct {
		cluster Cluster
		end     *end
	}{{o.Local, here}, {o.Remote, there}}
	defer func() {
		if o.Keep {
			p.Info("Namespace " + namespacePrefix + suffix + " stays in both clusters")
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
		defer cancel()
		for _, one := range both {
			err = errors.Join(err, remove(ctx, one.cluster.Client, one.end))
		}
	}()
	p.Start("Starting a pod on each node")
	for i, one := range both {
		one.end.namespace = namespacePrefix + suffix
		if err := one.end.start(ctx, one.cluster.Client, key, one.end.pair(both[1-i].end)); err != nil {
			return report, fmt.Errorf("in %s: %w", one.end.name, err)
		}
	}
	for _, one := range both {
		if err := one.end.awaitPods(ctx, one.cluster.Client); err != nil {
			return report, fmt.Errorf("in %s: %w", one.end.name, err)
		}
	}
	for i, one := range both {
		if err := one.end.publish(ctx, one.cluster.Client, both[1-i].end); err != nil {
			return report, fmt.Errorf("in %s: %w", one.end.name, err)
		}
	}
	p.Done(fmt.Sprintf("Pods run on %d nodes of %s and on %d of %s", len(here.nodes), here.name, len(there.nodes), there.name))
	paths := slices.Concat(plan(here, there, o.Bytes), plan(there, here, o.Bytes), planShown(here, there, o.Bytes), planShown(there, here, o.Bytes))
	for i, one := range both {
		if why := one.end.notTested(both[1-i].end); why != "" {
			report.NotTested = append(report.NotTested, why)
			p.Info("Not tested: " + why)
		}
	}
	attempts := &trial{local: o.Local.Asker, remote: o.Remote.Asker, key: key, paths: paths, settled: time.Now().Add(settleTime), progress: p}
	report.Results = attempts.run(ctx)
	for i := range report.Results {
		if report.Results[i].Error != "" {
			report.Failed++
		}
	}
	if ctx.Err() != nil {
		return report, fmt.Errorf("not all of the %d paths were tested: %w", len(paths), ctx.Err())
	}
	return report, nil
}

// observe reads the identities of both clusters and the networks that they agreed on.
func observe(ctx context.Context, o Options) (here, there *end, err error) {
	ends := [2]*end{}
	for i, cluster := range []Cluster{o.Local, o.Remote} {
		identity, err := installed.Identity(ctx, cluster.Client, cluster.Namespace)
		if err != nil {
			return nil, nil, fmt.Errorf("%s cluster: %w", [2]string{"local", "remote"}[i], err)
		}
		ends[i] = &end{id: identity.ClusterID, name: identity.ClusterName, remote: i == 1}
	}
	here, there = ends[0], ends[1]
	if here.id == there.id {
		return nil, nil, fmt.Errorf("local and remote clusters must be different, but both are %s (%s); see --remote-context and --remote-kubeconfig", here.name,
			here.id)
	}
	if here.name == there.name {
		here.name, there.name = here.name+" (local)", there.name+" (remote)"
	}
	for i, cluster := range []Cluster{o.Local, o.Remote} {
		if err := ends[i].read(ctx, cluster, ends[1-i], o.MaxNodes); err != nil {
			return nil, nil, err
		}
	}
	return here, there, agree(here, there)
}

// read fills an end with the state of its cluster.
func (s *end) read(ctx context.Context, cluster Cluster, other *end, most int) error {
	var tunnels netv1alpha1.TunnelEndpointList
	if err := cluster.Client.List(ctx, &tunnels); err != nil {
		return fmt.Errorf("list TunnelEndpoints in %s: %w", s.name, err)
	}
	i := slices.IndexFunc(tunnels.Items, func(one netv1alpha1.TunnelEndpoint) bool { return one.Spec.ClusterIdentity.ClusterID == other.id })
	if i < 0 {
		return fmt.Errorf("%s has no TunnelEndpoint for %s: the two clusters have no network of Liqo, or have not agreed on it yet; see `liqoctl status peer "+
			"--verbose`", s.name, other.name)
	}
	if connection := tunnels.Items[i].Status.Connection; connection.Status != netv1alpha1.Connected {
		s.notice = strings.TrimSuffix(fmt.Sprintf("%s: %s", cmp.Or(connection.Status, "not connected"), connection.StatusMessage), ": ")
	}
	s.shown = tunnels.Items[i].Labels[labels.TunnelShown] == "true"
	for k := range tunnels.Items {
		if network, err := netip.ParsePrefix(tunnels.Items[k].Spec.LocalNATPodCIDR); err == nil && tunnels.Items[k].Labels[labels.TunnelShown] == "true" {
			s.shownAs = append(s.shownAs, network)
		}
	}
	var err error
	if s.view, err = viewOf(&tunnels.Items[i].Spec); err != nil {
		return fmt.Errorf("TunnelEndpoint %s/%s in %s: %w", tunnels.Items[i].Namespace, tunnels.Items[i].Name, s.name, err)
	}
	var manager appsv1.Deployment
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: "liqo-controller-manager"}
	if err := cluster.Client.Get(ctx, key, &manager); err != nil {
		return fmt.Errorf("read Deployment %s in %s, whose image the test needs: %w", key, s.name, err)
	}
	if spec := manager.Spec.Template.Spec; len(spec.Containers) > 0 {
		s.image, s.pullPolicy = spec.Containers[0].Image, spec.Containers[0].ImagePullPolicy
	}
	for _, name := range manager.Spec.Template.Spec.ImagePullSecrets {
		secret := corev1.Secret{}
		if err := cluster.Client.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: name.Name}, &secret); err != nil {
			return fmt.Errorf("read Secret %s/%s in %s, with which the nodes pull the image of the test: %w", cluster.Namespace, name.Name, s.name, err)
		}
		s.pullSecrets = append(s.pullSecrets, secret)
	}
	var nodes corev1.NodeList
	if err := cluster.Client.List(ctx, &nodes); err != nil {
		return fmt.Errorf("list nodes in %s: %w", s.name, err)
	}
	s.nodes, s.left = nodesOf(nodes.Items, most)
	if len(s.nodes) == 0 {
		return fmt.Errorf("%s has no node that is Ready and has an address", s.name)
	}
	return nil
}

// nodesOf returns the nodes that take part, ordered by name, and the number of further nodes that could.
func nodesOf(all []corev1.Node, most int) (nodes []node, left int) {
	for i := range all {
		one := &all[i]
		if one.Labels[labels.Type] == labels.TypeVirtualNode {
			continue
		}
		ready := nodeready.Is(one.Status.Conditions)
		for _, address := range one.Status.Addresses {
			if parsed, err := netip.ParseAddr(address.Address); ready && err == nil && parsed.Is4() && address.Type == corev1.NodeInternalIP {
				nodes = append(nodes, node{name: one.Name, address: parsed})
				break
			}
		}
	}
	slices.SortFunc(nodes, func(a, b node) int { return strings.Compare(a.name, b.name) })
	if most > 0 && len(nodes) > most {
		return nodes[:most], len(nodes) - most
	}
	return nodes, 0
}
