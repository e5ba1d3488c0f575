// SPDX-License-Identifier: Apache-2.0

// Package proxy decides how a real proxy from a Debian package runs in front of a cluster: its address, its programs and its
// configuration.
//
// It is pure: a Proxy and its cluster go in, a Plan comes out; package lifecycle applies it. A proxy is one more machine on the
// node network of its cluster, with a namespace and an address of its own, so faults and NAT routers treat it as a node. Golden
// tests prove the configurations; a test of package lifecycle runs the real programs.
package proxy

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	"liqo.io/liqo/playground/internal/image"
	"liqo.io/liqo/playground/internal/spec"
	"liqo.io/liqo/playground/internal/topology"
)

// Kind names the program and its task.
type Kind string

// Kinds of proxies. The first two are reverse proxies in front of a node port; Connect is a forward proxy (HTTP CONNECT).
const (
	Nginx   Kind = "nginx"
	HAProxy Kind = "haproxy"
	Connect Kind = "connect"
)

// Proxy is one proxy.
type Proxy struct {
	Cluster string `json:"cluster"`
	// Number is 1 for the first proxy of a cluster; it gives the proxy its name and its address.
	Number int  `json:"number"`
	Kind   Kind `json:"kind"`
	Listen int  `json:"listen"`
	// To is the port of every node to which a reverse proxy forwards requests below Path. ToTLS encrypts them, without a check of
	// the server's certificate.
	To    int    `json:"to,omitempty"`
	ToTLS bool   `json:"toTLS,omitempty"`
	Path  string `json:"path,omitempty"`
	// TLS makes a reverse proxy serve HTTPS.
	TLS bool `json:"tls,omitempty"`
	// User and Password are what a forward proxy asks for; empty for none.
	User     string `json:"user,omitempty"`
	Password string `json:"password,omitempty"`
}

// Name is the name of the proxy, of its namespace and of its machine.
func (p Proxy) Name() string { return fmt.Sprintf("%s-proxy%d", p.Cluster, p.Number) }

// URL is the address for a client.
func (p Proxy) URL(c topology.Cluster) string {
	scheme := "http"
	if p.TLS {
		scheme = "https"
	}
	return fmt.Sprintf("%s://%s:%d%s", scheme, p.endpoint(c).Address, p.Listen, p.Path)
}

func (p Proxy) endpoint(c topology.Cluster) topology.Endpoint {
	return c.Extra(p.Name(), p.Number-1)
}

// Parts of a configuration that a user gives. None of their characters has a meaning in a configuration file.
var (
	urlPath = regexp.MustCompile(`^/[A-Za-z0-9/._~-]*$`)
	word    = regexp.MustCompile(`^[A-Za-z0-9._~-]+$`)
)

// Validate reports what cannot work.
func (p Proxy) Validate() error {
	if p.Number < 1 || p.Number > topology.MaxExtras {
		return fmt.Errorf("proxy %d of cluster %s: a cluster has addresses for %d; remove one with: playground proxy remove", p.Number, p.Cluster, topology.MaxExtras)
	}
	if p.Listen < 1 || p.Listen > 65535 {
		return fmt.Errorf("--listen %d: use a port from 1 to 65535", p.Listen)
	}
	switch p.Kind {
	case Nginx, HAProxy:
		return p.validateReverse()
	case Connect:
		return p.validateConnect()
	}
	return fmt.Errorf("--kind %q: use nginx, haproxy or connect", p.Kind)
}

func (p Proxy) validateReverse() error {
	switch {
	case p.To < 1 || p.To > 65535:
		return fmt.Errorf("--to %d: a reverse proxy needs a port of the nodes, from 1 to 65535", p.To)
	case !urlPath.MatchString(p.Path):
		return fmt.Errorf("--path %q: use a path like /liqo, of letters, digits and ./_~-", p.Path)
	case p.User != "" || p.Password != "":
		return errors.New("--user and --password are for --kind connect; a reverse proxy passes the Authorization header on")
	}
	return nil
}

