// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
)

var widgets = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}

// widgetEnv is an env whose clusters have the kind Widget, in a namespace that lists it.
type widgetEnv struct {
	*env
	local, remote string
}

func newWidgetEnv(t *testing.T) *widgetEnv {
	t.Helper()
	e := &widgetEnv{env: newEnv(t)}
	for _, config := range e.admins(t) {
		_, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{widgetDefinition()}})
		e.must(err)
	}
	e.local, e.remote = e.offload()
	for _, rule := range []struct {
		c     client.Client
		rules []rbacv1.PolicyRule
	}{
		{e.consumer, []rbacv1.PolicyRule{
			{APIGroups: []string{"example.com"}, Resources: []string{"widgets"}, Verbs: []string{"list", "watch"}},
			{APIGroups: []string{"example.com"}, Resources: []string{"widgets/status"}, Verbs: []string{"update"}},
		}},
		{e.provider, []rbacv1.PolicyRule{
			{APIGroups: []string{"example.com"}, Resources: []string{"widgets"}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
		}},
	} {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}, Rules: rule.rules}
		if err := rule.c.Create(t.Context(), role); !apierrors.IsAlreadyExists(err) {
			e.must(err)
		}
	}
	return e
}

func (e *widgetEnv) admins(t *testing.T) []*rest.Config {
	consumer, provider := kubetest.SharedPair(t)
	return []*rest.Config{consumer, provider}
}

func widgetDefinition() *apiextensionsv1.CustomResourceDefinition {
	open := true
	object := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &open}
	spec := apiextensionsv1.JSONSchemaProps{
		Type: "object", XPreserveUnknownFields: &open,
		Properties:   map[string]apiextensionsv1.JSONSchemaProps{"disk": {Type: "string"}},
		XValidations: apiextensionsv1.ValidationRules{{Rule: "!has(oldSelf.disk) || has(self.disk) && self.disk == oldSelf.disk", Message: "disk is immutable"}},
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec, "status": object},
				}},
			}},
		},
	}
}

// grant binds the role of a cluster for widgets.
func (e *widgetEnv) grant(c client.Client, namespace string, subject rbacv1.Subject) {
	e.t.Helper()
	e.must(c.Create(e.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "widgets"}, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "widgets"},
	}))
	e.waitForAccess(c, subject.Namespace, true, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Group: "example.com", Resource: "widgets"})
}

func (e *widgetEnv) grantHere() { e.grant(e.consumer, e.local, e.subject) }

func (e *widgetEnv) grantThere() {
	e.grant(e.provider, e.remote, rbacv1.Subject{Kind: "ServiceAccount", Namespace: e.identity.Namespace, Name: "virtual-kubelet"})
}

// list makes the NamespaceMap list the kind, or not.
func (e *widgetEnv) list(kinds ...vkv1alpha1.ReflectedKind) {
	e.t.Helper()
	e.editMap(func(m *vkv1alpha1.NamespaceMap) {
		m.Spec.CustomResources = map[string][]vkv1alpha1.ReflectedKind{e.local: kinds}
	})
}

func widget(namespace, name string) *unstructured.Unstructured {
	one := &unstructured.Unstructured{}
	one.SetGroupVersionKind(widgets)
	one.SetNamespace(namespace)
	one.SetName(name)
	return one
}

func (e *widgetEnv) create(name string, spec map[string]any) *unstructured.Unstructured {
	e.t.Helper()
	one := widget(e.local, name)
	one.Object["spec"] = spec
	e.must(e.consumer.Create(e.t.Context(), one))
	return one
}

// untilCopy waits for a copy for which the condition holds.
func (e *widgetEnv) untilCopy(what, name string, holds func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	e.t.Helper()
	one := widget(e.remote, name)
	e.until(what, func() bool { return e.exists(e.provider, one) && (holds == nil || holds(one)) })
	return one
}

