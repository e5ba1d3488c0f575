// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
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
		{"another port", func(s *corev1.ServiceSpec) { s.Ports[0].Port = 81 }, func(s *corev1.ServiceSpec) bool { return len(s.Ports) == 1 && s.Ports[0].Port == 81 }, 1},
		{"two ports", func(s *corev1.ServiceSpec) {
			s.Ports = append(s.Ports, corev1.ServicePort{Name: "dns", Port: 81, Protocol: corev1.ProtocolUDP})
		}, func(s *corev1.ServiceSpec) bool { return len(s.Ports) == 2 }, 1},
		{"node port", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort }, func(s *corev1.ServiceSpec) bool {
			return s.Type == corev1.ServiceTypeNodePort && s.Ports[0].NodePort != 0
		}, 1},
		{"load balancer", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer }, func(s *corev1.ServiceSpec) bool { return s.Type == corev1.ServiceTypeLoadBalancer }, 1},
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
		{"session affinity", func(s *corev1.ServiceSpec) { s.SessionAffinity = corev1.ServiceAffinityClientIP }, func(s *corev1.ServiceSpec) bool { return s.SessionAffinity == corev1.ServiceAffinityClientIP }, 1},
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
	// A headless Service is another object: the address is immutable.
	web := &corev1.Service{ObjectMeta: named(local, "web")}
	e.must(e.consumer.Delete(t.Context(), web))
	headless := service(local, "web")
	headless.Spec.ClusterIP = corev1.ClusterIPNone
	e.must(e.consumer.Create(t.Context(), headless))
	e.until("headless", func() bool {
		*remote = corev1.Service{ObjectMeta: named(remoteNS, "web")}
		return e.exists(e.provider, remote) && remote.Spec.ClusterIP == corev1.ClusterIPNone
	})
}
