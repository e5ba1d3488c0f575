// SPDX-License-Identifier: Apache-2.0

package install

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestDaemonSetReady: a dead node does not fail an installation; a live one without an agent does.
func TestDaemonSetReady(t *testing.T) {
	for _, test := range []struct {
		observed                    int64
		desired, updated, available int32
		dead                        int32
		ready                       bool
	}{
		{1, 0, 0, 0, 0, true},
		{1, 3, 3, 3, 0, true},
		{0, 3, 3, 3, 0, false},
		{1, 3, 3, 2, 0, false},
		{1, 3, 2, 3, 0, false},
		{1, 3, 3, 2, 1, true},
		{1, 3, 2, 2, 1, true},
		{1, 3, 3, 1, 1, false},
	} {
		set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Generation: 1}, Status: appsv1.DaemonSetStatus{
			ObservedGeneration: test.observed, DesiredNumberScheduled: test.desired, UpdatedNumberScheduled: test.updated, NumberAvailable: test.available,
		}}
		if got := daemonSetReady(set, test.dead); got != test.ready {
			t.Errorf("%+v: %t", test, got)
		}
	}
}
