// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"liqo.io/liqo/apis/labels"
)

// Facts are what package facts reads from the cluster.
type Facts struct {
	// APIServer is the address in the kubeconfig.
	APIServer string
	// ServiceCIDRs of objects of kind ServiceCIDR; empty before Kubernetes 1.33.
	ServiceCIDRs []string
	// NodeCIDRs are the pod networks of nodes.
	NodeCIDRs []string
	// NodesWithoutCIDR reports that a node has no pod network.
	NodesWithoutCIDR bool
	// Pods and Services are addresses in use, with the names of their owners.
	Pods, Services []Address
	// Kubelets are the versions of the nodes' kubelets, ProviderIDs what the nodes are called by who made them.
	Kubelets, ProviderIDs []string
	// ControllerManager holds the names and command lines of its pods; if it is empty, arguments that it lacks need not have their defaults.
	ControllerManager []string
	// Objects that the types read, as far as they exist.
	Objects map[Object]map[string]any
}

// Address is an address and the name of its owner.
type Address struct{ Name, IP string }

// Overrides are the settings of the user; empty fields are detected.
type Overrides struct {
	Type                            Name
	ClusterName                     string
	APIServer, PodCIDR, ServiceCIDR string
	ReservedSubnets                 []string
	ServiceType                     string
	// Labels of the cluster.
	Labels map[string]string
	// Own are settings that one type only knows.
	Own map[string]string
	// AnyAPIServer and SkipValidation disable checks.
	AnyAPIServer, SkipValidation bool
}

// Plan is the part of the installation that depends on the cluster.
type Plan struct {
	Type                            Name
	APIServer, PodCIDR, ServiceCIDR string
	ReservedSubnets                 []string
	// ServiceType of the Services that other clusters reach; empty leaves the choice to the chart.
	ServiceType string
	// WatchPods: the address of a pod does not determine its node.
	WatchPods bool
	// SelfSignedKubelets: the serving certificates of kubelets are not signed by the cluster's authority.
	SelfSignedKubelets bool
	// Labels of the cluster, beside those of the user.
	Labels map[string]string
}

// Decide returns the plan, or an error that names the setting to correct.
func Decide(f Facts, o Overrides) (Plan, error) {
	row := find(f, o.Type)
	if row.Refused != "" {
		return Plan{}, errors.New(row.Refused)
	}
	if problems := validation.IsDNS1123Label(o.ClusterName); o.ClusterName != "" && len(problems) > 0 {
		return Plan{}, fmt.Errorf("--cluster-name %q is not a DNS-1123 label: %s", o.ClusterName, strings.Join(problems, "; "))
	}
	if err := checkLabels(o.Labels); err != nil {
		return Plan{}, err
	}
	switch o.ServiceType {
	case "", "LoadBalancer", "NodePort", "ClusterIP":
	default:
		return Plan{}, fmt.Errorf("--service-type %s: want ClusterIP, NodePort or LoadBalancer", o.ServiceType)
	}
	p := Plan{
		Type: row.Name, APIServer: cmp.Or(o.APIServer, f.APIServer), ReservedSubnets: o.ReservedSubnets, ServiceType: o.ServiceType,
		WatchPods: f.NodesWithoutCIDR, Labels: map[string]string{},
	}
	if row.Name != Auto {
		p.Labels[labels.Provider] = string(row.Name)
	}
	pods, services := row.networks(f)
	p.PodCIDR = cmp.Or(o.PodCIDR, pods, around(f.NodeCIDRs))
	p.ServiceCIDR = cmp.Or(o.ServiceCIDR, strings.Join(f.ServiceCIDRs, ","), services)
	if row.Complete != nil {
		row.Complete(f, o, &p)
	}
	if err := row.check(p, f, o); err != nil {
		return Plan{}, err
	}
	return p, nil
}

func checkLabels(all map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if problems := slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(all[key])); len(problems) > 0 {
			return fmt.Errorf("--cluster-labels %s=%s is not a label: %s", key, all[key], strings.Join(problems, "; "))
		}
	}
	return nil
}

// around is the smallest network that contains all IPv4 networks of the nodes; empty if it would exceed a /8 or no node has
// one. A cluster gives its nodes parts of one network that it does not publish.
func around(cidrs []string) string {
	var whole netip.Prefix
	for _, text := range cidrs {
		prefix, err := netip.ParsePrefix(text)
		if err != nil || !prefix.Addr().Is4() {
			continue
		}
		if !whole.IsValid() {
			whole = prefix.Masked()
		}
		for !whole.Contains(prefix.Addr()) || whole.Bits() > prefix.Bits() {
			if whole.Bits() <= 8 {
				return ""
			}
			whole, _ = whole.Addr().Prefix(whole.Bits() - 1)
		}
	}
	if !whole.IsValid() {
		return ""
	}
	// One node's share is not the whole network; most clusters have a /16.
	if whole.Bits() > 16 {
		whole, _ = whole.Addr().Prefix(16)
	}
	return whole.String()
}

