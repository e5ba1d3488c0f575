// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"liqo.io/liqo/playground/components/kube/internal/cloud/settings"
)

func newService(name string, change func(*corev1.Service)) *corev1.Service {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if change != nil {
		change(service)
	}
	return service
}

// balancerView holds the test's assertions about Services.
type balancerView struct {
	*testing.T
	*controlPlane
	nodes map[string]settings.Node
}

func (v balancerView) create(name string, change func(*corev1.Service)) {
	v.Helper()
	if _, err := v.client.CoreV1().Services("default").Create(v.Context(), newService(name, change), metav1.CreateOptions{}); err != nil {
		v.Fatal(err)
	}
}

func (v balancerView) remove(name string) {
	v.Helper()
	if err := v.client.CoreV1().Services("default").Delete(v.Context(), name, metav1.DeleteOptions{}); err != nil {
		v.Fatal(err)
	}
}

func (v balancerView) has(name, address string) {
	v.Helper()
	eventually(v.T, name+" has address "+address, func() bool {
		service, err := v.client.CoreV1().Services("default").Get(v.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		ingress := service.Status.LoadBalancer.Ingress
		if address == "" {
			return len(ingress) == 0
		}
		return len(ingress) == 1 && ingress[0].IP == address && *ingress[0].IPMode == corev1.LoadBalancerIPModeVIP
	})
}

func (v balancerView) warned(kind, name, part string) {
	v.Helper()
	eventually(v.T, "event of "+name+" with "+part, func() bool {
		events, err := v.client.CoreV1().Events("default").
			List(v.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=" + kind + ",involvedObject.name=" + name})
		return err == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.Type == corev1.EventTypeWarning && strings.Contains(e.Message, part)
		})
	})
}

// holders returns the nodes whose kernel answers for an address.
func (v balancerView) holders(address string) (names []string) {
	v.Helper()
	for name, node := range v.nodes {
		withKernel(v.T, node, func(k *kernel) {
			have, err := k.addresses(mustPool(v.T, "10.210.1.200-10.210.1.201"))
			if err != nil {
				v.Fatal(err)
			}
			if slices.Contains(have, netip.MustParseAddr(address)) {
				names = append(names, name)
			}
		})
	}
	return names
}

func testLoadBalancer(t *testing.T, c *controlPlane, config settings.Config) {
	v := balancerView{t, c, config.Nodes}
	v.create("foreign", func(s *corev1.Service) { s.Spec.LoadBalancerClass = ptr.To("example.com/other") })
	v.create("pinned", func(s *corev1.Service) { s.Annotations = map[string]string{addressAnnotation: "10.210.1.201"} })
	v.has("pinned", "10.210.1.201")
	v.create("web", func(s *corev1.Service) { s.Spec.LoadBalancerClass = ptr.To(loadBalancerClass) })
	v.has("web", "10.210.1.200")
	v.create("late", nil)
	v.warned("Service", "late", "all addresses of the pool 10.210.1.200-10.210.1.201 are in use")
	v.has("late", "")
	v.remove("pinned")
	v.has("late", "10.210.1.201")
	v.has("foreign", "")

	var first []string
	eventually(t, "one node answers for web", func() bool { first = v.holders("10.210.1.200"); return len(first) == 1 })
	setReady(t, c, first[0], corev1.ConditionUnknown)
	eventually(t, "the other node answers", func() bool { now := v.holders("10.210.1.200"); return len(now) == 1 && now[0] != first[0] })
	setReady(t, c, first[0], corev1.ConditionTrue)
	eventually(t, "the first answers again", func() bool { return slices.Equal(v.holders("10.210.1.200"), first) })

	patch := []byte(`{"spec":{"type":"ClusterIP","loadBalancerClass":null}}`)
	if _, err := c.client.CoreV1().Services("default").Patch(t.Context(), "web", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	v.has("web", "")
	v.remove("late")
	eventually(t, "no node answers any more", func() bool { return len(v.holders("10.210.1.200"))+len(v.holders("10.210.1.201")) == 0 })
}

func testLocalEndpoints(t *testing.T, c *controlPlane, config settings.Config) {
	v := balancerView{t, c, config.Nodes}
	v.create("local", func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal })
	v.has("local", "10.210.1.200")
	if names := v.holders("10.210.1.200"); len(names) != 0 {
		t.Errorf("without a local endpoint %v answer", names)
	}
	endpoints := func(node string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: "local-1", Namespace: "default", Labels: map[string]string{discoveryv1.LabelServiceName: "local"}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.200.0.5"}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
		}
	}
	slices := c.client.DiscoveryV1().EndpointSlices("default")
	if _, err := slices.Create(t.Context(), endpoints("rome-worker"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	answers := func(name string) {
		t.Helper()
		eventually(t, name+" answers", func() bool { now := v.holders("10.210.1.200"); return len(now) == 1 && now[0] == name })
	}
	answers("rome-worker")
	if _, err := slices.Update(t.Context(), endpoints("rome-control-plane"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	answers("rome-control-plane")
}
