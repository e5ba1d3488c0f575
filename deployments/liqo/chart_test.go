// SPDX-License-Identifier: Apache-2.0

package liqo_test

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"helm.sh/helm/v4/pkg/strvals"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"liqo.io/liqo/apis/labels"
	liqo "liqo.io/liqo/deployments/liqo"
)

var update = flag.Bool("update", false, "write the golden files anew")

// certain replaces the random parts of a first installation.
const certain = "discovery.config.clusterName=rome,discovery.config.clusterIDOverride=5b2f0c0e-7f1d-4a38-9c1a-0b6f6a1d2e3c"

// networks are the values that liqoctl always sets: the internal network, which is the default, needs them.
const networks = "networkManager.config.podCIDR=10.200.0.0/16,networkManager.config.serviceCIDR=10.80.0.0/12"

// internal enables the network between clusters.
const internal = "networking.internal=true," + networks

func loadChart(t *testing.T) *helmchart.Chart {
	t.Helper()
	var files []*archive.BufferedFile
	err := fs.WalkDir(liqo.FS, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(liqo.FS, path)
		files = append(files, &archive.BufferedFile{Name: path, Data: text})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	chart, err := loader.LoadFiles(files)
	if err != nil {
		t.Fatal(err)
	}
	return chart
}

// tryRender renders the embedded chart as liqoctl does, with values as --set takes them. The provider answers lookups; nil is a
// cluster where nothing is installed yet.
func tryRender(t *testing.T, provider engine.ClientProvider, set ...string) ([]*unstructured.Unstructured, error) {
	t.Helper()
	values := map[string]any{}
	for _, one := range append([]string{certain, networks}, set...) {
		if err := strvals.ParseInto(one, values); err != nil {
			t.Fatalf("--set %s: %v", one, err)
		}
	}
	return renderValues(t, provider, values)
}

func renderValues(t *testing.T, provider engine.ClientProvider, values map[string]any) ([]*unstructured.Unstructured, error) {
	t.Helper()
	files, err := renderFiles(t, provider, values)
	if err != nil {
		return nil, err
	}
	return parse(files)
}

// renderFiles returns the rendered templates by their paths.
func renderFiles(t *testing.T, provider engine.ClientProvider, values map[string]any) (map[string]string, error) {
	t.Helper()
	chart := loadChart(t)
	capabilities := common.DefaultCapabilities.Copy()
	version, err := common.ParseKubeVersion("v1.34.0") // Helm's default in tests is old
	if err != nil {
		return nil, err
	}
	capabilities.KubeVersion = *version
	capabilities.APIVersions = append(slices.Clone(capabilities.APIVersions),
		"admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy", "flowcontrol.apiserver.k8s.io/v1/FlowSchema", "monitoring.coreos.com/v1/PodMonitor", "monitoring.coreos.com/v1/ServiceMonitor")
	all, err := util.ToRenderValues(chart, values, common.ReleaseOptions{Name: "liqo", Namespace: "liqo", IsInstall: true, Revision: 1}, capabilities)
	if err != nil {
		return nil, err
	}
	if provider == nil {
		return engine.Render(chart, all)
	}
	return engine.RenderWithClientProvider(chart, all, provider)
}

// parse returns the objects of rendered templates.
func parse(rendered map[string]string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, file := range slices.Sorted(maps.Keys(rendered)) {
		if path.Ext(file) != ".yaml" {
			continue
		}
		for _, document := range regexp.MustCompile(`(?m)^---$`).Split(rendered[file], -1) {
			object := &unstructured.Unstructured{}
			if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", file, err, document)
			}
			if len(object.Object) > 0 {
				objects = append(objects, object)
			}
		}
	}
	return objects, nil
}

