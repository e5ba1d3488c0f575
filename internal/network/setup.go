// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/network/gateways"
	"liqo.io/liqo/internal/network/ipmapping"
	"liqo.io/liqo/internal/network/keys"
	"liqo.io/liqo/internal/network/networkconfig"
	"liqo.io/liqo/internal/network/nodereport"
	"liqo.io/liqo/internal/network/pools"
	"liqo.io/liqo/internal/network/spread"
	"liqo.io/liqo/internal/network/tenants"
	"liqo.io/liqo/internal/network/trust"
	"liqo.io/liqo/internal/network/tunnelendpoint"
)

type Options struct {
	// Local is this cluster.
	Local discoveryv1alpha1.ClusterIdentity
	// Namespace is the install namespace.
	Namespace string
	// Pools are the networks of this cluster, and of which those of peers are made.
	Pools pools.Options
	// Gateways are where the gateways report; their Namespace is set.
	Gateways gateways.Options
	// IPMapping and Spread are the settings of these controllers. The rest of them is set.
	IPMapping ipmapping.Options
	Spread    spread.Options
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
	gates, err := gateways.New(mgr, o.Gateways)
	if err != nil {
		return err
	}
	identity, err := trust.NewIdentity(mgr, o.Namespace)
	if err != nil {
		return err
	}
	peers := tenants.New(o.Local, mgr.GetClient(), mgr.GetEventRecorder(labels.OwnerNetwork))
	pools := pools.New(&o.Pools, mgr.GetAPIReader(), gates.Cache, peers)
	o.IPMapping.Pools, o.IPMapping.Now = pools, o.Now
	o.Spread.Gateways, o.Spread.Now = gates, o.Now
	return errors.Join(
		gates.Setup(mgr),
		keys.Setup(mgr, keys.Options{Namespace: o.Namespace, Gateways: gates, Now: o.Now}),
		networkconfig.Setup(mgr, networkconfig.Options{
			Local: o.Local, Namespace: o.Namespace, Peers: peers, Gateways: gates, Pools: pools, Identity: identity, Now: o.Now,
		}),
		tunnelendpoint.Setup(mgr, tunnelendpoint.Options{
			Local: o.Local, Namespace: o.Namespace, Peers: peers, Gateways: gates, Pools: pools, Identity: identity, Now: o.Now,
		}),
		ipmapping.Setup(mgr, o.IPMapping),
		spread.Setup(mgr, o.Spread),
		nodereport.Setup(mgr, nodereport.Options{Namespace: o.Namespace, Gateways: gates}),
	)
}
