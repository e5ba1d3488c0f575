// SPDX-License-Identifier: Apache-2.0

package reflection

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

// mapping is an offloaded namespace, its remote namespace, and what we keep for the two.
type mapping struct {
	project.NamespaceMapping
	ctx    context.Context
	cancel context.CancelFunc
	// appliers remember, per kind, what we wrote to the remote namespace.
	appliers map[string]*ssa.Applier
	// terminating: the remote namespace is being deleted. We write nothing there any more, but still observe the pods that are left.
	terminating atomic.Bool
	// apiServer: new pods there may reach our API server and get tokens for it. It is false until the NamespaceMap allows that.
	apiServer atomic.Bool
	// referencedOnly: of ConfigMaps and Secrets, only those are copied that something refers to.
	referencedOnly atomic.Bool
	// unreachableSeconds is how long its pods tolerate that the peer does not answer; 0: as long as those of any lost node.
	unreachableSeconds atomic.Int64
}

// mappings are the offloaded namespaces, kept equal to the NamespaceMap.
type mappings struct {
	engine *Engine
	maps   *fanin.Source

	mu       sync.RWMutex
	ctx      context.Context
	byLocal  map[string]*mapping
	byRemote map[string]*mapping
	known    *vkv1alpha1.NamespaceMap
}

