// SPDX-License-Identifier: Apache-2.0

// Package manager makes the controller-runtime manager of each of our processes, with the same trimmed caches,
// limits and probes in all of them.
//
// It must not know any domain or kind of ours. Its proof is manager_test.go, against a real API server.
package manager

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/kube/version"
)

// Election of one among several replicas.
// +kubebuilder:rbac:namespace=liqo,groups=coordination.k8s.io,resources=leases,verbs=get;create;update
// +kubebuilder:rbac:namespace=liqo,groups="";events.k8s.io,resources=events,verbs=create;patch

const (
	qps, burst = 100, 200
	// ownerPrefix is what the names of most of our field owners begin with.
	ownerPrefix = "liqo"
	nowhere     = "0"
)

// otherOwners of ours are called as they are documented.
var otherOwners = []string{labels.OwnerShadowPod, labels.OwnerShadowSlice, labels.OwnerReflection}

// The lease of a leader that died is free after leaseDuration; one that ends in peace gives it back.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
	// shutdownTimeout fits into the 30 seconds that Kubernetes gives a pod.
	shutdownTimeout = 20 * time.Second
)

// Options is what differs between our processes.
type Options struct {
	Scheme *runtime.Scheme
	// MetricsAddress and HealthAddress are where metrics and probes are served; "" or "0" is nowhere.
	MetricsAddress, HealthAddress string
	// LeaderElection makes one of several replicas work; the lease is LeaderElectionID in Namespace.
	LeaderElection   bool
	LeaderElectionID string
	// Namespace is the install namespace.
	Namespace string
	// SecretNamespaces are the namespaces, besides Namespace, whose Secrets and ConfigMaps may be watched. Client
	// reads Secrets and ConfigMaps always from the API server: tenant namespaces come and go. Whoever wants them
	// from the cache uses GetCache.
	SecretNamespaces []string
	// Uncached are further kinds that the client reads from the API server.
	Uncached []client.Object
	// WebhookPort and WebhookCertDir are where webhooks are served; port 0 is nowhere.
	WebhookPort    int
	WebhookCertDir string
	// Cache adds to the defaults: what is set here wins.
	Cache cache.Options
	// SkipNameValidation lets a test make a manager a second time in one process.
	SkipNameValidation bool
}

// New returns a manager with our defaults: managed fields of strangers are not kept, Secrets and ConfigMaps are
// watched in named namespaces only, /healthz and /readyz are served, and readiness waits for the caches.
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
		// Some of our names are older than today's advice; once is enough.
		cfg.WarningHandlerWithContext = log.NewKubeAPIWarningLogger(log.KubeAPIWarningLoggerOptions{Deduplicate: true})
	}
	options := manager.Options{
		Scheme:  o.Scheme,
		Logger:  log.Log,
		Cache:   caches(o),
		Client:  client.Options{Cache: &client.CacheOptions{DisableFor: append([]client.Object{&corev1.Secret{}, &corev1.ConfigMap{}}, o.Uncached...)}},
		Metrics: metricsserver.Options{BindAddress: address(o.MetricsAddress)},

		HealthProbeBindAddress: address(o.HealthAddress),

		LeaderElection: o.LeaderElection, LeaderElectionID: o.LeaderElectionID, LeaderElectionNamespace: o.Namespace,
		// Our roles end when the manager ends, so the lease can be handed over at once.
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 new(leaseDuration), RenewDeadline: new(renewDeadline), RetryPeriod: new(retryPeriod),
		GracefulShutdownTimeout: new(shutdownTimeout),
	}
	options.Controller.SkipNameValidation = &o.SkipNameValidation
	if o.WebhookPort != 0 {
		options.WebhookServer = webhook.NewServer(webhook.Options{
			Port: o.WebhookPort, CertDir: o.WebhookCertDir,
			TLSOpts: []func(*tls.Config){func(config *tls.Config) { config.MinVersion = tls.VersionTLS12 }},
		})
	}
	made, err := manager.New(cfg, options)
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	return made, addChecks(made, o)
}

func address(text string) string {
	if text == "" {
		return nowhere
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
		switch object.(type) { // the caller's wish wins; two entries of a kind would be ambiguous
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

// Trim drops from an object what no part of us reads: the managed fields of strangers, and the copy of itself that
// kubectl leaves in an annotation. Our own managed fields stay, for package ssa to recognise our intents by.
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

func addChecks(made manager.Manager, o Options) error {
	if slices.Contains([]string{"", nowhere}, o.HealthAddress) {
		return nil
	}
	if err := made.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	return made.AddReadyzCheck("caches", func(request *http.Request) error {
		if !made.GetCache().WaitForCacheSync(request.Context()) {
			return errors.New("caches are not filled yet")
		}
		return nil
	})
}
