// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/offloading/podplan"
	"liqo.io/liqo/internal/offloading/reflection/events"
)

// defaultStuckTimeout is Options.StuckTimeout without one.
const defaultStuckTimeout = 2 * time.Minute

// stuckSince returns when this process first saw the state in which the remote pod of a local pod is; zero if it is not stuck. It measures by our own clock,
// which may differ from that of the peer.
func (p *Pods) stuckSince(facts *podplan.Facts) time.Time {
	state := podplan.StuckOf(facts.Remote)
	if facts.Local == nil || state == podplan.NotStuck {
		return time.Time{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.memory(facts.Local)
	if known.stuck != state || known.stuckUID != facts.Remote.UID {
		known.stuck, known.stuckUID, known.stuckSince = state, facts.Remote.UID, facts.Now
	}
	return known.stuckSince
}

// What the user of a pod reads that is replaced.
var whyReplaced = map[podplan.Stuck]error{
	podplan.Ending: errors.New("the remote cluster deletes its pod, which does not end: most likely its node there is lost. The pod is deleted here as well, " +
		"so that its controller replaces it, " +
		"as Kubernetes does with the pods of a lost node; it stays Terminating until the remote cluster has removed its own"),
	podplan.Homeless: errors.New("the remote cluster has created the pod again, for example because its node was drained, and no node there takes it. The pod " +
		"is deleted here, so that its controller replaces it where there is capacity"),
}

// replace deletes a local pod whose remote pod is stuck.
func (p *Pods) replace(ctx context.Context, facts *podplan.Facts) error {
	local := facts.Local
	p.engine.Recorder.Failed(local, Kind, events.ReasonStuck, whyReplaced[podplan.StuckOf(facts.Remote)])
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: local.Namespace, Name: local.Name}}
	err := p.engine.Local.Delete(ctx, target, client.Preconditions{UID: &local.UID})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("replace pod %s/%s: %w", local.Namespace, local.Name, err)
	}
	return nil
}
