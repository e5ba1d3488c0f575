// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
)

type offloadings struct {
	options  Options
	admitted *admittedVersions
	decoder  admission.Decoder
}

// handle validates and has no effect outside this process: anything that it wrote, a forged review could write.
func (o *offloadings) handle(_ context.Context, request admission.Request) admission.Response {
	var is offloadingv1alpha1.NamespaceOffloading
	if err := o.decoder.Decode(request, &is); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	var was *offloadingv1alpha1.NamespaceOffloading
	if request.Operation == admissionv1.Update {
		was = &offloadingv1alpha1.NamespaceOffloading{}
		if err := o.decoder.DecodeRaw(request.OldObject, was); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
	}
	if fault := o.validate(was, &is); fault != "" {
		return admission.Denied(fault)
	}
	dry := request.DryRun != nil && *request.DryRun
	written := was == nil || was.Generation != is.Generation
	if is.DeletionTimestamp == nil && written && !dry {
		o.admitted.record(&is, time.Now())
	}
	return admission.Allowed("").WithWarnings(warnings(was, &is)...)
}

// validate returns in one sentence why the object is refused; nothing if it is valid. was is nil for a new object.
func (o *offloadings) validate(was, is *offloadingv1alpha1.NamespaceOffloading) string {
	switch {
	case is.DeletionTimestamp != nil:
		return "" // deletion must always be possible
	case is.Name != offloadingv1alpha1.NamespaceOffloadingName:
		return fmt.Sprintf("a NamespaceOffloading must be called %q, not %q: there is one per namespace", offloadingv1alpha1.NamespaceOffloadingName, is.Name)
	case was == nil && o.reserved(is.Namespace):
		return fmt.Sprintf("namespace %s belongs to Kubernetes or to Liqo itself and cannot be offloaded; use a namespace of your own", is.Namespace)
	case was != nil && was.Spec.NamespaceMappingStrategy != is.Spec.NamespaceMappingStrategy:
		return fmt.Sprintf("spec.namespaceMappingStrategy cannot be changed from %s to %s; unoffload the namespace, then offload it again",
			was.Spec.NamespaceMappingStrategy, is.Spec.NamespaceMappingStrategy)
	}
	if value, ok := is.Annotations[labels.APIServerSupport]; ok && value != "true" && value != "false" {
		return fmt.Sprintf(
			"annotation %s has the invalid value %q; set it to %q or %q, or remove it, which means %[3]q", labels.APIServerSupport, value, "true",
			"false",
		)
	}
	return checkSelector(&is.Spec.ClusterSelector)
}

// reserved reports whether the webhook of pods depends on what runs in the namespace.
func (o *offloadings) reserved(namespace string) bool {
	return strings.HasPrefix(namespace, "kube-") || strings.HasPrefix(namespace, "liqo-tenant-") || namespace == o.options.Namespace
}

func checkSelector(selector *corev1.NodeSelector) string {
	for i, term := range selector.NodeSelectorTerms {
		if empty(term) {
			return fmt.Sprintf("spec.clusterSelector.nodeSelectorTerms[%d] is empty, so it selects no cluster; leave out all terms to select all clusters", i)
		}
	}
	if _, err := nodeaffinity.NewNodeSelector(selector); err != nil {
		return fmt.Sprintf("spec.clusterSelector is invalid: %v", err)
	}
	return ""
}

// warnings lists the effects that a user may expect of a change and that it does not have.
func warnings(was, is *offloadingv1alpha1.NamespaceOffloading) []string {
	if was == nil || was.Spec.PodOffloadingStrategy == is.Spec.PodOffloadingStrategy || is.Spec.PodOffloadingStrategy == offloadingv1alpha1.PodsLocalAndRemote {
		return nil
	}
	return []string{fmt.Sprintf("the pod offloading strategy was changed from %s to %s, which is more restrictive; running pods stay where "+
		"they are, even if new ones could not run there",
		was.Spec.PodOffloadingStrategy, is.Spec.PodOffloadingStrategy)}
}
