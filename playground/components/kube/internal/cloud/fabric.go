// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"liqo.io/liqo/playground/components/kube/internal/cloud/loop"
	"liqo.io/liqo/playground/components/kube/internal/cloud/settings"
)

// announcements is how often an address is announced to the neighbours, one second apart: a
// neighbour ignores a change of an entry within a second of the last one.
const announcements = 3

// fabric keeps the kernels and CNI files of the real nodes in the state that the API last
// reported. It lives longer than a session, does not use the API, and repairs drift on its own.
type fabric struct {
	nodes map[string]settings.Node
	pool  settings.Pool
	kick  loop.Bell
	// glance is the interval of the cheap check (is the namespace still the same one?),
	// survey that of the full comparison with the kernel.
	glance, survey time.Duration

	mutex sync.Mutex
	known knowledge

	// Only run touches these.
	applied map[string]identity           // network namespace last configured, per node; no entry: not configured
	trouble map[string]string             // last logged error per node
	pending map[string]map[netip.Addr]int // announcements still to be sent, per node
}

// identity distinguishes a network namespace and a CNI file from later ones at the same path.
type identity struct {
	device, inode uint64
	cni           bool
}

func newFabric(nodes map[string]settings.Node, p settings.Pool) *fabric {
	return &fabric{
		nodes: nodes, pool: p, kick: loop.NewBell(), glance: time.Second, survey: 30 * time.Second,
		applied: map[string]identity{}, trouble: map[string]string{}, pending: map[string]map[netip.Addr]int{},
	}
}

// setPodCIDRs sets the pod prefix of each real node. The caller must not change the map afterwards.
func (f *fabric) setPodCIDRs(podCIDRs map[string]netip.Prefix) {
	f.mutex.Lock()
	f.known.podCIDRs = podCIDRs
	f.mutex.Unlock()
	f.kick.Ring()
}

// setHolders sets the node that answers for each address. The caller must not change the map afterwards.
func (f *fabric) setHolders(holders map[netip.Addr]string) {
	f.mutex.Lock()
	f.known.holders = holders
	f.mutex.Unlock()
	f.kick.Ring()
}

// run applies each change and repairs drift until ctx ends.
func (f *fabric) run(ctx context.Context) {
	if len(f.nodes) == 0 {
		return
	}
	ticker := time.NewTicker(f.glance)
	defer ticker.Stop()
	surveyed := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.kick:
			f.apply(ctx, f.all())
		case <-ticker.C:
			nodes := f.changed()
			if time.Since(surveyed) > f.survey {
				nodes, surveyed = f.all(), time.Now()
			}
			f.apply(ctx, nodes)
			f.announcePending(ctx)
		}
	}
}

