// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestGrowth: the real claim is asked first, and what it has is shown afterwards.
func TestGrowth(t *testing.T) {
	list := func(size string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	}
	for name, test := range map[string]struct {
		asked, shown     string // of the claim
		volume           string
		realAsked, has   string // of the real claim
		request, visible string
	}{
		"asked for":          {asked: "3Gi", shown: "1Gi", volume: "1Gi", realAsked: "1Gi", has: "1Gi", request: "3Gi"},
		"on the way":         {asked: "3Gi", shown: "1Gi", volume: "1Gi", realAsked: "3Gi", has: "1Gi"},
		"there":              {asked: "3Gi", shown: "1Gi", volume: "1Gi", realAsked: "3Gi", has: "3Gi", visible: "3Gi"},
		"shown by half":      {asked: "3Gi", shown: "1Gi", volume: "3Gi", realAsked: "3Gi", has: "3Gi", visible: "3Gi"},
		"larger than asked":  {asked: "3Gi", shown: "1Gi", volume: "1Gi", realAsked: "3Gi", has: "4Gi", visible: "4Gi"},
		"more is asked for":  {asked: "5Gi", shown: "1Gi", volume: "1Gi", realAsked: "3Gi", has: "3Gi", request: "5Gi", visible: "3Gi"},
		"nothing left to do": {asked: "3Gi", shown: "3Gi", volume: "3Gi", realAsked: "3Gi", has: "3Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			claim, real, volume := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
			claim.Spec.Resources.Requests, claim.Status.Capacity = list(test.asked), list(test.shown)
			real.Spec.Resources.Requests, real.Status.Capacity = list(test.realAsked), list(test.has)
			volume.Spec.Capacity = list(test.volume)
			step := planGrowth(claim, volume, real)
			text := func(size *resource.Quantity) string {
				if size == nil {
					return ""
				}
				return size.String()
			}
			if diff := cmp.Diff([]string{test.request, test.visible}, []string{text(step.request), text(step.capacity)}); diff != "" {
				t.Error(diff)
			}
		})
	}
}
