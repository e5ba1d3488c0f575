// SPDX-License-Identifier: Apache-2.0

package virtualkubelet

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"liqo.io/liqo/apis/labels"
)

// nodeLabels returns the labels of the node. Ours overwrite those of the provider.
func (p *nodeInputs) nodeLabels() map[string]string {
	all := p.providerLabels()
	maps.Copy(all, p.ownLabels())
	return all
}

// nodeAnnotations returns the annotations of the node. They are written together with the labels, so that a label of the provider is never
// taken for one of this cluster.
func (p *nodeInputs) nodeAnnotations() map[string]string {
	all := maps.Clone(p.extraAnnotations)
	if all == nil {
		all = map[string]string{}
	}
	theirs := p.providerLabels()
	for key := range p.ownLabels() {
		delete(theirs, key)
	}
	all[labels.ProviderLabels] = strings.Join(slices.Sorted(maps.Keys(theirs)), ",")
	return all
}

// providerLabels returns the labels that the provider may set.
func (p *nodeInputs) providerLabels() map[string]string {
	all := map[string]string{}
	if p.granted != nil {
		for key, value := range p.granted.Labels {
			if mayLabel(key, value) {
				all[key] = value
			}
		}
	}
	return all
}

func (p *nodeInputs) ownLabels() map[string]string {
	all := maps.Clone(p.extraLabels)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, map[string]string{
		corev1.LabelHostname:             p.name,
		corev1.LabelOSStable:             p.os(),
		corev1.LabelArchStable:           p.arch(),
		"kubernetes.io/role":             "agent",
		labels.Type:                      labels.TypeVirtualNode,
		labels.RemoteClusterID:           p.clusterID,
		corev1.LabelNodeExcludeBalancers: "true",
		"alpha.service-controller.kubernetes.io/exclude-balancer": "true",
	})
	if p.storage && p.granted != nil && len(p.granted.StorageClasses) > 0 {
		all[labels.StorageAvailable] = "true"
	}
	return all
}

// mayLabel reports whether a provider may set a label on its node. It may not set labels of Kubernetes, which for instance make a node part
// of the control plane, except topology and instance type. Labels that the API server refuses are left out, because it would refuse
// the whole node with them.
func mayLabel(key, value string) bool {
	if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 || key == labels.StorageAvailable {
		return false
	}
	domain, _, _ := strings.Cut(key, "/")
	if domain == "topology.kubernetes.io" || key == corev1.LabelInstanceTypeStable {
		return true
	}
	for _, reserved := range []string{"kubernetes.io", "k8s.io"} {
		if strings.Contains(key, "/") && (domain == reserved || strings.HasSuffix(domain, "."+reserved)) {
			return false
		}
	}
	return true
}
