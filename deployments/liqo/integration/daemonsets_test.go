// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	"liqo.io/liqo/deployments/liqo/charttest"
)

func (h *webhookEnv) daemonSet(namespace, name string, tolerations ...corev1.Toleration) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
			Spec:       corev1.PodSpec{Tolerations: tolerations, Containers: []corev1.Container{{Name: "c", Image: "agent:1"}}},
		},
	}}
}

// avoids reports whether a DaemonSet has the documented affinity.
func avoids(set *appsv1.DaemonSet) bool {
	affinity := set.Spec.Template.Spec.Affinity
	if affinity == nil {
		return false
	}
	terms := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return len(terms) == 1 && terms[0].String() == (&corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: "liqo.io/type", Operator: "NotIn", Values: []string{"virtual-node"}},
	}}).String()
}

// TestDaemonSets: with the configuration of the chart, a DaemonSet that tolerates every taint stays off virtual nodes from its creation or from the next
// change of its template on. Other writes leave it, and so its pods, as they are.
func TestDaemonSets(t *testing.T) {
	h := newWebhookEnv(t)
	every := corev1.Toleration{Operator: "Exists"}
	h.until("the API server calls the webhook for DaemonSets", func() bool {
		probe := h.daemonSet("kube-system", "probe", every)
		h.must(h.Create(h.Context(), probe, client.DryRunAll))
		return avoids(probe)
	})
	ordinary := h.daemonSet("kube-system", "ordinary", corev1.Toleration{Key: "node-role.kubernetes.io/control-plane", Operator: "Exists"})
	h.must(h.Create(h.Context(), ordinary))
	if ordinary.Spec.Template.Spec.Affinity != nil {
		t.Errorf("a DaemonSet that has no pod on virtual nodes was changed: %+v", ordinary.Spec.Template.Spec.Affinity)
	}

	// A DaemonSet that is older than Liqo.
	hooks := charttest.Find(t, charttest.Render(t), "MutatingWebhookConfiguration", "liqo").DeepCopy()
	h.must(h.Get(h.Context(), client.ObjectKeyFromObject(hooks), hooks))
	h.must(h.Delete(h.Context(), hooks.DeepCopy()))
	var agent *appsv1.DaemonSet
	h.until("the API server does not call the webhook", func() bool {
		agent = h.daemonSet("kube-system", "agent", every)
		h.must(h.Create(h.Context(), agent))
		if avoids(agent) {
			h.must(h.Delete(h.Context(), agent))
			return false
		}
		return true
	})
	hooks.SetResourceVersion("")
	hooks.SetUID("")
	h.must(h.Create(h.Context(), hooks))
	h.until("the API server calls the webhook again", func() bool {
		probe := h.daemonSet("kube-system", "probe", every)
		h.must(h.Create(h.Context(), probe, client.DryRunAll))
		return avoids(probe)
	})
	change := func(what string, change func(), want bool) {
		t.Helper()
		h.must(h.Get(h.Context(), client.ObjectKeyFromObject(agent), agent))
		before := agent.Generation
		change()
		h.must(h.Update(h.Context(), agent))
		if avoids(agent) != want {
			t.Errorf("%s: affinity %+v, want it: %t", what, agent.Spec.Template.Spec.Affinity, want)
		}
		if most := before + 1; agent.Generation > most {
			t.Errorf("%s: generation %d, was %d", what, agent.Generation, before)
		}
	}
	change("a label of the DaemonSet", func() { agent.Labels = map[string]string{"a": "b"} }, false)
	change("the strategy of its updates", func() { agent.Spec.MinReadySeconds = 1 }, false)
	change("another image", func() { agent.Spec.Template.Spec.Containers[0].Image = "agent:2" }, true)
	generation := agent.Generation
	change("a manifest without the affinity", func() { agent.Spec.Template.Spec.Affinity = nil }, true)
	if agent.Generation != generation {
		t.Errorf("the manifest restarted all pods: generation %d, was %d", agent.Generation, generation)
	}

	// In a namespace whose pods may run in other clusters, a DaemonSet has pods there.
	for name, want := range map[string]bool{"LocalAndRemote": false, "Remote": false, "Local": true} {
		namespace := strings.ToLower(name)
		h.namespace(namespace)
		h.must(h.Create(h.Context(), h.offloading(namespace, offloadingv1alpha1.PodOffloadingStrategy(name))))
		set := h.daemonSet(namespace, "agent", every)
		h.must(h.Create(h.Context(), set))
		if avoids(set) != want {
			t.Errorf("with the strategy %s: affinity %+v, want it: %t", name, set.Spec.Template.Spec.Affinity, want)
		}
	}
}

// TestDaemonSetOfRealNodes: a pod of a DaemonSet for a node of this cluster is refused in a namespace whose pods run in other clusters only. Pods for
// virtual nodes, and of other namespaces, are not.
func TestDaemonSetOfRealNodes(t *testing.T) {
	h := newWebhookEnv(t)
	h.must(h.Create(h.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}))
	h.must(h.Create(h.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "liqo-milan", Labels: map[string]string{"liqo.io/type": "virtual-node"}}}))
	create := func(namespace, node string) error {
		field := corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: "In", Values: []string{node}}
		owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "agent", Controller: new(true)}
		return h.Create(h.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "agent-", OwnerReferences: []metav1.OwnerReference{owner}},
			Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "c", Image: "agent:1"}},
				Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{field}}},
				}}},
			},
		}, client.DryRunAll)
	}
	for _, name := range []string{"Remote", "LocalAndRemote"} {
		namespace := strings.ToLower(name)
		h.must(h.Create(h.Context(), &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"liqo.io/scheduling-enabled": "true"}},
		}))
		h.must(h.Create(h.Context(), h.offloading(namespace, offloadingv1alpha1.PodOffloadingStrategy(name))))
		for _, node := range []string{"liqo-milan", "unknown"} {
			h.must(create(namespace, node))
		}
	}
	h.until("a pod for a real node is refused", func() bool { // as soon as the cache has the node
		err := create("remote", "worker")
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "strategy Remote") && strings.Contains(err.Error(), "liqo.io/type: virtual-node")
	})
	h.must(create("localandremote", "worker"))
	h.must(create("default", "worker"))
}
