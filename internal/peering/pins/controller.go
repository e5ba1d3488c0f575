// SPDX-License-Identifier: Apache-2.0

// Package pins admits the consumers that registered their keys: the authentication service pins a key, and this controller decides, creates the tenant, and
// reports that on the pin. admission.go decides.
package pins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/apis/reasons"
	"liqo.io/liqo/internal/kube/clusterkey"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/peering/admission"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/tenant"
	"liqo.io/liqo/internal/peering/trust"
)

// +kubebuilder:rbac:groups=discovery.liqo.io,resources=foreignclusters,verbs=list;watch;create;patch
// +kubebuilder:rbac:namespace=liqo,groups="",resources=configmaps,verbs=get;list;watch;patch;delete

// pinServiceAccount is the key of a pin with the ServiceAccount that the peer may use.
const pinServiceAccount = "serviceAccount"

// Options configures the controller of the keys that consumers register.
type Options struct {
	// Local is this cluster.
	Local discoveryv1alpha1.ClusterIdentity
	// Namespace is the install namespace.
	Namespace string
	// InternalNetwork: the network fabric of Liqo joins the clusters.
	InternalNetwork bool
	// Limits bound how many clusters may register.
	Limits Limits
	// Admission decides whether a registered cluster may use this one.
	Admission admission.Policy
	Tenants   *tenant.Tenants
	// Workers is how many peers are reconciled concurrently. Default 10.
	Workers int
}

// reconciler admits the peers whose keys the authentication service pinned: it creates their tenants and records the
// namespace on the pin. The authentication service waits for that.
type reconciler struct {
	options  Options
	client   client.Client
	live     client.Reader // bypasses the cache
	watched  client.Reader // the cache. The client bypasses it for ConfigMaps: keys of peers.
	pins     *ssa.Applier
	recorder events.EventRecorder
	// admitting is held from reading what is registered until the ForeignCluster of a peer exists: two peers at the same time must neither get one name
	// nor both be the last one that the limits allow.
	admitting sync.Mutex
}

// Setup registers the controller of the keys that consumers register. The manager's cache must hold ConfigMaps of the install namespace.
func Setup(mgr manager.Manager, o Options) error {
	o.Workers = cmp.Or(o.Workers, 10)
	r := &reconciler{
		options: o, client: mgr.GetClient(), live: mgr.GetAPIReader(), watched: mgr.GetCache(),
		recorder: mgr.GetEventRecorder(labels.OwnerTenant), pins: ssa.NewApplier(mgr.GetClient(), labels.OwnerTenant),
	}
	toPin := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		if id := object.GetLabels()[labels.ClusterID]; id != "" {
			return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.Namespace, Name: auth.PinName(id)}}}
		}
		return nil
	})
	ours := builder.WithPredicates(predicate.NewPredicateFuncs(func(object client.Object) bool {
		return object.GetLabels()[labels.PinnedKey] == labels.True && object.GetNamespace() == o.Namespace
	}))
	err := builder.ControllerManagedBy(mgr).Named("peerkey").
		For(&corev1.ConfigMap{}, ours).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: o.Workers,
			RateLimiter:             kubemanager.RetryBackoff(),
		}).
		Watches(&corev1.ConfigMap{}, toPin, builder.WithPredicates(predicate.NewPredicateFuncs(func(object client.Object) bool {
			return object.GetLabels()[labels.PinnedKey] == auth.PinReplacement && object.GetNamespace() == o.Namespace
		}))).
		Watches(&discoveryv1alpha1.ForeignCluster{}, toPin, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Namespace{}, toPin).
		Watches(&corev1.ServiceAccount{}, toPin).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up controller of peers' keys: %w", err)
	}
	return nil
}

