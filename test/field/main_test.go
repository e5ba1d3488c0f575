// SPDX-License-Identifier: Apache-2.0

// Package field tests that an application cannot distinguish a provider from its own cluster: programs as people have them, each once at home and
// once at the provider, with the same answer expected from both. The manifests are in testdata; each states what it is about and what is right.
//
// It uses two clusters that are given, or brings the playground's scenario quick-start up and takes it down. Each test makes its own namespace:
// go test ./test/field -v -keep -run 'TestSame/names'
package field

import (
	"bytes"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"liqo.io/liqo/test/env"
)

var (
	keep = flag.Bool("keep", false, "use the clusters that are up, with Liqo installed and peered if it is, and leave them up (for work on these tests)")
	long = flag.Bool("long", false, "also what waits for a minute, or drains a node")

	clusters    *env.Env
	rome, milan *env.Cluster // consumer and provider

	//go:embed testdata
	manifests embed.FS
)

const virtualNode = "liqo-milan"

func TestMain(m *testing.M) {
	env.Main(m, env.Pair, keep, func(e *env.Env) error {
		clusters, rome, milan = e, e.Clusters[0], e.Clusters[1]
		return e.LoadNeeded("liqo-image.tar", "mover-image.tar", "tools")
	})
}

// peered must be the first call of a test.
func peered(t *testing.T) {
	t.Helper()
	clusters.Step(t)
	env.Peered(t, rome, milan)
}

// together is peered for a test that changes nothing of the nodes: it runs beside others of its kind, after all other tests.
func together(t *testing.T) {
	t.Helper()
	peered(t)
	t.Parallel()
}

// scene is a namespace of rome in which the objects of a manifest are.
type scene struct {
	name string
	want []string // lines that a double is to print, see want
}

// remote is its namespace in milan.
func (s scene) remote(t *testing.T) string {
	t.Helper()
	var found string
	env.Eventually(t, env.Hang, "the namespace has one in milan", func() (string, bool) {
		found = strings.TrimSpace(rome.TryKubectl("", "-n", s.name, "get", "namespaceoffloading", "offloading", "-o", "jsonpath={.status.remoteNamespaceName}").Out)
		return found, found != ""
	})
	return found
}

func (s scene) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return rome.Kubectl(t, append([]string{"-n", s.name}, args...)...)
}

// play applies a manifest of testdata in a namespace of its own, which is offloaded under another name, and which ends with the test.
//
// A pod named double becomes two: home, which runs in rome, and remote, which runs in milan. Any other pod or template with a label `at` is put
// there. Containers without an image get the tools, and small requests. OFFLOADED is the name of the namespace. A ConfigMap named want is not
// applied: its key `log` is what each double has to print.
func play(t *testing.T, name string) scene {
	t.Helper()
	return playAs(t, name, strings.ReplaceAll(name, "/", "-"))
}

