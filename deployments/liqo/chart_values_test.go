// SPDX-License-Identifier: Apache-2.0

package liqo_test

import (
	"encoding/json"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"sigs.k8s.io/yaml"

	liqo "liqo.io/liqo/deployments/liqo"
	"liqo.io/liqo/deployments/liqo/charttest"
)

// other holds values that differ from the default, where a value derived from the type would be refused.
var other = map[string]any{
	"pullPolicy":                                              "Always",
	"imagePullSecrets":                                        []any{map[string]any{"name": "registry"}},
	"digest":                                                  "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
	"storage.moverDigest":                                     "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
	"apiServer.address":                                       "https://api.example.org",
	"auth.config.portOverride":                                "8443",
	"auth.service.type":                                       "NodePort",
	"auth.ingress.host":                                       "other.example.org",
	"discovery.config.clusterName":                            strings.Repeat("m", 63),
	"gateway.config.wireguardImplementation":                  "userspace",
	"telemetry.enable":                                        true,
	"openshiftConfig.virtualKubeletSCCs":                      []any{"privileged"},
	"discovery.config.clusterIDOverride":                      "0d3e7b3e-0000-4000-8000-000000000000",
	"controllerManager.config.resourcePluginAddress":          "plugin:6001",
	"controllerManager.config.peerPodSecurity":                "privileged",
	"controllerManager.config.offerUpdateThresholdPercentage": "7",
	"controllerManager.config.maxPeerBytes":                   "1Gi",
	"peers.totals":                                            map[string]any{"services": "7"},
	"peers.allBytes":                                          "2Gi",
	"peers.writes.bytesPerSecond":                             "2Mi",
	"peers.writes.burst":                                      "128Mi",
	"peers.writes.allBytesPerSecond":                          "3Mi",
	"peers.writes.allBurst":                                   "256Mi",
	"networking.config.traffic":                               "offloaded",
	"controllerManager.config.peerQuota":                      map[string]any{"secrets": "7"},
	"controllerManager.config.peerContainerLimits":            map[string]any{"ephemeral-storage": "7Gi"},
	"controllerManager.config.peerContainerRequests":          map[string]any{"cpu": "7m"},
	"controllerManager.config.peerMemoryVolume":               "7Mi",
	"networkManager.config.podCIDR":                           "10.1.0.0/16",
	"networkManager.config.serviceCIDR":                       "10.2.0.0/16",
	"networkManager.config.reservedSubnets":                   []any{"10.3.0.0/16"},
	"controllerManager.config.peerNamespaces.allow":           []any{"shop-*"},
	"controllerManager.config.peerNamespaces.deny":            []any{"shop-admin"},
	"networkPolicies.metricsFrom":                             []any{map[string]any{"podSelector": map[string]any{}}},
	"peers.isolation.clients":                                 []any{map[string]any{"podSelector": map[string]any{}}},
	"peers.isolation.servers":                                 []any{map[string]any{"podSelector": map[string]any{}}},
	"peers.isolation.dns":                                     []any{map[string]any{"podSelector": map[string]any{}}},
	"policies":                                                "ifPossible",
	"common.tolerations":                                      []any{map[string]any{"key": "a", "operator": "Exists"}},
	"webhook.failurePolicy":                                   "Ignore",
	"dns.metrics.port":                                        8090.0,
	"dns.metrics.podMonitor.interval":                         "30s",
	"dns.metrics.podMonitor.scrapeTimeout":                    "5s",
	"virtualKubelet.metrics.podMonitor.interval":              "30s",
	"virtualKubelet.metrics.podMonitor.scrapeTimeout":         "5s",
	"gateway.config.portOverride":                             "8443",
	"gateway.config.webSocketURL":                             "https://other.example.org",
	"gateway.service.streamType":                              "ClusterIP",
	"gateway.metrics.port":                                    5880.0,
	"gateway.service.type":                                    "NodePort",
	"proxy.service.type":                                      "NodePort",
	"auth.service.externalTrafficPolicy":                      "Local",
	"gateway.service.externalTrafficPolicy":                   "Local",
	"gateway.metrics.serviceMonitor.interval":                 "30s",
	"gateway.metrics.serviceMonitor.scrapeTimeout":            "5s",
	"gateway.config.proxyResolvesNames":                       true,
	"gateway.config.privateEndpoints":                         false,
	"networkConfig.mtu":                                       1340.0,
	"networkManager.config.additionalPools":                   []any{"100.64.0.0/10"},
	"networkManager.config.remapPools":                        []any{"250.0.0.0/8"},
	"networkManager.config.unmappedNetworks":                  []any{"10.60.0.0/14"},
	"peers.services.types":                                    []any{"ExternalName"},
	"peers.services.refusedExternalNames":                     []any{"example.org"},
	"peers.services.refusedLoadBalancerPorts":                 []any{"25"},
	"peers.services.loadBalancerClasses":                      []any{"example.org/class"},
	"peers.ingresses.hosts":                                   []any{"shop.example.org"},
	"peers.ingresses.classes":                                 []any{"internal"},
	"peers.images.allow":                                      []any{"registry.example.org/*"},
	"peers.images.deny":                                       []any{"registry.example.org/*"},
	"peers.tolerations":                                       []any{"gpu"},
	"dns.openNamespaces":                                      []any{"storage"},
	"peers.customResources":                                   []any{"widgets.example.com"},
	"virtualKubelet.customResources":                          []any{"widgets.example.com"},
	"peers.storageClasses":                                    []any{"gold"},
	"peers.budgets":                                           false,
	"storage.reclaimPolicy":                                   "Retain",
	"storage.virtualStorageClasses":                           map[string]any{"fast": map[string]any{"reclaimPolicy": "Retain"}},
}

