// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/inventory"
	"liqo.io/liqo/test/soak/plan"
)

// settling bounds how long everything takes to be as the model has it. A process that was killed several times waits up to five minutes until
// its kubelet starts it again.
const settling = 7 * time.Minute

// settled waits until the clusters are as the model has them.
func settled(t *testing.T, s plan.State) {
	t.Helper()
	rome := consumer.ID(t)
	env.Eventually(t, settling, "the clusters are as users want them", func() (string, bool) {
		for _, differs := range []func(plan.State) string{nodes, workloads, pods, func(s plan.State) string { return remote(s, rome) }} {
			if seen := differs(s); seen != "" {
				<-time.After(500 * time.Millisecond) // polls slowly: each answer lists 300 pods
				return seen, false
			}
		}
		return "", true
	})
}

// list lists objects of a cluster.
func list(c *env.Cluster, all client.ObjectList, options ...client.ListOption) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := c.API.List(ctx, all, options...); err != nil {
		return fmt.Errorf("list %T of %s: %w", all, c.Name, err)
	}
	return nil
}

// nodes describes a virtual node that is not as the model has it; empty if there is none.
func nodes(s plan.State) string {
	for name, p := range s.Providers {
		node, err := consumer.VirtualNode(cluster(name))
		if !p.Peered {
			continue
		}
		if err != nil {
			return err.Error()
		}
		if ready, why := env.Readiness(node); ready != corev1.ConditionTrue || node.Spec.Unschedulable != p.Cordoned {
			return fmt.Sprintf("%s: ready %s (%s), unschedulable %t", node.Name, ready, why, node.Spec.Unschedulable)
		}
	}
	return ""
}

func workloads(s plan.State) string {
	var deployments appsv1.DeploymentList
	var sets appsv1.StatefulSetList
	var jobs batchv1.JobList
	for _, all := range []client.ObjectList{&deployments, &sets, &jobs} {
		if err := list(consumer, all); err != nil {
			return err.Error()
		}
	}
	have := map[string]int{}
	for _, one := range deployments.Items {
		if st := one.Status; st.ObservedGeneration == one.Generation && st.Replicas == st.ReadyReplicas && st.Replicas == st.UpdatedReplicas {
			have[one.Namespace+"/deployment/"+one.Name] = int(st.ReadyReplicas)
		}
	}
	for _, one := range sets.Items {
		if st := one.Status; st.ObservedGeneration == one.Generation && st.Replicas == st.ReadyReplicas && st.CurrentRevision == st.UpdateRevision {
			have[one.Namespace+"/statefulset/"+one.Name] = int(st.ReadyReplicas)
		}
	}
	for _, one := range jobs.Items {
		have[one.Namespace+"/job/"+one.Name] = int(one.Status.Succeeded)
	}
	for namespace, n := range s.Namespaces {
		for object, want := range n.Objects {
			kind, _, _ := strings.Cut(object, "/")
			if key := namespace + "/" + object; slices.Contains([]string{"deployment", "statefulset", "job"}, kind) && have[key] != want {
				return fmt.Sprintf("%s has %d of %d pods, or its rollout has not ended", key, have[key], want)
			}
		}
	}
	return ""
}

// pods describes a pod that is being deleted, or is not Ready though it has not ended.
func pods(s plan.State) string {
	var all corev1.PodList
	if err := list(consumer, &all); err != nil {
		return err.Error()
	}
	count, bad := 0, ""
	for i := range all.Items {
		pod := &all.Items[i]
		if _, ours := s.Namespaces[pod.Namespace]; !ours {
			continue
		}
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if pod.DeletionTimestamp != nil || !ended && env.Condition(pod, corev1.PodReady) != corev1.ConditionTrue {
			count++
			bad = fmt.Sprintf(
				"%s/%s on %s is %s (%s), deleted at %v", pod.Namespace, pod.Name, pod.Spec.NodeName, pod.Status.Phase, pod.Status.Reason,
				pod.DeletionTimestamp,
			)
		}
	}
	if count > 0 {
		return fmt.Sprintf("%d pods are not at rest, such as %s", count, bad)
	}
	return ""
}

// remote describes a remote namespace, ConfigMap or Service that is missing, differs or should not be there; empty if there is none. The ID is the
// consumer's.
func remote(s plan.State, id string) string {
	var want []string
	for namespace, n := range s.Namespaces {
		for _, provider := range s.Chosen(namespace) {
			want = append(want, provider+" "+namespace)
			for object, value := range n.Objects {
				if kind, _, _ := strings.Cut(object, "/"); kind == "configmap" || kind == "service" {
					want = append(want, fmt.Sprintf("%s %s %s=%d", provider, namespace, object, value))
				}
			}
		}
	}
	var have []string
	for _, c := range providers {
		found, err := reflected(c, id)
		if err != nil {
			return err.Error()
		}
		have = append(have, found...)
	}
	slices.Sort(want)
	slices.Sort(have)
	missing, extra := inventory.Added(have, want), inventory.Added(want, have)
	if len(missing)+len(extra) == 0 {
		return ""
	}
	return fmt.Sprintf(
		"%d of %d remote objects are missing or differ: %.300v; %d should not be there: %.300v", len(missing), len(want), missing, len(extra),
		extra,
	)
}

// reflected are the remote namespaces of the consumer in a provider, and their ConfigMaps and Services with their versions.
func reflected(c *env.Cluster, id string) (found []string, err error) {
	var spaces corev1.NamespaceList
	if err := list(c, &spaces, client.MatchingLabels{labels.RemoteClusterID: id}); err != nil {
		return nil, err
	}
	local := map[string]string{}
	for _, one := range spaces.Items {
		if one.Labels[labels.TenantNamespace] == "" {
			// NAMESPACE-CONSUMER-DIGITS
			name, _, _ := strings.Cut(one.Name, "-"+plan.Consumer+"-")
			local[one.Name] = name
			found = append(found, c.Name+" "+name)
		}
	}
	var maps corev1.ConfigMapList
	var services corev1.ServiceList
	for _, all := range []client.ObjectList{&maps, &services} {
		if err := list(c, all); err != nil {
			return nil, err
		}
	}
	for _, one := range maps.Items {
		if namespace := local[one.Namespace]; namespace != "" && one.Data["version"] != "" {
			found = append(found, fmt.Sprintf("%s %s configmap/%s=%s", c.Name, namespace, one.Name, one.Data["version"]))
		}
	}
	for _, one := range services.Items {
		if namespace := local[one.Namespace]; namespace != "" {
			found = append(found, fmt.Sprintf("%s %s service/%s=%s", c.Name, namespace, one.Name, one.Annotations["version"]))
		}
	}
	return found, nil
}
