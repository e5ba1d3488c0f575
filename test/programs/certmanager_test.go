// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/execution"
)

// chart lays out cert-manager's chart as its release does, from its module, and returns what Helm makes of it.
func (p program) chart(t *testing.T) string {
	t.Helper()
	where := execution.Run("", "../../hack/go", "list", "-C", "certmanager", "-m", "-f", "{{.Dir}}", "github.com/cert-manager/cert-manager")
	if where.Code != 0 {
		t.Fatal(where)
	}
	deploy, folder := filepath.Join(strings.TrimSpace(where.Out), "deploy"), t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(filepath.Join(deploy, "charts/cert-manager"))); err != nil {
		t.Fatal(err)
	}
	description, err := os.ReadFile(filepath.Join(folder, "Chart.template.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"Chart.yaml": bytes.ReplaceAll(description, []byte("v0.1.0"), []byte("v1.11.5"))}
	crds, err := filepath.Glob(filepath.Join(deploy, "crds/crd-*.yaml"))
	if err != nil || len(crds) == 0 {
		t.Fatalf("CRDs in %s: %v, %v", deploy, crds, err)
	}
	for _, path := range crds {
		if files["templates/"+filepath.Base(path)], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	values, err := manifests.ReadFile("testdata/cert-manager-values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files["here.yaml"] = bytes.ReplaceAll(values, []byte("OFFLOADED"), []byte(p.namespace))
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	made := execution.Run(
		"", filepath.Join(clusters.Bin, "helm"), "template", "cert-manager", folder, "--namespace", p.namespace, "-f",
		filepath.Join(folder, "here.yaml"),
	)
	if made.Code != 0 {
		t.Fatal(made)
	}
	return made.Out
}

// TestCertManager: cert-manager by its own chart, two of each of its programs, one in each cluster. It issues, and refuses what is wrong, with those
// of either cluster.
func TestCertManager(t *testing.T) {
	parts := []string{"controller", "webhook", "cainjector"}
	var images []string
	for _, part := range parts {
		images = append(images, "cert-manager-"+part+"-image.tar")
	}
	p := start(t, "cert-manager", images...)
	manifest := p.chart(t)
	t.Cleanup(func() {
		rome.TryKubectl(manifest, "delete", "--ignore-not-found", "-f", "-")
	})
	if r := rome.TryKubectl(manifest, "create", "-f", "-"); r.Code != 0 {
		t.Fatal(r)
	}
	for _, turn := range []string{there, here} {
		t.Run("only the programs "+turn, func(t *testing.T) {
			var leaving, staying []string
			for _, part := range parts {
				home, remote := p.ready(t, 2, "app.kubernetes.io/component="+part)
				if len(home) != 1 || len(remote) != 1 {
					t.Fatalf("%d of %s are here and %d at the provider: this proves nothing", len(home), part, len(remote))
				}
				if turn == here {
					home, remote = remote, home
				}
				leaving, staying = append(leaving, home[0].Name), append(staying, remote[0].Name)
			}
			p.without(t, turn, leaving...)
			began := time.Now()
			for _, lease := range []string{"cert-manager-controller", "cert-manager-cainjector-leader-election"} {
				env.Eventually(t, env.Hang, "a program "+turn+" has "+lease, func() (string, bool) {
					seen := p.try("get", "lease", lease, "-o", "jsonpath={.spec.holderIdentity}").Out
					return seen, strings.HasPrefix(seen, staying[0]) || strings.HasPrefix(seen, staying[2])
				})
			}
			clusters.Measure("cert-manager: the programs "+turn+" lead after the others were deleted", "%.1f s", time.Since(began).Seconds())
			p.issues(t, map[string]string{here: "here", there: "there"}[turn])
		})
	}
}

// issues makes an authority and has it sign.
func (p program) issues(t *testing.T, name string) {
	t.Helper()
	text, err := manifests.ReadFile("testdata/cert-manager.yaml")
	if err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, env.Hang, "the API server calls the webhooks", func() (string, bool) {
		r := rome.TryKubectl(strings.ReplaceAll(string(text), "TURN", name), "-n", p.namespace, "apply", "-f", "-")
		return r.String(), r.Code == 0
	})
	bad := fmt.Sprintf("apiVersion: cert-manager.io/v1\nkind: Certificate\nmetadata: {name: bad-%s}\nspec: {secretName: bad, issuerRef: {name: ca}}\n", name)
	if r := rome.TryKubectl(bad, "-n", p.namespace, "apply", "-f", "-"); r.Code == 0 ||
		!strings.Contains(r.Err, `admission webhook "webhook.cert-manager.io" denied the request`) {
		t.Errorf("a certificate without a name should be refused by the webhook: %s", r)
	}
	p.kubectl(t, "wait", "certificate/authority-"+name, "certificate/web-"+name, "--for=condition=Ready", "--timeout=180s")
	if issued := p.kubectl(
		t, "get", "secret", "web-"+name, "-o", `jsonpath={.type} {.metadata.annotations.cert-manager\.io/issuer-name}`,
	); issued != "kubernetes.io/tls ca-"+name {
		t.Errorf("the Secret of web-%s is %q", name, issued)
	}
	env.Eventually(t, env.Hang, "the event of the controller", func() (string, bool) {
		seen := p.try(
			"get", "events", "--field-selector", "involvedObject.kind=Certificate,involvedObject.name=web-"+name, "-o",
			`jsonpath={range .items[*]}{.reason} {.message}{"\n"}{end}`,
		).Out
		return seen, strings.Contains(seen, "Issuing The certificate has been successfully issued")
	})
}
