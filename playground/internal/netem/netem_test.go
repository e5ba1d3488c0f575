// SPDX-License-Identifier: Apache-2.0

package netem

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"liqo.io/liqo/playground/internal/fault"
)

func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	alive, err := listen(path)
	if err != nil {
		t.Fatalf("the socket of a dead process was not taken over: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v; want mode 0600", info, err)
	}
	if second, err := listen(path); err == nil {
		_ = second.Close()
		t.Error("the socket of a living process was taken over")
	}
	if err := alive.Close(); err != nil {
		t.Error(err)
	}

	file := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(file); err == nil {
		t.Error("an ordinary file was taken for a socket")
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("an ordinary file at the place of the socket is gone: %v", err)
	}
}

func TestClientWithoutEmulator(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "socket")
	if _, err := Apply(context.Background(), socket, fault.Emulation{}); err == nil {
		t.Error("a configuration was applied without an emulator")
	}
	if _, err := ReadStatus(context.Background(), socket); err == nil {
		t.Error("a status was read without an emulator")
	}
}

func TestAddresses(t *testing.T) {
	packet := make([]byte, 20)
	packet[0] = 0x45
	copy(packet[12:], []byte{10, 210, 1, 10, 10, 210, 2, 10})
	source, destination, ok := addresses(packet)
	if !ok || source.String() != "10.210.1.10" || destination.String() != "10.210.2.10" {
		t.Errorf("got %s, %s, %v", source, destination, ok)
	}
	for name, broken := range map[string][]byte{"empty": nil, "short": packet[:19], "IPv6": append([]byte{0x60}, make([]byte, 39)...)} {
		if _, _, ok := addresses(broken); ok {
			t.Errorf("%s packet: found addresses", name)
		}
	}
}
