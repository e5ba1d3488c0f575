// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"liqo.io/liqo/test/env"
)

// Kinds, as package env writes them.
const (
	namespaceKind  = "v1/Namespace"
	podKind        = "v1/Pod"
	shadowPodKind  = "virtualkubelet.liqo.io/v1alpha1/ShadowPod"
	serviceKind    = "v1/Service"
	configMapKind  = "v1/ConfigMap"
	secretKind     = "v1/Secret"
	ingressKind    = "networking.k8s.io/v1/Ingress"
	sliceKind      = "discovery.k8s.io/v1/EndpointSlice"
	eventKind      = "v1/Event"
	offloadingKind = "offloading.liqo.io/v1alpha1/NamespaceOffloading"
)

// soon is how long what takes milliseconds may take on a machine that is busy. Pods take longer.
const (
	soon    = 15 * time.Second
	started = 60 * time.Second
)

// space is a namespace of rome and its twin in milan.
type space struct{ name, twin string }

// newNamespace makes a namespace in rome, which goes with the test.
func newNamespace(t *testing.T) string {
	t.Helper()
	mu.Lock()
	name := fmt.Sprintf("rows-%d-%d", len(names), time.Now().UnixMilli()%100000)
	names = append(names, name)
	mu.Unlock()
	rome.Kubectl(t, "create", "namespace", name)
	goes(t, rome, name)
	becomes(t, rome, "v1/ServiceAccount", name, "default", "{}", soon) // Kubernetes refuses pods until then
	return name
}

// goes deletes a namespace in the end, after what is needed to understand a failure was shown. That it goes is looked at when all is done.
func goes(t *testing.T, c *env.Cluster, name string) {
	t.Cleanup(func() {
		if t.Failed() {
			for _, args := range [][]string{{"get", "pods,shadowpods.virtualkubelet.liqo.io,namespaceoffloadings.offloading.liqo.io", "-o", "wide"}, {"get", "events"}} {
				said := c.TryKubectl("", append([]string{"-n", name}, args...)...)
				t.Logf("%s: kubectl -n %s %s\n%s%s", c.Name, name, strings.Join(args, " "), said.Out, said.Err)
			}
		}
		if said := c.TryKubectl("", "delete", "namespace", name, "--wait=false", "--ignore-not-found"); said.Code != 0 {
			t.Error(said)
		}
	})
}

// emptied waits until all namespaces of these tests are gone.
func emptied(t *testing.T) {
	t.Helper()
	env.Eventually(t, 2*time.Minute, "namespaces of the tests and their twins are gone", func() (string, bool) {
		var left []string
		for _, c := range clusters.Clusters {
			all, err := c.Objects(namespaceKind, "")
			if err != nil {
				return err.Error(), false
			}
			for _, one := range all {
				if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(one.GetName(), name) }) {
					left = append(left, c.Name+"/"+one.GetName())
				}
			}
		}
		return strings.Join(left, " "), len(left) == 0
	})
}

// nothingNew waits until a cluster has nothing that it had not before, but for one object: the address of rome's API server is made known to
// milan for the first pod, and stays so for as long as they are peers.
func nothingNew(t *testing.T, c *env.Cluster, before []string) {
	t.Helper()
	before = slices.Clone(before)
	for _, line := range c.Everything(t) {
		if strings.HasPrefix(line, "net.liqo.io/ipmappings /liqo-milan-") {
			before = append(before, line)
		}
	}
	slices.Sort(before)
	c.NothingNew(t, before, time.Minute)
}

// offloaded makes a namespace in rome and offloads it, as a user would.
func offloaded(t *testing.T, flags ...string) space {
	t.Helper()
	name := newNamespace(t)
	rome.Liqoctl(t, append([]string{"offload", "namespace", name}, flags...)...)
	return space{name, twinOf(t, name)}
}

// twinOf is what the NamespaceOffloading says.
func twinOf(t *testing.T, name string) string {
	t.Helper()
	twin := rome.Kubectl(t, "-n", name, "get", "namespaceoffloadings", "offloading", "-o", "jsonpath={.status.remoteNamespaceName}")
	if twin == "" {
		t.Fatalf("namespace %s has no remote name", name)
	}
	return twin
}

