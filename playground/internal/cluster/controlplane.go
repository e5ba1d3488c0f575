// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net/netip"
	"path"
	"strconv"
	"strings"

	"liqo.io/liqo/playground/internal/pki"
	"liqo.io/liqo/playground/internal/scenario"
	"liqo.io/liqo/playground/internal/spec"
	"liqo.io/liqo/playground/internal/topology"
)

// goGC makes the collector run earlier: with many clusters on one machine memory is what
// runs out first, and idle ones collect rarely anyway. Clusters of a scenario with hollow nodes are
// there for bursts, where the cost is in collecting, so all their control planes keep the default.
// So their behaviour in a burst can be compared.
const (
	goGC      = "GOGC=40"
	goGCBurst = "GOGC=100"
)

// auditPolicy records who did what, without contents: enough to count calls, cheap enough
// to leave on. The API server's own traffic and probes would drown the rest.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- {level: None, nonResourceURLs: ["*"]}
- {level: None, users: ["system:apiserver"], verbs: [get, list, watch]}
- {level: Metadata, verbs: [watch], omitStages: [RequestReceived, ResponseComplete]}
- {level: Metadata, omitStages: [RequestReceived, ResponseStarted]}
`

// AuditLog is the path of a cluster's API audit log, if it has one.
func AuditLog(c topology.Cluster) string { return path.Join(c.Dir, "log", "audit.log") }

func (p *Plan) controlPlane(c topology.Cluster, tools Tools) error {
	p.controlPlaneCredentials(c)
	cloud, err := cloudJSON(c, path.Join(c.Dir, "cloud.kubeconfig"), cloudImages{CoreDNS: tools.CoreDNSImage, MetricsServer: tools.MetricsServerImage})
	if err != nil {
		return err
	}
	p.file(path.Join(c.Dir, "cloud.json"), cloud)
	if c.Audit {
		p.file(path.Join(c.Dir, "audit.yaml"), auditPolicy)
	}
	collect := goGC
	if c.Bursts {
		collect = goGCBurst
	}
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", collect}
	etcdUp := []spec.Wait{{TCP: "127.0.0.1:2379"}}
	apiUp := []spec.Wait{{TCP: fmt.Sprintf("%s:%d", c.ControlPlane.Address, topology.APIPort)}}
	program := func(name string, after []spec.Wait, args ...string) spec.Component {
		return spec.Component{Name: name, Argv: append([]string{path.Join(tools.Bin, name)}, args...), Env: env, After: after}
	}
	p.ControlPlane = spec.Machine{
		Name: c.ControlPlaneMachine(), Hostname: c.ControlPlane.Name, NetNS: c.ControlPlane.NetNS,
		LogDir: path.Join(c.Dir, "log"), Socket: topology.Socket(c.ControlPlaneMachine()),
		Components: []spec.Component{
			program("etcd", nil, etcdFlags(c)...),
			program("kube-apiserver", etcdUp, apiServerFlags(c)...),
			program("kube-controller-manager", apiUp, controllerManagerFlags(c)...),
			program("kube-scheduler", apiUp, schedulerFlags(c)...),
			program("cloud", apiUp, "--config="+path.Join(c.Dir, "cloud.json")),
		},
	}
	for i, h := range c.Hollow {
		if h.Kind != scenario.HollowKubemark {
			continue
		}
		if strings.HasPrefix(tools.Bin, "/tmp/") {
			return fmt.Errorf("kubemark nodes of %s have a /tmp of their own, which hides the programs in %s; keep them elsewhere (--cache)", c.Name, tools.Bin)
		}
		// Their root directories are always made in /tmp; they must go with the cluster.
		p.ControlPlane.Binds = []spec.Bind{{Source: path.Join(c.Dir, "hollow"), Target: "/tmp"}}
		p.kubemark(c, i, h, program, apiUp)
	}
	if hasKwok(c) {
		kwok := program("kwok", apiUp,
			"--kubeconfig="+path.Join(c.Dir, "cloud.kubeconfig"), "--config="+tools.KwokStages,
			"--manage-all-nodes=false", "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
			// Any address that no node has: a pod without a container is unreachable anyway.
			"--cidr="+c.PodCIDR.String(), "--node-ip="+c.ControlPlane.Address.String(),
			"--node-lease-duration-seconds=40", "--v=WARN")
		kwok.Argv[0] = tools.Kwok
		p.ControlPlane.Components = append(p.ControlPlane.Components, kwok)
	}
	return nil
}

func hasKwok(c topology.Cluster) bool {
	for _, h := range c.Hollow {
		if h.Kind == scenario.HollowKwok {
			return true
		}
	}
	return false
}

// kubemark nodes are processes beside the control plane: they own no namespace, because
// their pods have no containers. Ports only have to differ, and to keep out of the range of
// NodePorts.
func (p *Plan) kubemark(c topology.Cluster, group int, h scenario.Hollow, program func(string, []spec.Wait, ...string) spec.Component, after []spec.Wait) {
	for i := range h.Count {
		name := fmt.Sprintf("%s-%d", hollowPrefix(c, group), i)
		kubeconfig := path.Join(c.Dir, "hollow", name+".kubeconfig")
		p.kubeconfig(c, kubeconfig, pki.Subject{User: "system:node:" + name, Groups: []string{"system:nodes"}})
		args := []string{
			"--morph=kubelet", "--name=" + name, "--kubeconfig=" + kubeconfig,
			"--use-host-image-service=false", // it would dial a container runtime
			"--kubelet-port=" + strconv.Itoa(20000+100*group+i), "--kubelet-read-only-port=0",
		}
		if labels := flagMap(h.Labels); labels != "" {
			args = append(args, "--node-labels="+labels)
		}
		component := program("kubemark", after, args...)
		component.Name = name
		p.ControlPlane.Components = append(p.ControlPlane.Components, component)
	}
}

func (p *Plan) controlPlaneCredentials(c topology.Cluster) {
	local := netip.MustParseAddr("127.0.0.1")
	p.pair(c, "ca", PKI(c, "apiserver"), pki.Subject{
		User: "kube-apiserver",
		Names: []string{
			"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
			"localhost", c.ControlPlane.Name,
		},
		IPs: []netip.Addr{c.ControlPlane.Address, c.API, local},
	})
	// Like kubeadm's: what the API server may do at kubelets.
	p.pair(c, "ca", PKI(c, "apiserver-kubelet-client"), pki.Subject{User: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"}})
	p.pair(c, "front-proxy-ca", PKI(c, "front-proxy-client"), pki.Subject{User: "front-proxy-client"})
	// A pod with the host's network must not get at the store through loopback, hence TLS.
	p.pair(c, "etcd-ca", PKI(c, "etcd"), pki.Subject{User: "etcd", Names: []string{"localhost"}, IPs: []netip.Addr{local}})
	p.pair(c, "etcd-ca", PKI(c, "apiserver-etcd-client"), pki.Subject{User: "apiserver-etcd-client"})

	p.kubeconfig(c, c.Kubeconfig(), pki.Subject{User: "admin", Groups: []string{"system:masters"}})
	p.kubeconfig(c, path.Join(c.Dir, "cloud.kubeconfig"), pki.Subject{User: "system:playground-cloud", Groups: []string{"system:masters"}})
	p.kubeconfig(c, path.Join(c.Dir, "controller-manager.kubeconfig"), pki.Subject{User: "system:kube-controller-manager"})
	p.kubeconfig(c, path.Join(c.Dir, "scheduler.kubeconfig"), pki.Subject{User: "system:kube-scheduler"})
}

func etcdFlags(c topology.Cluster) []string {
	return []string{
		"--name=" + c.Name, "--data-dir=" + path.Join(c.Dir, "etcd"),
		"--listen-client-urls=https://127.0.0.1:2379", "--advertise-client-urls=https://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
		"--initial-cluster=" + c.Name + "=http://127.0.0.1:2380",
		"--cert-file=" + PKI(c, "etcd.crt"), "--key-file=" + PKI(c, "etcd.key"),
		"--client-cert-auth=true", "--trusted-ca-file=" + PKI(c, "etcd-ca.crt"),
		// A playground that loses power is made again; waiting for the disk would cost every write.
		"--unsafe-no-fsync=true",
		"--snapshot-count=5000", "--auto-compaction-mode=periodic", "--auto-compaction-retention=10m",
		// A store of one member has no heartbeats to send; the default ticks ten times a second.
		"--heartbeat-interval=500", "--election-timeout=2500",
		"--log-level=warn",
	}
}

func apiServerFlags(c topology.Cluster) []string {
	flags := []string{
		"--advertise-address=" + c.ControlPlane.Address.String(), "--bind-address=0.0.0.0",
		"--secure-port=" + strconv.Itoa(topology.APIPort),
		"--etcd-servers=https://127.0.0.1:2379", "--etcd-cafile=" + PKI(c, "etcd-ca.crt"),
		"--etcd-certfile=" + PKI(c, "apiserver-etcd-client.crt"), "--etcd-keyfile=" + PKI(c, "apiserver-etcd-client.key"),
		"--tls-cert-file=" + PKI(c, "apiserver.crt"), "--tls-private-key-file=" + PKI(c, "apiserver.key"),
		"--client-ca-file=" + PKI(c, "ca.crt"),
		"--kubelet-certificate-authority=" + PKI(c, "ca.crt"),
		"--kubelet-client-certificate=" + PKI(c, "apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + PKI(c, "apiserver-kubelet-client.key"),
		// Node names resolve nowhere outside the nodes.
		"--kubelet-preferred-address-types=InternalIP",
		"--requestheader-client-ca-file=" + PKI(c, "front-proxy-ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + PKI(c, "front-proxy-client.crt"), "--proxy-client-key-file=" + PKI(c, "front-proxy-client.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + PKI(c, "sa.crt"), "--service-account-signing-key-file=" + PKI(c, "sa.key"),
		"--service-cluster-ip-range=" + c.ServiceCIDR.String(),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true", "--profiling=false",
	}
	if c.Audit {
		flags = append(flags, "--audit-policy-file="+path.Join(c.Dir, "audit.yaml"), "--audit-log-path="+AuditLog(c))
	}
	return flags
}

func controllerManagerFlags(c topology.Cluster) []string {
	kubeconfig := path.Join(c.Dir, "controller-manager.kubeconfig")
	flags := []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--client-ca-file=" + PKI(c, "ca.crt"), "--requestheader-client-ca-file=" + PKI(c, "front-proxy-ca.crt"),
		"--root-ca-file=" + PKI(c, "ca.crt"), "--service-account-private-key-file=" + PKI(c, "sa.key"),
		"--cluster-signing-cert-file=" + PKI(c, "ca.crt"), "--cluster-signing-key-file=" + PKI(c, "ca.key"),
		"--use-service-account-credentials=true", "--controllers=*,bootstrapsigner,tokencleaner",
		"--cluster-name=" + c.Name, "--allocate-node-cidrs=true", "--node-cidr-mask-size=24",
		"--cluster-cidr=" + c.PodCIDR.String(), "--service-cluster-ip-range=" + c.ServiceCIDR.String(),
		"--bind-address=127.0.0.1", "--leader-elect=false", "--profiling=false",
		// The defaults hold Deployments to about 20 pods a second.
		"--kube-api-qps=300", "--kube-api-burst=600",
	}
	if len(c.Hollow) == 0 {
		// A dead node is NotReady after 21 s instead of 46. Hollow nodes renew too slowly for it.
		flags = append(flags, "--node-monitor-period=2s", "--node-monitor-grace-period=20s")
	}
	return flags
}

func schedulerFlags(c topology.Cluster) []string {
	kubeconfig := path.Join(c.Dir, "scheduler.kubeconfig")
	return []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", "--leader-elect=false", "--profiling=false",
		"--kube-api-qps=500", "--kube-api-burst=1000",
	}
}
