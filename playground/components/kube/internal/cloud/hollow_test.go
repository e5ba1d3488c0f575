// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/playground/components/kube/internal/cloud/settings"
)

func TestPlanHollow(t *testing.T) {
	want := planHollow([]settings.Hollow{
		{Kind: "kwok", Prefix: "h", Count: 2, Labels: map[string]string{"zone": "z"}, Capacity: map[string]string{"cpu": "32", "pods": "250"}},
	})
	node := want["h-1"]
	if len(want) != 2 || node == nil || node.Annotations["kwok.x-k8s.io/node"] != "fake" || node.Labels["zone"] != "z" || node.Labels["type"] != "kwok" ||
		node.Labels[corev1.LabelHostname] != "h-1" || node.Status.Allocatable.Cpu().String() != "32" || node.Status.Capacity.Pods().Value() != 250 {
		t.Fatalf("planned %+v", want)
	}
	made := func(name string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{hollowLabel: "h"}}}
	}
	machine := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "rome-worker"}}
	create, remove := diffHollow(want, []*corev1.Node{machine, made("h-0"), made("h-7")})
	if len(create) != 1 || create[0].Name != "h-1" || len(remove) != 1 || remove[0].Name != "h-7" {
		t.Errorf("create %v, remove %v", create, remove)
	}
}
