// SPDX-License-Identifier: Apache-2.0

package ssa

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
)

// Condition returns the intent of a whole condition.
func Condition(c *metav1.Condition) *metaapply.ConditionApplyConfiguration {
	return metaapply.Condition().WithType(c.Type).WithStatus(c.Status).WithReason(c.Reason).WithMessage(c.Message).
		WithLastTransitionTime(c.LastTransitionTime).WithObservedGeneration(c.ObservedGeneration)
}
