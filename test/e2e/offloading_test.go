// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
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
	const namespace = "offloads"
	rome.Kubectl(t, "create", "namespace", namespace)
	t.Cleanup(func() { rome.Kubectl(t, "delete", "namespace", namespace, "--timeout=120s") })
	rome.Liqoctl(t, "offload", "namespace", namespace, "--pod-offloading-strategy", "Remote")
	remote := strings.TrimSpace(rome.Kubectl(t, "-n", namespace, "get", "namespaceoffloadings", "offloading", "-o", "jsonpath={.status.remoteNamespaceName}"))
	apply(t, namespace, offloaded)
	rome.Kubectl(t, "-n", namespace, "wait", "pod/runs", "--for=condition=Ready", "--timeout=180s")
	env.Eventually(t, env.Hang, "the provider has all of it", func() (string, bool) {
		r := milan.TryKubectl("", "-n", remote, "get", "pods/runs", "services/runs", "endpointslices/runs-elsewhere", "configmaps/settings", "secrets/password")
		return r.String(), r.Code == 0
	})
	env.Eventually(t, env.Hang, "an event in the consumer gives the value that refuses the Ingress", func() (string, bool) {
		r := rome.TryKubectl("", "-n", namespace, "get", "events")
		return r.String(), strings.Contains(r.Out, "peers.ingresses.hosts")
	})
	if found := milan.Kubectl(t, "-n", remote, "get", "ingresses", "-o", "name"); found != "" {
		t.Errorf("the provider has %s with default values", found)
	}
	env.Eventually(t, env.Hang, "an event in the consumer gives the reason why a pod does not start", func() (string, bool) {
		r := rome.TryKubectl("", "-n", namespace, "get", "events")
		return r.String(), strings.Contains(r.Out, "pull policy of Never")
	})
	rome.Kubectl(t, "-n", namespace, "delete", "pod", "runs", "--timeout=60s")
	rome.Liqoctl(t, "unoffload", "namespace", namespace)
	env.Eventually(t, env.Hang, "the remote namespace is gone", func() (string, bool) {
		r := milan.TryKubectl("", "get", "namespace", remote, "--ignore-not-found")
		return r.String(), r.Code == 0 && r.Out == ""
	})
}
