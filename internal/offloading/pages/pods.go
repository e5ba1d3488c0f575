// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"encoding/json"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Each calls a function with each pod of the node. The function must not change the pod.
type Each func(func(*corev1.Pod))

// WritePods writes a PodList of the pods, one after the other: a list of all of them in memory would be as large as the cache. show returns what to write of a
// pod; nil leaves it out.
func WritePods(w io.Writer, each Each, show func(*corev1.Pod) *corev1.Pod) error {
	if _, err := io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[`); err != nil {
		return err
	}
	var failure error
	separator := ""
	each(func(pod *corev1.Pod) {
		shown := show(pod)
		if failure != nil || shown == nil {
			return
		}
		text, err := json.Marshal(shown)
		if err == nil {
			_, err = w.Write(append([]byte(separator), text...))
		}
		failure, separator = err, ","
	})
	if failure != nil {
		return failure
	}
	_, err := io.WriteString(w, "]}\n")
	return err
}

// Whole shows a pod as a kubelet shows it in /pods: as the API server has it, and without a kind in the list.
func Whole(pod *corev1.Pod) *corev1.Pod {
	shown := *pod
	shown.TypeMeta = metav1.TypeMeta{}
	return &shown
}

// Running shows a pod as a kubelet shows it in /runningpods/: what its runtime knows of running containers; nil if none runs.
func Running(pod *corev1.Pod) *corev1.Pod {
	shown := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID}}
	statuses(pod, func(status *corev1.ContainerStatus) {
		if status.State.Running != nil {
			container := corev1.Container{Name: status.Name}
			container.Image = status.ImageID
			shown.Spec.Containers = append(shown.Spec.Containers, container)
		}
	})
	if len(shown.Spec.Containers) == 0 {
		return nil
	}
	return shown
}

func statuses(pod *corev1.Pod, do func(*corev1.ContainerStatus)) {
	for _, all := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for i := range all {
			do(&all[i])
		}
	}
}
