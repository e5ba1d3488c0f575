// SPDX-License-Identifier: Apache-2.0

package resourceslice

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
)

// TestSmallChangeWaits: a change below the threshold is written at the next refresh, a larger one at once.
func TestSmallChangeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writes := 0
		counting := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
			SubResourceApply: func(context.Context, client.Client, string, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
				writes++
				return nil
			},
		})
		threshold := 5
		r := &reconciler{
			client: counting, tenants: newSliceTenants(),
			options: Options{UpdateThreshold: &threshold, Refresh: 5 * time.Minute, RefreshJitter: time.Minute},
		}
		tenant := r.tenants.get("tenant-rome", "rome-id")
		slice := &sharingv1alpha1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{
			Name: "rome", Namespace: "tenant-rome", UID: "uid", ResourceVersion: "1", Finalizers: []string{labels.FinalizerGrant},
		}}
		write := func(cpu string) time.Duration {
			t.Helper()
			answer := accepted(&sliceFacts{}, slice, sliceList("cpu", cpu, "memory", "1G"), "because")
			last := tenant.memory(slice.UID, r.nextRefresh(time.Now())).lastStatus(slice)
			requeueAfter, err := r.writeAnswer(t.Context(), tenant, sliceQuery{slice, last}, &answer)
			if err != nil {
				t.Fatal(err)
			}
			return requeueAfter
		}
		for _, step := range []struct {
			cpu    string
			writes int
			waits  bool
		}{
			{"100", 1, false},
			{"100", 1, false}, // unchanged
			{"101", 1, true},
			{"90", 2, false}, // large
			{"91", 2, true},
		} {
			if wait := write(step.cpu); writes != step.writes || (wait > 0) != step.waits {
				t.Errorf("%s cpu: %d writes, want %d; requeue after %s", step.cpu, writes, step.writes, wait)
			}
		}
		time.Sleep(write("91")) // in the bubble
		if wait := write("91"); writes != 3 || wait != 0 {
			t.Errorf("after the refresh interval: %d writes, requeue after %s", writes, wait)
		}
	})
}
