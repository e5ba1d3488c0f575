// SPDX-License-Identifier: Apache-2.0

package ipmapping

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/networks"
	"liqo.io/liqo/internal/network/nodes"
	"liqo.io/liqo/internal/network/pools"
	"liqo.io/liqo/internal/network/tenants"
)

// +kubebuilder:rbac:groups=net.liqo.io,resources=ipmappings,verbs=list;watch
// +kubebuilder:rbac:groups=net.liqo.io,resources=ipmappings/status,verbs=update

// Options is where addresses are assigned, and which ones.
type Options struct {
	Pools *pools.Reader
	// APIServer is the address of the Service kubernetes. Virtual kubelets ask for no other address without a restriction; invalid: they may.
	APIServer netip.Addr
	// Now is the clock.
	Now func() time.Time
}

// reconciler assigns an address in the external network to each address of an IPMapping, under which peers reach it.
type reconciler struct {
	Options
	client client.Client
	live   client.Reader // bypasses the cache
}

func Setup(mgr manager.Manager, o Options) error {
	r := &reconciler{o, mgr.GetClient(), mgr.GetAPIReader()}
	err := builder.ControllerManagedBy(mgr).Named("ipmapping").
		// One worker: two mappings must not get the same address.
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		For(&netv1alpha1.IPMapping{}).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.all), builder.WithPredicates(nodes.Changed())).
		Watches(&netv1alpha1.TunnelEndpoint{}, handler.EnqueueRequestsFromMapFunc(r.all), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the IPMapping controller: %w", err)
	}
	return nil
}

func (r *reconciler) all(ctx context.Context, _ client.Object) (requests []reconcile.Request) {
	var all netv1alpha1.IPMappingList
	if err := r.client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "cannot enqueue address mappings for the change of a tunnel endpoint")
		return nil
	}
	for i := range all.Items {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: all.Items[i].Name}})
	}
	return requests
}

// Reconcile assigns an address once, and reports which one each peer uses.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var mapping netv1alpha1.IPMapping
	if err := r.client.Get(ctx, request.NamespacedName, &mapping); err != nil || mapping.DeletionTimestamp != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	external, err := r.Pools.External(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	var tunnels netv1alpha1.TunnelEndpointList
	if err := r.client.List(ctx, &tunnels, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list tunnel endpoints: %w", err)
	}
	status := netv1alpha1.IPMappingStatus{Conditions: slices.Clone(mapping.Status.Conditions)}
	is, reason, message := metav1.ConditionTrue, netv1alpha1.ReasonAssigned, ""
	if err := checkTarget(mapping.Spec.Address, r.Pools.Options.PodCIDRs, external); err != nil {
		is, reason, message = metav1.ConditionFalse, netv1alpha1.ReasonAddressInvalid, err.Error()
	} else if refused, err := r.restricted(ctx, &mapping); err != nil {
		return reconcile.Result{}, err
	} else if refused != "" {
		is, reason, message = metav1.ConditionFalse, netv1alpha1.ReasonAddressRefused, refused
	} else if address, err := r.assign(ctx, &mapping, external); err != nil {
		if !errors.Is(err, ipam.ErrExhausted) {
			return reconcile.Result{}, err
		}
		is, reason, message = metav1.ConditionFalse, netv1alpha1.ReasonAddressesExhausted, err.Error()
	} else {
		status.ExternalAddress = address.String()
		status.PeerAddresses = peerAddresses(&mapping, address, tunnels.Items)
		message = fmt.Sprintf("%s is %s in the external network %s", mapping.Spec.Address, address, external)
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: netv1alpha1.ConditionReady, Status: is, Reason: reason, Message: message,
		ObservedGeneration: mapping.Generation, LastTransitionTime: metav1.NewTime(r.Now()).Rfc3339Copy(),
	})
	return reconcile.Result{}, r.write(ctx, &mapping, status)
}

// write updates the status. On a conflict the event of the other change enqueues the mapping again.
func (r *reconciler) write(ctx context.Context, mapping *netv1alpha1.IPMapping, status netv1alpha1.IPMappingStatus) error {
	if equality.Semantic.DeepEqual(mapping.Status, status) {
		return nil
	}
	after := mapping.DeepCopy()
	after.Status, after.ManagedFields = status, nil
	err := r.client.Status().Update(ctx, after, client.FieldOwner(labels.OwnerNetwork))
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write status of address mapping %s: %w", mapping.Name, err)
	}
	return nil
}

