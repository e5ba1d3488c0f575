// SPDX-License-Identifier: Apache-2.0

// Package foreigncluster is the consumer's side of a peering, in both directions: tenant, identity, connection and request, as a list of phases. Package spec
// decides what a ForeignCluster asks for, package conditions what it reports. It must not know what runs on the virtual node, nor how packets are routed.
package foreigncluster

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	discoveryapply "liqo.io/liqo/apis/applyconfiguration/discovery/v1alpha1"
	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/peering/admission"
	"liqo.io/liqo/internal/peering/auth"
	authclient "liqo.io/liqo/internal/peering/auth/client"
	"liqo.io/liqo/internal/peering/auth/published"
	"liqo.io/liqo/internal/peering/conditions"
	"liqo.io/liqo/internal/peering/identity"
	"liqo.io/liqo/internal/peering/invitation"
	"liqo.io/liqo/internal/peering/ownkeys"
	"liqo.io/liqo/internal/peering/ownproxy"
	"liqo.io/liqo/internal/peering/reach"
	"liqo.io/liqo/internal/peering/replicate"
	"liqo.io/liqo/internal/peering/tenant"
)

// +kubebuilder:rbac:groups=discovery.liqo.io,resources=foreignclusters,verbs=list;watch;patch
// +kubebuilder:rbac:groups=discovery.liqo.io,resources=foreignclusters/status,verbs=patch
// +kubebuilder:rbac:groups=sharing.liqo.io,resources=resourceslices,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=net.liqo.io,resources=networkconfigs;tunnelendpoints,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo-tenant,groups=net.liqo.io,resources=networkconfigs,verbs=delete
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo,groups="",resources=configmaps,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:namespace=liqo,groups="",resources=secrets,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:namespace=liqo-tenant,groups="",resources=secrets,verbs=get;create;patch;delete
// +kubebuilder:rbac:namespace=liqo,groups="",resources=services,resourceNames=liqo-auth;liqo-proxy,verbs=get
// +kubebuilder:rbac:groups=net.liqo.io,resources=ipmappings,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:namespace=liqo,groups=networking.k8s.io,resources=ingresses,verbs=list

// Connector connects to peers and copies objects there. [replicate.Replicator] implements it.
type Connector interface {
	Connect(ctx context.Context, p replicate.Peer) error
	Disconnect(clusterID string)
	State(clusterID string) replicate.State
	Changed() <-chan event.TypedGenericEvent[string]
}

// Registrar calls the authentication service of a peer. [authclient.Client] implements it.
type Registrar interface {
	IDs(ctx context.Context) (authclient.IDs, error)
	Register(ctx context.Context, r authclient.Registration) (auth.Grant, error)
	Renew(ctx context.Context, provider authclient.Provider, cluster discoveryv1alpha1.ClusterIdentity, key ed25519.PrivateKey) (auth.Grant, error)
}

// Options configures the controller of ForeignClusters.
type Options struct {
	// Local is this cluster.
	Local discoveryv1alpha1.ClusterIdentity
	// Namespace is the install namespace.
	Namespace string
	// AutoJoin: outgoingPeeringEnabled Auto means Yes for clusters found on the LAN.
	AutoJoin bool
	// Admission decides whether the peer may use this cluster.
	Admission admission.Policy
	Tenants   *tenant.Tenants
	// InternalNetwork: the network fabric of Liqo joins the clusters.
	InternalNetwork bool
	Connector       Connector
	// Dial returns a client of an authentication service. Nil means an HTTPS client.
	Dial func(fc *discoveryv1alpha1.ForeignCluster) (Registrar, error)
	// DialThrough is the same over connections that it opens otherwise. Nil means an HTTPS client.
	DialThrough func(fc *discoveryv1alpha1.ForeignCluster, open invitation.Dialer) (Registrar, error)
	// SharedToken: a token that every cluster may use for first contact is kept in Secret auth-token.
	SharedToken bool
	// Workers is how many peers are reconciled concurrently. Default 10.
	Workers int
	// Now is the clock. Nil means the system clock.
	Now func() time.Time
}

