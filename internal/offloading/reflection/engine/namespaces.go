// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/fanin"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/offloading/podplan"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// +kubebuilder:rbac:namespace=liqo-tenant,groups=virtualkubelet.liqo.io,resources=namespacemaps,verbs=list;watch

// Mapping is an offloaded namespace, its remote namespace, and what we keep for the two.
type Mapping struct {
	project.NamespaceMapping
	// Context ends with the mapping.
	Context context.Context

	cancel context.CancelFunc
	engine *Engine
	// appliers remember, by the names of the loops, what we wrote to the remote namespace.
	appliers sync.Map
	// compared are the loops that have compared all remote objects with their intents since this process started.
	compared           sync.Map
	terminating        atomic.Bool
	apiServer          atomic.Bool
	referencedOnly     atomic.Bool
	unreachableSeconds atomic.Int64
	customResources    atomic.Pointer[[]vkv1alpha1.ReflectedKind]
	runWithout         atomic.Pointer[[]string]
}

// Applier remembers what the loop of this name wrote to the remote namespace.
func (m *Mapping) Applier(loop string) *ssa.Applier {
	if applier, ok := m.appliers.Load(loop); ok {
		return applier.(*ssa.Applier)
	}
	applier, _ := m.appliers.LoadOrStore(loop, ssa.NewApplierOf(m.engine.Remote.ClientOrNil, labels.OwnerReflection))
	return applier.(*ssa.Applier)
}

// Terminating reports whether the remote namespace is being deleted. We write nothing there any more, but still observe the pods that are left.
func (m *Mapping) Terminating() bool { return m.terminating.Load() }

// APIServer reports whether new pods there may reach our API server and get tokens for it. They may not until the NamespaceMap allows that.
func (m *Mapping) APIServer() bool { return m.apiServer.Load() }

// ReferencedOnly reports whether of ConfigMaps and Secrets only those are copied that something refers to.
func (m *Mapping) ReferencedOnly() bool { return m.referencedOnly.Load() }

// UnreachableSeconds is how long its pods tolerate that the peer does not answer; 0: as long as those of any lost node.
func (m *Mapping) UnreachableSeconds() int64 { return m.unreachableSeconds.Load() }

// CustomResources returns the kinds of custom resources that are copied.
func (m *Mapping) CustomResources() []vkv1alpha1.ReflectedKind {
	if all := m.customResources.Load(); all != nil {
		return *all
	}
	return nil
}

// RunWithout returns the fields that pods may lack in the peer.
func (m *Mapping) RunWithout() []string {
	if all := m.runWithout.Load(); all != nil {
		return *all
	}
	return nil
}

// Compared reports whether SetCompared was called for the loop of this name.
func (m *Mapping) Compared(loop string) bool {
	_, ok := m.compared.Load(loop)
	return ok
}

// SetCompared records that the loop has compared all remote objects of the mapping with their intents.
func (m *Mapping) SetCompared(loop string) { m.compared.Store(loop, true) }

// Namespaces are the offloaded namespaces, kept equal to the NamespaceMap.
type Namespaces struct {
	engine *Engine
	maps   *fanin.Source

	mu       sync.RWMutex
	ctx      context.Context
	byLocal  map[string]*Mapping
	byRemote map[string]*Mapping
	known    *vkv1alpha1.NamespaceMap
}

