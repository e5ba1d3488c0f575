// SPDX-License-Identifier: Apache-2.0

package home

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/storage/data"
)

// way is how a claim, for which the scheduler has selected a virtual node that gets no volume of its class, comes back to this cluster.
type way struct {
	// replace are pods that may go there and have a controller, which makes others: these are placed with the claim known.
	replace []*corev1.Pod
	// report are pods that only their user can create again, or that their user wants there.
	report []*corev1.Pod
	// release the claim: no pod that stays would have the scheduler select that node again.
	release bool
}

// back returns the way of a claim. pods are those of its namespace, own the nodes of this cluster. A pod that has a node is left alone.
func back(claim *corev1.PersistentVolumeClaim, virtual *corev1.Node, own []corev1.Node, pods []corev1.Pod) (w way) {
	for i := range pods {
		pod := &pods[i]
		if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || !slices.Contains(data.ClaimsOf(pod), claim.Name) || !tolerates(pod) || !fits(pod, virtual) {
			continue
		}
		stays := slices.ContainsFunc(own, func(node corev1.Node) bool { return fits(pod, &node) })
		if stays && metav1.GetControllerOfNoCopy(pod) != nil {
			w.replace = append(w.replace, pod)
		} else {
			w.report = append(w.report, pod)
		}
	}
	w.release = len(w.report) == 0
	return w
}

func fits(pod *corev1.Pod, node *corev1.Node) bool {
	matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return err == nil && matches
}

func tolerates(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(one corev1.Toleration) bool {
		return (one.Key == labels.TaintVirtualNode || one.Key == "" && one.Operator == corev1.TolerationOpExists) &&
			(one.Effect == "" || one.Effect == corev1.TaintEffectNoExecute)
	})
}
