// SPDX-License-Identifier: Apache-2.0

package features_test

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/features"
	"liqo.io/liqo/internal/offloading/metadata"
	"liqo.io/liqo/internal/offloading/names"
	"liqo.io/liqo/internal/offloading/quota"
	"liqo.io/liqo/internal/offloading/reflection/project"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
	"liqo.io/liqo/internal/offloading/shadow"
)

// rows returns all rows by the name of their tests.
func rows(t *testing.T) map[string]features.Row {
	t.Helper()
	sections, err := features.Sections()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]features.Row{}
	for _, section := range sections {
		for _, row := range section.Rows {
			all[strings.ReplaceAll(strings.ReplaceAll(row.Feature, "/", "-"), "`", "")] = row
		}
	}
	return all
}

// TestEveryField: each field that a pod has in the newest Kubernetes has a row, and each row is about fields that exist.
func TestEveryField(t *testing.T) {
	has := map[string]bool{}
	for name, row := range rows(t) {
		if !slices.Contains([]string{features.Works, features.Differs, features.Refused}, row.Is) || row.Is != features.Works && row.Why == "" {
			t.Errorf("%s: it is %q because %q: one of three verdicts, with a reason if it does not work as here", name, row.Is, row.Why)
		}
		for of, list := range row.Fields {
			for _, field := range strings.Fields(list) {
				has[of+"."+field] = true
			}
		}
	}
	all := allFields(reflect.TypeFor[corev1.PodSpec]())
	for _, field := range all {
		of, _, _ := strings.Cut(field, ".")
		if !has[field] && !has[of+".*"] {
			t.Errorf("%s exists, and has no row: decide what becomes of it at a provider, and add it to rows.yaml", field)
		}
	}
	for field := range has {
		of, name, _ := strings.Cut(field, ".")
		if !slices.Contains(all, field) && (name != "*" || !slices.ContainsFunc(all, func(known string) bool { return strings.HasPrefix(known, of+".") })) {
			t.Errorf("%s does not exist", field)
		}
	}
}

// TestTypesOfContainers: a row about containers is about ephemeral ones as well.
func TestTypesOfContainers(t *testing.T) {
	_ = corev1.Container(corev1.EphemeralContainerCommon{}) // they have the same fields, or this does not compile
}

// TestCommands: what a row about a subresource names shows it.
func TestCommands(t *testing.T) {
	for name, row := range rows(t) {
		for _, proof := range row.Subresources {
			folder, test, _ := strings.Cut(proof, ".")
			files, err := filepath.Glob(filepath.Join("../../..", folder, "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(files, func(file string) bool {
				text, err := os.ReadFile(file)
				return err == nil && strings.Contains(string(text), "func "+test+"(")
			}) {
				t.Errorf("%s: there is no test %s", name, proof)
			}
		}
	}
}

var mapping = project.NamespaceMapping{
	LocalID: "rome-id", LocalName: "rome", RemoteID: "milan-id", NodeName: "liqo-milan", Local: "shop", Remote: "shop-rome-ab12cd", Domain: "rome.example",
}

// pod returns a usual pod that asks for something.
func pod(t *testing.T, asks []byte) *corev1.Pod {
	t.Helper()
	local := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: mapping.Local, UID: "5c1d", Labels: map[string]string{"app": "web", "version": "1"}},
	}
	if err := yaml.UnmarshalStrict(asks, &local.Spec); err != nil {
		t.Fatal(err)
	}
	if len(local.Spec.Containers) == 0 {
		local.Spec.Containers = []corev1.Container{{}}
	}
	for _, list := range [][]corev1.Container{local.Spec.InitContainers, local.Spec.Containers} {
		for i := range list {
			complete(&list[i])
		}
	}
	return local
}

func complete(container *corev1.Container) {
	if container.Name == "" {
		container.Name = "main"
	}
	if container.Image == "" {
		container.Image = "example.com/web:1"
	}
}

// arrived is what becomes of a pod: it is refused, or it runs at the provider with this spec. events are what it runs without.
type arrived struct {
	refusal string
	spec    corev1.PodSpec
	events  []string
}

// arrive does what a virtual kubelet and a provider do with a pod, with the default values of the chart.
func arrive(t *testing.T, local *corev1.Pod) arrived {
	t.Helper()
	if len(podspec.Unmet(local, nil)) > 0 {
		return arrived{refusal: podspec.Unsent(local, nil).Error()}
	}
	intent, err := podspec.ShadowPod(mapping, local, podspec.Options{APIServer: podspec.APIServer{
		Enabled: true, Address: netip.MustParseAddr("10.60.0.1"), ServicePort: "443", Home: netip.MustParseAddr("10.80.0.1"),
	}})
	if err != nil {
		return arrived{refusal: err.Error()}
	}
	crossing := &vkv1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{Name: local.Name, Namespace: mapping.Remote, UID: "77", Labels: intent.Labels, Annotations: intent.Annotations},
		Spec:       vkv1alpha1.ShadowPodSpec{Pod: *intent.Spec.Pod.DeepCopy()},
	}
	if problem := shadow.Check(crossing, mapping.LocalID, shadow.Baseline); problem != "" {
		return arrived{refusal: problem}
	}
	remote := shadow.Pod(crossing, mapping.LocalID, metadata.Allowed{})
	names.Settings{Server: netip.MustParseAddr("10.50.0.10"), Domain: "milan.example"}.Configure(&remote.Spec, names.Place{
		Domain: mapping.Domain, Namespace: mapping.Local, Remote: mapping.Remote,
	})
	amounts := quota.Defaults{
		Requests:     corev1.ResourceList{"cpu": resource.MustParse("10m"), "memory": resource.MustParse("32Mi")},
		Limits:       corev1.ResourceList{"ephemeral-storage": resource.MustParse("1Gi")},
		MemoryVolume: resource.MustParse("64Mi"),
	}
	amounts.Fill(&remote.Spec)
	for _, op := range shadow.Amend(crossing, remote, mapping.LocalID, "liqo", metadata.Allowed{}).Ephemeral {
		switch value := op.Value.(type) {
		case []any:
			remote.Spec.EphemeralContainers = append(remote.Spec.EphemeralContainers, value[0].(corev1.EphemeralContainer))
		case corev1.EphemeralContainer:
			remote.Spec.EphemeralContainers = append(remote.Spec.EphemeralContainers, value)
		}
	}
	return arrived{spec: remote.Spec, events: append(podspec.DroppedFields(local), metadata.LeftOut(crossing, metadata.Allowed{})...)}
}

