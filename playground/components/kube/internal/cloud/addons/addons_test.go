// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"liqo.io/liqo/playground/components/kube/internal/cloud/settings"
	"liqo.io/liqo/playground/components/kube/internal/cloud/settingstest"
)

func TestRenderAddons(t *testing.T) {
	bare := settingstest.Example()
	bare.Nodes = nil
	noDNS := settingstest.Example()
	noDNS.Images.CoreDNS = ""
	for name, test := range map[string]struct {
		config  settings.Config
		objects int
		late    []string
	}{
		"all":           {settingstest.Example(), 18, []string{"coredns", "metrics-server"}},
		"no real nodes": {bare, 3, nil},
		"no image":      {noDNS, 12, []string{"metrics-server"}},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := Render(test.config)
			if err != nil {
				t.Fatal(err)
			}
			var late []string
			for _, one := range all {
				if one.late {
					late = append(late, filepath.Base(one.Path))
				}
			}
			if len(all) != test.objects || !slices.Equal(late, test.late) {
				t.Errorf("%d objects, late %v", len(all), late)
			}
		})
	}
}

// TestProbesForgive: no probe restarts an add-on because the API server is away or the machine is slow. A restarted metrics server waits in its
// back-off, and until its aggregated API answers again Kubernetes deletes no namespace.
func TestProbesForgive(t *testing.T) {
	all, err := Render(settingstest.Example())
	if err != nil {
		t.Fatal(err)
	}
	lasts := func(probe *corev1.Probe) time.Duration {
		return time.Duration(probe.PeriodSeconds) * time.Second * time.Duration(probe.FailureThreshold)
	}
	checked := 0
	for _, one := range all {
		if !strings.Contains(one.Path, "/deployments/") {
			continue
		}
		var deployment appsv1.Deployment
		if err := yaml.UnmarshalStrict(one.body, &deployment); err != nil {
			t.Fatal(err)
		}
		for _, container := range deployment.Spec.Template.Spec.Containers {
			checked++
			start, alive := container.StartupProbe, container.LivenessProbe
			if start == nil || start.TimeoutSeconds < 5 || lasts(start) < 30*time.Minute {
				t.Errorf("%s: the start of %s is given up too early: %+v", one.Path, container.Name, start)
			}
			if alive == nil || alive.TimeoutSeconds < 10 || lasts(alive) < 2*time.Minute {
				t.Errorf("%s: %s is restarted too early: %+v", one.Path, container.Name, alive)
			}
		}
	}
	if checked != 2 {
		t.Errorf("%d containers of add-ons, want two", checked)
	}
}

func TestRenderedValues(t *testing.T) {
	all, err := Render(settingstest.Example())
	if err != nil {
		t.Fatal(err)
	}
	data := func(path, key string) string {
		t.Helper()
		at := slices.IndexFunc(all, func(m Manifest) bool { return m.Path == path })
		if at < 0 {
			t.Fatalf("nothing at %s", path)
		}
		var config corev1.ConfigMap
		if err := yaml.UnmarshalStrict(all[at].body, &config); err != nil {
			t.Fatal(err)
		}
		return config.Data[key]
	}
	var kubeadm struct {
		APIVersion, Kind, ClusterName, ControlPlaneEndpoint, KubernetesVersion string
		Networking                                                             struct{ DNSDomain, PodSubnet, ServiceSubnet string }
	}
	if err := yaml.UnmarshalStrict([]byte(data("/api/v1/namespaces/kube-system/configmaps/kubeadm-config", "ClusterConfiguration")), &kubeadm); err != nil {
		t.Fatal(err)
	}
	if kubeadm.Networking.ServiceSubnet != "10.90.0.0/12" || kubeadm.Networking.PodSubnet != "10.200.0.0/16" || kubeadm.APIVersion != "kubeadm.k8s.io/v1beta4" {
		t.Errorf("kubeadm-config holds %+v", kubeadm)
	}
	// liqoctl install lets its agents verify the kubelets only if this is set.
	var kubelet struct {
		APIVersion, Kind, ClusterDomain string
		ClusterDNS                      []string
		ServerTLSBootstrap              bool
	}
	if err := yaml.UnmarshalStrict([]byte(data("/api/v1/namespaces/kube-system/configmaps/kubelet-config", "kubelet")), &kubelet); err != nil {
		t.Fatal(err)
	}
	if !kubelet.ServerTLSBootstrap || !slices.Equal(kubelet.ClusterDNS, []string{"10.80.0.10"}) || kubelet.Kind != "KubeletConfiguration" {
		t.Errorf("kubelet-config holds %+v", kubelet)
	}
	for line := range strings.Lines(data("/api/v1/namespaces/kube-system/configmaps/coredns", "Corefile")) {
		if strings.Contains(line, "{") && strings.Contains(line, "}") {
			t.Errorf("a Corefile block must not be on one line: %q", line)
		}
	}
}
