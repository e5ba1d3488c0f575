// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"liqo.io/liqo/cmd/liqo/role"
	"liqo.io/liqo/internal/kube/policies"
	"liqo.io/liqo/internal/offloading/hosts"
	"liqo.io/liqo/internal/offloading/isolation"
	"liqo.io/liqo/internal/offloading/ledger"
	"liqo.io/liqo/internal/offloading/metadata"
	"liqo.io/liqo/internal/offloading/peerobjects"
	"liqo.io/liqo/internal/offloading/peers"
	"liqo.io/liqo/internal/offloading/quota"
	"liqo.io/liqo/internal/offloading/remotenamespace"
	"liqo.io/liqo/internal/offloading/shadow"
	"liqo.io/liqo/internal/offloading/shadowpod"
	"liqo.io/liqo/internal/offloading/shadowslice"
	"liqo.io/liqo/internal/offloading/standby"
	offloadingwebhook "liqo.io/liqo/internal/offloading/webhook"
	"liqo.io/liqo/internal/peering/resourceslice"
)

// shadowOptions are the options for what peers have in their remote namespaces.
type shadowOptions struct {
	bounds                   remotenamespace.Bounds
	quota, containerLimits   map[string]string
	containerRequests        map[string]string
	memoryVolume             string
	defaults                 quota.Defaults // of pods of peers; set by Validate
	podWorkers, sliceWorkers int
	mostPods, mostSlices     int
	mostNamespaces           int
	mostBytes                string
	totals                   map[string]string
	writeRate, writeBurst    string
	allBytes                 string
	allRate, allBurst        string
	limits                   ledger.Limits // of what peers have; set by Validate
	custom                   []string
	compareHosts             bool
	mostCustom               int
	podSecurity              string
	labels, annotations      []string
	tolerations              []string
	allowed                  metadata.Allowed // what peers decide about their pods; set by Validate
	enforce                  bool
	isolation                remotenamespace.Isolation
	isolationPeers           struct{ clients, servers, dns string }
	isolationDenied          []string
	refresh                  time.Duration
	names                    struct {
		service, cluster string
		used             bool
	}
}

