// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"strings"
	"testing"
)

func facts() Facts {
	return Facts{
		APIServer: "https://192.0.2.7:6443", ServiceCIDRs: []string{"10.90.0.0/12"},
		ControllerManager: []string{"--cluster-cidr=10.200.0.0/16", "--service-cluster-ip-range=10.80.0.0/12"},
		NodeCIDRs:         []string{"10.200.0.0/24", "10.200.1.0/24"}, Kubelets: []string{"v1.36.3"},
		Pods: []Address{{"default/web", "10.200.1.7"}}, Services: []Address{{"default/kubernetes", "10.80.0.1"}},
	}
}

func TestDecide(t *testing.T) {
	with := func(change func(*Facts)) Facts { f := facts(); change(&f); return f }
	bare := with(func(f *Facts) { f.ControllerManager, f.ServiceCIDRs = nil, nil })
	for _, c := range []struct {
		name      string
		facts     Facts
		overrides Overrides
		want      string // type pods services API server service type; or words of the error
	}{
		{"controller manager", facts(), Overrides{}, "|10.200.0.0/16|10.90.0.0/12|https://192.0.2.7:6443|"},
		{"node networks", with(func(f *Facts) { f.ControllerManager = nil }), Overrides{}, "|10.200.0.0/16|10.90.0.0/12|https://192.0.2.7:6443|"},
		{"flags win", facts(), Overrides{PodCIDR: "10.200.0.0/14", ServiceType: "NodePort"}, "|10.200.0.0/14|10.90.0.0/12|https://192.0.2.7:6443|NodePort"},
		{"kind", with(func(f *Facts) {
			f.ProviderIDs = []string{"kind://docker/rome/w"}
			f.APIServer = "https://127.0.0.1:4711"
		}), Overrides{}, "kind|10.200.0.0/16|10.90.0.0/12||NodePort"},
		{
			"k3s", with(func(f *Facts) { *f = Facts{APIServer: "https://127.0.0.1:6443", Kubelets: []string{"v1.36.3+k3s1"}} }),
			Overrides{},
			"k3s|10.42.0.0/16|10.43.0.0/16||NodePort",
		},
		{"unknown pod network", with(func(f *Facts) { *f = bare; f.NodeCIDRs = nil }), Overrides{}, "set --pod-cidr"},
		{"no services", bare, Overrides{}, "set --service-cidr"},
		{"not a network", facts(), Overrides{PodCIDR: "10.0.0/8"}, "--pod-cidr 10.0.0/8"},
		{"overlap", facts(), Overrides{PodCIDR: "10.0.0.0/8"}, "overlap"},
		{"pod outside", facts(), Overrides{PodCIDR: "192.168.0.0/24"}, "pod default/web has address 10.200.1.7"},
		{"service outside", facts(), Overrides{ServiceCIDR: "172.16.0.0/24"}, "Service default/kubernetes"},
		{"outside, validation skipped", facts(), Overrides{PodCIDR: "192.168.0.0/24", SkipValidation: true}, "|192.168.0.0/24|10.90.0.0/12|https://192.0.2.7:6443|"},
		{"local API server", with(func(f *Facts) { f.APIServer = "https://127.0.0.1:6443" }), Overrides{}, "--api-server-url"},
		{"another API server", facts(), Overrides{APIServer: "https://198.51.100.1:6443"}, "--disable-api-server-sanity-check"},
		{
			"another, check disabled", facts(),
			Overrides{APIServer: "https://198.51.100.1:6443", AnyAPIServer: true},
			"|10.200.0.0/16|10.90.0.0/12|https://198.51.100.1:6443|",
		},
		{"another port", facts(), Overrides{APIServer: "https://192.0.2.7"}, "--disable-api-server-sanity-check"},
		{
			"same authority", with(func(f *Facts) { f.APIServer = "https://API.example.org" }),
			Overrides{APIServer: "https://api.example.org:443"},
			"|10.200.0.0/16|10.90.0.0/12|https://api.example.org:443|",
		},
		{
			"local by flag", with(func(f *Facts) { f.ProviderIDs = []string{"kind://docker/rome/w"} }),
			Overrides{APIServer: "https://localhost:6443"},
			"this machine only",
		},
		{
			"kind listens everywhere",
			with(func(f *Facts) { f.ProviderIDs, f.APIServer = []string{"kind://docker/rome/w"}, "https://0.0.0.0:4711" }),
			Overrides{},
			"kind|10.200.0.0/16|10.90.0.0/12||NodePort",
		},
		{
			"kubeadm", with(func(f *Facts) { f.Objects = map[Object]map[string]any{kubeadmConfig: {}} }),
			Overrides{},
			"kubeadm|10.200.0.0/16|10.90.0.0/12|https://192.0.2.7:6443|",
		},
		{
			"kubeadm's defaults",
			Facts{APIServer: "https://192.0.2.7:6443", ControllerManager: []string{"kube-controller-manager"}},
			Overrides{Type: "kubeadm"},
			"kubeadm|172.16.0.0/16|10.96.0.0/12|https://192.0.2.7:6443|",
		},
		{"kubeadm without a controller manager", Facts{APIServer: "https://192.0.2.7:6443"}, Overrides{Type: "kubeadm"}, "set --pod-cidr"},
		{"dual stack", with(func(f *Facts) {
			f.ControllerManager = []string{"--cluster-cidr=10.200.0.0/16,fd00:1::/56"}
			f.Pods = append(f.Pods, Address{"default/six", "fd00:2::7"})
		}), Overrides{}, "pod default/six has address fd00:2::7"},
		{
			"only one family known", with(func(f *Facts) { f.Pods = append(f.Pods, Address{"default/six", "fd00:2::7"}) }),
			Overrides{},
			"|10.200.0.0/16|10.90.0.0/12|https://192.0.2.7:6443|",
		},
		{"no URL", facts(), Overrides{APIServer: "192.0.2.7:6443"}, "not a URL"},
		{"plain HTTP", facts(), Overrides{APIServer: "http://192.0.2.7:6443"}, "not a URL"},
		{"label", facts(), Overrides{Labels: map[string]string{"a b": "c"}}, "--cluster-labels a b=c"},
		{"name", facts(), Overrides{ClusterName: "Rome_1"}, "DNS-1123"},
		{"longest name", facts(), Overrides{ClusterName: strings.Repeat("r", 63)}, "|10.200.0.0/16|10.90.0.0/12|https://192.0.2.7:6443|"},
		{"name too long", facts(), Overrides{ClusterName: strings.Repeat("r", 64)}, "no more than 63"},
		{"service type", facts(), Overrides{ServiceType: "None"}, "--service-type"},
		{"reserved within the pods", facts(), Overrides{ReservedSubnets: []string{"10.200.7.0/24"}}, "--reserved-subnets 10.200.7.0/24 overlaps 10.200.0.0/16"},
		{
			"reserved around the services", facts(),
			Overrides{ReservedSubnets: []string{"10.3.0.0/16", "10.90.0.0/11"}, SkipValidation: true},
			"--reserved-subnets 10.90.0.0/11 overlaps 10.80.0.0/12",
		},
		{"reserved elsewhere", facts(), Overrides{ReservedSubnets: []string{"10.3.0.0/16"}}, "|10.200.0.0/16|10.90.0.0/12|https://192.0.2.7:6443|"},
		{"reserved", facts(), Overrides{ReservedSubnets: []string{"x"}}, "--reserved-subnets x"},
	} {
		plan, err := Decide(c.facts, c.overrides)
		have := strings.Join([]string{string(plan.Type), plan.PodCIDR, plan.ServiceCIDR, plan.Published(), plan.ServiceType}, "|")
		if err != nil {
			have = err.Error()
		}
		if err == nil && have != c.want || err != nil && !strings.Contains(have, c.want) {
			t.Errorf("%s: %s\n    want %s", c.name, have, c.want)
		}
	}
}

