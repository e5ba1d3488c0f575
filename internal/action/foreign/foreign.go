// SPDX-License-Identifier: Apache-2.0

// Package foreign reads and writes ForeignClusters, and finds their conditions. It must not know what a command does with them.
// Its proof are peer_test.go and unpeer_test.go of package apiserver.
package foreign

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	discoveryac "liqo.io/liqo/apis/applyconfiguration/discovery/v1alpha1"
	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/action/await"
	"liqo.io/liqo/internal/action/installed"
)

func Apply(ctx context.Context, c client.Client, intent *discoveryac.ForeignClusterApplyConfiguration) error {
	if err := await.Retry(ctx, func(ctx context.Context) error {
		return c.Apply(ctx, intent, client.FieldOwner(labels.OwnerCLI), client.ForceOwnership)
	}); err != nil {
		return fmt.Errorf("apply ForeignCluster %q: %w", *intent.Name, err)
	}
	return nil
}

// SetOutgoing applies the desired state of the outgoing direction, on top of the fields that liqoctl applied before.
func SetOutgoing(ctx context.Context, c client.Client, fc *discoveryv1alpha1.ForeignCluster, outgoing discoveryv1alpha1.PeeringEnabled,
	change func(*discoveryac.ForeignClusterApplyConfiguration),
) error {
	return await.Retry(ctx, func(ctx context.Context) error {
		// Each attempt reads the object again: an apply removes the fields that it leaves out.
		var live discoveryv1alpha1.ForeignCluster
		if err := c.Get(ctx, client.ObjectKeyFromObject(fc), &live); err != nil {
			return err
		}
		intent, err := appliedBefore(&live)
		if err != nil {
			return fmt.Errorf("read what liqoctl applied before: %w", err)
		}
		// With the UID, the API server refuses to change a namesake that was created in the meantime.
		intent.WithUID(fc.UID)
		intent.Spec.WithOutgoingPeeringEnabled(outgoing)
		if change != nil {
			change(intent)
		}
		return c.Apply(ctx, intent, client.FieldOwner(labels.OwnerCLI), client.ForceOwnership)
	})
}

// appliedBefore returns the fields that liqoctl has applied to an object and still owns, without the annotation of a forced
// end. Fields of other managers stay theirs: a GitOps tool keeps the fields of its manifest.
func appliedBefore(fc *discoveryv1alpha1.ForeignCluster) (*discoveryac.ForeignClusterApplyConfiguration, error) {
	intent := &discoveryac.ForeignClusterApplyConfiguration{}
	// The deduced schema suffices, because the object has no lists whose items have owners of their own.
	if err := managedfields.ExtractInto(fc, typed.DeducedParseableType, labels.OwnerCLI, intent, ""); err != nil {
		return nil, err
	}
	intent.WithName(fc.Name).TypeMetaApplyConfiguration = discoveryac.ForeignCluster(fc.Name).TypeMetaApplyConfiguration
	delete(intent.Annotations, labels.ForceUnpeer)
	if intent.Spec == nil {
		intent.WithSpec(discoveryac.ForeignClusterSpec())
	}
	return intent, nil
}

// Get reads one by name. If it does not exist, the error names the existing ones.
func Get(ctx context.Context, c client.Reader, name string) (*discoveryv1alpha1.ForeignCluster, error) {
	ctx, cancel := context.WithTimeout(ctx, await.CallTimeout)
	defer cancel()
	var fc discoveryv1alpha1.ForeignCluster
	err := c.Get(ctx, client.ObjectKey{Name: name}, &fc)
	switch {
	case err == nil:
		return &fc, nil
	case installed.NotServed(err):
		return nil, installed.ErrNotServed
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read ForeignCluster %q: %w", name, err)
	}
	names, err := Names(ctx, c)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("there is no ForeignCluster %q: this cluster has no peers", name)
	}
	return nil, fmt.Errorf("there is no ForeignCluster %q; the existing ones are %s", name, strings.Join(names, ", "))
}

// Names returns the sorted names of all clusters that this one knows.
func Names(ctx context.Context, c client.Reader) ([]string, error) {
	var list discoveryv1alpha1.ForeignClusterList
	if err := c.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list ForeignClusters: %w", err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names, nil
}

func Describe(condition discoveryv1alpha1.PeeringCondition) string {
	text := fmt.Sprintf("%s is %s", condition.Type, condition.Status)
	if condition.Reason != "" {
		text += " (" + condition.Reason + ")"
	}
	if condition.Message != "" {
		text += ": " + condition.Message
	}
	return text
}

// Condition returns the condition of that type, with status None if there is none.
func Condition(fc *discoveryv1alpha1.ForeignCluster, kind discoveryv1alpha1.PeeringConditionType) discoveryv1alpha1.PeeringCondition {
	for _, condition := range fc.Status.PeeringConditions {
		if condition.Type == kind {
			return condition
		}
	}
	return discoveryv1alpha1.PeeringCondition{Type: kind, Status: discoveryv1alpha1.StatusNone}
}

func IdentityOf(fc *discoveryv1alpha1.ForeignCluster) string {
	if fc.Spec.ClusterIdentity == nil {
		return ""
	}
	return fc.Spec.ClusterIdentity.ClusterID
}
