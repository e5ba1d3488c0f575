// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/offloading/kinds"
	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/refusals"
)

const (
	// firstRaise is when a peer is asked again for a type that it has refused; each further time waits twice as long, up to lastRaise. A
	// provider counts again seconds after it has refused one.
	firstRaise, lastRaise = 10 * time.Second, 15 * time.Minute
)

// lowered are the Services whose type the peer has refused. Their copies are of type ClusterIP until it accepts the
// type: pods there need the name and the address.
type lowered struct {
	mu  sync.Mutex
	all map[types.NamespacedName]lowering
}

type lowering struct {
	exposure string // what was refused
	why      error
	pause    time.Duration
	since    time.Time
	next     time.Time // when to ask again
}

// now returns the Service that the copy is to be now: that of the user, or one of type ClusterIP.
func (l *lowered) now(local *corev1.Service, now time.Time) *corev1.Service {
	if exposure := kinds.Exposure(local); exposure != "" && l.wait(local, exposure, now) > 0 {
		return kinds.Inside(local)
	}
	return local
}

// wait returns for how long the copy of a Service is still to be of type ClusterIP.
func (l *lowered) wait(local *corev1.Service, exposure string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	entry, ok := l.all[client.ObjectKeyFromObject(local)]
	if !ok || entry.exposure != exposure {
		return 0
	}
	return max(entry.next.Sub(now), 0)
}

// refuse records that the peer has refused the type of a Service.
func (l *lowered) refuse(local *corev1.Service, why error, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[types.NamespacedName]lowering{}
	}
	key, exposure := client.ObjectKeyFromObject(local), kinds.Exposure(local)
	entry, ok := l.all[key]
	if !ok || entry.exposure != exposure {
		entry = lowering{exposure: exposure, since: now}
	}
	entry.pause = min(max(2*entry.pause, firstRaise), lastRaise)
	entry.why, entry.next = why, now.Add(entry.pause)
	l.all[key] = entry
}

// forget drops what is known of a Service, and reports whether that was anything.
func (l *lowered) forget(key types.NamespacedName) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.all[key]
	delete(l.all, key)
	return ok
}

// reason returns why the copy of a Service has another type; nil if it has not.
func (l *lowered) reason(local *corev1.Service) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	entry, ok := l.all[client.ObjectKeyFromObject(local)]
	if !ok {
		return nil
	}
	return fmt.Errorf("the remote cluster refuses the type %s, so the copy there has the type ClusterIP: pods there reach it by its name, and clients outside "+
		"of that cluster do not; it is tried again, ever more rarely. "+
		"Delete other such Services, set the type ClusterIP, or ask the administrator of that cluster (values peers.totals, peers.services): %w", local.Spec.Type,
		entry.why)
}

// wake makes the Service that waits for the longest time ask again soon: the peer may accept one more now. It returns that Service, and when.
func (l *lowered) wake(now time.Time) (key types.NamespacedName, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var oldest time.Time
	for name, entry := range l.all {
		if oldest.IsZero() || entry.since.Before(oldest) {
			key, oldest = name, entry.since
		}
	}
	if oldest.IsZero() {
		return key, 0
	}
	entry := l.all[key]
	entry.pause, entry.next = firstRaise/2, now.Add(firstRaise/2)
	l.all[key] = entry
	return key, firstRaise / 2
}

// exposed returns a Service that is more than a name and an address in the peer; nil for other objects.
func exposed(object client.Object) *corev1.Service {
	if service, ok := object.(*corev1.Service); ok && service != nil && kinds.Exposure(service) != "" {
		return service
	}
	return nil
}

// isLowered reports whether the copy of a Service is written with another type than the Service has.
func isLowered(local *corev1.Service, intent runtime.ApplyConfiguration) bool {
	copied, ok := intent.(*coreapply.ServiceApplyConfiguration)
	return ok && copied.Spec != nil && copied.Spec.Type != nil && *copied.Spec.Type != local.Spec.Type
}

// lower records that the peer has refused the type of a Service, and reports whether the copy can have another one. A copy that is exposed there
// already stays: the refusal concerns the change.
func (s *Services) lower(mapping *engine.Mapping, local client.Object, intent runtime.ApplyConfiguration, remote *metav1.PartialObjectMetadata,
	refusal error,
) bool {
	service := exposed(local)
	if service == nil || isLowered(service, intent) || !refusals.Visible(refusal) {
		return false
	}
	if remote != nil {
		c, err := s.engine.Remote.Client()
		if err != nil {
			return false
		}
		there := &corev1.Service{}
		if err := c.Get(mapping.Context, client.ObjectKeyFromObject(remote), there); err != nil || exposed(there) != nil {
			return false
		}
	}
	s.lowered.refuse(service, refusal, time.Now())
	return true
}

// exposedNow returns, after the copy of an object was written, when to ask again, and why it has another type than the object. Once a type is accepted, the
// peer may accept that of another Service.
func (s *Services) exposedNow(local client.Object, intent runtime.ApplyConfiguration) (wait time.Duration, why error) {
	service := exposed(local)
	if service == nil {
		return 0, nil
	}
	if isLowered(service, intent) {
		return max(s.lowered.wait(service, kinds.Exposure(service), time.Now()), time.Millisecond), s.lowered.reason(service)
	}
	if s.lowered.forget(client.ObjectKeyFromObject(local)) {
		s.engine.Recorder.Reflected(local, kinds.Service.Name(), s.engine.RemoteName())
		s.wakeLowered()
	}
	return 0, nil
}

// wakeLowered lets the Service that waits for the longest time ask again for its type.
func (s *Services) wakeLowered() {
	if key, wait := s.lowered.wake(time.Now()); wait > 0 {
		s.services().Queue.AddAfter(key, wait)
	}
}

// exposureChanged forgets a Service that is gone, and lets another one ask again when a Service is not exposed any more.
func (s *Services) exposureChanged(before, after client.Object) {
	was, is := exposed(before), exposed(after)
	if was == nil || is != nil && kinds.Exposure(was) == kinds.Exposure(is) {
		return
	}
	s.lowered.forget(client.ObjectKeyFromObject(was))
	s.wakeLowered()
}
