// SPDX-License-Identifier: Apache-2.0

package events

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func service(name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}}
}

// TestEventsAboutSuccessAreBounded: however many objects are created in the peer, few are reported, and failures still are.
func TestEventsAboutSuccessAreBounded(t *testing.T) {
	recorder := NewRecorder(fake.NewClientBuilder().WithScheme(scheme.Scheme).Build(), "liqo-milan", "milan")
	for i := range 1000 {
		object := service(fmt.Sprintf("web-%d", i))
		recorder.Reflected(object, "Service", "milan")
	}
	written := recorder.Waiting()
	if written < successBurst || written > 2*successBurst {
		t.Errorf("%d events about 1000 objects, want about %d", written, successBurst)
	}
	object := service("broken")
	recorder.Failed(object, "Service", ReasonFailed, errors.New("refused"))
	if recorder.Waiting() != written+1 {
		t.Error("the failure is not reported")
	}
}
