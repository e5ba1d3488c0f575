// SPDX-License-Identifier: Apache-2.0

package shadowslice_test

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/shadowtest"
)

func TestShadowEndpointSlice(t *testing.T) {
	b := shadowtest.New(t)
	rome := b.Rome()
	stop := b.Run()
	s := b.CreateShadowSlice("web-1", "10.1.0.5", "10.202.0.9")
	slice := b.UntilSlice("web-1", true, "10.1.0.5", "10.202.0.9")
	if slice.Labels[discoveryv1.LabelManagedBy] != labels.EndpointSliceReflection || slice.Labels[discoveryv1.LabelServiceName] != "web" ||
		slice.Labels[labels.Origin] != "rome-id" || metav1.GetControllerOf(slice) == nil || metav1.GetControllerOf(slice).UID != s.UID {
		t.Errorf("slice %+v", slice.ObjectMeta)
	}
	b.Edit(s, func() { s.Spec.Template.Endpoints = s.Spec.Template.Endpoints[:1] })
	b.UntilSlice("web-1", true, "10.1.0.5")
	if writes := b.Writes.Load(); writes != 2 {
		t.Errorf("%d writes, want one for the creation and one for the change", writes)
	}
	b.Network(rome, discoveryv1alpha1.StatusError)
	b.UntilSlice("web-1", false, "10.1.0.5")
	b.Network(rome, discoveryv1alpha1.StatusEstablished)
	b.UntilSlice("web-1", true, "10.1.0.5")
	if writes := b.Writes.Load(); writes != 4 {
		t.Errorf("%d writes, want one more for each change of the network", writes)
	}

	// An endpoint that ends serves here as well, until the network is gone.
	b.Edit(s, func() {
		s.Spec.Template.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
	})
	serves := func(want bool) {
		t.Helper()
		b.Until("the endpoint terminates", func() bool {
			conditions := b.UntilSlice("web-1", false, "10.1.0.5").Endpoints[0].Conditions
			return conditions.Serving != nil && *conditions.Serving == want && conditions.Terminating != nil && *conditions.Terminating
		})
	}
	serves(true)
	b.Network(rome, discoveryv1alpha1.StatusError)
	serves(false)
	b.Network(rome, discoveryv1alpha1.StatusEstablished)
	serves(true)
	b.Edit(s, func() { s.Spec.Template.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: new(true)} })
	b.UntilSlice("web-1", true, "10.1.0.5")
	if writes := b.Writes.Load(); writes != 8 {
		t.Errorf("%d writes, want one more for each change of a condition", writes)
	}

	// Addresses outside the networks of the peer are left out.
	evil := b.CreateShadowSlice("evil", "10.96.0.1", "10.1.0.7", "192.168.0.1")
	b.Event(evil, "ForeignAddresses", "10.96.0.1")
	b.UntilSlice("evil", true, "10.1.0.7")
	b.Event(b.CreateShadowSlice("all-evil", "10.96.0.1"), "ForeignAddresses", "10.96.0.1")
	b.UntilSlice("all-evil", true)

	// What is no endpoint is left out, and stops no other slice: neither now nor for a controller that starts.
	malformed := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{
		"addressType": "IPv4", "endpoints": []any{map[string]any{"addresses": "10.1.0.7"}, map[string]any{"addresses": []any{"10.1.0.7"}}},
	}}}}
	malformed.SetGroupVersionKind(vkv1alpha1.GroupVersion.WithKind("ShadowEndpointSlice"))
	malformed.SetNamespace(shadowtest.RemoteNamespace)
	malformed.SetName("malformed")
	b.Make(malformed)
	b.Event(malformed, "ForeignAddresses", "1 endpoints are left out")
	b.UntilSlice("malformed", true, "10.1.0.7")

	// A restart writes nothing; changes and deletions by others are undone.
	stop()
	writes := b.Writes.Load()
	stop = b.Run()
	b.CreateShadowSlice("canary", "10.1.0.8")
	b.UntilSlice("canary", true, "10.1.0.8")
	if got := b.Writes.Load() - writes; got != 1 {
		t.Errorf("%d writes, want the canary", got)
	}
	b.Edit(slice, func() { slice.Endpoints[0].Addresses[0] = "10.96.0.1" })
	b.UntilSlice("web-1", true, "10.1.0.5")
	b.Must(b.Delete(t.Context(), slice))
	slice = b.UntilSlice("web-1", true, "10.1.0.5")

	// The event of a slice that was deleted with its owner may arrive before that of the owner: the slice is not created again.
	both := b.CreateShadowSlice("both", "10.1.0.9")
	gone := b.UntilSlice("both", true, "10.1.0.9")
	b.Gate.Lock()
	writes, questions := b.Writes.Load(), b.Asked.Load()
	b.Must(b.Delete(t.Context(), both))
	b.Must(b.Delete(t.Context(), gone))
	b.Until("the owner is read live", func() bool { return b.Asked.Load() > questions || b.Writes.Load() > writes })
	b.Gate.Unlock()
	b.CreateShadowSlice("both-2", "10.1.0.9")
	b.UntilSlice("both-2", true, "10.1.0.9")
	if got := b.Writes.Load() - writes; got != 1 || b.Exists(gone) {
		t.Errorf("%d writes, want that of the next slice; the deleted slice exists: %v", got, b.Exists(gone))
	}

	// Another ShadowEndpointSlice takes the name while the controller is down.
	stop()
	b.Must(b.Delete(t.Context(), s))
	s = b.CreateShadowSlice("web-1", "10.1.0.6")
	b.Run()
	if now := b.UntilSlice("web-1", true, "10.1.0.6"); now.UID == slice.UID || metav1.GetControllerOf(now).UID != s.UID {
		t.Errorf("slice %+v", now.ObjectMeta)
	}

	// An unmanaged slice is not touched.
	unmanaged := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: shadowtest.RemoteNamespace, Name: "web-2"}, AddressType: discoveryv1.AddressTypeIPv4,
	}
	b.Make(unmanaged)
	b.Event(b.CreateShadowSlice("web-2", "10.1.0.5"), "NameTaken", "web-2")
	before := unmanaged.ResourceVersion
	b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(unmanaged), unmanaged))
	if unmanaged.ResourceVersion != before {
		t.Error("the unmanaged slice was written")
	}
}

