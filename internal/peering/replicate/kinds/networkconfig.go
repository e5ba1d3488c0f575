// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	metaconfig "k8s.io/client-go/applyconfigurations/meta/v1"

	netconfig "liqo.io/liqo/apis/applyconfiguration/net/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

// carriedLabels are the labels of a copy of a NetworkConfig: the same, whichever of the two clusters writes it.
var carriedLabels = []string{
	labels.Replication, labels.Replicated, labels.OriginID, labels.RemoteID, labels.ClusterID, labels.Ownership, labels.AppPartOf,
}

// NetworkSpecIntent describes the sender's network. Rows of networks that only repeat the fields stay here: the other cluster may not know them.
func NetworkSpecIntent(original *netv1alpha1.NetworkConfig, copied Meta) *netconfig.NetworkConfigApplyConfiguration {
	from := original.Spec.Carried()
	spec := netconfig.NetworkConfigSpec().
		WithCluster(netconfig.ClusterIdentity().WithClusterID(from.Cluster.ClusterID).WithClusterName(from.Cluster.ClusterName)).
		WithPodCIDR(from.PodCIDR).WithExternalCIDR(from.ExternalCIDR).WithAdditionalPodCIDRs(from.AdditionalPodCIDRs...).
		WithEndpointIP(from.EndpointIP).WithBackendType(from.BackendType).WithBackendConfig(from.BackendConfig).WithVersion(from.Version).
		WithSignatures(signatures(from.Signatures)...)
	for _, row := range from.Networks {
		spec.WithNetworks(netconfig.Networks().WithPodCIDR(row.PodCIDR).WithExternalCIDR(row.ExternalCIDR))
	}
	for _, lane := range from.Lanes {
		to := netconfig.Lane().WithNumber(lane.Number).WithPublicKey(lane.PublicKey)
		for _, carrier := range lane.Carriers {
			way := netconfig.Carrier().WithType(carrier.Type).WithAddresses(carrier.Addresses...).WithPort(carrier.Port)
			if carrier.Path != "" {
				way.WithPath(carrier.Path)
			}
			to.WithCarriers(way)
		}
		spec.WithLanes(to)
	}
	carried := map[string]string{}
	for _, label := range carriedLabels {
		if value, ok := copied.labels[label]; ok {
			carried[label] = value
		}
	}
	carried[labels.ClusterID] = copied.labels[labels.OriginID]
	return netconfig.NetworkConfig(copied.name, copied.namespace).WithLabels(carried).WithSpec(spec)
}

// signatures are carried unread: the receiver checks them, because it is the one that knows which key to believe.
func signatures(from []netv1alpha1.Signature) (all []*netconfig.SignatureApplyConfiguration) {
	for _, one := range from {
		all = append(all, netconfig.Signature().WithPublicKey(one.PublicKey).WithValue(one.Value))
	}
	return all
}

// NetworkStatusIntent is the receiver's answer; nil until it is one to the sender's current spec. Each cluster counts its
// own generations: an answer to the copy's current spec is one to the original's if the specs are equal.
func NetworkStatusIntent(original, copied *netv1alpha1.NetworkConfig) *netconfig.NetworkConfigApplyConfiguration {
	from := copied.Status
	if from.ObservedGeneration == 0 || from.ObservedGeneration != copied.Generation ||
		!equality.Semantic.DeepEqual(original.Spec.Carried(), copied.Spec.Carried()) {
		return nil
	}
	status := netconfig.NetworkConfigStatus().WithProcessed(from.Processed).WithObservedGeneration(original.Generation)
	if from.PodCIDRNAT != "" {
		status.WithPodCIDRNAT(from.PodCIDRNAT)
	}
	if from.ExternalCIDRNAT != "" {
		status.WithExternalCIDRNAT(from.ExternalCIDRNAT)
	}
	if from.StatesMore() {
		for _, row := range from.Networks {
			status.WithNetworks(netconfig.NetworksNAT().WithPodCIDRNAT(row.PodCIDRNAT).WithExternalCIDRNAT(row.ExternalCIDRNAT))
		}
	}
	status.WithSignatures(signatures(from.Signatures)...)
	if ready := apimeta.FindStatusCondition(from.Conditions, netv1alpha1.ConditionReady); ready != nil {
		status.WithConditions(metaconfig.Condition().WithType(ready.Type).WithStatus(ready.Status).WithReason(ready.Reason).
			WithMessage(Line(ready.Message)).WithLastTransitionTime(ready.LastTransitionTime).WithObservedGeneration(original.Generation))
	}
	return netconfig.NetworkConfig(original.Name, original.Namespace).WithStatus(status)
}

