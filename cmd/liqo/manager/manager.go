// SPDX-License-Identifier: Apache-2.0

// Package manager is the role controller-manager: the options of each controller folder are filled from flags, in a file for each
// domain. Its proof are caches_test.go and the tests of cmd/liqo.
package manager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	klabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/cmd/liqo/role"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/kube/policies"
	"liqo.io/liqo/internal/kube/scheme"
	"liqo.io/liqo/internal/network"
	"liqo.io/liqo/internal/offloading/hosts"
	"liqo.io/liqo/internal/offloading/kubelet"
	"liqo.io/liqo/internal/offloading/providers"
	"liqo.io/liqo/internal/offloading/remotenamespace"
	"liqo.io/liqo/internal/offloading/shadowpod"
	"liqo.io/liqo/internal/offloading/shadowslice"
	"liqo.io/liqo/internal/offloading/virtualnode"
	offloadingwebhook "liqo.io/liqo/internal/offloading/webhook"
	"liqo.io/liqo/internal/peering/grant"
	peeringwebhook "liqo.io/liqo/internal/peering/webhook"
	"liqo.io/liqo/internal/storage"
	"liqo.io/liqo/internal/storage/home"
	"liqo.io/liqo/internal/storage/move"
)

// LeaseName is the documented name of the Lease that replicas of the controller manager compete for.
const LeaseName = "66cf253f.ctrlmgr.liqo.io"

// Role runs the control loops and webhooks of all domains.
func Role() role.Role {
	return role.Role{Name: "controller-manager", Short: "Run the control loops and webhooks of a cluster", New: func() *cobra.Command {
		var o Options
		return role.Command(&o, config.GetConfig, func(cmd *cobra.Command, cfg *rest.Config) error {
			return runControllerManager(cmd.Context(), cfg, &o)
		})
	}}
}

type Options struct {
	local          discoveryv1alpha1.ClusterIdentity
	namespace      string
	metricsAddress string
	healthAddress  string
	webhookPort    int
	webhookCerts   string
	leaderElection bool
	ResyncPeriod   time.Duration

	disableInternalNetwork bool
	peering                peeringOptions
	kubelet                kubelet.Options
	nodeExtraAnnotations   map[string]string
	nodeExtraLabels        map[string]string
	drainDeadline          time.Duration
	drainDeadlineUnreached time.Duration

	podCIDRs        []string
	serviceCIDRs    []string
	reservedPools   []string
	additionalPools []string
	remapPools      []string
	unmapped        []string

	shadows shadowOptions
	storage bool
	volumes storage.Options
	moves   move.Options
	pull    pullOptions
	// policies: admission policies are required; furtherPolicies are those that only some values of the chart ask for.
	policies        bool
	furtherPolicies []string
	// peerNames are the namespaces that peers may ask for by name.
	peerNames remotenamespace.PeerNames
}