// with holds what must be set for a value to have an effect, by the prefix of its path; the values set there are tested without it.
var with = map[string]string{
	"auth.ingress.":                      "auth.ingress.enable=true,auth.ingress.host=liqo.example.org",
	"dns.metrics.":                       "dns.metrics.enabled=true",
	"dns.metrics.podMonitor.":            "dns.metrics.enabled=true,dns.metrics.podMonitor.enabled=true",
	"virtualKubelet.metrics.":            "virtualKubelet.metrics.enabled=true",
	"virtualKubelet.metrics.podMonitor.": "virtualKubelet.metrics.enabled=true,virtualKubelet.metrics.podMonitor.enabled=true",
	"gateway.":                           charttest.Internal,
	"gateway.config.webSocketURL":        charttest.Internal + ",gateway.config.streamPort=443",
	"gateway.service.streamType":         charttest.Internal + ",gateway.config.streamPort=443",
	"gateway.ingress.": charttest.Internal +
		",gateway.config.streamPort=443,gateway.config.webSocketURL=https://liqo.example.org,gateway.ingress.enable=true",
	"gateway.metrics.":                              charttest.Internal + ",gateway.metrics.enabled=true",
	"gateway.metrics.serviceMonitor.":               charttest.Internal + ",gateway.metrics.enabled=true,gateway.metrics.serviceMonitor.enabled=true",
	"route.":                                        charttest.Internal,
	"networkConfig.":                                charttest.Internal,
	"peers.metadata.customResources.":               "peers.customResources={widgets.example.com}",
	"controllerManager.config.resourcePluginSecret": "controllerManager.config.resourcePluginAddress=plugin:6001",
}

// TestEveryValueMatters: every value changes some object, except documented ones that are listed without effect.
func TestEveryValueMatters(t *testing.T) {
	bare := map[string][]*unstructured.Unstructured{}
	table := withoutEffect(t)
	for path, value := range leaves(t) {
		if entry, without := table[path]; without && entry.Only == "" {
			continue
		}
		conditions, longest := "", ""
		for prefix, set := range with {
			if strings.HasPrefix(path, prefix) && len(prefix) > len(longest) && path != prefix+"enable" && path != prefix+"enabled" {
				conditions, longest = set, prefix
			}
		}
		switch path {
		case "auth.ingress.enable":
			conditions = "auth.ingress.host=liqo.example.org"
		case "gateway.ingress.enable":
			conditions = charttest.Internal + ",gateway.config.streamPort=443,gateway.config.webSocketURL=https://liqo.example.org"
		case "gateway.metrics.enabled":
			conditions = charttest.Internal
		case "gateway.metrics.serviceMonitor.enabled":
			conditions = with["gateway.metrics."]
		}
		if bare[conditions] == nil {
			bare[conditions] = charttest.Render(t, conditions)
		}
		values := charttest.Values(t, conditions)
		charttest.Set(values, path, another(t, path, value))
		objects, err := charttest.RenderValues(t, nil, values)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if same(t, objects, bare[conditions]) {
			t.Errorf("%s: no template uses it", path)
		}
	}
}

