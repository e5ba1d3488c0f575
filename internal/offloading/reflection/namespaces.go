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
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// +kubebuilder:rbac:namespace=liqo-tenant,groups=virtualkubelet.liqo.io,resources=namespacemaps,verbs=list;watch

// pair is a namespace and its twin.
type pair struct {
	link project.NamespaceMapping
	ctx  context.Context
	stop context.CancelFunc
	// appliers remember, per kind, what was written to the twin, and are forgotten with it.
	appliers map[string]*ssa.Applier
	// leaving: the twin is being taken away. Nothing is brought there any more; what pods are left is still followed.
	leaving atomic.Bool
	// apiServer: pods that are made there may know of our API server and have tokens for it. Until the NamespaceMap says so they do not.
	apiServer atomic.Bool
}

// mapping is what is known of the offloading of one namespace.
type mapping int

const (
	// unknown: nothing has been heard, which means nothing.
	unknown mapping = iota
	// offloaded: there is a pair.
	offloaded
	// waiting: it is to be offloaded, and the twin is not there yet.
	waiting
	// gone: it is not offloaded, and has no twin.
	gone
)

// pairs are the offloaded namespaces, as the NamespaceMap says.
type pairs struct {
	engine *Engine
	maps   *fanin.Source

	mu       sync.RWMutex
	ctx      context.Context
	byLocal  map[string]*pair
	byRemote map[string]*pair
	known    *vkv1alpha1.NamespaceMap
}