// setStatus writes the status of a copy, as an operator of the provider does.
func (e *widgetEnv) setStatus(name string, status map[string]any) *unstructured.Unstructured {
	e.t.Helper()
	one := e.untilCopy("the copy", name, nil)
	one.Object["status"] = status
	e.must(e.provider.Status().Update(e.t.Context(), one))
	return one
}

// untilStatus waits until a local object has this status.
func (e *widgetEnv) untilStatus(what, name string, want map[string]any) {
	e.t.Helper()
	one := widget(e.local, name)
	e.until(what, func() bool {
		e.must(e.consumer.Get(e.t.Context(), client.ObjectKeyFromObject(one), one))
		status, _ := one.Object["status"].(map[string]any)
		return len(status) == 0 && len(want) == 0 || equality.Semantic.DeepEqual(status, want)
	})
}

// untilEvent waits for an event in the local namespace about an object of this name, whose message has this part.
func (e *widgetEnv) untilEvent(name, part string) {
	e.t.Helper()
	e.untilMessage(named(e.local, name), part)
}

// TestCustomResources: a kind that the namespace lists is a row like any other, and its status comes back.
func TestCustomResources(t *testing.T) {
	e := newWidgetEnv(t)
	e.grantHere()
	e.grantThere()
	e.list(vkv1alpha1.ReflectedKind{APIVersion: "example.com/v1", Kind: "Widget", Status: true})
	stop := e.run()
	local := widget(e.local, "lamp")
	local.Object["spec"] = map[string]any{"color": "red", "sizes": []any{int64(1), int64(2)}}
	local.SetLabels(map[string]string{"app": "shop"})
	local.SetFinalizers([]string{"example.com/hold"})
	e.must(e.consumer.Create(t.Context(), local))
	far := e.untilCopy("copy", "lamp", nil)
	if !equality.Semantic.DeepEqual(far.Object["spec"], local.Object["spec"]) || far.GetLabels()["app"] != "shop" || far.GetLabels()[labels.Origin] != localID ||
		len(far.GetFinalizers()) != 0 {
		t.Errorf("copy %v", far.Object)
	}
	e.edit(e.consumer, local, func() { local.Object["spec"].(map[string]any)["color"] = "blue" })
	far = e.untilCopy("changed copy", "lamp", func(one *unstructured.Unstructured) bool {
		return one.Object["spec"].(map[string]any)["color"] == "blue"
	})
	if got := far.GetAnnotations()[labels.LocalGeneration]; got != "2" {
		t.Errorf("the copy has generation %q of the local object, want 2", got)
	}

	// An operator there changes the spec, so that the two generations differ, and then has observed the copy.
	e.edit(e.provider, far, func() { far.Object["spec"].(map[string]any)["assigned"] = "n1" })
	e.setStatus("lamp", map[string]any{
		"observedGeneration": far.GetGeneration(), "phase": "Lit",
		"conditions": []any{map[string]any{"type": "Ready", "status": "True", "observedGeneration": far.GetGeneration() - 1}},
	})
	if far.GetGeneration() < 3 {
		t.Fatalf("generation there is %d: the test shows nothing", far.GetGeneration())
	}
	e.untilStatus("status", "lamp", map[string]any{
		"observedGeneration": int64(2), "phase": "Lit",
		"conditions": []any{map[string]any{"type": "Ready", "status": "True", "observedGeneration": int64(1)}},
	})
	e.waitIdle()

	stop()
	e.toConsumer.reset()
	e.toProvider.reset()
	e.run()
	e.waitIdle()
	if writes := append(e.toConsumer.writesTo(), e.toProvider.writesTo()...); len(writes) > 0 {
		t.Errorf("a restart writes %v", writes)
	}
	e.setStatus("lamp", map[string]any{"phase": "Out"})
	e.untilStatus("less status", "lamp", map[string]any{"phase": "Out"})

	t.Run("skipped", func(t *testing.T) {
		e.edit(e.consumer, local, func() { local.SetAnnotations(map[string]string{labels.SkipReflection: ""}) })
		e.until("the copy is gone", func() bool { return !e.exists(e.provider, widget(e.remote, "lamp")) })
		e.untilStatus("its status is gone", "lamp", nil)
		e.edit(e.consumer, local, func() { local.SetAnnotations(nil) })
		e.setStatus("lamp", map[string]any{"phase": "Lit"})
		e.untilStatus("status again", "lamp", map[string]any{"phase": "Lit"})
	})
	t.Run("warning", func(t *testing.T) {
		far := e.untilCopy("copy", "lamp", nil)
		e.must(e.provider.Create(t.Context(), &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: e.remote, GenerateName: "lamp."},
			InvolvedObject: corev1.ObjectReference{APIVersion: "example.com/v1", Kind: "Widget", Namespace: e.remote, Name: "lamp", UID: far.GetUID()},
			Type:           corev1.EventTypeWarning, Reason: "Broken", Message: "the bulb is broken", Count: 1, LastTimestamp: metav1.Now(),
		}))
		e.untilEvent("lamp", "the bulb is broken")
	})
	t.Run("status comes from elsewhere", func(t *testing.T) {
		e.list(vkv1alpha1.ReflectedKind{APIVersion: "example.com/v1", Kind: "Widget"})
		e.untilStatus("its status is gone", "lamp", nil)
		e.setStatus("lamp", map[string]any{"phase": "Broken"})
		e.waitIdle()
		e.untilStatus("it stays away", "lamp", nil)
		e.list(vkv1alpha1.ReflectedKind{APIVersion: "example.com/v1", Kind: "Widget", Status: true})
		e.untilStatus("status again", "lamp", map[string]any{"phase": "Broken"})
	})
	t.Run("deleted", func(t *testing.T) {
		second := e.create("second", nil)
		e.untilCopy("copy", "second", nil)
		e.must(e.consumer.Delete(t.Context(), second))
		e.until("the copy is gone", func() bool { return !e.exists(e.provider, widget(e.remote, "second")) })
	})
	t.Run("unoffloaded", func(t *testing.T) {
		e.editMapStatus(func(m *vkv1alpha1.NamespaceMap) {
			m.Status.CurrentMapping[e.local] = vkv1alpha1.RemoteNamespaceStatus{RemoteNamespace: e.remote, Phase: vkv1alpha1.MappingTerminating}
		})
		e.untilStatus("its status is gone", "lamp", nil)
		e.editMapStatus(func(m *vkv1alpha1.NamespaceMap) {
			m.Status.CurrentMapping[e.local] = vkv1alpha1.RemoteNamespaceStatus{RemoteNamespace: e.remote, Phase: vkv1alpha1.MappingAccepted}
		})
		e.untilStatus("status again", "lamp", map[string]any{"phase": "Broken"})
	})
	t.Run("not listed any more", func(t *testing.T) {
		e.list()
		e.until("the copy is gone", func() bool { return !e.exists(e.provider, widget(e.remote, "lamp")) })
		e.untilStatus("its status is gone", "lamp", nil)
		if !e.exists(e.consumer, widget(e.local, "lamp")) {
			t.Error("the local object is gone as well")
		}
	})
}

