// SPDX-License-Identifier: Apache-2.0

// Package offload offloads a namespace, narrows that, and ends it, after it has shown what would be lost. Its proof are
// offload_test.go and claims_test.go of package apiserver.
package offload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	klabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/accept"
	"liqo.io/liqo/internal/action/await"
	"liqo.io/liqo/internal/action/deletion"
	"liqo.io/liqo/internal/kube/ending"
	"liqo.io/liqo/internal/offloading/choice"
	"liqo.io/liqo/internal/offloading/contents"
)

type Options struct {
	Namespace string
	// PodOffloadingStrategy and NamespaceMappingStrategy are values of the fields of these names.
	PodOffloadingStrategy, NamespaceMappingStrategy string
	// Selectors are label selectors of clusters; a cluster must match one of them. Without selectors all clusters are chosen.
	Selectors []string
	// Timeout bounds the whole action.
	Timeout time.Duration
	// Force also deletes remote namespaces that have volumes or objects of others, or that cannot be read.
	Force bool
}

// operators of label selectors, as node selectors call them.
var operators = map[selection.Operator]corev1.NodeSelectorOperator{
	selection.In: corev1.NodeSelectorOpIn, selection.Equals: corev1.NodeSelectorOpIn, selection.DoubleEquals: corev1.NodeSelectorOpIn,
	selection.NotIn: corev1.NodeSelectorOpNotIn, selection.NotEquals: corev1.NodeSelectorOpNotIn,
	selection.Exists: corev1.NodeSelectorOpExists, selection.DoesNotExist: corev1.NodeSelectorOpDoesNotExist,
	selection.GreaterThan: corev1.NodeSelectorOpGt, selection.LessThan: corev1.NodeSelectorOpLt,
}

// ClusterSelector returns a node selector with a term for each label selector.
func ClusterSelector(texts []string) (corev1.NodeSelector, error) {
	selector := corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{}}
	for _, text := range texts {
		parsed, err := klabels.Parse(text)
		if err != nil {
			return selector, fmt.Errorf("selector %q: %w; use the syntax of kubectl, for example region=europe,tier in (gold,silver),!spot", text, err)
		}
		requirements, _ := parsed.Requirements()
		if len(requirements) == 0 {
			return selector, fmt.Errorf("selector %q is empty; leave it out to choose all clusters", text)
		}
		term := corev1.NodeSelectorTerm{}
		for _, one := range requirements {
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{
				Key: one.Key(), Operator: operators[one.Operator()], Values: slices.Sorted(maps.Keys(one.Values())),
			})
		}
		selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, term)
	}
	return selector, nil
}

func (o Options) NamespaceOffloading() (*offloadingv1alpha1.NamespaceOffloading, error) {
	spec := offloadingv1alpha1.NamespaceOffloadingSpec{
		NamespaceMappingStrategy: offloadingv1alpha1.NamespaceMappingStrategy(o.NamespaceMappingStrategy),
		PodOffloadingStrategy:    offloadingv1alpha1.PodOffloadingStrategy(o.PodOffloadingStrategy),
	}
	switch spec.NamespaceMappingStrategy {
	case offloadingv1alpha1.DefaultName, offloadingv1alpha1.EnforceSameName:
	default:
		return nil, fmt.Errorf("namespace mapping strategy %q: want DefaultName or EnforceSameName", o.NamespaceMappingStrategy)
	}
	switch spec.PodOffloadingStrategy {
	case offloadingv1alpha1.PodsLocal, offloadingv1alpha1.PodsRemote, offloadingv1alpha1.PodsLocalAndRemote:
	default:
		return nil, fmt.Errorf("pod offloading strategy %q: want LocalAndRemote, Local or Remote", o.PodOffloadingStrategy)
	}
	var err error
	if spec.ClusterSelector, err = ClusterSelector(o.Selectors); err != nil {
		return nil, err
	}
	return &offloadingv1alpha1.NamespaceOffloading{
		TypeMeta:   metav1.TypeMeta{APIVersion: offloadingv1alpha1.GroupVersion.String(), Kind: "NamespaceOffloading"},
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: offloadingv1alpha1.NamespaceOffloadingName},
		Spec:       spec,
	}, nil
}

