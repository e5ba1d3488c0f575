// SPDX-License-Identifier: Apache-2.0

package field

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/test/env"
)

// TestEnd: the period with which a pod is deleted counts where it runs. The pods ask for ten minutes and ignore the signal, so one that ends at all
// ended by the period.
func TestEnd(t *testing.T) {
	together(t)
	for name, args := range map[string]string{"shorter": "--grace-period=3", "now": "--now"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := playAs(t, "end", "end-"+name)
			for _, double := range []string{"home", "remote"} {
				s.kubectl(t, "wait", "pod/"+double, "--for=condition=Ready", "--timeout=120s")
			}
			for _, double := range []string{"home", "remote"} {
				s.kubectl(t, "delete", "pod", double, "--wait=false", args)
			}
			for _, double := range []string{"home", "remote"} {
				s.gone(t, rome, s.name, double)
			}
			s.gone(t, milan, s.remote(t), "remote")
		})
	}
}

// TestShortened: a period that is shortened while the pod ends reaches the pod at the provider. Its kubelet decides what it makes of that.
func TestShortened(t *testing.T) {
	together(t)
	s := play(t, "shortened")
	s.kubectl(t, "wait", "pod/remote", "--for=condition=Ready", "--timeout=120s")
	remote := s.remote(t)
	for _, one := range []struct{ args, period string }{{"--grace-period=-1", "30"}, {"--grace-period=25", "25"}} {
		s.kubectl(t, "delete", "pod", "remote", "--wait=false", one.args)
		env.Eventually(t, env.Hang, "the pod ends in milan with "+one.period+" s", func() (string, bool) {
			seen := milan.Kubectl(t, "-n", remote, "get", "pod", "remote", "-o", "jsonpath={.metadata.deletionGracePeriodSeconds}")
			return seen, seen == one.period
		})
	}
}

// gone waits until a pod is not there.
func (s scene) gone(t *testing.T, c *env.Cluster, namespace, name string) {
	t.Helper()
	env.Eventually(t, env.Hang, "pod "+name+" is gone from "+c.Name, func() (string, bool) {
		var pod corev1.Pod
		err := c.API.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &pod)
		return fmt.Sprint(pod.DeletionTimestamp, err), apierrors.IsNotFound(err)
	})
}

// TestGeneration: who waits for status.observedGeneration of a pod learns when a change has arrived.
func TestGeneration(t *testing.T) {
	together(t)
	s := playAs(t, "plain", "generation")
	observed := func(t *testing.T) {
		t.Helper()
		for _, double := range []string{"home", "remote"} {
			env.Eventually(t, env.Hang, "the generation of pod "+double+" is observed", func() (string, bool) {
				pod := s.pod(t, double)
				seen := fmt.Sprintf("generation %d, observed %d", pod.Generation, pod.Status.ObservedGeneration)
				for _, condition := range pod.Status.Conditions {
					seen += fmt.Sprintf(", %s %d", condition.Type, condition.ObservedGeneration)
					if condition.ObservedGeneration > pod.Generation {
						return seen, false
					}
				}
				return seen, pod.Status.ObservedGeneration == pod.Generation
			})
		}
	}
	for _, double := range []string{"home", "remote"} {
		s.kubectl(t, "wait", "pod/"+double, "--for=condition=Ready", "--timeout=120s")
	}
	observed(t)
	for _, double := range []string{"home", "remote"} {
		s.kubectl(t, "patch", "pod", double, "--subresource", "resize", "-p", `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"6m"}}}]}}`)
	}
	observed(t)
}

// events are those of an object of rome, one in a line.
func (s scene) events(object string) string {
	return rome.TryKubectl(
		"", "-n", s.name, "get", "events", "--field-selector", "involvedObject.name="+object, "-o",
		`jsonpath={range .items[*]}{.type} {.reason} {.message}{"\n"}{end}`,
	).Out
}

