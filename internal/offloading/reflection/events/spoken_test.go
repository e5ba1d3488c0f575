// SPDX-License-Identifier: Apache-2.0

package events

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestWhoSpeaks: an event names the cluster whose API server speaks. "this cluster" in its words is the peer.
func TestWhoSpeaks(t *testing.T) {
	recorder := &Recorder{peer: `cluster "milan"`}
	forbidden := func(why string) error {
		return apierrors.NewForbidden(corev1.Resource("services"), "web", errors.New(why))
	}
	for want, err := range map[string]error{
		`cluster "milan": apply Service shop/web: services "web" is forbidden: exceeded quota: team`: fmt.Errorf("apply Service shop/web: %w",
			forbidden("exceeded quota: team")),
		`services "web" is forbidden: cluster "milan" does not let the peer use it`: forbidden("this cluster does not let the peer use it"),
		`delete Service web in cluster "milan": services "web" is forbidden: no`: fmt.Errorf("delete Service web in the remote cluster: %w",
			forbidden("no")),
		`this cluster serves no Gadget`:                     errors.New("this cluster serves no Gadget"),
		`services "web" is forbidden: this cluster refuses`: Here(forbidden("this cluster refuses")),
	} {
		if got := recorder.spoken(err); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
