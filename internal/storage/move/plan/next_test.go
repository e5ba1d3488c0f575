// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	v1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
)

// TestNext: what has acted goes on at once; what waits for a change waits until one of its times is over, and asks again for what no watch shows.
func TestNext(t *testing.T) {
	const moment = time.Millisecond
	for name, row := range map[string]struct {
		phase   v1alpha1.MovePhase
		step    Step
		changes []change
		want    time.Duration
	}{
		"it has acted":                       {v1alpha1.MoveStopping, Step{Do: []Do{{Verb: Fence}}}, nil, moment},
		"it has entered a phase":             {v1alpha1.MoveStopping, Step{Status: &v1alpha1.VolumeMoveStatus{Phase: v1alpha1.MoveFinishing}}, nil, moment},
		"it has a new message":               {v1alpha1.MoveStopping, Step{Status: &v1alpha1.VolumeMoveStatus{Phase: v1alpha1.MoveStopping}}, nil, gone + moment},
		"it has ended":                       {v1alpha1.MoveCompleted, Step{}, nil, 0},
		"it has ended, and is released":      {v1alpha1.MoveCompleted, Step{Do: []Do{{Verb: Release}}}, nil, moment},
		"it waits":                           {v1alpha1.MoveStopping, Step{}, nil, gone + moment},
		"until pods of a peer count as gone": {v1alpha1.MoveRemoving, Step{}, []change{after(gone)}, moment},
		"after that":                         {v1alpha1.MoveRemoving, Step{}, []change{after(gone + moment)}, ready - gone},
		"for long":                           {v1alpha1.MoveRemoving, Step{}, []change{after(ready + moment)}, 0},
		"an eviction was refused":            {v1alpha1.MoveStopping, Step{Later: true}, nil, again},
		"the provider may refuse":            {v1alpha1.MovePreparing, Step{}, []change{noTargetVol}, again},
		"the provider has made a volume":     {v1alpha1.MovePreparing, Step{}, nil, gone + moment},
		"a probe was placed":                 {v1alpha1.MoveSwitching, Step{}, []change{probed("worker", 0)}, probeAgain + moment},
		"a probe was placed long ago":        {v1alpha1.MoveSwitching, Step{}, []change{probed("worker", time.Hour)}, gone + moment},
	} {
		f := during(row.phase)
		for _, apply := range row.changes {
			apply(f)
		}
		if got := Next(*f, row.step); got != row.want {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
	f := during(v1alpha1.MoveStopping)
	if f.Move.Status.PhaseSince = nil; Next(*f, Step{}) != 0 {
		t.Error("a phase without a recorded start has times")
	}
}
