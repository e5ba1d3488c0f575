// SPDX-License-Identifier: Apache-2.0

package standby

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	klabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/domain"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/offloading/names"
)

// The slices of the cluster's DNS are in a namespace that the chart knows only by a value.
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo,groups="",resources=services,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo,groups=discovery.k8s.io,resources=endpointslices,verbs=create;patch

// Options of Setup.
type Options struct {
	// Service is that of our name server, DNS that of the cluster's.
	Service, DNS types.NamespacedName
	// Cluster is what the kubelet of this process states about the names of this cluster.
	Cluster domain.Resolver
}

// Standby knows whether pods may use our name server. It is safe for concurrent use.
type Standby struct {
	options Options
	cached  cache.Cache
	own     *ssa.Applier
	// settings are nil until it is known whether there are any.
	settings atomic.Pointer[names.Settings]
}

// Setup registers the controller.
func Setup(mgr manager.Manager, o Options) (*Standby, error) {
	both, err := klabels.NewRequirement(discoveryv1.LabelServiceName, selection.In, []string{o.Service.Name, o.DNS.Name})
	if err != nil {
		return nil, fmt.Errorf("names of the Services of DNS: %w", err)
	}
	of := cache.Config{LabelSelector: klabels.NewSelector().Add(*both)}
	cached, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), DefaultTransform: kubemanager.Trim,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Service{}: {
				Namespaces: map[string]cache.Config{o.Service.Namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", o.Service.Name)}},
			},
			&discoveryv1.EndpointSlice{}: {Namespaces: map[string]cache.Config{o.Service.Namespace: of, o.DNS.Namespace: of}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cache of the Services of DNS: %w", err)
	}
	s := &Standby{options: o, cached: cached, own: ssa.NewApplier(mgr.GetClient(), labels.OwnerStandby)}
	if err := mgr.Add(cached); err != nil {
		return nil, err
	}
	enqueue := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: o.Service}}
	})
	first := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(reconcile.Request{NamespacedName: o.Service}) // there may be neither Service nor slices
		return nil
	})
	err = builder.ControllerManagedBy(mgr).Named("standby").
		WatchesRawSource(source.Kind(cached, client.Object(&corev1.Service{}), enqueue)).
		WatchesRawSource(source.Kind(cached, client.Object(&discoveryv1.EndpointSlice{}), enqueue)).
		WatchesRawSource(first).
		Complete(s)
	if err != nil {
		return nil, fmt.Errorf("set up controller of the standby of the name server: %w", err)
	}
	return s, nil
}

// Settings are what pods of peers get, empty if they are to use the DNS of the cluster. It fails while this is not known.
func (s *Standby) Settings() (names.Settings, error) {
	if known := s.settings.Load(); known != nil {
		return *known, nil
	}
	return names.Settings{}, errors.New("it is not known yet whether pods of peers use the name server of Liqo; retrying")
}

// Reconcile keeps the slice.
func (s *Standby) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var service corev1.Service
	if err := s.cached.Get(ctx, s.options.Service, &service); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("read Service %s: %w", s.options.Service, err)
	}
	address := addressOf(&service)
	if !address.IsValid() || service.DeletionTimestamp != nil {
		s.decide(ctx, names.Settings{}, "there is no Service "+s.options.Service.String())
		return reconcile.Result{}, nil
	}
	var dns discoveryv1.EndpointSliceList
	if err := s.cached.List(
		ctx, &dns, client.InNamespace(s.options.DNS.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: s.options.DNS.Name},
	); err != nil {
		return reconcile.Result{}, fmt.Errorf("list the endpoints of %s: %w", s.options.DNS, err)
	}
	var live discoveryv1.EndpointSlice
	err := s.cached.Get(ctx, types.NamespacedName{Namespace: service.Namespace, Name: sliceName}, &live)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("read EndpointSlice %s: %w", sliceName, err)
	}
	exists := err == nil
	if intent := plan(&service, dns.Items); intent != nil {
		var to client.Object
		if exists {
			to = &live
		}
		if err := s.own.ApplyTo(ctx, intent, to); apierrors.IsConflict(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return reconcile.Result{}, nil // the event follows
		} else if err != nil {
			return reconcile.Result{}, fmt.Errorf("write EndpointSlice %s: %w", sliceName, err)
		}
	} else if !exists { // one that is there stays: its pods may come back, and no others are known
		s.decide(
			ctx, names.Settings{},
			"the DNS of this cluster, Service "+s.options.DNS.String()+", has no endpoints to fall back on; if it has another name, set the value dns.clusterService",
		)
		return reconcile.Result{}, nil
	}
	s.decide(ctx, names.Settings{Server: address, Domain: s.options.Cluster.Domain, Searches: s.options.Cluster.Searches}, "")
	return reconcile.Result{}, nil
}

// decide records what new pods get.
func (s *Standby) decide(ctx context.Context, settings names.Settings, problem string) {
	before := s.settings.Swap(&settings)
	switch {
	case before != nil && before.Server == settings.Server:
	case problem != "":
		log.FromContext(ctx).Info("new pods of peers do not find Services by the names that these have in their cluster", "reason", problem)
	default:
		log.FromContext(ctx).Info("new pods of peers use the name server of Liqo", "address", settings.Server)
	}
}
