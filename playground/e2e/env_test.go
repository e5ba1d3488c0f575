// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/template"
	"time"
)

// status is the part of `playground status -o json` that is used here.
type status struct {
	Scenario string    `json:"scenario"`
	Bin      string    `json:"bin"`
	Clusters []cluster `json:"clusters"`
	Faults   []struct {
		A, B, Delay, Loss, Bandwidth string
		DropAB, DropBA               bool
		AllowAB, AllowBA             []string
	} `json:"faults"`
}

// cluster is one cluster in the status.
type cluster struct {
	Name        string `json:"name"`
	Server      string `json:"server"`
	PodCIDR     string `json:"podCIDR"`
	ServiceCIDR string `json:"serviceCIDR"`
	NodeCIDR    string `json:"nodeCIDR"`
	Kubeconfig  string `json:"kubeconfig"`
	AuditLog    string `json:"auditLog"`
	Machines    []struct {
		Name       string      `json:"name"`
		Address    string      `json:"address"`
		Up         bool        `json:"up"`
		Components []component `json:"components"`
	} `json:"machines"`
}

type component struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	Pid    int    `json:"pid"`
	Starts int    `json:"starts"`
}

// readStatus returns the status. ok means exit code 0: everything runs.
func readStatus(t testing.TB) (s status, ok bool) {
	t.Helper()
	r := pg("status", "-o", "json")
	if err := json.Unmarshal([]byte(r.out), &s); err != nil || r.code != 0 && r.code != 3 {
		t.Fatalf("no status: %v: %s", err, r)
	}
	return s, r.code == 0
}

// waitHealthy waits until everything runs: a machine that was full a moment ago may need a while.
func waitHealthy(t testing.TB) (s status) {
	t.Helper()
	eventually(t, 60*time.Second, "status is healthy", func() (string, bool) {
		var ok bool
		s, ok = readStatus(t)
		return fmt.Sprintf("%+v", s), ok
	})
	return s
}

// component finds a component, named as in the command line: COMPONENT or NODE/COMPONENT.
func (s status) component(t testing.TB, clusterName, name string) component {
	t.Helper()
	owner, short, found := strings.Cut(name, "/")
	if !found {
		owner, short = "control-plane", name
	}
	for _, c := range s.Clusters {
		for _, m := range c.Machines {
			for _, one := range m.Components {
				if c.Name == clusterName && m.Name == owner && one.Name == short {
					return one
				}
			}
		}
	}
	t.Fatalf("status shows no component %s in cluster %s", name, clusterName)
	return component{}
}

// nodes are the addresses of a cluster's nodes by name.
func (c cluster) nodes() map[string]string {
	all := map[string]string{}
	for _, m := range c.Machines {
		if m.Name != "control-plane" {
			all[m.Name] = m.Address
		}
	}
	return all
}

// current is the status of the playground that is up.
var current status

// bring makes sure that a scenario is up and, if it has nodes, that they hold the images of the checks.
func bring(t *testing.T, scenario string) {
	t.Helper()
	needRoot(t)
	if current.Scenario == scenario {
		return
	}
	takeDown(t)
	r := pg("up", scenario)
	if r.code != 0 {
		t.Fatalf("%s", r)
	}
	measure("up "+scenario, "%.1f s", r.elapsed.Seconds())
	current, _ = readStatus(t)
	if strings.Contains(scenario, "control-plane-only") || scenario == "scale" {
		return
	}
	began := time.Now()
	must(t, "load", "demo")
	must(t, "load", "tools")
	measure("load demo and tools", "%.1f s", time.Since(began).Seconds())
}

func takeDown(t testing.TB) {
	t.Helper()
	needRoot(t)
	current = status{}
	must(t, "down")
	if err := os.RemoveAll(cache); err != nil {
		t.Fatalf("forget what kubectl has discovered: %v", err)
	}
}

func clusterNamed(t testing.TB, name string) cluster {
	t.Helper()
	i := slices.IndexFunc(current.Clusters, func(c cluster) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("scenario %s has no cluster %s", current.Scenario, name)
	}
	return current.Clusters[i]
}

// try runs kubectl and returns its result, also that of a failure.
func (c cluster) try(args ...string) result { return c.startKubectl("", args...).wait() }

func (c cluster) startKubectl(stdin string, args ...string) *process {
	return startWith(stdin, nil, c.argv(args...)...)
}

func (c cluster) argv(args ...string) []string {
	return append([]string{current.Bin + "/kubectl", "--kubeconfig=" + c.Kubeconfig}, args...)
}

// kubectl is try for a command that must succeed; it returns the output without surrounding space.
func (c cluster) kubectl(t testing.TB, args ...string) string {
	t.Helper()
	r := c.try(args...)
	if r.code != 0 {
		t.Fatalf("%s", r)
	}
	return strings.TrimSpace(r.out)
}