func (o *Options) Register(flags *pflag.FlagSet) {
	flags.StringVar(&o.local.ClusterID, "cluster-id", os.Getenv("CLUSTER_ID"), "ID of this cluster")
	flags.StringVar(&o.local.ClusterName, "cluster-name", os.Getenv("CLUSTER_NAME"), "name of this cluster")
	flags.StringVar(&o.namespace, "liqo-namespace", role.AuthEnvironment("POD_NAMESPACE", "liqo"), "namespace in which Liqo is installed")
	flags.StringVar(&o.metricsAddress, "metrics-address", ":8080", "address of the metrics; 0 for none")
	flags.StringVar(&o.healthAddress, "health-probe-address", ":8081", "address of the probes /healthz and /readyz")
	flags.IntVar(&o.webhookPort, "webhook-port", 9443, "port of the webhooks; 0 for none")
	flags.StringVar(&o.webhookCerts, "webhook-cert-dir", "/tmp/k8s-webhook-server/serving-certs",
		"directory with tls.crt and tls.key of the webhooks, and path, the secret segment of their paths")
	flags.BoolVar(&o.leaderElection, "enable-leader-election", false, "only one of several replicas runs the controllers at a time")
	flags.DurationVar(&o.ResyncPeriod, "resync-period", 10*time.Hour, "interval at which the controllers process all objects again, besides every change")
	flags.BoolVar(&o.disableInternalNetwork, "disable-internal-network", true, "Liqo does not connect the networks of the clusters; another network does")
	o.peering.register(flags)
	o.kubelet.Register(flags)
	o.shadows.Register(flags)
	flags.BoolVar(&o.policies, "policies-required", true, "admit nothing new of peers while a ValidatingAdmissionPolicy or validating webhook of Liqo is "+
		"missing or changed")
	flags.StringSliceVar(&o.furtherPolicies, "further-policy", nil, "another ValidatingAdmissionPolicy that is required; may be repeated")
	flags.StringSliceVar(&o.peerNames.Allow, "peer-namespaces-allow", []string{"*"}, "patterns of the namespaces that peers may ask for by name (PATTERN,...)")
	flags.StringSliceVar(&o.peerNames.Deny, "peer-namespaces-deny", nil, "patterns of the namespaces that peers may not ask for, even if they are allowed "+
		"(PATTERN,...)")
	role.Ignore(flags, role.NoteIPAM, "kubelet-ipam-server")
	role.IgnoreSwitch(flags, role.NoteOffers, "offer-disable-auto-accept")
	flags.BoolVar(&o.storage, "enable-storage", false, "make the volumes of claims of virtual storage classes")
	flags.StringVar(&o.volumes.RealClass, "real-storage-class-name", "", "storage class of this cluster for claims whose virtual class names none "+
		"(default: the cluster's default class)")
	flags.StringVar(&o.volumes.Namespace, "storage-namespace", "liqo-storage", "namespace of the claims that hold the data of this cluster")
	flags.StringVar(&o.moves.Image, "volume-mover-image", "", "image of the pods that copy a volume which moves to another cluster; empty for none, and no "+
		"volume moves")
	o.pull.Register(flags)
	role.Ignore(flags, role.NoteClasses, "virtual-storage-class-name")
	role.IgnoreSwitch(flags, role.NoteNodeFailure, "enable-node-failure-controller")
	flags.StringToStringVar(&o.nodeExtraAnnotations, "node-extra-annotations", nil, "annotations of virtual nodes (KEY=VALUE,...)")
	flags.StringToStringVar(&o.nodeExtraLabels, "node-extra-labels", nil, "labels of virtual nodes (KEY=VALUE,...)")
	flags.DurationVar(&o.drainDeadline, "drain-deadline", 2*time.Minute, "time for the pods to leave a virtual node when its peering ends")
	flags.DurationVar(&o.drainDeadlineUnreached, "drain-deadline-unreachable", 25*time.Second, "the same, if the provider does not answer")
	flags.StringSliceVar(&o.podCIDRs, "pod-cidr", nil, "networks of the pods of this cluster (CIDR,...); peers use the first one")
	flags.StringSliceVar(&o.serviceCIDRs, "service-cidr", nil, "networks of the Services of this cluster (CIDR,...)")
	flags.StringSliceVar(&o.reservedPools, "reserved-pools", nil, "networks that are never used to remap a peer (CIDR,...)")
	flags.StringSliceVar(&o.additionalPools, "additional-pools", nil, "further networks that peers are remapped to, after --remap-pools (CIDR,...)")
	flags.StringSliceVar(&o.remapPools, "remap-pools", []string{"242.0.0.0/8"}, "networks set apart: the networks of peers are remapped to these (CIDR,...)")
	flags.StringSliceVar(&o.unmapped, "unmapped-networks", nil, "networks of peers that are used as they are, if a peer announces one inside of them (CIDR,...)")
}

func (o *Options) Validate() error {
	switch {
	case o.local.ClusterID == "" || o.local.ClusterName == "":
		return errors.New("--cluster-id and --cluster-name, or the variables CLUSTER_ID and CLUSTER_NAME, must identify this cluster")
	case o.namespace == "":
		return errors.New("--liqo-namespace must not be empty")
	case o.ResyncPeriod <= 0:
		return fmt.Errorf("--resync-period %v must be positive", o.ResyncPeriod)
	}
	if err := o.peering.validate(); err != nil {
		return err
	}
	if _, _, err := o.network(); err != nil {
		return err
	}
	if err := o.shadows.Validate(); err != nil {
		return err
	}
	if err := o.peerNames.Validate(); err != nil {
		return fmt.Errorf("--peer-namespaces-allow and --peer-namespaces-deny: %w", err)
	}
	return errors.Join(o.pull.Validate(), o.kubelet.Validate())
}

// network returns the options of the controllers of the network fabric, and the networks of this cluster. Without the fabric, these may be missing.
func (o *Options) network() (fabric network.Options, own []netip.Prefix, err error) {
	options := network.Options{Local: o.local, Namespace: o.namespace}
	options.IPMapping.APIServer, _ = netip.ParseAddr(os.Getenv("KUBERNETES_SERVICE_HOST")) // a name, or nothing outside a cluster: then it stays invalid
	for _, list := range []struct {
		flag string
		from []string
		into *[]netip.Prefix
	}{
		{"pod-cidr", o.podCIDRs, &options.Pools.PodCIDRs},
		{"service-cidr", o.serviceCIDRs, &options.Pools.ServiceCIDRs},
		{"reserved-pools", o.reservedPools, &options.Pools.Reserved},
		{"additional-pools", o.additionalPools, &options.Pools.Pools},
		{"remap-pools", o.remapPools, &options.Pools.RemapPools},
		{"unmapped-networks", o.unmapped, &options.Pools.Unmapped},
	} {
		for _, text := range list.from {
			prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
			if err != nil {
				return network.Options{}, nil, fmt.Errorf("--%s: %q is not a network in CIDR notation", list.flag, text)
			}
			*list.into = append(*list.into, prefix)
		}
	}
	own = slices.Concat(options.Pools.PodCIDRs, options.Pools.ServiceCIDRs)
	if o.disableInternalNetwork {
		return options, own, nil
	}
	return options, own, options.Validate()
}

