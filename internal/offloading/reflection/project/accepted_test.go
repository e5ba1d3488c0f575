// SPDX-License-Identifier: Apache-2.0

package project_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkapply "liqo.io/liqo/apis/applyconfiguration/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/offloading/kinds"
	"liqo.io/liqo/internal/offloading/reflection/events"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
	"liqo.io/liqo/internal/offloading/reflection/project/podstatus"
)

// TestAccepted sends the contents of the golden files to a real API server: what is reflected can be created in the peer, and a status can be written here,
// whatever the peer reports.
func TestAccepted(t *testing.T) {
	admin := kubetest.Cluster(t)
	c, err := client.New(admin, client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{mapping.Local, mapping.Remote} {
		if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		archive := parse(t, file)
		for _, section := range archive.Files {
			name, what, _ := strings.Cut(section.Name, " ")
			if what != "before" {
				continue
			}
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar")+"/"+name, func(t *testing.T) {
				accepted(t, c, decode(t, string(section.Data)), find(archive, name+" with"))
			})
		}
	}
	t.Run("hostile", func(t *testing.T) { acceptedHostile(t, c) })
}

func accepted(t *testing.T, c client.Client, local runtime.Object, with string) {
	switch local := local.(type) {
	case *corev1.Service:
		if intent := kinds.CopyService(mapping, local); intent != nil {
			appliedTwice(t, c, intent, &corev1.Service{})
		}
	case *discoveryv1.EndpointSlice:
		intent, err := kinds.ShadowEndpointSlice(mapping, local, kinds.There{Found: true}, swap{})
		if err != nil {
			t.Fatal(err)
		}
		if intent != nil {
			template := intent.Spec.Template
			create(t, c, &discoveryv1.EndpointSlice{
				ObjectMeta:  metav1.ObjectMeta{Name: *intent.Name, Namespace: mapping.Remote, Labels: intent.Labels, Annotations: intent.Annotations},
				AddressType: *template.AddressType, Endpoints: asEndpoints(t, template.Endpoints), Ports: template.Ports,
			})
		}
	case *corev1.Pod:
		acceptedPod(t, c, runnable(local), with)
	default:
		kind := kinds.Of(local)
		if intent := kind.Copy(mapping, local); intent != nil {
			appliedTwice(t, c, intent, kind.Remote.Empty().(client.Object))
		}
	}
}

// asEndpoints reads what the peer reads.
func asEndpoints(t *testing.T, intent []vkapply.EndpointApplyConfiguration) (all []discoveryv1.Endpoint) {
	text, err := json.Marshal(intent)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func acceptedPod(t *testing.T, c client.Client, local *corev1.Pod, with string) {
	if !strings.Contains(with, "kind:") {
		intent, err := podspec.ShadowPod(mapping, local, readOptions(t, with))
		if err != nil {
			return // it is not reflected
		}
		spec := *intent.Spec.Pod
		spec.EphemeralContainers = nil // Kubernetes adds them only to existing pods
		create(t, c, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: *intent.Name, Namespace: mapping.Remote, Labels: intent.Labels, Annotations: intent.Annotations}, Spec: spec,
		})
		if len(podspec.TokenRequests(local)) > 0 {
			appliedTwice(t, c, podspec.TokenSecret(mapping, local, map[string]string{"token-abcdef": "x"}, metav1.Now().Time, 3600), &corev1.Secret{})
		}
		return
	}
	switch theirs := decode(t, with).(type) {
	case *corev1.Event:
		if intent := events.Copy(mapping, local, theirs); intent != nil {
			appliedTwice(t, c, intent, &corev1.Event{})
		}
	case *corev1.Pod:
		shown(t, c, bound(t, c, local), theirs)
	}
}

// runnable adds the required fields that the golden files leave out.
func runnable(pod *corev1.Pod) *corev1.Pod {
	if len(pod.Spec.Containers) == 0 {
		pod.Spec.Containers = []corev1.Container{{Name: "main"}}
	}
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			containers[i].Image = "example.com/image"
		}
	}
	return pod
}

