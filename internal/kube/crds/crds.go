// SPDX-License-Identifier: Apache-2.0

// Package crds updates the custom resource definitions of a cluster. Helm installs definitions but never updates them.
// liqoctl and, for users of Helm alone, a hook of the chart do that with this package.
//
// It must not know any of our kinds: it applies the files of the chart. crds_test.go proves it against a real API
// server, with the rights of the hook.
package crds

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Each definition is named, so that no other one can be changed. (Server-side apply also needs create, by name.)
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=foreignclusters.discovery.liqo.io;ipmappings.net.liqo.io;networkconfigs.net.liqo.io;nodereports.net.liqo.io;tunnelendpoints.net.liqo.io;namespaceoffloadings.offloading.liqo.io;resourceslices.sharing.liqo.io;volumemoves.storage.liqo.io;namespacemaps.virtualkubelet.liqo.io;shadowendpointslices.virtualkubelet.liqo.io;shadowpods.virtualkubelet.liqo.io,verbs=get;create;patch

// Owner is the field owner of the definitions.
const Owner = "liqo-crds"

// pollInterval is the interval at which Apply checks whether a new definition is served, which usually takes 100 ms.
const pollInterval = 50 * time.Millisecond

// AddToScheme registers the kinds that the client of Apply needs.
func AddToScheme(scheme *runtime.Scheme) error { return apiextensionsv1.AddToScheme(scheme) }

// Load reads the definitions in the folder crds of the chart, in the order of their file names.
func Load(chart fs.FS) ([]*unstructured.Unstructured, error) {
	paths, err := fs.Glob(chart, "crds/*.yaml")
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("the chart holds no resource definitions: %w", fs.ErrNotExist)
	}
	var all []*unstructured.Unstructured
	for _, path := range paths {
		text, err := fs.ReadFile(chart, path)
		if err != nil {
			return nil, err
		}
		definition := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(text, &definition.Object); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, definition)
	}
	return all, nil
}

// Apply writes the definitions and waits until all are served. It calls done after each write.
func Apply(ctx context.Context, c client.Client, definitions []*unstructured.Unstructured, done func(name string)) error {
	for _, definition := range definitions {
		config := client.ApplyConfigurationFromUnstructured(definition.DeepCopy())
		if err := c.Apply(ctx, config, client.FieldOwner(Owner), client.ForceOwnership); err != nil {
			return fmt.Errorf("apply resource definition %s: %w", definition.GetName(), err)
		}
		done(definition.GetName())
	}
	for _, definition := range definitions {
		var state string
		err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (served bool, err error) {
			served, state, err = established(ctx, c, definition.GetName())
			return served, err
		})
		if err != nil {
			return fmt.Errorf("resource definition %s is not served (%s): %w", definition.GetName(), state, err)
		}
	}
	return nil
}

func established(ctx context.Context, c client.Client, name string) (served bool, state string, err error) {
	var live apiextensionsv1.CustomResourceDefinition
	if err := c.Get(ctx, client.ObjectKey{Name: name}, &live); err != nil {
		return false, "unknown", err
	}
	i := slices.IndexFunc(live.Status.Conditions, func(condition apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return condition.Type == apiextensionsv1.Established
	})
	if i < 0 {
		return false, "no condition Established yet", nil
	}
	condition := live.Status.Conditions[i]
	return condition.Status == apiextensionsv1.ConditionTrue, condition.Message, nil
}
