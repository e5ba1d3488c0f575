// SPDX-License-Identifier: Apache-2.0

package install

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/netns"
	"liqo.io/liqo/test/env/networks"
	"liqo.io/liqo/test/env/traffic"
)

// TestNamespace installs rome in another namespace than milan, peers them in both ways, uses and removes them. liqoctl installs the chart of a
// folder in rome, and that of an archive in milan.
func TestNamespace(t *testing.T) {
	start(t)
	const own = "connections"
	in := []string{"-n", own}
	chart := func(path string) []string {
		version, found := strings.CutPrefix(strings.TrimSpace(rome.Liqoctl(t, "version", "--client").Out), "Client version: ")
		if !found {
			t.Fatal(version)
		}
		return []string{"--version", version, "--local-chart-path", path}
	}
	rome.Install(t, append(in, chart("../../deployments/liqo")...)...)
	t.Cleanup(func() { rome.TryLiqoctl("uninstall", "--purge", "-n", own) })
	milan.Install(t, chart(packaged(t))...)
	env.Healthy(t, milan)
	rome.Liqoctl(t, append(in, "status")...)
	if r := rome.TryLiqoctl("status"); r.Code == 0 || !strings.Contains(r.Out+r.Err, "liqo") {
		t.Errorf("status of the usual namespace: %s", r)
	}

	rome.Liqoctl(t, append(milan.PeerCommand(t), in...)...)
	rome.NodeReady(t, milan)
	rome.WantColumns(t, milan, "Established None Established Established")
	offload(t)
	reached(t)
	rome.Liqoctl(t, append(in, "status", "peer", milan.Name)...)
	unoffload(t)
	rome.Liqoctl(t, append(in, "unpeer", "out-of-band", milan.Name)...)
	settled(t)

	remote := []string{"--remote-kubeconfig", milan.Kubeconfig(), "-n", own, "--remote-namespace", "liqo"}
	rome.Liqoctl(t, append([]string{"peer", "in-band", "--bidirectional"}, remote...)...)
	rome.NodeReady(t, milan)
	milan.NodeReady(t, rome)
	rome.Liqoctl(t, append([]string{"unpeer", "in-band"}, remote...)...)
	settled(t)

	rome.Liqoctl(t, "uninstall", "--purge", "-n", own)
	milan.Liqoctl(t, "uninstall", "--purge")
	nothingLeft(t)
}

func settled(t *testing.T) {
	t.Helper()
	for _, c := range clusters.Clusters {
		env.Settled(t, c)
	}
}

// TestNetworks: networks that an administrator wrote down are taken as they are; others are remapped to the range set apart, without what is reserved.
func TestNetworks(t *testing.T) {
	start(t)
	rome.Install(t, "--set", "networkManager.config.unmappedNetworks={"+milan.PodCIDR.String()+"}")
	milan.Install(t, "--set", "networkManager.config.unmappedNetworks={"+rome.PodCIDR.String()+"}")
	for _, c := range clusters.Clusters {
		env.Healthy(t, c)
	}
	rome.Peer(t, milan)
	views := seen(t)
	for _, view := range views {
		for _, one := range []string{view.Spec.RemoteNATPodCIDR, view.Spec.LocalNATPodCIDR} {
			if one != "None" {
				t.Errorf("%s sees %s with the pods %s, remapped to %s, want None", view.Here.Name, view.There.Name, view.Spec.RemotePodCIDR, one)
			}
		}
	}
	matrix(t)
	rome.Liqoctl(t, "unpeer", "out-of-band", milan.Name)
	settled(t)

	reserved := []string{"10.100.0.0/16", "242.0.0.0/14", "192.168.0.0/16"}
	rome.Install(t, "--reset-values")
	milan.Install(t, "--reset-values", "--reserved-subnets", strings.Join(reserved, ","))
	rome.Peer(t, milan)
	for _, view := range seen(t) {
		network, err := netip.ParsePrefix(view.Spec.RemoteNATPodCIDR)
		if err != nil {
			t.Errorf("%s sees the pods of %s, %s, as %s, want them remapped", view.Here.Name, view.There.Name, view.Spec.RemotePodCIDR, view.Spec.RemoteNATPodCIDR)
			continue
		}
		if apart := netip.MustParsePrefix("242.0.0.0/8"); !apart.Contains(network.Addr()) {
			t.Errorf("%s remaps %s to %s, which is outside of %s", view.Here.Name, view.There.Name, network, apart)
		}
		for _, one := range reserved {
			if view.Here == milan && netip.MustParsePrefix(one).Overlaps(network) {
				t.Errorf("milan remaps rome to %s, which is in the reserved %s", network, one)
			}
		}
	}
	matrix(t)
	rome.Liqoctl(t, "unpeer", "out-of-band", milan.Name)
	settled(t)
	removed(t)
}

// seen is how the clusters see each other.
func seen(t *testing.T) (views []networks.View) {
	t.Helper()
	for _, pair := range [][2]*env.Cluster{{rome, milan}, {milan, rome}} {
		view, err := networks.See(pair[0], pair[1])
		if err != nil {
			t.Fatal(err)
		}
		views = append(views, view)
	}
	return views
}

