// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"fmt"
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
)

// named is a headless Service whose pod runs in rome, and clients in both clusters.
const named = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: None, selector: {app: web}, ports: [{name: http, port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: alias}
spec: {type: ExternalName, externalName: web.NAMESPACE.svc.cluster.local}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec:
  serviceName: web
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: liqo.io/type, operator: DoesNotExist}]}]}}}
      terminationGracePeriodSeconds: 0
      containers:
      - name: main
        image: playground.local/tools:1
        imagePullPolicy: Never
        command: [sh, -c, 'mkdir -p /tmp/www; echo ok >/tmp/www/index.html; exec busybox httpd -f -p 8080 -h /tmp/www']
        readinessProbe: {httpGet: {port: 8080, path: /}, periodSeconds: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: there}
spec:
  nodeSelector: {liqo.io/type: virtual-node}
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: "playground.local/tools:1", imagePullPolicy: Never, command: [sleep, "3600"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: here}
spec:
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: liqo.io/type, operator: DoesNotExist}]}]}}}
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: "playground.local/tools:1", imagePullPolicy: Never, command: [sleep, "3600"]}]
`

// TestNames: a pod finds a Service by the same names in both clusters, with the default name of the remote namespace; names of milan do not exist for it. With
// -long: while the name server is down, the pod has the DNS of milan.
func TestNames(t *testing.T) {
	installedAndPeered(t)
	s := offload(t)
	s.apply(t, strings.ReplaceAll(named, "NAMESPACE", s.name))
	s.kubectl(t, "wait", "pod/there", "pod/here", "pod/web-0", "--for=condition=Ready", timeout)
	get := func(pod, name string) string {
		r := rome.TryKubectl("", "-n", s.name, "exec", pod, "--", "curl", "-s", "-m", "5", "-o", "/dev/null", "-w", "%{http_code}", "http://"+name+":8080/")
		return strings.TrimSpace(r.Out)
	}
	all := []string{
		"web", "web." + s.name, "web." + s.name + ".svc", "web." + s.name + ".svc.cluster.local", "web-0.web",
		"web-0.web." + s.name + ".svc.cluster.local", "alias", "alias." + s.name + ".svc.cluster.local",
	}
	for _, pod := range []string{"here", "there"} {
		for _, name := range all {
			env.Eventually(t, env.Hang, fmt.Sprintf("pod %s reaches %s", pod, name), func() (string, bool) {
				code := get(pod, name)
				return code, code == "200"
			})
		}
	}
	for _, name := range []string{"metrics-server.kube-system.svc.cluster.local", "liqo-auth.liqo.svc.cluster.local"} {
		if r := rome.TryKubectl("", "-n", s.name, "exec", "there", "--", "busybox", "nslookup", name); r.Code == 0 {
			t.Errorf("a name of milan exists for a pod of rome: %s\n%s", name, r.Out)
		}
	}
	// The API server's name leads to that of rome, also for a program that does not read the hosts file.
	server := strings.TrimSpace(rome.TryKubectl(
		"", "-n", s.name, "exec", "there", "--", "busybox", "awk",
		"/ kubernetes.default.svc( |$)/ || /\tkubernetes.default.svc/ {print $1; exit}", "/etc/hosts",
	).Out)
	if r := rome.TryKubectl("", "-n", s.name, "exec", "there", "--", "busybox", "nslookup", "kubernetes.default.svc.cluster.local."); server == "" ||
		!strings.Contains(r.Out, server) {
		t.Errorf("the API server has the address %q in the hosts file, and by its name:\n%s", server, r)
	}
	if !*long {
		return
	}
	milan.Kubectl(t, "-n", "liqo", "scale", "deployment", "liqo-dns", "--replicas=0")
	t.Cleanup(func() {
		milan.Kubectl(t, "-n", "liqo", "scale", "deployment", "liqo-dns", "--replicas=2")
		milan.Kubectl(t, "-n", "liqo", "rollout", "status", "deployment", "liqo-dns", timeout)
	})
	env.Eventually(t, env.Hang, "no pod of the name server is left", func() (string, bool) {
		pods := milan.Kubectl(t, "-n", "liqo", "get", "pods", "-l", "app.kubernetes.io/component=dns", "-o", "name")
		return pods, pods == ""
	})
	for _, name := range []string{"web", "web-0.web"} {
		env.Eventually(t, env.Hang, "without the name server, the pod reaches "+name, func() (string, bool) {
			code := get("there", name)
			return code, code == "200"
		})
	}
	milan.Kubectl(t, "-n", "liqo", "scale", "deployment", "liqo-dns", "--replicas=2")
	full := "web." + s.name + ".svc.cluster.local"
	env.Eventually(t, env.Hang, "with the name server, the pod reaches "+full, func() (string, bool) {
		code := get("there", full)
		return code, code == "200"
	})
}
