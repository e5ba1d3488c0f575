// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/domain"
	"liqo.io/liqo/internal/network/translator"
	"liqo.io/liqo/internal/offloading/metadata"
	"liqo.io/liqo/internal/offloading/names"
	"liqo.io/liqo/internal/offloading/reflection"
	"liqo.io/liqo/internal/offloading/reflection/project"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
)

// reflectionOptions select what is reflected to the remote cluster, and how.
type reflectionOptions struct {
	workers                       map[string]*int
	labels, annotations           []string
	disableIPs, noInternalNetwork bool
	remoteNetworks                []string
	apiServer                     bool
	apiServerHost, apiServerPort  string
	// serviceAddress and servicePort are those of the Service kubernetes, from the environment of every pod.
	serviceAddress, servicePort string
	// domain is that of this cluster's Services; empty: homeNames.
	domain string
}

func (o *reflectionOptions) Register(flags *pflag.FlagSet) {
	o.workers = map[string]*int{}
	defaults := reflection.DefaultWorkers()
	for _, kind := range slices.Sorted(maps.Keys(defaults)) {
		o.workers[kind] = flags.Int(kind+"-reflection-workers", defaults[kind], "number of objects of the kind "+kind+" that are reflected at the same time; "+
			"0 reflects none")
	}
	flags.StringSliceVar(&o.labels, "labels-not-reflected", nil, "keys of labels that are not reflected; KEY* for all with this prefix (KEY,...)")
	flags.StringSliceVar(&o.annotations, "annotations-not-reflected", nil, "keys of annotations that are not reflected; KEY* for all with this prefix (KEY,...)")
	flags.BoolVar(&o.disableIPs, "disable-ip-reflection", false, "reflect no pod addresses, in either direction, and no EndpointSlices")
	flags.BoolVar(&o.noInternalNetwork, "disable-internal-network", false, "addresses are the same in both clusters, because another network connects them")
	flags.StringArrayVar(&o.remoteNetworks, "remote-network", nil, "network of the remote cluster's pods, if another network connects the clusters: no "+
		"other address of it is believed (may be repeated)")
	flags.BoolVar(&o.apiServer, "enable-apiserver-support", false, "pods in the remote cluster get tokens for this cluster's API server, and its address")
	flags.StringVar(&o.apiServerHost, "home-api-server-host", "", "host of this cluster's API server for pods in the remote cluster (default: the Service "+
		"kubernetes, through the network between the clusters)")
	flags.StringVar(&o.apiServerPort, "home-api-server-port", "", "port of this cluster's API server for pods in the remote cluster")
	flags.StringVar(&o.domain, "home-cluster-domain", "", "domain of this cluster's Services, by which pods in the remote cluster name its API server "+
		"(default: that of the resolv.conf of this pod)")
	o.serviceAddress, o.servicePort = os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
}

// lookupTime bounds the start of the process if the DNS of the cluster does not answer.
const lookupTime = 2 * time.Second

// homeNames returns the domain of this cluster's Services and its name servers, as the kubelet of this pod states them; nothing if it does not. With a
// cache of DNS on
// each node, the kubelet states that, and pods may name the Service behind it.
func homeNames() domain.Resolver {
	text, _ := os.ReadFile(domain.File)
	found, err := domain.Parse(string(text))
	if err != nil {
		return domain.Resolver{} // outside of a pod, there is none
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTime)
	defer cancel()
	for _, service := range names.ClusterDNS {
		addresses, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", service+"."+found.Domain+".") // none: the cluster has another
		for _, one := range addresses {
			if one = one.Unmap(); !slices.Contains(found.Servers, one) {
				found.Servers = append(found.Servers, one)
			}
		}
	}
	return found
}

func (o *reflectionOptions) Validate() error {
	for kind, workers := range o.workers {
		if *workers < 0 || *workers > 1000 {
			return fmt.Errorf("--%s-reflection-workers %d: want 0 to 1000", kind, *workers)
		}
	}
	if _, err := o.denied(); err != nil {
		return err
	}
	if _, err := o.networks(); err != nil {
		return err
	}
	if o.domain != "" && !domain.Valid(o.domain) {
		return fmt.Errorf("--home-cluster-domain %q: want the domain of this cluster, such as %s", o.domain, project.DefaultDomain)
	}
	if (o.apiServerHost == "") != (o.apiServerPort == "") {
		return errors.New("--home-api-server-host and --home-api-server-port must be set together")
	}
	if port, err := strconv.ParseUint(o.apiServerPort, 10, 16); o.apiServerPort != "" && (err != nil || port == 0) {
		return fmt.Errorf("--home-api-server-port %q: want a port", o.apiServerPort)
	}
	return nil
}