// Namespace extends a namespace to other clusters and waits until the remote namespaces are ready. Remote namespaces that the
// new selectors give up are deleted; Offload refuses if they hold more than copies of local objects.
func Namespace(ctx context.Context, c client.WithWatch, o Options, p action.Progress) error {
	desired, err := o.NamespaceOffloading()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	p.Start(fmt.Sprintf("Enabling the offloading of namespace %q", o.Namespace))
	before, err := offloadingOf(ctx, c, o.Namespace)
	if err != nil {
		p.Stop()
		return err
	}
	if namespace := deletion.Namespace(ctx, c, o.Namespace); namespace != nil && ending.Is(namespace) {
		p.Stop()
		return fmt.Errorf("namespace %q is being deleted%s, so it cannot be offloaded: %s", o.Namespace, ending.Since(namespace),
			cmp.Or(ending.Obstacles(namespace), "Kubernetes deletes what is in it"))
	}
	if before != nil && before.DeletionTimestamp != nil {
		if err := awaitUnoffloaded(ctx, c, o, before, p); err != nil {
			p.Stop()
			return err
		}
		before = nil
	}
	if before != nil && !equality.Semantic.DeepEqual(before.Spec.ClusterSelector, desired.Spec.ClusterSelector) {
		// What the API server refuses must be known before the data of claims is deleted.
		if _, err := applyOffloading(ctx, c, desired, client.DryRunAll); err != nil {
			p.Stop()
			return err
		}
		if err := narrow(ctx, c, withdrawal{before, o.Force}, &desired.Spec.ClusterSelector, p); err != nil {
			p.Stop()
			return err
		}
	}
	now, err := applyOffloading(ctx, c, desired)
	if err != nil {
		p.Stop()
		return err
	}
	p.Done(fmt.Sprintf("Offloading of namespace %q correctly enabled", o.Namespace))
	strategy := desired.Spec.PodOffloadingStrategy
	if before != nil && before.Spec.PodOffloadingStrategy != strategy && strategy != offloadingv1alpha1.PodsLocalAndRemote {
		p.Warn("The pod offloading strategy was changed to a more restrictive one")
		p.Warn("Existing pods that violate it may still be running")
	}
	return followOffloading(ctx, c, o, now, p)
}

// offloadingOf reads the NamespaceOffloading of a namespace; nil if it is not offloaded.
func offloadingOf(ctx context.Context, c client.Reader, namespace string) (*offloadingv1alpha1.NamespaceOffloading, error) {
	var found offloadingv1alpha1.NamespaceOffloading
	key := client.ObjectKey{Namespace: namespace, Name: offloadingv1alpha1.NamespaceOffloadingName}
	switch err := await.Retry(ctx, func(ctx context.Context) error { return c.Get(ctx, key, &found) }); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read whether namespace %q is offloaded: %w", namespace, err)
	}
	return &found, nil
}

// narrow assesses the impact on the remote namespaces that a new selector gives up. If the labels of a cluster's virtual node
// are unknown, its remote namespace stays for now but may be deleted once they are known: narrow counts it as given up.
func narrow(ctx context.Context, c client.WithWatch, w withdrawal, selector *corev1.NodeSelector, p action.Progress) error {
	namespace := w.offloading.Namespace
	held, err := heldNamespaces(ctx, c, namespace)
	if err != nil || len(held) == 0 {
		return err
	}
	var nodes corev1.NodeList
	err = await.Retry(ctx, func(ctx context.Context) error {
		return c.List(ctx, &nodes, client.MatchingLabels{labels.Type: labels.TypeVirtualNode})
	})
	if err != nil {
		return fmt.Errorf("list virtual nodes: %w", err)
	}
	var peers discoveryv1alpha1.ForeignClusterList
	if err := await.Retry(ctx, func(ctx context.Context) error { return c.List(ctx, &peers) }); err != nil {
		return fmt.Errorf("list peers: %w", err)
	}
	var lost []contents.Held
	for _, one := range held {
		if !one.Desired {
			continue // already given up, whatever the selector
		}
		id := one.ClusterID
		var accepted []string
		if fc := discoveryv1alpha1.OwnerOf(peers.Items, id); fc != nil {
			accepted = fc.Spec.AcceptedLabels
		}
		stays, err := keepsNamespace(selector, nodes.Items, id, accepted)
		if err != nil {
			return fmt.Errorf("cluster selector of namespace %q: %w", namespace, err)
		}
		if !stays {
			lost = append(lost, one)
			p.Warn(fmt.Sprintf("Cluster %s would no longer be chosen, and its namespace %s would be deleted with its contents", one.Cluster, one.Namespace))
		}
	}
	return assessImpact(ctx, c, w, lost, p)
}