// reports waits for an event of the object that has all of the words in one line, and fails if one of the others is ever in it.
func (s scene) reports(t *testing.T, object string, words ...string) {
	t.Helper()
	env.Eventually(t, env.Hang, fmt.Sprintf("an event of %s with %q", object, words), func() (string, bool) {
		seen := s.events(object)
		for line := range strings.Lines(seen) {
			found := true
			for _, word := range words {
				found = found && strings.Contains(line, word)
			}
			if found {
				return seen, true
			}
		}
		return seen, false
	})
}

// ruled waits until a rule of milan acts, which its API server learns later than the rule is written: until its answer to a trial of the pod has the word.
func ruled(t *testing.T, word, pod string, args ...string) {
	t.Helper()
	env.Eventually(t, env.Hang, "milan applies the rule that leads to "+word, func() (string, bool) {
		r := milan.TryKubectl(pod, append([]string{"create", "--dry-run=server", "-o", "yaml", "-f", "-"}, args...)...)
		return r.String(), strings.Contains(r.Out+r.Err, word)
	})
}

// TestWhyNot: what the provider refuses is reported in the words of its API server, and which cluster speaks.
func TestWhyNot(t *testing.T) {
	together(t)
	s := play(t, "why-not")
	remote := s.remote(t)
	milan.Kubectl(t, "-n", remote, "create", "quota", "team", "--hard=limits.cpu=2,limits.memory=2Gi")
	milan.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: LimitRange
metadata: {name: largest, namespace: %s}
spec: {limits: [{type: Container, max: {memory: 256Mi}}]}
`, remote))
	creator := []string{"-n", remote, "--as=system:serviceaccount:liqo:liqo-controller-manager"}
	ruled(
		t, "must specify limits.cpu",
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"asks"},"spec":{"containers":[{"name":"main","image":"none"}]}}`, creator...,
	)
	ruled(t, "256Mi", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"asks"},"spec":{"containers":[{"name":"main","image":"none",`+
		`"resources":{"limits":{"memory":"512Mi"}}}]}}`, creator...)
	s.kubectl(t, "patch", "pod", "nolimits", "--type=json", "-p", `[{"op":"remove","path":"/spec/schedulingGates"}]`)
	s.reports(t, "nolimits", "must specify limits.cpu", "main", "milan")
	s.kubectl(t, "patch", "pod", "large", "--type=json", "-p", `[{"op":"remove","path":"/spec/schedulingGates"}]`)
	s.reports(t, "large", "memory", "256Mi", "milan")
	milan.Kubectl(t, "-n", remote, "delete", "quota", "team")
	s.kubectl(t, "wait", "pod/nolimits", "--for=condition=Ready", "--timeout=120s") // it is tried again
}

// TestLateLabel: a label that the provider does not take is reported also if it comes later, and one that the consumer's scheduler adds is not.
func TestLateLabel(t *testing.T) {
	together(t)
	s := playAs(t, "plain", "late-label")
	s.kubectl(t, "wait", "pod/remote", "--for=condition=Ready", "--timeout=120s")
	if seen := s.events("remote"); strings.Contains(seen, "ReflectionIncomplete") {
		t.Errorf("a pod without anything unusual has the events\n%s", seen)
	}
	s.kubectl(t, "label", "pod", "remote", "db.example.com/role=primary")
	s.reports(t, "remote", "ReflectionIncomplete", "db.example.com/role")
}

// TestMutated: what the provider's admission made of a pod stays when the user changes something else, and what the user changes arrives.
func TestMutated(t *testing.T) {
	together(t)
	policy, err := manifests.ReadFile("testdata/mutated.milan.yaml")
	if err != nil {
		t.Fatal(err)
	}
	milan.Apply(t, string(policy))
	t.Cleanup(func() { milan.TryKubectl(string(policy), "delete", "-f", "-") })
	ruled(t, env.ToolsImage, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"asks","labels":{"mirrored":"yes"}},`+
		`"spec":{"containers":[{"name":"main","image":"registry.example.com/team/tools:1"}]}}`)
	s := play(t, "mutated")
	s.kubectl(t, "wait", "pod/app", "--for=condition=Ready", "--timeout=120s")
	s.kubectl(t, "label", "pod", "app", "changed=yes")
	remote := s.remote(t)
	env.Eventually(t, env.Hang, "the label is in milan", func() (string, bool) {
		seen := milan.Kubectl(t, "-n", remote, "get", "pod", "app", "-o", "jsonpath={.metadata.labels.changed} {.spec.containers[0].image}")
		return seen, strings.HasPrefix(seen, "yes ")
	})
	// A second change proves that the first has been worked off.
	s.kubectl(t, "annotate", "pod", "app", "plain=yes")
	env.Eventually(t, env.Hang, "the annotation is in milan", func() (string, bool) {
		seen := milan.Kubectl(
			t, "-n", remote, "get", "pod", "app", "-o",
			"jsonpath={.metadata.annotations.plain} {.spec.containers[0].image} {.status.containerStatuses[0].restartCount}",
		)
		return seen, strings.HasPrefix(seen, "yes ")
	})
	if seen := milan.Kubectl(t, "-n", remote, "get", "pod", "app", "-o", "jsonpath={.spec.containers[0].image}"); seen != env.ToolsImage {
		t.Errorf("the pod in milan has the image %s, want that of milan's rule, %s", seen, env.ToolsImage)
	}
	if restarts := s.pod(t, "app").Status.ContainerStatuses[0].RestartCount; restarts != 0 {
		t.Errorf("the pod was restarted %d times", restarts)
	}
}