func newNamespaces(e *Engine) *Namespaces {
	p := &Namespaces{engine: e, byLocal: map[string]*Mapping{}, byRemote: map[string]*Mapping{}}
	p.maps = fanin.New(fanin.Options{
		Object: &vkv1alpha1.NamespaceMap{}, List: func() client.ObjectList { return &vkv1alpha1.NamespaceMapList{} },
		Client:  func(context.Context) (client.WithWatch, error) { return e.Local, nil },
		Select:  []client.ListOption{client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", e.options.NamespaceMap)}},
		Trim:    func(object client.Object) { object.SetManagedFields(nil) },
		Changed: func(_, after client.Object) { p.update(after) },
	})
	return p
}

// Synced reports whether the cache of the NamespaceMap is filled.
func (p *Namespaces) Synced() bool { return p.maps.Synced(p.engine.options.Namespace) }

func (p *Namespaces) run(ctx context.Context) {
	p.mu.Lock()
	p.ctx = ctx
	p.mu.Unlock()
	p.maps.Add(ctx, p.engine.options.Namespace)
}

// update starts and stops mappings. A deleted NamespaceMap changes nothing: either the peering is being removed, or the deletion was a mistake and
// the map comes back.
func (p *Namespaces) update(after client.Object) {
	current, _ := after.(*vkv1alpha1.NamespaceMap)
	if current != nil && current.Labels[labels.Replicated] != "" {
		return // a map of the peer: what it offloads to us
	}
	var start, freeze, stop, policyChanged, referencesChanged []*Mapping
	p.mu.Lock()
	p.known = current
	if current != nil {
		start, freeze, stop = p.replace(current)
		policyChanged = p.applyPolicy(current)
		for local, mapping := range p.byLocal {
			mapping.customResources.Store(new(current.Spec.CustomResources[local]))
			mapping.runWithout.Store(new(current.Spec.RunWithout[local]))
			mapping.unreachableSeconds.Store(current.Spec.UnreachableTolerationSeconds[local])
			if only := slices.Contains(current.Spec.ReferencedOnly, local); mapping.referencedOnly.Swap(only) != only {
				referencesChanged = append(referencesChanged, mapping)
			}
		}
	}
	p.mu.Unlock()
	for _, old := range freeze {
		p.freeze(old)
	}
	for _, old := range stop {
		p.stop(old)
	}
	for _, mapping := range start {
		p.start(mapping)
	}
	for _, l := range p.engine.all() {
		call(l.ReferencesChanged, referencesChanged)
	}
	for _, l := range p.engine.all() {
		if l.Changed != nil {
			l.Changed()
		}
	}
	for _, l := range p.engine.all() {
		call(l.PolicyChanged, policyChanged)
	}
}

// call calls a function of a loop, which may be nil, with each mapping.
func call(do func(*Mapping), mappings []*Mapping) {
	if do == nil {
		return
	}
	for _, mapping := range mappings {
		do(mapping)
	}
}

// applyPolicy records in each mapping whether its pods may reach our API server, and returns the mappings for which that changed. It runs before any
// worker sees a new mapping. A terminating remote namespace gets no new pods, so it keeps its last policy.
func (p *Namespaces) applyPolicy(current *vkv1alpha1.NamespaceMap) (changed []*Mapping) {
	for local, mapping := range p.byLocal {
		if mapping.terminating.Load() {
			continue
		}
		if may := !slices.Contains(current.Spec.WithoutAPIServer, local); mapping.apiServer.Swap(may) != may {
			changed = append(changed, mapping)
		}
	}
	return changed
}

// replace makes the mappings equal to the NamespaceMap. The caller starts, freezes and stops those that it returns, without the lock.
func (p *Namespaces) replace(current *vkv1alpha1.NamespaceMap) (start, freeze, stop []*Mapping) {
	wanted := remoteNamespaces(current)
	for local, old := range p.byLocal {
		now, ok := wanted[local]
		if ok && now.name == old.Remote && (now.terminating || !old.terminating.Load()) {
			delete(wanted, local)
			if now.terminating && !old.terminating.Swap(true) {
				freeze = append(freeze, old)
			}
			continue
		}
		old.apiServer.Store(false)
		stop = append(stop, old)
		delete(p.byLocal, local)
		delete(p.byRemote, old.Remote)
	}
	for local, now := range wanted {
		if p.byRemote[now.name] != nil {
			continue // two local namespaces in one remote namespace would each take the other's objects for their own
		}
		mapping := &Mapping{NamespaceMapping: p.engine.options.Mapping, engine: p.engine}
		mapping.Local, mapping.Remote = local, now.name
		mapping.terminating.Store(now.terminating)
		mapping.Context, mapping.cancel = context.WithCancel(log.IntoContext(p.ctx, log.FromContext(p.ctx).WithValues("namespace", local, "remoteNamespace", now.name)))
		p.byLocal[local], p.byRemote[now.name] = mapping, mapping
		start = append(start, mapping)
	}
	return start, freeze, stop
}

type remoteNamespace struct {
	name        string
	terminating bool
}

// remoteNamespaces are the remote namespaces that exist, by their local namespaces. The peer writes the status, but only a name that we asked for
// counts: otherwise the peer could direct us into any namespace.
func remoteNamespaces(current *vkv1alpha1.NamespaceMap) map[string]remoteNamespace {
	all := map[string]remoteNamespace{}
	for local, status := range current.Status.CurrentMapping {
		desired, ok := current.Spec.DesiredMapping[local]
		switch {
		case ok && desired != status.RemoteNamespace || status.RemoteNamespace == "":
		case ok && status.Phase == vkv1alpha1.MappingAccepted:
			all[local] = remoteNamespace{name: desired}
		case status.Phase == vkv1alpha1.MappingTerminating || status.Phase == vkv1alpha1.MappingAccepted:
			all[local] = remoteNamespace{name: status.RemoteNamespace, terminating: true}
		}
	}
	return all
}

func (p *Namespaces) start(mapping *Mapping) {
	log.FromContext(mapping.Context).Info("reflection of the namespace started", "terminating", mapping.Terminating())
	for _, l := range p.engine.all() {
		if l.Start != nil {
			l.Start(mapping)
		}
	}
}

// freeze stops the writes to a remote namespace that is being deleted.
func (p *Namespaces) freeze(old *Mapping) {
	log.FromContext(old.Context).Info("remote namespace is being deleted")
	for _, l := range p.engine.all() {
		if l.Freeze != nil {
			l.Freeze(old)
		}
	}
}

// stop ends the watches of a mapping. It deletes nothing: the remote objects are deleted with their namespace, or the next process adopts them.
func (p *Namespaces) stop(old *Mapping) {
	old.cancel()
	log.FromContext(old.Context).Info("reflection of the namespace stopped")
	for _, l := range p.engine.all() {
		if l.Stop != nil {
			l.Stop(old)
		}
	}
	p.engine.forgetFailures(old.Local)
}

// Local returns the mapping of a local namespace; if there is none, the second result is the reason.
func (p *Namespaces) Local(namespace string) (*Mapping, podplan.Offloading) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if mapping := p.byLocal[namespace]; mapping != nil {
		return mapping, podplan.Mapped
	}
	if p.known == nil {
		return nil, podplan.Unknown
	}
	if p.known.Status.CurrentMapping[namespace].Phase == vkv1alpha1.MappingCreationLoopBackOff {
		return nil, podplan.Refused
	}
	if _, ok := p.known.Spec.DesiredMapping[namespace]; ok {
		return nil, podplan.Pending
	}
	if _, ok := p.known.Status.CurrentMapping[namespace]; ok {
		return nil, podplan.Pending
	}
	return nil, podplan.None
}

// Remote returns the mapping of a remote namespace, nil if there is none.
func (p *Namespaces) Remote(namespace string) *Mapping {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.byRemote[namespace]
}

// Observed reports whether a NamespaceMap was observed, so that the mappings are those that it asks for.
func (p *Namespaces) Observed() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.known != nil
}

// Each calls do with every mapping. do runs without the lock.
func (p *Namespaces) Each(do func(*Mapping)) {
	p.mu.RLock()
	all := slices.Collect(maps.Values(p.byLocal))
	p.mu.RUnlock()
	for _, mapping := range all {
		do(mapping)
	}
}
