// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/vishvananda/netns"
)

func TestPrepareGateway(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ip_forward")
	if err := prepareGateway(file); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "privileged") {
		t.Errorf("error %v, want a remedy in it", err)
	}
	for _, before := range []string{"0\n", "1\n"} {
		if err := os.WriteFile(file, []byte(before), 0o644); err != nil {
			t.Fatal(err)
		}
		if before == "1\n" { // nothing to write, so no right is needed
			if err := os.Chmod(file, 0o444); err != nil {
				t.Fatal(err)
			}
		}
		if err := prepareGateway(file); err != nil {
			t.Error(err)
		}
		if after, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(after)) != "1" {
			t.Errorf("%q became %q, %v", before, after, err)
		}
	}
}

func TestGatewayOptions(t *testing.T) {
	t.Setenv("POD_IP", "10.10.0.9")
	t.Setenv("NODE_NAME", "n1")
	for arguments, want := range map[string]string{
		"": "", "--prepare --pod-ip=": "", "--gateway.ping-interval=2s --gateway.ping-loss-threshold 5": "", "--gateway.mtu 1340": "",
		"--pod-ip=": "--pod-ip", "--pod-ip=fd00::1": "--pod-ip", "--lane 8": "--lane", "--gateway.mtu 100": "--gateway.mtu", "--node-name=": "--node-name",
		"--gateway.listening-port 0": "--gateway.listening-port", "--gateway.listening-port 4879": "overlay", "--route.vxlan-vtep-port 0": "--route.vxlan-vtep-port",
	} {
		var o gatewayOptions
		flags := pflag.NewFlagSet("gateway", pflag.ContinueOnError)
		o.Register(flags)
		if err := flags.Parse(strings.Fields(arguments)); err != nil {
			t.Errorf("%s: %v", arguments, err)
			continue
		}
		if err := o.Validate(); (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one about %q", arguments, err, want)
		}
	}
	for address, want := range map[string]bool{":0": false, "": false, "0": false, ":5872": true, "127.0.0.1:5872": true} {
		if serves(address) != want {
			t.Errorf("metrics at %q: %v", address, !want)
		}
	}
}

// TestPrepareAlone: the init container's command works without an API server.
func TestPrepareAlone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: it creates a network namespace, which needs root")
	}
	runtime.LockOSThread() // not unlocked: the thread ends with the test, and the namespace with it
	space, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer space.Close()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for _, role := range roles() {
		if role.Name != "gateway" {
			continue
		}
		command := role.New()
		command.SetArgs([]string{"--prepare"})
		if err := command.ExecuteContext(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if on, err := os.ReadFile(forwarding); err != nil || strings.TrimSpace(string(on)) != "1" {
		t.Errorf("forwarding is %q, %v", on, err)
	}
}
