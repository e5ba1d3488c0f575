// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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

	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	"liqo.io/liqo/internal/offloading/choice"
)

// OffloadOptions say which namespace to extend, and how.
type OffloadOptions struct {
	Namespace string
	// PodOffloadingStrategy and NamespaceMappingStrategy are values of the fields of these names.
	PodOffloadingStrategy, NamespaceMappingStrategy string
	// Selectors are label selectors of clusters; one that fits is enough. None choose all clusters.
	Selectors []string
	// LiqoNamespace is where Liqo is installed.
	LiqoNamespace string
	// Timeout bounds all of it.
	Timeout time.Duration
	// Force also gives up twins with volumes, and with what somebody else made over there or what cannot be looked at.
	Force bool
}

// operators of label selectors, as node selectors call them.
var operators = map[selection.Operator]corev1.NodeSelectorOperator{
	selection.In: corev1.NodeSelectorOpIn, selection.Equals: corev1.NodeSelectorOpIn, selection.DoubleEquals: corev1.NodeSelectorOpIn,
	selection.NotIn: corev1.NodeSelectorOpNotIn, selection.NotEquals: corev1.NodeSelectorOpNotIn,
	selection.Exists: corev1.NodeSelectorOpExists, selection.DoesNotExist: corev1.NodeSelectorOpDoesNotExist,
	selection.GreaterThan: corev1.NodeSelectorOpGt, selection.LessThan: corev1.NodeSelectorOpLt,
}

// clusterSelector has a term for each label selector.
func clusterSelector(texts []string) (corev1.NodeSelector, error) {
	selector := corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{}}
	for _, text := range texts {
		parsed, err := klabels.Parse(text)
		if err != nil {
			return selector, fmt.Errorf("selector %q: %w; write it as for kubectl, say region=europe,tier in (gold,silver),!spot", text, err)
		}
		requirements, _ := parsed.Requirements()
		if len(requirements) == 0 {
			return selector, fmt.Errorf("selector %q says nothing; leave it out to choose all clusters", text)
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

// NamespaceOffloading is what Offload applies.
func (o OffloadOptions) NamespaceOffloading() (*offloadingv1alpha1.NamespaceOffloading, error) {
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
	if spec.ClusterSelector, err = clusterSelector(o.Selectors); err != nil {
		return nil, err
	}
	return &offloadingv1alpha1.NamespaceOffloading{
		TypeMeta:   metav1.TypeMeta{APIVersion: offloadingv1alpha1.GroupVersion.String(), Kind: "NamespaceOffloading"},
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: offloadingv1alpha1.NamespaceOffloadingName},
		Spec:       spec,
	}, nil
}

// Offload lets a namespace extend to other clusters, and waits until it does. What is in twins that the new selectors give up is lost; it
// refuses if that is more than what this cluster has put there itself.
func Offload(ctx context.Context, c client.WithWatch, o OffloadOptions, p Progress) error {
	wish, err := o.NamespaceOffloading()
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
	if before != nil && before.DeletionTimestamp != nil {
		p.Stop()
		return fmt.Errorf("namespace %q is still being unoffloaded; wait for it with `liqoctl unoffload namespace %[1]s`, then try again", o.Namespace)
	}
	if before != nil && !equality.Semantic.DeepEqual(before.Spec.ClusterSelector, wish.Spec.ClusterSelector) {
		if err := narrow(ctx, c, o, &wish.Spec.ClusterSelector, p); err != nil {
			p.Stop()
			return err
		}
	}
	now, err := applyOffloading(ctx, c, wish)
	if err != nil {
		p.Stop()
		return err
	}
	p.Done(fmt.Sprintf("Offloading of namespace %q correctly enabled", o.Namespace))
	strategy := wish.Spec.PodOffloadingStrategy
	if before != nil && before.Spec.PodOffloadingStrategy != strategy && strategy != offloadingv1alpha1.PodsLocalAndRemote {
		p.Warn("The pod offloading strategy was changed to a more restrictive one")
		p.Warn("Existing pods that violate it may still be running")
	}
	return followOffloading(ctx, c, o, now, p)
}

// offloadingOf a namespace; nil if it is not offloaded.
func offloadingOf(ctx context.Context, c client.Reader, namespace string) (*offloadingv1alpha1.NamespaceOffloading, error) {
	var found offloadingv1alpha1.NamespaceOffloading
	key := client.ObjectKey{Namespace: namespace, Name: offloadingv1alpha1.NamespaceOffloadingName}
	switch err := retry(ctx, func(ctx context.Context) error { return c.Get(ctx, key, &found) }); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read whether namespace %q is offloaded: %w", namespace, err)
	}
	return &found, nil
}

