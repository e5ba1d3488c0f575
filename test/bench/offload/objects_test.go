// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/test/env/audit"
)

// objectWrites is the cost of one step of an object's life, over all rounds.
type objectWrites struct {
	Visible            spread // from the start of the consumer's request until the provider's event arrives
	Missed             int    // number of rounds in which the event did not arrive in time
	Consumer, Provider writes
	Rounds             int
}

// per is the mean number of writes of both clusters.
func (w objectWrites) per() float64 {
	return float64(w.Consumer.Total+w.Provider.Total) / float64(max(1, w.Rounds))
}

// objectRounds is the number of objects of each kind, objectSettle how long counting goes on after each step.
const (
	objectRounds = 6
	objectSettle = 1500 * time.Millisecond
)

// mirror collects the events of the provider.
type mirror struct {
	notifier
	events []mirrored
}

type mirrored struct {
	kind   watch.EventType
	object client.Object
	at     time.Time
}

// life performs the steps of objects and records the latency of each.
type life struct {
	*bench
	t       *testing.T
	remote  *mirror
	visible map[string][]float64
}

// objects measures the reflection of objects other than pods.
func (b *bench) objects(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := life{bench: b, t: t, remote: &mirror{}, visible: map[string][]float64{}}
	for _, list := range []client.ObjectList{&corev1.ConfigMapList{}, &corev1.SecretList{}, &corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}} {
		follow(ctx, t, b.provider, list, func(kind watch.EventType, object client.Object, at time.Time) {
			l.remote.Lock()
			defer l.remote.Unlock()
			l.remote.events = append(l.remote.events, mirrored{kind, object, at})
			l.remote.notify()
		}, client.InNamespace(offloaded))
	}
	idleFor(settle)
	for round := range objectRounds {
		l.contents(fmt.Sprint(round))
		l.addresses(fmt.Sprint(round))
	}
	for step, values := range l.visible {
		w := b.results.Writes[step]
		w.Visible = spreadOf(values)
		b.results.Writes[step] = w
	}
	for _, step := range slices.Sorted(maps.Keys(b.results.Writes)) {
		w := b.results.Writes[step]
		t.Logf(
			"%s: visible p50 / p99 %v s (missed %d of %d), writes %.2f: consumer %v, provider %v", step, w.Visible, w.Missed, w.Rounds, w.per(),
			w.Consumer.ByCall, w.Provider.ByCall,
		)
	}
}

// step changes an object of the consumer and waits for the provider's event for which good returns true.
func (l life) step(name string, do func() error, good func(watch.EventType, client.Object) bool) {
	l.t.Helper()
	l.remote.Lock()
	known := len(l.remote.events)
	l.remote.Unlock()
	from := time.Now()
	if err := do(); err != nil {
		l.t.Fatalf("%s: %v", name, err)
	}
	arrived := time.Time{}
	l.remote.wait(15*time.Second, func() bool {
		for ; known < len(l.remote.events); known++ {
			if e := l.remote.events[known]; good(e.kind, e.object) {
				arrived = e.at
				return true
			}
		}
		return false
	})
	idleFor(objectSettle)
	w := l.results.Writes[name]
	w.Rounds++
	if arrived.IsZero() {
		w.Missed++
	} else {
		l.visible[name] = append(l.visible[name], arrived.Sub(from).Seconds())
	}
	to := time.Now()
	w.Consumer = w.Consumer.plus(countWrites(l.t, l.consumer, from, to, periodic))
	w.Provider = w.Provider.plus(countWrites(l.t, l.provider, from, to, periodic))
	l.results.Writes[name] = w
}

// periodic returns true for renewals of leases and of the node's status, which do not depend on objects. Part idle counts them.
func periodic(c audit.Call) bool {
	return c.ObjectRef.Resource == "leases" || c.ObjectRef.Resource == "nodes"
}

func (w writes) plus(more writes) writes {
	sum := writes{
		Total: w.Total + more.Total, Across: w.Across + more.Across, Reviews: w.Reviews + more.Reviews, ByCall: map[string]int{},
		Failed: map[string]int{},
	}
	for _, one := range []writes{w, more} {
		for name, n := range one.ByCall {
			sum.ByCall[name] += n
		}
		for name, n := range one.Failed {
			sum.Failed[name] += n
		}
	}
	return sum
}