func render(t *testing.T, set ...string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := tryRender(t, nil, set...)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

var (
	chance  = regexp.MustCompile(`(?m)^( +(?:- )?(?:token|ca|cert|key|caBundle)): [A-Za-z0-9+/=]{64,}$`)
	segment = regexp.MustCompile(`(?m)(^  path: )[A-Za-z0-9+/]{54}==$|(^ +path: /)[A-Za-z0-9]{40}(/)`)
	release = regexp.MustCompile(`(liqo[:-]|version: )\d+\.\d+\.\d+[^\s@'\",}]*`)
)

// text returns the objects as YAML, without random data, and without the version, so that a release changes no golden file.
func text(t *testing.T, objects []*unstructured.Unstructured) string {
	t.Helper()
	var out bytes.Buffer
	for _, object := range objects {
		document, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("---\n")
		out.Write(document)
	}
	certain := segment.ReplaceAllString(chance.ReplaceAllString(out.String(), "$1: CHANCE"), "$1${2}CHANCE$3")
	return release.ReplaceAllString(certain, "${1}VERSION")
}

// find returns the object, or fails.
func find(t *testing.T, objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, object := range objects {
		if object.GetKind() == kind && object.GetName() == name {
			return object
		}
	}
	t.Fatalf("no %s is called %s", kind, name)
	return nil
}

// field returns the value at the path, or nil.
func field(t *testing.T, object *unstructured.Unstructured, path ...string) any {
	t.Helper()
	value, _, err := unstructured.NestedFieldNoCopy(object.Object, path...)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func TestLint(t *testing.T) {
	lint := action.NewLint()
	lint.Strict, lint.Namespace = true, "liqo"
	result := lint.Run([]string{"."}, nil)
	for _, err := range result.Errors {
		t.Error(err)
	}
	for _, message := range result.Messages {
		t.Log(message)
	}
}

// TestGolden compares the objects of an installation without values, and with nearly all of them. Roles are left out: their rules are
// generated, and chart_rights_test.go checks them. The tests of cmd/liqo read the files, to check that the program accepts all arguments.
func TestGolden(t *testing.T) {
	raw, err := os.ReadFile("testdata/full-values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var full map[string]any
	if err := yaml.UnmarshalStrict(raw, &full); err != nil {
		t.Fatal(err)
	}
	with, err := renderValues(t, nil, full)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]*unstructured.Unstructured{
		"testdata/default.yaml": render(t), "testdata/full.yaml": with, "testdata/network.yaml": ofTheNetwork(render(t, lavish)),
	}
	for golden, objects := range all {
		got := text(t, slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool {
			return object.GetKind() == "ClusterRole" || object.GetKind() == "Role"
		}))
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
			t.Errorf("%s: if this is intended, run the test with -update:\n%s", golden, diff)
		}
	}
}

// TestLabels: every object has the labels by which it is found and recognised as Liqo's.
func TestLabels(t *testing.T) {
	for _, object := range render(t, "controllerManager.replicas=2", "auth.ingress.enable=true", "auth.ingress.host=liqo.example.org", lavish) {
		labels := object.GetLabels()
		for _, key := range []string{"name", "instance", "component", "managed-by", "version"} {
			if labels["app.kubernetes.io/"+key] == "" {
				t.Errorf("%s %s has no label %s", object.GetKind(), object.GetName(), key)
			}
		}
		if labels["app.kubernetes.io/part-of"] != "liqo" || labels["helm.sh/chart"] == "" {
			t.Errorf("%s %s: labels %v", object.GetKind(), object.GetName(), labels)
		}
	}
}

// TestPods: every pod complies with the strictest level of the Pod Security Standards, except those of the network: see TestNetworkPods.
func TestPods(t *testing.T) {
	seen := 0
	for _, object := range render(t) {
		if object.GetKind() != "Deployment" && object.GetKind() != "Job" || object.GetLabels()[labels.AppComponent] == "gateway" {
			continue
		}
		seen++
		pod := []string{"spec", "template", "spec"}
		if field(t, object, append(pod, "securityContext", "runAsNonRoot")...) != true ||
			field(t, object, append(pod, "securityContext", "seccompProfile", "type")...) != "RuntimeDefault" {
			t.Errorf("%s: security of the pod", object.GetName())
		}
		for _, container := range field(t, object, append(pod, "containers")...).([]any) {
			security, _ := container.(map[string]any)["securityContext"].(map[string]any)
			if security["allowPrivilegeEscalation"] != false || security["readOnlyRootFilesystem"] != true || security["capabilities"] == nil {
				t.Errorf("%s: security of the container: %v", object.GetName(), security)
			}
		}
	}
	if seen != 6 {
		t.Errorf("%d objects with pods, want 6", seen)
	}
}

