// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
)

// DaemonSetPath is the path of the webhook that keeps DaemonSets off virtual nodes.
const DaemonSetPath = "/mutate/daemonset"

// daemonSet admits every DaemonSet, also if it cannot decide: networks and storage of nodes are DaemonSets, and must not depend on us.
func (p *pods) daemonSet(ctx context.Context, request admission.Request) admission.Response {
	set, was := &appsv1.DaemonSet{}, (*appsv1.DaemonSet)(nil)
	err := p.decoder.Decode(request, set)
	if err == nil && request.Operation == admissionv1.Update {
		was = &appsv1.DaemonSet{}
		err = p.decoder.DecodeRaw(request.OldObject, was)
	}
	if err == nil && (!replacesPods(was, set) || !reachesVirtualNodes(&set.Spec.Template.Spec)) {
		return admission.Allowed("")
	}
	leaves := false
	if err == nil {
		leaves, err = p.leaves(ctx, request.Namespace)
	}
	switch {
	case err != nil:
		log.FromContext(ctx).Error(err, "DaemonSet admitted as it is", "namespace", request.Namespace, "name", request.Name)
		return admission.Allowed("").WithWarnings("Liqo could not decide whether this DaemonSet may have pods on virtual nodes, and did not " +
			"change it; to keep it off them, add node affinity liqo.io/type NotIn virtual-node")
	case leaves:
		return admission.Allowed("")
	}
	return patch(set, func() bool {
		return avoidVirtualNodes(&set.Spec.Template.Spec)
	})
}

// leaves reports whether pods of a namespace may run in other clusters.
func (p *pods) leaves(ctx context.Context, namespace string) (bool, error) {
	offloading, err := p.offloading(ctx, namespace)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return offloading.DeletionTimestamp == nil && offloading.Spec.PodOffloadingStrategy != offloadingv1alpha1.PodsLocal, nil
}

// replacesPods reports whether the write of a DaemonSet creates or replaces its pods. An unchanged template must stay so: a change restarts the pods
// of all nodes.
func replacesPods(was, set *appsv1.DaemonSet) bool {
	return was == nil || !equality.Semantic.DeepEqual(was.Spec.Template, set.Spec.Template)
}

// patch returns the difference of a decoded object before and after a change, so that fields that we do not know stay as they are. The change reports
// whether there is one.
func patch(object any, change func() bool) admission.Response {
	before, err := json.Marshal(object)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if !change() {
		return admission.Allowed("")
	}
	after, err := json.Marshal(object)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(before, after)
}

// forRealNode returns why a pod of a DaemonSet can never run, or nothing. It was made for one node, and the namespace excludes nodes of this cluster.
func (p *pods) forRealNode(ctx context.Context, namespace string, pod *corev1.Pod, spec *offloadingv1alpha1.NamespaceOffloadingSpec) string {
	name := nodeOfDaemonSet(pod)
	if name == "" || spec.PodOffloadingStrategy != offloadingv1alpha1.PodsRemote {
		return ""
	}
	var node corev1.Node
	if err := p.options.Cached.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil || node.Labels[labels.Type] == labels.TypeVirtualNode {
		return "" // a node that the cache does not have may be a virtual one
	}
	return fmt.Sprintf("namespace %s is offloaded with the strategy Remote, so none of its pods runs on %s, a node of this cluster: add the "+
		"node selector liqo.io/type: virtual-node to the template of the DaemonSet, or offload the namespace with LocalAndRemote",
		namespace, name)
}