// Reconcile admits one peer.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var object corev1.ConfigMap
	if err := r.watched.Get(ctx, request.NamespacedName, &object); err != nil {
		if apierrors.IsNotFound(err) {
			r.pins.Forget(request.NamespacedName)
			err = r.dropReplacement(ctx, strings.TrimPrefix(request.Name, auth.PinName("")))
		}
		return reconcile.Result{}, err
	}
	if object.DeletionTimestamp != nil || object.Labels[labels.PinnedKey] != labels.True {
		return reconcile.Result{}, nil
	}
	pin, err := auth.ParsePin(&object)
	if err != nil {
		log.FromContext(ctx).Error(err, "key of a peer not usable; delete the ConfigMap, then the peer can register again")
		return reconcile.Result{}, nil
	}
	fc, err := r.admit(ctx, &object, &pin)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case fc == nil || fc.DeletionTimestamp != nil:
		return reconcile.Result{}, nil // the peer is refused, or the pin is deleted with the ForeignCluster
	}
	if replaced, err := r.replaceKeys(ctx, fc, &object, &pin); err != nil || replaced {
		return reconcile.Result{}, err
	}
	if err := r.pinPeer(ctx, fc, &pin); err != nil {
		return reconcile.Result{}, err
	}
	namespace, err := tenant.Namespace(ctx, r.client, pin.Cluster)
	if err != nil {
		return reconcile.Result{}, err
	}
	// The status of a new ForeignCluster follows, and the peer should not wait for it.
	decided, err := r.options.Admission.Decide(ctx, fc)
	if err != nil {
		return reconcile.Result{}, err
	}
	accepted := decided.State == discoveryv1alpha1.IncomingAccepted
	if fc.Status.Incoming != nil {
		accepted = fc.Status.Incoming.Keeps()
	}
	err = r.options.Tenants.Ensure(ctx, tenant.Tenant{Peer: pin.Cluster, Namespace: namespace, Admitted: true, Accepted: accepted})
	if errors.Is(err, tenant.ErrTerminating) {
		return reconcile.Result{RequeueAfter: 100 * time.Millisecond}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	intent := corev1apply.ConfigMap(object.Name, object.Namespace).WithUID(object.UID).
		WithData(map[string]string{auth.PinNamespace: namespace, pinServiceAccount: tenant.PeerAccount})
	if err := r.pins.ApplyTo(ctx, intent, &object); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil // it was deleted meanwhile, and perhaps created again
		}
		return reconcile.Result{}, fmt.Errorf("record on the pin that the tenant of %s is ready: %w", pin.Cluster.ClusterID, err)
	}
	if pin.Namespace == "" {
		trust.Normal(reasons.PeerAdmitted, fmt.Sprintf("cluster %s (%s) has registered, with a key of the fingerprint %s",
			pin.Cluster.ClusterName, pin.Cluster.ClusterID, clusterkey.Fingerprint(pin.ClusterKey))).Send(r.recorder, fc, "AdmitPeer")
	}
	return reconcile.Result{}, nil
}

// pinPeer stores the fingerprint of an admitted peer's key in a ForeignCluster that has none, which an administrator wrote by hand or to accept any key.
// What the peer signs is believed from then on.
func (r *reconciler) pinPeer(ctx context.Context, fc *discoveryv1alpha1.ForeignCluster, pin *auth.Pin) error {
	if fc.Spec.ClusterKey != "" {
		return nil
	}
	if err := r.setClusterKey(ctx, fc, clusterkey.Fingerprint(pin.ClusterKey)); err != nil {
		return err
	}
	log.FromContext(ctx).Info("key of the peer pinned", "clusterID", pin.Cluster.ClusterID, "fingerprint", fc.Spec.ClusterKey)
	return nil
}

func (r *reconciler) setClusterKey(ctx context.Context, fc *discoveryv1alpha1.ForeignCluster, fingerprint string) error {
	before := fc.DeepCopy()
	fc.Spec.ClusterKey = fingerprint
	// A conflict is an error here: the object is read again, and may have another key by then.
	if err := r.client.Patch(ctx, fc, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("pin the key of the peer in foreign cluster %s: %w", fc.Name, err)
	}
	return nil
}

// admit returns the ForeignCluster of a peer that is admitted, nil if the peer is refused or its key is gone.
func (r *reconciler) admit(ctx context.Context, object *corev1.ConfigMap, pin *auth.Pin) (*discoveryv1alpha1.ForeignCluster, error) {
	// An admitted peer stays admitted when the limits shrink, and while a rotation has replaced its key as our provider, but not yet the pinned one.
	if known, err := r.admitted(ctx, pin); err != nil {
		return nil, err
	} else if known {
		return r.foreignCluster(ctx, pin)
	}
	r.admitting.Lock()
	defer r.admitting.Unlock()
	reason, err := r.refusal(ctx, pin)
	switch {
	case err != nil:
		return nil, err
	case reason != "":
		return nil, r.refuse(ctx, object, reason)
	}
	return r.foreignCluster(ctx, pin)
}

// admitted reports whether this cluster has admitted a peer before. The namespace on the pin is no proof, because the authentication service can write
// pins. The account of the peer is one: only the controller manager creates it.
func (r *reconciler) admitted(ctx context.Context, pin *auth.Pin) (bool, error) {
	if pin.Namespace == "" {
		return false, nil
	}
	namespace, err := tenant.Namespace(ctx, r.client, pin.Cluster)
	if errors.Is(err, tenant.ErrTaken) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// A peer that is refused loses its pin, so the absence from the cache does not suffice.
	for _, reader := range []client.Reader{r.client, r.live} {
		if found, err := tenant.HasAccount(ctx, reader, namespace, pin.Cluster.ClusterID); err != nil || found {
			return found, err
		}
	}
	return false, nil
}