func newMappings(e *Engine) *mappings {
	p := &mappings{engine: e, byLocal: map[string]*mapping{}, byRemote: map[string]*mapping{}}
	p.maps = fanin.New(fanin.Options{
		Object: &vkv1alpha1.NamespaceMap{}, List: func() client.ObjectList { return &vkv1alpha1.NamespaceMapList{} },
		Client:  func(context.Context) (client.WithWatch, error) { return e.local, nil },
		Select:  []client.ListOption{client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", e.options.NamespaceMap)}},
		Trim:    func(object client.Object) { object.SetManagedFields(nil) },
		Changed: func(_, after client.Object) { p.update(after) },
	})
	return p
}

func (p *mappings) run(ctx context.Context) {
	p.mu.Lock()
	p.ctx = ctx
	p.mu.Unlock()
	p.maps.Add(ctx, p.engine.options.Namespace)
}

// update starts and stops mappings. A deleted NamespaceMap changes nothing: either the peering is being removed, or the deletion was a mistake and
// the map comes back.
func (p *mappings) update(after client.Object) {
	current, _ := after.(*vkv1alpha1.NamespaceMap)
	if current != nil && current.Labels[labels.Replicated] != "" {
		return // a map of the peer: what it offloads to us
	}
	var start, freeze, stop, policyChanged, reflectionChanged []*mapping
	p.mu.Lock()
	p.known = current
	if current != nil {
		start, freeze, stop = p.replace(current)
		policyChanged = p.applyPolicy(current)
		for local, one := range p.byLocal {
			one.unreachableSeconds.Store(current.Spec.UnreachableTolerationSeconds[local])
			if only := slices.Contains(current.Spec.ReferencedOnly, local); one.referencedOnly.Swap(only) != only {
				reflectionChanged = append(reflectionChanged, one)
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
	for _, one := range start {
		p.start(one)
	}
	for _, one := range reflectionChanged {
		p.engine.reflectionChanged(one)
	}
	if p.engine.pods != nil {
		p.engine.pods.enqueueAll()
	}
	if p.engine.tokens != nil {
		for _, one := range policyChanged {
			p.engine.tokens.policyChanged(one)
		}
	}
}

// applyPolicy records in each mapping whether its pods may reach our API server, and returns the mappings for which that changed. It runs before any
// worker sees a new mapping. A terminating remote namespace gets no new pods, so it keeps its last policy.
func (p *mappings) applyPolicy(current *vkv1alpha1.NamespaceMap) (changed []*mapping) {
	for local, one := range p.byLocal {
		if one.terminating.Load() {
			continue
		}
		if may := !slices.Contains(current.Spec.WithoutAPIServer, local); one.apiServer.Swap(may) != may {
			changed = append(changed, one)
		}
	}
	return changed
}

// replace makes the mappings equal to the NamespaceMap. The caller starts, freezes and stops those that it returns, without the lock.
func (p *mappings) replace(current *vkv1alpha1.NamespaceMap) (start, freeze, stop []*mapping) {
	wanted := remoteNamespaces(current)
	for local, old := range p.byLocal {
		now, is := wanted[local]
		if is && now.name == old.Remote && (now.terminating || !old.terminating.Load()) {
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
		one := &mapping{NamespaceMapping: p.engine.options.Mapping, appliers: map[string]*ssa.Applier{podKind: ssa.NewApplierOf(p.engine.remote.clientOrNil, labels.OwnerReflection)}}
		for i := range catalog {
			one.appliers[catalog[i].name] = ssa.NewApplierOf(p.engine.remote.clientOrNil, labels.OwnerReflection)
		}
		one.Local, one.Remote = local, now.name
		one.terminating.Store(now.terminating)
		one.ctx, one.cancel = context.WithCancel(log.IntoContext(p.ctx, log.FromContext(p.ctx).WithValues("namespace", local, "remoteNamespace", now.name)))
		p.byLocal[local], p.byRemote[now.name] = one, one
		start = append(start, one)
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
		desired, is := current.Spec.DesiredMapping[local]
		switch {
		case is && desired != status.RemoteNamespace || status.RemoteNamespace == "":
		case is && status.Phase == vkv1alpha1.MappingAccepted:
			all[local] = remoteNamespace{name: desired}
		case status.Phase == vkv1alpha1.MappingTerminating || status.Phase == vkv1alpha1.MappingAccepted:
			all[local] = remoteNamespace{name: status.RemoteNamespace, terminating: true}
		}
	}
	return all
}

func (p *mappings) start(one *mapping) {
	log.FromContext(one.ctx).Info("reflection of the namespace started", "terminating", one.terminating.Load())
	if !one.terminating.Load() {
		for _, r := range p.engine.reflectors {
			r.start(one)
		}
	}
	if p.engine.claims != nil {
		p.engine.claims.Start(one.ctx, one.Local, one.Remote)
	}
	if p.engine.pods != nil {
		p.engine.pods.start(one)
	}
}

// freeze stops the writes to a remote namespace that is being deleted.
func (p *mappings) freeze(old *mapping) {
	log.FromContext(old.ctx).Info("remote namespace is being deleted")
	for _, r := range p.engine.reflectors {
		r.stop(old)
	}
}

// stop ends the watches of a mapping. It deletes nothing: the remote objects are deleted with their namespace, or the next process adopts them.
func (p *mappings) stop(old *mapping) {
	old.cancel()
	log.FromContext(old.ctx).Info("reflection of the namespace stopped")
	for _, r := range p.engine.reflectors {
		r.stop(old)
	}
	if p.engine.claims != nil {
		p.engine.claims.Stop(old.Local, old.Remote)
	}
	if p.engine.pods != nil {
		p.engine.pods.stop(old)
	}
	p.engine.counts.forget(old.Local)
}

// local returns the mapping of a local namespace; if there is none, the second result is the reason.
func (p *mappings) local(namespace string) (*mapping, podplan.Offloading) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if one := p.byLocal[namespace]; one != nil {
		return one, podplan.Mapped
	}
	if p.known == nil {
		return nil, podplan.Unknown
	}
	if _, is := p.known.Spec.DesiredMapping[namespace]; is {
		return nil, podplan.Pending
	}
	if _, is := p.known.Status.CurrentMapping[namespace]; is {
		return nil, podplan.Pending
	}
	return nil, podplan.None
}

// remote returns the mapping of a remote namespace, nil if there is none.
func (p *mappings) remote(namespace string) *mapping {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.byRemote[namespace]
}

// observed reports whether a NamespaceMap was observed, so that the mappings are those that it asks for.
func (p *mappings) observed() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.known != nil
}

// each calls do with every mapping. do runs without the lock.
func (p *mappings) each(do func(*mapping)) {
	p.mu.RLock()
	all := slices.Collect(maps.Values(p.byLocal))
	p.mu.RUnlock()
	for _, one := range all {
		do(one)
	}
}

// Remote returns the remote namespace of a local namespace; false if it has none.
func (e *Engine) Remote(local string) (name string, offloaded bool) {
	if one, _ := e.mappings.local(local); one != nil {
		return one.Remote, true
	}
	return "", false
}
