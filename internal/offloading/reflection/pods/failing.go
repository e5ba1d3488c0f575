// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/offloading/reflection/events"
)

// Failing returns why the node must get no more pods; empty if it may.
func (p *Pods) Failing() string { return p.failures.Message(time.Now()) }

// OnFailing sets the function that is called when the result of Failing has changed. Call it before Run of the engine.
func (p *Pods) OnFailing(changed func()) { p.failures.Changed = changed }

// countFailure counts a pod that the peer has just reported as failed.
func (p *Pods) countFailure(local *corev1.Pod, status *corev1.PodStatus) {
	if policy := local.Spec.RestartPolicy; status.Phase != corev1.PodFailed || policy != "" && policy != corev1.RestartPolicyAlways ||
		local.DeletionTimestamp != nil || podphase.Final(local.Status.Phase) {
		return
	}
	if now := time.Now(); p.failures.Record(now) {
		message := p.failures.Message(now)
		p.engine.Log.Info("too many pods fail in the remote cluster", "message", message)
		p.engine.Recorder.Failed(local, Kind, events.ReasonFailing, errors.New(message))
	}
}