// samples returns the pods that ask for what a row is about, by what they are.
func samples(t *testing.T, row features.Row) map[string]*corev1.Pod {
	t.Helper()
	all := map[string]*corev1.Pod{}
	if row.Pod != nil {
		all["the pod"] = pod(t, row.Pod)
	}
	for i, message := range row.Pods {
		all[fmt.Sprintf("pod %d", i)] = pod(t, message)
	}
	if row.Is == features.Differs {
		return all
	}
	// The same in an init container, and in an ephemeral one.
	for name, entry := range maps.Clone(all) {
		early, late := entry.DeepCopy(), entry.DeepCopy()
		early.Spec.InitContainers, early.Spec.Containers = append(early.Spec.InitContainers, early.Spec.Containers...),
			[]corev1.Container{{Name: "other", Image: "example.com/web:1"}}
		for _, container := range late.Spec.Containers {
			late.Spec.EphemeralContainers = append(late.Spec.EphemeralContainers, corev1.EphemeralContainer{
				EphemeralContainerCommon: corev1.EphemeralContainerCommon(container),
			})
		}
		late.Spec.Containers = early.Spec.Containers
		all[name+", in init containers"], all[name+", in ephemeral containers"] = early, late
	}
	return all
}

// TestRows: a pod that asks for what a row is about gets it at the provider as it is, or as the row states, or is refused with the reason.
func TestRows(t *testing.T) {
	for name, row := range rows(t) {
		t.Run(name, func(t *testing.T) {
			asked := map[string]bool{}
			for what, local := range samples(t, row) {
				for field := range values(t, &local.Spec) {
					asked[field] = true
				}
				before := local.DeepCopy()
				proven(t, what, row, before, arrive(t, local))
				if !reflect.DeepEqual(before, local) {
					t.Errorf("%s: the pod was changed", what)
				}
			}
			for _, field := range fieldsOf(row) {
				if !strings.HasSuffix(field, ".*") && !asked[field] && row.Feature != "no `resources`" {
					t.Errorf("no pod sets %s, so nothing is proven about it", field)
				}
			}
		})
	}
}

func fieldsOf(row features.Row) (all []string) {
	for of, list := range row.Fields {
		for _, field := range strings.Fields(list) {
			all = append(all, of+"."+field)
		}
	}
	slices.Sort(all)
	return all
}

// proven checks what became of a pod that asks for what a row is about.
func proven(t *testing.T, what string, row features.Row, local *corev1.Pod, got arrived) {
	t.Helper()
	if row.Is == features.Refused || got.refusal != "" {
		if row.Is != features.Refused || !strings.Contains(got.refusal, row.Refusal) {
			t.Errorf("%s: %s, want %s; the refusal is %q, want %q", what, row.Feature, row.Is, got.refusal, row.Refusal)
		}
		return
	}
	if (row.Event != "") != (len(got.events) > 0) || row.Event != "" && !slices.Contains(got.events, row.Event) {
		t.Errorf("%s: it runs without %q, and the row has the event %q", what, got.events, row.Event)
	}
	var dropped []string
	for field, there := range row.There {
		if list, ok := there.([]any); ok && len(list) == 0 {
			dropped = append(dropped, field)
		}
	}
	want, has := values(t, without(&local.Spec, dropped)), values(t, &got.spec)
	for _, field := range fieldsOf(row) {
		if _, stated := row.There[field]; !stated && !contains(has[field], want[field]) {
			t.Errorf("%s: %s is %v here, and %v at the provider", what, field, want[field], has[field])
		}
	}
	for field, there := range row.There {
		if number, ok := there.(float64); ok {
			if len(has[field]) != int(number) {
				t.Errorf("%s: %s is there %d times, want %v", what, field, len(has[field]), number)
			}
		} else if !reflect.DeepEqual(plain(t, there), plain(t, append([]any{}, has[field]...))) {
			t.Errorf("%s: %s is %v at the provider, want %v", what, field, has[field], there)
		}
	}
}

// contains reports whether all wanted values are there, in their order. If none is wanted, there is none.
func contains(has, want []any) bool {
	if len(want) == 0 {
		return len(has) == 0
	}
	for _, object := range has {
		if len(want) > 0 && reflect.DeepEqual(object, want[0]) {
			want = want[1:]
		}
	}
	return len(want) == 0
}
