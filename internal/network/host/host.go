// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"liqo.io/liqo/internal/network/carrier"
	"liqo.io/liqo/internal/network/host/events"
	"liqo.io/liqo/internal/network/host/userspace"
	"liqo.io/liqo/internal/network/hoststate"
)

type Options struct {
	// PrivateKey returns the private key that belongs to a public key (base64). It is never logged.
	PrivateKey func(public string) (key [32]byte, ok bool)
	// Hub has the streams of a gateway; nil for none.
	Hub *carrier.Hub
	Log logr.Logger
}

// Host is the network namespace of this process. All threads of the process must be in that namespace.
type Host struct {
	options Options
	kernel  *netlink.Handle
	// strict is a second handle, on which the kernel itself applies the filter of a listing.
	strict *netlink.Handle
	watch  *events.Watch

	mu sync.Mutex
	// links are those that this Apply has looked up; cleared when links may have changed.
	links linkCache
	// device is the userspace WireGuard device in this process; nil if there is none.
	device *userspace.Device
	// relay joins streams with a device of the kernel; nil if there is none.
	relay *relay
	// dialled is the endpoint that was set last for each peer, by public key.
	dialled map[string]dialled

	// filter describes our nftables table as it was last known to be in place; "" if it is not. An earlier table is a filter, too: what it
	// does not know, it drops.
	filter string

	// implementation of WireGuard, a string, "" without a device. It is atomic because callers read it during Apply, which may take long.
	implementation atomic.Value
}

type Change struct {
	Verb string // add, replace, delete
	What string // in the words of the ip and wg commands
}

const (
	verbAdd     = "add"
	verbReplace = "replace"
	verbDelete  = "delete"
)

func (c Change) String() string { return c.Verb + " " + c.What }

// step is a change and the function that makes it.
type step struct {
	Change
	do func() error
}

// steps are those of one kind of object. All makes run before all prunes, so that a new path exists before an old one ends.
type steps struct {
	make, prune []step
}

// Open opens handles in the network namespace of the caller. It changes nothing.
func Open(o Options) (*Host, error) {
	if o.Log.GetSink() == nil {
		o.Log = logr.Discard()
	}
	kernel, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	strict, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		kernel.Close()
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	if err := strict.SetStrictCheck(true); err != nil {
		o.Log.Info("kernel cannot filter listings, so each one returns the routes of all programs", "reason", err.Error())
	}
	watch, err := events.New()
	if err != nil {
		kernel.Close()
		strict.Close()
		return nil, err
	}
	return &Host{options: o, kernel: kernel, strict: strict, watch: watch, dialled: map[string]dialled{}}, nil
}

// Close closes handles and a userspace WireGuard device. The state of the kernel stays as it is, except for a userspace device.
func (h *Host) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watch.Close()
	h.kernel.Close()
	h.strict.Close()
	h.closeRelay()
	h.closeDevice()
	return nil
}

// Changed has a value when links, addresses, routes, rules or nftables have changed since it was last read, by any program.
func (h *Host) Changed() <-chan struct{} { return h.watch.Changed }

// Apply brings the kernel to the state want and returns what it changed. After an error it goes on where it can, except that packets that are not
// filtered have no path: without the planned table or an earlier one, the host is closed, see [hoststate.State.Closed].
func (h *Host) Apply(ctx context.Context, want hoststate.State) ([]Change, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.links = linkCache{}

	// The order in which a path is built: drops and the filter first, so that nothing passes unprotected; the rules that direct traffic into it last.
	kinds := []func(hoststate.State) (steps, error){
		h.blackholeSteps, h.nftSteps, h.linkSteps, h.addressSteps, h.neighbourSteps, h.wireGuardSteps, h.routeSteps, h.ruleSteps,
	}
	const filter = 1 // index of nftSteps
	var run run
	var prunes [][]step
	for i, kind := range kinds {
		if err := ctx.Err(); err != nil {
			return run.changes, errors.Join(append(run.errs, err)...)
		}
		todo, err := kind(want)
		run.failed(err)
		run.all(todo.make)
		prunes = append(prunes, todo.prune)
		if i == filter && len(want.Chains) > 0 && h.filter == "" {
			want = want.Closed()
			run.failed(errUnfiltered)
		}
	}
	rules := len(prunes) - 1
	for i, prune := range slices.Backward(prunes) {
		if err := ctx.Err(); err != nil {
			return run.changes, errors.Join(append(run.errs, err)...)
		}
		run.all(prune)
		if i == rules && len(prune) > 0 {
			h.settleRules(&run, want)
		}
	}
	h.watch.Follow(h.links.byIndex)
	return run.changes, errors.Join(run.errs...)
}

var errUnfiltered = errors.New("packets of peers are not filtered here, so this host has neither tunnel nor overlay until the nftables table " +
	hoststate.NFTable +
	" can be written; check that the kernel has nf_tables: `nft list ruleset` and `dmesg` on the node show more")

// settleRules checks the rules again after a deletion. The kernel deletes the first rule that matches, and a selector that is not set
// matches every rule: it may have deleted a narrower rule. That one is added again behind the deleted one, where it is safe.
func (h *Host) settleRules(run *run, want hoststate.State) {
	const most = hoststate.LastRule - hoststate.FirstRule
	for range most {
		todo, err := h.ruleSteps(want)
		if err != nil || len(todo.make)+len(todo.prune) == 0 {
			return // Apply has recorded the same error before
		}
		run.all(todo.make)
		run.all(todo.prune)
	}
}

// run collects the results of steps.
type run struct {
	changes []Change
	errs    []error
}

func (r *run) failed(err error) {
	if err != nil {
		r.errs = append(r.errs, err)
	}
}

func (r *run) all(todo []step) {
	for _, step := range todo {
		if err := step.do(); err != nil {
			r.failed(fmt.Errorf("%s: %w", step.Change, err))
			continue
		}
		r.changes = append(r.changes, step.Change)
	}
}

// PathMTU returns the MTU of the path to an address, and its outgoing link.
func PathMTU(to netip.Addr) (mtu int, link string, err error) {
	routes, err := netlink.RouteGet(to.AsSlice())
	if err != nil {
		return 0, "", fmt.Errorf("look up route to %s: %w", to, err)
	}
	if len(routes) == 0 {
		return 0, "", fmt.Errorf("look up route to %s: there is no route", to)
	}
	out, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return 0, "", fmt.Errorf("look up link of the route to %s: %w", to, err)
	}
	mtu = out.Attrs().MTU
	if routes[0].MTU > 0 {
		mtu = min(mtu, routes[0].MTU)
	}
	return mtu, out.Attrs().Name, nil
}
