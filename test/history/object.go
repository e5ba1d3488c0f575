// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"liqo.io/liqo/apis/labels"
)

// pod extracts the fields of an object that the history keeps.
func pod(cluster string, object *unstructured.Unstructured) (*Pod, error) {
	p := &Pod{
		Kind: object.GetKind(), Namespace: object.GetNamespace(), Name: object.GetName(), UID: string(object.GetUID()),
		For: object.GetAnnotations()[labels.Fence], Deleting: object.GetDeletionTimestamp() != nil,
	}
	if owner := metav1.GetControllerOf(object); owner != nil {
		p.Owner = owner.Kind + "/" + owner.Name
	}
	if p.Kind != "Pod" {
		p.Phase, _, _ = unstructured.NestedString(object.Object, "status", "phase")
		return p, nil
	}
	var full corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &full); err != nil {
		return nil, fmt.Errorf("pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	if cluster == consumer {
		p.For = p.UID
	}
	p.Node, p.Phase, p.Policy = full.Spec.NodeName, string(full.Status.Phase), string(full.Spec.RestartPolicy)
	for _, condition := range full.Status.Conditions {
		p.Ready = p.Ready || condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	}
	for i := range full.Status.ContainerStatuses {
		p.Containers = append(p.Containers, container(&full.Status.ContainerStatuses[i]))
	}
	return p, nil
}

func container(status *corev1.ContainerStatus) Container {
	c := Container{
		Name: status.Name, ID: status.ContainerID, Restarts: status.RestartCount, Ended: end(status.State.Terminated),
		Previous: end(status.LastTerminationState.Terminated),
	}
	if status.State.Running != nil {
		c.Running = &status.State.Running.StartedAt.Time
	}
	return c
}

func end(state *corev1.ContainerStateTerminated) *End {
	if state == nil {
		return nil
	}
	e := &End{ID: state.ContainerID, Code: state.ExitCode, Message: state.Message}
	if started := state.StartedAt.Time; started.After(time.Unix(0, 0)) {
		e.Started = started
	}
	if ended := state.FinishedAt.Time; ended.After(time.Unix(0, 0)) {
		e.Ended = ended
	}
	return e
}
