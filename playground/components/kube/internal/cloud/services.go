// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"liqo.io/liqo/playground/components/kube/internal/cloud/loop"
	"liqo.io/liqo/playground/components/kube/internal/cloud/settings"
)

const (
	loadBalancerClass = "playground.local/pool"
	addressAnnotation = "playground.local/address"
)

// balancer is the state of one session.
type balancer struct {
	cluster
	kick loop.Bell
	// given is the address of the last status write, by UID: the cache may be behind.
	given map[types.UID]netip.Addr
	// warned is the last problem reported to the user, by UID.
	warned map[types.UID]string
	// slices is nil until a Service requires local endpoints: endpoint slices are the bulk of a
	// large cluster, and most clusters need none of them here.
	slices discoverylisters.EndpointSliceLister
}

// services gives addresses of the pool to Services of type LoadBalancer.
func (c cluster) services() (func(context.Context), error) {
	if !c.pool.First.IsValid() || len(c.Nodes) == 0 {
		return nil, nil
	}
	b := &balancer{cluster: c, kick: loop.NewBell(), given: map[types.UID]netip.Addr{}, warned: map[types.UID]string{}}
	services, nodes := c.informers.Core().V1().Services(), c.informers.Core().V1().Nodes()
	all := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { b.kick.Ring() },
		UpdateFunc: func(any, any) { b.kick.Ring() },
		DeleteFunc: func(any) { b.kick.Ring() },
	}
	onService, err := services.Informer().AddEventHandler(all)
	if err != nil {
		return nil, fmt.Errorf("watch services: %w", err)
	}
	onNode, err := nodes.Informer().AddEventHandler(c.onRealNode(b.kick.Ring))
	if err != nil {
		return nil, fmt.Errorf("watch nodes: %w", err)
	}
	return func(ctx context.Context) {
		if !cache.WaitForCacheSync(ctx.Done(), onService.HasSynced, onNode.HasSynced) {
			return
		}
		b.kick.Ring()
		loop.Converge(ctx, b.kick, "load balancer", b.step)
	}, nil
}

// step allocates addresses for all Services, assigns them to nodes, and reports both to the
// fabric and the API.
func (b *balancer) step(ctx context.Context) error {
	all, err := b.informers.Core().V1().Services().Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	carriers, err := b.carriers()
	if err != nil {
		return err
	}
	present := map[types.UID]bool{}
	var services []balanced
	for _, service := range all {
		if !ours(service) {
			continue
		}
		present[service.UID] = true
		endpoints, local, err := b.localEndpoints(ctx, service)
		if err != nil {
			return err
		}
		services = append(services, b.balanced(service, candidates(carriers, local, endpoints)))
	}
	for uid := range b.given {
		if !present[uid] {
			delete(b.given, uid)
			delete(b.warned, uid)
		}
	}
	result := allocate(b.pool, services)
	b.fabric.setHolders(assign(services, result.addresses))
	var problems []error
	for _, service := range all {
		problems = append(problems, b.writeStatus(ctx, service, result))
	}
	return errors.Join(problems...)
}

// ours reports whether this pool serves a Service.
func ours(service *corev1.Service) bool {
	class := service.Spec.LoadBalancerClass
	return service.Spec.Type == corev1.ServiceTypeLoadBalancer && service.DeletionTimestamp == nil &&
		(class == nil || *class == loadBalancerClass)
}

func (b *balancer) balanced(service *corev1.Service, nodes []string) balanced {
	current, known := b.given[service.UID]
	if !known {
		current, _ = shown(service)
	}
	wanted := service.Annotations[addressAnnotation]
	if wanted == "" {
		wanted = service.Spec.LoadBalancerIP //nolint:staticcheck // deprecated, but what users' manifests hold
	}
	return balanced{
		key: service.Namespace + "/" + service.Name, created: service.CreationTimestamp.Unix(), current: current, wanted: wanted,
		ipv4: slices.Contains(service.Spec.IPFamilies, corev1.IPv4Protocol), nodes: nodes,
	}
}

// shown returns the address in a Service's status; exact is false if the status holds more than that.
func shown(service *corev1.Service) (address netip.Addr, exact bool) {
	ingress := service.Status.LoadBalancer.Ingress
	if len(ingress) == 0 {
		return netip.Addr{}, true
	}
	address, _ = netip.ParseAddr(ingress[0].IP)
	return address, len(ingress) == 1 && ptr.Deref(ingress[0].IPMode, "") == corev1.LoadBalancerIPModeVIP
}

