// SPDX-License-Identifier: Apache-2.0

package project_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/metadata"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
	"liqo.io/liqo/internal/offloading/shadow"
)

// kubelet gives containers what the kubelet of a cluster gives them (pkg/kubelet/kubelet_pods.go, pkg/fieldpath): variables, files of the downward API, and the
// hosts file. The configuration of the namespace is the same in both clusters, because it is reflected.
type kubelet struct {
	apiServer           string // the address of the Service kubernetes
	configMaps, secrets map[string]map[string]string
}

// home is the kubelet of the consumer, away that of the provider. Their API servers have different addresses.
func home(config map[string]map[string]string) kubelet { return kubelet{"10.80.0.1", config, config} }

func away(config map[string]map[string]string) kubelet { return kubelet{"10.96.0.1", config, config} }

func (k kubelet) services() map[string]string {
	url := "tcp://" + k.apiServer + ":443"
	return map[string]string{
		"KUBERNETES_SERVICE_HOST": k.apiServer, "KUBERNETES_SERVICE_PORT": "443", "KUBERNETES_SERVICE_PORT_HTTPS": "443", "KUBERNETES_PORT": url,
		"KUBERNETES_PORT_443_TCP": url, "KUBERNETES_PORT_443_TCP_PROTO": "tcp", "KUBERNETES_PORT_443_TCP_ADDR": k.apiServer, "KUBERNETES_PORT_443_TCP_PORT": "443",
	}
}

// environment returns the variables of a container, and its arguments.
func (k kubelet) environment(t *testing.T, pod *corev1.Pod, container *corev1.Container) (variables map[string]string, args []string) {
	t.Helper()
	variables = map[string]string{}
	for _, source := range container.EnvFrom {
		var from map[string]string
		if source.ConfigMapRef != nil {
			from = k.configMaps[source.ConfigMapRef.Name]
		} else {
			from = k.secrets[source.SecretRef.Name]
		}
		for key, value := range from {
			variables[source.Prefix+key] = value
		}
	}
	services := k.services()
	value := func(name string) string {
		if value, ok := variables[name]; ok {
			return value
		}
		if value, ok := services[name]; ok {
			return value
		}
		return "$(" + name + ")"
	}
	for _, one := range container.Env {
		result := expand(one.Value, value)
		if from := one.ValueFrom; from != nil {
			var keys map[string]string
			var key string
			switch {
			case from.FieldRef != nil:
				result = field(t, pod, from.FieldRef.FieldPath)
			case from.ConfigMapKeyRef != nil:
				keys, key = k.configMaps[from.ConfigMapKeyRef.Name], from.ConfigMapKeyRef.Key
			case from.SecretKeyRef != nil:
				keys, key = k.secrets[from.SecretKeyRef.Name], from.SecretKeyRef.Key
			}
			if key != "" {
				found, ok := keys[key]
				if !ok {
					continue // it is optional in these tests
				}
				result = found
			}
		}
		variables[one.Name] = result
	}
	for name, value := range services {
		if _, ok := variables[name]; !ok {
			variables[name] = value
		}
	}
	for _, one := range slices.Concat(container.Command, container.Args) {
		args = append(args, expand(one, value))
	}
	return variables, args
}

// expand is k8s.io/kubernetes/third_party/forked/golang/expansion.Expand.
func expand(text string, value func(name string) string) string {
	var b strings.Builder
	for text != "" {
		before, rest, found := strings.Cut(text, "$")
		b.WriteString(before)
		if !found {
			break
		}
		name, after, closed := strings.Cut(strings.TrimPrefix(rest, "("), ")")
		switch {
		case strings.HasPrefix(rest, "$"):
			b.WriteString("$")
			rest = rest[1:]
		case strings.HasPrefix(rest, "(") && closed:
			b.WriteString(value(name))
			rest = after
		default:
			b.WriteString("$")
		}
		text = rest
	}
	return b.String()
}

