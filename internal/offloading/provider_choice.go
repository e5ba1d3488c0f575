// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"fmt"
	"strings"

	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/choice"
)

// chooses reports whether the namespace should have a remote namespace at the provider. While the selector is invalid, or the labels of the
// provider are unknown, the decision does not change, because removing a remote namespace deletes everything in it.
func chooses(offloading *offloadingv1alpha1.NamespaceOffloading, p *provider) bool {
	switch {
	case offloading.DeletionTimestamp != nil:
		return false
	case p.leaving || !p.settled():
		return p.asked(offloading.Namespace)
	}
	fits, err := choice.Fits(&offloading.Spec.ClusterSelector, p.node)
	if err != nil {
		return p.asked(offloading.Namespace)
	}
	if fits && p.allows != nil {
		if allowed, known := p.allows(offloading.Namespace); !allowed {
			return !known && p.asked(offloading.Namespace)
		}
	}
	if fits && !leads(offloading, p) {
		return p.asked(offloading.Namespace)
	}
	return fits
}

// leads reports whether the selector selects the virtual node with all its labels, as the scheduler does. A label that is not accepted selects no cluster, but excludes one.
func leads(offloading *offloadingv1alpha1.NamespaceOffloading, p *provider) bool {
	if len(p.hidden) == 0 {
		return fits(offloading, p)
	}
	selected, err := choice.Fits(&offloading.Spec.ClusterSelector, p.labelled)
	return err == nil && selected
}

// places returns the virtual nodes whose clusters run the pods of an offloaded namespace, and those to which its strategy and selector lead pods in vain: labels that the
// selector names are not accepted, the cluster may not receive the namespace, or the provider refuses the remote namespace. What is not known for certain is in neither.
func places(offloading *offloadingv1alpha1.NamespaceOffloading, providers []provider) (run, vain []string) {
	for i := range providers {
		p := &providers[i]
		if p.leaving || !p.settled() || !leads(offloading, p) {
			continue
		}
		if p.allows != nil {
			if _, known := p.allows(offloading.Namespace); !known {
				continue
			}
		}
		reported := p.reported(offloading.Namespace)
		if chooses(offloading, p) && (reported == nil || reported.Phase != vkv1alpha1.MappingCreationLoopBackOff) {
			run = append(run, p.nodeName)
		} else {
			vain = append(vain, p.nodeName)
		}
	}
	return run, vain
}

// lured returns in one sentence how a provider would be chosen by labels that this cluster does not accept; nothing if it would not.
func lured(offloading *offloadingv1alpha1.NamespaceOffloading, p *provider) string {
	if len(p.hidden) == 0 || !p.settled() || chooses(offloading, p) {
		return ""
	}
	if !leads(offloading, p) || fits(offloading, p) {
		return ""
	}
	named := choice.Named(&offloading.Spec.ClusterSelector, p.hidden)
	return fmt.Sprintf("cluster %s is not chosen, because labels that it gives itself are not accepted: %s; if you trust it with this namespace: %s",
		p.name, strings.Join(named, ", "), choice.AcceptCommand(p.foreign, named))
}

func fits(offloading *offloadingv1alpha1.NamespaceOffloading, p *provider) bool {
	selected, err := choice.Fits(&offloading.Spec.ClusterSelector, p.node)
	return err == nil && selected
}
