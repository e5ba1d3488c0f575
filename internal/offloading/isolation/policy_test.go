// SPDX-License-Identifier: Apache-2.0

package isolation_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	klabels "k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/isolation"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func networks(all ...string) (parsed []netip.Prefix) {
	for _, text := range all {
		parsed = append(parsed, netip.MustParsePrefix(text))
	}
	return parsed
}

// facts of a provider: rome's networks are remapped, turin's are used as they are.
var facts = isolation.Networks{
	Peer: networks("242.0.0.0/16", "242.1.0.0/16"), Others: networks("10.60.0.0/16", "242.2.0.0/16", "198.51.0.0/16"),
	Own:      networks("10.10.0.0/16", "10.96.0.0/12", "10.0.0.11/32", "203.0.113.5/32", "203.0.113.6/32", "2001:db8:1::5/128"),
	Services: networks("10.96.0.0/12"),
}

var defaults = isolation.Options{Enabled: true, Clients: isolation.DefaultClients(), DNS: isolation.DefaultDNS()}

// policy returns the specification as Kubernetes reads it.
func policy(t *testing.T, o isolation.Options, networks isolation.Networks) *networkingv1.NetworkPolicySpec {
	t.Helper()
	intent := isolation.Policy(o, "rome-id", networks)
	if intent == nil {
		return nil
	}
	text, err := json.Marshal(intent)
	if err != nil {
		t.Fatal(err)
	}
	var spec networkingv1.NetworkPolicySpec
	if err := yaml.UnmarshalStrict(text, &spec); err != nil {
		t.Fatal(err)
	}
	return &spec
}

// end is one end of a connection. A pod of this cluster has the labels of its namespace.
type end struct {
	address   string
	namespace map[string]string
}

var (
	mine     = map[string]string{labels.RemoteClusterID: "rome-id"}
	theirs   = map[string]string{labels.RemoteClusterID: "turin-id"}
	system   = map[string]string{"kubernetes.io/metadata.name": "kube-system"}
	provider = map[string]string{"kubernetes.io/metadata.name": "billing"}
)

// admits evaluates a policy as Kubernetes documents it. Without a policy everything is admitted. ipBlocks also match pods: some plugins do that.
func admits(t *testing.T, spec *networkingv1.NetworkPolicySpec, direction networkingv1.PolicyType, other end, port int32) bool {
	t.Helper()
	if spec == nil {
		return true
	}
	matches := func(peers []networkingv1.NetworkPolicyPeer) bool {
		return len(peers) == 0 || slices.ContainsFunc(peers, func(peer networkingv1.NetworkPolicyPeer) bool { return selects(t, peer, other) })
	}
	if direction == networkingv1.PolicyTypeIngress {
		return slices.ContainsFunc(spec.Ingress, func(rule networkingv1.NetworkPolicyIngressRule) bool { return matches(rule.From) })
	}
	return slices.ContainsFunc(spec.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool {
		return matches(rule.To) && (len(rule.Ports) == 0 || slices.ContainsFunc(rule.Ports, func(networkPolicyPort networkingv1.NetworkPolicyPort) bool {
			return networkPolicyPort.Port.IntVal == port
		}))
	})
}

func selects(t *testing.T, peer networkingv1.NetworkPolicyPeer, other end) bool {
	t.Helper()
	if peer.NamespaceSelector != nil {
		selector, err := metav1.LabelSelectorAsSelector(peer.NamespaceSelector)
		return err == nil && other.namespace != nil && selector.Matches(klabels.Set(other.namespace))
	}
	address := netip.MustParseAddr(other.address)
	return netip.MustParsePrefix(peer.IPBlock.CIDR).Contains(address) && !slices.ContainsFunc(peer.IPBlock.Except, func(text string) bool {
		return netip.MustParsePrefix(text).Contains(address)
	})
}

