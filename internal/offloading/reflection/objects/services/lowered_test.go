// SPDX-License-Identifier: Apache-2.0

package services

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestLowered: a Service whose type was refused asks again after ever longer pauses, at once if it asks for something
// else, and soon if the peer may accept one more.
func TestLowered(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	made := func(name string, ports ...int32) *corev1.Service {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
		for _, port := range ports {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: port, Protocol: corev1.ProtocolTCP})
		}
		return s
	}
	l, web := lowered{}, made("web", 80)
	isLowered := func(of *corev1.Service, at time.Time) bool {
		return l.now(of, at).Spec.Type == corev1.ServiceTypeClusterIP
	}
	if isLowered(web, now) || l.reason(web) != nil {
		t.Error("nothing was refused")
	}
	var pauses []time.Duration
	for range 9 {
		l.refuse(web, errors.New("11 of 10"), now)
		pause := l.wait(web, l.all[types.NamespacedName{Namespace: "shop", Name: "web"}].exposure, now)
		if pauses = append(pauses, pause); !isLowered(web, now.Add(pause-1)) || isLowered(web, now.Add(pause)) {
			t.Errorf("lowered for %s: %v, afterwards %v", pause, isLowered(web, now.Add(pause-1)), isLowered(web, now.Add(pause)))
		}
		now = now.Add(pause)
	}
	if pauses[0] != firstRaise || pauses[1] != 2*firstRaise || pauses[8] != lastRaise {
		t.Errorf("pauses %v", pauses)
	}
	if why := l.reason(web); why == nil || !strings.Contains(why.Error(), "LoadBalancer") || !strings.Contains(why.Error(), "11 of 10") ||
		!strings.Contains(why.Error(), "peers.totals") {
		t.Errorf("reason: %v", why)
	}
	l.refuse(web, errors.New("11 of 10"), now)
	if other := made("web", 443); isLowered(other, now) || !isLowered(web, now) {
		t.Error("another port is another question")
	}
	l.refuse(made("later", 80), errors.New("x"), now.Add(time.Second))
	if key, wait := l.wake(now); key.Name != "web" || wait <= 0 || wait > firstRaise || isLowered(web, now.Add(wait)) ||
		!isLowered(made("later", 80), now.Add(wait)) {
		t.Errorf("woken: %s after %s", key, wait)
	}
	if !l.forget(types.NamespacedName{Namespace: "shop", Name: "web"}) || l.forget(types.NamespacedName{Namespace: "shop", Name: "web"}) || isLowered(web, now) {
		t.Error("a Service is forgotten once")
	}
	if _, wait := (&lowered{}).wake(now); wait != 0 {
		t.Error("no Service waits, and one is woken")
	}
}

// TestHandovers: while another cluster has to fill in the endpoints, both do, for some seconds; not when a Service is new.
func TestHandovers(t *testing.T) {
	now, key := time.Unix(1_700_000_000, 0), types.NamespacedName{Namespace: "shop", Name: "web"}
	h := handovers{}
	for i, step := range []struct {
		after time.Duration
		peer  bool
		wait  time.Duration
	}{
		{0, true, 0},
		{time.Hour, true, 0},
		{0, false, handoverTime},
		{time.Second, false, handoverTime - time.Second},
		{handoverTime, false, 0},
		{0, true, handoverTime},
		{time.Second, false, handoverTime},
		{handoverTime - 1, false, 1},
		{1, false, 0},
	} {
		now = now.Add(step.after)
		if wait := h.observe(key, step.peer, now); wait != step.wait {
			t.Errorf("step %d: both for %s, want %s", i, wait, step.wait)
		}
	}
	h.observe(key, false, now)
	h.forget(key)
	if wait := h.observe(key, true, now); wait != 0 {
		t.Errorf("a new Service waits %s", wait)
	}
}
