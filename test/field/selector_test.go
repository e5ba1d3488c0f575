// SPDX-License-Identifier: Apache-2.0

package field

import (
	"fmt"
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
)

// labelled upgrades milan in place with labels of its cluster, and waits until its virtual node presents them; nothing else of it changes.
func labelled(t *testing.T, labels string) {
	t.Helper()
	flags, want := []string{}, ""
	if labels != "" {
		flags, want = []string{"--cluster-labels", labels}, labels
	}
	if r := milan.Install(t, flags...); r.Code != 0 {
		t.Fatal(r)
	}
	env.Healthy(t, milan)
	env.Eventually(t, env.Hang, "the virtual node presents exactly "+want, func() (string, bool) {
		node, err := rome.VirtualNode(milan)
		if err != nil {
			return err.Error(), false
		}
		var shown []string
		for _, key := range []string{"provider", "region"} {
			if value, has := node.Labels[key]; has {
				shown = append(shown, key+"="+value)
			}
		}
		return fmt.Sprint(node.Labels), strings.Join(shown, ",") == want
	})
	rome.NodeReady(t, milan)
}

// offloadedBy offloads a namespace of its own with a selector, and returns what the command prints. The namespace ends with the test.
func offloadedBy(t *testing.T, name, selector string) (s scene, printed string) {
	t.Helper()
	s = scene{name: "field-" + name}
	rome.TryKubectl("", "wait", "namespace/"+s.name, "--for=delete", "--timeout=120s") // of an earlier run
	t.Cleanup(func() { rome.TryKubectl("", "delete", "namespace", s.name, "--wait=false") })
	rome.Kubectl(t, "create", "namespace", s.name)
	r := rome.Liqoctl(t, "offload", "namespace", s.name, "--selector", selector)
	return s, r.Out + r.Err
}

// phase waits for what the NamespaceOffloading of a namespace reports.
func (s scene) phase(t *testing.T, want string) {
	t.Helper()
	env.Eventually(t, env.Hang, s.name+" is "+want, func() (string, bool) {
		found := strings.TrimSpace(rome.TryKubectl("", "-n", s.name, "get", "namespaceoffloading", "offloading", "-o", "jsonpath={.status.offloadingPhase}").Out)
		return found, found == want
	})
}

// TestSelector: milan is installed with labels of its cluster, rome's administrator peers with it, and the documented selector chooses it. Before
// that, and after milan has changed a label, every message names the label and the command that accepts it.
func TestSelector(t *testing.T) {
	peered(t)
	const documented = "region in (B),provider in (AWS)"
	accepted := func(value string) {
		rome.Kubectl(t, "patch", "foreigncluster", "milan", "--type=merge", "-p", `{"spec":{"acceptedLabels":`+value+`}}`)
	}
	before := strings.TrimSpace(rome.Kubectl(t, "get", "foreigncluster", "milan", "-o", "jsonpath={.spec.acceptedLabels}"))
	if before == "" {
		before = "null"
	}
	t.Cleanup(func() {
		labelled(t, "")
		accepted(before)
	})
	accepted("null") // as if there had been no peering yet
	labelled(t, "provider=AWS,region=B")

	s, printed := offloadedBy(t, "selector", documented)
	if want := "liqoctl accept labels milan provider=AWS region=B"; !strings.Contains(printed, want) {
		t.Errorf("labels that are not accepted: the command prints no %q:\n%s", want, printed)
	}
	s.phase(t, "NoClusterSelected")
	s.reports(t, "offloading", "LabelsNotAccepted", "liqoctl accept labels milan provider=AWS region=B")

	// Meanwhile milan has the labels of the selector, and runs no pod of the namespace: they run here.
	s.kubectl(t, "create", "deployment", "here", "--image="+env.ToolsImage, "--replicas=6", "--", "sleep", "600")
	s.kubectl(t, "wait", "deployment/here", "--for=condition=Available", "--timeout=120s")
	if nodes := s.kubectl(t, "get", "pods", "-l", "app=here", "-o", "jsonpath={.items[*].spec.nodeName}"); strings.Contains(nodes, virtualNode) {
		t.Errorf("pods wait on the node of a cluster that is not chosen: %s", nodes)
	}
	s.kubectl(t, "delete", "deployment", "here", "--wait=false")

	again := rome.Liqoctl(t, milan.PeerCommand(t)...)
	if printed := again.Out + again.Err; !strings.Contains(printed, "provider=AWS, region=B") {
		t.Errorf("liqoctl peer does not show the labels:\n%s", printed)
	}
	if list := rome.Kubectl(t, "get", "foreigncluster", "milan", "-o", "jsonpath={.spec.acceptedLabels}"); !strings.Contains(list, `"provider=AWS"`) ||
		!strings.Contains(list, `"region=B"`) {
		t.Errorf("accepted are %s", list)
	}
	s.phase(t, "Ready")
	if r := rome.Liqoctl(t, "offload", "namespace", s.name, "--selector", documented); strings.Contains(r.Out+r.Err, "not accepted") {
		t.Errorf("the documented command prints:\n%s", r.Out+r.Err)
	}
	rome.Apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: there, namespace: %s}
spec:
  nodeSelector: {liqo.io/type: virtual-node, region: B}
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: %s, imagePullPolicy: Never, resources: {requests: {cpu: 10m, memory: 16Mi}}}]
`, s.name, env.ToolsImage))
	s.kubectl(t, "wait", "pod/there", "--for=condition=Ready", "--timeout=120s")
	if node := s.kubectl(t, "get", "pod", "there", "-o", "jsonpath={.spec.nodeName}"); node != virtualNode {
		t.Errorf("the pod is on %s", node)
	}
	milan.Kubectl(t, "-n", s.remote(t), "get", "pod", "there")

	// What milan changes later counts once rome accepts it.
	labelled(t, "provider=AWS,region=C")
	s.phase(t, "NoClusterSelected")
	later, printed := offloadedBy(t, "selector-later", "region in (C),provider in (AWS)")
	if want := "liqoctl accept labels milan region=C"; !strings.Contains(printed, want) {
		t.Errorf("a label that milan has changed: the command prints no %q:\n%s", want, printed)
	}
	later.phase(t, "NoClusterSelected")
	later.reports(t, "offloading", "LabelsNotAccepted", "liqoctl accept labels milan region=C")
	again = rome.Liqoctl(t, milan.PeerCommand(t)...)
	if printed := again.Out + again.Err; !strings.Contains(printed, "liqoctl accept labels milan region=C") {
		t.Errorf("liqoctl peer does not show the label that milan has changed:\n%s", printed)
	}
	later.phase(t, "NoClusterSelected")
	rome.Liqoctl(t, "accept", "labels", "milan", "region=C")
	later.phase(t, "Ready")
}