// TestRefused: a type without an installation is refused by name, with what can be tried, and never recognised.
func TestRefused(t *testing.T) {
	for _, row := range All {
		if row.Refused == "" {
			continue
		}
		_, err := Decide(facts(), Overrides{Type: row.Name})
		if err == nil || !strings.Contains(err.Error(), "no installation for "+string(row.Name)) ||
			!strings.Contains(err.Error(), "--pod-cidr CIDR") || row.Recognised != nil {
			t.Errorf("%s: %v", row.Name, err)
		}
	}
}

// TestSelfSignedKubelets: kubeadm and kind leave the serving certificates to the kubelets, unless serverTLSBootstrap is set.
func TestSelfSignedKubelets(t *testing.T) {
	for _, test := range []struct {
		name      Name
		bootstrap string
		want      bool
	}{
		{"kubeadm", "false", true}, {"kind", "false", true}, {"kubeadm", "true", false}, {"kind", "true", false}, {"k3s", "false", false}, {Auto, "false", false},
	} {
		f := facts()
		f.Objects = map[Object]map[string]any{kubeletConfig: {"data": map[string]any{"kubelet": "serverTLSBootstrap: " + test.bootstrap}}}
		plan, err := Decide(f, Overrides{Type: test.name})
		if err != nil || plan.SelfSignedKubelets != test.want {
			t.Errorf("%q, serverTLSBootstrap %s: %t, %v, want %t", test.name, test.bootstrap, plan.SelfSignedKubelets, err, test.want)
		}
	}
}

func TestAround(t *testing.T) {
	for want, cidrs := range map[string][]string{
		"":              nil,
		"10.200.0.0/16": {"10.200.1.0/24"},
		"10.200.0.0/14": {"10.200.1.0/24", "10.203.0.0/24"},
		"10.0.0.0/8":    {"10.0.0.0/24", "10.200.0.0/24", "fd00::/64"},
	} {
		if have := around(cidrs); have != want {
			t.Errorf("%v: %s, want %s", cidrs, have, want)
		}
	}
}
