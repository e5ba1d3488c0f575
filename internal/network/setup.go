// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
)

// +kubebuilder:rbac:groups=discovery.liqo.io,resources=foreignclusters,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Options configures the controllers of the network.
type Options struct {
	// Local is this cluster.
	Local discoveryv1alpha1.ClusterIdentity
	// Namespace is the install namespace.
	Namespace string
	// Pools are the networks of this cluster, and of which those of peers are made.
	Pools poolsOptions
	// Gateways are where the gateways report; their Namespace is set.
	Gateways gatewaysOptions
	// IPMapping and Spread are the settings of these controllers. The rest of them is set.
	IPMapping mappingOptions
	Spread    spreadOptions
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

// Validate refuses networks that cannot be those of this cluster.
func (o *Options) Validate() error { return o.Pools.Validate() }

// Setup registers the controllers of the network. The manager's scheme must know the groups net.liqo.io and discovery.liqo.io.
func Setup(mgr manager.Manager, o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Gateways.Namespace = o.Namespace
	gates, err := newGateways(mgr, o.Gateways)
	if err != nil {
		return err
	}
	identity, err := newIdentity(mgr, o.Namespace)
	if err != nil {
		return err
	}
	peers := newTenancies(o.Local, mgr.GetClient(), mgr.GetEventRecorder(labels.OwnerNetwork))
	pools := newPoolReader(&o.Pools, mgr.GetAPIReader(), gates.cache, peers)
	o.IPMapping.Pools, o.IPMapping.Now = pools, o.Now
	o.Spread.Gateways, o.Spread.Now = gates, o.Now
	return errors.Join(
		gates.setup(mgr),
		setupKeys(mgr, keysOptions{Namespace: o.Namespace, Gateways: gates, Now: o.Now}),
		setupNetworkConfig(mgr, configOptions{Local: o.Local, Namespace: o.Namespace, Peers: peers, Gateways: gates, Pools: pools, Identity: identity, Now: o.Now}),
		setupTunnelEndpoint(mgr, tunnelOptions{Local: o.Local, Namespace: o.Namespace, Peers: peers, Gateways: gates, Pools: pools, Identity: identity, Now: o.Now}),
		setupIPMapping(mgr, o.IPMapping),
		setupSpread(mgr, o.Spread),
		setupReports(mgr, reportOptions{Namespace: o.Namespace, Gateways: gates}),
	)
}