func (o *reflectionOptions) denied() (project.Denied, error) {
	keys, err := metadata.ParseKeys(o.labels)
	if err != nil {
		return project.Denied{}, fmt.Errorf("--labels-not-reflected: %w", err)
	}
	denied := project.Denied{Labels: keys}
	if denied.Annotations, err = metadata.ParseKeys(o.annotations); err != nil {
		return project.Denied{}, fmt.Errorf("--annotations-not-reflected: %w", err)
	}
	return denied, nil
}

// home returns a function for the address at which pods in the remote cluster reach the API server of this cluster; nil if they do not.
func (o *reflectionOptions) home(addresses project.Translator) func() (podspec.APIServer, error) {
	address, err := netip.ParseAddr(o.serviceAddress)
	switch {
	case !o.apiServer:
		return nil
	case o.apiServerHost != "":
		server := podspec.APIServer{Enabled: true, Host: o.apiServerHost, Port: o.apiServerPort, Home: address}
		return func() (podspec.APIServer, error) { return server, nil }
	case o.disableIPs || err != nil || o.servicePort == "":
		return nil // no address is known
	}
	return func() (podspec.APIServer, error) {
		remote, err := addresses.ToRemote(address)
		if err != nil {
			return podspec.APIServer{}, fmt.Errorf("%w: %w", podspec.ErrNoAPIServer, err)
		}
		return podspec.APIServer{Enabled: true, Address: remote, ServicePort: o.servicePort, Home: address}, nil
	}
}

// mappedServer returns the address of this cluster's API server that the peer reaches through a mapping; invalid if there is none.
func (o *reflectionOptions) mappedServer() netip.AddrPort {
	address, err := netip.ParseAddr(o.serviceAddress)
	port, portErr := strconv.ParseUint(o.servicePort, 10, 16)
	if !o.apiServer || o.apiServerHost != "" || o.disableIPs || err != nil || portErr != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(address, uint16(port))
}

// networks returns those of the remote cluster.
func (o *reflectionOptions) networks() (all []netip.Prefix, err error) {
	for _, text := range o.remoteNetworks {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("--remote-network %q is not a network in CIDR notation", text)
		}
		all = append(all, network.Masked())
	}
	return all, nil
}

// newReflection returns the reflection engine and the translator of its addresses.
func newReflection(cfg *rest.Config, o *Options) (*reflection.Reflection, *translator.Translator, error) {
	denied, err := o.reflection.denied()
	if err != nil {
		return nil, nil, err
	}
	networks, err := o.reflection.networks()
	if err != nil {
		return nil, nil, err
	}
	addresses, err := translator.New(cfg, translator.Options{
		Off: o.reflection.noInternalNetwork, Networks: networks, ClusterID: o.node.ClusterID, Namespace: o.node.Namespace, Node: o.node.NodeName,
		APIServer: o.reflection.mappedServer(), ErrNoCounterpart: project.ErrNoCounterpart,
	})
	if err != nil {
		return nil, nil, err
	}
	engine, err := reflection.New(cfg, o.engine(denied, addresses))
	if err != nil {
		return nil, nil, err
	}
	addresses.OnChange(engine.TranslationChanged)
	addresses.SetEndpoints(func() (map[netip.Addr][]netv1alpha1.MappingPort, bool) {
		endpoints, complete := engine.Endpoints()
		all := make(map[netip.Addr][]netv1alpha1.MappingPort, len(endpoints))
		for address, ports := range endpoints {
			all[address] = nil
			for _, port := range ports {
				all[address] = append(all[address], netv1alpha1.MappingPort{Protocol: port.Protocol, Port: port.Number})
			}
		}
		return all, complete
	})
	return engine, addresses, nil
}

// engine returns the options of the reflection engine.
func (o *Options) engine(denied project.Denied, addresses project.Translator) reflection.Options {
	peer := discoveryv1alpha1.ClusterIdentity{ClusterID: o.node.ClusterID, ClusterName: o.remoteName}
	workers := map[string]int{}
	for kind, count := range o.reflection.workers {
		workers[kind] = *count
	}
	home := homeNames()
	return reflection.Options{
		Namespace: o.node.Namespace, NamespaceMap: peer.UniqueName(), RemoteName: o.remoteName, HostIP: o.node.NodeIP,
		Mapping: project.NamespaceMapping{
			Domain: cmp.Or(o.reflection.domain, home.Domain), DNS: home.Servers,
			LocalID: o.homeID, LocalName: o.homeName, RemoteID: o.node.ClusterID, NodeName: o.node.NodeName, Skip: denied,
		},
		Workers: workers, ReflectIPs: !o.reflection.disableIPs, Translator: addresses, APIServer: o.reflection.home(addresses),
		CheckNetwork: o.node.CheckNetwork,
	}
}
