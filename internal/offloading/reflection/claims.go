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
func (r *Reflection) Attach(claims Claims) {
	r.claims = claims
	if r.pods != nil {
		r.pods.SetClaims(claims)
	}
}

func (r *Reflection) startClaims(mapping *engine.Mapping) {
	if r.claims != nil {
		r.claims.Start(mapping.Context, mapping.Local, mapping.Remote)
	}
}

func (r *Reflection) stopClaims(mapping *engine.Mapping) {
	if r.claims != nil {
		r.claims.Stop(mapping.Local, mapping.Remote)
	}
}

// LocalClient is the client of this cluster.
func (r *Reflection) LocalClient() client.WithWatch { return r.engine.Local }

// Client waits until the peer is reachable, and returns its client.
func (r *Reflection) Client(ctx context.Context) (client.WithWatch, error) {
	return r.engine.Remote.WaitForClient(ctx)
}

// Local returns the local namespace of a remote one; false if it has none.
func (r *Reflection) Local(remote string) (name string, offloaded bool) {
	if mapping := r.engine.Namespaces.Remote(remote); mapping != nil {
		return mapping.Local, true
	}
	return "", false
}

// Labels returns the labels of the remote copy of a claim.
func (r *Reflection) Labels(claim client.Object) map[string]string {
	m := r.options.Mapping
	m.Skip = r.declined.Skip(m.Skip, time.Now())
	return m.LabelsOf(claim)
}

// Declined reports whether the peer refused nothing but labels of a claim, which Labels leaves out from now on.
func (r *Reflection) Declined(claim client.Object, err error) bool {
	if !r.declined.Learn(claim, err, time.Now()) {
		return false
	}
	r.engine.Recorder.Failed(claim, claimKind, events.ReasonIncomplete, r.declined.Lacks(claim))
	return true
}

// Report writes a warning about a claim, once per repeatInterval as long as it does not change. Resolved forgets it.
func (r *Reflection) Report(about client.Object, reason string, err error) {
	r.engine.Recorder.Failed(about, claimKind, reason, err)
}

// Resolved forgets the last warning about an object.
func (r *Reflection) Resolved(about client.Object) { r.engine.Recorder.Resolved(about) }

// PodsOf looks at the pods of a namespace again: what keeps their data has changed.
func (r *Reflection) PodsOf(namespace string) {
	if r.pods != nil {
		r.pods.Requeue(namespace)
	}
}
