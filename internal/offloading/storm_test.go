// SPDX-License-Identifier: Apache-2.0

package offloading_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
)

const (
	otherTwin = "web-milan-d4e5f6"
	// storm is how many wishes fail.
	storm = 150
	// several is how many wishes of another peer come beside it. Their median counts: the machine of a test may stand still now and then.
	several = 9
)

// TestStormOfWishes: a peer whose wishes all fail does not delay another peer, nor silence it, and costs ever fewer requests.
func TestStormOfWishes(t *testing.T) {
	b := newShadowBed(t)
	b.otherPeer()
	nothing := corev1.ResourceList{"count/pods": {}}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: twin, Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: nothing}}
	b.Make(quota)
	b.EditStatus(quota, func() { quota.Status = corev1.ResourceQuotaStatus{Hard: nothing, Used: nothing} }) // as its controller, which does not run here
	b.run()
	alone := b.others("alone")
	began, before := time.Now(), int(b.writes.Load())
	first := b.wish("first", corev1.RestartPolicyAlways, nil)
	for i := range storm {
		b.wish(fmt.Sprint("bad", i), corev1.RestartPolicyAlways, nil)
	}
	b.delayed(alone, b.others("beside"))
	host := b.wish("host", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) {
		s.Namespace, s.Labels[labels.Origin], s.Spec.Pod.HostNetwork = otherTwin, "milan-id", true
	})
	b.event(host, "Refused", "hostNetwork")
	b.event(first, "FailedCreate", "exceeded quota")
	tries, since := int(b.writes.Load())-before, time.Since(began)
	most := (1+storm)*(2+int(math.Log2(float64(since)/float64(20*time.Millisecond)+1))) + several
	t.Logf("%d requests for %d wishes in %v", tries, storm+several+2, since.Round(time.Millisecond))
	if tries > most {
		t.Errorf("%d requests in %v, want %d at most", tries, since, most)
	}
	b.Must(b.Delete(t.Context(), quota))
	b.pod(first, nil) // it has not been given up
}

// TestWishesHang: a namespace in which the API server takes very long does not delay another peer.
func TestWishesHang(t *testing.T) {
	b := newShadowBed(t)
	b.otherPeer()
	asked := kubetest.Hang(t, b.Client, twin, admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}})
	b.run()
	alone := b.others("alone")
	for i := range 50 {
		b.wish(fmt.Sprint("bad", i), corev1.RestartPolicyAlways, nil)
	}
	b.Until("as many requests hang as may", func() bool { return asked() >= 8 })
	b.delayed(alone, b.others("beside"))
	if got := asked(); got != 8 {
		t.Errorf("%d workers of ten for one namespace", got)
	}
}

// otherPeer has a twin, too.
func (b *shadowBed) otherPeer() {
	b.T.Helper()
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: otherTwin, Labels: map[string]string{labels.RemoteClusterID: "milan-id"}}})
	b.Bind(shadowUser, otherTwin, b.inTwins)
}

// others are wishes of the other peer, one after the other: how long each took to become a pod, the median in the middle.
func (b *shadowBed) others(prefix string) []time.Duration {
	b.T.Helper()
	return kubetest.Times(several, func(i int) {
		b.pod(b.wish(fmt.Sprint(prefix, i), corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) {
			s.Namespace, s.Labels[labels.Origin] = otherTwin, "milan-id"
		}), nil)
	})
}

func (b *shadowBed) delayed(alone, beside []time.Duration) {
	b.T.Helper()
	b.T.Logf("pods of the other peer: median %v, beside the storm %v, slowest %v", alone[several/2].Round(time.Millisecond),
		beside[several/2].Round(time.Millisecond), beside[several-1].Round(time.Millisecond))
	if usual := max(time.Second, 10*alone[several/2]); beside[several/2] > usual {
		b.T.Errorf("pods of the other peer took %v beside the storm, want %v at most", beside, usual)
	}
}
