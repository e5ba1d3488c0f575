// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// FuzzLedger: after any sequence of operations, the use of each peer is the sum of its pods, and no admission exceeds the grants.
func FuzzLedger(f *testing.F) {
	f.Add([]byte{0, 3, 0, 1, 1, 0, 2, 1, 0, 1, 2, 0, 3, 1, 0})
	f.Add([]byte{0, 9, 0, 1, 4, 8, 1, 5, 9, 2, 5, 9, 4, 0, 0, 1, 6, 9, 5, 0, 0})
	f.Add([]byte{1, 0, 255, 0, 255, 0, 1, 0, 7, 2, 0, 7, 2, 16, 6, 3, 0, 0})
	f.Add([]byte{0, 2, 3, 1, 2, 34})                                 // one pod over the grant
	f.Add([]byte{0, 2, 3, 1, 2, 22, 1, 4, 22, 1, 10, 22, 5, 100, 0}) // three pods, of which two fit
	amounts := []resource.Quantity{}
	for _, text := range []string{"0", "1m", "1", "2", "3", "-1", "1e18", "1Ei", "9223372036854775807", "1n"} {
		amounts = append(amounts, resource.MustParse(text))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		l, now := NewLedger(len(script)%2 == 0, []Defaults{{}, testDefaults}[len(script)/2%2]), time.Unix(0, 0)
		for script = script[:min(len(script), 600)]; len(script) >= 3; script = script[3:] {
			what, which, amount := script[0], script[1], amounts[int(script[2])%len(amounts)]
			// A name belongs to one peer, as its namespace does.
			peer, name := []string{"rome-id", "milan-id"}[which%2], string(rune('a'+which%8))
			s := shadowPod(func(s *vkv1alpha1.ShadowPod) {
				s.Namespace, s.Name, s.UID = peer, name, types.UID(rune('a'+which/8%4))
				s.Spec.Pod.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": amount, "memory": amounts[int(script[2]/16)%len(amounts)]}
				if which%2 == 0 {
					s.Spec.Pod.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": amounts[int(what)%len(amounts)]}
				}
				if what >= 128 {
					s.Spec.Pod.Containers[0].Resources.Limits["example.com/gpu"] = amount
				}
				if which%3 == 0 {
					s.Spec.Pod.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": amounts[int(which)%len(amounts)]}}
				}
				if which%5 == 0 {
					s.Status.Phase = vkv1alpha1.ShadowPodSucceeded
				}
			})
			key := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
			switch what % 6 {
			case 0:
				l.SetGrant(peer, types.NamespacedName{Name: name}, corev1.ResourceList{"cpu": amount, "memory": amount, "pods": amounts[int(which)%len(amounts)]})
			case 1:
				before, dryRun := maps.Clone(l.used[peer]), which%7 == 0
				problem := l.Admit(peer, s, now, dryRun)
				if dryRun || problem != "" {
					break
				}
				for name, value := range l.measure(&s.Spec.Pod).asked(l.granted(peer)) {
					most := l.granted(peer)[name]
					if used := l.used[peer][name].plus(-l.seen[key].amounts[name]).amount(); used > most {
						t.Fatalf("%d %s admitted: %d of %d are in use, before it %d", value, name, used, most, before[name].amount())
					}
				}
			case 2:
				l.Set(peer, s)
			case 3:
				l.Delete(s)
			case 4:
				l.DropGrant(types.NamespacedName{Name: name})
			case 5:
				now = now.Add(time.Duration(which) * time.Second)
			}
			checkUse(t, l)
		}
	})
}

// checkUse compares the running sums of a ledger with its entries.
func checkUse(t *testing.T, l *Ledger) {
	t.Helper()
	amounts, extras := map[string]Amounts{}, map[string]extra{}
	for _, entries := range []map[types.NamespacedName]entry{l.seen, l.admitted} {
		for key := range entries {
			item := entries[key]
			if amounts[item.peer] == nil {
				amounts[item.peer] = Amounts{}
			}
			all := extras[item.peer]
			for i, name := range defaulted {
				if item.extra[i] < 0 || item.extra[i] > item.amounts[name] {
					t.Fatalf("%v takes %d %s, of it %d without a request", key, item.amounts[name], name, item.extra[i])
				}
				all[i] += item.extra[i]
			}
			extras[item.peer] = all
			for name, value := range item.amounts {
				if value < 0 {
					t.Fatalf("%v uses %d %s", key, value, name)
				}
				amounts[item.peer][name] += value
			}
		}
	}
	for peer := range extras {
		for i, name := range defaulted {
			if extras[peer][i] != l.extra[peer][name].amount() {
				t.Fatalf("%s takes %v without requests, want %v", peer, l.extra[peer], extras[peer])
			}
		}
	}
	for peer := range amounts {
		for name := range l.used[peer] {
			amounts[peer][name] += 0 // an amount of zero may be listed or not
		}
		for name, value := range amounts[peer] {
			if l.used[peer][name].amount() != value {
				t.Fatalf("use of %s is %v, want %v", peer, l.used[peer], amounts[peer])
			}
		}
	}
	for peer := range l.used {
		if amounts[peer] == nil && len(l.used[peer]) > 0 {
			t.Fatalf("use of %s without pods: %v", peer, l.used[peer])
		}
	}
}
