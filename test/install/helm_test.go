// SPDX-License-Identifier: Apache-2.0

package install

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/inventory"
	"liqo.io/liqo/test/env/traffic"
)

// ofDefinition reports whether an object is a resource definition of Liqo, or the API that Kubernetes makes of it.
func ofDefinition(line string) bool {
	return strings.HasSuffix(line, ".liqo.io") && (strings.HasPrefix(line, "apiextensions.k8s.io/customresourcedefinitions /") ||
		strings.HasPrefix(line, "apiregistration.k8s.io/apiservices /"))
}

// keptByHelm is what the document promises of `helm uninstall`: it keeps the resource definitions, the namespaces with what Kubernetes puts there, and
// the keys of the cluster.
func keptByHelm(line string) bool {
	kept := ofDefinition(line) || slices.Contains([]string{
		"/secrets liqo/auth-token", "/secrets liqo/liqo-cluster-key", "/secrets liqo/liqo-peering-key", "/secrets liqo/liqo-proxy-key",
	}, line)
	for _, name := range []string{"liqo", "liqo-storage"} {
		kept = kept || slices.Contains([]string{"/namespaces /" + name, "/serviceaccounts " + name + "/default", "/configmaps " + name + "/kube-root-ca.crt"}, line)
	}
	return kept
}

// TestHelm installs with Helm and the values that liqoctl detects: rome from the folder of the chart, milan from an archive of it. An upgrade
// restarts every process of Liqo while a pod is offloaded, for whose namespace nothing is removed. The hook before the removal ends a peering that is up.
func TestHelm(t *testing.T) {
	start(t)
	values, archive := map[*env.Cluster]string{}, packaged(t)
	for _, c := range clusters.Clusters {
		values[c] = filepath.Join(t.TempDir(), "values.yaml")
		run(t, c, values[c], documented(t, "liqoctl install --cluster-name rome --only-output-values", "rome", c.Name))
		c.NothingNew(t, fresh[c], 0)
	}
	installs := map[*env.Cluster]string{
		rome: documented(t, "helm install liqo deployments/liqo"), milan: documented(t, "helm install liqo liqo-*.tgz", "liqo-*.tgz", archive),
	}
	for _, c := range clusters.Clusters {
		refusedByHelm(t, c, values[c], installs[c])
		run(t, c, values[c], installs[c])
		env.Healthy(t, c)
	}
	rome.Peer(t, milan)
	offload(t)
	reached(t)
	upgradeWithHelm(t, values)
	if text, err := try(rome, "", documented(t, "helm uninstall liqo")); err == nil || !strings.Contains(text, "liqoctl unoffload namespace "+namespace) {
		t.Errorf("helm uninstall with an offloaded namespace: %v\n%s", err, text)
	}
	rome.NodeReady(t, milan)
	reached(t)
	unoffload(t)

	for _, c := range clusters.Clusters {
		run(t, c, "", documented(t, "helm uninstall liqo"))
		env.Eventually(t, env.Hang, "Helm has removed Liqo from "+c.Name, func() (string, bool) {
			var left []string
			for _, line := range inventory.Added(fresh[c], c.Everything(t)) {
				if !keptByHelm(line) {
					left = append(left, line)
				}
			}
			return strings.Join(left, "\n            "), len(left) == 0
		})
	}
	if seen := milan.Kubectl(t, "get", "namespaces", "-o", "name"); strings.Contains(seen, "liqo-tenant") {
		t.Errorf("milan still has a namespace of its consumer: %s", seen)
	}
	for _, c := range clusters.Clusters {
		run(t, c, "", "liqoctl uninstall --purge")
	}
	nothingLeft(t)
}

// packaged returns an archive of the chart.
func packaged(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	run(t, rome, "", documented(t, "helm package deployments/liqo")+" --destination "+folder)
	all, err := filepath.Glob(filepath.Join(folder, "liqo-*.tgz"))
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	return all[0]
}

