// SPDX-License-Identifier: Apache-2.0

// Package provider decides how to install Liqo on a kind of cluster: it turns facts about the cluster and overrides of the
// user into a plan for the chart's values. It must not read a cluster; read.go of package install does. Its proof is
// provider_test.go.
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

// Kind of cluster: the name of a sub-command of install.
type Kind string

// The kinds. Auto detects the kind.
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

// Later are the documented kinds that this version does not support yet.
func Later() []Kind { return []Kind{AKS, EKS, GKE, OpenShift} }

// Documented networks, for clusters whose configuration cannot be read.
const (
	k3sPods         = "10.42.0.0/16"
	k3sServices     = "10.43.0.0/16"
	kubeadmPods     = "172.16.0.0/16"
	kubeadmServices = "10.96.0.0/12"
)

// Facts are what package install reads from the cluster.
type Facts struct {
	// APIServer is the address in the kubeconfig.
	APIServer string
	// ServiceCIDRs of objects of kind ServiceCIDR; empty before Kubernetes 1.33.
	ServiceCIDRs []string
	// ConfiguredPods and ConfiguredServices come from the ConfigMap kubeadm-config, or the arguments of the controller manager.
	ConfiguredPods, ConfiguredServices string
	// NodeCIDRs are the pod networks of nodes.
	NodeCIDRs []string
	// NodesWithoutCIDR reports that a node has no pod network.
	NodesWithoutCIDR bool
	// Pods and Services are addresses in use, with the names of their owners.
	Pods, Services []Address
	// Kubelets are the versions of the nodes' kubelets, which identify k3s.
	Kubelets []string
	// Kubeadm reports that the ConfigMap kubeadm-config exists.
	Kubeadm bool
	// ControllerManager reports that its pod exists, so that arguments it lacks have their defaults.
	ControllerManager bool
	// ProviderIDs of the nodes, which identify kind.
	ProviderIDs []string
	// ServerTLSBootstrap: the ConfigMap kubelet-config makes kubelets request serving certificates from the cluster.
	ServerTLSBootstrap bool
}

// Address is an address and the name of its owner.
type Address struct{ Name, IP string }

// Overrides are the settings of the user; empty fields are detected.
type Overrides struct {
	Kind                            Kind
	ClusterName                     string
	APIServer, PodCIDR, ServiceCIDR string
	ReservedSubnets                 []string
	ServiceType                     string
	// Labels of the cluster.
	Labels map[string]string
	// AnyAPIServer and SkipValidation disable checks.
	AnyAPIServer, SkipValidation bool
}

// Plan is the part of the installation that depends on the cluster.
type Plan struct {
	Kind                            Kind
	APIServer, PodCIDR, ServiceCIDR string
	ReservedSubnets                 []string
	// ServiceType of the Services that other clusters reach; empty leaves the choice to the chart.
	ServiceType string
	// WatchPods: the address of a pod does not determine its node.
	WatchPods bool
	// SelfSignedKubelets: the serving certificates of kubelets are not signed by the cluster's authority.
	SelfSignedKubelets bool
}

// Decide returns the plan, or an error that names the setting to correct.
func Decide(f Facts, o Overrides) (Plan, error) {
	if slices.Contains(Later(), o.Kind) {
		return Plan{}, fmt.Errorf("this version has no installation for %s yet; try `install --api-server-url URL --pod-cidr CIDR --service-cidr CIDR`, which is untested there", o.Kind)
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
		p.ServiceType = "NodePort" // these clusters have no load balancers
	}
	p.SelfSignedKubelets = !f.ServerTLSBootstrap && (p.Kind == Kubeadm || p.Kind == KinD)
	switch p.ServiceType {
	case "", "LoadBalancer", "NodePort", "ClusterIP":
	default:
		return Plan{}, fmt.Errorf("--service-type %s: want ClusterIP, NodePort or LoadBalancer", p.ServiceType)
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

// recognise detects the kinds that need different defaults.
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
				return fmt.Errorf("--reserved-subnets %s overlaps %s, a network of this cluster's own pods or services, which Liqo never uses for remapping; name other networks only", one, used)
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
		return nil, fmt.Errorf("the cluster does not publish %s; set %s", what, flag)
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

// covers checks that the addresses in use are in the networks.
func covers(flag, what string, networks []netip.Prefix, used []Address) error {
	for _, one := range used {
		address, err := netip.ParseAddr(one.IP)
		if err != nil || !slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Addr().Is4() == address.Is4() }) {
			continue // no network of this address family is known
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

// checkAPIServer checks the address that other clusters will use.
func (p Plan) checkAPIServer(f Facts, o Overrides) error {
	address, err := url.Parse(p.APIServer)
	if err != nil || address.Scheme != "https" || address.Hostname() == "" {
		return fmt.Errorf("the API server's address %q is not a URL that other clusters can use; set --api-server-url https://HOST:PORT", p.APIServer)
	}
	if local(address) {
		// The kubeconfig is for this machine only: the chart publishes the address of a node.
		if o.APIServer == "" && (p.Kind == K3s || p.Kind == KinD) {
			return nil
		}
		return fmt.Errorf("the API server's address %s works on this machine only, and other clusters need it; set --api-server-url https://HOST:PORT", p.APIServer)
	}
	if o.APIServer == "" || o.AnyAPIServer || f.APIServer == "" || p.Kind == K3s {
		return nil
	}
	if known, err := url.Parse(f.APIServer); err == nil && authority(known) != authority(address) {
		return fmt.Errorf("--api-server-url %s differs from the address in the kubeconfig, %s; if both are right, add --disable-api-server-sanity-check", o.APIServer, f.APIServer)
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
	return net.JoinHostPort(strings.ToLower(address.Hostname()), firstOf(address.Port(), "443"))
}