// contents measures ConfigMap and Secret.
func (l life) contents(round string) {
	api, ctx, long := l.consumer.API, l.t.Context(), strings.Repeat("v", 1000)
	meta := metav1.ObjectMeta{Namespace: offloaded, Name: "bench-" + round}
	cm := &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"k": long}}
	same := func(o client.Object) (*corev1.ConfigMap, bool) {
		found, ok := o.(*corev1.ConfigMap)
		return found, ok && found.Name == meta.Name
	}
	l.step("ConfigMap create", func() error { return api.Create(ctx, cm) }, func(kind watch.EventType, o client.Object) bool {
		_, ok := same(o)
		return ok && kind == watch.Added
	})
	l.step("ConfigMap change", func() error { cm.Data["k2"] = "v2"; return api.Update(ctx, cm) }, func(_ watch.EventType, o client.Object) bool {
		found, ok := same(o)
		return ok && found.Data["k2"] != ""
	})
	l.step("ConfigMap delete", func() error { return api.Delete(ctx, cm) }, func(kind watch.EventType, o client.Object) bool {
		_, ok := same(o)
		return ok && kind == watch.Deleted
	})
	secret := &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"k": []byte(long)}}
	sameSecret := func(o client.Object) (*corev1.Secret, bool) {
		found, ok := o.(*corev1.Secret)
		return found, ok && found.Name == meta.Name
	}
	l.step("Secret create", func() error { return api.Create(ctx, secret) }, func(kind watch.EventType, o client.Object) bool {
		_, ok := sameSecret(o)
		return ok && kind == watch.Added
	})
	l.step("Secret change", func() error { secret.Data["k2"] = []byte("v2"); return api.Update(ctx, secret) }, func(_ watch.EventType, o client.Object) bool {
		found, ok := sameSecret(o)
		return ok && len(found.Data["k2"]) > 0
	})
	l.step("Secret delete", func() error { return api.Delete(ctx, secret) }, func(kind watch.EventType, o client.Object) bool {
		_, ok := sameSecret(o)
		return ok && kind == watch.Deleted
	})
}

// consumerNetwork is the network of the consumer that the provider believes, written down because Liqo does not join the networks. It is no network of
// the provider, whose pods have the same addresses as the consumer's.
const consumerNetwork, consumerAddress = "198.18.0.0/16", "198.18.200.%d"

// addresses measures Service and EndpointSlice, the latter with one address and with a hundred.
func (l life) addresses(round string) {
	api, ctx := l.consumer.API, l.t.Context()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: offloaded, Name: "bench-" + round},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	isService := func(o client.Object) bool {
		found, ok := o.(*corev1.Service)
		return ok && found.Name == service.Name
	}
	l.step("Service create", func() error { return api.Create(ctx, service) }, func(kind watch.EventType, o client.Object) bool {
		return isService(o) && kind == watch.Added
	})
	for _, n := range []int{1, 100} {
		of := func(o client.Object) bool { // its name at the provider may differ
			found, ok := o.(*discoveryv1.EndpointSlice)
			return ok && found.Labels[discoveryv1.LabelServiceName] == service.Name && len(found.Endpoints) == n
		}
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: offloaded, Name: fmt.Sprintf("%s-%d", service.Name, n),
				Labels: map[string]string{discoveryv1.LabelServiceName: service.Name, discoveryv1.LabelManagedBy: "bench"},
			},
			AddressType: discoveryv1.AddressTypeIPv4,
		}
		port, ready := int32(8080), true
		slice.Ports = []discoveryv1.EndpointPort{{Port: &port}}
		for i := range n {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{fmt.Sprintf(consumerAddress, i+1)}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
			})
		}
		kind := fmt.Sprintf("EndpointSlice of %d ", n)
		l.step(kind+"create", func() error { return api.Create(ctx, slice) }, func(kind watch.EventType, o client.Object) bool {
			return of(o) &&
				kind == watch.Added
		})
		l.step(kind+"change", func() error {
			slice.Endpoints[0].Addresses[0] = fmt.Sprintf(consumerAddress, n+1)
			return api.Update(ctx, slice)
		}, func(kind watch.EventType, o client.Object) bool { return of(o) && kind == watch.Modified })
		l.step(kind+"delete", func() error { return api.Delete(ctx, slice) }, func(kind watch.EventType, o client.Object) bool {
			return of(o) &&
				kind == watch.Deleted
		})
	}
	l.step("Service delete", func() error { return api.Delete(ctx, service) }, func(kind watch.EventType, o client.Object) bool {
		return isService(o) && kind == watch.Deleted
	})
}
