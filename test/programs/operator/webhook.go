// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// defaulter is the mutating webhook. It notes which pod answered.
type defaulter struct{ pod string }

func (d defaulter) Default(_ context.Context, page *Page) error {
	if page.Spec.Replicas == nil {
		one := int32(1)
		page.Spec.Replicas = &one
	}
	if page.Annotations == nil {
		page.Annotations = map[string]string{}
	}
	page.Annotations[defaultedBy] = d.pod
	return nil
}

// validator is the validating webhook. Its refusals name the pod that answered.
type validator struct{ pod string }

func (v validator) ValidateCreate(_ context.Context, page *Page) (admission.Warnings, error) {
	return nil, v.check(page)
}

func (v validator) ValidateUpdate(_ context.Context, _, page *Page) (admission.Warnings, error) {
	return nil, v.check(page)
}

func (validator) ValidateDelete(context.Context, *Page) (admission.Warnings, error) { return nil, nil }

func (v validator) check(page *Page) error {
	if replicas := page.Spec.Replicas; replicas != nil && (*replicas < 0 || *replicas > mostReplicas) {
		return fmt.Errorf("%d replicas are not between 0 and %d, by %s", *replicas, mostReplicas, v.pod)
	}
	return nil
}
