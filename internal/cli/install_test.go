// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/kube/version"
)

// documentedSteps are the first lines of every installation.
const documentedSteps = ` INFO   Kubernetes clients successfully initialized
 INFO   Installer initialized
 INFO   Cluster configuration correctly retrieved
 INFO   Installation parameters correctly generated
`

// TestInstallCommand runs what changes nothing in a cluster, with a real API server: the documented lines, the file of values, and the notes.
func TestInstallCommand(t *testing.T) {
	config := kubetest.Fresh(t)
	t.Setenv("KUBECONFIG", kubeconfig(t, config))
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range []client.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Spec: corev1.NodeSpec{PodCIDR: "10.200.1.0/24", PodCIDRs: []string{"10.200.1.0/24"}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "liqo-milan", Labels: map[string]string{labels.Type: labels.TypeVirtualNode}}},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}},
	} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "values.yaml")
	common := "install --pod-cidr 10.200.0.0/16 --service-cidr 10.0.0.0/24 --api-server-url https://192.0.2.1:6443 " +
		"--disable-api-server-sanity-check --cluster-name rome "
	for _, test := range []struct{ args, out, errOut string }{
		{common + "--dry-run", documentedSteps + " INFO   Installation completed (dry-run)\n", ""},
		{
			common + "--dry-run --set nameOverride=other", documentedSteps + " INFO   Installation completed (dry-run)\n",
			" WARN   nameOverride has no effect: names of objects are fixed, so that users and programs find them\n",
		},
		{
			common + "--only-output-values --cluster-labels zone=a --set auth.service.port=8443 --dump-values-path " + file,
			documentedSteps + " INFO   All Set! Chart values written to " + file + "\n", "",
		},
		{common + "--dry-run --disable-telemetry", strings.Replace(
			documentedSteps, " INFO   Installer", " INFO   --disable-telemetry changes nothing: Liqo sends no telemetry\n INFO   Installer", 1,
		) +
			" INFO   Installation completed (dry-run)\n", ""},
		{"version --client", "Client version: " + version.Version + "\n", ""},
		{"__complete move volume ", "data\n:4\n", "Completion ended with directive: ShellCompDirectiveNoFileComp\n"},
		{"__complete move volume -n kube-system ", ":4\n", "Completion ended with directive: ShellCompDirectiveNoFileComp\n"},
		{"__complete move volume data ", ":4\n", "Completion ended with directive: ShellCompDirectiveNoFileComp\n"},
		{"__complete move volume data --target-node liqo", "liqo-milan\n:4\n", "Completion ended with directive: ShellCompDirectiveNoFileComp\n"},
		{"__complete move volume data --node ", "liqo-milan\nworker\n:4\n", "Completion ended with directive: ShellCompDirectiveNoFileComp\n"},
	} {
		code, out, errOut := run(t, "", strings.Split(test.args, " ")...)
		if diff := cmp.Diff([]string{test.out, test.errOut}, []string{out, errOut}); code != 0 || diff != "" {
			t.Errorf("%s: exit code %d\n%s", test.args, code, diff)
		}
	}
	code, out, errOut := run(t, "", strings.Fields(strings.ReplaceAll(common, "--cluster-name rome", "")+"--dry-run")...)
	if code != 0 || !strings.Contains(out, " INFO   No cluster name specified. Generated: ") {
		t.Errorf("no name: %d\n%s%s", code, out, errOut)
	}
	if code, _, errOut := run(t, "", strings.Fields(common+"--dry-run --repo-url https://example.org/liqo")...); code != 1 ||
		!strings.Contains(errOut, "--local-chart-path") {
		t.Errorf("another repository: %d\n%s", code, errOut)
	}
	if code, out, errOut := run(t, "", "version"); code != 1 || !strings.HasPrefix(out, "Client version: ") ||
		!strings.Contains(errOut, "there is no Liqo in this cluster") {
		t.Errorf("version of nothing: %d\n%s%s", code, out, errOut)
	}
	checkValues(t, file)

	streams, _, _, errors := genericiooptions.NewTestIOStreams()
	if code := Run(t.Context(), streams, []string{"/usr/local/bin/kubectl-liqo", "generate", "peer-command"}); code != 1 ||
		!strings.Contains(errors.String(), "`kubectl liqo install`") {
		t.Errorf("as a plugin of kubectl: %d %s", code, errors)
	}
}

// TestTimeouts: how long each command takes at most, as documented.
func TestTimeouts(t *testing.T) {
	root, _ := newRoot(genericiooptions.NewTestIOStreamsDiscard(), "liqoctl")
	for path, want := range map[string]string{
		"install": "10m0s", "uninstall": "10m0s", "peer": "2m0s", "peer out-of-band": "2m0s", "peer in-band": "2m0s", "unpeer": "2m0s", "unpeer out-of-band": "2m0s",
		"unpeer in-band": "2m0s", "offload namespace": "20s", "unoffload namespace": "2m0s",
	} {
		cmd, _, err := root.Find(strings.Fields(path))
		if err != nil || cmd.Flag("timeout") == nil || cmd.Flag("timeout").DefValue != want {
			t.Errorf("%s: %v, flag %+v, want %s", path, err, cmd.Flag("timeout"), want)
		}
	}
}

// checkValues checks the file of --only-output-values.
func checkValues(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if about, err := os.Stat(file); err != nil || about.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; values may hold secrets", about.Mode(), err)
	}
	var have map[string]any
	if err := yaml.UnmarshalStrict(text, &have); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"apiServer":         map[string]any{"address": "https://192.0.2.1:6443"},
		"auth":              map[string]any{"service": map[string]any{"port": 8443.0}},
		"controllerManager": map[string]any{"config": map[string]any{"resourceSharingPercentage": 90.0}},
		"discovery":         map[string]any{"config": map[string]any{"clusterName": "rome", "clusterLabels": map[string]any{"zone": "a"}}},
		"networkManager":    map[string]any{"config": map[string]any{"podCIDR": "10.200.0.0/16", "serviceCIDR": "10.0.0.0/24"}},
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestKubectlPlugin: as a plugin of kubectl, the program calls itself so, in help, examples and hints.
func TestKubectlPlugin(t *testing.T) {
	for _, args := range []string{"--help", "peer out-of-band --help", "offload namespace --help", "completion bash --help"} {
		streams, _, out, errOut := genericiooptions.NewTestIOStreams()
		code := Run(t.Context(), streams, append([]string{"kubectl-liqo"}, strings.Fields(args)...))
		if code != 0 || !strings.Contains(out.String(), "kubectl liqo ") || strings.Contains(strings.ReplaceAll(out.String(), "/liqoctl", ""), "liqoctl ") {
			t.Errorf("%s: %d\n%s%s", args, code, out, errOut)
		}
	}
	streams, _, _, errOut := genericiooptions.NewTestIOStreams()
	if code := Run(t.Context(), streams, []string{"kubectl-liqo.exe", "peer", "--colour"}); code != 1 ||
		!strings.Contains(errOut.String(), "see `kubectl liqo peer --help`") {
		t.Errorf("%d %s", code, errOut)
	}
}