// apply applies to the namespace in rome.
func (s space) apply(t *testing.T, manifest string) {
	t.Helper()
	if said := rome.TryKubectl(manifest, "-n", s.name, "apply", "-f", "-"); said.Code != 0 {
		t.Fatal(said)
	}
}

// kubectl runs in the namespace in rome.
func (s space) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return rome.Kubectl(t, append([]string{"-n", s.name}, args...)...)
}

// milan runs kubectl in the twin.
func (s space) milan(t *testing.T, args ...string) string {
	t.Helper()
	return milan.Kubectl(t, append([]string{"-n", s.twin}, args...)...)
}

// here is an object in rome, there one in the twin. Both are nil if there is none.
func (s space) here(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	return object(t, rome, kind, s.name, name)
}

func (s space) there(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	return object(t, milan, kind, s.twin, name)
}

func object(t *testing.T, c *env.Cluster, kind, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	var found *unstructured.Unstructured
	env.Eventually(t, started, c.Name+" answers", func() (string, bool) {
		var err error
		found, err = c.Object(kind, namespace, name)
		return fmt.Sprint(err), err == nil || apierrors.IsNotFound(err)
	})
	return found
}

// becomes waits until an object in the twin is as wanted, and returns it.
func (s space) becomes(t *testing.T, kind, name, want string) *unstructured.Unstructured {
	t.Helper()
	return becomes(t, milan, kind, s.twin, name, want, started)
}

// shows is the same for an object in rome.
func (s space) shows(t *testing.T, kind, name, want string) *unstructured.Unstructured {
	t.Helper()
	return becomes(t, rome, kind, s.name, name, want, started)
}

func becomes(t *testing.T, c *env.Cluster, kind, namespace, name, want string, within time.Duration) (found *unstructured.Unstructured) {
	t.Helper()
	want = strings.NewReplacer("ROMEID", identity(t, rome), "MILANID", identity(t, milan), "ROMESHORT", identity(t, rome)[:5]).Replace(want)
	env.Eventually(t, within, fmt.Sprintf("%s %s/%s in %s is as wanted", kind, namespace, name, c.Name), func() (string, bool) {
		if found = object(t, c, kind, namespace, name); found == nil {
			return "there is none", false
		}
		differ := env.Differences(found.Object, want)
		return strings.Join(differ, "\n            "), len(differ) == 0
	})
	return found
}

// vanishes waits until there is no such object.
func vanishes(t *testing.T, c *env.Cluster, kind, namespace, name string) {
	t.Helper()
	env.Eventually(t, started, fmt.Sprintf("%s %s/%s in %s is gone", kind, namespace, name, c.Name), func() (string, bool) {
		found := object(t, c, kind, namespace, name)
		if found == nil {
			return "", true
		}
		return fmt.Sprintf("it is there, deleted %v, finalizers %v", found.GetDeletionTimestamp(), found.GetFinalizers()), false
	})
}

// identity is a cluster's ID, asked once.
func identity(t *testing.T, c *env.Cluster) string {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	if identities[c] == "" {
		identities[c] = c.ID(t)
	}
	return identities[c]
}

var identities = map[*env.Cluster]string{}

// told waits for an event on an object in rome whose text has all the words, and returns it.
func (s space) told(t *testing.T, kind, name string, words ...string) (said string) {
	t.Helper()
	env.Eventually(t, started, fmt.Sprintf("an event of %s %s says %q", kind, name, words), func() (string, bool) {
		all, err := rome.Objects(eventKind, s.name)
		if err != nil {
			return err.Error(), false
		}
		var seen []string
		for _, event := range all {
			if env.At(event.Object, "involvedObject.kind") != kind || env.At(event.Object, "involvedObject.name") != name {
				continue
			}
			said = fmt.Sprintf("%v %v: %v", event.Object["type"], event.Object["reason"], event.Object["message"])
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(said, word) }) {
				return said, true
			}
			seen = append(seen, said)
		}
		return strings.Join(seen, "\n            "), false
	})
	return said
}

// running waits until pods of rome are Ready.
func (s space) running(t *testing.T, pods ...string) {
	t.Helper()
	for _, pod := range pods {
		s.kubectl(t, "wait", "--for=condition=Ready", "pod/"+pod, "--timeout=60s")
	}
}

// inJSON writes a value for a message.
func inJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
