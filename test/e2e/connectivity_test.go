// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/traffic"
)

// connectivity: every pod and every node of each cluster reaches every pod of the other, whose addresses are the same.
func connectivity(t *testing.T) {
	for _, c := range both() {
		t.Cleanup(func() { c.Kubectl(t, "delete", "namespace", traffic.Namespace, "--ignore-not-found", "--wait=false") })
		traffic.Serve(t, c)
	}
	checks := traffic.Matrix(t, clusters, rome, milan) + traffic.Matrix(t, clusters, milan, rome)
	if least := 4 * len(rome.Nodes) * len(milan.Nodes) * 2; checks < least {
		t.Errorf("%d checks, want %d at least", checks, least)
	}
	clusters.Measure("connectivity matrix", "%d checks", checks)
}

// pods are the pods of a component of Liqo in all namespaces, by namespace and name and UID.
func pods(t *testing.T, c *env.Cluster, selector string) (names []string, uids string) {
	t.Helper()
	out := c.Kubectl(t, "get", "pods", "-A", "-l", selector, "--field-selector=status.phase=Running",
		"-o", `jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name} {.metadata.uid}{"\n"}{end}`)
	for line := range strings.Lines(out) {
		name, uid, _ := strings.Cut(strings.TrimSpace(line), " ")
		names, uids = append(names, name), uids+" "+uid
	}
	return names, uids
}

// runs makes an offloaded namespace with one pod that runs at the provider. It returns the namespace and how to read what must not
// change while a process of ours is away: the local pod's UID and restarts, and the remote pod's UID.
func runs(t *testing.T, namespace string) (incarnation func() string) {
	t.Helper()
	rome.Kubectl(t, "create", "namespace", namespace)
	t.Cleanup(func() { rome.Kubectl(t, "delete", "namespace", namespace, "--timeout=120s") })
	rome.Liqoctl(t, "offload", "namespace", namespace, "--pod-offloading-strategy", "Remote", "--namespace-mapping-strategy", "EnforceSameName")
	apply(t, namespace, offloaded)
	rome.Kubectl(t, "-n", namespace, "wait", "pod/runs", "--for=condition=Ready", "--timeout=180s")
	return func() string {
		return rome.Kubectl(t, "-n", namespace, "get", "pod", "runs", "-o", "jsonpath={.metadata.uid} {.status.phase} {.status.containerStatuses[*].restartCount}") +
			"; " + milan.Kubectl(t, "-n", namespace, "get", "pod", "runs", "-o", "jsonpath={.metadata.uid} {.status.phase} {.status.containerStatuses[*].restartCount}")
	}
}

func apply(t *testing.T, namespace, manifest string) {
	t.Helper()
	if r := rome.TryKubectl(manifest, "-n", namespace, "apply", "-f", "-"); r.Code != 0 {
		t.Fatal(r)
	}
}

// killed force-deletes the pods of a component in clusters, waits until others run in their place, and wants the offloaded pod to be the
// same as before, and changes to cross again.
func killed(t *testing.T, namespace, selector string, where ...*env.Cluster) {
	t.Helper()
	incarnation := runs(t, namespace)
	before := incarnation()
	for _, c := range where {
		names, old := pods(t, c, selector)
		if len(names) == 0 {
			t.Fatalf("no pod in %s has the labels %s", c.Name, selector)
		}
		for _, name := range names {
			ns, pod, _ := strings.Cut(name, "/")
			c.Kubectl(t, "-n", ns, "delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")
		}
		env.Eventually(t, env.Hang, "other pods of "+selector+" run in "+c.Name, func() (string, bool) {
			now, uids := pods(t, c, selector)
			return fmt.Sprint(now), len(now) == len(names) && uids != old
		})
	}
	rome.NodeReady(t, milan)
	apply(t, namespace, "{apiVersion: v1, kind: ConfigMap, metadata: {name: afterwards}, data: {color: red}}")
	env.Eventually(t, env.Hang, "what is made afterwards crosses", func() (string, bool) {
		r := milan.TryKubectl("", "-n", namespace, "get", "configmap", "afterwards", "-o", "jsonpath={.data.color}")
		return r.String(), r.Out == "red"
	})
	if after := incarnation(); after != before {
		t.Errorf("the offloaded pod was %s, and is %s", before, after)
	}
}

// virtualKubeletKilled: law 3. Its pod is killed while an offloaded pod runs.
func virtualKubeletKilled(t *testing.T) {
	killed(t, "kubelet-killed", labels.AppName+"=virtual-kubelet", rome)
}

// controllerManagersKilled: the same for the controller managers of both clusters.
func controllerManagersKilled(t *testing.T) {
	killed(t, "managers-killed", labels.AppName+"=controller-manager", rome, milan)
}

// gatewayDeleted: the same for the provider's gateway.
func gatewayDeleted(t *testing.T) {
	killed(t, "gateway-deleted", "app.kubernetes.io/component=gateway", milan)
}