// TestAttackM9: where another network joins the clusters, only the networks that the administrator wrote down count, and they count at once.
func TestAttackM9(t *testing.T) {
	b := shadowtest.New(t)
	b.External, b.Own = true, []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
	b.Make(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	b.EditStatus(node, func() {
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
	})
	rome := b.Rome()
	b.Network(rome, discoveryv1alpha1.StatusExternal)
	b.Run()
	addresses := []string{"10.1.0.5", "10.96.0.1", "192.0.2.1", "10.200.0.5", "127.0.0.1"}
	s := b.CreateShadowSlice("web-1", addresses...)
	b.Event(s, "ForeignAddresses", "spec.network.podCIDRs")
	b.UntilSlice("web-1", true)
	write := func(networks ...string) {
		b.Edit(rome, func() { rome.Spec.Network = &discoveryv1alpha1.PeerNetwork{PodCIDRs: networks} })
	}
	write("10.1.0.0/16")
	b.UntilSlice("web-1", true, "10.1.0.5")
	write("10.1.0.0/16", "10.200.0.0/16")
	b.UntilSlice("web-1", true, "10.1.0.5", "10.200.0.5")
	write("0.0.0.0/0", "10.96.0.0/24", "192.0.2.0/24", "127.0.0.0/8", "10.1.0.0/24")
	b.UntilSlice("web-1", true, "10.1.0.5")
	write()
	b.UntilSlice("web-1", true)
}

// TestAttackNL2: endpoints of a peer are on no node of this cluster, also if the peer has the name of a node that comes later, and are no pods of it.
func TestAttackNL2(t *testing.T) {
	b := shadowtest.New(t)
	b.Rome()
	b.Make(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	b.Run()
	named := func(name, want string) {
		t.Helper()
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: shadowtest.RemoteNamespace, Name: name}}
		b.Until("the endpoints of "+name+" are on node \""+want+"\"", func() bool {
			return b.Exists(slice) && len(slice.Endpoints) == 1 && (slice.Endpoints[0].NodeName == nil && want == "" ||
				slice.Endpoints[0].NodeName != nil && *slice.Endpoints[0].NodeName == want)
		})
	}
	evil := b.CreateShadowSlice("evil", "10.1.0.7")
	b.Edit(evil, func() {
		evil.Spec.Template.Endpoints[0].NodeName = new("n1")
		evil.Spec.Template.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: "bank", Name: "vault-0"}
	})
	named("evil", "")
	if slice := b.UntilSlice("evil", true, "10.1.0.7"); slice.Endpoints[0].TargetRef != nil {
		t.Errorf("the endpoint is %v", slice.Endpoints[0].TargetRef)
	}
	b.CreateShadowSlice("web-1", "10.1.0.5")
	named("web-1", "rome")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "rome"}}
	b.Make(node)
	named("web-1", "")
	b.Must(b.Delete(t.Context(), node))
	named("web-1", "rome")
}

