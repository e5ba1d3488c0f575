// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"encoding/binary"
	"io"
)

const (
	// headerSize is that of a frame: the length of the datagram, big-endian. A frame without a datagram shows that the stream is alive.
	headerSize = 2
	// maxDatagram is the largest UDP datagram over IPv4, in bytes.
	maxDatagram = 65507
	// readSize holds several datagrams of any size.
	readSize = 2 * (headerSize + maxDatagram)
)

// appendFrame adds a datagram to a buffer of frames.
func appendFrame(to, datagram []byte) []byte {
	return append(binary.BigEndian.AppendUint16(to, uint16(len(datagram))), datagram...)
}

// frames reads datagrams from a stream.
type frames struct {
	from io.Reader
	// more reports whether another read returns at once; nil for never.
	more       func() bool
	buffer     [readSize]byte
	start, end int
	// batch is reused by next. wrong: the next frame is too large.
	batch [][]byte
	wrong bool
}

// next returns all datagrams that have arrived, at least after one read, maybe none: then the stream is alive. They are valid until the following call.
func (f *frames) next() ([][]byte, error) {
	if f.wrong {
		return nil, errFrame
	}
	if f.start > 0 {
		f.end = copy(f.buffer[:], f.buffer[f.start:f.end])
		f.start = 0
	}
	n, err := f.from.Read(f.buffer[f.end:])
	f.end += n
	for err == nil && f.more != nil && f.end+record <= readSize && f.more() { // WireGuard handles many datagrams at once for much less each
		n, err = f.from.Read(f.buffer[f.end:])
		f.end += n
	}
	f.batch = f.batch[:0]
	for f.end-f.start >= headerSize {
		size := int(binary.BigEndian.Uint16(f.buffer[f.start:]))
		if f.wrong = size > maxDatagram; f.wrong {
			err = errFrame
			break
		}
		if f.end-f.start < headerSize+size {
			break
		}
		if size > 0 {
			f.batch = append(f.batch, f.buffer[f.start+headerSize:f.start+headerSize+size])
		}
		f.start += headerSize + size
	}
	if len(f.batch) > 0 {
		return f.batch, nil // the error comes again
	}
	return nil, err
}
