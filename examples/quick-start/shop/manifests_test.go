// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// manifests are the objects of one file.
type manifests struct {
	pods     map[string]corev1.PodTemplateSpec // by name of the pod or Deployment
	services map[string]corev1.Service
	configs  map[string]corev1.ConfigMap
	secrets  map[string]corev1.Secret
}

func load(t *testing.T, file string) manifests {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "manifests", file))
	if err != nil {
		t.Fatal(err)
	}
	m := manifests{map[string]corev1.PodTemplateSpec{}, map[string]corev1.Service{}, map[string]corev1.ConfigMap{}, map[string]corev1.Secret{}}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var kind metav1.TypeMeta
		document += "\n" // which belongs to it, and to a text at its end
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			t.Fatal(err)
		}
		read := func(into any) {
			if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
				t.Fatalf("%s: %v:\n%s", file, err, document)
			}
		}
		switch kind.Kind {
		case "Pod":
			var pod corev1.Pod
			read(&pod)
			m.pods[pod.Name] = corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
		case "Deployment":
			var deployment appsv1.Deployment
			read(&deployment)
			m.pods[deployment.Name] = deployment.Spec.Template
			if selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector); err != nil || !selector.Matches(labels.Set(deployment.Spec.Template.Labels)) {
				t.Errorf("Deployment %s selects other pods than its own", deployment.Name)
			}
		case "Service":
			var service corev1.Service
			read(&service)
			m.services[service.Name] = service
		case "ConfigMap":
			var config corev1.ConfigMap
			read(&config)
			m.configs[config.Name] = config
		case "Secret":
			var secret corev1.Secret
			read(&secret)
			m.secrets[secret.Name] = secret
		default:
			t.Errorf("%s: a %q is not looked at by this test", file, kind.Kind)
		}
	}
	return m
}

func TestHelloWorld(t *testing.T) {
	m := load(t, "hello-world.yaml")
	checkPods(t, m)
	checkServices(t, m)
	if len(m.pods) != 2 || bound(m.pods["nginx-local"]) != corev1.NodeSelectorOpNotIn || bound(m.pods["nginx-remote"]) != corev1.NodeSelectorOpIn {
		t.Error("want nginx-local bound to nodes that are not virtual, and nginx-remote to those that are")
	}
	if service := m.services["liqo-demo"]; len(behind(m, service)) != 2 || service.Spec.Ports[0].Port != 80 {
		t.Error("want both pods behind port 80 of the Service liqo-demo")
	}
}

func TestDemoApplication(t *testing.T) {
	m := load(t, "demo-application/shop.yaml")
	checkPods(t, m)
	checkServices(t, m)
	for _, service := range services {
		if _, ok := m.pods[service]; !ok {
			t.Errorf("no Deployment %s", service)
		}
		if want := map[bool]corev1.NodeSelectorOperator{true: corev1.NodeSelectorOpNotIn}[service == "frontend"]; bound(m.pods[service]) != want {
			t.Errorf("%s is bound by %q, want %q: kubectl port-forward needs the frontend here, and nothing else is bound", service, bound(m.pods[service]), want)
		}
	}
	if service := m.services["frontend-external"]; service.Spec.Type != corev1.ServiceTypeLoadBalancer || !slices.Equal(behind(m, service), []string{"frontend"}) {
		t.Error("want the frontend behind a LoadBalancer frontend-external")
	}

	// The environment: what is set is read, and leads to a Service.
	settings := m.configs["shop"].Data
	known := map[string]bool{}
	c, err := configOf("cart", func(name string) string { known[name] = true; return settings[name] })
	if err != nil {
		t.Fatal(err)
	}
	for name := range settings {
		if !known[name] {
			t.Errorf("the program does not read %s", name)
		}
	}
	for _, address := range []string{c.catalogue, c.cart, c.currency, c.shipping, c.recommendation, c.orders, c.redis} {
		host, port, _ := net.SplitHostPort(address)
		if service, ok := m.services[host]; !ok || strconv.Itoa(int(service.Spec.Ports[0].Port)) != port {
			t.Errorf("no Service at %s", address)
		}
	}

	// The data, through the same code as in the cluster.
	dir := t.TempDir()
	for name, text := range m.configs["shop-data"].Data {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if products, err := (&catalogue{file: filepath.Join(dir, "products.json")}).products(); err != nil || len(products) < 5 {
		t.Errorf("%d products, error %v", len(products), err)
	}
	if rates, err := (&currency{file: filepath.Join(dir, "rates.json")}).rates(); err != nil || rates[defaultCurrency] == 0 {
		t.Errorf("rates %v, error %v", rates, err)
	}

	// The password: Redis includes the file that the others read, and all three get it from the Secret.
	folder, key := path.Split(settings["SHOP_REDIS_AUTH"])
	if !strings.HasPrefix(m.secrets["redis-auth"].StringData[key], "requirepass ") ||
		!strings.Contains(m.configs["shop-data"].Data["redis.conf"], "include "+folder+key+"\n") {
		t.Errorf("the Secret has no key %s with requirepass, or Redis does not include it", key)
	}
	for _, name := range []string{"redis", "cart", "orders"} {
		spec := m.pods[name].Spec
		i := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Secret != nil && v.Secret.SecretName == "redis-auth" })
		if i < 0 || !slices.ContainsFunc(spec.Containers[0].VolumeMounts, func(v corev1.VolumeMount) bool {
			return v.Name == spec.Volumes[i].Name && v.MountPath+"/" == folder
		}) {
			t.Errorf("%s does not see the Secret redis-auth at %s", name, folder)
		}
	}
}