// Caches restricts the caches to what the controllers read, to save memory and rights.
func (o *Options) Caches() cache.Options {
	ours := klabels.SelectorFromSet(klabels.Set{labels.AppPartOf: labels.PartOf})
	install := map[string]cache.Config{o.namespace: {}}
	all := map[client.Object]cache.ByObject{
		&corev1.Pod{}:                 {Transform: grant.TrimPod},
		&corev1.Node{}:                {Transform: grant.TrimNode},
		&corev1.ServiceAccount{}:      {Label: ours},
		&rbacv1.RoleBinding{}:         {Label: ours},
		&rbacv1.ClusterRoleBinding{}:  {Label: ours},
		&appsv1.Deployment{}:          {Label: ours},
		&corev1.ResourceQuota{}:       {Label: ours},
		&corev1.LimitRange{}:          {Label: ours},
		&networkingv1.NetworkPolicy{}: {Label: ours},
		&networkingv1.Ingress{}:       {Transform: hosts.Trim},
		&corev1.ConfigMap{}:           {Namespaces: install, Label: hasLabel(labels.PinnedKey)},
		&corev1.Secret{}:              {Namespaces: install, Label: hasLabel(labels.AuthToken)},
		&vkv1alpha1.ShadowPod{}:       {Transform: shadowpod.Trim},
		&discoveryv1.EndpointSlice{}:  {Label: klabels.SelectorFromSet(klabels.Set{labels.ManagedBy: labels.ManagedByShadowEndpointSlice})},

		&certificatesv1.CertificateSigningRequest{}: {Label: ours},
	}
	if o.policies { // Kubernetes before 1.30 has none, and a cache for an unknown kind cannot be made
		maps.Copy(all, policies.Caches())
	}
	return cache.Options{SyncPeriod: &o.ResyncPeriod, ByObject: all}
}

// hasLabel selects objects that have a label, whatever its value.
func hasLabel(key string) klabels.Selector {
	selector, err := klabels.Parse(key)
	if err != nil {
		panic(err) // a constant
	}
	return selector
}

func runControllerManager(ctx context.Context, cfg *rest.Config, o *Options) error {
	role.Frugal(ctx)
	kinds, err := scheme.All()
	if err != nil {
		return err
	}
	if err := kubemanager.Await(ctx, cfg, o.healthAddress); ctx.Err() != nil {
		return nil
	} else if err != nil {
		return err
	}
	mgr, err := kubemanager.New(cfg, kubemanager.Options{
		Scheme: kinds, MetricsAddress: o.metricsAddress, HealthAddress: o.healthAddress,
		LeaderElection: o.leaderElection, LeaderElectionID: LeaseName, Namespace: o.namespace,
		WebhookPort: o.webhookPort, WebhookCertDir: o.webhookCerts, Cache: o.Caches(),
	})
	if err != nil {
		return err
	}
	var guard *policies.Guard
	if o.policies {
		if guard, err = policies.New(ctx, mgr, o.furtherPolicies...); err != nil {
			return err
		}
	}
	connector, err := o.setupPeering(mgr, guard)
	if err != nil {
		return err
	}
	fabric, own, err := o.network()
	if err != nil {
		return err
	}
	err = virtualnode.Setup(mgr, virtualnode.Options{
		Local: o.local, Kubelet: o.pull.with(o.kubelet), CheckNetwork: !o.disableInternalNetwork, OwnNetworks: own,
		NodeExtraLabels: o.nodeExtraLabels, NodeExtraAnnotations: o.nodeExtraAnnotations,
		DrainDeadline: o.drainDeadline, DrainDeadlineUnreachable: o.drainDeadlineUnreached,
	})
	if err != nil {
		return err
	}
	o.shadows.isolation.InternalNetwork, o.shadows.isolation.OwnNetworks, o.shadows.isolation.Services = !o.disableInternalNetwork, own, fabric.Pools.ServiceCIDRs
	if err := o.setupNamespaces(mgr, guard, connector); err != nil {
		return err
	}
	if !o.disableInternalNetwork {
		if err := network.Setup(mgr, fabric); err != nil {
			return err
		}
	}
	if err := o.shadows.setup(ctx, mgr, guard, shadowslice.Options{InternalNetwork: !o.disableInternalNetwork, OwnNetworks: own}, o); err != nil {
		return err
	}
	if err := o.serve(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// serve adds the webhooks, except that of ShadowPods, and the probes.
func (o *Options) serve(mgr manager.Manager) error {
	ready := healthz.Ping
	if o.webhookPort > 0 {
		peeringwebhook.Register(mgr.GetWebhookServer(), mgr.GetScheme(), o.local.ClusterID)
		offloadingwebhook.Register(mgr.GetWebhookServer(), mgr.GetScheme(), offloadingwebhook.Options{
			Cached: mgr.GetClient(), Live: mgr.GetAPIReader(), Namespace: o.namespace, Places: providers.Places(mgr.GetClient()),
			Claims: home.Reader{Cached: mgr.GetClient(), Live: mgr.GetAPIReader()}.Keeps,
		})
		ready = mgr.GetWebhookServer().StartedChecker()
	}
	return errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("webhooks", ready))
}