func newPairs(e *Engine) *pairs {
	p := &pairs{engine: e, byLocal: map[string]*pair{}, byRemote: map[string]*pair{}}
	p.maps = fanin.New(fanin.Options{
		Object: &vkv1alpha1.NamespaceMap{}, List: func() client.ObjectList { return &vkv1alpha1.NamespaceMapList{} },
		Client:  func(context.Context) (client.WithWatch, error) { return e.local, nil },
		Select:  []client.ListOption{client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", e.options.NamespaceMap)}},
		Trim:    func(object client.Object) { object.SetManagedFields(nil) },
		Changed: func(_, after client.Object) { p.update(after) },
	})
	return p
}

func (p *pairs) run(ctx context.Context) {
	p.mu.Lock()
	p.ctx = ctx
	p.mu.Unlock()
	p.maps.Add(ctx, p.engine.options.Namespace)
}

// update starts and stops pairs. A map that is gone says nothing: the peering is being taken down, or somebody made a mistake that is mended soon.
func (p *pairs) update(after client.Object) {
	current, _ := after.(*vkv1alpha1.NamespaceMap)
	if current != nil && current.Labels[labels.Replicated] != "" {
		return // what the peer wants of us
	}
	var start, fade, stop, ruled []*pair
	p.mu.Lock()
	p.known = current
	if current != nil {
		start, fade, stop = p.turnOver(current)
		ruled = p.rule(current)
	}
	p.mu.Unlock()
	for _, old := range fade {
		p.fade(old)
	}
	for _, old := range stop {
		p.end(old)
	}
	for _, one := range start {
		p.begin(one)
	}
	if p.engine.pods != nil {
		p.engine.pods.mapped()
	}
	if p.engine.tokens != nil {
		for _, one := range ruled {
			p.engine.tokens.ruled(one)
		}
	}
}

// rule tells all pairs, before anybody works with the new ones, whether their pods may know of our API server, and returns those for which
// that has changed. A twin that is being taken away gets no pods, so what was said of it last holds.
func (p *pairs) rule(current *vkv1alpha1.NamespaceMap) (changed []*pair) {
	for local, one := range p.byLocal {
		if one.leaving.Load() {
			continue
		}
		if may := !slices.Contains(current.Spec.WithoutAPIServer, local); one.apiServer.Swap(may) != may {
			changed = append(changed, one)
		}
	}
	return changed
}

// turnOver replaces the pairs that are not as they were.
func (p *pairs) turnOver(current *vkv1alpha1.NamespaceMap) (start, fade, stop []*pair) {
	wanted := pairsOf(current)
	for local, old := range p.byLocal {
		now, is := wanted[local]
		if is && now.remote == old.link.Remote && (now.leaving || !old.leaving.Load()) {
			delete(wanted, local)
			if now.leaving && !old.leaving.Swap(true) {
				fade = append(fade, old)
			}
			continue
		}
		old.apiServer.Store(false)
		stop = append(stop, old)
		delete(p.byLocal, local)
		delete(p.byRemote, old.link.Remote)
	}
	for local, now := range wanted {
		if p.byRemote[now.remote] != nil {
			continue // a twin has one owner: two would take each other's objects for their own
		}
		one := &pair{link: p.engine.options.Mapping, appliers: map[string]*ssa.Applier{podKind: ssa.NewApplierOf(p.engine.remote.current, labels.OwnerReflection)}}
		for i := range catalog {
			one.appliers[catalog[i].name] = ssa.NewApplierOf(p.engine.remote.current, labels.OwnerReflection)
		}
		one.link.Local, one.link.Remote = local, now.remote
		one.leaving.Store(now.leaving)
		one.ctx, one.stop = context.WithCancel(log.IntoContext(p.ctx, log.FromContext(p.ctx).WithValues("namespace", local, "twin", now.remote)))
		p.byLocal[local], p.byRemote[now.remote] = one, one
		start = append(start, one)
	}
	return start, fade, stop
}

type twin struct {
	remote  string
	leaving bool
}

// pairsOf are the twins that exist. The peer says so, but their names are those that were asked for: its word would otherwise lead us
// into any namespace it likes.
func pairsOf(current *vkv1alpha1.NamespaceMap) map[string]twin {
	all := map[string]twin{}
	for local, status := range current.Status.CurrentMapping {
		desired, is := current.Spec.DesiredMapping[local]
		switch {
		case is && desired != status.RemoteNamespace || status.RemoteNamespace == "":
		case is && status.Phase == vkv1alpha1.MappingAccepted:
			all[local] = twin{remote: desired}
		case status.Phase == vkv1alpha1.MappingTerminating || status.Phase == vkv1alpha1.MappingAccepted:
			all[local] = twin{remote: status.RemoteNamespace, leaving: true}
		}
	}
	return all
}

func (p *pairs) begin(one *pair) {
	log.FromContext(one.ctx).Info("namespace reflected", "leaving", one.leaving.Load())
	if !one.leaving.Load() {
		for _, r := range p.engine.reflectors {
			r.begin(one)
		}
	}
	if p.engine.pods != nil {
		p.engine.pods.begin(one)
	}
}

// fade brings nothing to the twin any more.
func (p *pairs) fade(old *pair) {
	log.FromContext(old.ctx).Info("twin is being taken away")
	for _, r := range p.engine.reflectors {
		r.end(old)
	}
}

// end stops looking at a pair. Nothing is deleted: what is in the twin goes with it, or is taken up by the next process.
func (p *pairs) end(old *pair) {
	old.stop()
	log.FromContext(old.ctx).Info("namespace not reflected any more")
	for _, r := range p.engine.reflectors {
		r.end(old)
	}
	if p.engine.pods != nil {
		p.engine.pods.end(old)
	}
	p.engine.counts.forget(old.link.Local)
}

// local returns the pair of a local namespace, and what is known if there is none.
func (p *pairs) local(namespace string) (*pair, mapping) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if one := p.byLocal[namespace]; one != nil {
		return one, offloaded
	}
	if p.known == nil {
		return nil, unknown
	}
	if _, is := p.known.Spec.DesiredMapping[namespace]; is {
		return nil, waiting
	}
	if _, is := p.known.Status.CurrentMapping[namespace]; is {
		return nil, waiting
	}
	return nil, gone
}

// remote returns the pair of a twin, nil if there is none.
func (p *pairs) remote(namespace string) *pair {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.byRemote[namespace]
}

// each calls do with all pairs there are.
func (p *pairs) each(do func(*pair)) {
	p.mu.RLock()
	all := slices.Collect(maps.Values(p.byLocal))
	p.mu.RUnlock()
	for _, one := range all {
		do(one)
	}
}

// Remote is the twin of a local namespace, if it has one.
func (e *Engine) Remote(local string) (twin string, offloaded bool) {
	if one, _ := e.pairs.local(local); one != nil {
		return one.link.Remote, true
	}
	return "", false
}
