// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
)

// refusingTypes makes the provider refuse types of Services in a namespace, until lift is called.
func (e *env) refusingTypes(namespace, suffix string, types ...string) (lift func()) {
	e.t.Helper()
	rule := admissionv1.NamedRuleWithOperations{}
	rule.Operations = []admissionv1.OperationType{admissionv1.Create, admissionv1.Update}
	rule.Rule = admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"services"}}
	name := namespace + "-" + suffix
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			ResourceRules:     []admissionv1.NamedRuleWithOperations{rule},
		},
		Validations: []admissionv1.Validation{{
			Expression: fmt.Sprintf(`!(object.spec.type in ["%s"])`, strings.Join(types, `", "`)),
			Message:    "the load balancers of the peer in this cluster would be 11, and at most 10 are accepted",
		}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
	e.must(e.provider.Create(e.t.Context(), policy))
	e.must(e.provider.Create(e.t.Context(), binding))
	probe := service(namespace, "probe")
	probe.Spec.Type = corev1.ServiceType(types[0])
	refused := func() bool { return e.provider.Create(e.t.Context(), probe.DeepCopy(), client.DryRunAll) != nil }
	kubetest.Eventually(e.t, "the policy is in force", func() error {
		if !refused() {
			return errors.New("the type is accepted")
		}
		return nil
	})
	return func() {
		e.t.Helper()
		e.must(e.provider.Delete(e.t.Context(), binding))
		e.until("the policy is lifted", func() bool { return !refused() })
	}
}

// TestExposureRefused: a Service whose type the provider refuses has its name and its address there all the same, follows changes, and gets its type once the
// provider accepts it. A restart changes nothing.
func TestExposureRefused(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	lift := e.refusingTypes(remoteNS, "types", "LoadBalancer", "NodePort")
	stop := e.run()
	made := func(name string, of corev1.ServiceType) *corev1.Service {
		s := service(local, name)
		s.Spec.Type = of
		if of == corev1.ServiceTypeLoadBalancer {
			s.Spec.ExternalTrafficPolicy, s.Spec.LoadBalancerSourceRanges, s.Spec.AllocateLoadBalancerNodePorts = corev1.ServiceExternalTrafficPolicyLocal,
				[]string{"192.0.2.0/24"}, new(false)
		}
		return s
	}
	e.must(e.consumer.Create(t.Context(), made("lb", corev1.ServiceTypeLoadBalancer)))
	e.must(e.consumer.Create(t.Context(), made("ports", corev1.ServiceTypeNodePort)))
	copied := func(name string) *corev1.Service { return &corev1.Service{ObjectMeta: named(remoteNS, name)} }
	is := func(name string, of corev1.ServiceType, ports int) func() bool {
		return func() bool {
			got := copied(name)
			return e.exists(e.provider, got) && got.Spec.Type == of && got.Spec.ClusterIP != "" && len(got.Spec.Ports) == ports && got.Spec.Selector["app"] == name
		}
	}
	reported := func(name, reason string, parts ...string) {
		t.Helper()
		e.until("an event "+reason+" about "+name, func() bool {
			var events corev1.EventList
			e.must(e.consumer.List(t.Context(), &events, client.InNamespace(local)))
		next:
			for i := range events.Items {
				if event := &events.Items[i]; event.InvolvedObject.Name == name && event.Reason == reason {
					for _, part := range parts {
						if !strings.Contains(event.Message, part) {
							continue next
						}
					}
					return true
				}
			}
			return false
		})
	}
	e.until("lb has a name and an address", is("lb", corev1.ServiceTypeClusterIP, 1))
	e.until("ports has a name and an address", is("ports", corev1.ServiceTypeClusterIP, 1))
	reported("lb", "ReflectionIncomplete", "LoadBalancer", "ClusterIP", "would be 11, and at most 10 are accepted", "peers.totals")
	reported("ports", "ReflectionIncomplete", "NodePort", "ClusterIP")

	changed := &corev1.Service{ObjectMeta: named(local, "lb")}
	e.edit(e.consumer, changed, func() {
		changed.Spec.Ports = append(changed.Spec.Ports, corev1.ServicePort{Name: "more", Port: 81})
	})
	e.until("lb follows", is("lb", corev1.ServiceTypeClusterIP, 2))
	// From inside only to exposed: the copy stays, and has the rest of the change.
	e.must(e.consumer.Create(t.Context(), made("later", corev1.ServiceTypeClusterIP)))
	e.until("later is there", is("later", corev1.ServiceTypeClusterIP, 1))
	later := &corev1.Service{ObjectMeta: named(local, "later")}
	e.edit(e.consumer, later, func() {
		later.Spec.Type = corev1.ServiceTypeLoadBalancer
		later.Spec.Ports = append(later.Spec.Ports, corev1.ServicePort{Name: "more", Port: 81})
	})
	e.until("later follows", is("later", corev1.ServiceTypeClusterIP, 2))

	e.waitIdle()
	before := copied("lb")
	e.must(e.provider.Get(t.Context(), client.ObjectKeyFromObject(before), before))
	stop()
	e.run()
	e.until("the Services are compared", func() bool {
		mapping, _ := e.reflection.engine.Namespaces.Local(local)
		return mapping != nil && mapping.Compared("Service")
	})
	e.waitIdle()
	after := copied("lb")
	e.must(e.provider.Get(t.Context(), client.ObjectKeyFromObject(after), after))
	if before.ResourceVersion != after.ResourceVersion {
		t.Error("the restart has changed the copy")
	}

	lift()
	e.must(e.consumer.Delete(t.Context(), &corev1.Service{ObjectMeta: named(local, "ports")})) // one less
	e.until("lb is a load balancer", is("lb", corev1.ServiceTypeLoadBalancer, 2))
	reported("lb", "SuccessfulReflection")
	e.until("later is one, too", is("later", corev1.ServiceTypeLoadBalancer, 2))

	// What is exposed already stays, whatever the provider refuses of a change.
	e.refusingTypes(remoteNS, "again", "LoadBalancer")
	e.edit(e.consumer, changed, func() { changed.Spec.Ports = changed.Spec.Ports[:1] })
	reported("lb", "FailedReflection", "at most 10 are accepted")
	if !is("lb", corev1.ServiceTypeLoadBalancer, 2)() {
		t.Error("the load balancer is gone")
	}
}

