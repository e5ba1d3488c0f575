// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"fmt"
	"strings"
	"testing"

	"liqo.io/liqo/test/env/execution"
	"liqo.io/liqo/test/env/fields"
)

const sizedPod = `
apiVersion: v1
kind: Pod
metadata: {name: sized}
spec:
  nodeSelector: {liqo.io/type: virtual-node}
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: playground.local/tools:1
    imagePullPolicy: Never
    command: [sleep, infinity]
    resources: {requests: {cpu: 50m, memory: 32Mi}, limits: {cpu: 100m, memory: 64Mi}}
`

// TestResize: a pod that runs in milan is resized in rome, and goes on; what exceeds the grant is refused.
func TestResize(t *testing.T) {
	installedAndPeered(t)
	s := offload(t)
	s.apply(t, sizedPod)
	s.running(t, "sized")
	s.wantLocal(t, podKind, "sized", "status: {containerStatuses: [{resources: {requests: {cpu: 50m, memory: 32Mi}, limits: {cpu: 100m, memory: 64Mi}}}]}")
	before := s.inMilan(t, podKind, "sized").GetUID()
	resize := func(requests, limits string) execution.Result {
		return rome.TryKubectl("", "-n", s.name, "patch", "pod", "sized", "--subresource", "resize", "-p",
			fmt.Sprintf(`{"spec":{"containers":[{"name":"main","resources":{"requests":{%s},"limits":{%s}}}]}}`, requests, limits))
	}
	if result := resize(`"cpu":"80m","memory":"48Mi"`, `"cpu":"150m","memory":"96Mi"`); result.Code != 0 {
		t.Fatal(result)
	}
	const larger = "{requests: {cpu: 80m, memory: 48Mi}, limits: {cpu: 150m, memory: 96Mi}}"
	s.wantRemote(t, podKind, "sized", "spec: {containers: [{resources: "+larger+"}]}")
	s.wantRemote(t, podKind, "sized", "status: {containerStatuses: [{resources: "+larger+", restartCount: 0}]}")
	s.wantLocal(t, podKind, "sized", "status: {containerStatuses: [{resources: "+larger+", allocatedResources: {cpu: 80m, memory: 48Mi}, restartCount: 0}]}")
	if after := s.inMilan(t, podKind, "sized").GetUID(); after != before {
		t.Errorf("another pod runs in milan: %s, was %s", after, before)
	}
	if result := resize(`"cpu":"9k","memory":"48Mi"`, `"cpu":"9k","memory":"96Mi"`); result.Code == 0 || !strings.Contains(result.String(), "allocatable") {
		t.Errorf("more than the node has: %s", result)
	}
}

// TestPeeringLeavesNoWarning: no event about the virtual node reports a problem.
func TestPeeringLeavesNoWarning(t *testing.T) {
	installedAndPeered(t)
	all, err := rome.Objects(eventKind, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range all {
		if fields.At(event.Object, "involvedObject.name") == virtualNode && (fields.At(event.Object, "type") == "Warning" ||
			fields.At(event.Object, "reason") == "CIDRAssignmentFailed") {
			t.Errorf("%v %v: %v", event.Object["type"], event.Object["reason"], event.Object["message"])
		}
	}
}