// bound creates a pod on the virtual node, with a status.
func bound(t *testing.T, c client.Client, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	status := pod.Status
	made := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: pod.Name + "-", Namespace: mapping.Local}, Spec: *pod.Spec.DeepCopy()}
	made.Spec.NodeName, made.Spec.EphemeralContainers = mapping.NodeName, nil
	if err := c.Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	status.QOSClass = made.Status.QOSClass
	made.Status = status
	if err := c.Status().Update(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	return made
}

// shown writes the status that follows from a remote pod, twice. The second time must change nothing.
func shown(t *testing.T, c client.Client, local, remote *corev1.Pod) {
	t.Helper()
	restarts := podstatus.Restarts{}.Observe(local, remote)
	status, err := podstatus.Of(podstatus.Facts{Mapping: mapping, Local: local, Remote: remote, Restarts: restarts, Translator: swap{}, HostIP: "10.10.9.9"})
	if err != nil {
		t.Fatal(err)
	}
	local.Status = status
	if err := c.Status().Update(t.Context(), local); err != nil {
		t.Fatalf("%v, of:\n%s", err, text(t, status))
	}
	before := local.ResourceVersion
	again, err := podstatus.Of(podstatus.Facts{
		Mapping: mapping, Local: local, Remote: remote, Restarts: restarts.Observe(local, remote), Translator: swap{},
		HostIP: "10.10.9.9",
	})
	if err != nil {
		t.Fatal(err)
	}
	if difference := cmp.Diff(text(t, local.Status), text(t, again)); difference != "" {
		t.Errorf("the same remote pod gives another status the second time:\n%s", difference)
	}
	local.Status = again
	if err := c.Status().Update(t.Context(), local); err != nil || local.ResourceVersion != before {
		t.Errorf("written again: version %s, then %s, error %v", before, local.ResourceVersion, err)
	}
}

// acceptedHostile writes the statuses of one pod that follow from many hostile remote pods.
func acceptedHostile(t *testing.T, c client.Client) {
	never := corev1.RestartPolicyNever
	for _, policy := range []corev1.RestartPolicy{never, corev1.RestartPolicyAlways} {
		pod := runnable(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "hostile", Namespace: mapping.Local}, Spec: corev1.PodSpec{
			RestartPolicy: policy, Containers: []corev1.Container{{Name: "a"}, {Name: "b"}}, InitContainers: []corev1.Container{{Name: "i"}},
		}})
		local := bound(t, c, pod)
		for seed := range uint64(200) {
			source := rand.New(rand.NewPCG(seed, 0))
			remote := hostilePod(func() byte { return byte(source.Uint32()) })
			if remote.Status.Phase == corev1.PodSucceeded || remote.Status.Phase == corev1.PodFailed {
				remote.Status.Phase = corev1.PodRunning // otherwise the status would not change any more
			}
			t.Run(fmt.Sprint(policy, " ", seed), func(t *testing.T) { shown(t, c, local, remote) })
		}
	}
}

func create(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), object, client.DryRunAll); err != nil {
		t.Errorf("%v, of:\n%s", err, text(t, object))
	}
}

// appliedTwice applies an intent again. The second time must change nothing. Of a Service only the third: with the second, the API server gives the client the
// ownership of the fields that it has set itself (addresses, policies, node ports).
func appliedTwice(t *testing.T, c client.Client, intent runtime.ApplyConfiguration, into client.Object) {
	t.Helper()
	var versions [3]string
	for i := range versions {
		if err := c.Apply(t.Context(), intent, client.FieldOwner("test"), client.ForceOwnership); err != nil {
			t.Fatalf("%v, of:\n%s", err, text(t, intent))
		}
		var named struct {
			Metadata struct{ Name, Namespace string }
		}
		if err := json.Unmarshal([]byte(text(t, intent)), &named); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: named.Metadata.Namespace, Name: named.Metadata.Name}, into); err != nil {
			t.Fatal(err)
		}
		versions[i] = into.GetResourceVersion()
	}
	_, service := into.(*corev1.Service)
	if versions[0] != versions[1] && !service || versions[1] != versions[2] {
		t.Errorf("versions %v after the same intent was applied again", versions)
	}
	if err := c.Delete(t.Context(), into); err != nil {
		t.Fatal(err)
	}
}

func text(t *testing.T, value any) string {
	t.Helper()
	text, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