// Bounds of what a cluster may publish of its network.
const (
	maxNetworks  = 16
	maxLanes     = 8
	maxCarriers  = 8
	maxAddresses = 16
	maxSettings  = 16
	// maxFamilies are the address families.
	maxFamilies = 2
	// maxSignatures are one with each key of a cluster, of which it has two during a rotation.
	maxSignatures = 2
	maxWord       = 253 // a host name
)

// networkCheck refuses descriptions larger than those of any real network. The network controllers validate their contents.
func networkCheck(untyped map[string]any) error {
	var config netv1alpha1.NetworkConfig
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(untyped, &config); err != nil {
		return err
	}
	spec, status := &config.Spec, &config.Status
	words := []string{
		spec.Cluster.ClusterID, spec.Cluster.ClusterName, string(spec.PodCIDR), string(spec.ExternalCIDR), spec.EndpointIP, spec.BackendType,
		status.PodCIDRNAT, status.ExternalCIDRNAT,
	}
	few := func(what string, have, limit int) error {
		if have > limit {
			return fmt.Errorf("it has %d %s, at most %d are accepted", have, what, limit)
		}
		return nil
	}
	for _, err := range []error{
		few("additional networks", len(spec.AdditionalPodCIDRs), maxNetworks), few("settings of its tunnel", len(spec.BackendConfig), maxSettings),
		few("rows of networks", max(len(spec.Networks), len(status.Networks)), maxFamilies), few("lanes", len(spec.Lanes), maxLanes),
		few("conditions", len(status.Conditions), maxSettings),
		few("signatures", len(spec.Signatures), maxSignatures), few("signatures of its answer", len(status.Signatures), maxSignatures),
	} {
		if err != nil {
			return err
		}
	}
	for _, row := range spec.Networks {
		words = append(words, string(row.PodCIDR), string(row.ExternalCIDR))
	}
	for _, row := range status.Networks {
		words = append(words, row.PodCIDRNAT, row.ExternalCIDRNAT)
	}
	for _, network := range spec.AdditionalPodCIDRs {
		words = append(words, string(network))
	}
	for _, one := range slices.Concat(spec.Signatures, status.Signatures) {
		words = append(words, one.PublicKey, one.Value)
	}
	for key, value := range spec.BackendConfig {
		words = append(words, key, value)
	}
	numbers := map[int32]bool{}
	for _, lane := range spec.Lanes {
		if numbers[lane.Number] || lane.Number < 0 {
			return fmt.Errorf("lane number %d is negative or repeated", lane.Number)
		}
		numbers[lane.Number] = true
		if err := few("carriers on one lane", len(lane.Carriers), maxCarriers); err != nil {
			return err
		}
		words = append(words, lane.PublicKey)
		for _, carrier := range lane.Carriers {
			if err := few("addresses of one carrier", len(carrier.Addresses), maxAddresses); err != nil {
				return err
			}
			if carrier.Port < 1 || carrier.Port > 65535 {
				return fmt.Errorf("%d is not a port", carrier.Port)
			}
			words = append(append(words, carrier.Type, carrier.Path), carrier.Addresses...)
		}
	}
	for _, word := range words {
		if len(word) > maxWord {
			return fmt.Errorf("%.60q... has %d characters, at most %d are accepted", word, len(word), maxWord)
		}
	}
	return nil
}