func (o *shadowOptions) Register(flags *pflag.FlagSet) {
	flags.IntVar(&o.podWorkers, "shadow-pod-ctrl-workers", 10, "number of ShadowPods that are processed at the same time")
	flags.IntVar(&o.sliceWorkers, "shadow-endpointslice-ctrl-workers", 10, "number of ShadowEndpointSlices that are processed at the same time")
	flags.StringVar(&o.podSecurity, "peer-pod-security", string(shadow.Baseline), "restriction of the pods of peers: restricted or baseline (the Pod "+
		"Security Standards), or privileged (only what their namespace enforces)")
	flags.StringSliceVar(&o.labels, "peer-pod-labels", nil, "further keys of labels that pods of peers may have, separated by commas; KEY* stands for all "+
		"keys with that prefix")
	flags.StringSliceVar(&o.annotations, "peer-pod-annotations", nil, "the same for annotations")
	flags.StringSliceVar(&o.tolerations, "peer-tolerations", nil, "keys of further taints that pods of peers may tolerate, in the same form")
	flags.BoolVar(&o.allowed.AlwaysPull, "peer-always-pull", false, "pull the images of pods of peers each time, whatever the pod asks for")
	flags.BoolVar(&o.enforce, "enable-resource-enforcement", false, "refuse pods of a peer if the sum of their limits, not only of their requests, exceeds "+
		"its grant")
	flags.IntVar(&o.mostPods, "max-peer-shadow-pods", 15000, "number of ShadowPods that one peer may have, those that have ended included")
	flags.IntVar(&o.mostSlices, "max-peer-shadow-endpoint-slices", 5000, "number of ShadowEndpointSlices that one peer may have")
	flags.IntVar(&o.mostNamespaces, "max-peer-namespaces", 500, "number of remote namespaces that one peer may have")
	flags.StringVar(&o.mostBytes, "max-peer-bytes", "256Mi", "bytes of JSON that the objects of one peer may have in all its remote namespaces")
	flags.StringVar(&o.allBytes, "max-bytes-of-all-peers", "1Gi", "bytes of JSON that the objects of all peers may have together; beyond it, a peer gets "+
		"its part of them, divided by the number of peers")
	flags.StringToStringVar(&o.totals, "peer-totals", nil, "the most that one peer may have in all its remote namespaces together (RESOURCE=AMOUNT,...), "+
		"as a ResourceQuota names it")
	flags.StringVar(&o.writeRate, "peer-write-rate", "1Mi", "bytes of JSON that one peer may write per second, in what it creates and updates; 0 for no limit")
	flags.StringVar(&o.writeBurst, "peer-write-burst", "64Mi", "bytes of JSON that one peer may write at once")
	flags.StringVar(&o.allRate, "write-rate-of-all-peers", "1Mi", "the same for all peers together; a peer that others leave nothing gets its part of it, "+
		"divided by the number of peers; 0 for no limit")
	flags.StringVar(&o.allBurst, "write-burst-of-all-peers", "64Mi", "bytes of JSON that all peers together may write at once")
	flags.StringSliceVar(&o.custom, "peer-custom-resources", nil, "custom resources that peers may write in their remote namespaces, as NAME.GROUP, "+
		"separated by commas")
	flags.BoolVar(&o.compareHosts, "compare-ingress-hosts", false, "refuse Ingresses of peers with hosts that other Ingresses of this cluster have")
	flags.IntVar(&o.mostCustom, "max-peer-custom-resources", 1000, "number of custom resources of each kind that one peer may have in all its remote namespaces")
	flags.StringToStringVar(&o.quota, "peer-quota", nil, "ResourceQuota of each remote namespace (RESOURCE=AMOUNT,...), of resources of Kubernetes itself")
	flags.StringToStringVar(&o.containerLimits, "peer-container-limits", nil, "limits of containers of peers that set none (RESOURCE=AMOUNT,...)")
	flags.StringToStringVar(&o.containerRequests, "peer-container-requests", nil, "CPU and memory that a container of a peer requests at least "+
		"(cpu=AMOUNT,memory=AMOUNT)")
	flags.StringVar(&o.memoryVolume, "peer-memory-volume", "0", "size of an emptyDir in memory for which a peer sets none; 0 for no limit")
	flags.BoolVar(&o.isolation.Enabled, "peer-isolation", true, "give each remote namespace a NetworkPolicy that keeps the pods of the peer from nodes, "+
		"metadata services and everything of this cluster")
	flags.StringVar(&o.isolationPeers.clients, "peer-isolation-clients", "", "who may connect to pods of peers besides the peering and addresses outside "+
		"of the pod network, as a JSON list of peers of a NetworkPolicy (default: pods that do not run for another cluster)")
	flags.StringVar(&o.isolationPeers.servers, "peer-isolation-servers", "", "what pods of peers may connect to besides the peering, DNS and public "+
		"addresses, in the same form")
	flags.StringVar(&o.isolationPeers.dns, "peer-isolation-dns", "", "name servers of the pods of peers, in the same form (default: pods that do not run "+
		"for another cluster, and 169.254.20.10)")
	flags.StringSliceVar(&o.isolationDenied, "peer-isolation-denied", nil, "public networks that pods of peers may not connect to (CIDR,...)")
	flags.StringVar(&o.names.service, "names-service", "", "Service, in the namespace of Liqo, of the name server of pods of peers; empty for none")
	flags.BoolVar(&o.names.used, "peer-names", true, "new pods of peers use that name server, and so find Services by the names of their own cluster")
	flags.StringVar(&o.names.cluster, "cluster-dns", "kube-system/kube-dns", "Service of this cluster's own name server, whose endpoints answer while that "+
		"one is down (NAMESPACE/NAME)")
	flags.DurationVar(&o.refresh, "resource-validator-refresh-interval", 5*time.Minute, "interval at which the usage of peers is counted again")
}

