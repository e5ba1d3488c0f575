// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// CopyCustomResource returns the remote copy of a custom resource: all fields but the status. Owners and finalizers stay here, since other
// controllers obey them there. Nil: it is skipped.
func CopyCustomResource(m project.NamespaceMapping, local *unstructured.Unstructured) *unstructured.Unstructured {
	if m.Skips(local) {
		return nil
	}
	remote := &unstructured.Unstructured{Object: map[string]any{}}
	for field, value := range local.Object {
		if field != "metadata" && field != "status" {
			remote.Object[field] = value
		}
	}
	remote.SetNamespace(m.Remote)
	remote.SetName(local.GetName())
	remote.SetLabels(m.LabelsOf(local))
	annotations := m.AnnotationsOf(local, labels.LocalGeneration)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[labels.LocalGeneration] = strconv.FormatInt(local.GetGeneration(), 10)
	remote.SetAnnotations(annotations)
	return remote
}

// CustomStatus returns the status that the local object of a copy gets: that of the copy, in which generations that were observed become
// those of the local object. Nil: the copy has none.
func CustomStatus(remote *unstructured.Unstructured) map[string]any {
	theirs, _ := remote.Object["status"].(map[string]any)
	if len(theirs) == 0 {
		return nil
	}
	status := runtime.DeepCopyJSON(theirs)
	has, err := strconv.ParseInt(remote.GetAnnotations()[labels.LocalGeneration], 10, 64)
	if err != nil {
		has = 0
	}
	has = max(has, 0)
	translateGeneration(status, remote.GetGeneration(), has)
	conditions, _ := status["conditions"].([]any)
	for _, item := range conditions {
		if condition, ok := item.(map[string]any); ok {
			translateGeneration(condition, remote.GetGeneration(), has)
		}
	}
	return status
}

// translateGeneration replaces the generation that was observed of a copy, which is now at the generation remote, by that of the local object. The copy has the
// local generation has. What was observed of an earlier copy is about an earlier object.
func translateGeneration(fields map[string]any, remote, has int64) {
	observed, ok := fields["observedGeneration"].(int64)
	switch {
	case !ok:
	case observed >= remote:
		fields["observedGeneration"] = has
	default:
		fields["observedGeneration"] = max(has-1, 0)
	}
}
