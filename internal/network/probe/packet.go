// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"encoding/binary"
	"math/bits"
)

// A packet is a header, then what its kind says: an echo is filled with zeros to the size that is asked about, sights follow theirs.
//
//	0     magic "liqo"
//	4     version
//	5     kind
//	6     lane
//	7     zero
//	8     sender, a random number of the process that asks
//	16    sequence
const (
	magic      = "liqo"
	version    = 1
	headerSize = 24
	// maxPacket is the largest that UDP can carry.
	maxPacket = 65507
	// headers of IPv4 and UDP before a packet.
	headers = 28
	// maxSights is the size of a packet with sights: it passes wherever IP does.
	maxSights = 1024
	maxLanes  = 8

	maxNodeName  = 253
	maxClusterID = 63
)

type kind byte

const (
	echoRequest kind = 1
	echoReply   kind = 2
	sights      kind = 3
)

type header struct {
	kind     kind
	lane     byte
	sender   uint64
	sequence uint64
}

// write gives a packet of size bytes, at least the header, in buffer's memory if that is enough.
func (h header) write(buffer []byte, size int) []byte {
	size = min(max(size, headerSize), maxPacket)
	if cap(buffer) < size {
		buffer = make([]byte, size)
	}
	buffer = buffer[:size]
	clear(buffer)
	copy(buffer, magic)
	buffer[4], buffer[5], buffer[6] = version, byte(h.kind), h.lane
	binary.BigEndian.PutUint64(buffer[8:], h.sender)
	binary.BigEndian.PutUint64(buffer[16:], h.sequence)
	return buffer
}

func parse(packet []byte) (header, bool) {
	if len(packet) < headerSize || string(packet[:4]) != magic || packet[4] != version || packet[7] != 0 {
		return header{}, false
	}
	h := header{
		kind: kind(packet[5]), lane: packet[6],
		sender: binary.BigEndian.Uint64(packet[8:]), sequence: binary.BigEndian.Uint64(packet[16:]),
	}
	return h, h.kind >= echoRequest && h.kind <= sights && h.lane < maxLanes
}

// Sight is what a node sees of one peer, from end to end.
type Sight struct {
	ClusterID string
	// Lane that the node uses, -1 if none works; Up are those whose probes come back.
	Lane int
	Up   []int
}

// noLane stands for none on the wire.
const noLane = 0xff

// writeSights gives the bodies of as many packets as all need, each of which stands alone.
func writeSights(node string, all []Sight) (bodies [][]byte) {
	if len(node) > maxNodeName {
		return nil
	}
	head := append([]byte{byte(len(node))}, node...)
	body := head
	for _, sight := range all {
		if len(sight.ClusterID) > maxClusterID {
			continue
		}
		lane, up := byte(noLane), byte(0)
		if sight.Lane >= 0 && sight.Lane < maxLanes {
			lane = byte(sight.Lane)
		}
		for _, number := range sight.Up {
			if number >= 0 && number < maxLanes {
				up |= 1 << number
			}
		}
		if headerSize+len(body)+len(sight.ClusterID)+3 > maxSights {
			bodies, body = append(bodies, body), head
		}
		body = append(body[:len(body):len(body)], byte(len(sight.ClusterID)))
		body = append(append(body, sight.ClusterID...), lane, up)
	}
	return append(bodies, body)
}

func parseSights(body []byte) (node string, all []Sight, ok bool) {
	text := func(longest int) (string, bool) {
		if len(body) == 0 || int(body[0]) > longest || len(body) < 1+int(body[0]) {
			return "", false
		}
		value := string(body[1 : 1+int(body[0])])
		body = body[1+len(value):]
		return value, value != ""
	}
	if len(body) > maxSights-headerSize {
		return "", nil, false
	}
	if node, ok = text(maxNodeName); !ok {
		return "", nil, false
	}
	for len(body) > 0 {
		id, ok := text(maxClusterID)
		if !ok || len(body) < 2 || body[0] >= maxLanes && body[0] != noLane {
			return "", nil, false
		}
		sight := Sight{ClusterID: id, Lane: int(body[0])}
		if body[0] == noLane {
			sight.Lane = -1
		}
		for up := body[1]; up != 0; up &= up - 1 {
			sight.Up = append(sight.Up, bits.TrailingZeros8(up))
		}
		all, body = append(all, sight), body[2:]
	}
	return node, all, true
}
