// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// announcement returns the Ethernet frame of a gratuitous ARP request: "address is at mac".
// A neighbour that already has an entry for address replaces it.
func announcement(mac net.HardwareAddr, address netip.Addr) []byte {
	ip, broadcast := address.As4(), net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	frame := make([]byte, 0, 42)
	frame = append(append(frame, broadcast...), mac...)
	for _, word := range []uint16{unix.ETH_P_ARP, unix.ARPHRD_ETHER, unix.ETH_P_IP, 0x0604, 1 /* request */} {
		frame = binary.BigEndian.AppendUint16(frame, word)
	}
	frame = append(append(frame, mac...), ip[:]...)
	return append(append(frame, make([]byte, 6)...), ip[:]...)
}

// announce sends an announcement of each address on a device of the namespace at path.
func announce(path string, device int, mac net.HardwareAddr, addresses []netip.Addr) error {
	socket, err := packetSocket(path)
	if err != nil {
		return fmt.Errorf("packet socket in %s: %w", path, err)
	}
	defer unix.Close(socket)
	target := &unix.SockaddrLinklayer{Ifindex: device, Protocol: networkOrder(unix.ETH_P_ARP), Halen: 6}
	for i := range 6 {
		target.Addr[i] = 0xff
	}
	for _, address := range addresses {
		if err := unix.Sendto(socket, announcement(mac, address), 0, target); err != nil {
			return fmt.Errorf("announce %s in %s: %w", address, path, err)
		}
	}
	return nil
}

// packetSocket opens a socket in the namespace at path. The thread that opens it returns to
// its own namespace. If it cannot return, it stays locked to a goroutine that ends, so that
// the runtime discards it.
func packetSocket(path string) (socket int, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		var home, there netns.NsHandle
		if home, err = netns.Get(); err != nil {
			return
		}
		defer home.Close()
		if there, err = netns.GetFromPath(path); err != nil {
			return
		}
		defer there.Close()
		if err = netns.Set(there); err != nil {
			return
		}
		// Protocol 0: this socket only sends, nothing is queued on it.
		socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if netns.Set(home) == nil {
			runtime.UnlockOSThread()
		}
	}()
	<-done
	return socket, err
}

func networkOrder(word uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, word))
}