func (o *shadowOptions) Validate() error {
	switch {
	case o.podWorkers < 1 || o.sliceWorkers < 1:
		return fmt.Errorf("--shadow-pod-ctrl-workers %d and --shadow-endpointslice-ctrl-workers %d must be positive", o.podWorkers, o.sliceWorkers)
	case !slices.Contains(shadow.Levels, shadow.Level(o.podSecurity)):
		return fmt.Errorf("--peer-pod-security %q: want one of %v", o.podSecurity, shadow.Levels)
	case o.mostPods < 1 || o.mostSlices < 1:
		return fmt.Errorf("--max-peer-shadow-pods %d and --max-peer-shadow-endpoint-slices %d must be positive", o.mostPods, o.mostSlices)
	case o.mostNamespaces < 1 || o.mostCustom < 1:
		return fmt.Errorf("--max-peer-namespaces %d and --max-peer-custom-resources %d must be positive", o.mostNamespaces, o.mostCustom)
	case o.refresh <= 0:
		return fmt.Errorf("--resource-validator-refresh-interval %v must be positive", o.refresh)
	}
	for _, one := range o.custom {
		if parsed := schema.ParseGroupResource(one); len(validation.IsDNS1123Subdomain(one)) > 0 || !strings.Contains(parsed.Group, ".") {
			return fmt.Errorf("--peer-custom-resources %q: want the name of a CustomResourceDefinition, such as widgets.example.com", one)
		}
	}
	if err := o.parseAllowed(); err != nil {
		return err
	}
	if err := o.parseIsolation(); err != nil {
		return err
	}
	if _, err := role.ParseService(o.names.cluster); err != nil {
		return fmt.Errorf("--cluster-dns %w", err)
	}
	if err := o.parseLimits(); err != nil {
		return err
	}
	var err error
	if o.bounds.Quota, err = amounts("peer-quota", o.quota); err != nil {
		return err
	}
	if o.bounds.ContainerLimits, err = amounts("peer-container-limits", o.containerLimits); err != nil {
		return err
	}
	return o.parseDefaults()
}

// parseDefaults reads what a pod takes that states less.
func (o *shadowOptions) parseDefaults() (err error) {
	if o.defaults.Requests, err = amounts("peer-container-requests", o.containerRequests); err != nil {
		return err
	}
	for name := range o.defaults.Requests {
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory {
			return fmt.Errorf("--peer-container-requests %s: want cpu and memory only; the limit of ephemeral-storage in --peer-container-limits counts as well", name)
		}
	}
	size, err := amounts("peer-memory-volume", map[string]string{"size": o.memoryVolume})
	o.defaults.Limits, o.defaults.MemoryVolume = o.bounds.ContainerLimits, size["size"]
	return err
}

// minBurst is the least burst: one object, and some of what comes with it.
const minBurst = 8 << 20

// parseLimits reads what peers may have and write.
func (o *shadowOptions) parseLimits() error {
	o.limits = ledger.Limits{Objects: map[schema.GroupResource]int64{
		peerobjects.ShadowPods: int64(o.mostPods), peerobjects.ShadowEndpointSlices: int64(o.mostSlices),
		peerobjects.NamespaceMaps: 1, peerobjects.ResourceSlices: resourceslice.MaxAnswered,
	}}
	for _, one := range o.custom {
		o.limits.Objects[schema.ParseGroupResource(one)] = int64(o.mostCustom)
	}
	for _, flag := range []struct {
		name, text string
		to         *int64
		least      int64
	}{
		{"max-peer-bytes", o.mostBytes, &o.limits.Use[ledger.Bytes], 1},
		{"max-bytes-of-all-peers", o.allBytes, &o.limits.AllBytes, 1},
		{"peer-write-rate", o.writeRate, &o.limits.Rate, 0},
		{"peer-write-burst", o.writeBurst, &o.limits.Burst, minBurst},
		{"write-rate-of-all-peers", o.allRate, &o.limits.AllRate, 0},
		{"write-burst-of-all-peers", o.allBurst, &o.limits.AllBurst, minBurst},
	} {
		amount, err := resource.ParseQuantity(flag.text)
		if err != nil || amount.Value() < flag.least {
			return fmt.Errorf("--%s %s: want an amount such as 256Mi, at least %d", flag.name, flag.text, flag.least)
		}
		*flag.to = amount.Value()
	}
	totals, err := amounts("peer-totals", o.totals)
	if err != nil {
		return err
	}
	return o.limits.Add(totals)
}

// parseAllowed reads what peers may decide about their pods.
func (o *shadowOptions) parseAllowed() error {
	for _, flag := range []struct {
		name string
		from []string
		to   *metadata.Keys
	}{
		{"--peer-pod-labels", o.labels, &o.allowed.Labels}, {"--peer-pod-annotations", o.annotations, &o.allowed.Annotations}, {
			"--peer-tolerations",
			o.tolerations, &o.allowed.Tolerations,
		},
	} {
		keys, err := metadata.ParseKeys(flag.from)
		if err != nil {
			return fmt.Errorf("%s: %w", flag.name, err)
		}
		*flag.to = keys
	}
	o.allowed.Tracing = shadow.Level(o.podSecurity) == shadow.Privileged
	return nil
}

