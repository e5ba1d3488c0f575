// SPDX-License-Identifier: Apache-2.0

// Package settings describes a cluster to the program cloud: the file that it is started with, and the pool of addresses.
//
// It knows values only, no API and no kernel. settings_test.go proves it.
package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// FieldOwner is our field manager in server-side apply.
const FieldOwner = "playground"

// Config describes the cluster to this process. It is complete: the process reads nothing
// else but the API.
type Config struct {
	Cluster    string `json:"cluster"`
	Kubeconfig string `json:"kubeconfig"` // absolute path
	PodCIDR    string `json:"podCIDR"`
	// ServiceCIDR stays as the user wrote it ("10.90.0.0/12"), since tools compare it as text.
	ServiceCIDR          string `json:"serviceCIDR"`
	DNSIP                string `json:"dnsIP"`
	ControlPlaneEndpoint string `json:"controlPlaneEndpoint"` // host:port
	KubernetesVersion    string `json:"kubernetesVersion"`    // "v1.36.3"
	// Nodes are the real nodes by name. A cluster without any is an API server for tests, without addons.
	Nodes            map[string]Node `json:"nodes,omitempty"`
	LoadBalancerPool string          `json:"loadBalancerPool,omitempty"` // "first-last"; empty: Services of type LoadBalancer get nothing
	Images           Images          `json:"images"`
	Hollow           []Hollow        `json:"hollow,omitempty"`
}

// Node locates the network and the files of a real node, as this process sees them.
type Node struct {
	Netns     string     `json:"netns"`     // path of its network namespace
	Interface string     `json:"interface"` // its device on the cluster network
	Address   netip.Addr `json:"address"`   // its address there
	Root      string     `json:"root"`      // its root directory
	// Labels are applied to its Node object: those that a kubelet may not set on itself, such as the role.
	Labels map[string]string `json:"labels,omitempty"`
}

// Images are the references of the addons; an addon without image is left out.
type Images struct {
	CoreDNS       string `json:"coredns,omitempty"`
	MetricsServer string `json:"metricsServer,omitempty"`
}

// Hollow is a group of Node objects without a machine. A simulator keeps them Ready.
type Hollow struct {
	Kind     string            `json:"kind"` // "kwok"
	Prefix   string            `json:"prefix"`
	Count    int               `json:"count"`
	Labels   map[string]string `json:"labels,omitempty"`
	Capacity map[string]string `json:"capacity,omitempty"` // resource name to quantity
}

// Load reads and checks a file; an unknown field is an error.
func Load(path string) (Config, error) {
	file, err := os.Open(path)
	if err != nil {
		return Config{}, err
	}
	defer file.Close()
	decoder := json.NewDecoder(file)
	decoder.DisallowUnknownFields()
	var config Config
	if err := decoder.Decode(&config); err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Config{}, fmt.Errorf("%s: more than one value in the file", path)
	}
	if err := config.validate(); err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return config, nil
}

// validate returns an error for each invalid field.
func (c Config) validate() error {
	var problems []error
	bad := func(field, format string, args ...any) {
		problems = append(problems, fmt.Errorf(field+": "+format, args...))
	}
	for field, value := range map[string]string{"cluster": c.Cluster, "kubernetesVersion": c.KubernetesVersion, "controlPlaneEndpoint": c.ControlPlaneEndpoint} {
		if value == "" {
			bad(field, "is empty")
		}
	}
	if !filepath.IsAbs(c.Kubeconfig) {
		bad("kubeconfig", "%q is not an absolute path", c.Kubeconfig)
	}
	for field, value := range map[string]string{"podCIDR": c.PodCIDR, "serviceCIDR": c.ServiceCIDR} {
		if prefix, err := netip.ParsePrefix(value); err != nil || !prefix.Addr().Is4() {
			bad(field, "%q is not an IPv4 prefix such as 10.200.0.0/16", value)
		}
	}
	dns, err := netip.ParseAddr(c.DNSIP)
	if err != nil {
		bad("dnsIP", "%q is not an address", c.DNSIP)
	} else if services, err := netip.ParsePrefix(c.ServiceCIDR); err == nil && !services.Contains(dns) {
		bad("dnsIP", "%s is not in serviceCIDR %s", dns, services.Masked())
	}
	for name, node := range c.Nodes {
		problems = append(problems, node.validate("nodes."+name)...)
	}
	if _, err := ParsePool(c.LoadBalancerPool); err != nil {
		bad("loadBalancerPool", "%w", err)
	}
	for i, group := range c.Hollow {
		problems = append(problems, group.validate(fmt.Sprintf("hollow[%d]", i))...)
	}
	return errors.Join(problems...)
}

func (n Node) validate(field string) []error {
	var problems []error
	for name, path := range map[string]string{"netns": n.Netns, "root": n.Root} {
		if !filepath.IsAbs(path) || filepath.Clean(path) == "/" {
			problems = append(problems, fmt.Errorf("%s.%s: %q is not an absolute path below /", field, name, path))
		}
	}
	if n.Interface == "" {
		problems = append(problems, fmt.Errorf("%s.interface: is empty", field))
	}
	if !n.Address.Is4() {
		problems = append(problems, fmt.Errorf("%s.address: %q is not an IPv4 address", field, n.Address))
	}
	return problems
}

func (h Hollow) validate(field string) []error {
	var problems []error
	if h.Kind != "kwok" {
		problems = append(problems, fmt.Errorf("%s.kind: %q is not known; only kwok is", field, h.Kind))
	}
	if h.Prefix == "" || h.Count < 0 {
		problems = append(problems, fmt.Errorf("%s: needs a prefix and a count of 0 or more, has %q and %d", field, h.Prefix, h.Count))
	}
	for name, value := range h.Capacity {
		if _, err := resource.ParseQuantity(value); err != nil {
			problems = append(problems, fmt.Errorf("%s.capacity.%s: %q: %w", field, name, value, err))
		}
	}
	return problems
}

// Pool is a range of addresses, both ends included. The zero value holds none.
type Pool struct{ First, last netip.Addr }

// ParsePool reads "first-last"; the empty text is the empty pool.
func ParsePool(text string) (Pool, error) {
	if text == "" {
		return Pool{}, nil
	}
	from, to, _ := strings.Cut(text, "-")
	first, errFirst := netip.ParseAddr(strings.TrimSpace(from))
	last, errLast := netip.ParseAddr(strings.TrimSpace(to))
	if errFirst != nil || errLast != nil || !first.Is4() || !last.Is4() || last.Less(first) {
		return Pool{}, fmt.Errorf("%q is not a range of IPv4 addresses such as 10.210.1.200-10.210.1.250", text)
	}
	return Pool{first, last}, nil
}

func (p Pool) Contains(address netip.Addr) bool {
	return p.First.IsValid() && !address.Less(p.First) && !p.last.Less(address)
}

func (p Pool) String() string {
	if !p.First.IsValid() {
		return "empty"
	}
	return p.First.String() + "-" + p.last.String()
}