func (t Type) check(p Plan, f Facts, o Overrides) error {
	pods, err := network("--pod-cidr", "the network of the pods", p.PodCIDR)
	if err != nil {
		return err
	}
	services, err := network("--service-cidr", "the network of the services", p.ServiceCIDR)
	if err != nil {
		return err
	}
	for _, subnet := range p.ReservedSubnets {
		reserved, err := netip.ParsePrefix(subnet)
		if err != nil {
			return fmt.Errorf("--reserved-subnets %s: not a network such as 10.0.0.0/8", subnet)
		}
		for _, used := range slices.Concat(pods, services) {
			if reserved.Overlaps(used) {
				return fmt.Errorf("--reserved-subnets %s overlaps %s, a network of this cluster's own pods or services, "+
					"which Liqo never uses for remapping; name other networks only", subnet, used)
			}
		}
	}
	for _, pod := range pods {
		for _, service := range services {
			if pod.Overlaps(service) {
				return fmt.Errorf("the networks of pods, %s, and of services, %s, overlap; see --pod-cidr and --service-cidr", pod, service)
			}
		}
	}
	if o.SkipValidation {
		return nil
	}
	if err := covers("--pod-cidr", "pod", pods, f.Pods); err != nil {
		return err
	}
	if err := covers("--service-cidr", "Service", services, f.Services); err != nil {
		return err
	}
	return t.checkAPIServer(p, f, o)
}

func network(flag, what, text string) (all []netip.Prefix, err error) {
	if text == "" {
		return nil, fmt.Errorf("the cluster does not publish %s; set %s", what, flag)
	}
	for cidr := range strings.SplitSeq(text, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(cidr))
		if err != nil {
			return nil, fmt.Errorf("%s %s: not a network such as 10.0.0.0/8", flag, cidr)
		}
		all = append(all, prefix.Masked())
	}
	return all, nil
}

// covers checks that the addresses in use are in the networks.
func covers(flag, what string, networks []netip.Prefix, used []Address) error {
	for _, owner := range used {
		address, err := netip.ParseAddr(owner.IP)
		if err != nil || !slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Addr().Is4() == address.Is4() }) {
			continue // no network of this address family is known
		}
		if !slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(address) }) {
			return fmt.Errorf("%s %s has address %s, which is not in %v; correct %s", what, owner.Name, owner.IP, join(networks), flag)
		}
	}
	return nil
}

func join(networks []netip.Prefix) string {
	texts := make([]string, len(networks))
	for i, n := range networks {
		texts[i] = n.String()
	}
	return strings.Join(texts, ",")
}

// checkAPIServer checks the address that other clusters will use.
func (t Type) checkAPIServer(p Plan, f Facts, o Overrides) error {
	address, err := url.Parse(p.APIServer)
	if err != nil || address.Scheme != "https" || address.Hostname() == "" {
		return fmt.Errorf("the API server's address %q is not a URL that other clusters can use; set --api-server-url https://HOST:PORT", p.APIServer)
	}
	if local(address) {
		// The kubeconfig is for this machine only: the chart publishes the address of a node.
		if o.APIServer == "" && t.LocalAPIServer {
			return nil
		}
		return fmt.Errorf("the API server's address %s works on this machine only, and other clusters need it; set --api-server-url https://HOST:PORT", p.APIServer)
	}
	if o.APIServer == "" || o.AnyAPIServer || f.APIServer == "" || t.AnyAPIServer {
		return nil
	}
	if known, err := url.Parse(f.APIServer); err == nil && authority(known) != authority(address) {
		return fmt.Errorf("--api-server-url %s differs from the address in the kubeconfig, %s; if both are right, add --disable-api-server-sanity-check",
			o.APIServer, f.APIServer)
	}
	return nil
}

// Published is the API server's address for other clusters; if it is empty, they receive that of a control plane node.
func (p Plan) Published() string {
	if address, err := url.Parse(p.APIServer); err != nil || local(address) {
		return ""
	}
	return p.APIServer
}

// local reports whether an address is valid on one machine only.
func local(address *url.URL) bool {
	ip, err := netip.ParseAddr(address.Hostname())
	return address.Hostname() == "localhost" || err == nil && (ip.IsLoopback() || ip.IsUnspecified())
}

// authority is host and port in a comparable form.
func authority(address *url.URL) string {
	return net.JoinHostPort(strings.ToLower(address.Hostname()), cmp.Or(address.Port(), "443"))
}
