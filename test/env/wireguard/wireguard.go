// SPDX-License-Identifier: Apache-2.0

// Package wireguard is bare WireGuard devices between places, of the program wireguard-go in the version that the product is built with: what a
// tunnel of Liqo is measured against, and what an intruder has.
//
// It knows nothing of Liqo. Proof: test/bench and test/network, which use it.
package wireguard

import (
	"bufio"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/netns"
)

// Device is a bare WireGuard device, of the program wireguard-go in the version that the product is built with.
type Device struct {
	Link  string
	Place netns.Place
	Pid   int
	sock  string
}

// mtu is what WireGuard leaves of links of 1500 bytes, for whatever is outside.
const mtu = "1420"

// Start starts a device in a place and brings it up; it ends with the test. The link's name must be unique on this machine.
func Start(t testing.TB, b *env.Env, at netns.Place, link string) *Device {
	t.Helper()
	w := &Device{Link: link, Place: at, sock: "/var/run/wireguard/" + link + ".sock"}
	_ = os.Remove(w.sock) // of one that was killed
	cmd := at.Command(filepath.Join(b.Bin, "wireguard-go"), "--foreground", link)
	cmd.Env = append(os.Environ(), "LOG_LEVEL=error")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Pid = cmd.Process.Pid // nsenter becomes the program
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	env.Eventually(t, 5*time.Second, "wireguard-go listens at "+w.sock, func() (string, bool) {
		connection, err := net.Dial("unix", w.sock)
		if err != nil {
			return err.Error() + output.String(), false
		}
		return "", connection.Close() == nil
	})
	at.Run(t, "ip", "link", "set", link, "mtu", mtu, "up")
	return w
}

// Key turns a key as WireGuard's tools print it into what the device takes.
func Key(t testing.TB, text string) string {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil || len(key) != 32 {
		t.Fatalf("%d bytes are no key (%v)", len(key), err)
	}
	return hex.EncodeToString(key)
}

// Set configures the device: lines of KEY=VALUE, as wireguard-go takes them.
func (w *Device) Set(t testing.TB, settings ...string) {
	t.Helper()
	for _, line := range w.talk(t, "set=1\n"+strings.Join(settings, "\n")+"\n\n") {
		if errno, ok := strings.CutPrefix(line, "errno="); ok && errno != "0" {
			t.Fatalf("%s refuses its configuration: %s", w.Link, line)
		}
	}
}

// Connected waits for a handshake.
func (w *Device) Connected(t testing.TB) {
	t.Helper()
	env.Eventually(t, 15*time.Second, w.Link+" has shaken hands", func() (string, bool) {
		for _, line := range w.talk(t, "get=1\n\n") {
			if when, ok := strings.CutPrefix(line, "last_handshake_time_sec="); ok && when != "0" {
				return "", true
			}
		}
		return "no handshake", false
	})
}

func (w *Device) talk(t testing.TB, question string) (answer []string) {
	t.Helper()
	connection, err := net.Dial("unix", w.sock)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := connection.Write([]byte(question)); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(connection); lines.Scan() && lines.Text() != ""; {
		answer = append(answer, lines.Text())
	}
	return answer
}

// pairs counts the pairs of this process, for names and networks of their own.
var pairs atomic.Int32

// Pair connects two places by WireGuard alone. The second listens on a port, which the first reaches at an endpoint.
// It returns the address of the second in the tunnel.
func Pair(t testing.TB, b *env.Env, ends [2]netns.Place, endpoint netip.AddrPort, port int) netip.Addr {
	t.Helper()
	n := pairs.Add(1)
	var private, public [2]string
	var devices [2]*Device
	for i := range private {
		key, err := ecdh.X25519().GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		private[i], public[i] = hex.EncodeToString(key.Bytes()), hex.EncodeToString(key.PublicKey().Bytes())
	}
	for i, place := range ends {
		devices[i] = Start(t, b, place, fmt.Sprintf("bare%d.%d", n, i))
		settings := []string{"private_key=" + private[i], "listen_port=" + strconv.Itoa(port), "public_key=" + public[1-i], "allowed_ip=0.0.0.0/0"}
		if i == 0 {
			settings = append(settings, "endpoint="+endpoint.String(), "persistent_keepalive_interval=1")
		}
		devices[i].Set(t, settings...)
		place.Run(t, "ip", "addr", "add", fmt.Sprintf("192.168.%d.%d/24", 200+n, i+1), "dev", devices[i].Link)
	}
	devices[0].Connected(t)
	return netip.AddrFrom4([4]byte{192, 168, byte(200 + n), 2})
}