// checkPods checks that the pods meet the requirements of a provider, and match the program and the Makefile.
func checkPods(t *testing.T, m manifests) {
	t.Helper()
	makefile, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for name, pod := range m.pods {
		if len(pod.Spec.Containers) != 1 {
			t.Errorf("%s: %d containers", name, len(pod.Spec.Containers))
			continue
		}
		container := pod.Spec.Containers[0]
		if !strings.Contains(string(makefile), " --name "+container.Image+" -o bin/") || container.ImagePullPolicy != corev1.PullIfNotPresent {
			t.Errorf("%s: image %s, pulled %s; the Makefile makes no such image, or no node could have it", name, container.Image, container.ImagePullPolicy)
		}
		if roles[container.Args[0]] == nil && name != "redis" {
			t.Errorf("%s: the program has no service %s", name, container.Args[0])
		}
		inPod, inContainer := pod.Spec.SecurityContext, container.SecurityContext
		if inPod == nil || inContainer == nil || !*inPod.RunAsNonRoot ||
			inPod.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || *inContainer.AllowPrivilegeEscalation ||
			!*inContainer.ReadOnlyRootFilesystem || !slices.Equal(inContainer.Capabilities.Drop, []corev1.Capability{"ALL"}) || *pod.Spec.AutomountServiceAccountToken {
			t.Errorf("%s does not keep to the Pod Security Standard \"restricted\", or has a token that it does not need", name)
		}
		if container.ReadinessProbe == nil || container.LivenessProbe == nil {
			t.Errorf("%s has not both probes", name)
		} else if grpc := container.ReadinessProbe.GRPC; grpc != nil && (grpc.Service == nil || *grpc.Service != readiness) {
			t.Errorf("%s: the readiness probe does not ask for %q", name, readiness)
		}
		if container.Resources.Requests.Cpu().IsZero() || container.Resources.Requests.Memory().IsZero() || container.Resources.Limits.Memory().IsZero() {
			t.Errorf("%s has no resource requests", name)
		}
		for _, source := range container.EnvFrom {
			if _, ok := m.configs[source.ConfigMapRef.Name]; !ok {
				t.Errorf("%s: no ConfigMap %s", name, source.ConfigMapRef.Name)
			}
		}
		for _, volume := range pod.Spec.Volumes {
			_, config := m.configs[nameOf(volume.ConfigMap)]
			secret := volume.Secret != nil && m.secrets[volume.Secret.SecretName].Name != ""
			if !config && !secret {
				t.Errorf("%s: nothing for the volume %s", name, volume.Name)
			}
		}
	}
}

func nameOf(source *corev1.ConfigMapVolumeSource) string {
	if source == nil {
		return ""
	}
	return source.Name
}

func checkServices(t *testing.T, m manifests) {
	t.Helper()
	for name, service := range m.services {
		pods := behind(m, service)
		if len(pods) == 0 {
			t.Errorf("Service %s: nothing behind it", name)
		}
		for _, pod := range pods {
			if !slices.ContainsFunc(m.pods[pod].Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool {
				return p.Name == service.Spec.Ports[0].TargetPort.StrVal
			}) {
				t.Errorf("Service %s: %s has no port %s", name, pod, service.Spec.Ports[0].TargetPort.StrVal)
			}
		}
	}
}

// behind returns the names of the pods that a Service selects, sorted.
func behind(m manifests, service corev1.Service) (names []string) {
	for name, pod := range m.pods {
		if len(service.Spec.Selector) > 0 && labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// bound returns the operator of the pod's condition on liqo.io/type, empty if it has none.
func bound(pod corev1.PodTemplateSpec) corev1.NodeSelectorOperator {
	affinity := pod.Spec.Affinity
	if affinity == nil {
		return ""
	}
	term := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0]
	if term.Key != "liqo.io/type" || !slices.Equal(term.Values, []string{"virtual-node"}) {
		return "other"
	}
	return term.Operator
}
