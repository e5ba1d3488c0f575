// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
)

// TestAttackL14: what changes the trust in a peer leaves a trace that an administrator can find and count.
func TestAttackL14(t *testing.T) {
	is := func(state discoveryv1alpha1.IncomingState) *discoveryv1alpha1.IncomingStatus {
		return &discoveryv1alpha1.IncomingStatus{State: state, Message: "because"}
	}
	for name, test := range map[string]struct {
		before, after *discoveryv1alpha1.IncomingStatus
		reason        string
	}{
		"first decision":  {nil, is(discoveryv1alpha1.IncomingAccepted), ""},
		"nothing decided": {is(discoveryv1alpha1.IncomingAccepted), nil, ""},
		"as before":       {is(discoveryv1alpha1.IncomingAccepted), is(discoveryv1alpha1.IncomingAccepted), ""},
		"accepted":        {is(discoveryv1alpha1.IncomingWaiting), is(discoveryv1alpha1.IncomingAccepted), "PeerAccepted"},
		"waits":           {is(discoveryv1alpha1.IncomingRefused), is(discoveryv1alpha1.IncomingWaiting), "PeerWaiting"},
		"withdrawn":       {is(discoveryv1alpha1.IncomingAccepted), is(discoveryv1alpha1.IncomingWithdrawing), "PeerWithdrawing"},
		"refused":         {is(discoveryv1alpha1.IncomingWithdrawing), is(discoveryv1alpha1.IncomingRefused), "PeerDenied"},
	} {
		if got := Event(test.before, test.after); got.Reason != test.reason {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
