// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// selected is a slice of the pods of this node that a Service selects.
func (e *env) selected(namespace, name, service string, pods ...string) *discoveryv1.EndpointSlice {
	made := slice(namespace, name, service)
	made.Labels[discoveryv1.LabelManagedBy] = "endpointslice-controller.k8s.io"
	made.Endpoints = []discoveryv1.Endpoint{}
	for _, pod := range pods {
		made.Endpoints = append(made.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{"10.30.0.9"}, NodeName: new(e.node), Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: pod},
		})
	}
	return made
}

// TestSelectors: endpoints that the provider does not find are sent by name, and follow a label that an operator moves between pods that run. A slice costs one
// write for each change, and none after a restart. While another selector comes, the endpoints are there by one of the two ways at any time.
func TestSelectors(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	stop := e.run()
	primary := service(local, "db")
	primary.Spec.Selector = map[string]string{"app": "db", "db.example.com/role": "primary"}
	e.must(e.consumer.Create(t.Context(), primary))
	e.must(e.consumer.Create(t.Context(), service(local, "all")))
	e.must(e.consumer.Create(t.Context(), e.selected(local, "db-x", "db", "db-0")))
	e.must(e.consumer.Create(t.Context(), e.selected(local, "all-x", "all", "db-0", "db-1")))
	names := func(slice string) (all string) {
		var copied vkv1alpha1.ShadowEndpointSlice
		if e.provider.Get(t.Context(), client.ObjectKey{Namespace: remoteNS, Name: slice}, &copied) != nil {
			return "none"
		}
		for _, one := range copied.Spec.Template.Endpoints {
			if len(one.Addresses) > 0 || one.TargetRef.Kind != "ShadowPod" || one.TargetRef.Namespace != remoteNS {
				t.Errorf("endpoint %+v", one)
			}
			all += " " + one.TargetRef.Name
		}
		return all
	}
	e.until("the primary is sent by name", func() bool { return names("db-x") == " db-0" })
	e.until("the Services are there", func() bool {
		return e.exists(e.provider, &corev1.Service{ObjectMeta: named(remoteNS, "db")}) && e.exists(e.provider, &corev1.Service{ObjectMeta: named(remoteNS, "all")})
	})
	e.waitIdle()
	if got := names("all-x"); got != "none" {
		t.Errorf("the provider finds %s on its own, and they are sent", got)
	}
	e.toProvider.reset()
	moved := &discoveryv1.EndpointSlice{ObjectMeta: named(local, "db-x")}
	e.edit(e.consumer, moved, func() { moved.Endpoints = e.selected(local, "", "", "db-1").Endpoints })
	e.until("the other one is the primary", func() bool { return names("db-x") == " db-1" })
	e.waitIdle()
	if got := e.toProvider.writesTo(); len(got) != 1 {
		t.Errorf("written: %v", got)
	}
	stop()
	e.toProvider.reset()
	e.run()
	e.until("the copies are cached", func() bool { return len(e.reflection.objects.Kind("EndpointSlice").Remote.All(remoteNS)) == 1 })
	e.waitIdle()
	if got := e.toProvider.writesTo(); len(got) != 0 {
		t.Errorf("written after a restart: %v", got)
	}

	// Another selector: the provider finds the endpoints, and they are sent until it has.
	selector := func(of map[string]string) {
		t.Helper()
		now := &corev1.Service{ObjectMeta: named(local, "db")}
		e.edit(e.consumer, now, func() { now.Spec.Selector = of })
	}
	copied := func() map[string]string {
		now := &corev1.Service{ObjectMeta: named(remoteNS, "db")}
		e.must(e.provider.Get(t.Context(), client.ObjectKeyFromObject(now), now))
		return now.Spec.Selector
	}
	selector(map[string]string{"app": "db"})
	e.until("the selector is there", func() bool { return len(copied()) == 1 })
	if got := names("db-x"); got != " db-1" {
		t.Errorf("the provider may not have found the endpoints yet, and those that are sent are %s", got)
	}
	e.until("they are not sent any more", func() bool { return names("db-x") == "none" })
	selector(map[string]string{"db.example.com/role": "primary"})
	e.until("they are sent again", func() bool { return names("db-x") == " db-1" })
	if got := copied(); got["app"] != "db" {
		t.Errorf("the provider may not have the endpoints by name yet, and the selector is %v", got)
	}
	e.until("the selector follows", func() bool { return copied()["db.example.com/role"] == "primary" })
	e.waitIdle()
}

