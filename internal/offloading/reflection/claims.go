// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/events"
	"liqo.io/liqo/internal/offloading/reflection/pods"
)

// Claims keeps the data of pods at the peer. Another package implements it; the reflection has it follow the offloaded namespaces, and asks it about pods.
type Claims interface {
	// Start follows a namespace and its remote namespace until ctx ends or Stop is called.
	Start(ctx context.Context, namespace, remote string)
	Stop(namespace, remote string)
	// The pods ask whether they may run, and under which names they find their data. PodsOf is called when an answer may have changed.
	pods.Claims
}

const claimKind = "PersistentVolumeClaim"

// Attach sets what keeps the data of pods, before Run.
func (e *Engine) Attach(claims Claims) {
	e.claims = claims
	if e.pods != nil {
		e.pods.SetClaims(claims)
	}
}

func (e *Engine) startClaims(mapping *engine.Mapping) {
	if e.claims != nil {
		e.claims.Start(mapping.Context, mapping.Local, mapping.Remote)
	}
}

func (e *Engine) stopClaims(mapping *engine.Mapping) {
	if e.claims != nil {
		e.claims.Stop(mapping.Local, mapping.Remote)
	}
}

// LocalClient is the client of this cluster.
func (e *Engine) LocalClient() client.WithWatch { return e.engine.Local }

// Client waits until the peer is reachable, and returns its client.
func (e *Engine) Client(ctx context.Context) (client.WithWatch, error) {
	return e.engine.Remote.WaitForClient(ctx)
}

// Local returns the local namespace of a remote one; false if it has none.
func (e *Engine) Local(remote string) (name string, offloaded bool) {
	if one := e.engine.Namespaces.Remote(remote); one != nil {
		return one.Local, true
	}
	return "", false
}

// Labels returns the labels of the remote copy of a claim.
func (e *Engine) Labels(claim client.Object) map[string]string {
	m := e.options.Mapping
	m.Skip = e.declined.Skip(m.Skip, time.Now())
	return m.Labels(claim)
}

// Declined reports whether the peer refused nothing but labels of a claim, which Labels leaves out from now on.
func (e *Engine) Declined(claim client.Object, err error) bool {
	if !e.declined.Learn(claim, err, time.Now()) {
		return false
	}
	e.engine.Recorder.Failed(claim, claimKind, events.ReasonIncomplete, e.declined.Lacks(claim))
	return true
}

// Report writes a warning about a claim, once per repeatInterval as long as it does not change. Resolved forgets it.
func (e *Engine) Report(about client.Object, reason string, err error) {
	e.engine.Recorder.Failed(about, claimKind, reason, err)
}

// Resolved forgets the last warning about an object.
func (e *Engine) Resolved(about client.Object) { e.engine.Recorder.Resolved(about) }

// PodsOf looks at the pods of a namespace again: what keeps their data has changed.
func (e *Engine) PodsOf(namespace string) {
	if e.pods != nil {
		e.pods.Requeue(namespace)
	}
}
