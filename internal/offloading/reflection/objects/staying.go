// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/offloading/kinds"
	"liqo.io/liqo/internal/offloading/reflection/events"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
)

// reportStaying reports about a new pod of the node which ConfigMaps and Secrets that it refers to are never sent to the peer: there,
// its kubelet only reports that they do not exist.
func (o *Objects) reportStaying(before, after client.Object) {
	pod, _ := after.(*corev1.Pod)
	if pod == nil || before != nil && before.GetUID() == pod.UID || pod.Status.Phase != "" && pod.Status.Phase != corev1.PodPending {
		return
	}
	mapping, _ := o.engine.Namespaces.Local(pod.Namespace)
	if mapping == nil {
		return
	}
	var staying []string
	for _, reference := range podspec.References(pod) {
		r := o.Kind(reference.Kind)
		if r == nil {
			continue
		}
		object := r.Local.Get(types.NamespacedName{Namespace: pod.Namespace, Name: reference.Name})
		if object == nil {
			continue // it may be optional, or come later
		}
		if why := kinds.StaysHere(mapping.NamespaceMapping, object); why != "" {
			staying = append(staying, fmt.Sprintf("%s %s (%s)", reference.Kind, reference.Name, why))
		}
	}
	if len(staying) > 0 {
		o.engine.Recorder.Failed(pod, "Pod", events.ReasonIncomplete,
			fmt.Errorf("the pod refers to what is not sent to the remote cluster: %s", strings.Join(staying, ", ")))
	}
}
