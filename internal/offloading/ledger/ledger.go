// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Amount is something that objects of every kind use.
type Amount int

// The amounts. Bytes are those of the JSON of an object.
const (
	Bytes Amount = iota
	NodePorts
	LoadBalancers
	Storage
	amounts
)

var names = [amounts]string{"bytes of all objects", "node ports", "load balancers", "requested bytes of storage"}

// Use is what one object uses, or what bounds it.
type Use [amounts]int64

// Key names an object.
type Key struct {
	Resource        schema.GroupResource
	Namespace, Name string
}

// Limits bound what one peer has. A kind or an amount without a limit is not bounded.
type Limits struct {
	// Objects are the numbers of objects by kind.
	Objects map[schema.GroupResource]int64
	Use     Use
	// AllBytes bounds the bytes of all peers. Once they have as many, a peer still gets its part of them, divided by the number of peers.
	AllBytes int64
	// Rate is how many bytes a peer writes per second, after Burst.
	Rate, Burst int64
	// AllRate and AllBurst are the same for all peers together; 0 for no bound.
	AllRate, AllBurst int64
}

// Change is an object that is about to be stored.
type Change struct {
	Key Key
	Use Use
	// Before is what the object uses as it is stored, if it is not new. The ledger knows that itself, once it has listed the object.
	Before Use
	// Peer has the namespace of the object.
	Peer string
	// New: there is no such object. Only a new one can be one too many.
	New bool
	// Written: the peer writes it, and what is stored differs from what was there. Otherwise it costs no bytes per second.
	Written bool
	// Kept: the object counts until it is gone. Otherwise it counts only as something written.
	Kept bool
	// DryRun: nothing is stored.
	DryRun bool
	Now    time.Time
}

// Verdict is the answer to a change.
type Verdict struct {
	// Problem is why it is refused; empty if it is admitted.
	Problem string
	// Wait is after which time the same change may be admitted; zero if that is not known.
	Wait time.Duration
	// Stale: the peer's objects should be listed again, because deletions are not reported.
	Stale bool
}

// Ledger counts. It is not safe for concurrent use.
type Ledger struct {
	limits Limits
	peers  map[string]*peer
	spaces map[string]*space
	bytes  int64  // of all peers
	tokens bucket // of all peers
	// admitted numbers what is admitted, so that a list does not drop what was admitted meanwhile.
	admitted uint64
}

type peer struct {
	use     Use
	objects map[schema.GroupResource]int64
	// use and objects at the last list.
	listed        Use
	listedObjects map[schema.GroupResource]int64
	// tokens are what it may write, part what it may write although others have taken all that all may.
	tokens, part bucket
}

// space is a namespace.
type space struct {
	owner   string
	objects map[name]entry
}

type name struct {
	resource schema.GroupResource
	name     string
}

type entry struct {
	use      Use
	admitted uint64
	at       time.Time // when it was admitted
	seen     bool      // a list had it, and no new object has been admitted under its name since
}

// New returns an empty ledger.
func New(limits Limits) *Ledger {
	return &Ledger{limits: limits, peers: map[string]*peer{}, spaces: map[string]*space{}, tokens: bucket{level: float64(limits.AllBurst)}}
}

// Admit counts a change, or returns why it is refused.
func (l *Ledger) Admit(c Change) Verdict {
	at := l.space(c.Key.Namespace, c.Peer)
	p := l.peer(c.Peer)
	key := name{c.Key.Resource, c.Key.Name}
	before, exists := at.objects[key]
	if problem := l.exceeds(p, c, before.use, exists); problem != "" {
		return Verdict{Problem: problem, Stale: true}
	}
	if c.Written {
		if verdict := l.pace(p, c); verdict.Problem != "" {
			return verdict
		}
	}
	if c.Kept && !c.DryRun {
		l.admitted++
		now := c.Use
		for amount := range now {
			if c.New { // if it is there, the API server refuses it only after us
				now[amount] = max(now[amount], before.use[amount])
			}
		}
		l.set(at, p, key, entry{now, l.admitted, c.Now, before.seen && !c.New})
	}
	return Verdict{Stale: l.stale(p)}
}

