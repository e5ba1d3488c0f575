// SPDX-License-Identifier: Apache-2.0

package install

import (
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/action/provider"
)

// objects reads the objects of a kind of cluster.
func objects(t *testing.T, name string) (all []client.Object) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, object)
	}
	return all
}

// TestKinds: from the objects that each kind of cluster has, an installation with and without the name of the kind gets the same, right values.
func TestKinds(t *testing.T) {
	for _, test := range []struct {
		objects, host string
		change        func(client.Object)
		kind          provider.Kind
		overrides     provider.Overrides
		want          string // pods, Services, API server, type of Services, label of the cluster, kubelets; or words of the error
	}{
		{objects: "kubeadm", host: "https://192.0.2.10:6443", kind: provider.Kubeadm, want: "10.244.0.0/16 10.96.0.0/12 https://192.0.2.10:6443 - kubeadm insecure"},
		{
			objects: "kubeadm", host: "https://192.0.2.10:6443", kind: provider.Kubeadm, overrides: provider.Overrides{ServiceType: "ClusterIP", APIServer: "https://api.example.org", AnyAPIServer: true},
			want: "10.244.0.0/16 10.96.0.0/12 https://api.example.org ClusterIP kubeadm insecure",
		},
		{
			objects: "kubeadm", host: "https://192.0.2.10:6443", kind: provider.Kubeadm,
			change: func(object client.Object) { // older versions: only the arguments of the controller manager
				if record, is := object.(*unstructured.Unstructured); is && object.GetName() == "kubeadm-config" {
					_ = unstructured.SetNestedField(record.Object, "kind: ClusterConfiguration\n", "data", "ClusterConfiguration")
				}
			},
			want: "10.244.0.0/16 10.96.0.0/12 https://192.0.2.10:6443 - kubeadm insecure",
		},
		{objects: "kubeadm-calico", host: "https://192.0.2.10:6443", kind: provider.Kubeadm, want: "pod kube-system/coredns-7c65d6cfc9-abcde has address 192.168.45.2, which is not in 172.16.0.0/16; correct --pod-cidr"},
		{
			objects: "kubeadm-calico", host: "https://192.0.2.10:6443", kind: provider.Kubeadm, overrides: provider.Overrides{PodCIDR: "192.168.0.0/16"},
			want: "192.168.0.0/16 10.96.0.0/12 https://192.0.2.10:6443 - kubeadm insecure watch",
		},
		{objects: "kind", host: "https://127.0.0.1:41873", kind: provider.KinD, want: "10.200.0.0/16 10.80.0.0/12 - NodePort kind insecure"},
		{objects: "kind", host: "https://127.0.0.1:41873", kind: provider.KinD, overrides: provider.Overrides{ServiceType: "LoadBalancer"}, want: "10.200.0.0/16 10.80.0.0/12 - LoadBalancer kind insecure"},
		{objects: "k3s", host: "https://127.0.0.1:6443", kind: provider.K3s, want: "10.42.0.0/16 10.43.0.0/16 - NodePort k3s"},
		{objects: "k3s", host: "https://192.0.2.20:6443", kind: provider.K3s, want: "10.42.0.0/16 10.43.0.0/16 https://192.0.2.20:6443 NodePort k3s"},
		{ // the documentation skips this check on k3s
			objects: "k3s", host: "https://127.0.0.1:6443", kind: provider.K3s, overrides: provider.Overrides{APIServer: "https://192.0.2.20:6443"},
			want: "10.42.0.0/16 10.43.0.0/16 https://192.0.2.20:6443 NodePort k3s",
		},
		{
			objects: "k3s", host: "https://127.0.0.1:6443", kind: provider.K3s, change: func(object client.Object) {
				if record := object.(*unstructured.Unstructured); object.GetName() == "kubernetes" {
					_ = unstructured.SetNestedField(record.Object, "10.53.0.1", "spec", "clusterIP") // k3s server --service-cidr
				}
			}, want: "Service default/kubernetes has address 10.53.0.1, which is not in 10.43.0.0/16; correct --service-cidr",
		},
	} {
		for _, kind := range []provider.Kind{test.kind, provider.Auto} {
			all := objects(t, test.objects)
			for _, object := range all {
				if test.change != nil {
					test.change(object)
				}
			}
			facts, err := read(t.Context(), fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(all...).Build(), test.host)
			if err != nil {
				t.Fatal(err)
			}
			overrides := test.overrides
			overrides.Kind, overrides.ClusterName = kind, "rome"
			plan, err := provider.Decide(facts, overrides)
			have := ""
			if err != nil {
				have = err.Error()
			} else {
				have = chosen(t, plan, overrides)
			}
			if have != test.want {
				t.Errorf("%s, kind %q, API server %s, %+v:\n%s, want\n%s", test.objects, kind, test.host, test.overrides, have, test.want)
			}
		}
	}
}

// chosen returns what the values of the chart are for a plan.
func chosen(t *testing.T, plan provider.Plan, overrides provider.Overrides) string {
	t.Helper()
	p := &Prepared{Plan: plan, options: Options{Overrides: overrides}}
	values, err := plainValues(p.values(map[string]any{}))
	if err != nil {
		t.Fatal(err)
	}
	text := func(path ...string) string {
		found, _, _ := unstructured.NestedString(values, path...)
		if found == "" {
			return "-"
		}
		return found
	}
	serviceType := text("auth", "service", "type")
	if other := text("gateway", "service", "type"); other != serviceType {
		t.Errorf("Services of gateways are %s, those of the authentication service %s", other, serviceType)
	}
	words := []string{
		text("networkManager", "config", "podCIDR"), text("networkManager", "config", "serviceCIDR"), text("apiServer", "address"), serviceType,
		text("discovery", "config", "clusterLabels", labels.Provider),
	}
	p.Values = values
	if p.UnverifiedKubelets() {
		words = append(words, "insecure")
	}
	if watch, _, _ := unstructured.NestedBool(values, "gateway", "config", "watchPods"); watch {
		words = append(words, "watch")
	}
	return strings.Join(words, " ")
}