// TestZones: a spread over zones is decided at home. Where it is also asked of milan's nodes, whose zones have other names, a pod stays Pending there.
func TestZones(t *testing.T) {
	peered(t)
	for node, zone := range map[string]string{rome.Nodes[1].Name: "rome-a", virtualNode: "milan-a"} {
		rome.Kubectl(t, "label", "node", node, "topology.kubernetes.io/zone="+zone, "--overwrite")
		t.Cleanup(func() { rome.Kubectl(t, "label", "node", node, "topology.kubernetes.io/zone-") })
	}
	s := play(t, "zones")
	s.kubectl(t, "rollout", "status", "deployment/web", "--timeout=120s")
	nodes := strings.Fields(s.kubectl(t, "get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].spec.nodeName}"))
	if len(nodes) != 2 || nodes[0] == nodes[1] {
		t.Errorf("the pods run on %v, want one in each zone", nodes)
	}
	for name := range strings.FieldsSeq(s.kubectl(t, "get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].metadata.name}")) {
		if seen := s.events(name); strings.Contains(seen, "topology.kubernetes.io") {
			t.Errorf("what the scheduler of rome added is reported:\n%s", seen)
		}
	}
}

// TestClaims: pods with claims of a class that no virtual node can serve run at home.
func TestClaims(t *testing.T) {
	together(t)
	class := rome.Kubectl(
		t, "get", "storageclass", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.provisioner} {.metadata.annotations.storageclass\.kubernetes\.io/is-default-class}{"\n"}{end}`,
	)
	var provisioner string
	for line := range strings.Lines(class) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[2] == "true" {
			provisioner = fields[1]
		}
	}
	if provisioner == "" {
		t.Fatalf("rome has no default class among\n%s", class)
	}
	rome.Apply(t, fmt.Sprintf(
		"apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: field-anywhere}\nprovisioner: %s\nvolumeBindingMode: WaitForFirstConsumer\n",
		provisioner,
	))
	t.Cleanup(func() { rome.Kubectl(t, "delete", "storageclass", "field-anywhere") })
	s := play(t, "claims")
	s.kubectl(t, "rollout", "status", "statefulset/store", "--timeout=180s")
	s.kubectl(t, "rollout", "status", "statefulset/anywhere", "--timeout=180s")
}