func (o *Options) complete() {
	if o.Workers == 0 {
		o.Workers = 10
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Dial == nil {
		o.Dial = func(fc *discoveryv1alpha1.ForeignCluster) (Registrar, error) { return dial(fc, nil) }
	}
	if o.DialThrough == nil {
		o.DialThrough = dial
	}
}

// idsTimeout is how long the authentication service of a peer may take to report which cluster it belongs to.
const idsTimeout = 5 * time.Second

func dial(fc *discoveryv1alpha1.ForeignCluster, open invitation.Dialer) (Registrar, error) {
	insecure := fc.Spec.InsecureSkipTLSVerify == nil || *fc.Spec.InsecureSkipTLSVerify
	return authclient.New(fc.Spec.ForeignAuthURL, authclient.Options{
		InsecureSkipTLSVerify: insecure, ProxyURL: fc.Spec.ForeignProxyURL, Dial: open, Timeout: identity.RegisterTimeout,
	})
}

// reconciler establishes and ends the peerings that a ForeignCluster asks for, in both directions.
type reconciler struct {
	options          Options
	client           client.Client
	live             client.Reader // bypasses the cache
	watched          client.Reader // the cache. The client bypasses it for ConfigMaps and Secrets: keys and tokens of peers.
	keys             ownkeys.Store
	own              *ssa.Applier // with the field owner of this controller
	identityRequests *identity.Requests
	events           events.EventRecorder
	// authSlots bounds how many workers wait for authentication services, so that unreachable ones leave workers for
	// the peers that answer.
	authSlots chan struct{}
	address   published.Own
	proxies   ownproxy.Mappings
	ways      invitation.Ways // to providers that invited this cluster
	// nodeNaming is held from choosing the name of a virtual node until the name is stored.
	nodeNaming sync.Mutex
}

// Setup registers the controller of ForeignClusters. The manager's cache must hold ConfigMaps and Secrets of the install namespace. It may be restricted to
// namespaces, accounts and bindings with our label.
func Setup(mgr manager.Manager, o Options) error {
	o.complete()
	r := &reconciler{
		options: o, client: mgr.GetClient(), live: mgr.GetAPIReader(), watched: mgr.GetCache(),
		keys:             ownkeys.Store{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Namespace: o.Namespace},
		own:              ssa.NewApplier(mgr.GetClient(), labels.OwnerForeignCluster),
		identityRequests: identity.NewRequests(),
		events:           mgr.GetEventRecorder(labels.OwnerForeignCluster),
		authSlots:        make(chan struct{}, max(1, o.Workers/2)),
		address:          published.Own{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Namespace: o.Namespace},
	}
	r.proxies = ownproxy.Mappings{Client: r.client, Live: r.live, Own: r.own, Namespace: o.Namespace}
	changed := builder.WithPredicates(predicate.Or(
		predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{}))
	byLabel := handler.EnqueueRequestsFromMapFunc(r.byLabel)
	byNamespace := handler.EnqueueRequestsFromMapFunc(r.byNamespace)
	controllers := builder.ControllerManagedBy(mgr).Named("foreigncluster").
		For(&discoveryv1alpha1.ForeignCluster{}, changed).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: o.Workers,
			RateLimiter:             kubemanager.RetryBackoff(),
		}).
		Watches(&sharingv1alpha1.ResourceSlice{}, byNamespace).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.byTenant)).
		Watches(&corev1.ServiceAccount{}, byLabel).
		Watches(&rbacv1.RoleBinding{}, byLabel).
		Watches(&corev1.ConfigMap{}, byLabel).
		Watches(&corev1.Secret{}, byLabel).
		WatchesRawSource(source.TypedChannel(o.Connector.Changed(), handler.TypedEnqueueRequestsFromMapFunc(r.byID)))
	if o.InternalNetwork {
		controllers.Watches(&netv1alpha1.NetworkConfig{}, byNamespace).Watches(&netv1alpha1.TunnelEndpoint{}, byNamespace).
			Watches(&netv1alpha1.IPMapping{}, byLabel)
	}
	o.Admission.Policies.Watch(controllers, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		return r.find(ctx, func(*discoveryv1alpha1.ForeignCluster) bool { return true })
	}))
	if err := controllers.Complete(r); err != nil {
		return fmt.Errorf("set up controller of foreign clusters: %w", err)
	}
	// Created before the first peering, so that ending the last peering restores the state before the first one.
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if _, err := r.keys.Roots(ctx); err != nil {
			log.FromContext(ctx).Error(err, "root key of this cluster not created, the first peering will try again")
		}
		// The authentication service cannot answer before it exists.
		return wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
			_, err := r.keys.Cluster(ctx)
			if err == nil && r.options.SharedToken {
				err = r.keys.SharedToken(ctx)
			}
			if err == nil && r.options.InternalNetwork {
				err = r.keys.Proxy(ctx)
			}
			if err != nil {
				log.FromContext(ctx).Error(err, "key or token of this cluster not available, trying again")
			}
			return err == nil, nil
		})
	}))
}

