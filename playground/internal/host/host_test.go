// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMissingProgramsNameTheirPackages(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"mount", "umount", "nsenter", "tail", "nft"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	err := checkTools(Needs{Go: "go"})
	if err == nil || !strings.Contains(err.Error(), "missing: go, iptables, gcc, pkg-config, libseccomp's headers") ||
		!strings.Contains(err.Error(), "apt-get install golang-go iptables gcc pkg-config libseccomp-dev") {
		t.Errorf("message %v", err)
	}
	if err := checkTools(Needs{}); err == nil || strings.Contains(err.Error(), "gcc") {
		t.Errorf("message %v speaks of what only a build needs", err)
	}
}

func TestDisk(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "a", "b")
	if err := checkDisk(Needs{Dir: missing, FreeBytes: 1}); err != nil {
		t.Errorf("a directory to be made: %v", err)
	}
	err := checkDisk(Needs{Dir: missing, FreeBytes: 1 << 60})
	if err == nil || !strings.Contains(err.Error(), "a playground needs 1099511627776 MB") {
		t.Errorf("a disk too small: %v", err)
	}
}

func TestNetworkOfTheMachineIsNotTaken(t *testing.T) {
	// Loopback is routed on every machine, by its local table; the main table is what counts.
	if err := checkNetwork(netip.MustParsePrefix("198.18.7.0/24")); err != nil {
		t.Errorf("a network without a route: %v", err)
	}
}

func TestNotRoot(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("only as an ordinary user")
	}
	if err := Check(Needs{}); err == nil || !strings.Contains(err.Error(), "not root") {
		t.Errorf("message %v", err)
	}
}

func TestSettingsKnowThisKernel(t *testing.T) {
	saved, err := SaveSettings()
	if err != nil {
		t.Fatal(err)
	}
	if saved["fs/inotify/max_user_instances"] == "" || saved["vm/overcommit_memory"] == "" {
		t.Errorf("settings %v lack what every kernel has", saved)
	}
}
