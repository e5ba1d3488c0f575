// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/await"
	"liqo.io/liqo/internal/action/deletion"
	"liqo.io/liqo/internal/kube/ending"
)

type UnoffloadOptions struct {
	Namespace string
	// Timeout bounds the whole action.
	Timeout time.Duration
	// Force also deletes remote namespaces that have volumes or objects of others, or that cannot be read.
	Force bool
}

// Unoffload ends the offloading of a namespace and waits until its remote namespaces are gone. They are deleted with their
// contents; Unoffload refuses if they hold more than copies of local objects.
func Unoffload(ctx context.Context, c client.WithWatch, o UnoffloadOptions, p action.Progress) error {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	p.Start(fmt.Sprintf("Reading what namespace %q has in other clusters", o.Namespace))
	found, err := offloadingOf(ctx, c, o.Namespace)
	if err != nil {
		p.Stop()
		return err
	}
	if found == nil {
		p.Stop()
		return fmt.Errorf("namespace %q is not offloaded; to list the offloaded ones: kubectl get namespaceoffloadings -A", o.Namespace)
	}
	namespace := deletion.Namespace(ctx, c, o.Namespace)
	goes := found.DeletionTimestamp != nil || namespace != nil && ending.Is(namespace)
	if !goes {
		lost, err := heldNamespaces(ctx, c, o.Namespace)
		if err == nil {
			err = assessImpact(ctx, c, withdrawal{found, o.Force}, lost, p)
		}
		if err != nil {
			p.Stop()
			return err
		}
		err = await.Retry(ctx, func(ctx context.Context) error {
			return client.IgnoreNotFound(c.Delete(ctx, found, await.SameObject(found.UID)))
		})
		if err != nil && !apierrors.IsConflict(err) {
			p.Stop()
			return fmt.Errorf("unoffload namespace %q: %w", o.Namespace, err)
		}
	}
	if goes {
		p.Info(deletion.Offloading(found, namespace))
	} else {
		p.Done(fmt.Sprintf("Offloading of namespace %q correctly disabled", o.Namespace))
	}
	p.Start(fmt.Sprintf("Waiting until the remote namespaces of %q are gone", o.Namespace))
	last := found
	err = await.UntilGone(ctx, c, &offloadingv1alpha1.NamespaceOffloadingList{}, found, func(now *offloadingv1alpha1.NamespaceOffloading) {
		last = now
		if far := deletion.NotReady(last); far != "" {
			p.Start(fmt.Sprintf("Waiting until the remote namespaces of %q are gone: %s", o.Namespace, far))
		}
	})
	if err != nil {
		p.Stop()
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("namespace %q was not gone in the other clusters after %s: %s; the controllers continue (Deployment liqo-controller-manager), see: "+
				"kubectl -n %[1]s describe namespaceoffloading (%[4]w)",
				o.Namespace, o.Timeout, deletion.Offloading(last, deletion.Namespace(ctx, c, o.Namespace)), err)
		}
		return fmt.Errorf("wait until namespace %q is gone in the other clusters: %w", o.Namespace, err)
	}
	p.Done("Unoffloading completed successfully")
	return nil
}