// TestEndpointsByHand: Services without a selector have slices that users write, with the address of a pod and often nothing else. Those of pods that run in
// the provider are sent by name, as soon as it is known which pod has the address.
func TestEndpointsByHand(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.runProvider(remoteNS)
	e.run()
	lone := service(local, "lone")
	lone.Spec.Selector = nil
	e.must(e.consumer.Create(t.Context(), lone))
	byHand := slice(local, "lone-x", "lone")
	byHand.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.9.8.7"}}}
	e.must(e.consumer.Create(t.Context(), byHand))
	copied := &vkv1alpha1.ShadowEndpointSlice{ObjectMeta: named(remoteNS, "lone-x")}
	is := func(pod string) func() bool {
		return func() bool {
			if !e.exists(e.provider, copied) || len(copied.Spec.Template.Endpoints) != 1 {
				return false
			}
			one := copied.Spec.Template.Endpoints[0]
			return pod == "" && len(one.Addresses) == 1 || pod != "" && len(one.Addresses) == 0 && one.TargetRef.Name == pod
		}
	}
	e.until("no pod has the address", is(""))
	e.must(e.consumer.Create(t.Context(), e.pod(local, "web")))
	e.untilPod(local, "web", "Ready", isReady)
	e.until("it is the pod web", is("web"))
	if all, complete := e.reflection.Endpoints(); len(all) != 0 || !complete {
		t.Errorf("addresses for the peer: %v, %v", all, complete)
	}
	e.must(e.consumer.Delete(t.Context(), &corev1.Pod{ObjectMeta: named(local, "web")}))
	e.until("no pod has the address any more", is(""))
	e.must(e.provider.Get(t.Context(), client.ObjectKeyFromObject(copied), copied))
	if copied.Labels[labels.Origin] != localID {
		t.Errorf("labels %v", copied.Labels)
	}
}

// TestGates: a pod with a readiness gate is ready in the provider before its gate is open here. So the provider does not find it by the selector of a Service,
// and gets it by name, with the readiness that it has here. This ends with the last such pod.
func TestGates(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.runProvider(remoteNS)
	stop := e.run()
	e.must(e.consumer.Create(t.Context(), service(local, "x")))
	e.must(e.consumer.Create(t.Context(), service(local, "other")))
	copied := func(name string) map[string]string {
		now := &corev1.Service{ObjectMeta: named(remoteNS, name)}
		if !e.exists(e.provider, now) {
			return nil
		}
		return now.Spec.Selector
	}
	e.until("the Services are there", func() bool { return len(copied("x")) == 1 && len(copied("other")) == 1 })
	gated := e.pod(local, "web")
	gated.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/load-balancer"}}
	e.must(e.consumer.Create(t.Context(), gated))
	e.untilPod(local, "web", "runs, and waits for its gate", func(pod *corev1.Pod) bool { return pod.Status.PodIP != "" && !isReady(pod) })
	endpoints := e.selected(local, "x-1", "x", "web")
	endpoints.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: new(false)}
	e.must(e.consumer.Create(t.Context(), endpoints))
	e.until("the selector finds no pod there", func() bool { return copied("x")[labels.ByName] == "true" && copied("x")["app"] == "x" })
	shadow := &vkv1alpha1.ShadowEndpointSlice{ObjectMeta: named(remoteNS, "x-1")}
	ready := func(is bool) func() bool {
		return func() bool {
			if !e.exists(e.provider, shadow) || len(shadow.Spec.Template.Endpoints) != 1 {
				return false
			}
			one := shadow.Spec.Template.Endpoints[0]
			return one.TargetRef != nil && one.TargetRef.Name == "web" && one.Conditions.Ready != nil && *one.Conditions.Ready == is
		}
	}
	e.until("the pod is named, and not ready", ready(false))
	if got := copied("other"); len(got) != 1 {
		t.Errorf("the selector of a Service without such pods is %v", got)
	}
	e.edit(e.consumer, endpoints, func() { endpoints.Endpoints[0].Conditions.Ready = new(true) })
	e.until("its gate is open", ready(true))
	e.waitIdle()
	stop()
	e.toProvider.reset()
	e.run()
	e.until("the copies are cached", func() bool { return len(e.reflection.objects.Kind("EndpointSlice").Remote.All(remoteNS)) == 1 })
	e.waitIdle()
	if got := e.toProvider.writesTo("ervices"); len(got) != 0 {
		t.Errorf("written after a restart: %v", got)
	}
	e.must(e.consumer.Delete(t.Context(), gated))
	e.until("the provider finds the pods again", func() bool { return len(copied("x")) == 1 })
}
