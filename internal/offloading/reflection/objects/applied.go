// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/offloading/kinds"
	"liqo.io/liqo/internal/offloading/reflection/events"
	"liqo.io/liqo/internal/offloading/reflection/refusals"
)

// missing returns what the copy of an object lacks whatever the peer accepts, if the copy is about to be written: an object that has not changed is not reported again
// after a restart.
func (r *Reflector) missing(applier *ssa.Applier, local client.Object, intent runtime.ApplyConfiguration, live client.Object) error {
	why := kinds.Lost(local)
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
	if r.kind.lacks != nil {
		lacks = r.kind.lacks(r, local)
	}
	wait, why := r.exposedNow(local, intent)
	if why == nil && lacks != nil {
		wait = refusals.MetadataRetry
	}
	if why == nil && lacks == nil {
		r.engine.Recorder.Resolved(local)
	}
	var all error
	for _, one := range []error{why, lacks, missing} {
		switch {
		case one != nil && all != nil:
			all = fmt.Errorf("%w; %w", all, one)
		case one != nil:
			all = one
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