// TestExternalNames: the name of a Service in another namespace follows that namespace to the provider, as soon as it is offloaded.
func TestExternalNames(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.run()
	other := e.namespaceOf(e.consumer, "other-")
	alias := service(local, "alias")
	alias.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "db." + other + ".svc.cluster.local"}
	e.must(e.consumer.Create(t.Context(), alias))
	public := service(local, "public")
	public.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "db.example.com"}
	e.must(e.consumer.Create(t.Context(), public))
	is := func(name, want string) func() bool {
		return func() bool {
			got := &corev1.Service{ObjectMeta: named(remoteNS, name)}
			return e.exists(e.provider, got) && got.Spec.Type == corev1.ServiceTypeExternalName && got.Spec.ExternalName == want
		}
	}
	e.until("the public name is there", is("public", "db.example.com"))
	e.until("an event reports that the other namespace is not there", func() bool {
		var events corev1.EventList
		e.must(e.consumer.List(t.Context(), &events, client.InNamespace(local)))
		for i := range events.Items {
			if event := &events.Items[i]; event.InvolvedObject.Name == "alias" && event.Reason == "FailedReflection" && strings.Contains(event.Message, other) {
				return true
			}
		}
		return false
	})
	// A Service that becomes an alias without a name there does not stay what it was: clients would go on to use the servers that it had.
	e.must(e.consumer.Create(t.Context(), service(local, "moved")))
	moved := &corev1.Service{ObjectMeta: named(remoteNS, "moved")}
	e.until("the Service is there", func() bool { return e.exists(e.provider, moved) })
	here := &corev1.Service{ObjectMeta: named(local, "moved")}
	e.edit(e.consumer, here, func() { here.Spec = alias.Spec })
	e.until("the Service is not there any more", func() bool { return !e.exists(e.provider, &corev1.Service{ObjectMeta: named(remoteNS, "moved")}) })
	if !is("public", "db.example.com")() {
		t.Error("the other alias is gone")
	}
	e.editMap(func(m *vkv1alpha1.NamespaceMap) { m.Spec.DesiredMapping[other] = "other-there" })
	e.editMapStatus(func(m *vkv1alpha1.NamespaceMap) {
		m.Status.CurrentMapping[other] = vkv1alpha1.RemoteNamespaceStatus{RemoteNamespace: "other-there", Phase: vkv1alpha1.MappingAccepted}
	})
	e.until("the name is that of the copy", is("alias", "db.other-there.svc.cluster.local"))
	e.until("so is that of the Service that became an alias", is("moved", "db.other-there.svc.cluster.local"))
}