// TestAttackM13: no node asks a foreign registry for an image by default, and with a digest every role runs that image only.
func TestAttackM13(t *testing.T) {
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	images := regexp.MustCompile(`(?:image: |--kubelet-image=)"?([^"\s]+)`)
	for _, test := range []struct {
		values []string
		want   string
	}{
		{nil, "localhost/liqo:VERSION"},
		{[]string{"imageName=registry.example.com/liqo", "digest=" + digest}, "registry.example.com/liqo:VERSION@" + digest},
	} {
		found := images.FindAllStringSubmatch(text(t, render(t, test.values...)), -1)
		if len(found) < 8 {
			t.Errorf("%v: %d images", test.values, len(found))
		}
		for _, image := range found {
			if image[1] != test.want {
				t.Errorf("%v: image %s, want %s", test.values, image[1], test.want)
			}
		}
	}
	// A role with an image of its own has another digest.
	own := text(t, render(t, "digest="+digest, "auth.imageName=registry.example.com/own/liqo"))
	if !strings.Contains(own, "registry.example.com/own/liqo:VERSION\n") {
		t.Error("the image of the authentication service is not the one of its value")
	}
}

// TestPrivateRegistry: with the two values of docs/installation.md, or with those of each role, no object names an image of another place: neither
// workloads nor hooks, nor the arguments from which our processes make pods, nor policies.
func TestPrivateRegistry(t *testing.T) {
	const mover = "storage.moverImage=registry.example.com/liqo-mover"
	roles := []string{mover}
	for _, role := range []string{"auth", "controllerManager", "gateway", "metricAgent", "proxy", "route", "uninstaller", "virtualKubelet"} {
		roles = append(roles, role+".imageName=registry.example.com/own/"+strings.ToLower(role))
	}
	image, elsewhere := regexp.MustCompile(`registry\.example\.com/[a-z/-]+`), regexp.MustCompile(`.*localhost/liqo.*`)
	for name, test := range map[string]struct {
		set  []string
		want int // different images
	}{
		"as documented": {[]string{"imageName=registry.example.com/liqo", mover}, 2},
		"each role":     {roles, 9},
	} {
		all := text(t, render(t, test.set...))
		if found := elsewhere.FindAllString(all, -1); len(found) > 0 {
			t.Errorf("%s: images of another place: %q", name, found)
		}
		found := slices.Compact(slices.Sorted(slices.Values(image.FindAllString(all, -1))))
		if len(found) != test.want {
			t.Errorf("%s: %d images, want %d: %q", name, len(found), test.want, found)
		}
		if hooks := strings.Count(all, "kind: Job"); hooks != 2 {
			t.Errorf("%s: %d hooks with an image were checked, want 2", name, hooks)
		}
	}
}

// TestAuth checks the ways to publish the authentication service.
func TestAuth(t *testing.T) {
	for _, test := range []struct {
		set           string
		address, port any // for peers, instead of those of the Service
		target        int64
		ingress       bool
	}{
		{set: "auth.service.type=LoadBalancer", target: 8443},
		{set: "auth.service.type=NodePort", target: 8443},
		{set: "auth.service.type=ClusterIP,auth.tls=false", target: 5000},
		{set: "auth.config.addressOverride=liqo.example.org,auth.config.portOverride=8443", address: "liqo.example.org", port: "8443", target: 8443},
		{set: "auth.config.portOverride=30443", port: "30443", target: 8443},
		{set: "auth.service.type=ClusterIP,auth.ingress.enable=true,auth.ingress.host=in.example.org,auth.ingress.port=8080", address: "in.example.org", port: "8080", target: 8443, ingress: true},
		{set: "auth.ingress.enable=true,auth.ingress.host=in.example.org,auth.config.addressOverride=out.example.org", address: "out.example.org", target: 8443, ingress: true},
	} {
		t.Run(test.set, func(t *testing.T) {
			objects := render(t, test.set)
			service := find(t, objects, "Service", "liqo-auth")
			if typ, has := strings.CutPrefix(strings.Split(test.set, ",")[0], "auth.service.type="); has && field(t, service, "spec", "type") != typ {
				t.Errorf("type %v", field(t, service, "spec", "type"))
			}
			if got := field(t, service, "metadata", "annotations", "liqo.io/override-address"); got != test.address {
				t.Errorf("address %v, want %v", got, test.address)
			}
			if got := field(t, service, "metadata", "annotations", "liqo.io/override-port"); got != test.port {
				t.Errorf("port %v, want %v", got, test.port)
			}
			all := text(t, objects)
			if !strings.Contains(all, fmt.Sprintf("containerPort: %d\n", test.target)) || !strings.Contains(all, fmt.Sprintf("--address=:%d\n", test.target)) {
				t.Errorf("the process does not listen on %d", test.target)
			}
			if strings.Contains(all, "kind: Ingress\n") != test.ingress {
				t.Errorf("ingress: want %t", test.ingress)
			}
		})
	}
}