// same reports whether two renderings differ in chance at most. Only objects that are not equal are written as text, which takes longer than to render.
func same(t *testing.T, a, b []*unstructured.Unstructured) bool {
	t.Helper()
	if len(a) != len(b) {
		return false
	}
	var ofA, ofB []*unstructured.Unstructured
	for i := range a {
		if !reflect.DeepEqual(a[i].Object, b[i].Object) {
			ofA, ofB = append(ofA, a[i]), append(ofB, b[i])
		}
	}
	return text(t, ofA) == text(t, ofB)
}

// TestUnknownValues: an unknown value is refused by name, on every level.
func TestUnknownValues(t *testing.T) {
	levels := map[string]bool{"": true}
	known := leaves(t)
	for path := range withoutEffect(t) {
		if _, here := known["proxy.imageName"]; here || !strings.HasPrefix(path, "proxy.") {
			known[path] = nil
		}
	}
	for path := range known {
		for at := strings.LastIndex(path, "."); at >= 0; at = strings.LastIndex(path[:at], ".") {
			levels[path[:at+1]] = true
		}
	}
	for level := range levels {
		values := map[string]any{}
		charttest.Set(values, level+"surprise", true)
		if _, err := charttest.RenderValues(t, nil, values); err == nil || !strings.Contains(err.Error(), "'surprise' not allowed") {
			t.Errorf("%ssurprise: %v", level, err)
		}
	}
}

// TestSchemaKnowsOnlyValues: every value that the schema allows has a default, and so a row in docs/reference/values.md, or is listed without effect.
func TestSchemaKnowsOnlyValues(t *testing.T) {
	raw, err := fs.ReadFile(liqo.FS, "values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var root map[string]any
	if err := json.Unmarshal(raw, &root); err != nil {
		t.Fatal(err)
	}
	defaults := leaves(t)
	for path := range withoutEffect(t) {
		defaults[path] = nil
	}
	var walk func(prefix string, node map[string]any)
	walk = func(prefix string, node map[string]any) {
		if ref, has := node["$ref"].(string); has {
			node, _, _ = unstructured.NestedMap(root, "definitions", strings.TrimPrefix(ref, "#/definitions/"))
		}
		properties, _ := node["properties"].(map[string]any)
		_, leaf := defaults[prefix]
		if leaf || prefix == "global" {
			return
		}
		if len(properties) == 0 {
			t.Errorf("the schema allows %s, values.yaml does not have it", prefix)
		}
		for name, property := range properties {
			walk(strings.TrimPrefix(prefix+"."+name, "."), property.(map[string]any))
		}
	}
	walk("", root)
}

// free are the values that are maps with free content.
var free = []string{
	"controllerManager.config.peerQuota", "controllerManager.config.peerContainerLimits", "controllerManager.config.peerContainerRequests",
	"peers.totals",
}

// leaves returns the defaults by path. Requests and limits are one value, whose content is free.
func leaves(t *testing.T) map[string]any {
	t.Helper()
	raw, err := fs.ReadFile(liqo.FS, "values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(raw, &values); err != nil {
		t.Fatal(err)
	}
	return flat(values)
}

// flat returns the values by path.
func flat(values map[string]any) map[string]any {
	found := map[string]any{}
	var walk func(prefix string, value any)
	walk = func(prefix string, value any) {
		if inner, is := value.(map[string]any); is && len(inner) > 0 && !strings.HasSuffix(prefix, ".resources") && !slices.Contains(free, prefix) {
			for key, value := range inner {
				walk(strings.TrimPrefix(prefix+"."+key, "."), value)
			}
			return
		}
		found[prefix] = value
	}
	walk("", values)
	return found
}

func another(t *testing.T, path string, value any) any {
	t.Helper()
	if strings.HasPrefix(path, "peers.metadata.") { // a pair of each kind, made from its row
		return []any{"example.org/*"}
	}
	if special, has := other[path]; has {
		return special
	}
	switch value := value.(type) {
	case bool:
		return !value
	case string:
		return value + "other"
	case float64:
		return value + 1
	case []any:
		return []any{"--other=1"}
	case map[string]any:
		if strings.HasSuffix(path, ".resources") {
			return map[string]any{"limits": map[string]any{"memory": "64Mi"}}
		}
		return map[string]any{"other": "1"}
	}
	t.Fatalf("%s: no value other than %v is known; add one to other", path, value)
	return nil
}

// cluster answers the lookups of templates.
type cluster struct{ *fake.FakeDynamicClient }

func (c cluster) GetClientFor(apiVersion, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	version := schema.FromAPIVersionAndKind(apiVersion, kind).GroupVersion()
	return c.Resource(version.WithResource(strings.ToLower(kind) + "s")), true, nil
}

// TestKept: an upgrade changes neither the identity nor a secret, whether the values are set again or not.
func TestKept(t *testing.T) {
	first, err := charttest.RenderValues(t, nil, charttest.Required())
	if err != nil {
		t.Fatal(err)
	}
	var installed []runtime.Object
	for _, object := range first {
		if object.GetKind() == "Secret" || object.GetKind() == "ConfigMap" {
			installed = append(installed, object)
		}
	}
	there := cluster{fake.NewSimpleDynamicClient(runtime.NewScheme(), installed...)}
	second, err := charttest.RenderValues(t, there, charttest.Required())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"liqo-webhook-certs", "liqo-metric-agent-certs", "liqo-clusterid-configmap"} {
		kind := "Secret"
		if strings.HasSuffix(name, "configmap") {
			kind = "ConfigMap"
		}
		before, after := charttest.Find(t, first, kind, name), charttest.Find(t, second, kind, name)
		if data := charttest.Field(t, before, "data"); len(data.(map[string]any)) == 0 ||
			!maps.Equal(data.(map[string]any), charttest.Field(t, after, "data").(map[string]any)) {
			t.Errorf("%s is not the same after an upgrade: %v, %v", name, slices.Sorted(maps.Keys(data.(map[string]any))), charttest.Field(t, after, "metadata"))
		}
	}
	for _, set := range []string{"discovery.config.clusterName=another", "discovery.config.clusterIDOverride=00000000-0000-4000-8000-000000000000"} {
		if _, err := charttest.TryRender(t, there, set); err == nil || !strings.Contains(err.Error(), "which its peers use") {
			t.Errorf("--set %s on an installed cluster: %v", set, err)
		}
	}
}

