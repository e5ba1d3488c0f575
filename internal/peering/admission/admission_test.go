// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/internal/kube/policies"
)

// TestAttackH1: one decision, for every combination of object and setting; and a peer that is refused keeps nothing after its deadline.
func TestAttackH1(t *testing.T) {
	const auto, yes, no, manual = discoveryv1alpha1.PeeringAuto, discoveryv1alpha1.PeeringYes, discoveryv1alpha1.PeeringNo, discoveryv1alpha1.PeeringManual
	const accepted, waiting, withdrawing, refused = discoveryv1alpha1.IncomingAccepted, discoveryv1alpha1.IncomingWaiting,
		discoveryv1alpha1.IncomingWithdrawing, discoveryv1alpha1.IncomingRefused
	for _, c := range []struct {
		object, setting discoveryv1alpha1.PeeringEnabled
		want            discoveryv1alpha1.IncomingState
	}{
		{auto, auto, accepted},
		{auto, yes, accepted},
		{auto, no, refused},
		{auto, manual, waiting},
		{"", "", accepted},
		{"", no, refused},
		{yes, no, accepted},
		{yes, manual, accepted},
		{no, yes, refused},
		{no, auto, refused},
		{manual, yes, waiting},
		{manual, no, waiting},
	} {
		if got := Decide(c.object, c.setting); got.State != c.want || got.Message == "" {
			t.Errorf("object %q, setting %q: %+v, want %s", c.object, c.setting, got, c.want)
		}
	}
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	ago := func(state discoveryv1alpha1.IncomingState, age time.Duration) *discoveryv1alpha1.IncomingStatus {
		return &discoveryv1alpha1.IncomingStatus{State: state, Since: metav1.NewTime(noon.Add(-age))}
	}
	for name, c := range map[string]struct {
		decided  discoveryv1alpha1.IncomingState
		before   *discoveryv1alpha1.IncomingStatus
		runsPods bool
		want     discoveryv1alpha1.IncomingState
		age      time.Duration // of the result
		requeue  time.Duration
	}{
		"new":                           {accepted, nil, false, accepted, 0, 0},
		"new and refused":               {refused, nil, false, refused, 0, 0},
		"a pod of an unknown time":      {refused, nil, true, refused, 0, 0},
		"still accepted":                {accepted, ago(accepted, time.Hour), true, accepted, time.Hour, 0},
		"refused, nothing runs":         {refused, ago(accepted, time.Hour), false, refused, 0, 0},
		"refused, pods run":             {refused, ago(accepted, time.Hour), true, withdrawing, 0, time.Minute},
		"while they leave":              {refused, ago(withdrawing, 20*time.Second), true, withdrawing, 20 * time.Second, 40 * time.Second},
		"they have left":                {refused, ago(withdrawing, 20*time.Second), false, refused, 0, 0},
		"they did not leave":            {refused, ago(withdrawing, time.Minute), true, refused, 0, 0},
		"accepted again in time":        {accepted, ago(withdrawing, 20*time.Second), true, accepted, 0, 0},
		"waits again":                   {waiting, ago(accepted, time.Hour), true, withdrawing, 0, time.Minute},
		"refused while it waits":        {refused, ago(waiting, time.Hour), true, refused, 0, 0},
		"still refused, pods are ended": {refused, ago(refused, time.Hour), true, refused, time.Hour, 0},
	} {
		got, requeue := Status(Decision{c.decided, "because"}, c.before, c.runsPods, time.Minute, noon)
		if got.State != c.want || !got.Since.Time.Equal(noon.Add(-c.age)) || requeue != c.requeue || got.Message != "because" {
			t.Errorf("%s: %+v in %v", name, got, requeue)
		}
	}
}

// noPolicies is a cache without admission policies.
type noPolicies struct{ client.Reader }

func (noPolicies) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// TestAttackM8: without the admission policies, whose roles give too much alone, no further cluster is accepted; the others stay.
func TestAttackM8(t *testing.T) {
	p := Policy{Setting: discoveryv1alpha1.PeeringYes, Policies: policies.Reading(noPolicies{})}
	for name, test := range map[string]struct {
		object discoveryv1alpha1.PeeringEnabled
		before discoveryv1alpha1.IncomingState
		want   discoveryv1alpha1.IncomingState
	}{
		"new":               {discoveryv1alpha1.PeeringAuto, "", discoveryv1alpha1.IncomingWaiting},
		"wanted":            {discoveryv1alpha1.PeeringYes, discoveryv1alpha1.IncomingWaiting, discoveryv1alpha1.IncomingWaiting},
		"accepted":          {discoveryv1alpha1.PeeringAuto, discoveryv1alpha1.IncomingAccepted, discoveryv1alpha1.IncomingAccepted},
		"refused":           {discoveryv1alpha1.PeeringNo, discoveryv1alpha1.IncomingRefused, discoveryv1alpha1.IncomingRefused},
		"no longer allowed": {discoveryv1alpha1.PeeringNo, discoveryv1alpha1.IncomingAccepted, discoveryv1alpha1.IncomingRefused},
	} {
		fc := &discoveryv1alpha1.ForeignCluster{Spec: discoveryv1alpha1.ForeignClusterSpec{IncomingPeeringEnabled: test.object}}
		if test.before != "" {
			fc.Status.Incoming = &discoveryv1alpha1.IncomingStatus{State: test.before}
		}
		got, err := p.Decide(t.Context(), fc)
		if err != nil || got.State != test.want || got.State == discoveryv1alpha1.IncomingWaiting && !strings.Contains(got.Message, "liqo-peers") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