func (p Proxy) validateConnect() error {
	switch {
	case p.To != 0 || p.ToTLS || p.TLS || p.Path != "":
		return errors.New("the client of a forward proxy names the destination; leave --to, --to-tls, --path and --tls out")
	case (p.User == "") != (p.Password == ""):
		return errors.New("give both --user and --password, or neither")
	case p.User != "" && !(word.MatchString(p.User) && word.MatchString(p.Password)):
		return errors.New("--user and --password: use letters, digits and ._~-")
	}
	return nil
}

// Plan is what a proxy needs.
type Plan struct {
	Endpoint topology.Endpoint
	// Programs are taken from Debian packages and unpacked in Root, which becomes "/" of the program.
	Programs image.Selection
	Root     string
	Files    []File
	// Pair is the path, without extension, of the certificate and the key that the proxy serves; empty without TLS.
	Pair    string
	Machine spec.Machine
}

// File is a configuration file.
type File struct{ Path, Text string }

// Dir holds the files of a proxy.
func Dir(p Proxy, c topology.Cluster) string { return path.Join(c.Dir, "proxies", p.Name()) }

// New plans a proxy.
func New(p Proxy, c topology.Cluster) (Plan, error) {
	if err := p.Validate(); err != nil {
		return Plan{}, err
	}
	if p.Kind != Connect && len(c.Nodes) == 0 {
		return Plan{}, fmt.Errorf("cluster %s has no nodes, to whose ports a reverse proxy could forward", c.Name)
	}
	root := path.Join(Dir(p, c), "root")
	out := Plan{Endpoint: p.endpoint(c), Root: root}
	conf := path.Join(root, "etc/proxy/proxy.conf")
	file := func(at, text string) { out.Files = append(out.Files, File{path.Join(root, at), text}) }
	file("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
	file("etc/group", "root:x:0:\n")
	file("var/lib/nginx/README", "nginx makes directories here.\n")
	file("var/log/README", "Access logs are here.\n")
	file("run/README", "Process numbers are here.\n")
	out.Programs.Extras = []image.Extra{{"/usr/lib/*/libgcc_s.so.1"}} // glibc loads it by name when a thread ends
	var argv []string
	switch p.Kind {
	case Nginx:
		out.from("nginx", "/usr/sbin/nginx")
		out.Files = append(out.Files, File{conf, p.nginx(c)})
		argv = []string{"/usr/sbin/nginx", "-c", "/etc/proxy/proxy.conf"}
	case HAProxy:
		out.from("haproxy", "/usr/sbin/haproxy")
		out.Files = append(out.Files, File{conf, p.haproxy(c)})
		argv = []string{"/usr/sbin/haproxy", "-db", "-f", "/etc/proxy/proxy.conf"}
	case Connect:
		out.from("tinyproxy-bin", "/usr/bin/tinyproxy")
		out.Files = append(out.Files, File{conf, p.tinyproxy()})
		argv = []string{"/usr/bin/tinyproxy", "-d", "-c", "/etc/proxy/proxy.conf"}
	}
	if p.TLS {
		out.Pair = path.Join(root, "etc/proxy/tls")
	}
	machine := c.NodeMachine(p.Name())
	out.Machine = spec.Machine{
		Name: machine, Hostname: p.Name(), NetNS: out.Endpoint.NetNS,
		LogDir: path.Join(Dir(p, c), "log"), Socket: topology.Socket(machine),
		Components: []spec.Component{{
			Name: string(p.Kind), Argv: append([]string{"/usr/sbin/chroot", root}, argv...),
			Env: []string{"PATH=/usr/sbin:/usr/bin"},
		}},
	}
	return out, nil
}

func (p *Plan) from(pkg, program string) {
	p.Programs.Packages, p.Programs.Programs = []string{pkg}, []string{program}
}

// servers makes a line for each node.
func (p Proxy) servers(c topology.Cluster, line string) string {
	var b strings.Builder
	for _, n := range c.Nodes {
		fmt.Fprintf(&b, line+"\n", n.Name, n.Address, p.To)
	}
	return b.String()
}