// assign keeps the address of a mapping if it is valid and no older mapping has it.
func (r *reconciler) assign(ctx context.Context, mapping *netv1alpha1.IPMapping, external netip.Prefix) (netip.Addr, error) {
	var all netv1alpha1.IPMappingList
	if err := r.client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return netip.Addr{}, fmt.Errorf("list address mappings: %w", err)
	}
	if address, ok := held(mapping, all.Items, external); ok {
		return address, nil
	}
	if err := r.live.List(ctx, &all); err != nil {
		return netip.Addr{}, fmt.Errorf("list address mappings: %w", err)
	}
	taken := map[netip.Addr]bool{}
	for i := range all.Items {
		if address, err := netip.ParseAddr(all.Items[i].Status.ExternalAddress); err == nil && all.Items[i].UID != mapping.UID {
			taken[address] = true
		}
	}
	return ipam.FreeMapping(external, taken)
}

func held(mapping *netv1alpha1.IPMapping, all []netv1alpha1.IPMapping, external netip.Prefix) (netip.Addr, bool) {
	address, err := netip.ParseAddr(mapping.Status.ExternalAddress)
	if err != nil || !ipam.IsMappable(external, address) {
		return address, false
	}
	for i := range all {
		if other := &all[i]; other.UID != mapping.UID && other.Status.ExternalAddress == mapping.Status.ExternalAddress && tenants.Older(other, mapping) {
			return address, false
		}
	}
	return address, true
}

// checkTarget refuses addresses that peers reach without a mapping, and addresses that cannot be those of a host.
func checkTarget(text string, pods []netip.Prefix, external netip.Prefix) error {
	address, err := netip.ParseAddr(text)
	if err != nil {
		return fmt.Errorf("%.60q is not an IP address", text)
	}
	for _, network := range pods {
		if network.Contains(address) {
			return fmt.Errorf("%s is in the pod network %s, which peers reach without a mapping", address, network)
		}
	}
	if external.Contains(address) {
		return fmt.Errorf("%s is in the external network %s itself", address, external)
	}
	// A pod of another peer is one in the range set apart, where no gateway may be.
	return ipam.Check(netip.PrefixFrom(address, address.BitLen()))
}

// restricted returns why a mapping that must not lead to this cluster's own hosts is refused; "" if it is not. The endpoints of a Service may be nodes, for
// example those of a pod in the host's network, and users of a namespace may write any address.
func (r *reconciler) restricted(ctx context.Context, mapping *netv1alpha1.IPMapping) (string, error) {
	if !mapping.Spec.Restricted && (!ofKubelet(mapping) || !r.APIServer.IsValid() || mapping.Spec.Address == r.APIServer.String()) {
		return "", nil
	}
	all, err := r.Pools.Records(ctx, r.client)
	if err != nil {
		return "", err
	}
	pools, err := r.Pools.Empty(ctx, all)
	if err != nil {
		return "", err
	}
	return refusedUse(mapping.Spec.Address, slices.Concat(pools.Used, pools.Avoid)), nil
}

// ofKubelet reports whether a virtual kubelet made a mapping. A policy ensures that those have these marks, but does not know addresses.
func ofKubelet(mapping *netv1alpha1.IPMapping) bool {
	return mapping.Labels[labels.RemoteClusterID] != "" &&
		slices.ContainsFunc(mapping.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.Kind == "Node" })
}

func refusedUse(text string, uses []ipam.Use) string {
	address, err := netip.ParseAddr(text)
	if err != nil {
		return ""
	}
	for _, use := range uses {
		if use.Network.Contains(address) {
			return fmt.Sprintf(
				"%s belongs to this cluster, %s %s, and peers reach it only if an administrator wants that: they create an IPMapping of it", address,
				use.Name, use.Network,
			)
		}
	}
	return ""
}

// peerAddresses returns the addresses that peers use, by cluster ID. Guests of invitations use only mappings that name them.
func peerAddresses(mapping *netv1alpha1.IPMapping, address netip.Addr, tunnels []netv1alpha1.TunnelEndpoint) map[string]string {
	all := map[string]string{}
	for i := range tunnels {
		spec := &tunnels[i].Spec
		id := spec.ClusterIdentity.ClusterID
		if forAll := len(mapping.Spec.ClusterIDs) == 0 && tunnels[i].Labels[labels.Invitation] == ""; !forAll && !slices.Contains(mapping.Spec.ClusterIDs, id) {
			continue
		}
		from, err := netip.ParsePrefix(string(spec.LocalExternalCIDR))
		if err != nil {
			continue
		}
		to, err := netip.ParsePrefix(networks.Seen(spec.LocalExternalCIDR, spec.LocalNATExternalCIDR))
		if err != nil {
			continue
		}
		if there, ok := ipam.Swap(address, from, to); ok {
			all[id] = there.String()
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}
