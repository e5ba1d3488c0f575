// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/offloading/reflection/events"
	"liqo.io/liqo/internal/offloading/reflection/refusals"
)

// missing returns what the copy of an object lacks whatever the peer accepts, if the copy is about to be written: an object that has
// not changed is not reported again after a restart.
func (r *Reflector) missing(applier *ssa.Applier, local client.Object, intent runtime.ApplyConfiguration, live client.Object) error {
	if r.kind.Lost == nil {
		return nil
	}
	why := r.kind.Lost(local)
	if why == nil || live == nil {
		return why
	}
	if held, err := applier.Recall(intent, live); held || err != nil {
		return nil
	}
	return why
}

// applied reports what the copy of an object lacks, and returns when to ask for that again.
func (r *Reflector) applied(local client.Object, intent runtime.ApplyConfiguration, creates bool, missing error) time.Duration {
	lacks := r.refused.Lacks(local)
	if r.kind.Lacks != nil {
		lacks = r.kind.Lacks(local)
	}
	var wait time.Duration
	var why error
	if r.kind.Written != nil {
		wait, why = r.kind.Written(local, intent)
	}
	if why == nil && lacks != nil {
		wait = refusals.MetadataRetry
	}
	if why == nil && lacks == nil {
		r.engine.Recorder.Resolved(local)
	}
	var all error
	for _, next := range []error{why, lacks, missing} {
		switch {
		case next != nil && all != nil:
			all = fmt.Errorf("%w; %w", all, next)
		case next != nil:
			all = next
		}
	}
	switch {
	case all != nil && (why != nil || r.kind.Exposes):
		r.engine.Recorder.Changed(local, r.kind.Name(), events.ReasonIncomplete, all)
	case all == nil && creates && r.kind.Exposes:
		r.engine.Recorder.Reflected(local, r.kind.Name(), r.engine.RemoteName())
	}
	return wait
}
