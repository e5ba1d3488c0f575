// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
)

// As released, wireguard-go on Linux takes as many buffers of 64 KiB as there are packets under way: 160 to 250 MB under four TCP streams. A
// bound of 1024 buffers reduces that to 56 to 91 MB and is not slower. The pool of the library can be bounded, but the bound is a constant 0.
// So this file sets it before the first buffer is taken; TestLimit fails when a new version of the module has moved the field.
//
// A fixed bound alone would be wrong with many peers: packets wait for a peer that does not answer (128 reads for each peer, until its
// handshake is given up after 90 s), and five such peers could hold all buffers and block the others. So a reader that finds no buffer for a
// while gets more: the bound holds where buffers are on their way, and yields where they wait.
const (
	bufferLimit = 1024
	bufferStep  = 512
	stallTick   = 100 * time.Millisecond
)

// limitedTUN is a TUN device that blocks its readers until the pool is bounded, and that shows whether its reader is stuck.
type limitedTUN struct {
	tun.Device
	ready chan struct{}
	// pool is set by start.
	pool *bufferPool
	// turns is incremented when a read starts and when it ends: odd while the reader waits for packets, even while it handles them.
	turns atomic.Uint64
}

func newLimitedTUN(of tun.Device) *limitedTUN {
	return &limitedTUN{Device: of, ready: make(chan struct{})}
}

// BatchSize is the first call of the reader, before it takes buffers.
func (l *limitedTUN) BatchSize() int {
	<-l.ready
	return l.Device.BatchSize()
}

// Events is the first call of the goroutine that opens the sockets, whose readers take buffers.
func (l *limitedTUN) Events() <-chan tun.Event {
	<-l.ready
	return l.Device.Events()
}

func (l *limitedTUN) Read(buffers [][]byte, sizes []int, offset int) (int, error) {
	l.turns.Add(1)
	defer l.turns.Add(1)
	return l.Device.Read(buffers, sizes, offset)
}

// start bounds the pool and releases the readers. After an error they run without a bound.
func (l *limitedTUN) start(d *device.Device) error {
	defer close(l.ready)
	pool, err := buffersOf(d)
	if err != nil {
		return err
	}
	pool.bound(bufferLimit)
	l.pool = pool
	go l.yield(pool, d.Wait())
	return nil
}

// yield raises the limit while the reader is stuck without a buffer, and lowers it when the waiting buffers came back.
func (l *limitedTUN) yield(pool *bufferPool, closed <-chan struct{}) {
	ticker := time.NewTicker(stallTick)
	defer ticker.Stop()
	limit, last := uint32(bufferLimit), uint64(0)
	for {
		select {
		case <-closed:
			return
		case <-ticker.C:
		}
		turns := l.turns.Load()
		used := pool.used()
		stuck := turns == last && turns%2 == 0 && used >= limit
		last = turns
		switch {
		case stuck:
			limit += bufferStep
			pool.set(limit)
		case limit > bufferLimit && used < bufferLimit/2:
			limit = bufferLimit
			pool.set(limit)
		}
	}
}

// poolMax exceeds every limit.
const poolMax = 1 << 30

// bufferPool are the fields of a device.WaitPool. The pool reads max without its lock, so max is written once, before the pool is used. The limit
// changes with the count, which the pool reads and writes under its lock: base buffers count as used from the start.
type bufferPool struct {
	lock       *sync.Mutex
	cond       *sync.Cond
	count, max *uint32
	base       uint32
}

// bound sets the first limit. No buffer may be in use.
func (p *bufferPool) bound(limit uint32) {
	p.lock.Lock()
	*p.max = poolMax
	p.lock.Unlock()
	p.set(limit)
}

func (p *bufferPool) used() uint32 {
	p.lock.Lock()
	defer p.lock.Unlock()
	return *p.count - p.base
}

func (p *bufferPool) limit() uint32 {
	p.lock.Lock()
	defer p.lock.Unlock()
	return poolMax - p.base
}

func (p *bufferPool) set(limit uint32) {
	p.lock.Lock()
	defer p.lock.Unlock()
	base := poolMax - limit
	*p.count += base - p.base
	p.base = base
	p.cond.Broadcast()
}

// buffersOf returns the pool of packet buffers of a device.
func buffersOf(d *device.Device) (*bufferPool, error) {
	all := reflect.ValueOf(d).Elem().FieldByName("pool")
	if !all.IsValid() || all.Kind() != reflect.Struct {
		return nil, fmt.Errorf("device.Device has no struct pool")
	}
	buffers := all.FieldByName("messageBuffers")
	if !buffers.IsValid() || buffers.Type() != reflect.TypeFor[*device.WaitPool]() {
		return nil, fmt.Errorf("device.Device has no pool messageBuffers")
	}
	pool := reflect.ValueOf((*device.WaitPool)(buffers.UnsafePointer())).Elem()
	var found bufferPool
	var err error
	found.lock, err = field[sync.Mutex](pool, "lock", err)
	found.cond, err = field[sync.Cond](pool, "cond", err)
	found.count, err = field[uint32](pool, "count", err)
	found.max, err = field[uint32](pool, "max", err)
	return &found, err
}

// field returns a pointer to an unexported field, if it still has the expected type. An earlier error stays.
func field[T any](of reflect.Value, name string, err error) (*T, error) {
	f := of.FieldByName(name)
	if err != nil || !f.IsValid() || f.Type() != reflect.TypeFor[T]() {
		if err == nil {
			err = fmt.Errorf("%s has no field %s of type %s", of.Type(), name, reflect.TypeFor[T]())
		}
		return nil, err
	}
	return (*T)(unsafe.Pointer(f.UnsafeAddr())), nil
}
