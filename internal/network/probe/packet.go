// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"encoding/binary"
	"math/bits"
)

// A packet is a header and a body. The body of an echo is zeros up to the size under test, that of a report holds observations.
//
//	0     magic "liqo"
//	4     version
//	5     kind
//	6     lane
//	7     zero
//	8     sender, a random number of the sending process
//	16    sequence
const (
	magic      = "liqo"
	version    = 1
	headerSize = 24
	// maxPacket is the largest that UDP can carry.
	maxPacket = 65507
	// headers of IPv4 and UDP before a packet.
	headers = 28
	// maxReport is the size of the largest packet with observations. Every path that carries IP carries it.
	maxReport = 1024
	maxLanes  = 8

	maxNodeName  = 253
	maxClusterID = 63
)

type kind byte

const (
	echoRequest  kind = 1
	echoReply    kind = 2
	observations kind = 3
)

type header struct {
	kind     kind
	lane     byte
	sender   uint64
	sequence uint64
}

// write returns a packet of size bytes, but at least a header. It uses buffer's memory if that suffices.
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
	return h, h.kind >= echoRequest && h.kind <= observations && h.lane < maxLanes
}

// Observation is what a node measures of one peer, from end to end.
type Observation struct {
	ClusterID string
	// Lane is the one that the node uses, -1 if none works. Up are the lanes whose probes come back.
	Lane int
	Up   []int
}

// noLane encodes lane -1.
const noLane = 0xff

// writeReport returns the bodies of as many packets as the observations need. Each body can be read without the others.
func writeReport(node string, all []Observation) (bodies [][]byte) {
	if len(node) > maxNodeName {
		return nil
	}
	head := append([]byte{byte(len(node))}, node...)
	body := head
	for _, observation := range all {
		if len(observation.ClusterID) > maxClusterID {
			continue
		}
		lane, up := byte(noLane), byte(0)
		if observation.Lane >= 0 && observation.Lane < maxLanes {
			lane = byte(observation.Lane)
		}
		for _, number := range observation.Up {
			if number >= 0 && number < maxLanes {
				up |= 1 << number
			}
		}
		if headerSize+len(body)+len(observation.ClusterID)+3 > maxReport {
			bodies, body = append(bodies, body), head
		}
		body = append(body[:len(body):len(body)], byte(len(observation.ClusterID)))
		body = append(append(body, observation.ClusterID...), lane, up)
	}
	return append(bodies, body)
}

func parseReport(body []byte) (node string, all []Observation, ok bool) {
	text := func(longest int) (string, bool) {
		if len(body) == 0 || int(body[0]) > longest || len(body) < 1+int(body[0]) {
			return "", false
		}
		value := string(body[1 : 1+int(body[0])])
		body = body[1+len(value):]
		return value, value != ""
	}
	if len(body) > maxReport-headerSize {
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
		observation := Observation{ClusterID: id, Lane: int(body[0])}
		if body[0] == noLane {
			observation.Lane = -1
		}
		for up := body[1]; up != 0; up &= up - 1 {
			observation.Up = append(observation.Up, bits.TrailingZeros8(up))
		}
		all, body = append(all, observation), body[2:]
	}
	return node, all, true
}
