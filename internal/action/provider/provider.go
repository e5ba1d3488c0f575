// SPDX-License-Identifier: Apache-2.0

// Package provider decides how Liqo is installed on a kind of cluster: from facts about the cluster and from what the user
// said to values of the chart. It must not look at a cluster itself; read.go of package install does. Its proof is provider_test.go.
package provider

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Kind of cluster, as the sub-commands of install name it.
type Kind string

// The kinds. Auto finds out by itself what the others assume.
const (
	Auto      Kind = ""
	Kubeadm   Kind = "kubeadm"
	KinD      Kind = "kind"
	K3s       Kind = "k3s"
	AKS       Kind = "aks"
	EKS       Kind = "eks"
	GKE       Kind = "gke"
	OpenShift Kind = "openshift"
)

// Later are the kinds that are documented and not here yet.
func Later() []Kind { return []Kind{AKS, EKS, GKE, OpenShift} }

// Documented networks, for clusters that do not tell.
const (
	k3sPods         = "10.42.0.0/16"
	k3sServices     = "10.43.0.0/16"
	kubeadmPods     = "172.16.0.0/16"
	kubeadmServices = "10.96.0.0/12"
)

// Facts are what the cluster tells.
type Facts struct {
	// APIServer is the address in the kubeconfig.
	APIServer string
	// ServiceCIDRs of objects of kind ServiceCIDR; empty before Kubernetes 1.33.
	ServiceCIDRs []string
	// ConfiguredPods and ConfiguredServices stand in the ConfigMap kubeadm-config, or in the arguments of the controller manager.
	ConfiguredPods, ConfiguredServices string
	// NodeCIDRs are the pod networks of nodes.
	NodeCIDRs []string
	// NodesWithoutCIDR: some nodes have none.
	NodesWithoutCIDR bool
	// Pods and Services are addresses in use, with the names of who has them.
	Pods, Services []Address
	// Kubelets are the versions of the nodes' kubelets, which tell k3s.
	Kubelets []string
	// Kubeadm left its record, the ConfigMap kubeadm-config.
	Kubeadm bool
	// ControllerManager has a pod, whose arguments say what is not its default.
	ControllerManager bool
	// ProviderIDs of the nodes, which tell kind.
	ProviderIDs []string
}

// Address is an address and who has it.
type Address struct{ Name, IP string }

// Overrides are what the user said; empty fields are found out.
type Overrides struct {
	Kind                            Kind
	ClusterName                     string
	APIServer, PodCIDR, ServiceCIDR string
	ReservedSubnets                 []string
	ServiceType                     string
	// Labels of the cluster.
	Labels map[string]string
	// AnyAPIServer and SkipValidation leave checks out.
	AnyAPIServer, SkipValidation bool
}

// Plan is how Liqo is installed.
type Plan struct {
	Kind                            Kind
	APIServer, PodCIDR, ServiceCIDR string
	ReservedSubnets                 []string
	// ServiceType of what other clusters reach; empty is the chart's own choice.
	ServiceType string
	// WatchPods: where a pod is cannot be told by its address.
	WatchPods bool
}

