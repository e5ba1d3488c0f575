// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/choice"
)

// Provider is a cluster that grants a virtual node to this cluster.
type Provider struct {
	ID, Name string // name is the unique one
	// Foreign is the name of its ForeignCluster; empty if it is gone.
	Foreign string
	// Tenant is its local tenant namespace.
	Tenant string
	// Leaving: the virtual node is being removed, or the provider no longer grants resources.
	Leaving bool
	// NodeName is the name of the virtual node; node is nil if there is none. It has only those labels that selectors consider.
	NodeName string
	Node     *corev1.Node
	// Labelled is the virtual node with all its labels; hidden are those that node lacks, as KEY=VALUE.
	Labelled *corev1.Node
	Hidden   []string
	// Allows reports whether the provider may receive a namespace; known is false if that cannot be decided now. Nil: it may receive all.
	Allows func(namespace string) (allowed, known bool)
	// Namespaces is our NamespaceMap for the provider; nil if there is none.
	Namespaces *vkv1alpha1.NamespaceMap
}

// Answers reports whether the provider answers, according to the condition of its virtual node.
func (p *Provider) Answers() bool { return p.Node != nil && NodeReady(p.Node) }

// Settled reports whether the labels of the node are those of the provider: a node that was just registered has none yet.
func (p *Provider) Settled() bool { return choice.Settled(p.Node) }

func (p *Provider) asked(namespace string) bool {
	if p.Namespaces == nil {
		return false
	}
	_, ok := p.Namespaces.Spec.DesiredMapping[namespace]
	return ok
}

// Reported returns what the provider reports about the remote namespace of a namespace; nil for nothing.
func (p *Provider) Reported(namespace string) *vkv1alpha1.RemoteNamespaceStatus {
	if p.Namespaces == nil {
		return nil
	}
	if reported, ok := p.Namespaces.Status.CurrentMapping[namespace]; ok {
		return &reported
	}
	return nil
}

// Holds reports whether the provider has the remote namespace of a namespace, or is asked for it.
func (p *Provider) Holds(namespace string) bool {
	return p.asked(namespace) || p.Reported(namespace) != nil
}

// CheckSelector returns in one sentence why a cluster selector is invalid; nothing if it is valid.
func CheckSelector(selector *corev1.NodeSelector) string {
	if _, err := nodeaffinity.NewNodeSelector(selector); err != nil {
		return fmt.Sprintf("spec.clusterSelector is invalid: %v", err)
	}
	return ""
}