// node runs a command inside a node.
func (c cluster) node(t testing.TB, node string, argv ...string) string {
	t.Helper()
	return strings.TrimSpace(must(t, append([]string{"exec", c.Name, node, "--"}, argv...)...))
}

// namespace is the namespace of one check in one cluster.
type namespace struct {
	cluster
	ns string
}

// newNamespace makes a namespace for the calling test. If the test fails, its cleanup shows the
// content. The cleanup deletes the namespace without waiting for the end of the deletion.
func (c cluster) newNamespace(t testing.TB) namespace {
	t.Helper()
	name := t.Name()[strings.LastIndexByte(t.Name(), '/')+1:]
	r := namespace{c, "e2e-" + strings.ReplaceAll(strings.ToLower(name), "_", "-")}
	c.kubectl(t, "create", "namespace", r.ns)
	t.Cleanup(func() {
		if t.Failed() {
			r.show(t)
		}
		c.kubectl(t, "delete", "namespace", r.ns, "--wait=false")
	})
	// The API server refuses pods until the controller manager has made the service account.
	r.kubectl(t, "wait", "--for=create", "serviceaccount/default", "--timeout=30s")
	return r
}

// show logs the objects, events and logs of the namespace.
func (r namespace) show(t testing.TB) {
	t.Helper()
	for _, args := range [][]string{
		{"get", "pods,services,persistentvolumeclaims", "-o", "wide"},
		{"get", "events", "--sort-by=.lastTimestamp"},
		{"logs", "--selector=e2e", "--all-containers", "--prefix", "--tail=20"},
		{"get", "nodes"},
	} {
		res := r.try(append([]string{"-n", r.ns}, args...)...)
		lines := strings.SplitAfter(res.out+res.err, "\n")
		t.Logf("%s %s: kubectl %s (last lines)\n%s", r.Name, r.ns, strings.Join(args, " "), strings.Join(lines[max(0, len(lines)-40):], ""))
	}
}

func (r namespace) kubectl(t testing.TB, args ...string) string {
	t.Helper()
	return r.cluster.kubectl(t, append([]string{"-n", r.ns}, args...)...)
}

func (r namespace) try(args ...string) result {
	return r.cluster.try(append([]string{"-n", r.ns}, args...)...)
}

//go:embed testdata
var testdata embed.FS

var manifests = template.Must(template.New("").Option("missingkey=error").ParseFS(testdata, "testdata/*.yaml"))

// apply applies a manifest of testdata; values fill its templates.
func (r namespace) apply(t testing.TB, file string, values map[string]any) {
	t.Helper()
	all := map[string]any{"Cluster": r.Name, "Namespace": r.ns}
	for k, v := range values {
		all[k] = v
	}
	var text bytes.Buffer
	if err := manifests.ExecuteTemplate(&text, file, all); err != nil {
		t.Fatal(err)
	}
	res := r.startKubectl(text.String(), "-n", r.ns, "apply", "-f", "-").wait()
	if res.code != 0 {
		t.Fatalf("%s: %s", file, res)
	}
}

// rollout waits until a workload is complete.
func (r namespace) rollout(t testing.TB, workload string) {
	t.Helper()
	r.kubectl(t, "rollout", "status", workload, "--timeout=120s")
}

// ready waits until a pod is Ready.
func (r namespace) ready(t testing.TB, pod string) {
	t.Helper()
	r.kubectl(t, "wait", "pod/"+pod, "--for=condition=Ready", "--timeout=90s")
}

// get returns one value of an object.
func (r namespace) get(t testing.TB, object, jsonpath string) string {
	t.Helper()
	return r.kubectl(t, "get", object, "-o", "jsonpath="+jsonpath)
}

// exec runs a command in a pod and returns its output.
func (r namespace) exec(t testing.TB, pod string, argv ...string) string {
	t.Helper()
	return r.kubectl(t, append([]string{"exec", pod, "--"}, argv...)...)
}

func scanLines(from io.Reader, to chan<- string) {
	for lines := bufio.NewScanner(from); lines.Scan(); {
		to <- lines.Text()
	}
}

var (
	measuredLock sync.Mutex
	measured     []string
)

// measure records a value for the list at the end of the suite.
func measure(what, format string, value ...any) {
	measuredLock.Lock()
	defer measuredLock.Unlock()
	measured = append(measured, fmt.Sprintf("%-44s %s", what, fmt.Sprintf(format, value...)))
}

func printMeasured() {
	fmt.Println("measured:")
	for _, line := range measured {
		fmt.Println("  " + line)
	}
}

// phase is t.Run that records the time.
func phase(t *testing.T, name string, do func(t *testing.T)) {
	began := time.Now()
	t.Run(name, do)
	measure("phase "+name, "%.1f s", time.Since(began).Seconds())
}