// exceeds returns why an object that uses more than before does not fit. One that uses less always fits, although a limit may have become smaller.
func (l *Ledger) exceeds(p *peer, c Change, before Use, exists bool) string {
	if most, bounded := l.limits.Objects[c.Key.Resource]; bounded && c.New && !exists && p.objects[c.Key.Resource] >= most {
		return fmt.Sprintf("this cluster has %d %s of the peer already, and at most %d are accepted: delete some, or ask the provider for more",
			p.objects[c.Key.Resource], c.Key.Resource, most)
	}
	if !c.Kept {
		return ""
	}
	for amount := range amounts {
		more, most := c.Use[amount]-before[amount], l.limits.Use[amount]
		if after := p.use[amount] + more; more > 0 && most > 0 && after > most {
			return fmt.Sprintf("the %s of the peer in this cluster would be %s, and at most %s are accepted: delete some objects, or ask the provider for more",
				names[amount], text(amount, after), text(amount, most))
		}
	}
	more, most := c.Use[Bytes]-before[Bytes], l.limits.AllBytes
	if most > 0 && more > 0 && l.bytes+more > most && p.use[Bytes]+more > most/int64(len(l.peers)) {
		return fmt.Sprintf(
			"the objects of all peers together would have %s in this cluster, and at most %s are accepted: ask the provider for more",
			text(Bytes, l.bytes+more), text(Bytes, most),
		)
	}
	return ""
}

// stale reports whether a peer that comes near to a limit has got a tenth of it since its objects were listed: some of them may be gone.
func (l *Ledger) stale(p *peer) bool {
	near := func(now, then, most int64) bool { return most > 0 && now >= most-most/5 && now-then >= max(most/10, 1) }
	for amount := range amounts {
		if near(p.use[amount], p.listed[amount], l.limits.Use[amount]) {
			return true
		}
	}
	for kind, now := range p.objects {
		if near(now, p.listedObjects[kind], l.limits.Objects[kind]) {
			return true
		}
	}
	return false
}

// Note counts an object that is there. Its use is known only when it is listed.
func (l *Ledger) Note(key Key, owner string) {
	at := l.space(key.Namespace, owner)
	if id := (name{key.Resource, key.Name}); at.objects[id] == (entry{}) {
		l.set(at, l.peer(owner), id, entry{})
	}
}

// Forget uncounts an object that is gone.
func (l *Ledger) Forget(key Key) {
	if at := l.spaces[key.Namespace]; at != nil {
		l.drop(key.Namespace, at, name{key.Resource, key.Name})
	}
}

// Mark is the moment at which a list begins, for Replace.
type Mark struct {
	admitted uint64
	began    time.Time
}

// Mark returns the mark of a list that begins now.
func (l *Ledger) Mark(now time.Time) Mark { return Mark{l.admitted, now} }

// Storing is how long the API server may take to store what was admitted: so long a list is no proof that it was not stored.
const Storing = 10 * time.Second

