// SPDX-License-Identifier: Apache-2.0

package quantities_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/internal/kube/quantities"
)

const quantityBomb = `1e-2000000000`

// TestAttackM7Quantities: wherever a pod has a quantity, one that takes hours to parse is found before.
func TestAttackM7Quantities(t *testing.T) {
	for _, text := range []string{
		`{"status":{"containerStatuses":[{"allocatedResources":{"cpu":"BOMB"}}]}}`,
		`{"status":{"containerStatuses":[{"name":"c"},{"resources":{"claims":[{"name":"x"}],"limits":{"cpu":"1","memory":"BOMB"}}}]}}`,
		`{"status":{"allocatedResources":{"cpu":BOMB}}}`,
		`{"status":{"resources":{"requests":{"cpu":"BOMB"}}}}`,
		`{"status":{"nodeAllocatableResourceClaimStatuses":[{"resources":{"cpu":"BOMB"}}]}}`,
		`{"spec":{"pod":{"containers":[{"resources":{"requests":{"cpu":"1"}}},{"resources":{"requests":{"a":null,"cpu":"BOMB"}}}]}}}`,
		`{"spec":{"pod":{"overhead":{"cpu":"BOMB"}}}}`,
		`{"spec":{"pod":{"volumes":[{"emptyDir":{"sizeLimit":"BOMB"}}]}}}`,
		`{"spec":{"pod":{"volumes":[{"ephemeral":{"volumeClaimTemplate":{"spec":{"resources":{"requests":{"storage":"BOMB"}}}}}}]}}}`,
		`{"spec":{"pod":{"containers":[{"env":[{"valueFrom":{"resourceFieldRef":{"divisor":"BOMB"}}}]}]}}}`,
		`{"spec":{"pod":{"containers":[{"resources":{"re\u0071uests":{"cpu":"BOMB"}}}]}}}`,
		`{"spec":{"pod":{"containers":[{"resources":{"requests":{"cpu":"1"},"requests":{"cpu":"BOMB"}}}]}}}`,
		`{"status":{"allocatedResources":{"cpu":"BOMB"}},"status":{}}`,
	} {
		for _, bomb := range []string{quantityBomb, "1E+999999999", strings.Repeat("9", 1000), "0.0000000001e-999"} {
			if err := quantities.CheckJSON([]byte(strings.ReplaceAll(text, "BOMB", bomb))); err == nil {
				t.Errorf("%s in %s is accepted", bomb[:min(len(bomb), 20)], text)
			}
		}
		for _, fine := range []string{"0", "250", "1.5", "1e3", "-1"} {
			if err := quantities.CheckJSON([]byte(strings.ReplaceAll(text, "BOMB", fine))); err != nil {
				t.Errorf("%s in %s: %v", fine, text, err)
			}
		}
	}
	for _, text := range []string{
		`{}`, `[]`,
		`{"spec":{"containers":[{"args":["1e-2000000000"],"env":[{"name":"limits","value":"1e-2000000000"}],"resources":{"claims":[{"name":"x","request":"y"}]}}]}}`,
		`{"metadata":{"annotations":{"limits":"text","a":"1e-2000000000"},"labels":{"overhead":"x"}}}`, `{"status":{"message":"1e-2000000000","resources":null}}`,
		`{"spec":{"containers":[{"resources":{"limits":{"cpu":"250m","memory":"1Gi","hugepages-2Mi":"0"}}}]}}`,
	} {
		if err := quantities.CheckJSON([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{`{`, `{"a"`, `{"status":{"allocatedResources":{"cpu":"1"`} {
		if err := quantities.CheckJSON([]byte(text)); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}

// FuzzCheckJSON: what passes is decoded without a parser of quantities that runs away.
func FuzzCheckJSON(f *testing.F) {
	f.Add(`{"spec":{"containers":[{"resources":{"limits":{"cpu":"250m"}}}]},"status":{"allocatedResources":{"cpu":1}}}`)
	f.Add(`{"status":{"containerStatuses":[{"resources":{"claims":[{"name":"x"}]}}]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		if quantities.CheckJSON([]byte(text)) == nil {
			var pod corev1.Pod
			_ = json.Unmarshal([]byte(text), &pod)
		}
	})
}