// TestOwnEndpoints: an endpoint that is a pod of the peer here follows that pod, and no other: its address, its readiness and its end. It costs a
// write for each change of these.
func TestOwnEndpoints(t *testing.T) {
	b := shadowtest.New(t)
	b.Rome()
	b.Make(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "physical", Labels: map[string]string{corev1.LabelTopologyZone: "z1"}}})
	stop := b.Run()
	s := b.CreateShadowSlice("db-1", "10.1.0.5")
	b.Edit(s, func() {
		for _, name := range []string{"db-0", "db-1", "vault"} {
			s.Spec.Template.Endpoints = append(s.Spec.Template.Endpoints, vkv1alpha1.Endpoint{
				Addresses: []string{}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
				TargetRef: &corev1.ObjectReference{Kind: "ShadowPod", Name: name, Namespace: "kube-system"},
			})
		}
	})
	b.UntilSlice("db-1", true, "10.1.0.5")
	status := func(pod *corev1.Pod, ip string, ready corev1.ConditionStatus) {
		t.Helper()
		b.EditStatus(pod, func() {
			pod.Status.PodIP, pod.Status.PodIPs = ip, []corev1.PodIP{{IP: ip}}
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		})
	}
	// A pod of this cluster that came into the namespace.
	vault := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: shadowtest.RemoteNamespace, Name: "vault"}, Spec: corev1.PodSpec{
		AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "c", Image: "image:1"}},
	}}
	b.Make(vault)
	status(vault, "10.200.1.4", corev1.ConditionTrue)
	shadowPod := b.CreateShadowPod("db-0", corev1.RestartPolicyAlways, nil)
	pod := b.Pod(shadowPod, nil)
	b.StartPod(pod)
	b.UntilPhase(shadowPod, vkv1alpha1.ShadowPodRunning, pod)
	writes := b.Writes.Load()
	status(pod, "10.200.1.5", corev1.ConditionTrue)
	slice := b.UntilSlice("db-1", true, "10.1.0.5", "10.200.1.5")
	if endpoint := slice.Endpoints[1]; *endpoint.NodeName != "physical" || *endpoint.Zone != "z1" || endpoint.TargetRef.Kind != "Pod" ||
		endpoint.TargetRef.Namespace != shadowtest.RemoteNamespace || endpoint.TargetRef.UID != pod.UID {
		t.Errorf("the endpoint is %+v", endpoint)
	}
	condition := func(what string, ready, serving bool) {
		t.Helper()
		b.Until(what, func() bool {
			b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(slice), slice))
			if len(slice.Endpoints) != 2 {
				return false
			}
			is := slice.Endpoints[1].Conditions
			return *is.Ready == ready && (is.Serving == nil || *is.Serving) == serving
		})
	}
	status(pod, "10.200.1.5", corev1.ConditionFalse)
	condition("it is not ready", false, false)
	status(pod, "10.200.1.5", corev1.ConditionTrue)
	condition("it is ready again", true, true)
	b.Edit(s, func() {
		s.Spec.Template.Endpoints[1].Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
	})
	condition("it ends, and serves", false, true)
	b.Edit(s, func() { s.Spec.Template.Endpoints[1].Conditions = discoveryv1.EndpointConditions{Ready: new(true)} })
	condition("it is ready once more", true, true)
	if got := b.Writes.Load() - writes; got != 5 {
		t.Errorf("%d writes for five changes", got)
	}
	// A restart writes nothing.
	stop()
	writes = b.Writes.Load()
	b.Run()
	b.CreateShadowSlice("canary", "10.1.0.8")
	b.UntilSlice("canary", true, "10.1.0.8")
	if got := b.Writes.Load() - writes; got != 1 {
		t.Errorf("%d writes after a restart, want the canary", got)
	}
	// The pod is gone: its address may be another one's now.
	b.Must(b.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	b.UntilSlice("db-1", true, "10.1.0.5")
	next := b.Pod(shadowPod, pod)
	status(next, "10.200.1.7", corev1.ConditionFalse)
	b.Until("the next pod is not ready yet", func() bool {
		b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(slice), slice))
		return len(slice.Endpoints) == 2 && slice.Endpoints[1].Addresses[0] == "10.200.1.7" && !*slice.Endpoints[1].Conditions.Ready
	})
	b.Phase(next, corev1.PodFailed, "")
	b.UntilSlice("db-1", true, "10.1.0.5")
}
