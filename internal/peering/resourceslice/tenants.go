// SPDX-License-Identifier: Apache-2.0

package resourceslice

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
)

// sliceTenants keeps the state of tenants that no object holds. It may be lost: then a small change waits a little
// longer, and the plugin is called once more.
type sliceTenants struct {
	mu  sync.Mutex
	all map[string]*sliceTenant // by namespace
}

// sliceTenant is used by one worker at a time, except for stale and clusterID, which the lock above guards.
type sliceTenant struct {
	clusterID string
	stale     bool // the plugin reported a change, or was never called
	plugin    pluginFacts
	readAt    time.Time
	slices    map[types.UID]*sliceMemory
}

// sliceMemory is the state of one slice that the cached object does not hold.
type sliceMemory struct {
	// refreshAt is when a small change may be written next.
	refreshAt time.Time
	// written is the status last written, and stale are the resource versions of the object before that: while the
	// cache shows one of these, written is current. Without it each write would be followed by a second.
	written *sharingv1alpha1.ResourceSliceStatus
	stale   []string
}

func newSliceTenants() *sliceTenants { return &sliceTenants{all: map[string]*sliceTenant{}} }

// get returns the state of a tenant. A namespace that now belongs to another cluster gets a new state.
func (t *sliceTenants) get(namespace, clusterID string) *sliceTenant {
	t.mu.Lock()
	defer t.mu.Unlock()
	tenant := t.all[namespace]
	if tenant == nil || tenant.clusterID != clusterID {
		tenant = &sliceTenant{clusterID: clusterID, stale: true, slices: map[types.UID]*sliceMemory{}}
		t.all[namespace] = tenant
	}
	return tenant
}

func (t *sliceTenants) forget(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, namespace)
}

// requests are all tenants that have slices.
func (t *sliceTenants) requests() []reconcile.Request {
	return t.requestsOf("", false)
}

// requestsOf are the tenants of one cluster, or of all if the ID is empty. stale: the plugin must be called for them.
func (t *sliceTenants) requestsOf(clusterID string, stale bool) []reconcile.Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	var requests []reconcile.Request
	for namespace, tenant := range t.all {
		if clusterID == "" || tenant.clusterID == clusterID {
			tenant.stale = tenant.stale || stale
			requests = append(requests, sliceRequest(namespace))
		}
	}
	return requests
}

// takeStale reports whether the plugin has to be called, and resets the flag before the call, so that a change
// reported during the call sets it again.
func (t *sliceTenants) takeStale(tenant *sliceTenant, now time.Time, maxAge time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	stale := tenant.stale || now.Sub(tenant.readAt) >= maxAge
	tenant.stale = false
	return stale
}

func (t *sliceTenants) markStale(tenant *sliceTenant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tenant.stale = true
}

// memory returns the state of a slice; a new one starts with refreshAt.
func (t *sliceTenant) memory(uid types.UID, refreshAt time.Time) *sliceMemory {
	known := t.slices[uid]
	if known == nil {
		known = &sliceMemory{refreshAt: refreshAt}
		t.slices[uid] = known
	}
	return known
}

// prune forgets slices that are not in the list.
func (t *sliceTenant) prune(listed []*sharingv1alpha1.ResourceSlice) {
	for uid := range t.slices {
		if !slices.ContainsFunc(listed, func(slice *sharingv1alpha1.ResourceSlice) bool { return slice.UID == uid }) {
			delete(t.slices, uid)
		}
	}
}

// lastStatus returns the status last written, from memory while the cached object is older than that.
func (m *sliceMemory) lastStatus(slice *sharingv1alpha1.ResourceSlice) *sharingv1alpha1.ResourceSliceStatus {
	if m.written != nil && slices.Contains(m.stale, slice.ResourceVersion) {
		return m.written
	}
	return &slice.Status
}

func sliceRequest(namespace string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: namespace}}
}
