// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/events"
	"liqo.io/liqo/internal/offloading/reflection/refusals"
)

const (
	// firstAttempt and lastAttempt are waits between two attempts to ask an API server: the first one, and the longest.
	firstAttempt, lastAttempt = time.Second, time.Minute
	// surelyRefused is after how many refusals in a row a peer grants no rights: those in a new namespace need a moment.
	surelyRefused = 4
	// lostPause is how long a peer that has taken rights back is not asked.
	lostPause = 5 * time.Second
	// lastQuestion is the longest wait between two questions whether the peer grants rights.
	lastQuestion = 10 * time.Minute
)

// granted knows the mappings whose peer grants no rights on a kind. A watch there would be refused every few seconds, for ever.
type granted struct {
	mu      sync.Mutex
	refused map[*engine.Mapping]error
	// denied has how often in a row the peer refused a change of an object, by name.
	denied map[*engine.Mapping]map[string]int
}

// deny counts a refusal of a change.
func (g *granted) deny(mapping *engine.Mapping, name string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.denied == nil {
		g.denied = map[*engine.Mapping]map[string]int{}
	}
	if g.denied[mapping] == nil {
		if mapping.Context.Err() != nil {
			return surelyRefused
		}
		g.denied[mapping] = map[string]int{}
	}
	g.denied[mapping][name]++
	return g.denied[mapping][name]
}

// allow ends a row of refusals.
func (g *granted) allow(mapping *engine.Mapping, name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.denied[mapping], name)
}

func (g *granted) refuse(mapping *engine.Mapping, why error) (isNew bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if mapping.Context.Err() != nil {
		return false
	}
	if g.refused == nil {
		g.refused = map[*engine.Mapping]error{}
	}
	_, ok := g.refused[mapping]
	g.refused[mapping] = why
	return !ok
}

func (g *granted) reason(mapping *engine.Mapping) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refused[mapping]
}

// end runs do, after which the kind is not followed in the remote namespace of a mapping that ends.
func (g *granted) end(mapping *engine.Mapping, do func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.refused, mapping)
	delete(g.denied, mapping)
	do()
}

// start runs do, unless the mapping ends.
func (g *granted) start(mapping *engine.Mapping, do func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if delete(g.refused, mapping); mapping.Context.Err() == nil && !mapping.Terminating() {
		do()
	}
}

// startOnceGranted follows a namespace, and its remote namespace once the peer lets us read the kind there.
func (r *Reflector) startOnceGranted(mapping *engine.Mapping) {
	if mapping.Terminating() {
		return
	}
	r.Local.Add(mapping.Context, mapping.Local)
	go r.askForRights(mapping)
}

func (r *Reflector) askForRights(mapping *engine.Mapping) {
	refusals := 0
	for wait := firstAttempt; ; wait = min(2*wait, lastQuestion) {
		err := r.mayRead(mapping)
		switch {
		case mapping.Context.Err() != nil || mapping.Terminating():
			return
		case err == nil:
			r.granted.start(mapping, func() { r.Remote.Add(mapping.Context, mapping.Remote) })
			return
		case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
			if refusals++; refusals >= surelyRefused && r.granted.refuse(mapping, err) {
				r.Enqueue(mapping) // users learn it
			}
		default:
			wait = min(wait, lastAttempt) // it is not reachable now
		}
		select {
		case <-mapping.Context.Done():
			return
		case <-time.After(wait):
		}
	}
}

// mayRead asks the peer for one object of the kind.
func (r *Reflector) mayRead(mapping *engine.Mapping) error {
	peer, err := r.engine.Remote.WaitForClient(mapping.Context)
	if err != nil {
		return err
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(r.kind.Remote.List())
	return peer.List(mapping.Context, list, client.InNamespace(mapping.Remote), client.Limit(1))
}

// lostRights stops to follow a remote namespace whose peer does not let us read the kind any more, and asks again from then on.
func (r *Reflector) lostRights(remote string) {
	mapping := r.engine.Namespaces.Remote(remote)
	if mapping == nil {
		return // it ends
	}
	go func() { // the watch itself calls this, perhaps more than once
		followed := false
		r.granted.end(mapping, func() {
			if mapping.Context.Err() != nil {
				return // the namespace may have another mapping already
			}
			followed = r.Remote.Has(remote)
			r.Remote.Remove(remote)
		})
		if !followed {
			return
		}
		select { // without a pause, a peer that lets us list and not watch would be asked without end
		case <-mapping.Context.Done():
		case <-time.After(lostPause):
			r.askForRights(mapping)
		}
	}()
}

// reportUngranted reports to the owner of an object that the peer takes none of the kind, and whether that is so.
func (r *Reflector) reportUngranted(mapping *engine.Mapping, key types.NamespacedName) bool {
	why := r.granted.reason(mapping)
	if why == nil {
		return false
	}
	if local := r.Local.Get(key); local != nil && (r.kind.Concerns == nil || r.kind.Concerns(mapping.NamespaceMapping, local)) {
		r.engine.Recorder.Changed(local, r.kind.Name(), events.ReasonIncomplete, fmt.Errorf("%s: %w", r.kind.Optional.None, why))
	}
	return true
}

// withdraw reports that the peer refuses an object. A copy that cannot be corrected any more goes. One
// refusal does not show that: an API server that starts refuses what it allows a second later.
func (r *Reflector) withdraw(mapping *engine.Mapping, local client.Object, remote *metav1.PartialObjectMetadata, why error) (time.Duration, error) {
	if remote != nil {
		if times := r.granted.deny(mapping, local.GetName()); times < surelyRefused {
			return firstAttempt << (times - 1), nil
		}
		r.granted.allow(mapping, local.GetName())
	}
	r.engine.Recorder.Failed(local, r.kind.Name(), events.ReasonFailed, fmt.Errorf("%s: %w", r.kind.Optional.Refusal(apierrors.IsForbidden(why)), why))
	r.engine.CountFailure(mapping.Local, r.kind.Name())
	if remote != nil {
		if err := r.Remove(mapping, remote); err != nil && !refusals.Visible(err) {
			return 0, err
		}
	}
	return refusals.Retry, nil
}
