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
	"liqo.io/liqo/test/env/fields"
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

// timeout guards `kubectl wait` and its like against hanging.
var timeout = "--timeout=" + env.Hang.String()

// namespace is an offloaded namespace: its name in rome and its name in milan.
type namespace struct{ name, remote string }

// newNamespace creates a namespace in rome, which is deleted at the end of the test.
func newNamespace(t *testing.T) string {
	t.Helper()
	mu.Lock()
	name := fmt.Sprintf("offload-%d-%d", len(names), time.Now().UnixMilli()%100000)
	names = append(names, name)
	mu.Unlock()
	rome.Kubectl(t, "create", "namespace", name)
	deleteAfterwards(t, rome, name)
	wantObject(t, rome, "v1/ServiceAccount", name, "default", "{}") // Kubernetes refuses pods until then
	return name
}

// deleteAfterwards deletes a namespace at the end of the test, and after a failure logs its pods and events first. TestLeftoversOfNamespaces
// waits for the deletion.
func deleteAfterwards(t *testing.T, c *env.Cluster, name string) {
	t.Cleanup(func() {
		if t.Failed() {
			for _, args := range [][]string{{"get", "pods,shadowpods.virtualkubelet.liqo.io,namespaceoffloadings.offloading.liqo.io", "-o", "wide"}, {"get", "events"}} {
				result := c.TryKubectl("", append([]string{"-n", name}, args...)...)
				t.Logf("%s: kubectl -n %s %s\n%s%s", c.Name, name, strings.Join(args, " "), result.Out, result.Err)
			}
		}
		if result := c.TryKubectl("", "delete", "namespace", name, "--wait=false", "--ignore-not-found"); result.Code != 0 {
			t.Error(result)
		}
	})
}

// offload creates a namespace in rome and offloads it, as a user would.
func offload(t *testing.T, flags ...string) namespace {
	t.Helper()
	name := newNamespace(t)
	rome.Liqoctl(t, append([]string{"offload", "namespace", name}, flags...)...)
	return namespace{name, remoteName(t, name)}
}

// remoteName returns the name of the remote namespace from the status of the NamespaceOffloading.
func remoteName(t *testing.T, name string) string {
	t.Helper()
	remote := rome.Kubectl(t, "-n", name, "get", "namespaceoffloadings", "offloading", "-o", "jsonpath={.status.remoteNamespaceName}")
	if remote == "" {
		t.Fatalf("namespace %s has no remote name", name)
	}
	return remote
}

// apply applies a manifest to the namespace in rome.
func (s namespace) apply(t *testing.T, manifest string) {
	t.Helper()
	if result := rome.TryKubectl(manifest, "-n", s.name, "apply", "-f", "-"); result.Code != 0 {
		t.Fatal(result)
	}
}

// kubectl runs kubectl in the namespace in rome.
func (s namespace) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return rome.Kubectl(t, append([]string{"-n", s.name}, args...)...)
}

// remoteKubectl runs kubectl in the remote namespace in milan.
func (s namespace) remoteKubectl(t *testing.T, args ...string) string {
	t.Helper()
	return milan.Kubectl(t, append([]string{"-n", s.remote}, args...)...)
}

// createInMilan creates an object of milan's own in the remote namespace. Its administrator opens the namespace for the moment: otherwise, milan
// refuses pods and Secrets there that are not rome's.
func (s namespace) createInMilan(t testing.TB, manifest string) {
	t.Helper()
	milan.Kubectl(t, "annotate", "namespace", s.remote, "liqo.io/open-remote-namespace=true")
	defer milan.Kubectl(t, "annotate", "namespace", s.remote, "liqo.io/open-remote-namespace-")
	env.Eventually(t, env.Hang, "milan admits its own object", func() (string, bool) { // the API server observes the annotation a moment later
		result := milan.TryKubectl(manifest, "-n", s.remote, "apply", "-f", "-")
		return result.String(), result.Code == 0
	})
}

// local returns an object in rome, and inMilan one of the remote namespace; nil if there is none.
func (s namespace) local(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	return object(t, rome, kind, s.name, name)
}

func (s namespace) inMilan(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	return object(t, milan, kind, s.remote, name)
}

func object(t *testing.T, c *env.Cluster, kind, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	var found *unstructured.Unstructured
	env.Eventually(t, env.Hang, c.Name+" answers", func() (string, bool) {
		var err error
		found, err = c.Object(kind, namespace, name)
		return fmt.Sprint(err), err == nil || apierrors.IsNotFound(err)
	})
	return found
}

// wantRemote waits until an object of the remote namespace is as wanted (see env.Differences), and returns it.
func (s namespace) wantRemote(t *testing.T, kind, name, want string) *unstructured.Unstructured {
	t.Helper()
	return wantObject(t, milan, kind, s.remote, name, want)
}

// wantLocal is wantRemote for an object in rome.
func (s namespace) wantLocal(t *testing.T, kind, name, want string) *unstructured.Unstructured {
	t.Helper()
	return wantObject(t, rome, kind, s.name, name, want)
}

func wantObject(t *testing.T, c *env.Cluster, kind, namespace, name, want string) (found *unstructured.Unstructured) {
	t.Helper()
	want = strings.NewReplacer("ROMEID", identity(t, rome), "MILANID", identity(t, milan), "MILANNODES", milan.NodePrefix, "ROMESHORT", identity(t, rome)[:5]).
		Replace(want)
	env.Eventually(t, env.Hang, fmt.Sprintf("%s %s/%s in %s is as wanted", kind, namespace, name, c.Name), func() (string, bool) {
		if found = object(t, c, kind, namespace, name); found == nil {
			return "there is none", false
		}
		differ := fields.Differences(found.Object, want)
		return strings.Join(differ, "\n            "), len(differ) == 0
	})
	return found
}

// wantGone waits until an object does not exist.
func wantGone(t *testing.T, c *env.Cluster, kind, namespace, name string) {
	t.Helper()
	env.Eventually(t, env.Hang, fmt.Sprintf("%s %s/%s in %s is gone", kind, namespace, name, c.Name), func() (string, bool) {
		found := object(t, c, kind, namespace, name)
		if found == nil {
			return "", true
		}
		return fmt.Sprintf("it exists, deleted %v, finalizers %v", found.GetDeletionTimestamp(), found.GetFinalizers()), false
	})
}

// identity returns a cluster's ID, and reads it once.
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

// wantEvent waits for an event of an object in rome whose text contains all the words, and returns its text.
func (s namespace) wantEvent(t *testing.T, kind, name string, words ...string) (text string) {
	t.Helper()
	env.Eventually(t, env.Hang, fmt.Sprintf("an event of %s %s contains %q", kind, name, words), func() (string, bool) {
		all, err := rome.Objects(eventKind, s.name)
		if err != nil {
			return err.Error(), false
		}
		var seen []string
		for _, event := range all {
			if fields.At(event.Object, "involvedObject.kind") != kind || fields.At(event.Object, "involvedObject.name") != name {
				continue
			}
			text = fmt.Sprintf("%v %v: %v", event.Object["type"], event.Object["reason"], event.Object["message"])
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) }) {
				return text, true
			}
			seen = append(seen, text)
		}
		return strings.Join(seen, "\n            "), false
	})
	return text
}

// running waits until pods of rome are Ready.
func (s namespace) running(t *testing.T, pods ...string) {
	t.Helper()
	for _, pod := range pods {
		s.kubectl(t, "wait", "--for=condition=Ready", "pod/"+pod, timeout)
	}
}

// inJSON formats a value for a message.
func inJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
