// SPDX-License-Identifier: Apache-2.0

// Package install tests the ways to install Liqo that docs/installation.md and docs/upgrade.md describe, on two real clusters whose networks do not overlap:
// with Helm, in another namespace, as a plugin of kubectl, with another network, without addresses, and with the settings of networks.
// Each way is installed, peered, used and removed without a trace.
//
// It knows what package env knows, and the commands of the document. Each test stands alone. Run all with: make test-long SUITE=install,
// or one: make image mover traffic helm && go test ./test/install -v -run TestHelm
package install

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/execution"
	"liqo.io/liqo/test/env/inventory"
	"liqo.io/liqo/test/guide"
)

var (
	keep = flag.Bool("keep", false, "use the clusters that are up, and leave them up (for work on these tests)")

	clusters    *env.Env
	rome, milan *env.Cluster // consumer and provider

	fresh = map[*env.Cluster][]string{} // all objects before the first installation
)

func TestMain(m *testing.M) {
	env.Main(m, "testdata/apart.yaml", keep, func(e *env.Env) error {
		clusters, rome, milan = e, e.Clusters[0], e.Clusters[1]
		for _, c := range e.Clusters {
			objects, err := inventory.Everything(c.Config())
			if err != nil {
				return err
			}
			fresh[c] = objects
		}
		return e.LoadNeeded("tools")
	})
}

// start must be the first call of a test. It removes what an earlier one may have left.
func start(t *testing.T) {
	t.Helper()
	clusters.Step(t)
	if rome.TryKubectl("", "get", "namespace", namespace).Code == 0 {
		rome.TryLiqoctl("unoffload", "namespace", namespace)
		rome.Kubectl(t, "delete", "namespace", namespace, "--timeout=120s")
	}
	env.Unpeered(t, rome, milan)
	for _, c := range clusters.Clusters {
		c.Uninstalled(t)
	}
}

// nothingLeft wants the clusters to be as they were before the first installation.
func nothingLeft(t *testing.T) {
	t.Helper()
	for _, c := range clusters.Clusters {
		c.NothingNew(t, fresh[c], env.Hang)
	}
}

// try types a command as a reader of the document would, at the root of the repository, where values.yaml is a file of the test.
func try(c *env.Cluster, values, line string) (string, error) {
	bin, err := filepath.Abs(clusters.Bin)
	if err != nil {
		return "", err
	}
	shell := guide.Shell{Folder: "../..", Env: []string{"KUBECONFIG=" + c.Kubeconfig(), "PATH=" + bin + ":" + clusters.Tools + ":" + os.Getenv("PATH")}}
	outputs, err := shell.Run(context.Background(), []guide.Command{{Line: strings.ReplaceAll(line, "values.yaml", values)}})
	var text strings.Builder
	for _, one := range outputs {
		text.WriteString(one.Text)
	}
	return text.String(), err
}

// documented is the one command of docs/installation.md and docs/upgrade.md with this beginning. Placeholders are replaced.
func documented(t *testing.T, beginning string, replace ...string) string {
	t.Helper()
	var found []string
	for _, page := range []string{"../../docs/installation.md", "../../docs/upgrade.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range guide.Commands(string(text)) {
			if strings.HasPrefix(command.Line, beginning) {
				found = append(found, command.Line)
			}
		}
	}
	if len(found) != 1 {
		t.Fatalf("docs/installation.md and docs/upgrade.md have %d commands that start with %q: %q", len(found), beginning, found)
	}
	return strings.NewReplacer(replace...).Replace(found[0])
}

// run wants success.
func run(t *testing.T, c *env.Cluster, values, line string) string {
	t.Helper()
	text, err := try(c, values, line)
	if err != nil {
		c.Show(t)
		t.Fatalf("%s, in %s: %v\n%s", line, c.Name, err, text)
	}
	return text
}

const workload = `
apiVersion: v1
kind: Pod
metadata: {name: there, labels: {app: there}}
spec:
  terminationGracePeriodSeconds: 1
  nodeSelector: {liqo.io/type: virtual-node}
  containers: [{name: main, image: "localhost/traffic:dev", imagePullPolicy: Never, args: [serve]}]
---
apiVersion: v1
kind: Pod
metadata: {name: here, labels: {app: here}}
spec:
  terminationGracePeriodSeconds: 1
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: liqo.io/type, operator: DoesNotExist}]}]}}}
  containers: [{name: main, image: "playground.local/tools:1", imagePullPolicy: Never}]
---
apiVersion: v1
kind: Service
metadata: {name: there}
spec: {selector: {app: there}, ports: [{port: 80, targetPort: 7001}]}
`

const namespace = "used"

// offload runs one pod in each cluster, of one offloaded namespace of rome. flags are those of liqoctl.
func offload(t *testing.T, flags ...string) {
	t.Helper()
	rome.Kubectl(t, "create", "namespace", namespace)
	t.Cleanup(func() { rome.Kubectl(t, "delete", "namespace", namespace, "--ignore-not-found", "--timeout=120s") })
	rome.Liqoctl(t, append([]string{"offload", "namespace", namespace, "--namespace-mapping-strategy", "EnforceSameName"}, flags...)...)
	if r := rome.TryKubectl(workload, "-n", namespace, "apply", "-f", "-"); r.Code != 0 {
		t.Fatal(r)
	}
	rome.Kubectl(t, "-n", namespace, "wait", "pod/there", "pod/here", "--for=condition=Ready", "--timeout=180s")
}

// unoffload ends what offload started.
func unoffload(t *testing.T, flags ...string) {
	t.Helper()
	rome.Kubectl(t, "-n", namespace, "delete", "pod", "there", "here")
	rome.Liqoctl(t, append([]string{"unoffload", "namespace", namespace}, flags...)...)
	rome.Kubectl(t, "delete", "namespace", namespace, "--timeout=120s")
}

// ask requests a page of the Service, or of an address, from the pod in rome.
func ask(host string) execution.Result {
	return rome.TryKubectl(
		"", "-n", namespace, "exec", "here", "--", "curl", "-sS", "--max-time", "5", "-o", "/dev/null", "-w", "%{http_code}", "http://"+host+"/",
	)
}

// reached waits until the pod in rome reaches the one in milan by its Service.
func reached(t *testing.T) {
	t.Helper()
	env.Eventually(t, env.Hang, "a pod of rome reaches the Service, whose only pod runs in milan", func() (string, bool) {
		r := ask("there")
		return r.String(), r.Code == 0 && r.Out != "000"
	})
}

// incarnation is what must not change while Liqo is upgraded: the UIDs and restarts of the pods in both clusters.
func incarnation(t *testing.T) string {
	t.Helper()
	const columns = "jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.status.phase} {.status.containerStatuses[*].restartCount}; {end}"
	return fmt.Sprint(rome.Kubectl(t, "-n", namespace, "get", "pods", "-o", columns), milan.Kubectl(t, "-n", namespace, "get", "pods", "-o", columns))
}