// refusedByHelm: with a wrong value, an impossible one, or without a needed one, Helm installs no more than the resource definitions.
func refusedByHelm(t *testing.T, c *env.Cluster, values, install string) {
	t.Helper()
	for set, want := range map[string]string{
		"auth.colour=red": "colour", "gateway.replicas=9": "replicas", "gateway.config.listeningPort=4879": "overlay",
		"networkManager.config.podCIDR=": "podCIDR is empty",
	} {
		if text, err := try(c, values, install+" --set "+set); err == nil || !strings.Contains(text, want) {
			t.Errorf("%s: %v, want an error with %q:\n%s", set, err, want, text)
		}
		for _, line := range inventory.Added(fresh[c], c.Everything(t)) {
			if !ofDefinition(line) {
				t.Errorf("%s left %s", set, line)
			}
		}
	}
}

// upgradeWithHelm restarts every process of Liqo in both clusters by upgrades, after the user changed a resource definition and the percentage
// of shared resources. Pods stay the same, and a connection between the clusters does not break.
func upgradeWithHelm(t *testing.T, values map[*env.Cluster]string) {
	t.Helper()
	before, broken := incarnation(t), connection(t)
	const definition, columns = "customresourcedefinition/foreignclusters.discovery.liqo.io", "jsonpath={.spec.versions[0].additionalPrinterColumns[*].name}"
	for _, c := range clusters.Clusters {
		want := c.Kubectl(t, "get", definition, "-o", columns)
		c.Kubectl(t, "patch", definition, "--type=json", "-p", `[{"op":"remove","path":"/spec/versions/0/additionalPrinterColumns"}]`)
		c.Kubectl(t, "-n", "liqo", "patch", "configmap", "liqo-resource-sharing", "--type=merge", "-p", `{"data":{"percentage":"70"}}`)
		upgrade := documented(t, "helm upgrade liqo deployments/liqo")
		for _, component := range []string{"auth", "controllerManager", "dns", "gateway", "metricAgent", "proxy", "route"} {
			upgrade += fmt.Sprintf(" --set %s.pod.annotations.again=yes", component)
		}
		upgrade += " --set virtualKubelet.extra.annotations.again=yes"
		if text, err := try(c, values[c], upgrade+" --set auth.colour=red"); err == nil || !strings.Contains(text, "colour") {
			t.Errorf("a wrong value: %v\n%s", err, text)
		}
		run(t, c, values[c], upgrade)
		if have := c.Kubectl(t, "get", definition, "-o", columns); have != want || want == "" {
			t.Errorf("%s: columns of ForeignClusters %q after the upgrade, want %q", c.Name, have, want)
		}
		if r := c.TryKubectl("", "-n", "liqo", "get", "jobs", "-o", "name"); r.Out != "" {
			t.Errorf("%s: jobs of hooks are left: %s", c.Name, r.Out)
		}
		if have := c.Kubectl(t, "-n", "liqo", "get", "configmap", "liqo-resource-sharing", "-o", "jsonpath={.data.percentage}"); have != "70" {
			t.Errorf("%s: the percentage that was changed in the cluster, 70, is %s after the upgrade", c.Name, have)
		}
		env.Healthy(t, c)
	}
	rome.NodeReady(t, milan)
	rome.WantColumns(t, milan, "Established None Established Established")
	reached(t)
	if after := incarnation(t); after != before {
		t.Errorf("pods before the upgrades: %s\nafter: %s", before, after)
	}
	broken()
}

// connection opens a connection from the pod in rome to that in milan, with a request each 50 ms. The result ends it, and fails the test if
// it broke.
func connection(t *testing.T) (ended func()) {
	t.Helper()
	here, err := rome.Pods(namespace, map[string]string{"app": "here"})
	if err != nil || len(here) != 1 {
		t.Fatal(here, err)
	}
	at, err := here[0].Net()
	if err != nil {
		t.Fatal(err)
	}
	address := rome.Kubectl(t, "-n", namespace, "get", "pod", "there", "-o", "jsonpath={.status.podIP}")
	cmd, lines := traffic.Start(t, clusters, at, "stream", fmt.Sprintf("there=%s:%d", address, traffic.EchoPort))
	return func() {
		t.Helper()
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have exited
		var last struct {
			Good, Broken int
			Why          string
		}
		for lines.Scan() {
			_ = json.Unmarshal(lines.Bytes(), &last) // the last line may be cut off
		}
		_ = cmd.Wait()
		if last.Broken > 0 || last.Good == 0 {
			t.Errorf("the connection between the clusters: %+v, want none broken", last)
		}
		clusters.Measure("requests on one connection while Helm restarts everything", "%d", last.Good)
	}
}