// keepsNamespace reports whether a selector certainly chooses a cluster.
func keepsNamespace(selector *corev1.NodeSelector, nodes []corev1.Node, clusterID string, accepted []string) (keeps bool, err error) {
	if len(selector.NodeSelectorTerms) == 0 {
		return true, nil // all clusters, whatever their labels
	}
	for i := range nodes {
		if nodes[i].Labels[labels.RemoteClusterID] != clusterID {
			continue
		}
		view, _ := choice.View(&nodes[i], accepted)
		fits, err := choice.Fits(selector, view)
		if err != nil || !fits || !choice.Settled(view) {
			return false, err
		}
		keeps = true
	}
	return keeps, nil
}

// applyOffloading applies the whole desired object, which also removes a selector that is no longer wanted.
func applyOffloading(ctx context.Context, c client.Client, desired *offloadingv1alpha1.NamespaceOffloading,
	how ...client.ApplyOption,
) (*offloadingv1alpha1.NamespaceOffloading, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(desired)
	if err != nil {
		return nil, fmt.Errorf("encode the NamespaceOffloading: %w", err)
	}
	delete(fields, "status")
	unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
	sent := &unstructured.Unstructured{}
	err = await.Retry(ctx, func(ctx context.Context) error {
		sent.Object = runtime.DeepCopyJSON(fields)
		return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(sent), append(how, client.FieldOwner(labels.OwnerCLI), client.ForceOwnership)...)
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("namespace %q cannot be offloaded: it does not exist, or Liqo is not installed in this cluster (%w)", desired.Namespace, err)
	case err != nil:
		return nil, fmt.Errorf("offload namespace %q: %w", desired.Namespace, err)
	}
	now := &offloadingv1alpha1.NamespaceOffloading{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(sent.Object, now); err != nil {
		return nil, fmt.Errorf("read what was applied: %w", err)
	}
	return now, nil
}

// followOffloading waits until the remote namespaces are ready or have failed.
func followOffloading(ctx context.Context, c client.WithWatch, o Options, applied *offloadingv1alpha1.NamespaceOffloading, p action.Progress) error {
	p.Start(fmt.Sprintf("Waiting for the remote namespaces of %q", o.Namespace))
	last := applied
	err := await.Follow(ctx, c, &offloadingv1alpha1.NamespaceOffloadingList{}, func(all []offloadingv1alpha1.NamespaceOffloading) (bool, error) {
		if len(all) == 0 || all[0].UID != applied.UID {
			return false, fmt.Errorf("the NamespaceOffloading of %q was deleted in the meantime; run the command again", o.Namespace)
		}
		last = &all[0]
		if last.Status.ObservedGeneration < applied.Generation {
			return false, nil
		}
		switch last.Status.OffloadingPhase {
		case offloadingv1alpha1.OffloadingReady, offloadingv1alpha1.OffloadingNoClusterSelected:
			return true, nil
		case offloadingv1alpha1.OffloadingSomeFailed, offloadingv1alpha1.OffloadingAllFailed:
			return false, fmt.Errorf("the offloading of namespace %q is %s: %s", o.Namespace, last.Status.OffloadingPhase, deletion.Unready(last))
		}
		return false, nil
	}, client.InNamespace(o.Namespace), client.MatchingFields{"metadata.name": applied.Name})
	p.Stop()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the offloading of namespace %q was not complete after %s, it is %s: %s; the controllers continue, see: kubectl -n %[1]s describe "+
			"namespaceoffloading (%[5]w)",
			o.Namespace, o.Timeout, cmp.Or(string(last.Status.OffloadingPhase), "not processed yet"), deletion.Unready(last), err)
	case err != nil:
		return err
	case last.Status.OffloadingPhase == offloadingv1alpha1.OffloadingNoClusterSelected:
		p.Warn("Offloading completed, but no cluster was selected")
		accept.ShowChoice(ctx, c, &last.Spec.ClusterSelector, p)
	default:
		p.Done("Offloading completed successfully")
	}
	return nil
}

// awaitUnoffloaded waits until an offloading that ends is gone.
func awaitUnoffloaded(ctx context.Context, c client.WithWatch, o Options, before *offloadingv1alpha1.NamespaceOffloading, p action.Progress) error {
	last := before
	p.Info(deletion.Offloading(last, nil))
	err := await.UntilGone(ctx, c, &offloadingv1alpha1.NamespaceOffloadingList{}, before, func(now *offloadingv1alpha1.NamespaceOffloading) {
		last = now
		p.Start("Waiting until it is gone: " + deletion.Offloading(last, nil))
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("nothing was changed: after %s, %s; wait with `liqoctl unoffload namespace %s`, then try again (%w)", o.Timeout,
			deletion.Offloading(last, nil), o.Namespace, err)
	case err != nil:
		return fmt.Errorf("wait until the former offloading of namespace %q is gone: %w", o.Namespace, err)
	}
	return nil
}