// Decide makes a plan, or says what is wrong.
func Decide(f Facts, o Overrides) (Plan, error) {
	if slices.Contains(Later(), o.Kind) {
		return Plan{}, fmt.Errorf("installing on %s is not in this version yet; use `install --api-server-url URL --pod-cidr CIDR --service-cidr CIDR`, which works on every cluster", o.Kind)
	}
	if problems := validation.IsDNS1123Label(o.ClusterName); o.ClusterName != "" && len(problems) > 0 {
		return Plan{}, fmt.Errorf("--cluster-name %q is not a DNS-1123 label: %s", o.ClusterName, strings.Join(problems, "; "))
	}
	if err := checkLabels(o.Labels); err != nil {
		return Plan{}, err
	}
	p := Plan{Kind: o.Kind, APIServer: firstOf(o.APIServer, f.APIServer), ReservedSubnets: o.ReservedSubnets, ServiceType: o.ServiceType, WatchPods: f.NodesWithoutCIDR}
	if p.Kind == Auto {
		p.Kind = recognise(f)
	}
	if p.ServiceType == "" && (p.Kind == KinD || p.Kind == K3s) {
		p.ServiceType = "NodePort" // nobody gives addresses to load balancers there
	}
	switch p.ServiceType {
	case "", "LoadBalancer", "NodePort", "ClusterIP":
	default:
		return Plan{}, fmt.Errorf("--service-type %s: there is ClusterIP, NodePort and LoadBalancer", p.ServiceType)
	}
	p.ServiceCIDR = firstOf(o.ServiceCIDR, strings.Join(f.ServiceCIDRs, ","), f.ConfiguredServices)
	p.PodCIDR = firstOf(o.PodCIDR, f.ConfiguredPods, around(f.NodeCIDRs))
	switch {
	case p.Kind == K3s:
		p.PodCIDR, p.ServiceCIDR = firstOf(p.PodCIDR, k3sPods), firstOf(p.ServiceCIDR, k3sServices)
	case f.ControllerManager && (p.Kind == Kubeadm || p.Kind == KinD):
		p.PodCIDR, p.ServiceCIDR = firstOf(p.PodCIDR, kubeadmPods), firstOf(p.ServiceCIDR, kubeadmServices)
	}
	if err := p.check(f, o); err != nil {
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

func firstOf(all ...string) string {
	for _, text := range all {
		if text != "" {
			return text
		}
	}
	return ""
}

// recognise tells the kinds that need another treatment.
func recognise(f Facts) Kind {
	for _, version := range f.Kubelets {
		if strings.Contains(version, "+k3s") {
			return K3s
		}
	}
	for _, id := range f.ProviderIDs {
		if strings.HasPrefix(id, "kind://") {
			return KinD
		}
	}
	if f.Kubeadm {
		return Kubeadm
	}
	return Auto
}

// around is the smallest network that holds all IPv4 networks of the nodes, at most a /8; nothing if there is none.
// A cluster hands its nodes parts of one network, and does not say which.
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
	// One node's share is not the cluster's network; /16 is what clusters are given as a rule.
	if whole.Bits() > 16 {
		whole, _ = whole.Addr().Prefix(16)
	}
	return whole.String()
}

func (p Plan) check(f Facts, o Overrides) error {
	pods, err := network("--pod-cidr", "the network of the pods", p.PodCIDR)
	if err != nil {
		return err
	}
	services, err := network("--service-cidr", "the network of the services", p.ServiceCIDR)
	if err != nil {
		return err
	}
	for _, one := range p.ReservedSubnets {
		reserved, err := netip.ParsePrefix(one)
		if err != nil {
			return fmt.Errorf("--reserved-subnets %s: not a network such as 10.0.0.0/8", one)
		}
		for _, used := range slices.Concat(pods, services) {
			if reserved.Overlaps(used) {
				return fmt.Errorf("--reserved-subnets %s overlaps %s, a network of this cluster's own pods or services, which are left alone anyway; name other networks only", one, used)
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
	return p.checkAPIServer(f, o)
}

func network(flag, what, text string) (all []netip.Prefix, err error) {
	if text == "" {
		return nil, fmt.Errorf("the cluster does not tell %s; set %s", what, flag)
	}
	for one := range strings.SplitSeq(text, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(one))
		if err != nil {
			return nil, fmt.Errorf("%s %s: not a network such as 10.0.0.0/8", flag, one)
		}
		all = append(all, prefix.Masked())
	}
	return all, nil
}

// covers checks that addresses in use are in the network.
func covers(flag, what string, networks []netip.Prefix, used []Address) error {
	for _, one := range used {
		address, err := netip.ParseAddr(one.IP)
		if err != nil || !slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Addr().Is4() == address.Is4() }) {
			continue // of a family that the network says nothing of
		}
		if !slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(address) }) {
			return fmt.Errorf("%s %s has address %s, which is not in %v; correct %s", what, one.Name, one.IP, join(networks), flag)
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

// checkAPIServer: other clusters will use this address.
func (p Plan) checkAPIServer(f Facts, o Overrides) error {
	address, err := url.Parse(p.APIServer)
	if err != nil || address.Scheme != "https" || address.Hostname() == "" {
		return fmt.Errorf("the API server's address %q is no URL that other clusters could use; set --api-server-url https://HOST:PORT", p.APIServer)
	}
	if local(address) {
		// A kubeconfig that was made for this machine: the address of a node is published.
		if o.APIServer == "" && (p.Kind == K3s || p.Kind == KinD) {
			return nil
		}
		return fmt.Errorf("the API server's address %s is good on this machine only, and other clusters need it; set --api-server-url https://HOST:PORT", p.APIServer)
	}
	if o.APIServer == "" || o.AnyAPIServer || f.APIServer == "" || p.Kind == K3s {
		return nil
	}
	if known, err := url.Parse(f.APIServer); err == nil && authority(known) != authority(address) {
		return fmt.Errorf("--api-server-url %s is another address than the kubeconfig's, %s; if both are right, add --disable-api-server-sanity-check", o.APIServer, f.APIServer)
	}
	return nil
}

// Published is the API server's address for other clusters; empty if a control plane node is to be found instead.
func (p Plan) Published() string {
	if address, err := url.Parse(p.APIServer); err != nil || local(address) {
		return ""
	}
	return p.APIServer
}

// local tells an address that means something on one machine only.
func local(address *url.URL) bool {
	ip, err := netip.ParseAddr(address.Hostname())
	return address.Hostname() == "localhost" || err == nil && (ip.IsLoopback() || ip.IsUnspecified())
}

// authority is host and port, in a form that can be compared.
func authority(address *url.URL) string {
	return net.JoinHostPort(strings.ToLower(address.Hostname()), firstOf(address.Port(), "443"))
}