// TestMapArguments: labels and annotations reach the flags unchanged, whatever they contain.
func TestMapArguments(t *testing.T) {
	given := map[string]string{"a": "1", "b": `{"x": 1, "y": "2"}`, "c": "one,two", "d": ""}
	values := map[string]any{"virtualKubelet": map[string]any{"extra": map[string]any{"annotations": map[string]any{}}}}
	if err := strvals.ParseInto(networks, values); err != nil {
		t.Fatal(err)
	}
	for key, value := range given {
		set(values, "virtualKubelet.extra.annotations."+key, value)
	}
	objects, err := renderValues(t, nil, values)
	if err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	got := flags.StringToString("kubelet-extra-annotations", nil, "")
	containers := field(t, find(t, objects, "Deployment", "liqo-controller-manager"), "spec", "template", "spec", "containers").([]any)
	var args []string
	for _, arg := range containers[0].(map[string]any)["args"].([]any) {
		args = append(args, arg.(string))
	}
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(given, *got); diff != "" {
		t.Error(diff)
	}
}

// TestRefused: invalid values are refused before anything is changed, with an error that names the value.
func TestRefused(t *testing.T) {
	for set, want := range map[string]string{
		"auth.ingress.enable=true":                                                                            "auth.ingress.host is empty",
		"networking.internal=true,networkManager.config.podCIDR=":                                             "networkManager.config.podCIDR is empty",
		"networking.internal=true,networkManager.config.serviceCIDR=":                                         "networkManager.config.serviceCIDR is empty",
		"networking.internal=true,gateway.config.listeningPort=4879":                                          "the port of the overlay",
		"networking.internal=true,gateway.config.webSocketURL=https://a.example.org":                          "need gateway.config.streamPort",
		"networking.internal=true,gateway.config.streamPort=443,gateway.ingress.enable=true":                  "needs gateway.config.webSocketURL",
		"networking.internal=true,gateway.config.streamPort=443,gateway.config.webSocketURL=ftp://a":          "webSocketURL",
		"networking.internal=true,gateway.config.listeningPort=5875":                                          "on their loopback",
		"networking.internal=true,gateway.config.portOverride=1,gateway.service.type=ClusterIP":               "needs gateway.config.addressOverride",
		"networking.internal=true,gateway.metrics.serviceMonitor.enabled=true":                                "there are no metrics to read",
		"networking.internal=true,gateway.service.type=ClusterIP,gateway.service.externalTrafficPolicy=Local": "gateway.service.externalTrafficPolicy",
		"gateway.replicas=9":                                     "/gateway/replicas",
		"gateway.metrics.port=5873":                              "/gateway/metrics/port",
		"gateway.config.wireguardImplementation=fast":            "wireguardImplementation",
		"networkConfig.mtu=500":                                  "/networkConfig/mtu",
		"auth.service.type=ExternalName":                         "/auth/service/type",
		"controllerManager.config.resourceSharingPercentage=101": "resourceSharingPercentage",
		"discovery.config.clusterName=Not_A_Label":               "/discovery/config/clusterName",
		"discovery.config.clusterIDOverride=1":                   "clusterIDOverride",
		"networkManager.config.podCIDR=10.0.0.0":                 "podCIDR",
		"apiServer.address=http://10.0.0.1":                      "/apiServer/address",
		"tag=a b":                                                "/tag",
		"digest=latest":                                          "/digest",
		"imageName=":                                             "/imageName",
	} {
		if _, err := tryRender(t, nil, set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--set %s: %v, want an error with %q", set, err, want)
		}
	}
}

// TestReadmeCommand: the values of the command in the README are sufficient.
func TestReadmeCommand(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, command, found := strings.Cut(string(readme), "helm install liqo ")
	command, _, _ = strings.Cut(command, "```")
	_, set, given := strings.Cut(command, "--set ")
	if !found || !given {
		t.Fatalf("no values in the command %q", command)
	}
	values := map[string]any{}
	if err := strvals.ParseInto(strings.TrimSpace(set), values); err != nil {
		t.Fatal(err)
	}
	if _, err := renderValues(t, nil, values); err != nil {
		t.Error(err)
	}
}