// TestCustomResourcesAreGuarded: nothing is lost or taken over, and a peer does not write what it likes.
func TestCustomResourcesAreGuarded(t *testing.T) {
	e := newWidgetEnv(t)
	e.grantHere()
	e.grantThere()
	e.list(vkv1alpha1.ReflectedKind{APIVersion: "example.com/v1", Kind: "Widget", Status: true})
	theirs := widget(e.remote, "theirs")
	theirs.Object["spec"] = map[string]any{"color": "green"}
	e.must(e.provider.Create(t.Context(), theirs))
	e.run()
	e.create("theirs", map[string]any{"color": "red"})
	e.untilEvent("theirs", "not managed by this one")
	e.untilCopy("an object of others stays", "theirs", func(one *unstructured.Unstructured) bool {
		return one.Object["spec"].(map[string]any)["color"] == "green"
	})

	local := e.create("data", nil)
	far := e.untilCopy("copy", "data", nil)
	e.edit(e.provider, far, func() { far.Object["spec"] = map[string]any{"disk": "b"} })
	e.edit(e.consumer, local, func() { local.Object["spec"] = map[string]any{"disk": "a"} })
	e.untilEvent("data", "disk is immutable")
	if now := e.untilCopy("it stays", "data", nil); now.GetUID() != far.GetUID() {
		t.Error("the copy was deleted and created again: what it stands for may have been deleted with it")
	}

	// An autoscaler there overwrites a field at once whenever it is corrected.
	e.create("scaled", map[string]any{"size": int64(1)})
	e.untilCopy("copy", "scaled", nil)
	e.waitIdle()
	e.toProvider.reset()
	scaling, stopScaling := context.WithCancel(t.Context())
	scaled := make(chan struct{})
	go func() {
		defer close(scaled)
		for one := widget(e.remote, "scaled"); scaling.Err() == nil; {
			if e.provider.Get(scaling, client.ObjectKeyFromObject(one), one) == nil && one.Object["spec"].(map[string]any)["size"] == int64(1) {
				one.Object["spec"].(map[string]any)["size"] = int64(5)
				_ = e.provider.Update(scaling, one, client.FieldOwner("autoscaler")) // a conflict is tried again
			}
		}
	}()
	e.untilEvent("scaled", "keeps changing fields of the copy")
	stopScaling()
	<-scaled
	if writes := e.toProvider.writesTo("widgets/scaled"); len(writes) > 8 {
		t.Errorf("%d corrections until it was reported", len(writes))
	}

	// A status that changes without end costs few writes, and the last state arrives.
	e.create("busy", nil)
	e.untilCopy("copy", "busy", nil)
	e.waitIdle()
	e.toConsumer.reset()
	began, changes := time.Now(), 0
	for ; changes < 200 || time.Since(began) < 2*time.Second; changes++ {
		e.setStatus("busy", map[string]any{"text": fmt.Sprint(changes)})
	}
	last := map[string]any{"text": fmt.Sprint(changes - 1)}
	e.untilStatus("the last one", "busy", last)
	if writes, most := len(e.toConsumer.writesTo("widgets/busy")), 12+int(time.Since(began)/time.Second); writes > most {
		t.Errorf("%d writes for %d changes, want at most %d", writes, changes, most)
	}

	e.create("flood", nil)
	e.setStatus("flood", map[string]any{"text": strings.Repeat("x", 300<<10)})
	e.untilEvent("flood", "longer than")
	e.untilStatus("nothing of it is here", "flood", nil)
}

