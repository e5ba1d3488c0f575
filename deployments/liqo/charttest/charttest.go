// SPDX-License-Identifier: Apache-2.0

// Package charttest renders the chart for tests, as liqoctl does.
//
// It must not know an API server: what looks up objects is given to it. The tests of deployments/liqo prove it, which compare with files.
package charttest

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"helm.sh/helm/v4/pkg/strvals"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	liqo "liqo.io/liqo/deployments/liqo"
)

// certain replaces the random parts of a first installation.
const certain = "discovery.config.clusterName=rome,discovery.config.clusterIDOverride=5b2f0c0e-7f1d-4a38-9c1a-0b6f6a1d2e3c"

// Networks are the values that liqoctl always sets: the internal network, which is the default, needs them.
const Networks = "networkManager.config.podCIDR=10.200.0.0/16,networkManager.config.serviceCIDR=10.80.0.0/12"

// Internal enables the network between clusters.
const Internal = "networking.internal=true," + Networks

// Lavish enables all options of the network.
const Lavish = Internal + ",gateway.replicas=2,gateway.config.addressOverride=gateway.example.org,gateway.config.portOverride=30871,networkConfig.mtu=1340," +
	"gateway.metrics.enabled=true,gateway.metrics.serviceMonitor.enabled=true,networking.reflectIPs=false," +
	"gateway.config.streamPort=443,gateway.config.webSocketURL=https://gateway.example.org:8443/liqo/,gateway.config.proxySecret=proxy," +
	"gateway.service.streamType=ClusterIP,gateway.ingress.enable=true,gateway.ingress.class=nginx," +
	"networkManager.config.reservedSubnets={10.1.0.0/16,10.2.0.0/16},networkManager.config.additionalPools={100.64.0.0/10}," +
	"networkManager.config.unmappedNetworks={10.60.0.0/14},dns.openNamespaces={storage}," +
	"common.nodeSelector.zone=a,common.tolerations[0].key=infra,common.tolerations[0].operator=Exists"

// loadedChart is read only: rendering copies its values.
var loadedChart = sync.OnceValues(func() (*helmchart.Chart, error) {
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
		return nil, err
	}
	return loader.LoadFiles(files)
})

// Load returns the embedded chart. It is shared: do not change it.
func Load(t testing.TB) *helmchart.Chart {
	t.Helper()
	chart, err := loadedChart()
	if err != nil {
		t.Fatal(err)
	}
	return chart
}

// Values returns the values of an installation whose identity is certain, and what is set in addition, as --set takes it.
func Values(t testing.TB, set ...string) map[string]any {
	t.Helper()
	values := map[string]any{}
	for _, one := range append([]string{certain, Networks}, set...) {
		if err := strvals.ParseInto(one, values); err != nil {
			t.Fatalf("--set %s: %v", one, err)
		}
	}
	return values
}

// TryRender renders the embedded chart as liqoctl does, with [Values]. The provider answers lookups; nil is a cluster where nothing is installed yet.
func TryRender(t testing.TB, provider engine.ClientProvider, set ...string) ([]*unstructured.Unstructured, error) {
	t.Helper()
	return RenderValues(t, provider, Values(t, set...))
}

// RenderValues is [TryRender] with a tree of values.
func RenderValues(t testing.TB, provider engine.ClientProvider, values map[string]any) ([]*unstructured.Unstructured, error) {
	t.Helper()
	files, err := RenderFiles(t, provider, values)
	if err != nil {
		return nil, err
	}
	return Parse(files)
}

// RenderFiles returns the rendered templates by their paths.
func RenderFiles(t testing.TB, provider engine.ClientProvider, values map[string]any) (map[string]string, error) {
	t.Helper()
	return RenderFilesFor(t, "v1.34.0", provider, values) // Helm's default in tests is old
}

// RenderFilesFor is [RenderFiles] for a version of Kubernetes.
func RenderFilesFor(t testing.TB, kubernetes string, provider engine.ClientProvider, values map[string]any) (map[string]string, error) {
	t.Helper()
	chart := Load(t)
	capabilities := common.DefaultCapabilities.Copy()
	version, err := common.ParseKubeVersion(kubernetes)
	if err != nil {
		return nil, err
	}
	capabilities.KubeVersion = *version
	capabilities.APIVersions = append(slices.Clone(capabilities.APIVersions),
		"admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy", "flowcontrol.apiserver.k8s.io/v1/FlowSchema",
		"monitoring.coreos.com/v1/PodMonitor", "monitoring.coreos.com/v1/ServiceMonitor")
	all, err := util.ToRenderValues(chart, values, common.ReleaseOptions{Name: "liqo", Namespace: "liqo", IsInstall: true, Revision: 1}, capabilities)
	if err != nil {
		return nil, err
	}
	if provider == nil {
		return engine.Render(chart, all)
	}
	return engine.RenderWithClientProvider(chart, all, provider)
}

// Parse returns the objects of rendered templates.
func Parse(rendered map[string]string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, file := range slices.Sorted(maps.Keys(rendered)) {
		if path.Ext(file) != ".yaml" {
			continue
		}
		for _, document := range separator.Split(rendered[file], -1) {
			object, err := parseDocument(document)
			if err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", file, err, document)
			}
			if len(object.Object) > 0 {
				objects = append(objects, object)
			}
		}
	}
	return objects, nil
}

var separator = regexp.MustCompile(`(?m)^---$`)

// parsed has the object of each document that was parsed: most of hundreds of renderings are alike, and reading YAML takes longer than to render it.
var parsed sync.Map

func parseDocument(document string) (*unstructured.Unstructured, error) {
	if object, done := parsed.Load(document); done {
		return object.(*unstructured.Unstructured).DeepCopy(), nil
	}
	object := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
		return nil, err
	}
	parsed.Store(document, object.DeepCopy())
	return object, nil
}

// Render is [TryRender] without anything installed; an error fails the test.
func Render(t testing.TB, set ...string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := TryRender(t, nil, set...)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// Find returns the object, or fails.
func Find(t testing.TB, objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, object := range objects {
		if object.GetKind() == kind && object.GetName() == name {
			return object
		}
	}
	t.Fatalf("no %s is called %s", kind, name)
	return nil
}

// Field returns the value at the path, or nil.
func Field(t testing.TB, object *unstructured.Unstructured, path ...string) any {
	t.Helper()
	value, _, err := unstructured.NestedFieldNoCopy(object.Object, path...)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// Required returns the values that liqoctl always sets.
func Required() map[string]any {
	values := map[string]any{}
	for _, one := range strings.Split(Networks, ",") {
		key, value, _ := strings.Cut(one, "=")
		Set(values, key, value)
	}
	return values
}

// Set sets a value at a dotted path.
func Set(values map[string]any, path string, value any) {
	_ = unstructured.SetNestedField(values, runtime.DeepCopyJSONValue(value), strings.Split(path, ".")...)
}
