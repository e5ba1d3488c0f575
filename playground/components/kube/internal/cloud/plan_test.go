// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"liqo.io/liqo/playground/components/kube/internal/cloud/settingstest"
)

func prefixes(pairs ...string) map[string]netip.Prefix {
	all := map[string]netip.Prefix{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = netip.MustParsePrefix(pairs[i+1])
	}
	return all
}

func TestPlanNode(t *testing.T) {
	address := netip.MustParseAddr("10.210.1.200")
	both := prefixes("rome-control-plane", "10.200.0.0/24", "rome-worker", "10.200.1.0/24", "rome-hollow-0", "10.200.2.0/24")
	toWorker := []route{{netip.MustParsePrefix("10.200.1.0/24"), netip.MustParseAddr("10.210.1.11")}}
	for name, test := range map[string]struct {
		known knowledge
		want  nodeState
	}{
		"nothing known leaves all": {knowledge{}, nodeState{}},
		"routes to real peers only": {
			knowledge{podCIDRs: both},
			nodeState{cni: renderCNI(both["rome-control-plane"]), routes: toWorker, routesKnown: true},
		},
		"own prefix not given yet": {
			knowledge{podCIDRs: prefixes("rome-worker", "10.200.1.0/24")},
			nodeState{routes: toWorker, routesKnown: true},
		},
		"peer gone means no route": {
			knowledge{podCIDRs: prefixes("rome-control-plane", "10.200.0.0/24")},
			nodeState{cni: renderCNI(both["rome-control-plane"]), routesKnown: true},
		},
		"held address": {
			knowledge{holders: map[netip.Addr]string{address: "rome-control-plane"}},
			nodeState{addresses: []netip.Addr{address}, addressesKnown: true},
		},
		"address of another": {
			knowledge{holders: map[netip.Addr]string{address: "rome-worker"}},
			nodeState{addressesKnown: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := planNode(settingstest.Nodes(), "rome-control-plane", test.known); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

func TestRenderCNI(t *testing.T) {
	var list struct {
		CNIVersion, Name string
		Plugins          []struct {
			Type   string
			IPMasq bool
			SNAT   bool
			IPAM   struct{ Ranges [][]struct{ Subnet string } }
		}
	}
	if err := json.Unmarshal(renderCNI(netip.MustParsePrefix("10.200.1.7/24")), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Plugins) != 2 || list.Plugins[0].Type != "ptp" || list.Plugins[1].Type != "portmap" {
		t.Fatalf("plugins are %+v", list.Plugins)
	}
	if got := list.Plugins[0].IPAM.Ranges[0][0].Subnet; got != "10.200.1.0/24" {
		t.Errorf("subnet is %s", got)
	}
}

func TestWriteCNI(t *testing.T) {
	root := t.TempDir()
	for i, want := range []bool{true, false} {
		if changed, err := writeCNI(root, []byte("one")); err != nil || changed != want {
			t.Errorf("write %d: changed %v, error %v", i, changed, err)
		}
	}
	if changed, err := writeCNI(root, []byte("two")); err != nil || !changed {
		t.Errorf("other content: changed %v, error %v", changed, err)
	}
	entries, err := os.ReadDir(filepath.Join(root, cniDirectory))
	if err != nil || len(entries) != 1 || entries[0].Name() != "10-playground.conflist" {
		t.Errorf("directory holds %v, error %v", entries, err)
	}
}

// A pod with the right host path could leave such a link; files of the host must stay out of its reach.
func TestWriteCNIStaysInRoot(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "etc/cni"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(root, cniDirectory)); err != nil {
		t.Fatal(err)
	}
	if _, err := writeCNI(root, []byte("x")); err == nil {
		t.Error("a link out of the root was followed")
	}
	if entries, _ := os.ReadDir(outside); len(entries) != 0 {
		t.Errorf("outside the root there is now %v", entries)
	}
}

func TestAnnouncement(t *testing.T) {
	mac := []byte{2, 0, 0, 0, 0, 7}
	got := announcement(mac, netip.MustParseAddr("10.210.1.200"))
	want := "\xff\xff\xff\xff\xff\xff" + string(mac) + "\x08\x06" + // Ethernet
		"\x00\x01\x08\x00\x06\x04\x00\x01" + // ARP request for IPv4 over Ethernet
		string(mac) + "\x0a\xd2\x01\xc8" + strings.Repeat("\x00", 6) + "\x0a\xd2\x01\xc8"
	if string(got) != want {
		t.Errorf("got  %x\nwant %x", got, want)
	}
}
