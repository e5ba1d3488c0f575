// SPDX-License-Identifier: Apache-2.0

// Package manager creates the controller-runtime manager of our processes, with the same trimmed caches, limits and
// probes in all of them.
//
// It must not know any domain or kind of ours. manager_test.go proves it against a real API server.
package manager

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/kube/version"
)

// Election of one among several replicas.
// +kubebuilder:rbac:namespace=liqo,groups=coordination.k8s.io,resources=leases,verbs=get;create;update
// +kubebuilder:rbac:namespace=liqo,groups="";events.k8s.io,resources=events,verbs=create;patch

const (
	qps, burst = 100, 200
	// ownerPrefix is the prefix of most of our field owners.
	ownerPrefix = "liqo"
	disabled    = "0" // an address that is not served
)

// otherOwners are those of our field owners whose documented names lack the prefix.
var otherOwners = []string{labels.OwnerShadowPod, labels.OwnerShadowSlice, labels.OwnerReflection}

// The lease of a leader that crashed is free after leaseDuration; a leader that shuts down releases it.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
	// shutdownTimeout fits into the 30 seconds that Kubernetes gives a pod.
	shutdownTimeout = 20 * time.Second
)

// Options holds the settings that differ between our processes.
type Options struct {
	Scheme *runtime.Scheme
	// MetricsAddress and HealthAddress are the addresses for metrics and probes; "" or "0" serves none.
	MetricsAddress, HealthAddress string
	// LeaderElection makes only one of several replicas run controllers; the lease is LeaderElectionID in Namespace.
	LeaderElection   bool
	LeaderElectionID string
	// Namespace is the install namespace.
	Namespace string
	// SecretNamespaces are the namespaces, besides Namespace, whose Secrets and ConfigMaps may be watched. GetClient
	// always reads Secrets and ConfigMaps from the API server, because tenant namespaces come and go. GetCache reads
	// them from the cache.
	SecretNamespaces []string
	// Uncached are further kinds that the client reads from the API server.
	Uncached []client.Object
	// WebhookPort is the port of webhooks, and WebhookCertDir holds its certificate and the secret segment of its paths; port 0 serves none.
	WebhookPort    int
	WebhookCertDir string
	// Cache adds to the defaults and overrides them.
	Cache cache.Options
	// SkipNameValidation allows a test to create several managers in one process.
	SkipNameValidation bool
}

// New returns a manager with our defaults: the caches drop managed fields of other owners, Secrets and ConfigMaps are
// watched only in named namespaces, /healthz and /readyz are served, and readiness waits for the caches.
func New(cfg *rest.Config, o Options) (manager.Manager, error) {
	if o.Scheme == nil {
		return nil, errors.New("a manager needs a scheme")
	}
	if o.LeaderElection && (o.LeaderElectionID == "" || o.Namespace == "") {
		return nil, errors.New("leader election needs a name and a namespace for its lease")
	}
	cfg = rest.CopyConfig(cfg)
	if cfg.QPS == 0 {
		cfg.QPS, cfg.Burst = qps, burst
	}
	if cfg.UserAgent == "" {
		cfg.UserAgent = "liqo/" + version.Version
	}
	if cfg.WarningHandler == nil && cfg.WarningHandlerWithContext == nil {
		// Some of our documented names cause a warning at every write; log each warning once.
		cfg.WarningHandlerWithContext = log.NewKubeAPIWarningLogger(log.KubeAPIWarningLoggerOptions{Deduplicate: true})
	}
	options := manager.Options{
		Scheme: o.Scheme,
		Logger: log.Log,
		Cache:  caches(o),
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: append([]client.Object{&corev1.Secret{}, &corev1.ConfigMap{}}, o.Uncached...)}},
		// Both are served with bounds of ours, see ports.go.
		Metrics: metricsserver.Options{BindAddress: disabled}, HealthProbeBindAddress: disabled,

		LeaderElection: o.LeaderElection, LeaderElectionID: o.LeaderElectionID, LeaderElectionNamespace: o.Namespace,
		// A role ends with its manager, so the lease can be released at once.
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 new(leaseDuration), RenewDeadline: new(renewDeadline), RetryPeriod: new(retryPeriod),
		GracefulShutdownTimeout: new(shutdownTimeout),
	}
	options.Controller.SkipNameValidation = &o.SkipNameValidation
	if o.WebhookPort != 0 {
		server, err := newWebhooks(o.WebhookPort, o.WebhookCertDir)
		if err != nil {
			return nil, err
		}
		options.WebhookServer = server
	}
	made, err := manager.New(cfg, options)
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	return withPorts(made, o)
}

func address(text string) string {
	if text == "" {
		return disabled
	}
	return text
}

func caches(o Options) cache.Options {
	options := o.Cache
	if options.DefaultTransform == nil {
		options.DefaultTransform = Trim
	}
	namespaces := map[string]cache.Config{}
	for _, namespace := range append([]string{o.Namespace}, o.SecretNamespaces...) {
		if namespace != "" {
			namespaces[namespace] = cache.Config{}
		}
	}
	if len(namespaces) == 0 {
		return options
	}
	byObject := map[client.Object]cache.ByObject{&corev1.Secret{}: {Namespaces: namespaces}, &corev1.ConfigMap{}: {Namespaces: namespaces}}
	for object := range o.Cache.ByObject {
		switch object.(type) { // the caller's entry wins; two entries of a kind would be ambiguous
		case *corev1.Secret:
			maps.DeleteFunc(byObject, func(own client.Object, _ cache.ByObject) bool { _, is := own.(*corev1.Secret); return is })
		case *corev1.ConfigMap:
			maps.DeleteFunc(byObject, func(own client.Object, _ cache.ByObject) bool { _, is := own.(*corev1.ConfigMap); return is })
		}
	}
	maps.Copy(byObject, o.Cache.ByObject)
	options.ByObject = byObject
	return options
}

// Trim drops the parts of an object that our code does not read: the managed fields of other owners, and the copy of the
// object in the annotation of kubectl. It keeps our own managed fields, by which package ssa recognises our intents.
func Trim(in any) (any, error) {
	if object, ok := in.(client.Object); ok {
		if annotations := object.GetAnnotations(); annotations[corev1.LastAppliedConfigAnnotation] != "" {
			kept := maps.Clone(annotations)
			delete(kept, corev1.LastAppliedConfigAnnotation)
			object.SetAnnotations(kept)
		}
	}
	return ssa.Owned(func(owner string) bool {
		return strings.HasPrefix(owner, ownerPrefix) || slices.Contains(otherOwners, owner)
	})(in)
}
