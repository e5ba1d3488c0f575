// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
)

var ErrFrame = errors.New("the other end sent a frame that is too large")

const (
	// HeaderSize is that of a frame: the length of the datagram, big-endian. A frame without a datagram shows that the stream is alive.
	HeaderSize = 2
	// MaxDatagram is the largest UDP datagram over IPv4, in bytes.
	MaxDatagram = 65507
	// ReadSize holds several datagrams of any size.
	ReadSize = 2 * (HeaderSize + MaxDatagram)
)

// AppendFrame adds a datagram to a buffer of frames.
func AppendFrame(to, datagram []byte) []byte {
	return append(binary.BigEndian.AppendUint16(to, uint16(len(datagram))), datagram...)
}

// Frames reads datagrams from a stream.
type Frames struct {
	From io.Reader
	// More reports whether another read returns at once; nil for never.
	More       func() bool
	buffer     [ReadSize]byte
	start, end int
	// batch is reused by next. wrong: the next frame is too large.
	batch [][]byte
	wrong bool
}

// Next returns all datagrams that have arrived, at least after one read, maybe none: then the stream is alive. They are valid until the following call.
func (f *Frames) Next() ([][]byte, error) {
	if f.wrong {
		return nil, ErrFrame
	}
	if f.start > 0 {
		f.end = copy(f.buffer[:], f.buffer[f.start:f.end])
		f.start = 0
	}
	n, err := f.From.Read(f.buffer[f.end:])
	f.end += n
	for err == nil && f.More != nil && f.end+record <= ReadSize && f.More() { // WireGuard handles many datagrams at once for much less each
		n, err = f.From.Read(f.buffer[f.end:])
		f.end += n
	}
	f.batch = f.batch[:0]
	for f.end-f.start >= HeaderSize {
		size := int(binary.BigEndian.Uint16(f.buffer[f.start:]))
		if f.wrong = size > MaxDatagram; f.wrong {
			err = ErrFrame
			break
		}
		if f.end-f.start < HeaderSize+size {
			break
		}
		if size > 0 {
			f.batch = append(f.batch, f.buffer[f.start+HeaderSize:f.start+HeaderSize+size])
		}
		f.start += HeaderSize + size
	}
	if len(f.batch) > 0 {
		return f.batch, nil // the error comes again
	}
	return nil, err
}

// Replayed returns a first byte again.
type Replayed struct {
	net.Conn
	First []byte
}

func (r *Replayed) Read(to []byte) (int, error) {
	if len(r.First) > 0 && len(to) > 0 {
		n := copy(to, r.First)
		r.First = r.First[n:]
		return n, nil
	}
	return r.Conn.Read(to)
}
