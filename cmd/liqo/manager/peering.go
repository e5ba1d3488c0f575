// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/internal/kube/policies"
	"liqo.io/liqo/internal/peering/admission"
	"liqo.io/liqo/internal/peering/flows"
	"liqo.io/liqo/internal/peering/foreigncluster"
	"liqo.io/liqo/internal/peering/pins"
	"liqo.io/liqo/internal/peering/replicate"
	"liqo.io/liqo/internal/peering/resourceslice"
	"liqo.io/liqo/internal/peering/tenant"
)

// peeringOptions are those of the controllers of peerings, a struct for each.
type peeringOptions struct {
	connections replicate.Options
	foreign     foreigncluster.Options
	pins        pins.Options
	slices      resourceslice.Options
	// incoming and manual make the setting of admission.
	incoming, manual bool
	// offerThreshold is that of slices; -1 if it is not set.
	offerThreshold int
}

func (o *peeringOptions) register(flags *pflag.FlagSet) {
	flags.IntVar(&o.foreign.Workers, "foreign-cluster-workers", 10, "number of peers that are processed at the same time")
	flags.DurationVar(&o.connections.ProbeInterval, "foreign-cluster-ping-interval", 15*time.Second, "interval of the probes of a peer's API server")
	flags.DurationVar(&o.connections.ProbeTimeout, "foreign-cluster-ping-timeout", 5*time.Second, "timeout of a probe of a peer's API server")
	flags.BoolVar(&o.foreign.AutoJoin, "auto-join-discovered-clusters", true, "use resources of discovered clusters whose outgoing peering is Auto")
	flags.BoolVar(&o.incoming, "enable-incoming-peering", true, "let peers whose incoming peering is Auto use resources of this cluster")
	flags.BoolVar(&o.manual, "manual-incoming-peering", false, "let peers whose incoming peering is Auto wait until an administrator sets it to Yes or No")
	flags.BoolVar(&o.foreign.SharedToken, "shared-token", true, "keep a token in Secret auth-token with which every cluster may make first contact, without end")
	flags.IntVar(&o.pins.Limits.Total, "max-peers", 100, "number of clusters that may register with this one; 0 for no limit")
	flags.IntVar(&o.pins.Limits.PerToken, "max-peers-per-token", 3, "number of clusters that may register with the same token; 0 for no limit")
	flags.StringToStringVar(&o.slices.ClusterLabels, "cluster-labels", nil, "labels of the virtual nodes that represent this cluster (KEY=VALUE,...)")
	flags.IntVar(&o.slices.SharingPercentage, "resource-sharing-percentage", 50, "percentage of the free resources that each peer may use; the ConfigMap "+
		"liqo-resource-sharing overrides it")
	flags.IntVar(&o.offerThreshold, "offer-update-threshold-percentage", -1, "change of the resources, in percent, that updates the offer at once (default "+
		"5, or 0 with a resource plugin)")
	flags.StringVar(&o.slices.PluginAddress, "resource-plugin-address", "", "HOST:PORT of a resource plugin, which replaces the percentage")
	flags.StringVar(&o.slices.PluginCertificates, "resource-plugin-certificates", "", "folder with ca.crt, which signs the certificate of the resource "+
		"plugin, and optionally tls.crt and tls.key, which the plugin may ask for; if empty, the connection has no TLS")
	flags.StringSliceVar(&o.slices.StorageClasses, "peer-storage-classes", []string{"*"},
		"storage classes of this cluster that peers may use for their claims; * for all (NAME,...)")
}

func (o *peeringOptions) validate() error {
	switch {
	case o.slices.PluginCertificates != "" && o.slices.PluginAddress == "":
		return errors.New("--resource-plugin-certificates needs --resource-plugin-address: set both, or none")
	case o.offerThreshold < -1:
		return fmt.Errorf("--offer-update-threshold-percentage %d: must not be negative", o.offerThreshold)
	}
	return nil
}

// admission is what Auto means for the incoming peering of a ForeignCluster.
func (o *peeringOptions) admission() discoveryv1alpha1.PeeringEnabled {
	switch {
	case !o.incoming:
		return discoveryv1alpha1.PeeringNo
	case o.manual:
		return discoveryv1alpha1.PeeringManual
	}
	return discoveryv1alpha1.PeeringYes
}

// setupPeering adds the controllers of peerings, and returns what connects to peers.
func (o *Options) setupPeering(mgr manager.Manager, guard *policies.Guard) (*replicate.Replicator, error) {
	p := &o.peering
	p.connections.LocalClusterID, p.connections.Network = o.local.ClusterID, !o.disableInternalNetwork
	connector, err := replicate.New(mgr, p.connections)
	if err != nil {
		return nil, err
	}
	p.foreign.Local, p.foreign.Namespace, p.foreign.InternalNetwork = o.local, o.namespace, !o.disableInternalNetwork
	p.foreign.Connector, p.foreign.Tenants = connector, tenant.New(mgr.GetClient(), mgr.GetAPIReader(), o.namespace)
	p.foreign.Admission = admission.Policy{Setting: p.admission(), Policies: guard}
	p.pins.Local, p.pins.Namespace, p.pins.InternalNetwork = o.local, o.namespace, !o.disableInternalNetwork
	p.pins.Workers, p.pins.Tenants, p.pins.Admission = p.foreign.Workers, p.foreign.Tenants, p.foreign.Admission
	p.slices.Namespace, p.slices.IncomingPeering, p.slices.Tolerated = o.namespace, p.admission(), o.shadows.allowed.Toleration
	if p.offerThreshold >= 0 {
		p.slices.UpdateThreshold = &p.offerThreshold
	}
	return connector, errors.Join(foreigncluster.Setup(mgr, p.foreign), pins.Setup(mgr, p.pins), resourceslice.Setup(mgr, p.slices), flows.Setup(mgr))
}
