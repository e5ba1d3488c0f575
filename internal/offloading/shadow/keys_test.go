// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

func TestKeys(t *testing.T) {
	keys, err := ParseKeys([]string{" exact.example.com/a ", "prefix.example.com/*"})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]bool{
		"exact.example.com/a": true, "exact.example.com/ab": false, "prefix.example.com/": true, "prefix.example.com/x": true, "prefix.example.com": false,
		"prefix.example.com/*": true, "": false,
	} {
		if keys.Match(key) != want {
			t.Errorf("%q: %v", key, !want)
		}
	}
	for _, bad := range []string{"", " ", "a*b", "*a", "a**"} {
		if _, err := ParseKeys([]string{bad}); err == nil {
			t.Errorf("%q is accepted as a key", bad)
		}
	}
}

// Keys that common components of a cluster obey, and that honest tools of users set.
var (
	orders = []string{
		"sidecar.istio.io/inject", "istio.io/rev", "linkerd.io/inject", "vault.hashicorp.com/agent-inject", "azure.workload.identity/use",
		"karpenter.sh/do-not-disrupt", "cluster-autoscaler.kubernetes.io/safe-to-evict", "io.katacontainers.config.hypervisor.path/x",
		"kueue.x-k8s.io/queue-name", "admission.datadoghq.com/enabled", "kuma.io/sidecar-injection", "prometheus.io/scrape",
		"discovery.liqo.io/cluster-id", "auth.liqo.io/pinned-key", "xliqo.io/a", "app.kubernetes.io.example.com/name", "/", "kubernetes.io/config.source",
	}
	honest = []string{
		"app", "team_name", "pod-template-hash", "controller-revision-hash", "job-name", "app.kubernetes.io/name", "helm.sh/chart",
		"batch.kubernetes.io/job-name", "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index", "virtualkubelet.liqo.io/destination",
	}
	honestNotes = []string{
		"note", "kubectl.kubernetes.io/restartedAt", "kubectl.kubernetes.io/default-container", "checksum/config", "liqo.io/anti-affinity-preset",
		"batch.kubernetes.io/job-completion-index", "virtualkubelet.liqo.io/fence", "controller.kubernetes.io/pod-deletion-cost",
	}
)

