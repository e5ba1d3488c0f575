// SPDX-License-Identifier: Apache-2.0

package purge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
)

const (
	// agentsTime bounds the wait for agents to become ready.
	agentsTime = 5 * time.Second
	// tidyTime is many times what a running agent needs for the clean-up.
	tidyTime = time.Second
)

// freeNodes lets the agents remove the network state that they created on the nodes. They do so when the last TunnelEndpoint is
// gone, and to observe that they need to run and to have their permissions. The purge does not wait for agents that do not run.
func freeNodes(ctx context.Context, c client.Client, namespace string, definitions []apiextensionsv1.CustomResourceDefinition) error {
	var managers appsv1.DeploymentList
	err := c.List(ctx, &managers, client.InNamespace(namespace), client.MatchingLabels{labels.AppPartOf: labels.PartOf, labels.AppComponent: "controller-manager"})
	if err != nil {
		return fmt.Errorf("list Deployments in namespace %s: %w", namespace, err)
	}
	for i := range managers.Items { // it would create them again
		if err := erase(ctx, c, &managers.Items[i]); err != nil {
			return err
		}
	}
	ended := 0
	for _, kind := range []string{"NetworkConfig", "TunnelEndpoint"} {
		i := slices.IndexFunc(definitions, func(one apiextensionsv1.CustomResourceDefinition) bool { return one.Spec.Names.Kind == kind })
		if i < 0 {
			continue
		}
		count, err := empty(ctx, c, &definitions[i])
		if err != nil {
			return err
		}
		ended += count
	}
	if ended == 0 {
		return nil // there was no tunnel, so the nodes are clean
	}
	bounded, cancel := context.WithTimeout(ctx, agentsTime)
	defer cancel()
	running := false
	err = wait.PollUntilContextCancel(bounded, interval, true, func(ctx context.Context) (bool, error) {
		var agents appsv1.DaemonSetList
		if err := c.List(ctx, &agents, client.InNamespace(namespace), client.MatchingLabels{labels.AppPartOf: labels.PartOf}); err != nil {
			return false, err
		}
		ready := true
		for i := range agents.Items {
			running = true
			ready = ready && agents.Items[i].Status.NumberReady >= agents.Items[i].Status.DesiredNumberScheduled
		}
		return ready, nil
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil: // dead ones clean up when they come back, or never
		return nil
	case err != nil:
		return fmt.Errorf("wait for the agents on the nodes: %w", err)
	case !running:
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(tidyTime):
		return nil
	}
}
