// SPDX-License-Identifier: Apache-2.0

package liqo_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/strvals"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/deployments/liqo/charttest"
)

var update = flag.Bool("update", false, "write the golden files anew")

var (
	chance  = regexp.MustCompile(`(?m)^( +(?:- )?(?:token|ca|cert|key|nextCA|nextCert|nextKey|caBundle)): [A-Za-z0-9+/=]{64,}$`)
	made    = regexp.MustCompile(`(liqo.io/certificate-made: )"\d+"`)
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
	certain := segment.ReplaceAllString(chance.ReplaceAllString(made.ReplaceAllString(out.String(), "${1}CHANCE"), "$1: CHANCE"), "$1${2}CHANCE$3")
	return release.ReplaceAllString(certain, "${1}VERSION")
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
	with, err := charttest.RenderValues(t, nil, full)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]*unstructured.Unstructured{
		"testdata/default.yaml": charttest.Render(t), "testdata/full.yaml": with, "testdata/network.yaml": ofTheNetwork(charttest.Render(t, charttest.Lavish)),
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
	for _, object := range charttest.Render(
		t, "controllerManager.replicas=2", "auth.ingress.enable=true", "auth.ingress.host=liqo.example.org", charttest.Lavish,
	) {
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
	for _, object := range charttest.Render(t) {
		if object.GetKind() != "Deployment" && object.GetKind() != "Job" || object.GetLabels()[labels.AppComponent] == "gateway" {
			continue
		}
		seen++
		pod := []string{"spec", "template", "spec"}
		if charttest.Field(t, object, append(pod, "securityContext", "runAsNonRoot")...) != true ||
			charttest.Field(t, object, append(pod, "securityContext", "seccompProfile", "type")...) != "RuntimeDefault" {
			t.Errorf("%s: security of the pod", object.GetName())
		}
		for _, container := range charttest.Field(t, object, append(pod, "containers")...).([]any) {
			security, _ := container.(map[string]any)["securityContext"].(map[string]any)
			if security["allowPrivilegeEscalation"] != false || security["readOnlyRootFilesystem"] != true || security["capabilities"] == nil {
				t.Errorf("%s: security of the container: %v", object.GetName(), security)
			}
		}
	}
	if seen != 7 {
		t.Errorf("%d objects with pods, want 7", seen)
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
		found := images.FindAllStringSubmatch(text(t, charttest.Render(t, test.values...)), -1)
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
	own := text(t, charttest.Render(t, "digest="+digest, "auth.imageName=registry.example.com/own/liqo"))
	if !strings.Contains(own, "registry.example.com/own/liqo:VERSION\n") {
		t.Error("the image of the authentication service is not the one of its value")
	}
}

// TestPrivateRegistry: with the two values of docs/installation.md, or with those of each role, no object names an image of another place: neither
// workloads nor hooks, nor the arguments from which our processes make pods, nor policies.
func TestPrivateRegistry(t *testing.T) {
	const mover = "storage.moverImage=registry.example.com/liqo-mover"
	roles := []string{mover}
	for _, role := range []string{"auth", "controllerManager", "dns", "gateway", "metricAgent", "proxy", "route", "uninstaller", "virtualKubelet"} {
		roles = append(roles, role+".imageName=registry.example.com/own/"+strings.ToLower(role))
	}
	image, elsewhere := regexp.MustCompile(`registry\.example\.com/[a-z/-]+`), regexp.MustCompile(`.*localhost/liqo.*`)
	for name, test := range map[string]struct {
		set  []string
		want int // different images
	}{
		"as documented": {[]string{"imageName=registry.example.com/liqo", mover}, 2},
		"each role":     {roles, 10},
	} {
		all := text(t, charttest.Render(t, test.set...))
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
		{
			set:     "auth.service.type=ClusterIP,auth.ingress.enable=true,auth.ingress.host=in.example.org,auth.ingress.port=8080",
			address: "in.example.org", port: "8080", target: 8443, ingress: true,
		},
		{
			set:     "auth.ingress.enable=true,auth.ingress.host=in.example.org,auth.config.addressOverride=out.example.org",
			address: "out.example.org", target: 8443, ingress: true,
		},
	} {
		t.Run(test.set, func(t *testing.T) {
			objects := charttest.Render(t, test.set)
			service := charttest.Find(t, objects, "Service", "liqo-auth")
			if typ, has := strings.CutPrefix(strings.Split(test.set, ",")[0], "auth.service.type="); has && charttest.Field(t, service, "spec", "type") != typ {
				t.Errorf("type %v", charttest.Field(t, service, "spec", "type"))
			}
			if got := charttest.Field(t, service, "metadata", "annotations", "liqo.io/override-address"); got != test.address {
				t.Errorf("address %v, want %v", got, test.address)
			}
			if got := charttest.Field(t, service, "metadata", "annotations", "liqo.io/override-port"); got != test.port {
				t.Errorf("port %v, want %v", got, test.port)
			}
			all := text(t, objects)
			if !strings.Contains(all, fmt.Sprintf("containerPort: %d\n", test.target)) || !strings.Contains(all, fmt.Sprintf("--address=:%d\n", test.target)) {
				t.Errorf("the process does not listen on %d", test.target)
			}
			if slices.ContainsFunc(objects, func(one *unstructured.Unstructured) bool { return one.GetKind() == "Ingress" }) != test.ingress {
				t.Errorf("ingress: want %t", test.ingress)
			}
		})
	}
}

// TestAuthTraffic: the service sees the addresses of its clients where the administrator has set that.
func TestAuthTraffic(t *testing.T) {
	for set, want := range map[string]any{
		"auth.service.type=LoadBalancer":                                                                            nil,
		"auth.service.externalTrafficPolicy=Local":                                                                  "Local",
		"auth.service.type=NodePort,auth.service.externalTrafficPolicy=Cluster":                                     "Cluster",
		"auth.service.type=NodePort,auth.service.externalTrafficPolicy=Local,auth.config.addressOverride=a.example": "Local",
	} {
		service := charttest.Find(t, charttest.Render(t, set), "Service", "liqo-auth")
		if got := charttest.Field(t, service, "spec", "externalTrafficPolicy"); got != want {
			t.Errorf("%s: externalTrafficPolicy %v, want %v", set, got, want)
		}
	}
}

// TestMapArguments: labels and annotations reach the flags unchanged, whatever they contain.
func TestMapArguments(t *testing.T) {
	given := map[string]string{"a": "1", "b": `{"x": 1, "y": "2"}`, "c": "one,two", "d": ""}
	values := map[string]any{"virtualKubelet": map[string]any{"extra": map[string]any{"annotations": map[string]any{}}}}
	if err := strvals.ParseInto(charttest.Networks, values); err != nil {
		t.Fatal(err)
	}
	for key, value := range given {
		charttest.Set(values, "virtualKubelet.extra.annotations."+key, value)
	}
	objects, err := charttest.RenderValues(t, nil, values)
	if err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	got := flags.StringToString("kubelet-extra-annotations", nil, "")
	containers := charttest.Field(t, charttest.Find(t, objects, "Deployment", "liqo-controller-manager"), "spec", "template", "spec", "containers").([]any)
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
		"auth.service.type=ClusterIP,auth.service.externalTrafficPolicy=Local": "auth.service.externalTrafficPolicy",
		"auth.service.type=NodePort,auth.service.externalTrafficPolicy=Local":  "only the node of the pod answers",
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
		"dns.metrics.podMonitor.enabled=true":                    "dns.metrics.podMonitor.enabled: there are no metrics to read",
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
		if _, err := charttest.TryRender(t, nil, set); err == nil || !strings.Contains(err.Error(), want) {
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
	if _, err := charttest.RenderValues(t, nil, values); err != nil {
		t.Error(err)
	}
}
