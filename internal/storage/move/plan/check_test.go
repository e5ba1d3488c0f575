// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
)

// TestThere: data of this cluster is at the nodes that its volume admits, by the label of its driver.
func TestThere(t *testing.T) {
	const driver = "topology.hostpath.csi/node"
	for _, row := range []struct {
		key, value string // of the affinity of the volume; none if empty
		want       bool
	}{
		{"", "", true},
		{corev1.LabelHostname, "worker-2", true},
		{corev1.LabelHostname, "worker-1", false},
		{driver, "worker-2", true},
		{driver, "worker-1", false},
	} {
		terms := []corev1.NodeSelectorRequirement{{Key: labels.Type, Operator: corev1.NodeSelectorOpDoesNotExist}}
		if row.key != "" {
			terms = append(terms, corev1.NodeSelectorRequirement{Key: row.key, Operator: corev1.NodeSelectorOpIn, Values: []string{row.value}})
		}
		f := Facts{
			Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-2", Labels: map[string]string{corev1.LabelHostname: "worker-2", driver: "worker-2"}}},
			Volume: &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: terms}},
			}}}},
		}
		if f.there() != row.want {
			t.Errorf("a volume for nodes with %s=%s is at worker-2: %t", row.key, row.value, !row.want)
		}
	}
}
