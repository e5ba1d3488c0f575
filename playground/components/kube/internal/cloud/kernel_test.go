// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"liqo.io/liqo/playground/components/kube/internal/cloud/settings"
	"liqo.io/liqo/playground/components/kube/internal/cloud/settingstest"
)

// wire makes two network namespaces, connects their eth0, and returns nodes in them with
// roots in temporary directories. Cleanup removes all of it.
func wire(t *testing.T) map[string]settings.Node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: network namespaces need root")
	}
	nodes := settingstest.Nodes()
	names := map[string]string{}
	for i, name := range []string{"rome-control-plane", "rome-worker"} {
		node := nodes[name]
		names[name] = fmt.Sprintf("lpgtest-%d-%d", os.Getpid(), i)
		newNamespace(t, names[name])
		t.Cleanup(func() { _ = netns.DeleteNamed(names[name]) })
		node.Netns, node.Root = "/run/netns/"+names[name], t.TempDir()
		nodes[name] = node
	}
	connect(t, nodes["rome-control-plane"], nodes["rome-worker"])
	return nodes
}

// newNamespace makes a named network namespace and returns to that of the test.
func newNamespace(t *testing.T, name string) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	made, err := netns.NewNamed(name)
	if back := netns.Set(home); back != nil {
		panic(back) // the thread must not be used by others
	}
	if err != nil {
		t.Fatal(err)
	}
	made.Close()
}

func connect(t *testing.T, a, b settings.Node) {
	t.Helper()
	handles := map[string]*netlink.Handle{}
	for _, node := range []settings.Node{a, b} {
		namespace, err := netns.GetFromPath(node.Netns)
		if err != nil {
			t.Fatal(err)
		}
		defer namespace.Close()
		if handles[node.Netns], err = netlink.NewHandleAt(namespace); err != nil {
			t.Fatal(err)
		}
		defer handles[node.Netns].Close()
	}
	there, err := netns.GetFromPath(b.Netns)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	cable := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(there))}
	if err := handles[a.Netns].LinkAdd(cable); err != nil {
		t.Fatal(err)
	}
	for _, node := range []settings.Node{a, b} {
		handle := handles[node.Netns]
		device, err := handle.LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		loopback, err := handle.LinkByName("lo")
		if err != nil {
			t.Fatal(err)
		}
		address := &netlink.Addr{IPNet: networkOf(netip.PrefixFrom(node.Address, 24))}
		for _, err := range []error{handle.AddrAdd(device, address), handle.LinkSetUp(device), handle.LinkSetUp(loopback)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// withKernel calls act with the kernel of a node.
func withKernel(t *testing.T, node settings.Node, act func(*kernel)) {
	t.Helper()
	k, err := openKernel(node.Netns, node.Interface)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	act(k)
}

// eventually polls until done returns true. The limit only guards against hanging.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("not so after 30s: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestSyncRoutes(t *testing.T) {
	node := wire(t)["rome-control-plane"]
	via := netip.MustParseAddr("10.210.1.11")
	to := func(text string) route { return route{netip.MustParsePrefix(text), via} }
	withKernel(t, node, func(k *kernel) {
		foreign := &netlink.Route{
			LinkIndex: k.device.Attrs().Index, Dst: networkOf(netip.MustParsePrefix("10.99.0.0/16")), Gw: via.AsSlice(),
			Protocol: unix.RTPROT_STATIC,
		}
		if err := k.RouteAdd(foreign); err != nil {
			t.Fatal(err)
		}
		moved := route{netip.MustParsePrefix("10.200.1.0/24"), netip.MustParseAddr("10.210.1.12")}
		for _, step := range []struct {
			want    []route
			changes []string
		}{
			{[]route{to("10.200.1.0/24"), to("10.200.2.0/24")}, []string{"+ route 10.200.1.0/24 via 10.210.1.11", "+ route 10.200.2.0/24 via 10.210.1.11"}},
			{[]route{to("10.200.1.0/24"), to("10.200.2.0/24")}, nil},
			{[]route{moved}, []string{"- route 10.200.1.0/24 via 10.210.1.11", "- route 10.200.2.0/24 via 10.210.1.11", "+ route 10.200.1.0/24 via 10.210.1.12"}},
			{nil, []string{"- route 10.200.1.0/24 via 10.210.1.12"}},
		} {
			changes, err := k.syncRoutes(step.want)
			if err != nil || !reflect.DeepEqual(changes, step.changes) {
				t.Errorf("want %v: changes %q, error %v", step.want, changes, err)
			}
		}
		if changes, err := k.syncRoutes([]route{to("10.99.0.0/16")}); err == nil || len(changes) != 0 {
			t.Errorf("a foreign route was overwritten: %q, error %v", changes, err)
		}
		left, err := k.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Protocol: unix.RTPROT_STATIC}, netlink.RT_FILTER_PROTOCOL)
		if err != nil || len(left) != 1 {
			t.Errorf("foreign routes now: %v, error %v", left, err)
		}
	})
}

