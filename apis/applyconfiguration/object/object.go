// SPDX-License-Identifier: Apache-2.0

// Package object is the apply configuration of any kind of Liqo: metadata, Spec and Status. controller-gen writes the same 270 lines for
// each kind; hack/generate replaces them by a row in the kinds.go of each group. It must not know a kind. Its test compares the two.
package object

import (
	"k8s.io/apimachinery/pkg/types"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
)

// Configuration of an object for a server-side apply. A kind without a status has struct{} as Status.
type Configuration[Spec, Status any] struct {
	metaapply.TypeMetaApplyConfiguration    `json:""`
	*metaapply.ObjectMetaApplyConfiguration `json:"metadata,omitempty"`
	Spec                                    *Spec   `json:"spec,omitempty"`
	Status                                  *Status `json:"status,omitempty"`
}

// New has the identity of the object, and nothing else. The namespace of a kind of the whole cluster is empty.
func New[Spec, Status any](apiVersion, kind, namespace, name string) *Configuration[Spec, Status] {
	c := (&Configuration[Spec, Status]{}).WithName(name)
	if namespace != "" {
		c.meta().WithNamespace(namespace)
	}
	c.WithKind(kind).WithAPIVersion(apiVersion)
	return c
}

// meta also serves a configuration that was decoded and has no metadata.
func (c *Configuration[Spec, Status]) meta() *metaapply.ObjectMetaApplyConfiguration {
	if c.ObjectMetaApplyConfiguration == nil {
		c.ObjectMetaApplyConfiguration = metaapply.ObjectMeta()
	}
	return c.ObjectMetaApplyConfiguration
}

// IsApplyConfiguration marks the type for clients.
func (c Configuration[Spec, Status]) IsApplyConfiguration() {}

// WithName replaces the name.
func (c *Configuration[Spec, Status]) WithName(name string) *Configuration[Spec, Status] {
	c.meta().WithName(name)
	return c
}

// WithUID refuses an object of the same name.
func (c *Configuration[Spec, Status]) WithUID(uid types.UID) *Configuration[Spec, Status] {
	c.meta().WithUID(uid)
	return c
}

// WithLabels adds labels.
func (c *Configuration[Spec, Status]) WithLabels(entries map[string]string) *Configuration[Spec, Status] {
	c.meta().WithLabels(entries)
	return c
}

// WithAnnotations adds annotations.
func (c *Configuration[Spec, Status]) WithAnnotations(entries map[string]string) *Configuration[Spec, Status] {
	c.meta().WithAnnotations(entries)
	return c
}

// WithOwnerReferences adds owners.
func (c *Configuration[Spec, Status]) WithOwnerReferences(owners ...*metaapply.OwnerReferenceApplyConfiguration) *Configuration[Spec, Status] {
	c.meta().WithOwnerReferences(owners...)
	return c
}

// WithFinalizers adds finalizers.
func (c *Configuration[Spec, Status]) WithFinalizers(finalizers ...string) *Configuration[Spec, Status] {
	c.meta().WithFinalizers(finalizers...)
	return c
}

// WithSpec replaces the Spec.
func (c *Configuration[Spec, Status]) WithSpec(spec *Spec) *Configuration[Spec, Status] {
	c.Spec = spec
	return c
}

// WithStatus replaces the Status.
func (c *Configuration[Spec, Status]) WithStatus(status *Status) *Configuration[Spec, Status] {
	c.Status = status
	return c
}