// narrow weighs the twins that a new selector gives up, and refuses as weigh does. Where the labels of a cluster's virtual node are not known, its
// twin stays for now, and may go as soon as they are: so it is weighed, too.
func narrow(ctx context.Context, c client.Client, o OffloadOptions, selector *corev1.NodeSelector, p Progress) error {
	held, err := heldNamespaces(ctx, c, o.Namespace)
	if err != nil || len(held) == 0 {
		return err
	}
	var nodes corev1.NodeList
	err = retry(ctx, func(ctx context.Context) error {
		return c.List(ctx, &nodes, client.MatchingLabels{labels.Type: labels.TypeVirtualNode})
	})
	if err != nil {
		return fmt.Errorf("list virtual nodes: %w", err)
	}
	var lost []heldNamespace
	for _, twin := range held {
		if _, wanted := twin.from.Spec.DesiredMapping[o.Namespace]; !wanted {
			continue // given up already, whatever is asked for now
		}
		stays, err := keepsNamespace(selector, nodes.Items, twin.from.Labels[labels.RemoteID])
		if err != nil {
			return fmt.Errorf("cluster selector of namespace %q: %w", o.Namespace, err)
		}
		if !stays {
			lost = append(lost, twin)
			p.Warn(fmt.Sprintf("Cluster %s would no longer be chosen, and its namespace %s be deleted with all that is in it", twin.from.Name, twin.namespace))
		}
	}
	return assessImpact(ctx, c, withdrawal{o.Namespace, o.LiqoNamespace, o.Force}, lost, p)
}

// keepsNamespace tells whether a selector chooses a cluster for sure.
func keepsNamespace(selector *corev1.NodeSelector, nodes []corev1.Node, clusterID string) (keeps bool, err error) {
	if len(selector.NodeSelectorTerms) == 0 {
		return true, nil // all clusters, whatever their labels are
	}
	for i := range nodes {
		if nodes[i].Labels[labels.RemoteClusterID] != clusterID {
			continue
		}
		fits, err := choice.Fits(selector, &nodes[i])
		if err != nil || !fits || !choice.Settled(&nodes[i]) {
			return false, err
		}
		keeps = true
	}
	return keeps, nil
}

// applyOffloading writes the whole wish: a selector that is not asked for is taken away.
func applyOffloading(ctx context.Context, c client.Client, wish *offloadingv1alpha1.NamespaceOffloading) (*offloadingv1alpha1.NamespaceOffloading, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(wish)
	if err != nil {
		return nil, fmt.Errorf("encode the NamespaceOffloading: %w", err)
	}
	delete(fields, "status")
	unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
	sent := &unstructured.Unstructured{}
	err = retry(ctx, func(ctx context.Context) error {
		sent.Object = runtime.DeepCopyJSON(fields)
		return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(sent), client.FieldOwner(labels.OwnerCLI), client.ForceOwnership)
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("namespace %q cannot be offloaded: it does not exist, or Liqo is not installed in this cluster (%w)", wish.Namespace, err)
	case err != nil:
		return nil, fmt.Errorf("offload namespace %q: %w", wish.Namespace, err)
	}
	now := &offloadingv1alpha1.NamespaceOffloading{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(sent.Object, now); err != nil {
		return nil, fmt.Errorf("read what was applied: %w", err)
	}
	return now, nil
}

// followOffloading waits for what the clusters make of it.
func followOffloading(ctx context.Context, c client.WithWatch, o OffloadOptions, wish *offloadingv1alpha1.NamespaceOffloading, p Progress) error {
	p.Start(fmt.Sprintf("Waiting for the remote namespaces of %q", o.Namespace))
	last := wish
	err := Follow(ctx, c, &offloadingv1alpha1.NamespaceOffloadingList{}, func(all []offloadingv1alpha1.NamespaceOffloading) (bool, error) {
		if len(all) == 0 || all[0].UID != wish.UID {
			return false, fmt.Errorf("the NamespaceOffloading of %q was deleted meanwhile; run the command again", o.Namespace)
		}
		last = &all[0]
		if last.Status.ObservedGeneration < wish.Generation {
			return false, nil
		}
		switch last.Status.OffloadingPhase {
		case offloadingv1alpha1.OffloadingReady, offloadingv1alpha1.OffloadingNoClusterSelected:
			return true, nil
		case offloadingv1alpha1.OffloadingSomeFailed, offloadingv1alpha1.OffloadingAllFailed:
			return false, fmt.Errorf("the offloading of namespace %q is %s: %s", o.Namespace, last.Status.OffloadingPhase, unready(last))
		}
		return false, nil
	}, client.InNamespace(o.Namespace), client.MatchingFields{"metadata.name": wish.Name})
	p.Stop()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the offloading of namespace %q was not complete after %s, it is %s: %s; it goes on by itself, see: kubectl -n %[1]s describe namespaceoffloading (%[5]w)",
			o.Namespace, o.Timeout, or(string(last.Status.OffloadingPhase), "not looked at yet"), unready(last), err)
	case err != nil:
		return err
	case last.Status.OffloadingPhase == offloadingv1alpha1.OffloadingNoClusterSelected:
		p.Warn("Offloading completed, but no cluster was selected; the labels to select by: kubectl get nodes -l liqo.io/type=virtual-node --show-labels")
	default:
		p.Done("Offloading completed successfully")
	}
	return nil
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// unready tells, per cluster, what is missing.
func unready(offloading *offloadingv1alpha1.NamespaceOffloading) string {
	var texts []string
	for _, cluster := range slices.Sorted(maps.Keys(offloading.Status.RemoteNamespacesConditions)) {
		for _, one := range offloading.Status.RemoteNamespacesConditions[cluster] {
			if one.Type == offloadingv1alpha1.ConditionReady && one.Status != corev1.ConditionTrue {
				texts = append(texts, fmt.Sprintf("%s: %s (%s)", cluster, one.Message, one.Reason))
			}
		}
	}
	if len(texts) == 0 {
		return "no cluster has said anything; is Deployment liqo-controller-manager running?"
	}
	return strings.Join(texts, "; ")
}