func TestAddresses(t *testing.T) {
	node := wire(t)["rome-control-plane"]
	p := mustPool(t, "10.210.1.200-10.210.1.250")
	one, two := netip.MustParseAddr("10.210.1.200"), netip.MustParseAddr("10.210.1.201")
	withKernel(t, node, func(k *kernel) {
		// We must remove neither a foreign address in the pool nor one with our label outside it.
		for _, foreign := range []*netlink.Addr{
			{IPNet: networkOf(netip.MustParsePrefix("10.210.1.249/32"))},
			{IPNet: networkOf(netip.MustParsePrefix("10.99.0.1/32")), Label: addressLabel},
		} {
			if err := k.AddrAdd(k.loopback, foreign); err != nil {
				t.Fatal(err)
			}
		}
		for _, step := range []struct{ want, added, dropped []netip.Addr }{
			{[]netip.Addr{one, two}, []netip.Addr{one, two}, nil},
			{[]netip.Addr{one, two}, nil, nil},
			{[]netip.Addr{two}, nil, []netip.Addr{one}},
			{nil, nil, []netip.Addr{two}},
		} {
			dropped, errDrop := k.dropAddresses(p, step.want)
			added, errAdd := k.addAddresses(p, step.want)
			if errDrop != nil || errAdd != nil || !reflect.DeepEqual(dropped, step.dropped) || !reflect.DeepEqual(added, step.added) {
				t.Errorf("want %v: added %v (%v), dropped %v (%v)", step.want, added, errAdd, dropped, errDrop)
			}
		}
		left, err := k.AddrList(k.loopback, netlink.FAMILY_V4)
		if err != nil || len(left) != 3 { // with 127.0.0.1
			t.Errorf("addresses now: %v, error %v", left, err)
		}
	})
}

// keep runs a fabric with short intervals until the test ends.
func keep(t *testing.T, nodes map[string]settings.Node) *fabric {
	f := newFabric(nodes, mustPool(t, "10.210.1.200-10.210.1.250"))
	f.glance, f.survey = 20*time.Millisecond, 200*time.Millisecond
	var keeper sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	keeper.Go(func() { f.run(ctx) })
	t.Cleanup(func() { cancel(); keeper.Wait() })
	return f
}

// TestFabric: the fabric applies the plan, repairs drift, moves an address, and follows a namespace that was replaced.
func TestFabric(t *testing.T) {
	nodes := wire(t)
	worker, controlPlane := nodes["rome-worker"], nodes["rome-control-plane"]
	address := netip.MustParseAddr("10.210.1.200")
	f := keep(t, nodes)

	holds := func(node settings.Node) (held bool) {
		withKernel(t, node, func(k *kernel) {
			have, err := k.addresses(f.pool)
			held = err == nil && slices.Contains(have, address)
		})
		return held
	}
	routed := func(node settings.Node) (has bool) {
		withKernel(t, node, func(k *kernel) {
			have, err := k.routes()
			has = err == nil && len(have) == 1
		})
		return has
	}
	f.setPodCIDRs(prefixes("rome-control-plane", "10.200.0.0/24", "rome-worker", "10.200.1.0/24"))
	f.setHolders(map[netip.Addr]string{address: "rome-worker"})
	eventually(t, "routes and address are there", func() bool { return routed(worker) && routed(controlPlane) && holds(worker) })
	for name, node := range nodes {
		path := filepath.Join(node.Root, cniFile)
		eventually(t, "CNI file of "+name, func() bool { text, _ := os.ReadFile(path); return strings.Contains(string(text), "10.200.") })
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		eventually(t, "CNI file of "+name+" is back", func() bool { _, err := os.Stat(path); return err == nil })
	}
	withKernel(t, worker, func(k *kernel) {
		if err := k.AddrDel(k.loopback, loopbackAddress(address)); err != nil {
			t.Fatal(err)
		}
	})
	eventually(t, "drift is repaired", func() bool { return holds(worker) })

	f.setHolders(map[netip.Addr]string{address: "rome-control-plane"})
	eventually(t, "address moves", func() bool { return holds(controlPlane) && !holds(worker) })

	// The node is removed and returns with another namespace at the same path.
	name := filepath.Base(worker.Netns)
	if err := netns.DeleteNamed(name); err != nil {
		t.Fatal(err)
	}
	newNamespace(t, name)
	eventually(t, "the cable is gone", func() bool {
		k, err := openKernel(controlPlane.Netns, "eth0")
		if err == nil {
			k.Close()
		}
		return err != nil
	})
	connect(t, controlPlane, worker)
	eventually(t, "routes and address are there again", func() bool { return routed(worker) && routed(controlPlane) && holds(controlPlane) })
}

// TestFabricAnnouncesAddresses: a neighbour that has cached the old location of an address learns the new one.
func TestFabricAnnouncesAddresses(t *testing.T) {
	nodes := wire(t)
	worker, neighbour := nodes["rome-worker"], nodes["rome-control-plane"]
	address := netip.MustParseAddr("10.210.1.200")
	withKernel(t, neighbour, func(k *kernel) {
		wrong := &netlink.Neigh{LinkIndex: k.device.Attrs().Index, IP: address.AsSlice(), HardwareAddr: []byte{2, 0, 0, 0, 0, 1}, State: netlink.NUD_STALE}
		if err := k.NeighAdd(wrong); err != nil {
			t.Fatal(err)
		}
	})
	keep(t, nodes).setHolders(map[netip.Addr]string{address: "rome-worker"})
	var mac string
	withKernel(t, worker, func(k *kernel) { mac = k.device.Attrs().HardwareAddr.String() })
	eventually(t, "the neighbour knows", func() (known bool) {
		withKernel(t, neighbour, func(k *kernel) {
			list, err := k.NeighList(k.device.Attrs().Index, netlink.FAMILY_V4)
			known = err == nil && slices.ContainsFunc(list, func(n netlink.Neigh) bool {
				return n.IP.String() == address.String() && n.HardwareAddr.String() == mac
			})
		})
		return known
	})
}