// writeStatus writes a Service's status if it differs from the allocation, and a problem as an event, once.
func (b *balancer) writeStatus(ctx context.Context, service *corev1.Service, result allocation) error {
	key := service.Namespace + "/" + service.Name
	address, exact := shown(service)
	want := result.addresses[key]
	switch {
	case ours(service):
		if problem := result.problems[key]; problem != b.warned[service.UID] {
			if problem != "" {
				b.events.Event(service, corev1.EventTypeWarning, "NoLoadBalancerAddress", problem)
			}
			b.warned[service.UID] = problem
		}
	case service.Spec.Type == corev1.ServiceTypeLoadBalancer || !b.pool.Contains(address):
		return nil // another controller's, being deleted, or never ours
	}
	if exact && address == want {
		return nil
	}
	status := corev1apply.LoadBalancerStatus()
	if want.IsValid() {
		status.WithIngress(corev1apply.LoadBalancerIngress().WithIP(want.String()).WithIPMode(corev1.LoadBalancerIPModeVIP))
	}
	apply := corev1apply.Service(service.Name, service.Namespace).WithUID(service.UID).
		WithStatus(corev1apply.ServiceStatus().WithLoadBalancer(status))
	_, err := b.client.CoreV1().Services(service.Namespace).ApplyStatus(ctx, apply, metav1.ApplyOptions{FieldManager: settings.FieldOwner, Force: true})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("status of Service %s: %w", key, err)
	}
	if want.IsValid() {
		b.given[service.UID] = want
	} else {
		delete(b.given, service.UID)
	}
	return nil
}

// carriers returns the real nodes that have registered.
func (b *balancer) carriers() ([]carrier, error) {
	all, err := b.informers.Core().V1().Nodes().Lister().List(labels.Everything())
	if err != nil {
		return nil, err
	}
	var carriers []carrier
	for _, node := range all {
		if _, ours := b.Nodes[node.Name]; !ours {
			continue
		}
		_, excluded := node.Labels[corev1.LabelNodeExcludeBalancers]
		carriers = append(carriers, carrier{name: node.Name, ready: isReady(node), excluded: excluded})
	}
	return carriers, nil
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// localEndpoints returns the nodes with ready endpoints of a Service that requires local ones;
// local is false for any other Service.
func (b *balancer) localEndpoints(ctx context.Context, service *corev1.Service) (nodes map[string]bool, local bool, err error) {
	if service.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		return nil, false, nil
	}
	if b.slices == nil {
		if err := b.watchEndpoints(ctx); err != nil {
			return nil, true, err
		}
	}
	selector := labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service.Name})
	list, err := b.slices.EndpointSlices(service.Namespace).List(selector)
	if err != nil {
		return nil, true, err
	}
	nodes = map[string]bool{}
	for _, slice := range list {
		for _, endpoint := range slice.Endpoints {
			if endpoint.NodeName != nil && ptr.Deref(endpoint.Conditions.Ready, true) {
				nodes[*endpoint.NodeName] = true
			}
		}
	}
	return nodes, true, nil
}

// watchEndpoints starts the watch and waits for the first complete list: before it, the
// absence of a local endpoint is not known.
func (b *balancer) watchEndpoints(ctx context.Context) error {
	informer := b.informers.Discovery().V1().EndpointSlices()
	ring := func(object any) {
		if b.requiresLocal(object) {
			b.kick.Ring()
		}
	}
	handler, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: ring, UpdateFunc: func(_, object any) { ring(object) }, DeleteFunc: ring,
	})
	if err != nil {
		return fmt.Errorf("watch endpoint slices: %w", err)
	}
	b.informers.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		return context.Cause(ctx)
	}
	b.slices = informer.Lister()
	return nil
}

// requiresLocal reports whether the Service of an endpoint slice requires local endpoints, so
// that the endpoints of all other Services do not trigger a step.
func (b *balancer) requiresLocal(object any) bool {
	if tombstone, gone := object.(cache.DeletedFinalStateUnknown); gone {
		object = tombstone.Obj
	}
	slice, is := object.(*discoveryv1.EndpointSlice)
	if !is {
		return false
	}
	service, err := b.informers.Core().V1().Services().Lister().Services(slice.Namespace).Get(slice.Labels[discoveryv1.LabelServiceName])
	return err == nil && ours(service) && service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}
