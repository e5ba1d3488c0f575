// SPDX-License-Identifier: Apache-2.0

package liqo_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	klabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/deployments/liqo/charttest"
)

// TestNetworkPolicies: a policy closes each of our pods, except for the ports that it serves; only the ports that nodes and other clusters call are
// open for every address. Kubelets reach the probes in any case.
func TestNetworkPolicies(t *testing.T) {
	open := map[string]string{ // why everything may connect
		"controller-manager webhook": "the API server calls it from any address; its paths are secret",
		"auth auth":                  "other clusters",
		"gateway tunnel":             "other clusters",
		"gateway stream":             "other clusters",
		"dns dns": "some network plugins send packets of pods from addresses of nodes; others get nothing that the DNS of the " +
			"cluster does not give",
		"dns dns-tcp":        "the same",
		"metric-agent https": "the API server calls it from any address, with a client certificate",
	}
	for _, set := range []string{
		"", charttest.Lavish,
		"auth.tls=false,webhook.port=10000,gateway.metrics.enabled=true,gateway.metrics.port=5880,gateway.config.listeningPort=5999",
	} {
		objects := charttest.Render(t, set)
		closed := 0
		for _, object := range objects {
			if object.GetKind() != "Deployment" {
				continue
			}
			deployment := convert[appsv1.Deployment](t, object)
			component := deployment.Labels[labels.AppComponent]
			policy := convert[networkingv1.NetworkPolicy](t, charttest.Find(t, objects, "NetworkPolicy", "liqo-"+component))
			selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
			if err != nil || !selector.Matches(klabels.Set(deployment.Spec.Template.Labels)) ||
				!slices.Equal(policy.Spec.PolicyTypes, []networkingv1.PolicyType{"Ingress"}) {
				t.Errorf("%s: the policy %+v does not select its pods (%v)", component, policy.Spec, err)
			}
			for _, port := range deployment.Spec.Template.Spec.Containers[0].Ports {
				all, some := reach(policy.Spec.Ingress, port.ContainerPort)
				name := component + " " + port.Name
				if port.Name == "health" && (all || some) || port.Name != "health" && !all && !some || all != (open[name] != "") {
					t.Errorf("%s (%s): open for every address %t, for some %t", name, set, all, some)
				}
			}
			closed++
		}
		if closed < 3 {
			t.Errorf("%s: %d policies", set, closed)
		}
	}
	gateway := convert[networkingv1.NetworkPolicy](t, charttest.Find(t, charttest.Render(t, charttest.Internal), "NetworkPolicy", "liqo-gateway"))
	if all, _ := reach(gateway.Spec.Ingress, 4879); !all {
		t.Error("the overlay cannot reach the gateways")
	}
	moved := convert[networkingv1.NetworkPolicy](
		t,
		charttest.Find(t, charttest.Render(t, charttest.Internal, "gateway.pod.extraArgs={--route.vxlan-vtep-port=4999}"), "NetworkPolicy", "liqo-gateway"),
	)
	if all, _ := reach(moved.Spec.Ingress, 4999); !all {
		t.Error("the overlay cannot reach the gateways at another port")
	}
	for _, object := range charttest.Render(t, charttest.Internal, "networkPolicies.enabled=false") {
		if object.GetKind() == "NetworkPolicy" {
			t.Errorf("%s exists although policies are off", object.GetName())
		}
	}
	// The metrics are closed to pods of peers.
	metrics := fmt.Sprint(convert[networkingv1.NetworkPolicy](t, charttest.Find(t, charttest.Render(t), "NetworkPolicy", "liqo-controller-manager")).Spec.Ingress)
	if !strings.Contains(metrics, labels.RemoteClusterID) {
		t.Error(metrics)
	}
}

// reach returns whether every address, or only some, may connect to a port.
func reach(rules []networkingv1.NetworkPolicyIngressRule, port int32) (all, some bool) {
	for _, rule := range rules {
		for _, one := range rule.Ports {
			if one.Port.IntVal == port {
				all, some = all || len(rule.From) == 0, some || len(rule.From) > 0
			}
		}
	}
	return all, some
}

// TestDigests: what limits peers notes what it is, as policies.Guard reads it; without that, it counts as changed, and nothing new of peers is admitted.
func TestDigests(t *testing.T) {
	kinds := map[string]int{"ValidatingAdmissionPolicy": 0, "ValidatingAdmissionPolicyBinding": 0, "ValidatingWebhookConfiguration": 0}
	for _, object := range charttest.Render(t, "peers.images.alwaysPull=true,peers.customResources={widgets.example.org}") {
		number, limits := kinds[object.GetKind()]
		if !limits || object.GetName() == "liqo-install-namespace" { // which limits users of the cluster, by choice
			continue
		}
		kinds[object.GetKind()] = number + 1
		if len(object.GetAnnotations()[labels.SpecDigest]) != 64 {
			t.Errorf("%s %s has no %s: define its template, and end the file with liqo.digested", object.GetKind(), object.GetName(), labels.SpecDigest)
		}
	}
	if kinds["ValidatingAdmissionPolicy"] < 15 || kinds["ValidatingAdmissionPolicyBinding"] < 15 || kinds["ValidatingWebhookConfiguration"] != 1 {
		t.Errorf("the chart has %v", kinds)
	}
}

// TestAttackL4: a pod of a peer that looks like a virtual kubelet does not write our metrics.
func TestAttackL4(t *testing.T) {
	monitor := charttest.Find(
		t, charttest.Render(t, "virtualKubelet.metrics.enabled=true,virtualKubelet.metrics.podMonitor.enabled=true"), "PodMonitor",
		"liqo-virtual-kubelet",
	)
	var selects metav1.LabelSelector
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(charttest.Field(t, monitor, "spec", "selector").(map[string]any), &selects); err != nil {
		t.Fatal(err)
	}
	selector, err := metav1.LabelSelectorAsSelector(&selects)
	if err != nil {
		t.Fatal(err)
	}
	own := klabels.Set{labels.AppName: "virtual-kubelet", labels.AppComponent: "virtual-kubelet", labels.AppPartOf: labels.PartOf}
	forged := klabels.Merge(own, klabels.Set{labels.ManagedBy: labels.ManagedByShadowPod, labels.Origin: "rome-id"}) // the peer cannot change the last two
	if !selector.Matches(own) || selector.Matches(forged) {
		t.Errorf("a virtual kubelet is selected: %t; a pod of a peer: %t", selector.Matches(own), selector.Matches(forged))
	}
}