// Replace records what a list of all objects of these kinds in the namespaces of a peer found, which began at a mark. What was admitted since stays, and
// what may not have been stored yet when the list began; so does what is known where the list was left out: a kind in a namespace, as a key without
// a name. Again: after Storing, another list has to show what became of some objects.
func (l *Ledger) Replace(owner string, kinds map[schema.GroupResource]bool, left map[Key]bool, found map[Key]Use, mark Mark) (again bool) {
	underWay := func(known entry) bool { return mark.began.Sub(known.at) < Storing }
	for namespace, at := range l.spaces {
		if at.owner != owner {
			continue
		}
		for id, known := range at.objects {
			if _, ok := found[Key{id.resource, namespace, id.name}]; ok || !kinds[id.resource] ||
				left[Key{Resource: id.resource, Namespace: namespace}] || known.admitted > mark.admitted {
				continue
			}
			if !known.seen && underWay(known) {
				again = true
				continue
			}
			l.drop(namespace, at, id)
		}
	}
	for key, use := range found {
		at, id := l.space(key.Namespace, owner), name{key.Resource, key.Name}
		known := at.objects[id]
		if known.admitted > mark.admitted {
			continue
		}
		if use != known.use && underWay(known) { // it may be as it was before
			again, use = true, known.use
		}
		l.set(at, l.peer(owner), id, entry{use, known.admitted, known.at, true})
	}
	p := l.peer(owner)
	p.listed, p.listedObjects = p.use, map[schema.GroupResource]int64{}
	for kind, number := range p.objects {
		p.listedObjects[kind] = number
	}
	return again
}

// Retain forgets peers that have nothing any more, unless they are kept, so that a peer does not get another burst.
func (l *Ledger) Retain(keep func(peer string) bool) {
	for namespace, at := range l.spaces {
		if !keep(at.owner) {
			for id := range at.objects {
				l.drop(namespace, at, id)
			}
			delete(l.spaces, namespace)
		}
	}
	for owner := range l.peers {
		if !keep(owner) {
			delete(l.peers, owner)
		}
	}
}

// Has returns what a peer has: the number of objects of a kind, and what all its objects use.
func (l *Ledger) Has(owner string, kind schema.GroupResource) (int64, Use) {
	if p := l.peers[owner]; p != nil {
		return p.objects[kind], p.use
	}
	return 0, Use{}
}

// Of returns what an object counts with.
func (l *Ledger) Of(key Key) Use {
	if at := l.spaces[key.Namespace]; at != nil {
		return at.objects[name{key.Resource, key.Name}].use
	}
	return Use{}
}

func (l *Ledger) peer(owner string) *peer {
	p := l.peers[owner]
	if p == nil {
		p = &peer{objects: map[schema.GroupResource]int64{}, tokens: bucket{level: float64(l.limits.Burst)}, part: bucket{level: float64(l.limits.AllBurst)}}
		l.peers[owner] = p
	}
	return p
}

// space returns a namespace, which is its owner's from now on: the owner may become known after the first objects.
func (l *Ledger) space(namespace, owner string) *space {
	at := l.spaces[namespace]
	if at == nil {
		at = &space{owner: owner, objects: map[name]entry{}}
		l.spaces[namespace] = at
	}
	if at.owner != owner {
		from, to := l.peer(at.owner), l.peer(owner)
		for id, known := range at.objects {
			from.add(id.resource, known.use, -1)
			to.add(id.resource, known.use, 1)
		}
		at.owner = owner
	}
	return at
}

func (l *Ledger) set(at *space, p *peer, key name, now entry) {
	if before, exists := at.objects[key]; exists {
		p.add(key.resource, before.use, -1)
		l.bytes -= before.use[Bytes]
	}
	p.add(key.resource, now.use, 1)
	l.bytes += now.use[Bytes]
	at.objects[key] = now
}

func (l *Ledger) drop(namespace string, at *space, key name) {
	before, exists := at.objects[key]
	if !exists {
		return
	}
	l.peer(at.owner).add(key.resource, before.use, -1)
	l.bytes -= before.use[Bytes]
	delete(at.objects, key)
	if len(at.objects) == 0 {
		delete(l.spaces, namespace)
	}
}

func (p *peer) add(kind schema.GroupResource, use Use, sign int64) {
	if p.objects[kind] += sign; p.objects[kind] == 0 {
		delete(p.objects, kind)
	}
	for amount := range amounts {
		p.use[amount] += sign * use[amount]
	}
}

// text writes an amount for people.
func text(of Amount, value int64) string {
	format := resource.DecimalSI
	if of == Bytes || of == Storage {
		format = resource.BinarySI
	}
	return resource.NewQuantity(value, format).String()
}