// TestAttackNM4: a pod of a peer connects to everything that it can name in the cluster where it runs.
func TestAttackNM4(t *testing.T) {
	spec := policy(t, defaults, facts)
	for what, test := range map[string]struct {
		end  end
		port int32
		want bool
	}{
		"metadata service":                        {end{"169.254.169.254", nil}, 80, false},
		"metadata service as a name server":       {end{"169.254.169.254", nil}, 53, false},
		"metadata service over IPv6":              {end{"fd00:ec2::254", nil}, 80, false},
		"metadata service over NAT64":             {end{"64:ff9b::a9fe:a9fe", nil}, 80, false},
		"metadata service over 6to4":              {end{"2002:a9fe:a9fe::1", nil}, 80, false},
		"metadata service as a mapped address":    {end{"::ffff:169.254.169.254", nil}, 80, false},
		"metadata service of Azure":               {end{"168.63.129.16", nil}, 80, false},
		"metadata service of Alibaba":             {end{"100.100.100.200", nil}, 80, false},
		"metadata service of Oracle":              {end{"192.0.0.192", nil}, 80, false},
		"kubelet at a private address":            {end{"10.0.0.11", nil}, 10250, false},
		"kubelet at a public address":             {end{"203.0.113.6", nil}, 10250, false},
		"kubelet at a public IPv6 address":        {end{"2001:db8:1::5", nil}, 10250, false},
		"SSH of a node":                           {end{"203.0.113.5", nil}, 22, false},
		"API server":                              {end{"10.96.0.1", nil}, 443, false},
		"pod of the provider":                     {end{"10.10.3.4", provider}, 8080, false},
		"pod of the system":                       {end{"10.10.3.5", system}, 8080, false},
		"pod of another peer":                     {end{"10.10.3.6", theirs}, 8080, false},
		"port 53 of a pod of another peer":        {end{"10.10.3.6", theirs}, 53, false},
		"host in the provider's network":          {end{"192.168.1.1", nil}, 443, false},
		"network of another peer":                 {end{"242.2.0.9", nil}, 80, false},
		"private network of another peer":         {end{"10.60.0.9", nil}, 80, false},
		"public network of another peer":          {end{"198.51.7.7", nil}, 80, false},
		"loopback":                                {end{"127.0.0.1", nil}, 80, false},
		"multicast":                               {end{"224.0.0.251", nil}, 5353, false},
		"another pod of the peer":                 {end{"10.10.3.7", mine}, 8080, true},
		"the peer's pods":                         {end{"242.0.4.5", nil}, 8080, true},
		"the peer's API server and other servers": {end{"242.1.0.2", nil}, 6443, true},
		"DNS":                   {end{"10.10.3.8", system}, 53, true},
		"DNS at its own port":   {end{"10.10.3.8", system}, 5353, true},
		"DNS cache on the node": {end{"169.254.20.10", nil}, 53, true},
		"DNS cache on the node, at the Service's address": {end{"10.96.0.10", nil}, 53, true},
		"the internet":                           {end{"1.1.1.1", nil}, 443, true},
		"the internet over IPv6":                 {end{"2606:4700::1111", nil}, 443, true},
		"a neighbour of a node's public address": {end{"203.0.113.7", nil}, 443, true},
	} {
		if got := admits(t, spec, networkingv1.PolicyTypeEgress, test.end, test.port); got != test.want {
			t.Errorf("to %s (%s port %d): admitted %v, want %v", what, test.end.address, test.port, got, test.want)
		}
	}
	for what, test := range map[string]struct {
		end  end
		want bool
	}{
		"pods of another peer in its cluster": {end{"242.2.0.9", nil}, false}, "the same, not remapped": {end{"10.60.0.9", nil}, false},
		"another pod of the peer": {end{"10.10.3.7", mine}, true}, "the peer's pods": {end{"242.0.4.5", nil}, true}, "its mappings": {end{"242.1.0.2", nil}, true},
		"ingress controller": {end{"10.10.3.4", provider}, true}, "client of a load balancer": {end{"9.9.9.9", nil}, true},
		"client in the provider's network": {end{"192.168.1.1", nil}, true}, "node": {end{"10.0.0.11", nil}, true},
		"tunnel address of a node, in the pod network": {end{"10.10.3.0", nil}, true},
	} {
		if got := admits(t, spec, networkingv1.PolicyTypeIngress, test.end, 8080); got != test.want {
			t.Errorf("from %s (%s): admitted %v, want %v", what, test.end.address, got, test.want)
		}
	}
}

