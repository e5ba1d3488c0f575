// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"liqo.io/liqo/internal/network/host/kernel"
	"liqo.io/liqo/internal/network/hoststate"
)

const (
	kernelImplementation    = "kernel"
	userspaceImplementation = "userspace"
)

func implementationOf(link netlink.Link) string {
	if _, ok := link.(*netlink.Wireguard); ok {
		return kernelImplementation
	}
	return userspaceImplementation
}

// Implementation returns which WireGuard runs, "kernel" or "userspace"; "" without a device. It does not wait for Apply.
func (h *Host) Implementation() string {
	made, _ := h.implementation.Load().(string)
	return made
}

// TunnelPeer is the state of a peer in the device.
type TunnelPeer struct {
	PublicKey string
	// Endpoint is where its last packet came from; invalid if there was none and none is configured.
	Endpoint      netip.AddrPort
	LastHandshake time.Time
	ReceiveBytes  int64
	TransmitBytes int64
}

// Tunnel lists the peers of the device; nil if there is no device.
func (h *Host) Tunnel() ([]TunnelPeer, error) {
	device, err := readDevice()
	if device == nil || err != nil {
		return nil, err
	}
	peers := make([]TunnelPeer, 0, len(device.Peers))
	for _, one := range device.Peers {
		peers = append(peers, TunnelPeer{
			PublicKey: one.PublicKey.String(), Endpoint: addrPortOf(one.Endpoint), LastHandshake: one.LastHandshakeTime,
			ReceiveBytes: one.ReceiveBytes, TransmitBytes: one.TransmitBytes,
		})
	}
	return peers, nil
}

func addrPortOf(udp *net.UDPAddr) netip.AddrPort {
	if udp == nil {
		return netip.AddrPort{}
	}
	all := udp.AddrPort()
	return netip.AddrPortFrom(all.Addr().Unmap(), all.Port())
}

// withWireGuard opens the control interface for each call, because one that was opened before the kernel loaded WireGuard does not find it.
func withWireGuard(do func(*wgctrl.Client) error) error {
	client, err := wgctrl.New()
	if err != nil {
		return fmt.Errorf("open WireGuard control: %w", err)
	}
	defer client.Close()
	return do(client)
}

func readDevice() (device *wgtypes.Device, err error) {
	err = withWireGuard(func(client *wgctrl.Client) error {
		device, err = client.Device(hoststate.TunnelLink)
		return err
	})
	// A killed process leaves a dead socket.
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read WireGuard device %s: %w", hoststate.TunnelLink, err)
	}
	return device, nil
}

// dialled is what was last set as a peer's endpoint.
type dialled struct {
	endpoint netip.AddrPort
	dial     int
}

// wireGuardSteps configures the device in one call, so that networks move from a peer to another without a gap.
func (h *Host) wireGuardSteps(want hoststate.State) (steps, error) {
	if want.WireGuard == nil {
		return steps{}, nil
	}
	device, err := readDevice()
	if err != nil {
		return steps{}, err
	}
	if device == nil {
		return steps{}, fmt.Errorf("configure WireGuard: device %s does not exist", hoststate.TunnelLink)
	}
	config, changes, err := h.wireGuardConfig(want.WireGuard, device)
	var todo steps
	if len(changes) == 0 {
		h.remember(want.WireGuard)
		err = errors.Join(err, h.relayStreams(want.WireGuard)) // a device of the kernel outlives this process, its streams do not
	}
	for i, change := range changes {
		do := func() error { return nil } // the first step makes all changes
		if i == 0 {
			do = func() error { return h.configure(want.WireGuard, config) }
		}
		todo.make = append(todo.make, step{change, do})
	}
	return todo, err
}

func (h *Host) configure(want *hoststate.WireGuard, config wgtypes.Config) error {
	relayed := h.relayStreams(want) // UDP works without
	if err := withWireGuard(func(client *wgctrl.Client) error { return client.ConfigureDevice(hoststate.TunnelLink, config) }); err != nil {
		return errors.Join(err, relayed)
	}
	h.remember(want)
	return relayed
}

// remember records the endpoints that were set.
func (h *Host) remember(want *hoststate.WireGuard) {
	clear(h.dialled)
	for _, peer := range want.Peers {
		h.dialled[peer.PublicKey] = dialled{peer.Endpoint, peer.Dial}
	}
}