// TestCustomResourcesAreGranted: what is missing is reported where the user looks for it, and the kind starts once it is there.
func TestCustomResourcesAreGranted(t *testing.T) {
	e := newWidgetEnv(t)
	offloading := &unstructured.Unstructured{}
	offloading.SetGroupVersionKind(offloadingv1alpha1.GroupVersion.WithKind("NamespaceOffloading"))
	offloading.SetNamespace(e.local)
	offloading.SetName(offloadingv1alpha1.NamespaceOffloadingName)
	e.must(e.consumer.Create(t.Context(), offloading))
	e.list(
		vkv1alpha1.ReflectedKind{APIVersion: "example.com/v1", Kind: "Widget", Status: true}, vkv1alpha1.ReflectedKind{APIVersion: "example.com/v1", Kind: "Gadget"},
		vkv1alpha1.ReflectedKind{APIVersion: "networking.k8s.io/v1", Kind: "Ingress"},
	)
	e.run()
	e.create("lamp", nil)
	e.untilEvent("offloading", "this cluster serves no Gadget of example.com/v1")
	e.untilEvent("offloading", "kinds of the group networking.k8s.io are not reflected as custom resources")
	e.untilEvent("offloading", "virtual kubelets may not read widgets.example.com")
	e.grantHere()
	e.untilEvent("offloading", `cluster "milan" grants no rights on widgets.example.com`)
	e.grantThere()
	e.untilCopy("copy", "lamp", nil)
}
