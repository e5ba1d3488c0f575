// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"liqo.io/liqo/internal/kube/ratelimit"
)

// Warnings sends events to peers about the objects that they wrote, with a rate limit per namespace and per peer, so that many events for one do
// not suppress those for others.
type Warnings struct {
	to               events.EventRecorder
	remoteNamespaces *Namespaces
	ofNamespace      *ratelimit.Limiter[string]
	ofPeer           *ratelimit.Limiter[string] // by cluster ID
}

func NewWarnings(mgr manager.Manager, from string, remoteNamespaces *Namespaces) Warnings {
	return Warnings{
		to: mgr.GetEventRecorder(from), remoteNamespaces: remoteNamespaces,
		ofNamespace: ratelimit.New[string](5, 50, 10_000), ofPeer: ratelimit.New[string](10, 100, 10_000),
	}
}

func (w Warnings) Warn(about client.Object, reason, action, note string, args ...any) {
	now := time.Now()
	if w.ofNamespace.Allow(about.GetNamespace(), now) && w.ofPeer.Allow(w.remoteNamespaces.KnownPeer(about.GetNamespace()), now) {
		w.to.Eventf(about, nil, corev1.EventTypeWarning, reason, action, note, args...)
	}
}
