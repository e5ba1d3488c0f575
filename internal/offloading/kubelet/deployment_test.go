// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	psa "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest/hardening"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestKubeletObjects compares all objects of a virtual kubelet with testdata/kubelet_*.yaml.
func TestKubeletObjects(t *testing.T) {
	base := Kubelet{
		Options:   Options{Image: "localhost/liqo:v1"},
		Local:     discoveryv1alpha1.ClusterIdentity{ClusterID: "rome-id", ClusterName: "rome"},
		Peer:      discoveryv1alpha1.ClusterIdentity{ClusterID: "milan-id", ClusterName: "milan"},
		Namespace: "liqo-tenant-milan-123456", Slice: "rome", Node: "liqo-milan",
		RemoteNetworks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/64")},
	}
	full := base
	full.Options = Options{
		Image:            "registry.example/liqo:v2",
		ExtraAnnotations: map[string]string{"example.com/note": "a"},
		ExtraLabels:      map[string]string{"team": "a", "app.kubernetes.io/name": "not-ours-to-lose"},
		ExtraArgs:        []string{"--node-lease-duration=1m", "--node-ping-interval=5s"},
		CPURequests:      "10m", RAMRequests: "20M", CPULimits: "1", RAMLimits: "100M",
		MetricsEnabled: true, MetricsAddress: ":5872", PullSecret: "virtual-kubelet-image-pull",
	}
	full.CheckNetwork = true
	full.NodeLabels, full.NodeNote = map[string]string{"b": "2", "a": "1"}, map[string]string{"note": "x"}
	for name, k := range map[string]Kubelet{"default": base, "full": full} {
		t.Run(name, func(t *testing.T) {
			var documents []string
			for _, part := range k.Parts() {
				text, err := yaml.Marshal(part.Intent)
				if err != nil {
					t.Fatal(err)
				}
				documents = append(documents, string(text))
			}
			checkKubeletPod(t, name, k)
			got, golden := strings.Join(documents, "---\n"), "testdata/kubelet_"+name+".yaml"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-want +got; rewrite with -update):\n%s", golden, diff)
			}
		})
	}
}

// checkKubeletPod holds the pod to the rules for all pods of ours.
func checkKubeletPod(t *testing.T, name string, k Kubelet) {
	t.Helper()
	text, err := json.Marshal(k.pod())
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.PodSpec
	if err := json.Unmarshal(text, &pod); err != nil {
		t.Fatal(err)
	}
	accepted := map[string]string{Name + ": token": "runs the virtual node"}
	if k.Options.RAMLimits == "" {
		// The chart has defaults for both; who starts the controller manager without it chooses.
		accepted[Name+": no limit of memory"], accepted[Name+": no request of memory"] = "not set", "not set"
	}
	hardening.Check(t, name, hardening.Serves, &pod, accepted)
	if automount := k.account().AutomountServiceAccountToken; automount == nil || *automount {
		t.Error("the account of the virtual kubelet gives pods a token")
	}
}

// TestKubeletOfLongNames: with the longest names of clusters, names and labels of all objects are valid.
func TestKubeletOfLongNames(t *testing.T) {
	long := func(id string) discoveryv1alpha1.ClusterIdentity {
		return discoveryv1alpha1.ClusterIdentity{ClusterID: id, ClusterName: strings.Repeat("n", 63)}
	}
	peer := long("22222222-2222-4222-8222-222222222222")
	k := Kubelet{
		Local: long("11111111-1111-4111-8111-111111111111"), Peer: peer,
		Namespace: peer.TenantNamespace(), Slice: strings.Repeat("n", 63), Node: peer.NodeName(),
	}
	for _, part := range k.Parts() {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(part.Intent)
		if err != nil {
			t.Fatal(err)
		}
		object := unstructured.Unstructured{Object: content}
		faults := validation.IsDNS1123Subdomain(object.GetName())
		if object.GetNamespace() != "" {
			faults = append(faults, validation.IsDNS1123Label(object.GetNamespace())...)
		}
		pod, _, _ := unstructured.NestedStringMap(content, "spec", "template", "metadata", "labels")
		for _, all := range []map[string]string{object.GetLabels(), pod} {
			for key, value := range all {
				faults = append(faults, append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...)...)
			}
		}
		if len(faults) > 0 {
			t.Errorf("%s %s: %v", object.GetKind(), object.GetName(), faults)
		}
	}
	if faults := validation.IsValidLabelValue(k.Node); len(faults) > 0 {
		t.Errorf("kubernetes.io/hostname=%s: %v", k.Node, faults)
	}
}

// TestKubeletIsRestricted: tenant namespaces enforce the strictest level of the Pod Security Standards.
func TestKubeletIsRestricted(t *testing.T) {
	text, err := os.ReadFile("testdata/kubelet_full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for document := range strings.SplitSeq(string(text), "---\n") {
		var deployment appsv1.Deployment
		if err := yaml.Unmarshal([]byte(document), &deployment); err != nil || deployment.Kind != "Deployment" {
			continue
		}
		checked++
		template := &deployment.Spec.Template
		for _, result := range evaluator.EvaluatePod(
			psa.LevelVersion{Level: psa.LevelRestricted, Version: psa.LatestVersion()}, &template.ObjectMeta, &template.Spec,
		) {
			if !result.Allowed {
				t.Errorf("%s: %s", result.ForbiddenReason, result.ForbiddenDetail)
			}
		}
	}
	if checked != 1 {
		t.Errorf("%d Deployments", checked)
	}
}

func TestKubeletOptions(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
	}{
		{"--kubelet-image=a", ""},
		{"--kubelet-image=a --kubelet-cpu-requests=100m --kubelet-ram-limits=64Mi --kubelet-extra-args=--x=1 --kubelet-extra-args=--y", ""},
		{"", "--kubelet-image must not be empty"},
		{"--kubelet-image=a --kubelet-metrics-enabled --kubelet-metrics-address=5872", "--kubelet-metrics-address \"5872\": want"},
		{"--kubelet-image=a --kubelet-image-pull-policy=Never", ""},
		{"--kubelet-image=a --kubelet-image-pull-policy=often", "--kubelet-image-pull-policy \"often\": want"},
		{"--kubelet-image=a --kubelet-cpu-limits=much", `--kubelet-cpu-limits "much": want a quantity`},
		{"--kubelet-image=a --kubelet-ram-requests=-1", `--kubelet-ram-requests "-1": want a quantity`},
	} {
		var o Options
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.Register(flags)
		if err := flags.Parse(strings.Fields(c.args)); err != nil {
			t.Fatal(err)
		}
		err := o.Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
}

// TestKeyValues: the flag parses what keyValues writes.
func TestKeyValues(t *testing.T) {
	for _, want := range []map[string]string{
		{"a": "1"},
		{"a": "1,2"},
		{"a": "1, 2", "b": `a "x"`, "c": ""},
		{"a": "x=y,z", "b": "two\nlines"},
	} {
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		have := flags.StringToString("values", nil, "")
		if err := flags.Parse([]string{"--values=" + keyValues(want)}); err != nil {
			t.Errorf("%v: %v", want, err)
		} else if diff := cmp.Diff(want, *have); diff != "" {
			t.Errorf("%s: -want +got:\n%s", keyValues(want), diff)
		}
	}
}
