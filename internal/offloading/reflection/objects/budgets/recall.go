// SPDX-License-Identifier: Apache-2.0

package budgets

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/events"
)

// +kubebuilder:rbac:namespace=liqo-offloaded,groups="",resources=events,verbs=list

// firstAttempt and lastAttempt are waits between two attempts to read events: the first one, and the longest.
const firstAttempt, lastAttempt = time.Second, time.Minute

// mostEvents bounds how many events about the budgets of a namespace are read.
const mostEvents = 500

// recallDeletions learns which copies of budgets the peer's administrator has deleted before this process started, so that a restart does not undo his
// decision. The event that reports a deletion to the user stays in Kubernetes for an hour as well; it is read once, if a budget has no copy. Without an answer
// of the API server, nothing is known, and nothing is written.
func (b *Budgets) recallDeletions(mapping *engine.Mapping) {
	r := b.reflector()
	for wait := firstAttempt; ; wait = min(2*wait, lastAttempt) {
		without := map[types.UID]client.Object{}
		for _, local := range r.Local.All(mapping.Local) {
			if r.Remote.Get(r.RemoteKey(mapping.NamespaceMapping, local.GetName())) == nil {
				without[local.GetUID()] = local
			}
		}
		if len(without) == 0 {
			return
		}
		var all corev1.EventList
		err := b.engine.Local.List(mapping.Context, &all, client.InNamespace(mapping.Local), client.Limit(mostEvents),
			client.MatchingFields{"involvedObject.kind": name, "reason": events.ReasonIncomplete})
		if apierrors.IsForbidden(err) {
			log.FromContext(mapping.Context).Error(err, "it is not known which budgets the administrator of the peer has deleted before this process started",
				"namespace", mapping.Local)
			return
		}
		if err == nil {
			for i := range all.Items {
				event := &all.Items[i]
				if local := without[event.InvolvedObject.UID]; local != nil && b.engine.Recorder.Wrote(event, name, errDeletedThere) {
					b.memories.WasDeleted(client.ObjectKeyFromObject(local), event.LastTimestamp.Time, time.Now())
				}
			}
			return
		}
		select {
		case <-mapping.Context.Done():
			return
		case <-time.After(wait):
		}
	}
}

// recallNumber remembers the number that the copy of a budget has, as if this process had sent it: a smaller one must have been enough for a while.
func (b *Budgets) recallNumber(local types.NamespacedName, remote client.Object) {
	if copied, ok := remote.(*policyv1.PodDisruptionBudget); ok && copied.Spec.MinAvailable != nil {
		b.memories.WasSent(local, copied.Spec.MinAvailable.IntVal)
	}
}
