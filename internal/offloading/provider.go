// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/choice"
)

// provider is a cluster that grants a virtual node to this cluster.
type provider struct {
	id, name string // name is the unique one
	// foreign is the name of its ForeignCluster; empty if it is gone.
	foreign string
	// tenant is its local tenant namespace.
	tenant string
	// leaving: the virtual node is being removed, or the provider no longer grants resources.
	leaving bool
	// nodeName is the name of the virtual node; node is nil if there is none. It has only those labels that selectors consider.
	nodeName string
	node     *corev1.Node
	// labelled is the virtual node with all its labels; hidden are those that node lacks, as KEY=VALUE.
	labelled *corev1.Node
	hidden   []string
	// allows reports whether the provider may receive a namespace; known is false if that cannot be decided now. Nil: it may receive all.
	allows func(namespace string) (allowed, known bool)
	// namespaces is our NamespaceMap for the provider; nil if there is none.
	namespaces *vkv1alpha1.NamespaceMap
}

// answers reports whether the provider answers, according to the condition of its virtual node.
func (p *provider) answers() bool { return p.node != nil && nodeReady(p.node) }

// settled reports whether the labels of the node are those of the provider: a node that was just registered has none yet.
func (p *provider) settled() bool { return choice.Settled(p.node) }

func (p *provider) asked(namespace string) bool {
	if p.namespaces == nil {
		return false
	}
	_, is := p.namespaces.Spec.DesiredMapping[namespace]
	return is
}

// reported returns what the provider reports about the remote namespace of a namespace; nil for nothing.
func (p *provider) reported(namespace string) *vkv1alpha1.RemoteNamespaceStatus {
	if p.namespaces == nil {
		return nil
	}
	if reported, is := p.namespaces.Status.CurrentMapping[namespace]; is {
		return &reported
	}
	return nil
}

// holds reports whether the provider has the remote namespace of a namespace, or is asked for it.
func (p *provider) holds(namespace string) bool {
	return p.asked(namespace) || p.reported(namespace) != nil
}

// checkSelector returns in one sentence why a cluster selector is invalid; nothing if it is valid.
func checkSelector(selector *corev1.NodeSelector) string {
	if _, err := nodeaffinity.NewNodeSelector(selector); err != nil {
		return fmt.Sprintf("spec.clusterSelector is invalid: %v", err)
	}
	return ""
}
