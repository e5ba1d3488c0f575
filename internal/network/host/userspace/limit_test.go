// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/tuntest"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// limited is a device without a kernel, with a bounded pool.
type limited struct {
	*device.Device
	tun  *tuntest.ChannelTUN
	pool *bufferPool
	key  wgtypes.Key
}

func newLimited(t *testing.T) *limited {
	t.Helper()
	key, err := wgtypes.GeneratePrivateKey()
	must(t, err)
	channel := tuntest.NewChannelTUN()
	bound := newLimitedTUN(channel.TUN())
	d := device.NewDevice(bound, conn.NewDefaultBind(), &device.Logger{Verbosef: device.DiscardLogf, Errorf: t.Logf})
	t.Cleanup(d.Close)
	must(t, bound.start(d))
	must(t, d.IpcSet(fmt.Sprintf("private_key=%s\nlisten_port=0\n", hex.EncodeToString(key[:]))))
	must(t, d.Up())
	return &limited{Device: d, tun: channel, pool: bound.pool, key: key}
}

func (l *limited) port(t *testing.T) string {
	t.Helper()
	state, err := l.IpcGet()
	must(t, err)
	for line := range strings.Lines(state) {
		if port, ok := strings.CutPrefix(line, "listen_port="); ok {
			return strings.TrimSpace(port)
		}
	}
	t.Fatal("the device listens nowhere")
	return ""
}

func (l *limited) peer(t *testing.T, public wgtypes.Key, network, port string) {
	t.Helper()
	config := fmt.Sprintf("public_key=%s\nallowed_ip=%s\n", hex.EncodeToString(public[:]), network)
	if port != "" {
		config += "endpoint=127.0.0.1:" + port + "\n"
	}
	must(t, l.IpcSet(config))
}

// TestLimit fails when a new version of wireguard-go has moved what is set, and when peers that do not answer stop one that does.
func TestLimit(t *testing.T) {
	a, b := newLimited(t), newLimited(t)
	if limit := a.pool.limit(); limit != bufferLimit {
		t.Errorf("limit %d", limit)
	}
	waitFor(t, "readers take their buffers", func() error {
		if used := a.pool.used(); used == 0 || used > bufferLimit/2 {
			return fmt.Errorf("%d buffers are used by a device at rest", used)
		}
		return nil
	})
	// Packets for dead peers wait, up to 128 for each of them.
	const dead = 12
	for i := range dead {
		key, err := wgtypes.GeneratePrivateKey()
		must(t, err)
		a.peer(t, key.PublicKey(), fmt.Sprintf("10.1.%d.0/24", i), "")
	}
	a.peer(t, b.key.PublicKey(), "10.2.0.0/16", b.port(t))
	b.peer(t, a.key.PublicKey(), "10.3.0.0/16", a.port(t))
	send := func(to string) {
		select {
		case a.tun.Outbound <- tuntest.Ping(netip.MustParseAddr(to), netip.MustParseAddr("10.3.0.1")):
		case <-time.After(10 * time.Second):
			t.Fatalf("the device takes no packet to %s: %d buffers of %d are used", to, a.pool.used(), a.pool.limit())
		}
	}
	for range 150 {
		for i := range dead {
			send(fmt.Sprintf("10.1.%d.1", i))
		}
	}
	if used := a.pool.used(); used <= bufferLimit {
		t.Fatalf("%d buffers wait, so this test proves nothing", used)
	}
	send("10.2.0.1")
	select {
	case <-b.tun.Inbound:
	case <-time.After(10 * time.Second):
		t.Fatal("a peer that answers is not reached, because others do not")
	}
	// When the dead peers are removed, the bound returns to its first value.
	a.RemoveAllPeers()
	waitFor(t, "limit comes down", func() error {
		if limit := a.pool.limit(); limit != bufferLimit {
			return fmt.Errorf("limit is %d, %d buffers are used", limit, a.pool.used())
		}
		return nil
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// waitFor repeats try until it succeeds, and fails after ten seconds.
func waitFor(t *testing.T, what string, try func() error) {
	t.Helper()
	poll, end := time.NewTicker(10*time.Millisecond), time.After(10*time.Second)
	defer poll.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-poll.C:
		case <-end:
			t.Fatalf("%s: %v", what, err)
		}
	}
}