// TestPolicy: the policy as text.
func TestPolicy(t *testing.T) {
	servers, err := isolation.ParsePeers(`[{"ipBlock": {"cidr": "192.168.1.5/32"}}]`)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, test := range []struct {
		name    string
		options isolation.Options
		facts   isolation.Networks
	}{
		{"defaults", defaults, facts},
		{"before the networks are agreed", defaults, isolation.Networks{Own: facts.Own, Services: facts.Services}},
		{"nothing but the peering", isolation.Options{Enabled: true, Servers: servers, Denied: networks("20.0.0.0/8")}, isolation.Networks{Peer: facts.Peer}},
	} {
		intent, err := yaml.Marshal(policy(t, test.options, test.facts))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "# %s\n%s---\n", test.name, intent)
	}
	const file = "testdata/policies.yaml"
	if *update {
		if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if difference := cmp.Diff(string(want), text.String()); difference != "" {
		t.Error(difference)
	}
	if isolation.Policy(isolation.Options{}, "rome-id", facts) != nil {
		t.Error("a policy although it is switched off")
	}
}

// TestPeersInside: what this cluster and metadata services have inside a network of the peer stays denied, and a network of the peer that lies in ours does
// not count.
func TestPeersInside(t *testing.T) {
	spec := policy(t, isolation.Options{Enabled: true}, isolation.Networks{
		Peer: networks("100.64.0.0/10", "10.0.0.0/8", "10.10.5.0/24"), Own: networks("10.10.0.0/16", "10.0.0.11/32"), Others: networks("10.60.0.0/16"),
	})
	for address, want := range map[string]bool{
		"100.100.100.200": false, "100.64.0.1": true, "10.0.0.11": false, "10.10.5.5": false, "10.20.0.1": true,
	} {
		if got := admits(t, spec, networkingv1.PolicyTypeEgress, end{address, nil}, 80); got != want {
			t.Errorf("%s: admitted %v, want %v", address, got, want)
		}
	}
}

// TestManyNodes: a policy stays small, however many nodes have public addresses, and a change of private ones does not change it.
func TestManyNodes(t *testing.T) {
	many := isolation.Networks{}
	for i := range 5000 {
		many.Own = append(many.Own, netip.PrefixFrom(netip.AddrFrom4([4]byte{203, byte(i % 3), byte(i >> 8), byte(i)}), 32))
	}
	spec := policy(t, defaults, many)
	for _, rule := range spec.Egress {
		for _, to := range rule.To {
			if to.IPBlock != nil && len(to.IPBlock.Except) > 128 {
				t.Errorf("%s has %d exceptions", to.IPBlock.CIDR, len(to.IPBlock.Except))
			}
		}
	}
	for _, prefix := range many.Own {
		if admits(t, spec, networkingv1.PolicyTypeEgress, end{prefix.Addr().String(), nil}, 10250) {
			t.Fatalf("node %s is reached", prefix)
		}
	}
	before := isolation.Policy(defaults, "rome-id", facts)
	more := facts
	more.Own = append(slices.Clone(more.Own), networks("10.0.0.12/32", "172.16.0.3/32")...)
	more.Others = append(slices.Clone(more.Others), networks("242.9.0.0/16")...)
	if difference := cmp.Diff(before, isolation.Policy(defaults, "rome-id", more)); difference != "" {
		t.Errorf("a private node and a remapped peer change the policy:\n%s", difference)
	}
}

func TestParsePeers(t *testing.T) {
	for text, want := range map[string]string{
		"": "", `[]`: "", `[{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]`: "", `[{"namespaceSelector": {}}]`: "",
		`[{}]`: "selects nothing", `[null]`: "selects nothing", `[{"ipBlock": {}}]`: "without cidr", `[{"ipBlock": {"cidr": "x"}}]`: "not a network",
		`[{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}}]`: "not a network inside",
		`[{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]`:         "make two entries",
		`[{"namespaceselectors": {}}]`:                                     "unknown field",
		`[] []`:                                                            "text after",
		`{}`:                                                               "not a list",
	} {
		_, err := isolation.ParsePeers(text)
		if got := fmt.Sprint(err); (err == nil) != (want == "") || !strings.Contains(got, want) && err != nil {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