// matrix: every pod and node reaches every pod, under the addresses of the views.
func matrix(t *testing.T) {
	t.Helper()
	for _, c := range clusters.Clusters {
		t.Cleanup(func() { c.Kubectl(t, "delete", "namespace", traffic.Namespace, "--ignore-not-found") })
		traffic.Serve(t, c)
	}
	if checks := traffic.Matrix(t, clusters, rome, milan) + traffic.Matrix(t, clusters, milan, rome); checks < 20 {
		t.Errorf("%d checks, want at least 20", checks)
	}
}

// removed uninstalls both and wants nothing to be left.
func removed(t *testing.T) {
	t.Helper()
	for _, c := range clusters.Clusters {
		c.Kubectl(t, "delete", "namespace", traffic.Namespace, "--ignore-not-found")
		c.Liqoctl(t, "uninstall", "--purge")
	}
	nothingLeft(t)
}

// TestExternalNetwork offloads where another network connects the pods: routes of the playground's router, as an administrator has them.
func TestExternalNetwork(t *testing.T) {
	start(t)
	for _, c := range clusters.Clusters {
		c.Install(t, "--set", "networking.internal=false")
	}
	rome.Peer(t, milan)
	rome.WantColumns(t, milan, "Established None External Established")
	for _, pair := range [][2]*env.Cluster{{rome, milan}, {milan, rome}} {
		here, there := pair[0], pair[1]
		netns.Router().Run(t, "ip", "route", "replace", here.PodCIDR.String(), "via", here.Nodes[0].Address.String())
		t.Cleanup(func() { netns.Router().Try("ip", "route", "delete", here.PodCIDR.String()) })
		here.Nodes[0].Net().Run(t, "nft", "insert", "rule", "ip", "playground", "postrouting", "ip", "daddr", there.PodCIDR.String(), "accept")
	}
	offload(t)
	if address := podAddress(t); address != "" {
		t.Errorf("before the networks are written down, the pod in milan has the address %s in rome", address)
	}
	for _, pair := range [][2]*env.Cluster{{rome, milan}, {milan, rome}} {
		pair[0].Kubectl(t, "patch", "foreigncluster", pair[1].Name, "--type", "merge", "-p", `{"spec":{"network":{"podCIDRs":["`+pair[1].PodCIDR.String()+`"]}}}`)
	}
	env.Eventually(t, env.Hang, "the pod in milan has its own address in rome", func() (string, bool) {
		have, want := podAddress(t), milan.Kubectl(t, "-n", namespace, "get", "pod", "there", "-o", "jsonpath={.status.podIP}")
		return have + ", in milan " + want, have == want && want != ""
	})
	reached(t)
	unoffload(t)
	rome.Liqoctl(t, "unpeer", "out-of-band", milan.Name)
	settled(t)
	removed(t)
}

func podAddress(t *testing.T) string {
	t.Helper()
	return rome.Kubectl(t, "-n", namespace, "get", "pod", "there", "-o", "jsonpath={.status.podIP}")
}

// TestNoAddresses: with networking.reflectIPs=false, pods are offloaded, run and are controlled, and neither they nor endpoints have an address
// of the other cluster.
func TestNoAddresses(t *testing.T) {
	start(t)
	for _, c := range clusters.Clusters {
		c.Install(t, "--set", "networking.reflectIPs=false")
		env.Healthy(t, c)
	}
	rome.Peer(t, milan)
	offload(t)
	if address := podAddress(t); address != "" {
		t.Errorf("the pod in milan has the address %s in rome", address)
	}
	if logs := rome.Kubectl(t, "-n", namespace, "exec", "there", "--", "/usr/bin/traffic", "check", "udp", "127.0.0.1:7000"); logs == "" {
		t.Error("kubectl exec in the pod in milan printed nothing")
	}
	for _, c := range clusters.Clusters {
		if have := c.Kubectl(
			t, "-n", namespace, "get", "shadowendpointslices,endpointslices", "-o",
			"jsonpath={.items[*].metadata.labels.endpointslice\\.kubernetes\\.io/managed-by}",
		); strings.Contains(have, "liqo") {
			t.Errorf("endpoints of the other cluster are in %s: %s", c.Name, have)
		}
	}
	if seen := rome.Kubectl(t, "-n", namespace, "get", "endpointslices", "-o", "jsonpath={.items[*].endpoints[*].addresses}"); seen != "" {
		t.Errorf("the Service of the pod in milan has endpoints in rome: %s", seen)
	}
	unoffload(t)
	rome.Liqoctl(t, "unpeer", "out-of-band", milan.Name)
	settled(t)
	removed(t)
}

// TestKubectlPlugin: under the name kubectl-liqo in a folder of the PATH, kubectl finds and runs the program.
func TestKubectlPlugin(t *testing.T) {
	start(t)
	folder := t.TempDir()
	program, err := filepath.Abs(filepath.Join(clusters.Bin, "liqoctl"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(folder, "kubectl-liqo")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	version, err := try(rome, "", "liqoctl version --client")
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"kubectl plugin list": filepath.Join(folder, "kubectl-liqo"), "kubectl liqo version --client": version,
		"kubectl liqo --help": "kubectl liqo", "kubectl liqo install --dry-run --cluster-name rome": "Installation completed (dry-run)",
	} {
		if text, err := try(rome, "", line); err != nil || !strings.Contains(text, want) {
			t.Errorf("%s: %v, want %q in\n%s", line, err, want, text)
		}
	}
	if text, err := try(rome, "", "kubectl liqo status"); err == nil || !strings.Contains(text, "Liqo is not installed") {
		t.Errorf("status without Liqo: %v\n%s", err, text)
	}
}