func field(t *testing.T, pod *corev1.Pod, path string) string {
	t.Helper()
	if start, key, ok := strings.Cut(strings.TrimSuffix(path, "']"), "['"); ok {
		return map[string]map[string]string{"metadata.labels": pod.Labels, "metadata.annotations": pod.Annotations}[start][key]
	}
	listing := func(all map[string]string) string {
		var lines []string
		for _, key := range slices.Sorted(maps.Keys(all)) {
			lines = append(lines, key+"="+strconv.Quote(all[key]))
		}
		return strings.Join(lines, "\n")
	}
	switch path {
	case "metadata.labels":
		return listing(pod.Labels)
	case "metadata.annotations":
		return listing(pod.Annotations)
	case "metadata.name":
		return pod.Name
	case "metadata.namespace":
		return pod.Namespace
	case "metadata.uid":
		return string(pod.UID)
	case "spec.nodeName", "spec.host":
		return pod.Spec.NodeName
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName
	case "status.podIP", "status.podIPs":
		return pod.Status.PodIP
	case "status.hostIP", "status.hostIPs":
		return pod.Status.HostIP
	}
	t.Fatalf("no kubelet knows the field %s", path)
	return ""
}

// files returns the files that the downward API makes in the volumes of a pod, and those of Secrets, by volume and path.
func (k kubelet) files(t *testing.T, pod *corev1.Pod) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, volume := range pod.Spec.Volumes {
		downward := func(items []corev1.DownwardAPIVolumeFile) {
			for _, item := range items {
				all[volume.Name+"/"+item.Path] = field(t, pod, item.FieldRef.FieldPath)
			}
		}
		if volume.DownwardAPI != nil {
			downward(volume.DownwardAPI.Items)
		}
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.DownwardAPI != nil {
				downward(source.DownwardAPI.Items)
			}
			if source.Secret != nil {
				for _, item := range source.Secret.Items {
					all[volume.Name+"/"+item.Path] = k.secrets[source.Secret.Name][item.Key]
				}
			}
			if source.ServiceAccountToken != nil {
				all[volume.Name+"/"+source.ServiceAccountToken.Path] = "token of " + k.apiServer
			}
		}
	}
	return all
}

// hosts returns the addresses of a name by the hosts file of a pod.
func hosts(pod *corev1.Pod, name string) (addresses []string) {
	for _, alias := range pod.Spec.HostAliases {
		if slices.Contains(alias.Hostnames, name) {
			addresses = append(addresses, alias.IP)
		}
	}
	return addresses
}

// joined is how pods reach the API server of home through the network.
func joined() podspec.APIServer {
	return podspec.APIServer{Enabled: true, Address: netip.MustParseAddr("10.60.0.1"), ServicePort: "443", Home: netip.MustParseAddr("10.80.0.1")}
}

// sent returns the pod that a provider of this version makes, and its kubelet runs, for a pod of home.
func sent(t *testing.T, local *corev1.Pod, server podspec.APIServer) *corev1.Pod {
	t.Helper()
	text, err := json.Marshal(mustShadowPod(t, local, podspec.Options{APIServer: server}))
	if err != nil {
		t.Fatal(err)
	}
	var one vkv1alpha1.ShadowPod
	if err := json.Unmarshal(text, &one); err != nil {
		t.Fatal(err)
	}
	if one.Annotations == nil {
		one.Annotations = map[string]string{}
	}
	one.Annotations[labels.Fence] = string(local.UID) // reflection adds it
	if problem := shadow.Check(&one, mapping.LocalID, shadow.Baseline); problem != "" {
		t.Fatalf("the provider refuses the pod: %s", problem)
	}
	pod := shadow.Pod(&one, mapping.LocalID, metadata.Allowed{})
	pod.UID, pod.Spec.NodeName, pod.Spec.EphemeralContainers = "uid-in-milan", "milan-worker", one.Spec.Pod.EphemeralContainers
	pod.Status = corev1.PodStatus{PodIP: "10.200.1.54", HostIP: "10.210.2.11"}
	return pod
}

// containers returns all containers of a pod, by name.
func containers(pod *corev1.Pod) map[string]*corev1.Container {
	all := map[string]*corev1.Container{}
	for i := range pod.Spec.InitContainers {
		all[pod.Spec.InitContainers[i].Name] = &pod.Spec.InitContainers[i]
	}
	for i := range pod.Spec.Containers {
		all[pod.Spec.Containers[i].Name] = &pod.Spec.Containers[i]
	}
	for i := range pod.Spec.EphemeralContainers {
		one := corev1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		all[one.Name] = &one
	}
	return all
}

func sorted(variables map[string]string) (lines []string) {
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		lines = append(lines, fmt.Sprintf("%s=%q", name, variables[name]))
	}
	return lines
}