func (f *fabric) all() []string {
	names := make([]string, 0, len(f.nodes))
	for name := range f.nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// changed returns the nodes that are not configured, or whose namespace or CNI file was replaced.
func (f *fabric) changed() []string {
	return slices.DeleteFunc(f.all(), func(name string) bool {
		now, err := f.identify(name)
		return err == nil && f.applied[name] == now
	})
}

func (f *fabric) identify(name string) (identity, error) {
	var stat syscall.Stat_t
	if err := syscall.Stat(f.nodes[name].Netns, &stat); err != nil {
		return identity{}, fmt.Errorf("network namespace %s: %w", f.nodes[name].Netns, err)
	}
	_, err := os.Lstat(f.nodes[name].Root + "/" + cniFile)
	return identity{device: stat.Dev, inode: stat.Ino, cni: err == nil}, nil
}

// apply brings nodes to the planned state. It removes addresses from all nodes before it adds
// them to any, since two nodes must not answer for the same address.
func (f *fabric) apply(ctx context.Context, nodes []string) {
	f.mutex.Lock()
	known := f.known
	f.mutex.Unlock()
	if len(nodes) == 0 || known.podCIDRs == nil && known.holders == nil {
		return
	}
	kernels, failed := map[string]*kernel{}, map[string]error{}
	for _, name := range nodes {
		state := planNode(f.nodes, name, known)
		files := f.applyFiles(ctx, name, state)
		k, err := openKernel(f.nodes[name].Netns, f.nodes[name].Interface)
		if err == nil {
			defer k.Close()
			kernels[name] = k
			err = f.dropAddresses(ctx, name, k, state)
		}
		failed[name] = errors.Join(files, err)
	}
	for _, name := range nodes {
		err := failed[name]
		if k := kernels[name]; k != nil {
			err = errors.Join(err, f.applyKernel(ctx, name, k, planNode(f.nodes, name, known)))
		}
		f.conclude(ctx, name, err)
	}
}

func (f *fabric) applyFiles(ctx context.Context, name string, state nodeState) error {
	if state.cni == nil {
		return nil
	}
	changed, err := writeCNI(f.nodes[name].Root, state.cni)
	if err != nil {
		return fmt.Errorf("CNI configuration: %w", err)
	}
	if changed {
		klog.FromContext(ctx).Info("CNI configuration written", "node", name)
	}
	return nil
}

func (f *fabric) dropAddresses(ctx context.Context, name string, k *kernel, state nodeState) error {
	if !state.addressesKnown {
		return nil
	}
	dropped, err := k.dropAddresses(f.pool, state.addresses)
	f.report(ctx, name, "- address", dropped)
	return err
}

// applyKernel applies all but the removal of addresses.
func (f *fabric) applyKernel(ctx context.Context, name string, k *kernel, state nodeState) error {
	if state.routesKnown {
		changes, err := k.syncRoutes(state.routes)
		if len(changes) > 0 {
			klog.FromContext(ctx).Info("routes changed", "node", name, "changes", changes)
		}
		if err != nil {
			return err
		}
	}
	if !state.addressesKnown {
		return nil
	}
	added, err := k.addAddresses(f.pool, state.addresses)
	f.report(ctx, name, "+ address", added)
	if len(added) > 0 {
		waiting := map[netip.Addr]int{}
		for _, address := range added {
			waiting[address] = announcements - 1
		}
		f.pending[name] = waiting
		err = errors.Join(err, announce(f.nodes[name].Netns, k.device.Attrs().Index, k.device.Attrs().HardwareAddr, added))
	}
	return err
}

// conclude records a node as configured, or logs the problem if it changed.
func (f *fabric) conclude(ctx context.Context, name string, err error) {
	logger := klog.FromContext(ctx)
	now, missing := f.identify(name)
	if err == nil {
		err = missing
	}
	if err != nil {
		delete(f.applied, name)
		if text := err.Error(); text != f.trouble[name] {
			logger.Info("node is not configured, will retry", "node", name, "seen", text)
			f.trouble[name] = text
		}
		return
	}
	if f.trouble[name] != "" {
		logger.Info("node is configured again", "node", name)
		delete(f.trouble, name)
	}
	f.applied[name] = now
}

func (f *fabric) report(ctx context.Context, name, what string, addresses []netip.Addr) {
	if len(addresses) > 0 {
		klog.FromContext(ctx).Info("load balancer addresses changed", "node", name, "change", what, "addresses", addresses)
	}
}

// announcePending repeats the announcements of addresses that their nodes still hold.
func (f *fabric) announcePending(ctx context.Context) {
	for name, waiting := range f.pending {
		err := f.announceAgain(name, waiting)
		if err != nil {
			klog.FromContext(ctx).V(1).Info("announcement abandoned", "node", name, "seen", err.Error())
			clear(waiting)
		}
		if len(waiting) == 0 {
			delete(f.pending, name)
		}
	}
}

func (f *fabric) announceAgain(name string, waiting map[netip.Addr]int) error {
	k, err := openKernel(f.nodes[name].Netns, f.nodes[name].Interface)
	if err != nil {
		return err
	}
	defer k.Close()
	held, err := k.addresses(f.pool)
	if err != nil {
		return err
	}
	var again []netip.Addr
	for address := range waiting {
		if waiting[address]--; waiting[address] < 0 || !slices.Contains(held, address) {
			delete(waiting, address)
			continue
		}
		again = append(again, address)
	}
	return announce(f.nodes[name].Netns, k.device.Attrs().Index, k.device.Attrs().HardwareAddr, again)
}