// unescape is the inverse of pointer.
var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// TestAttackH6PodMetadata: a peer gives no orders to components of the provider's cluster with the metadata and tolerations of its pods, neither
// at first nor later. What honest tools set stays, and the administrator can allow more.
func TestAttackH6PodMetadata(t *testing.T) {
	s := spec(func(s *corev1.PodSpec) {
		for _, key := range []string{"", "CriticalAddonsOnly", "dedicated", "nvidia.com/gpu", "node-role.kubernetes.io/control-plane", corev1.TaintNodeMemoryPressure, corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
			s.Tolerations = append(s.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
		}
	})
	s.Labels, s.Annotations = map[string]string{labels.Origin: "rome-id"}, map[string]string{}
	for _, key := range slices.Concat(orders, honest) {
		s.Labels[key] = "x"
	}
	for _, key := range slices.Concat(orders, honestNotes) {
		s.Annotations[key] = "x"
	}
	wantLabels := slices.Sorted(slices.Values(slices.Concat(honest, []string{labels.Origin, labels.ManagedBy})))
	wantNotes := slices.Sorted(slices.Values(slices.Concat(honestNotes, []string{labels.ShadowPodRevision, labels.ShadowPodKeys, labels.ShadowPodSent})))
	check := func(when string, pod *corev1.Pod) {
		t.Helper()
		if diff := cmp.Diff(wantLabels, slices.Sorted(maps.Keys(pod.Labels))); diff != "" {
			t.Errorf("%s: labels %s", when, diff)
		}
		if diff := cmp.Diff(wantNotes, slices.Sorted(maps.Keys(pod.Annotations))); diff != "" {
			t.Errorf("%s: annotations %s", when, diff)
		}
	}
	pod := Pod(s, "rome-id", Allowed{})
	check("at first", pod)
	tolerated := func(tolerations []corev1.Toleration) (keys []string) {
		for _, one := range tolerations {
			keys = append(keys, one.Key)
		}
		return keys
	}
	if diff := cmp.Diff([]string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable}, tolerated(pod.Spec.Tolerations)); diff != "" {
		t.Errorf("tolerations %s", diff)
	}
	bare := Pod(spec(func(*corev1.PodSpec) {}), "rome-id", Allowed{})
	bare.Labels, bare.Annotations = map[string]string{}, map[string]string{labels.ShadowPodKeys: ";"}
	rest := Amend(s, bare, "rome-id", "us", Allowed{}).Rest
	for _, op := range rest {
		value, _ := op.Value.(string)
		if key, ok := strings.CutPrefix(op.Path, "/metadata/labels/"); ok {
			bare.Labels[unescape.Replace(key)] = value
		}
		if key, ok := strings.CutPrefix(op.Path, "/metadata/annotations/"); ok {
			bare.Annotations[unescape.Replace(key)] = value
		}
	}
	check("later", bare)

	allowed := Allowed{Labels: Keys{"istio.io/rev"}, Annotations: Keys{"vault.hashicorp.com/*"}, Tolerations: Keys{"*"}}
	more := Pod(s, "rome-id", allowed)
	if more.Labels["istio.io/rev"] == "" || more.Annotations["istio.io/rev"] != "" || more.Annotations["vault.hashicorp.com/agent-inject"] == "" {
		t.Errorf("extended: %v, %v", more.Labels, more.Annotations)
	}
	if diff := cmp.Diff([]string{"CriticalAddonsOnly", "dedicated", "nvidia.com/gpu", corev1.TaintNodeMemoryPressure, corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable}, tolerated(more.Spec.Tolerations)); diff != "" {
		t.Errorf("extended: tolerations %s", diff)
	}
}

// TestLeftOut: the peer learns what its pod runs without.
func TestLeftOut(t *testing.T) {
	s := spec(func(s *corev1.PodSpec) {
		s.Tolerations = []corev1.Toleration{{Key: "gpu"}, {Key: "gpu"}, {}, {Key: "node-role.kubernetes.io/control-plane"}, {Key: corev1.TaintNodeNotReady}}
	})
	s.Labels["istio.io/rev"], s.Labels["a/b"] = "x", "x"
	s.Annotations = map[string]string{"linkerd.io/inject": "x", "note": "x", corev1.LastAppliedConfigAnnotation: "x"}
	if diff := cmp.Diff([]string{"annotation linkerd.io/inject", "label a/b", "label istio.io/rev", "toleration of gpu"}, LeftOut(s, Allowed{})); diff != "" {
		t.Error(diff)
	}
	if left := LeftOut(s, anything); len(left) > 0 {
		t.Errorf("with everything allowed: %v", left)
	}
	if left := LeftOut(shadowPod(nil), Allowed{}); len(left) > 0 {
		t.Errorf("of an ordinary pod: %v", left)
	}
}

// TestAttackH6SliceLabels: the labels of EndpointSlices obey the same rule.
func TestAttackH6SliceLabels(t *testing.T) {
	from := &vkv1alpha1.ShadowEndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "remote", Labels: map[string]string{
		discoveryv1.LabelServiceName: "web", "app": "web", "app.kubernetes.io/name": "web", corev1.IsHeadlessService: "", "multicluster.x-k8s.io/service-name": "theirs", "service.cilium.io/x": "y",
	}}}
	intent, _ := EndpointSlice(from, Origin{ClusterID: "rome-id"})
	want := []string{"app", "app.kubernetes.io/name", discoveryv1.LabelManagedBy, discoveryv1.LabelServiceName, labels.ManagedBy, corev1.IsHeadlessService, labels.Origin}
	if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(maps.Keys(intent.Labels))); diff != "" {
		t.Error(diff)
	}
}
