// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// TestServiceChanges: a Service may change to any other type. Each change costs one write in the provider, or two if the object has to be created again. A
// restart costs none, although the API server has set many fields by then.
func TestServiceChanges(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	stop := e.run()
	e.must(e.consumer.Create(t.Context(), service(local, "web")))
	remote := &corev1.Service{ObjectMeta: named(remoteNS, "web")}
	e.until("the copy exists", func() bool { return e.exists(e.provider, remote) })
	e.waitIdle()
	for _, step := range []struct {
		name   string
		change func(*corev1.ServiceSpec)
		is     func(*corev1.ServiceSpec) bool
		most   int
	}{
		{
			"another port", func(s *corev1.ServiceSpec) { s.Ports[0].Port = 81 }, func(s *corev1.ServiceSpec) bool { return len(s.Ports) == 1 && s.Ports[0].Port == 81 },
			1,
		},
		{"two ports", func(s *corev1.ServiceSpec) {
			s.Ports = append(s.Ports, corev1.ServicePort{Name: "dns", Port: 81, Protocol: corev1.ProtocolUDP})
		}, func(s *corev1.ServiceSpec) bool { return len(s.Ports) == 2 }, 1},
		{"node port", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort }, func(s *corev1.ServiceSpec) bool {
			return s.Type == corev1.ServiceTypeNodePort && s.Ports[0].NodePort != 0
		}, 1},
		{
			"load balancer", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer },
			func(s *corev1.ServiceSpec) bool { return s.Type == corev1.ServiceTypeLoadBalancer }, 1,
		},
		{"cluster IP", func(s *corev1.ServiceSpec) {
			s.Type, s.ExternalTrafficPolicy, s.AllocateLoadBalancerNodePorts = corev1.ServiceTypeClusterIP, "", nil
			for i := range s.Ports {
				s.Ports[i].NodePort = 0
			}
		}, func(s *corev1.ServiceSpec) bool {
			return s.Type == corev1.ServiceTypeClusterIP && s.Ports[0].NodePort == 0
		}, 1},
		{"external name", func(s *corev1.ServiceSpec) {
			*s = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "db.example"}
		}, func(s *corev1.ServiceSpec) bool { return s.ExternalName == "db.example" && s.ClusterIP == "" }, 2},
		{"cluster IP again", func(s *corev1.ServiceSpec) {
			*s = corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Selector: map[string]string{"app": "y"}, Ports: []corev1.ServicePort{{Port: 80}}}
		}, func(s *corev1.ServiceSpec) bool {
			return s.Selector["app"] == "y" && s.ClusterIP != "" && s.ExternalName == ""
		}, 2},
		{
			"addresses that stay here", func(s *corev1.ServiceSpec) { s.ExternalIPs = []string{"203.0.113.7"} },
			func(s *corev1.ServiceSpec) bool { return len(s.ExternalIPs) == 0 }, 0,
		},
		{"two families", func(s *corev1.ServiceSpec) { s.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack) }, func(s *corev1.ServiceSpec) bool {
			return *s.IPFamilyPolicy == corev1.IPFamilyPolicyPreferDualStack
		}, 1},
		{
			"session affinity", func(s *corev1.ServiceSpec) { s.SessionAffinity = corev1.ServiceAffinityClientIP },
			func(s *corev1.ServiceSpec) bool { return s.SessionAffinity == corev1.ServiceAffinityClientIP }, 1,
		},
		{"endpoints by hand", func(s *corev1.ServiceSpec) { s.Selector = nil }, func(s *corev1.ServiceSpec) bool {
			return len(s.Selector) == 1 && s.Selector[labels.ByName] == "true" // without a selector, Kubernetes leaves the endpoints that it had found
		}, 1},
		{"a selector again", func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"app": "z"} }, func(s *corev1.ServiceSpec) bool {
			return len(s.Selector) == 1 && s.Selector["app"] == "z"
		}, 1},
		{
			"session affinity for ten minutes", func(s *corev1.ServiceSpec) { s.SessionAffinityConfig.ClientIP.TimeoutSeconds = new(int32(600)) },
			func(s *corev1.ServiceSpec) bool {
				return *s.SessionAffinityConfig.ClientIP.TimeoutSeconds == 600
			}, 1,
		},
	} {
		e.toProvider.reset()
		web := &corev1.Service{ObjectMeta: named(local, "web")}
		e.edit(e.consumer, web, func() { step.change(&web.Spec) })
		e.until(step.name, func() bool {
			*remote = corev1.Service{ObjectMeta: named(remoteNS, "web")}
			return e.exists(e.provider, remote) && step.is(&remote.Spec)
		})
		e.waitIdle()
		if got := e.toProvider.writesTo(); len(got) > step.most {
			t.Errorf("%s: written %v", step.name, got)
		}
		stop()
		e.toProvider.reset()
		stop = e.run()
		e.until("the Service is cached", func() bool { return len(e.reflection.objects.Kind("Service").Remote.All(remoteNS)) == 1 })
		e.waitIdle()
		if got := e.toProvider.writesTo(); len(got) != 0 {
			t.Errorf("%s: written after a restart: %v", step.name, got)
		}
	}
}

