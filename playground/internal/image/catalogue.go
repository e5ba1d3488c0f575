// SPDX-License-Identifier: Apache-2.0

// Package image chooses what is in the container images of the playground: static binaries, and files of Debian packages. Package
// oci writes them.
//
// It must not know clusters, nodes or how an archive is imported. Describing an image and choosing its files is pure; apt.go and
// debian.go run programs.
//
// Proof: closure_test.go (which files of a package set a program needs), hollow_test.go, and tools_test.go (the real tools run
// inside the unpacked layer; needs root and apt).
package image

import (
	"strings"

	"liqo.io/liqo/playground/internal/image/oci"
)

// Names of the playground's own images. The tags of CoreDNS and metrics-server are
// the versions of the programs inside.
const (
	PauseName         = "playground.local/pause:1"
	CoreDNSName       = "playground.local/coredns:1.15.0"
	MetricsServerName = "playground.local/metrics-server:0.9.0"
	DemoName          = "playground.local/demo:1"
	ToolsName         = "playground.local/tools:1"
)

// packagesLabel of an image lists the Debian packages its files come from; the file
// packagesFile has the same, one per line.
const (
	packagesLabel = "playground.local/packages"
	packagesFile  = "/etc/playground-packages"
)

// Binaries are the paths, on this machine, of the static programs that become
// images. The base name of each becomes its name in the image.
type Binaries struct {
	Pause, CoreDNS, MetricsServer, Demo string
}

// Pause is the image that holds a pod's namespaces open.
func Pause(b Binaries) (oci.Image, error) { return StaticBinary(PauseName, b.Pause) }

// CoreDNS is the cluster DNS server. As non-root it can open port 53 because the
// container runtime lets unprivileged programs do that in a pod's network namespace
// (enable_unprivileged_ports, the default since containerd 2.0).
func CoreDNS(b Binaries) (oci.Image, error) { return StaticBinary(CoreDNSName, b.CoreDNS) }

// MetricsServer is the source of kubectl top. It writes its own certificate below
// its --cert-dir, for which only /tmp is writable.
func MetricsServer(b Binaries) (oci.Image, error) {
	return StaticBinary(MetricsServerName, b.MetricsServer)
}

// Demo is the image of the demo program; without arguments its pod serves the page.
func Demo(b Binaries) (oci.Image, error) {
	img, err := StaticBinary(DemoName, b.Demo)
	img.Cmd = []string{"serve"}
	return img, err
}

// ToolsSelection is what the tools image takes from Debian. All names exist in
// Debian 12 and 13.
func ToolsSelection() Selection {
	return Selection{
		Packages: []string{
			"bind9-dnsutils", "busybox-static", "curl", "dash", "iperf3", "iproute2", "netbase", "nftables",
			// Declares that /usr is merged, as in our images: saves fetching perl, which would
			// merge it.
			"usr-is-merged",
		},
		Programs: []string{
			"/usr/bin/curl", "/usr/bin/dash", "/usr/bin/dig", "/usr/bin/iperf3", "/usr/sbin/nft",
			"/usr/sbin/ip", "/usr/sbin/bridge", "/usr/sbin/tc", "/usr/bin/ss", "/usr/bin/busybox",
		},
		Extras: []Extra{
			{"/etc/services"},
			{"/etc/protocols"},
			{"/etc/iproute2", "/usr/share/iproute2"}, // names of route protocols and tables: the directory differs by release
			{"/usr/lib/*/libgcc_s.so.1"},             // glibc loads it by name when a thread ends; dig and iperf3 have threads
		},
		BusyBox: "/usr/bin/busybox",
		// 31 MB of Unicode tables, twice the rest of dig: it links them through libxml2,
		// which it needs only for a server's statistics page.
		Hollow: []string{"/usr/lib/*/libicudata.so.*"},
	}
}

// Tools is the image of network tools, from what Fetch made of ToolsSelection. It
// runs as root, since ip and nft are of little use otherwise. Its command waits and
// ends at once on SIGTERM, so that a pod of it can be exec'd into and deletes fast.
func Tools(debian *Debian) oci.Image {
	// /bin/sh must not be busybox: its shell prefers its own applets to
	// PATH, so "ip" would never be the real ip.
	files := append(oci.Skeleton(), oci.Symlink("/usr/bin/sh", "dash"))
	files = append(files, oci.Regular(packagesFile, 0o644, oci.Inline(strings.Join(debian.Packages, "\n")+"\n")))
	return oci.Image{
		Name:    ToolsName,
		Cmd:     []string{"/bin/sh", "-c", "trap 'exit 0' TERM INT; sleep infinity & wait"},
		Env:     []string{oci.SearchPath},
		User:    "0:0",
		WorkDir: "/",
		Labels:  map[string]string{packagesLabel: strings.Join(debian.Packages, " ")},
		Files:   append(files, debian.Files...),
	}
}