// refusal decides whether a peer is admitted.
func (r *reconciler) refusal(ctx context.Context, pin *auth.Pin) (string, error) {
	var all discoveryv1alpha1.ForeignClusterList
	if err := r.live.List(ctx, &all); err != nil { // the cache may not have a key that was pinned just now
		return "", fmt.Errorf("list foreign clusters: %w", err)
	}
	var pins corev1.ConfigMapList
	if err := r.live.List(ctx, &pins, client.InNamespace(r.options.Namespace), client.MatchingLabels{labels.PinnedKey: labels.True}); err != nil {
		return "", fmt.Errorf("list the keys of peers: %w", err)
	}
	var registered registrations
	for i := range pins.Items {
		data := pins.Items[i].Data
		// A peer counts from its ForeignCluster on, although its tenant may never be ready.
		if data[auth.PinNamespace] == "" && discoveryv1alpha1.OwnerOf(all.Items, data[auth.PinClusterID]) == nil || data[auth.PinClusterID] == pin.Cluster.ClusterID {
			continue
		}
		registered.total++
		if data[auth.PinTokenID] == pin.TokenID {
			registered.withToken++
		}
	}
	if refusal := admissionRefusal(pin, discoveryv1alpha1.OwnerOf(all.Items, pin.Cluster.ClusterID), registered, r.options.Limits); refusal != "" {
		return refusal, nil
	}
	if refusal := nameRefusal(pin.Cluster, all.Items); refusal != "" {
		return refusal, nil
	}
	_, err := tenant.Namespace(ctx, r.live, pin.Cluster)
	if errors.Is(err, tenant.ErrTaken) {
		return err.Error() + "; " + renameRemedy, nil
	}
	return "", err
}

// refuse reports to the authentication service why a peer is not admitted, and unpins its key, so that the cluster that has this ID can register.
func (r *reconciler) refuse(ctx context.Context, object *corev1.ConfigMap, reason string) error {
	trust.Warning(reasons.PeerRefused, reason).Send(r.recorder, object, "AdmitPeer")
	log.FromContext(ctx).Info("peer refused", "clusterID", object.Data[auth.PinClusterID], "reason", reason)
	intent := corev1apply.ConfigMap(object.Name, object.Namespace).WithUID(object.UID).WithData(map[string]string{auth.PinRefused: reason})
	if err := r.pins.ApplyTo(ctx, intent, object); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("record on the pin that %s is refused: %w", object.Data[auth.PinClusterID], err)
	}
	if err := r.client.Delete(ctx, object, client.Preconditions{UID: &object.UID}); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("unpin the key of %s: %w", object.Data[auth.PinClusterID], err)
	}
	return nil
}

// foreignCluster returns the peer's ForeignCluster and creates one if the API server, not only the cache, has none. It
// returns nil if the key is gone.
func (r *reconciler) foreignCluster(ctx context.Context, pin *auth.Pin) (*discoveryv1alpha1.ForeignCluster, error) {
	names := map[string]bool{}
	for _, reader := range []client.Reader{r.client, r.live} {
		var all discoveryv1alpha1.ForeignClusterList
		if err := reader.List(ctx, &all); err != nil {
			return nil, fmt.Errorf("list foreign clusters: %w", err)
		}
		for i := range all.Items {
			names[all.Items[i].Name] = true
		}
		if owner := discoveryv1alpha1.OwnerOf(all.Items, pin.Cluster.ClusterID); owner != nil {
			return owner, nil
		}
	}
	// A ForeignCluster is deleted after its key. So if both are gone, the cached key is stale: the peer was just removed.
	var still corev1.ConfigMap
	err := r.live.Get(ctx, client.ObjectKey{Namespace: r.options.Namespace, Name: auth.PinName(pin.Cluster.ClusterID)}, &still)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the key of %s: %w", pin.Cluster.ClusterID, err)
	}
	name := pin.Cluster.ClusterName
	if names[name] {
		name = pin.Cluster.UniqueName()
	}
	kind := discoveryv1alpha1.OutOfBand
	if pin.InBand && r.options.InternalNetwork {
		kind = discoveryv1alpha1.InBand // it accepted an invitation
	}
	fc := &discoveryv1alpha1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Finalizers: []string{labels.FinalizerPeer},
			Labels: map[string]string{labels.ClusterID: pin.Cluster.ClusterID, labels.DiscoveryType: labels.DiscoveryIncoming},
		},
		Spec: discoveryv1alpha1.ForeignClusterSpec{
			PeeringType: kind, ClusterIdentity: &pin.Cluster, ForeignAuthURL: pin.AuthURL, ClusterKey: clusterkey.Fingerprint(pin.ClusterKey),
			OutgoingPeeringEnabled: discoveryv1alpha1.PeeringAuto, IncomingPeeringEnabled: discoveryv1alpha1.PeeringAuto,
		},
	}
	if err := r.client.Create(ctx, fc); err != nil {
		return nil, fmt.Errorf("create foreign cluster %s for a peer that registered: %w", name, err)
	}
	log.FromContext(ctx).Info("peer admitted", "clusterID", pin.Cluster.ClusterID, "foreigncluster", name)
	return fc, nil
}