// TestKeptPercentage: an upgrade with Helm keeps a percentage that was changed in the cluster, which Helm refuses to overwrite, unless the value has
// changed as well. liqoctl decides itself.
func TestKeptPercentage(t *testing.T) {
	sharing := charttest.Find(t, charttest.Render(t), "ConfigMap", "liqo-resource-sharing")
	if err := unstructured.SetNestedField(sharing.Object, "70", "data", "percentage"); err != nil {
		t.Fatal(err)
	}
	there := cluster{fake.NewSimpleDynamicClient(runtime.NewScheme(), sharing)}
	for set, want := range map[string]string{
		"": "70", "controllerManager.config.resourceSharingPercentage=50": "50", "crds.upgrade=false": "30",
	} {
		objects, err := charttest.TryRender(t, there, set)
		if err != nil {
			t.Fatal(err)
		}
		if have := charttest.Field(t, charttest.Find(t, objects, "ConfigMap", "liqo-resource-sharing"), "data", "percentage"); have != want {
			t.Errorf("upgraded with %q: %v percent, want %s", set, have, want)
		}
	}
}

// TestRandom: two installations differ in identity and certificate.
func TestRandom(t *testing.T) {
	make := func() map[string]any {
		objects, err := charttest.RenderValues(t, nil, charttest.Required())
		if err != nil {
			t.Fatal(err)
		}
		data := maps.Clone(charttest.Field(t, charttest.Find(t, objects, "ConfigMap", "liqo-clusterid-configmap"), "data").(map[string]any))
		maps.Copy(data, charttest.Field(t, charttest.Find(t, objects, "Secret", "liqo-webhook-certs"), "data").(map[string]any))
		return data
	}
	one, two := make(), make()
	for key, value := range one {
		if value == two[key] && key != "CLUSTER_NAME" {
			t.Errorf("%s is the same in two clusters", key)
		}
	}
}
