// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
)

// sliceTenants remembers, between two looks at a tenant, what cannot be read from objects. All of it may be lost:
// then a small change waits a little longer, and the plugin is asked once more.
type sliceTenants struct {
	mu  sync.Mutex
	all map[string]*sliceTenant // by namespace
}

// sliceTenant is used by one worker at a time, except for stale and clusterID, which the lock above guards.
type sliceTenant struct {
	clusterID string
	stale     bool // the plugin has news, or was never asked
	plugin    pluginFacts
	asked     time.Time
	slices    map[types.UID]*sliceMemory
}

// sliceMemory is what we know of one slice beyond the cached object.
type sliceMemory struct {
	// refreshAt is when a small change may be told next.
	refreshAt time.Time
	// written is the status last written, and behind are the resource versions of the object before that: as long
	// as the cache shows one of these, written is the truth. Without it each write would be followed by a second.
	written *sharingv1alpha1.ResourceSliceStatus
	behind  []string
}

func newSliceTenants() *sliceTenants { return &sliceTenants{all: map[string]*sliceTenant{}} }

// get returns the memory of a tenant; a namespace that changed hands starts anew.
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

// requestsOf are the tenants of one cluster, or of all if the ID is empty; stale marks that the plugin is to be
// asked again.
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

// takeStale says whether the plugin has to be asked, and takes the mark away, so that news which come during the
// question are seen after it.
func (t *sliceTenants) takeStale(tenant *sliceTenant, now time.Time, maxAge time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	stale := tenant.stale || now.Sub(tenant.asked) >= maxAge
	tenant.stale = false
	return stale
}

func (t *sliceTenants) markStale(tenant *sliceTenant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tenant.stale = true
}

// memory returns what is known of a slice. refreshAt counts from now if nothing is.
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

// told is the status that the peer was last told, to our knowledge.
func (m *sliceMemory) told(slice *sharingv1alpha1.ResourceSlice) *sharingv1alpha1.ResourceSliceStatus {
	if m.written != nil && slices.Contains(m.behind, slice.ResourceVersion) {
		return m.written
	}
	return &slice.Status
}

func sliceRequest(namespace string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: namespace}}
}
