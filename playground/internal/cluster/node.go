// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"

	"liqo.io/liqo/playground/internal/pki"
	"liqo.io/liqo/playground/internal/scenario"
	"liqo.io/liqo/playground/internal/spec"
	"liqo.io/liqo/playground/internal/topology"
)

// Paths inside a node.
const (
	binDir     = "/opt/playground/bin"
	imageDir   = "/opt/playground/images"
	cniDir     = "/opt/cni/bin"
	nodeConfig = "/etc/kubernetes"
	containerd = "/run/containerd/containerd.sock"
)

func (p *Plan) node(c topology.Cluster, n topology.Node, tools Tools, host Host, first bool) {
	root := path.Join(n.Dir, "root")
	inRoot := func(name string) string { return path.Join(root, nodeConfig, name) }
	p.pair(c, "ca", inRoot("kubelet"), pki.Subject{User: n.Name, Names: []string{n.Name}, IPs: []netip.Addr{n.Address}})
	p.kubeconfig(c, inRoot("kubelet.kubeconfig"), pki.Subject{User: "system:node:" + n.Name, Groups: []string{"system:nodes"}})
	p.kubeconfig(c, inRoot("proxy.kubeconfig"), pki.Subject{User: "system:kube-proxy"})
	p.file(inRoot("kubelet.yaml"), kubeletConfig(c, n))
	p.file(inRoot("proxy.yaml"), proxyConfig(c, n))
	p.file(path.Join(root, "etc/containerd/config.toml"), containerdConfig(tools, host))

	env := []string{"PATH=" + binDir + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", goGC}
	runtimeUp := spec.Wait{Unix: containerd}
	apiUp := spec.Wait{TCP: fmt.Sprintf("%s:%d", c.ControlPlane.Address, topology.APIPort)}
	components := []spec.Component{{Name: "containerd", Argv: []string{"containerd", "--config=/etc/containerd/config.toml"}, Env: env}}
	kubeletAfter := []spec.Wait{runtimeUp, apiUp}
	images := slices.Clone(NodeImages)
	if first {
		images = append(images, AddonImages...)
	}
	for _, name := range images {
		step := "image-" + name
		components = append(components, spec.Component{
			Name: step, Once: true, Env: env, After: []spec.Wait{runtimeUp},
			Argv: []string{"ctr", "--namespace=k8s.io", "images", "import", "--local", path.Join(imageDir, name+".tar")},
		})
		// A pod that starts before its image is there waits ten seconds for the next try.
		kubeletAfter = append(kubeletAfter, spec.Wait{Done: step})
	}
	kubelet := []string{
		"kubelet", "--config=" + nodeConfig + "/kubelet.yaml", "--kubeconfig=" + nodeConfig + "/kubelet.kubeconfig",
		"--hostname-override=" + n.Name, "--node-ip=" + n.Address.String(),
	}
	if labels := flagMap(n.Labels); labels != "" {
		kubelet = append(kubelet, "--node-labels="+labels)
	}
	components = append(components,
		spec.Component{Name: "kubelet", Argv: kubelet, Env: env, After: kubeletAfter},
		spec.Component{Name: "kube-proxy", Argv: []string{"kube-proxy", "--config=" + nodeConfig + "/proxy.yaml"}, Env: env, After: []spec.Wait{apiUp}},
	)
	machine := c.NodeMachine(n.Name)
	p.Nodes = append(p.Nodes, spec.Machine{
		Name: machine, Hostname: n.Name, NetNS: n.NetNS, Root: root,
		LogDir: path.Join(n.Dir, "log"), Socket: topology.Socket(machine),
		Binds: []spec.Bind{
			{Source: tools.Bin, Target: binDir, ReadOnly: true},
			{Source: tools.CNI, Target: cniDir, ReadOnly: true},
			{Source: tools.Images, Target: imageDir, ReadOnly: true},
			{Source: PKI(c, "ca.crt"), Target: nodeConfig + "/ca.crt", ReadOnly: true},
		},
		Components: components,
	})
}

func kubeletConfig(c topology.Cluster, n topology.Node) string {
	taints := ""
	if n.Role == scenario.RoleControlPlane && len(c.Nodes) > 1 {
		taints = "registerWithTaints:\n- {key: node-role.kubernetes.io/control-plane, effect: NoSchedule}\n"
	}
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %[1]s/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: %[1]s/kubelet.crt
tlsPrivateKeyFile: %[1]s/kubelet.key
clusterDomain: cluster.local
clusterDNS: [%[2]s]
containerRuntimeEndpoint: unix://%[3]s
resolvConf: /etc/resolv.conf
# The default is below /usr, which is the host's and read only.
volumePluginDir: /var/lib/kubelet/volumeplugins
# The default is true since 1.35; version 1 is what many small machines still have.
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /
failSwapOn: false
# The nodes share one disk, which is the user's: only act when it is really full.
evictionHard: {memory.available: 100Mi, nodefs.available: 1%%, nodefs.inodesFree: 1%%, imagefs.available: 1%%}
# Never throw the imported images away: there is no registry to get them back from.
imageGCHighThresholdPercent: 100
# With the controller manager's settings: NotReady after 21 s. nodeStatusReportFrequency
# must stay unset, or a node that returns is Ready half a minute late.
nodeStatusUpdateFrequency: 4s
nodeLeaseDurationSeconds: 20
maxPods: 250
shutdownGracePeriod: 0s
%[4]s`, nodeConfig, c.DNS, containerd, taints)
}

func proxyConfig(c topology.Cluster, n topology.Node) string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: %s/proxy.kubeconfig}
hostnameOverride: %s
clusterCIDR: %s
mode: %s
# Limits of the machine's connection tracking cannot be set from inside a namespace.
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`, nodeConfig, n.Name, c.PodCIDR, c.KubeProxy)
}

func containerdConfig(tools Tools, host Host) string {
	return fmt.Sprintf(`version = 3
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = %q
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = %t
  # The default of one second takes a core for a few hundred containers, and the kubelet has its own statistics.
  stats_collect_period = "15s"
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = [%q]
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      SystemdCgroup = false
`, tools.PauseImage, host.RestrictOOMScore, cniDir)
}

// flagMap renders labels as flags want them, sorted: a=1,b=2.
func flagMap(m map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, k+"="+m[k])
	}
	return strings.Join(parts, ",")
}
