// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"fmt"
	"strings"

	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/choice"
)

// Chooses reports whether the namespace should have a remote namespace at the provider. While the selector is invalid, or the labels of the
// provider are unknown, the decision does not change, because removing a remote namespace deletes everything in it.
func Chooses(offloading *offloadingv1alpha1.NamespaceOffloading, p *Provider) bool {
	switch {
	case offloading.DeletionTimestamp != nil:
		return false
	case p.Leaving || !p.Settled():
		return p.asked(offloading.Namespace)
	}
	fits, err := choice.Fits(&offloading.Spec.ClusterSelector, p.Node)
	if err != nil {
		return p.asked(offloading.Namespace)
	}
	if fits && p.Allows != nil {
		if allowed, ok := p.Allows(offloading.Namespace); !allowed {
			return !ok && p.asked(offloading.Namespace)
		}
	}
	if fits && !Leads(offloading, p) {
		return p.asked(offloading.Namespace)
	}
	return fits
}

// Leads reports whether the selector selects the virtual node with all its labels, as the scheduler does. A label that is not accepted selects no
// cluster, but excludes one.
func Leads(offloading *offloadingv1alpha1.NamespaceOffloading, p *Provider) bool {
	if len(p.Hidden) == 0 {
		return Fits(offloading, p)
	}
	selected, err := choice.Fits(&offloading.Spec.ClusterSelector, p.Labelled)
	return err == nil && selected
}

// Places returns the virtual nodes whose clusters run the pods of an offloaded namespace, and those to which its strategy and selector lead pods in
// vain: labels that the selector names are not accepted, the cluster may not receive the namespace, or the provider refuses the remote namespace.
// What is not known for certain is in neither.
func Places(offloading *offloadingv1alpha1.NamespaceOffloading, providers []Provider) (run, vain []string) {
	for i := range providers {
		p := &providers[i]
		if p.Leaving || !p.Settled() || !Leads(offloading, p) {
			continue
		}
		if p.Allows != nil {
			if _, ok := p.Allows(offloading.Namespace); !ok {
				continue
			}
		}
		reported := p.Reported(offloading.Namespace)
		if Chooses(offloading, p) && (reported == nil || reported.Phase != vkv1alpha1.MappingCreationLoopBackOff) {
			run = append(run, p.NodeName)
		} else {
			vain = append(vain, p.NodeName)
		}
	}
	return run, vain
}

// NotAccepted returns in one sentence how a provider would be chosen by labels that this cluster does not accept; nothing if it would not.
func NotAccepted(offloading *offloadingv1alpha1.NamespaceOffloading, p *Provider) string {
	if len(p.Hidden) == 0 || !p.Settled() || Chooses(offloading, p) {
		return ""
	}
	if !Leads(offloading, p) || Fits(offloading, p) {
		return ""
	}
	named := choice.Named(&offloading.Spec.ClusterSelector, p.Hidden)
	return fmt.Sprintf("cluster %s is not chosen, because labels that it gives itself are not accepted: %s; if you trust it with this namespace: %s",
		p.Name, strings.Join(named, ", "), choice.AcceptCommand(p.Foreign, named))
}

func Fits(offloading *offloadingv1alpha1.NamespaceOffloading, p *Provider) bool {
	selected, err := choice.Fits(&offloading.Spec.ClusterSelector, p.Node)
	return err == nil && selected
}