// wireGuardConfig returns the difference between the device and the wanted one. If the private key is unknown, it returns the rest with an error.
func (h *Host) wireGuardConfig(want *hoststate.WireGuard, have *wgtypes.Device) (config wgtypes.Config, changes []Change, err error) {
	var errs []error
	if have.PublicKey.String() != want.PublicKey || have.PrivateKey == (wgtypes.Key{}) {
		if key, ok := h.options.PrivateKey(want.PublicKey); ok {
			config.PrivateKey = (*wgtypes.Key)(&key)
			changes = append(changes, Change{verbReplace, "wireguard public key " + want.PublicKey})
		} else {
			errs = append(errs, fmt.Errorf("configure WireGuard: no private key is known for public key %s", want.PublicKey))
		}
	}
	if have.ListenPort != want.ListenPort {
		config.ListenPort = &want.ListenPort
		changes = append(changes, Change{verbReplace, fmt.Sprintf("wireguard listen port %d", want.ListenPort)})
	}
	peers := map[string]wgtypes.Peer{}
	for _, one := range have.Peers {
		peers[one.PublicKey.String()] = one
	}
	var set []wgtypes.PeerConfig
	for _, one := range want.Peers {
		old, there := peers[one.PublicKey]
		delete(peers, one.PublicKey)
		configs, change, err := h.peerConfig(one, old, there)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if len(configs) > 0 {
			set = append(set, configs...)
			changes = append(changes, change)
		}
	}
	for _, one := range have.Peers {
		if _, unwanted := peers[one.PublicKey.String()]; unwanted {
			config.Peers = append(config.Peers, wgtypes.PeerConfig{PublicKey: one.PublicKey, Remove: true})
			changes = append(changes, Change{verbDelete, "peer " + one.PublicKey.String()})
		}
	}
	config.Peers = append(config.Peers, set...)
	return config, changes, errors.Join(errs...)
}

func peerText(p hoststate.WireGuardPeer) string {
	text := "peer " + p.PublicKey
	if p.Endpoint.IsValid() {
		text += " endpoint " + p.Endpoint.String()
	}
	return fmt.Sprintf("%s allowed-ips %s keepalive %s", text, joined(p.AllowedIPs), p.Keepalive)
}

// peerConfig returns the difference between a peer and the wanted one; nil if there is none.
func (h *Host) peerConfig(want hoststate.WireGuardPeer, have wgtypes.Peer, there bool) ([]wgtypes.PeerConfig, Change, error) {
	key, err := wgtypes.ParseKey(want.PublicKey)
	if err != nil {
		return nil, Change{}, fmt.Errorf("configure peer %q: %w", want.PublicKey, err)
	}
	change := Change{verbReplace, peerText(want)}
	var all []wgtypes.PeerConfig
	last, known := h.dialled[want.PublicKey]
	switch {
	case !there:
		change.Verb = verbAdd
	case known && last.dial != want.Dial:
		all = append(all, wgtypes.PeerConfig{PublicKey: key, Remove: true})
		there = false
	}
	config := wgtypes.PeerConfig{PublicKey: key}
	differs := !there
	if want.Endpoint.IsValid() && (!there || last != dialled{want.Endpoint, want.Dial}) {
		config.Endpoint = net.UDPAddrFromAddrPort(want.Endpoint)
		differs = true
	}
	if !there || have.PersistentKeepaliveInterval != want.Keepalive {
		config.PersistentKeepaliveInterval = &want.Keepalive
		differs = true
	}
	if !there || !sameNetworks(want.AllowedIPs, have.AllowedIPs) {
		config.ReplaceAllowedIPs = true
		for _, one := range want.AllowedIPs {
			config.AllowedIPs = append(config.AllowedIPs, *kernel.IPNet(one))
		}
		differs = true
	}
	if !differs {
		return nil, Change{}, nil
	}
	return append(all, config), change, nil
}

func sameNetworks(want []netip.Prefix, have []net.IPNet) bool {
	observed := make([]netip.Prefix, 0, len(have))
	for _, one := range have {
		observed = append(observed, kernel.PrefixOf(&one))
	}
	return joined(want) == joined(observed)
}

// joined prints networks in a canonical order.
func joined(all []netip.Prefix) string {
	texts := make([]string, 0, len(all))
	for _, one := range all {
		texts = append(texts, one.Masked().String())
	}
	slices.Sort(texts)
	return strings.Join(slices.Compact(texts), ",")
}