// playAs is play with a name of the namespace, for a manifest that is played more than once.
func playAs(t *testing.T, name, namespace string) scene {
	t.Helper()
	text, err := manifests.ReadFile("testdata/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := scene{name: "field-" + namespace}
	text = bytes.ReplaceAll(text, []byte("OFFLOADED"), []byte(s.name))
	objects := []string{fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", s.name), fmt.Sprintf(`apiVersion: offloading.liqo.io/v1alpha1
kind: NamespaceOffloading
metadata: {name: offloading, namespace: %s}
spec: {podOffloadingStrategy: LocalAndRemote, namespaceMappingStrategy: DefaultName}
`, s.name)}
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if object.GetKind() == "ConfigMap" && object.GetName() == "want" {
			log, _, _ := unstructured.NestedString(object.Object, "data", "log")
			s.want = strings.Split(strings.TrimSpace(log), "\n")
			continue
		}
		if object.GetNamespace() == "" && !strings.HasPrefix(object.GetKind(), "ClusterRole") {
			object.SetNamespace(s.name)
		}
		for _, one := range placed(object) {
			written, err := yaml.Marshal(one.Object)
			if err != nil {
				t.Fatal(err)
			}
			objects = append(objects, string(written))
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, args := range [][]string{{"get", "pods,services,endpointslices", "-o", "wide"}, {"events"}, {"describe", "pods"}} {
				t.Log(rome.TryKubectl("", append([]string{"-n", s.name}, args...)...).Out)
			}
		}
		rome.Kubectl(t, "delete", "namespace", s.name, "--wait=false")
	})
	rome.TryKubectl("", "wait", "namespace/"+s.name, "--for=delete", "--timeout=120s") // of an earlier run
	rome.Apply(t, objects[0]+"---\n"+objects[1])
	s.kubectl(t, "wait", "namespaceoffloading/offloading", "--for=jsonpath={.status.offloadingPhase}=Ready", "--timeout=120s")
	// Created, not applied: no annotation of kubectl is in the way.
	if r := rome.TryKubectl(strings.Join(objects[2:], "---\n"), "create", "-f", "-"); r.Code != 0 {
		t.Fatal(r)
	}
	return s
}

// placed is the object, or the two of a double, with the pods where they are to run.
func placed(object *unstructured.Unstructured) []*unstructured.Unstructured {
	switch kind := object.GetKind(); {
	case kind == "Pod" && object.GetName() == "double":
		home, remote := object, object.DeepCopy()
		home.SetName("home")
		remote.SetName("remote")
		complete(home.Object, "home")
		complete(remote.Object, "remote")
		return []*unstructured.Unstructured{home, remote}
	case kind == "Pod":
		complete(object.Object, object.GetLabels()["at"])
	default:
		if template, found, _ := unstructured.NestedMap(object.Object, "spec", "template"); found {
			at, _, _ := unstructured.NestedString(template, "metadata", "labels", "at")
			complete(template, at)
			_ = unstructured.SetNestedMap(object.Object, template, "spec", "template")
		}
	}
	return []*unstructured.Unstructured{object}
}

// complete gives a pod or a template what all of them have.
func complete(pod map[string]any, at string) {
	spec := pod["spec"].(map[string]any)
	switch at {
	case "remote":
		spec["nodeSelector"] = map[string]any{"liqo.io/type": "virtual-node"}
	case "home":
		spec["affinity"] = map[string]any{"nodeAffinity": map[string]any{"requiredDuringSchedulingIgnoredDuringExecution": map[string]any{
			"nodeSelectorTerms": []any{
				map[string]any{"matchExpressions": []any{map[string]any{"key": "liqo.io/type", "operator": "NotIn", "values": []any{"virtual-node"}}}},
			},
		}}}
	}
	if _, set := spec["terminationGracePeriodSeconds"]; !set {
		spec["terminationGracePeriodSeconds"] = int64(1)
	}
	for _, list := range []string{"containers", "initContainers"} {
		containers, _ := spec[list].([]any)
		for _, one := range containers {
			container := one.(map[string]any)
			if _, set := container["image"]; !set {
				container["image"], container["imagePullPolicy"] = env.ToolsImage, "Never"
			}
			if _, set := container["resources"]; !set {
				container["resources"] = map[string]any{"requests": map[string]any{"cpu": "5m", "memory": "16Mi"}}
			}
		}
	}
}

// pod is one of the namespace, as rome reports it.
func (s scene) pod(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	var pod corev1.Pod
	if err := rome.API.Get(t.Context(), client.ObjectKey{Namespace: s.name, Name: name}, &pod); err != nil {
		t.Fatal(err)
	}
	return &pod
}

// prints waits until both doubles have printed as many lines as are wanted, and compares.
//
// A wanted line is a regular expression in which {uid} and the like stand for what the API of rome reports of that pod.
func (s scene) prints(t *testing.T) {
	t.Helper()
	if len(s.want) == 0 {
		t.Fatal("the manifest does not state what is right")
	}
	for _, double := range []string{"home", "remote"} {
		var lines []string
		env.Eventually(t, env.Hang, "pod "+double+" has printed everything", func() (string, bool) {
			output := rome.TryKubectl("", "-n", s.name, "logs", double).Out
			lines = strings.Split(strings.TrimSpace(output), "\n")
			return output, strings.Count(output, "\n") >= len(s.want)
		})
		pod := s.pod(t, double)
		at := virtualNode
		if double == "home" {
			at = ""
		}
		if at != "" && pod.Spec.NodeName != at || at == "" && pod.Spec.NodeName == virtualNode {
			t.Fatalf("pod %s runs on %s: this proves nothing", double, pod.Spec.NodeName)
		}
		for i, want := range s.want {
			if !regexp.MustCompile("^" + about(pod, want) + "$").MatchString(lines[i]) {
				t.Errorf("pod %s printed\n  %s\nwant\n  %s", double, lines[i], about(pod, want))
			}
		}
		if len(lines) > len(s.want) {
			t.Errorf("pod %s printed more than wanted: %q", double, lines[len(s.want):])
		}
	}
}

// about replaces what stands for a fact about the pod.
func about(pod *corev1.Pod, line string) string {
	for from, to := range map[string]string{
		"{name}": pod.Name, "{namespace}": pod.Namespace, "{uid}": string(pod.UID), "{node}": pod.Spec.NodeName, "{account}": pod.Spec.ServiceAccountName,
	} {
		line = strings.ReplaceAll(line, from, regexp.QuoteMeta(to))
	}
	return line
}

// manifestsIn are the manifests of a folder.
func manifestsIn(t *testing.T, folder string) (names []string) {
	t.Helper()
	files, err := manifests.ReadDir("testdata/" + folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		names = append(names, strings.TrimSuffix(file.Name(), ".yaml"))
	}
	slices.Sort(names)
	return names
}

// TestSame: a program prints the same in both clusters.
func TestSame(t *testing.T) {
	together(t)
	for _, name := range manifestsIn(t, "same") {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they mostly wait for pods to start
			play(t, "same/"+name).prints(t)
		})
	}
}
