// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	liqoaction "liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/deletion"
	"liqo.io/liqo/internal/kube/ending"
)

// ensureNamespace creates the namespace if it does not exist, and returns it only then. One that is being deleted is waited for, unless a release is in it.
func (p *Prepared) ensureNamespace(ctx context.Context, progress liqoaction.Progress) (created *corev1.Namespace, err error) {
	var live corev1.Namespace
	gone := false
	err = p.client.Get(ctx, client.ObjectKey{Name: p.options.Namespace}, &live)
	switch {
	case err == nil && ending.Is(&live) && p.last != nil:
		return nil, fmt.Errorf("namespace %s is being deleted%s, with the Liqo in it; run the command again when it is gone", live.Name, ending.Since(&live))
	case err == nil && ending.Is(&live):
		if err := deletion.AwaitNamespace(ctx, p.client, &live, progress); err != nil {
			return nil, err
		}
		gone = true
	case client.IgnoreNotFound(err) != nil || err == nil:
		return nil, err
	}
	created = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.options.Namespace, Labels: map[string]string{
		labels.AppPartOf: labels.PartOf,
		// Clusters with a stricter default level would refuse the pods that change a node's network.
		"pod-security.kubernetes.io/enforce": "privileged",
	}}}
	if err := p.client.Create(ctx, created, client.FieldOwner(labels.OwnerCLI)); err != nil {
		return nil, fmt.Errorf("create namespace %s: %w", created.Name, err)
	}
	if gone {
		return created, p.awaitAdmission(ctx)
	}
	return created, nil
}

// awaitAdmission waits until objects are admitted to a namespace whose predecessor was being deleted: API servers know that one for a moment longer.
func (p *Prepared) awaitAdmission(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, goneInterval, true, func(ctx context.Context) (bool, error) {
		err := p.client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.options.Namespace, GenerateName: "liqo-"}}, client.DryRunAll)
		return err == nil || !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), nil // what else is refused is reported by what follows
	})
	if err != nil {
		return fmt.Errorf("wait until namespace %s takes objects: %w", p.options.Namespace, err)
	}
	return nil
}
