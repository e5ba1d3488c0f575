// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/networks"
)

// helloWorld are the two pods and the Service of the documented quick start, with an image of the playground.
const helloWorld = `
apiVersion: v1
kind: Pod
metadata: {name: nginx-local, labels: {app: liqo-demo}}
spec:
  terminationGracePeriodSeconds: 1
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: liqo.io/type, operator: NotIn, values: [virtual-node]}]}]}}}
  containers:
  - {name: nginx, image: "playground.local/tools:1", imagePullPolicy: Never, ports: [{containerPort: 80}], command: [sh, -c, "mkdir /www; hostname >/www/index.html; exec busybox httpd -f -p 80 -h /www"]}
---
apiVersion: v1
kind: Pod
metadata: {name: nginx-remote, labels: {app: liqo-demo}}
spec:
  terminationGracePeriodSeconds: 1
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: liqo.io/type, operator: In, values: [virtual-node]}]}]}}}
  containers:
  - {name: nginx, image: "playground.local/tools:1", imagePullPolicy: Never, ports: [{containerPort: 80}], command: [sh, -c, "mkdir /www; hostname >/www/index.html; exec busybox httpd -f -p 80 -h /www"]}
---
apiVersion: v1
kind: Service
metadata: {name: liqo-demo}
spec:
  selector: {app: liqo-demo}
  ports: [{port: 80, targetPort: 80}]
`

// TestQuickStartObjects offloads a namespace with two pods as the guide does, checks more than a reader would, and checks what it leaves.
func TestQuickStartObjects(t *testing.T) {
	if !*long {
		t.Skip("SKIPPED: TestQuickStart and TestNamespaces show it in the short form: -long")
	}
	installedAndPeered(t)
	romeBefore, milanBefore := rome.Everything(t), milan.Everything(t)
	name := newNamespace(t)

	result := rome.Liqoctl(t, "offload", "namespace", name)
	for _, line := range []string{`Offloading of namespace "` + name + `" correctly enabled`, "Offloading completed successfully"} {
		if !strings.Contains(result.Out+result.Err, line) {
			t.Errorf("the output lacks %q: %s", line, result)
		}
	}
	s := namespace{name, remoteName(t, name)}
	if line := rome.Kubectl(
		t, "-n", name, "get", "namespaceoffloadings", "--no-headers",
	); strings.Join(strings.Fields(line)[:4], " ") != "offloading DefaultName LocalAndRemote Ready" {
		t.Errorf("kubectl get namespaceoffloadings: %s", line)
	}
	if line := milan.Kubectl(t, "get", "namespaces", s.remote, "--no-headers"); !strings.Contains(line, "Active") {
		t.Errorf("kubectl get namespaces in milan: %s", line)
	}

	start := time.Now()
	s.apply(t, helloWorld)
	s.running(t, "nginx-local", "nginx-remote")
	clusters.Measure("quick start: apply to both pods Ready", "%.1f s", time.Since(start).Seconds())
	table := s.kubectl(t, "get", "pods", "-o", "wide", "--no-headers")
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		wantNode := map[string]string{"nginx-local": rome.NodePrefix + "-", "nginx-remote": virtualNode}[fields[0]]
		network := map[string]string{"nginx-local": "10.", "nginx-remote": "242."}[fields[0]]
		if fields[1] != "1/1" || fields[2] != "Running" || fields[3] != "0" || !strings.HasPrefix(fields[6], wantNode) || !strings.HasPrefix(fields[5], network) {
			t.Errorf("kubectl get pods -o wide: %s", line)
		}
	}
	if line := milan.Kubectl(t, "-n", s.remote, "get", "pods", "--no-headers"); len(strings.Split(line, "\n")) != 1 ||
		!strings.Contains(line, "nginx-remote") || !strings.Contains(line, "Running") {
		t.Errorf("kubectl get pods in milan: %s", line)
	}
	addresses := map[string]string{}
	for _, pod := range []string{"nginx-local", "nginx-remote"} {
		addresses[pod] = s.kubectl(t, "get", "pod", pod, "--template={{.status.podIP}}")
	}
	t.Run("reached", func(t *testing.T) { reached(t, s, addresses) })

	rome.Liqoctl(t, "unoffload", "namespace", name)
	if found := object(t, milan, namespaceKind, "", s.remote); found != nil {
		t.Errorf("unoffload has returned, but namespace %s still exists in milan: %s", s.remote, inJSON(found.Object["status"]))
	}
	rome.Kubectl(t, "delete", "namespace", name, timeout)
	nothingNew(t, rome, romeBefore)
	nothingNew(t, milan, milanBefore)
}

// seenFromMilan returns the address under which milan sees an address of rome.
func seenFromMilan(t *testing.T, address string) string {
	t.Helper()
	view, err := networks.See(rome, milan)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := view.Source(netip.MustParseAddr(address))
	if err != nil {
		t.Fatal(err)
	}
	return seen.String()
}

// reached sends requests to both pods by address, and to their Service by address and names, from both pods and from one of another namespace.
func reached(t *testing.T, s namespace, addresses map[string]string) {
	other := newNamespace(t)
	rome.Kubectl(t, "-n", other, "run", "tester", "--image="+env.ToolsImage, "--image-pull-policy=Never")
	rome.Kubectl(t, "-n", other, "wait", "--for=condition=Ready", "pod/tester", timeout)
	service := s.kubectl(t, "get", "service", "liqo-demo", "-o", "jsonpath={.spec.clusterIP}")
	ask := func(t *testing.T, from []string, url string) string {
		args := append([]string{"-n", from[0], "exec", from[1], "--", "curl", "--fail", "-sS", "--max-time", "5"}, "http://"+url)
		return strings.TrimSpace(rome.TryKubectl("", args...).Out)
	}
	for _, from := range [][]string{{s.name, "nginx-local"}, {s.name, "nginx-remote"}, {other, "tester"}} {
		t.Run("from "+from[1], func(t *testing.T) {
			t.Parallel()
			known := addresses
			if from[1] == "nginx-remote" { // pods in milan see translated addresses
				known = map[string]string{"nginx-local": seenFromMilan(t, addresses["nginx-local"])}
			}
			for pod, address := range known {
				env.Eventually(t, env.Hang, pod+" answers at "+address, func() (string, bool) {
					answer := ask(t, from, address)
					return answer, answer == pod
				})
			}
			urls := []string{"liqo-demo." + s.name}
			switch from[1] {
			case "nginx-remote": // a pod in milan uses the names of the remote namespace
				urls = []string{"liqo-demo", "liqo-demo." + s.remote, "liqo-demo." + s.remote + ".svc.cluster.local"}
			case "nginx-local":
				urls = append(urls, "liqo-demo", service)
			}
			for _, url := range urls {
				seen := map[string]int{}
				env.Eventually(t, env.Hang, "both pods answer at "+url, func() (string, bool) {
					seen[ask(t, from, url)]++
					return inJSON(seen), seen["nginx-local"] > 0 && seen["nginx-remote"] > 0
				})
			}
		})
	}
}