// parseIsolation reads with whom pods of peers exchange packets.
func (o *shadowOptions) parseIsolation() error {
	for _, flag := range []struct {
		name, from string
		to         *isolation.Peers
		missing    func() isolation.Peers
	}{
		{"--peer-isolation-clients", o.isolationPeers.clients, &o.isolation.Clients, isolation.DefaultClients},
		{"--peer-isolation-servers", o.isolationPeers.servers, &o.isolation.Servers, nil},
		{"--peer-isolation-dns", o.isolationPeers.dns, &o.isolation.DNS, isolation.DefaultDNS},
	} {
		peers, err := isolation.ParsePeers(flag.from)
		if err != nil {
			return fmt.Errorf("%s: %w", flag.name, err)
		}
		if flag.from == "" && flag.missing != nil {
			peers = flag.missing()
		}
		*flag.to = peers
	}
	o.isolation.Denied = nil
	for _, text := range o.isolationDenied {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("--peer-isolation-denied: %q is not a network in CIDR notation", text)
		}
		o.isolation.Denied = append(o.isolation.Denied, network.Masked())
	}
	return nil
}

// amounts parses the value of a flag.
func amounts(flag string, pairs map[string]string) (corev1.ResourceList, error) {
	list := corev1.ResourceList{}
	for name, text := range pairs {
		amount, err := resource.ParseQuantity(text)
		if err != nil || amount.Sign() < 0 {
			return nil, fmt.Errorf("--%s %s=%s: want an amount such as 500 or 20Gi", flag, name, text)
		}
		list[corev1.ResourceName(name)] = amount
	}
	return list, nil
}

// setup adds the controllers and the webhook to the manager.
func (o *shadowOptions) setup(ctx context.Context, mgr manager.Manager, guard *policies.Guard, endpoints shadowslice.Options, from *Options) error {
	remoteNamespaces, err := peers.Watch(mgr)
	if err != nil {
		return err
	}
	remoteNamespaces.Policies = guard
	counted, err := offloadingwebhook.SetupQuota(mgr, remoteNamespaces, o.refresh, o.enforce, o.defaults)
	if err != nil {
		return err
	}
	pods := shadowpod.Options{
		RemoteNamespaces: remoteNamespaces, Level: shadow.Level(o.podSecurity), Allowed: o.allowed, Quota: counted,
		Defaults: o.defaults, Workers: o.podWorkers,
	}
	if pods.Names, err = o.setupNames(mgr, from); err != nil {
		return err
	}
	if err := shadowpod.Setup(mgr, pods); err != nil {
		return err
	}
	endpoints.RemoteNamespaces, endpoints.Workers = remoteNamespaces, o.sliceWorkers
	err = shadowslice.Setup(mgr, endpoints)
	if err != nil || from.webhookPort <= 0 {
		return err
	}
	options := offloadingwebhook.ShadowPodOptions{RemoteNamespaces: remoteNamespaces, Level: shadow.Level(o.podSecurity), Quota: counted}
	objects := peerobjects.Options{Limits: o.limits, Known: remoteNamespaces.KnownPeer, Namespaces: remoteNamespaces.Of}
	for _, one := range o.custom {
		objects.Custom = append(objects.Custom, schema.ParseGroupResource(one))
	}
	if options.Peers, err = peerobjects.Setup(mgr, objects); err != nil {
		return err
	}
	if o.compareHosts {
		if err := hosts.Setup(ctx, mgr, remoteNamespaces); err != nil {
			return err
		}
	}
	peerobjects.Register(mgr.GetWebhookServer(), options.Peers)
	offloadingwebhook.RegisterShadowPod(mgr.GetWebhookServer(), mgr.GetScheme(), options)
	return nil
}

// setupNames adds what keeps the name server's clients from losing the DNS, and returns what new pods get; nil if they keep their own settings.
func (o *shadowOptions) setupNames(mgr manager.Manager, from *Options) (shadowpod.Names, error) {
	if o.names.service == "" {
		return nil, nil
	}
	cluster, err := role.ParseService(o.names.cluster)
	if err != nil {
		return nil, err
	}
	kept, err := standby.Setup(mgr, standby.Options{
		Service: types.NamespacedName{Namespace: from.namespace, Name: o.names.service}, DNS: cluster,
		Cluster: role.ClusterResolver(mgr.GetLogger()),
	})
	if err != nil || !o.names.used {
		return nil, err
	}
	return kept, nil
}