// TestServiceIsAnother: a Service that is deleted and created again, with and without an address, has such a copy, also if the engine did not run meanwhile or
// sees both at once. Without a new copy, a Service with an address would stay headless there: its port would not lead to the target port of its pods.
func TestServiceIsAnother(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	stop := e.run()
	again := func(address string) {
		t.Helper()
		web := service(local, "web")
		web.Spec.ClusterIP = address
		e.must(client.IgnoreNotFound(e.consumer.Delete(t.Context(), service(local, "web"))))
		e.must(e.consumer.Create(t.Context(), web))
	}
	until := func(what string, headless bool) {
		t.Helper()
		e.until(what, func() bool {
			remote := &corev1.Service{ObjectMeta: named(remoteNS, "web")}
			return e.exists(e.provider, remote) && remote.DeletionTimestamp == nil && (remote.Spec.ClusterIP == corev1.ClusterIPNone) == headless
		})
		e.waitIdle()
	}
	for _, seen := range []string{"while it runs", "at once", "later"} {
		for _, address := range []string{corev1.ClusterIPNone, "", "", corev1.ClusterIPNone, ""} {
			release := func() {}
			switch seen {
			case "at once":
				release = e.toConsumer.hold("/services")
				t.Cleanup(release)
			case "later":
				stop()
			}
			again(address)
			if release(); seen == "later" {
				stop = e.run()
			}
			until(fmt.Sprintf("%s, %q", seen, address), address == corev1.ClusterIPNone)
		}
	}
}

// untilMessage waits for an event about an object whose message has this part.
func (e *env) untilMessage(of metav1.ObjectMeta, part string) {
	e.t.Helper()
	e.until("event about "+of.Name+": "+part, func() bool {
		var all corev1.EventList
		e.must(e.consumer.List(e.t.Context(), &all, client.InNamespace(of.Namespace)))
		return slices.ContainsFunc(all.Items, func(event corev1.Event) bool {
			return event.InvolvedObject.Name == of.Name && strings.Contains(event.Message, part)
		})
	})
}

// TestLostIsReported: what the copy of a Service cannot have is reported once, when the Service is reflected or changes, and not again by a restart.
func TestLostIsReported(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	stop := e.run()
	web := service(local, "web")
	web.Spec.ExternalIPs = []string{"203.0.113.7"}
	e.must(e.consumer.Create(t.Context(), web))
	remote := &corev1.Service{ObjectMeta: named(remoteNS, "web")}
	e.until("the copy exists", func() bool { return e.exists(e.provider, remote) })
	e.untilMessage(web.ObjectMeta, "externalIPs")
	e.waitIdle()
	if len(remote.Spec.ExternalIPs) != 0 {
		t.Errorf("the copy has %v", remote.Spec.ExternalIPs)
	}
	stop()
	e.toConsumer.reset()
	e.toProvider.reset()
	e.run()
	e.until("the Service is cached", func() bool { return len(e.reflection.objects.Kind("Service").Remote.All(remoteNS)) == 1 })
	e.waitIdle()
	if got := append(e.toConsumer.writesTo(), e.toProvider.writesTo()...); len(got) != 0 {
		t.Errorf("written after a restart: %v", got)
	}
	e.edit(e.consumer, web, func() {
		web.Annotations = map[string]string{"metallb.io/loadBalancerIPs": "203.0.113.7"}
		web.Spec.Ports[0].Port = 81
	})
	e.untilMessage(web.ObjectMeta, "metallb.io/loadBalancerIPs")
}

// TestStatusCostsNothing: the statuses of a Service and an Ingress, in either cluster, and heartbeats of any kind, are written nowhere else.
func TestStatusCostsNothing(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.run()
	here, there := map[string]client.Object{}, map[string]client.Object{}
	balanced := service(local, "web")
	balanced.Spec.Type = corev1.ServiceTypeLoadBalancer
	for name, object := range map[string]client.Object{"Service": balanced, "Ingress": ingress(local, "web")} {
		e.must(e.consumer.Create(t.Context(), object))
		here[name] = object
	}
	e.must(e.consumer.Create(t.Context(), slice(local, "web-x", "web")))
	there["Service"], there["Ingress"] = &corev1.Service{ObjectMeta: named(remoteNS, "web")}, &networkingv1.Ingress{ObjectMeta: named(remoteNS, "web")}
	shadow := &vkv1alpha1.ShadowEndpointSlice{ObjectMeta: named(remoteNS, "web-x")}
	e.until("the copies exist", func() bool {
		return e.exists(e.provider, there["Service"]) && e.exists(e.provider, there["Ingress"]) && e.exists(e.provider, shadow)
	})
	e.waitIdle()
	e.toConsumer.reset()
	e.toProvider.reset()
	write := func(c client.Client, objects map[string]client.Object) {
		for name, object := range objects {
			e.must(c.Get(t.Context(), client.ObjectKeyFromObject(object), object))
			switch object := object.(type) {
			case *corev1.Service:
				object.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.7"}}
				object.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Test", LastTransitionTime: metav1.Now()}}
			case *networkingv1.Ingress:
				object.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{Hostname: "lb.example"}}
			}
			e.must(c.Status().Update(t.Context(), object))
			e.until(name+" is cached", func() bool {
				r := e.reflection.objects.Kind(name)
				cached := []client.Object{r.Local.Get(key(local, "web")), r.Remote.Get(key(remoteNS, "web"))}
				return slices.ContainsFunc(cached, func(one client.Object) bool {
					return one != nil && one.GetUID() == object.GetUID() && one.GetResourceVersion() == object.GetResourceVersion()
				})
			})
		}
		e.waitIdle()
	}
	write(e.consumer, here)
	write(e.provider, there)
	if got := append(e.toConsumer.writesTo(), e.toProvider.writesTo()...); len(got) != 0 {
		t.Errorf("written because of statuses: %v", got)
	}
	for _, side := range []struct {
		client.Client
		objects map[string]client.Object
	}{{e.consumer, here}, {e.provider, there}} {
		for name, object := range side.objects {
			e.must(side.Get(t.Context(), client.ObjectKeyFromObject(object), object))
			if text := fmt.Sprint(object); !strings.Contains(text, "203.0.113.7") && !strings.Contains(text, "lb.example") {
				t.Errorf("the status of the %s is gone: %s", name, text)
			}
		}
	}
}
