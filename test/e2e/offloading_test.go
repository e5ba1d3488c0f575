// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"
	"time"
)

// offloaded is one of each of what crosses: a pod that may ask this API server, one that cannot start, and what they need.
const offloaded = `
apiVersion: v1
kind: Pod
metadata: {name: runs, labels: {app: runs}}
spec: {terminationGracePeriodSeconds: 1, containers: [{name: main, image: "playground.local/pause:1", imagePullPolicy: Never}]}
---
apiVersion: v1
kind: Pod
metadata: {name: waits}
spec: {terminationGracePeriodSeconds: 0, containers: [{name: main, image: "playground.local/nobodys:1", imagePullPolicy: Never}]}
---
apiVersion: v1
kind: Service
metadata: {name: runs}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: runs-elsewhere, labels: {kubernetes.io/service-name: runs}}
addressType: IPv4
ports: [{name: "", port: 80}]
endpoints: [{addresses: [10.200.0.250]}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: green}
---
apiVersion: v1
kind: Secret
metadata: {name: password}
stringData: {word: x}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: runs}
spec: {defaultBackend: {service: {name: runs, port: {number: 80}}}}
`

// offloads uses what the rights of offloading are for; what becomes of each field is the business of test/offload.
func offloads(t *testing.T) {
	rome.peer(t, milan)
	rome.nodeReady(t, milan, 30*time.Second)
	rome.kubectl(t, "create", "namespace", "offloads")
	rome.liqoctl(t, "offload", "namespace", "offloads", "--pod-offloading-strategy", "Remote")
	twin := strings.TrimSpace(rome.kubectl(t, "-n", "offloads", "get", "namespaceoffloadings", "offloading", "-o", "jsonpath={.status.remoteNamespaceName}"))
	if said := rome.tryKubectl(offloaded, "-n", "offloads", "apply", "-f", "-"); said.code != 0 {
		t.Fatal(said)
	}
	rome.kubectl(t, "-n", "offloads", "wait", "pod/runs", "--for=condition=Ready", "--timeout=60s")
	eventually(t, time.Minute, "the provider has all of it", func() (string, bool) {
		said := milan.tryKubectl("", "-n", twin, "get", "pods/runs", "services/runs", "endpointslices/runs-elsewhere", "configmaps/settings", "secrets/password", "ingresses/runs")
		return said.String(), said.code == 0
	})
	eventually(t, time.Minute, "why a pod does not start is said here", func() (string, bool) {
		said := rome.tryKubectl("", "-n", "offloads", "get", "events")
		return said.String(), strings.Contains(said.out, "pull policy of Never")
	})
	rome.kubectl(t, "-n", "offloads", "delete", "pod", "runs", "--timeout=30s")
	rome.liqoctl(t, "unoffload", "namespace", "offloads")
	rome.kubectl(t, "delete", "namespace", "offloads", "--timeout=60s")
	unpeered(t)
}