// byLabel finds the ForeignCluster of an object that carries the peer's cluster ID.
func (r *reconciler) byLabel(ctx context.Context, object client.Object) []reconcile.Request {
	return r.byID(ctx, object.GetLabels()[labels.ClusterID])
}

// byTenant finds the ForeignCluster of a tenant namespace, and those that would have it if it were not another cluster's.
func (r *reconciler) byTenant(ctx context.Context, namespace client.Object) []reconcile.Request {
	return r.find(ctx, func(fc *discoveryv1alpha1.ForeignCluster) bool {
		peer := fc.Spec.ClusterIdentity
		return peer != nil && peer.ClusterID != "" && (peer.ClusterID == namespace.GetLabels()[labels.ClusterID] || peer.TenantNamespace() == namespace.GetName())
	})
}

// byNamespace finds the ForeignCluster by the tenant namespace of an object. It ignores labels: the peer chooses those
// of its copies.
func (r *reconciler) byNamespace(ctx context.Context, object client.Object) []reconcile.Request {
	return r.find(ctx, func(fc *discoveryv1alpha1.ForeignCluster) bool {
		return fc.Status.TenantNamespace.Local == object.GetNamespace() ||
			fc.Spec.ClusterIdentity != nil && fc.Spec.ClusterIdentity.TenantNamespace() == object.GetNamespace()
	})
}

func (r *reconciler) byID(ctx context.Context, clusterID string) []reconcile.Request {
	if clusterID == "" {
		return nil
	}
	return r.find(ctx, func(fc *discoveryv1alpha1.ForeignCluster) bool {
		return fc.Spec.ClusterIdentity != nil && fc.Spec.ClusterIdentity.ClusterID == clusterID
	})
}

func (r *reconciler) find(ctx context.Context, fits func(*discoveryv1alpha1.ForeignCluster) bool) (requests []reconcile.Request) {
	var all discoveryv1alpha1.ForeignClusterList
	if err := r.client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "event not attributed to a foreign cluster")
		return nil
	}
	for i := range all.Items {
		if fits(&all.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: all.Items[i].Name}})
		}
	}
	return requests
}

// scope is the state of one reconciliation of a ForeignCluster.
type scope struct {
	fc *discoveryv1alpha1.ForeignCluster
	// peer is set once the identity is known.
	peer discoveryv1alpha1.ClusterIdentity
	// namespace is the peer's tenant namespace in this cluster.
	namespace string
	// invitation is nil if the peer has not invited this cluster.
	invitation *invitation.Invitation
	// way is how the peer is reached.
	way reach.Plan
	// remote is our tenant namespace in the peer, once known.
	remote string
	// version of the peer, once known.
	version string
	// forced: all deadlines are zero.
	forced bool
	// gone: the finalizer was removed, so there is no status to write.
	gone         bool
	facts        conditions.Facts
	now          time.Time
	requeueAfter time.Duration
}

// requeueWithin requests the next reconciliation after d at the latest.
func (s *scope) requeueWithin(d time.Duration) {
	d = max(d, 10*time.Millisecond)
	if s.requeueAfter == 0 || d < s.requeueAfter {
		s.requeueAfter = d
	}
}

