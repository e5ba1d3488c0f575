// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
)

// silence is longer than Kubernetes waits until it deletes the pods of a node that does not answer.
const silence = 10 * time.Minute

// placed gives the pods of a StatefulSet to virtual nodes (Exists) or to the others (DoesNotExist).
const placed = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: liqo.io/type, operator: WHERE}]}]}}}"

// TestSilence: a provider does not answer for ten minutes, and every process of Liqo is restarted meanwhile. Databases on both sides write on, on the same
// volumes, in the same pods.
func TestSilence(t *testing.T) {
	if !*long {
		t.Skip("NOT RUN: it takes eleven minutes; use -long")
	}
	installedAndPeered(t)
	s := offload(t)
	for name, where := range map[string]string{"here": "DoesNotExist", "there": "Exists"} {
		s.apply(t, strings.NewReplacer("name: db}", "name: "+name+"}", "serviceName: db", "serviceName: "+name, "app: db", "app: "+name,
			"terminationGracePeriodSeconds: 1", strings.ReplaceAll(placed, "WHERE", where)+"\n      terminationGracePeriodSeconds: 1").Replace(writing))
	}
	s.running(t, "here-0", "there-0")
	objects := func() string {
		volumes := ""
		for _, claim := range []string{"data-here-0", "data-there-0"} {
			volume := s.volumeOf(t, claim)
			volumes += rome.Kubectl(t, "get", "persistentvolume", volume, "-o", `jsonpath={.metadata.uid} {.spec.persistentVolumeReclaimPolicy} {.status.phase}{"\n"}`)
		}
		const pods = `jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.spec.nodeName} {.status.containerStatuses[0].restartCount}{"\n"}{end}`
		return s.kubectl(t, "get", "pods", "-o", pods) + s.remoteKubectl(t, "get", "pods", "-o", pods) + volumes +
			s.remoteKubectl(t, "get", claimKindName, "-o", `jsonpath={range .items[*]}{.metadata.uid} {.spec.volumeName}{"\n"}{end}`)
	}
	before := objects()

	clusters.Do(t, "fault", "partition", rome.Name, milan.Name)
	heal := func() { clusters.Do(t, "fault", "heal", rome.Name, milan.Name) }
	t.Cleanup(heal)
	restarted := rome.KillAll(t) + milan.KillAll(t)
	<-time.After(silence) // the fault
	if now, err := rome.VirtualNode(milan); err != nil {
		t.Error(err)
	} else if ready, _ := env.Readiness(now); ready == "True" {
		t.Error("the virtual node is Ready while its provider does not answer")
	}
	heal()
	rome.NodeReady(t, milan)
	s.running(t, "here-0", "there-0")
	if after := objects(); after != before {
		t.Errorf("pods and volumes are\n%s\nbefore:\n%s", after, before)
	}
	for _, pod := range []string{"here-0", "there-0"} {
		text := strings.TrimSpace(s.kubectl(t, "exec", pod, "--", "sh", "-c", `awk 'NR != $1 {print "gap", NR, $1; exit}' /data/log; tail -n 1 /data/log`))
		n, err := strconv.Atoi(text)
		if least := int(silence.Seconds()); err != nil || n < least {
			t.Errorf("pod %s has written %q, want more than %d numbers without a gap", pod, text, least)
		}
	}
	clusters.Measure(fmt.Sprintf("provider silent for %v, %d processes killed", silence, restarted), "no pod and no volume changed")
}
