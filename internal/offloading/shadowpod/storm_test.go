// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/offloading/shadowtest"
)

const (
	// storm is how many ShadowPods fail.
	storm = 150
	// several is how many ShadowPods of another peer are created during the storm.
	several = 9
)

// TestStormOfShadowPods: while all ShadowPods of one peer fail, those of another peer get their pods and events, and the failing ones cost ever
// fewer requests.
func TestStormOfShadowPods(t *testing.T) {
	b := shadowtest.New(t)
	b.OtherPeer()
	nothing := corev1.ResourceList{"count/pods": {}}
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: shadowtest.RemoteNamespace, Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: nothing},
	}
	b.Make(quota)
	b.EditStatus(quota, func() { quota.Status = corev1.ResourceQuotaStatus{Hard: nothing, Used: nothing} }) // as the quota controller, which does not run here
	b.Run()
	start, before := time.Now(), int(b.Writes.Load())
	first := b.CreateShadowPod("first", corev1.RestartPolicyAlways, nil)
	b.Event(first, "FailedCreate", "exceeded quota") // before the others use up the events of the namespace
	for i := range storm {
		b.CreateShadowPod(fmt.Sprint("bad", i), corev1.RestartPolicyAlways, nil)
	}
	b.Others(several)
	host := b.CreateShadowPod("host", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) {
		s.Namespace, s.Labels[labels.Origin], s.Spec.Pod.HostNetwork = shadowtest.OtherRemoteNamespace, "milan-id", true
	})
	b.Event(host, "Refused", "hostNetwork")
	// Each ShadowPod is retried after 20 ms, and then after twice the delay each time. The bound grows with the time, so a slow machine passes.
	tries, since := int(b.Writes.Load())-before, time.Since(start)
	most := (1+storm)*(2+int(math.Log2(float64(since)/float64(20*time.Millisecond)+1))) + several
	if tries > most {
		t.Errorf("%d requests in %v, want %d at most", tries, since, most)
	}
	b.Must(b.Delete(t.Context(), quota))
	b.Pod(first, nil) // retries go on
}

// TestShadowPodsHang: while all requests for one namespace hang, the pods of another peer are created.
func TestShadowPodsHang(t *testing.T) {
	b := shadowtest.New(t)
	b.OtherPeer()
	asked := kubetest.Hang(
		t, b.Client, shadowtest.RemoteNamespace,
		admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
	)
	b.Run()
	for i := range 50 {
		b.CreateShadowPod(fmt.Sprint("bad", i), corev1.RestartPolicyAlways, nil)
	}
	b.Until("the limit of requests hangs", func() bool { return asked() >= 8 })
	b.Others(several)
	if got := asked(); got != 8 { // none of them has returned: the worker would have sent the next one
		t.Errorf("%d requests for the namespace that hangs, want the 8 workers of 10 that one namespace may have", got)
	}
}

// TestAttackM12: a peer whose requests hang in many namespaces takes the workers of one peer, not those of one peer for each namespace.
func TestAttackM12(t *testing.T) {
	b := shadowtest.New(t)
	b.OtherPeer()
	pods := admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}}
	var hanging []func() int
	const spread, each = 4, 10
	namespace := func(i int) string { return fmt.Sprintf("flood-%d-rome-a1b2c3", i) }
	for i := range spread {
		b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace(i), Labels: map[string]string{labels.RemoteClusterID: "rome-id"}}})
		b.Bind(shadowtest.User, namespace(i), b.RemoteRules)
		hanging = append(hanging, kubetest.Hang(t, b.Client, namespace(i), pods))
	}
	asked := func() (sum int) {
		for _, count := range hanging {
			sum += count()
		}
		return sum
	}
	b.Run()
	b.Pod(b.CreateShadowPod("first", corev1.RestartPolicyAlways, nil), nil) // the controllers run
	for i := range spread * each {
		b.CreateShadowPod(fmt.Sprint("bad", i), corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) { s.Namespace = namespace(i % spread) })
	}
	b.Until("the limit of requests hangs", func() bool { return asked() >= 9 })
	b.Others(several)
	if got := asked(); got != 9 { // none of them has returned: the worker would have sent the next one
		t.Errorf("%d requests of the peer hang, want the 9 workers of 10 that one peer may have", got)
	}
}

// TestShadowPodOfRefusedPeer: a ShadowPod of a peer that may not use this cluster gets no pod, until the peer is accepted.
func TestShadowPodOfRefusedPeer(t *testing.T) {
	b := shadowtest.New(t)
	rome := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "rome"}}
	b.Read(rome)
	b.EditStatus(rome, func() { rome.Status.Incoming.State = discoveryv1alpha1.IncomingRefused })
	b.Run()
	web := b.CreateShadowPod("web", corev1.RestartPolicyAlways, nil)
	b.Event(web, "Refused", "does not let the peer use its resources")
	if b.Exists(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}}) {
		t.Error("a refused peer has a pod")
	}
	b.EditStatus(rome, func() { rome.Status.Incoming.State = discoveryv1alpha1.IncomingAccepted })
	b.Pod(web, nil)
}