// errWaiting stops the phases without a failure: an event or a requeue triggers the next reconciliation.
var errWaiting = errors.New("waiting")

// Reconcile runs the phases in order until one returns an error; errWaiting is not reported. It always writes the status.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var fc discoveryv1alpha1.ForeignCluster
	if err := r.client.Get(ctx, request.NamespacedName, &fc); err != nil {
		r.identityRequests.Forget(request.Name)
		r.own.Forget(request.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	s := &scope{
		fc: &fc, now: r.options.Now(), forced: fc.Annotations[labels.ForceUnpeer] == labels.True, remote: fc.Status.TenantNamespace.Remote,
		version: fc.Status.RemoteVersion,
	}
	s.facts.Spec, s.facts.InternalNetwork = &fc.Spec, r.options.InternalNetwork
	var failure error
	for _, phase := range r.phases() {
		if failure = phase(ctx, s); failure != nil {
			break
		}
	}
	if errors.Is(failure, errWaiting) {
		failure = nil
	}
	s.facts.Failure = failure
	if !s.gone {
		failure = errors.Join(failure, r.writeStatus(ctx, s))
	}
	if failure != nil {
		return reconcile.Result{}, failure
	}
	return reconcile.Result{RequeueAfter: s.requeueAfter}, nil
}

// phases of a peering, in order.
func (r *reconciler) phases() []func(context.Context, *scope) error {
	return []func(context.Context, *scope) error{
		r.observe,
		r.ensureProcessable,
		r.ensureFinalizer,
		r.decideIncoming,
		r.endInvitation,
		r.planWay,
		r.ensureTenant,
		r.ensureProxy,
		r.ensureSlice,
		r.ensureIdentity,
		r.ensureConnection,
		r.ensureOffer,
		r.ensureDeletion,
		r.ensureUse,
	}
}

// writeStatus applies the observed facts to the status, if they changed it.
func (r *reconciler) writeStatus(ctx context.Context, s *scope) error {
	now := conditions.Current(s.fc.Status.PeeringConditions, &s.facts)
	conditions.Stamp(s.fc.Status.PeeringConditions, now, s.now)
	failed, generation := s.facts.Failure != nil, s.fc.Generation
	if failed {
		generation = s.fc.Status.ObservedGeneration
	}
	status := discoveryapply.ForeignClusterStatus().WithObservedGeneration(generation)
	// A phase that failed before the decision must not take the last one away: namespaces and network of the peer follow it.
	if incoming := cmp.Or(s.facts.Incoming, s.fc.Status.Incoming); incoming != nil {
		status.WithIncoming(discoveryapply.IncomingStatus().WithState(incoming.State).WithSince(incoming.Since).WithMessage(incoming.Message))
	}
	for i := range now {
		c := &now[i]
		status.WithPeeringConditions(discoveryapply.PeeringCondition().WithType(c.Type).WithStatus(c.Status).
			WithReason(c.Reason).WithMessage(c.Message).WithLastTransitionTime(c.LastTransitionTime))
	}
	namespaces := discoveryapply.TenantNamespaces()
	if local := cmp.Or(s.namespace, s.fc.Status.TenantNamespace.Local); s.namespace != "" || failed && local != "" {
		namespaces.WithLocal(local)
	}
	if s.remote != "" && (failed || s.facts.Identity != conditions.IdentityNotNeeded) {
		namespaces.WithRemote(s.remote)
	}
	status.WithTenantNamespace(namespaces)
	if s.version != "" {
		status.WithRemoteVersion(s.version)
	}
	changed := admission.Event(s.fc.Status.Incoming, s.facts.Incoming)
	intent := discoveryapply.ForeignCluster(s.fc.Name).WithUID(s.fc.UID).WithStatus(status)
	if err := r.own.ApplyStatusTo(ctx, intent, s.fc); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("status of foreign cluster %s: %w", s.fc.Name, err)
	}
	changed.Send(r.events, s.fc, "DecideIncoming")
	return nil
}
