// SPDX-License-Identifier: Apache-2.0

// Package spec holds the configuration of a machine's init process: its namespaces and root
// directory, its programs and their order.
//
// It is pure data: package cluster decides and writes it, package machine reads and applies it. Nothing here knows Kubernetes or the kernel.
package spec

import "slices"

// Machine is one supervised group of processes: a node, a control plane, the link emulator.
type Machine struct {
	// Name is unique on this playground; it names the cgroup and the control socket.
	Name     string
	Hostname string
	// NetNS is the path of the named network namespace that the machine joins.
	NetNS string
	// Root is a directory on a real file system that becomes "/" of the machine, filled
	// with read-only binds of the host's programs. Empty: the machine sees the host's files,
	// and mounts that the host makes later.
	Root string
	// Binds are added to Root, or to the machine's view of the host's files.
	Binds []Bind
	// LogDir receives NAME.log for each component and init.log.
	LogDir string
	// Socket is the path of the control socket, outside Root.
	Socket     string
	Components []Component
}

// Bind makes a host path visible in the machine. A missing Source is an error.
type Bind struct {
	Source, Target string
	ReadOnly       bool
}

// Component is one program. A program that ends is started again unless it was stopped by
// hand; a Once program runs until it succeeds once for each start of the machine.
type Component struct {
	Name string
	Argv []string
	Env  []string
	Once bool
	// After must all hold before the program is started, at the first and at later starts.
	After []Wait
}

// Wait is a condition; exactly one field is set.
type Wait struct {
	// Unix is a socket path, seen from inside the machine, that accepts a connection.
	Unix string `json:",omitempty"`
	// TCP is an address, HOST:PORT, that accepts a connection.
	TCP string `json:",omitempty"`
	// Done is the name of a Once component that has succeeded.
	Done string `json:",omitempty"`
}

// Component returns the component of that name.
func (m Machine) Component(name string) (Component, bool) {
	i := slices.IndexFunc(m.Components, func(c Component) bool { return c.Name == name })
	if i < 0 {
		return Component{}, false
	}
	return m.Components[i], true
}
