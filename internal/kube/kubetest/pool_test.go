// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// A server that was lent has, for the next test, what it had when it started: whatever a test makes, changes and deletes, in any order.
func TestLentServersAreReset(t *testing.T) {
	dir := assets(t)
	var own pool
	lent, err := own.borrow(dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	c := lent[0]
	t.Cleanup(func() { report(t, c.stop()) })
	if err := c.remember(t.Context()); err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	for range 3 {
		test := newLendingEnv(t, c)
		for range 3 {
			for _, choice := range random.Perm(len(test.kinds()) + 3) {
				test.act(choice, random)
			}
		}
		if err := own.giveBack(c); err != nil {
			t.Fatal(err)
		}
		if len(own.idle) != 1 {
			t.Fatal("the server was not kept")
		}
		test.expectReset()
		if lent, err = own.borrow(dir, 1); err != nil || lent[0] != c {
			t.Fatalf("the next test got another server: %v", err)
		}
	}
}

// What the API server still acts on after its end makes the server useless for another test.
func TestServersThatRememberAreStopped(t *testing.T) {
	dir := assets(t)
	for name, object := range map[string]client.Object{
		"webhook": &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "w"}},
		"quota":   &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q", Namespace: "default"}},
		"foreign definition": &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "things.other.example"}, Spec: definition("other.example"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			var own pool
			lent, err := own.borrow(dir, 1)
			if err != nil {
				t.Fatal(err)
			}
			if err := lent[0].remember(t.Context()); err != nil {
				t.Fatal(err)
			}
			newLendingEnv(t, lent[0]).Make(object)
			if err := own.giveBack(lent[0]); err != nil {
				t.Fatal(err)
			}
			if len(own.idle) != 0 {
				report(t, lent[0].stop())
				t.Error("the server would be lent again")
			}
		})
	}
}

// What a test writes after its end, by something that it forgot to stop, reaches no other test.
func TestLateWritesReachNoOtherTest(t *testing.T) {
	dir := assets(t)
	var own pool
	lent, err := own.borrow(dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := lent[0].remember(t.Context()); err != nil {
		t.Fatal(err)
	}
	test := newLendingEnv(t, lent[0])
	if err := own.giveBack(lent[0]); err != nil {
		t.Fatal(err)
	}
	test.Make(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late", Namespace: "default"}})
	again, err := own.borrow(dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { report(t, again[0].stop()) })
	test.expectReset()
}

type lendingEnv struct {
	Env
	cluster *cluster
	made    int
}

func newLendingEnv(t *testing.T, c *cluster) *lendingEnv {
	t.Helper()
	scheme := runtime.NewScheme()
	test := &lendingEnv{Env: Env{T: t}, cluster: c}
	test.Must(clientgoscheme.AddToScheme(scheme))
	test.Must(apiextensionsv1.AddToScheme(scheme))
	_, err := envtest.InstallCRDs(c.config, envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{{
		ObjectMeta: metav1.ObjectMeta{Name: "things.test.liqo.io"}, Spec: definition("test.liqo.io"),
	}}})
	test.Must(err)
	test.Client, err = client.New(c.config, client.Options{Scheme: scheme})
	test.Must(err)
	return test
}

func definition(group string) apiextensionsv1.CustomResourceDefinitionSpec {
	return apiextensionsv1.CustomResourceDefinitionSpec{
		Group: group, Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Singular: "thing", Kind: "Thing", ListKind: "ThingList"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
			OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)},
		}}},
	}
}

// kinds returns an object of each kind, every second one with a finalizer.
func (e *lendingEnv) kinds() []client.Object {
	name := fmt.Sprintf("o%d", e.made)
	inside, wide := metav1.ObjectMeta{Name: name, Namespace: "default"}, metav1.ObjectMeta{Name: name}
	if e.made%2 == 0 {
		inside.Finalizers, wide.Finalizers = []string{"test.liqo.io/kept"}, []string{"test.liqo.io/kept"}
	}
	thing := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "test.liqo.io/v1", "kind": "Thing"}}
	thing.SetName(name)
	thing.SetNamespace("default")
	thing.SetFinalizers(inside.Finalizers)
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}
	return []client.Object{
		&corev1.ConfigMap{ObjectMeta: inside}, &corev1.Secret{ObjectMeta: inside}, &corev1.ServiceAccount{ObjectMeta: inside},
		&corev1.Event{ObjectMeta: inside, InvolvedObject: corev1.ObjectReference{Namespace: "default"}},
		&corev1.Service{ObjectMeta: inside, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80}}}},
		&corev1.Node{ObjectMeta: wide}, &corev1.Namespace{ObjectMeta: wide}, &rbacv1.ClusterRole{ObjectMeta: wide},
		&networkingv1.Ingress{ObjectMeta: inside, Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{
			Service: &networkingv1.IngressServiceBackend{Name: "s", Port: networkingv1.ServiceBackendPort{Number: 80}},
		}}},
		&coordinationv1.Lease{ObjectMeta: inside}, &storagev1.StorageClass{ObjectMeta: wide, Provisioner: "test.liqo.io/none"},
		&appsv1.Deployment{ObjectMeta: inside, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: pod},
		}},
		thing,
	}
}

// act makes an object of a kind, or changes or deletes an object of the server, or deletes any of the test.
func (e *lendingEnv) act(choice int, random *rand.Rand) {
	e.T.Helper()
	kinds := e.kinds()
	switch choice - len(kinds) {
	case 0:
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		e.Edit(namespace, func() { namespace.Labels["changed"] = fmt.Sprint(e.made) })
	case 1:
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "view"}}
		e.Must(client.IgnoreNotFound(e.Delete(e.T.Context(), role)))
	case 2:
		list := &corev1.SecretList{}
		e.Must(e.List(e.T.Context(), list, client.InNamespace("default")))
		if len(list.Items) > 0 {
			e.Must(e.Delete(e.T.Context(), &list.Items[random.IntN(len(list.Items))]))
		}
	default:
		e.Make(kinds[choice])
		e.made++
	}
}

// expectReset compares what the store has, and what the caches of the API server show, with the start.
func (e *lendingEnv) expectReset() {
	e.T.Helper()
	now, err := e.cluster.etcd().inventory(context.Background())
	e.Must(err)
	if deleted, put := difference(e.cluster.first, now); len(deleted)+len(put) > 0 {
		e.T.Errorf("left over: %v; not as it was: %d", deleted, len(put))
	}
	things := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "test.liqo.io/v1", "kind": "ThingList"}}
	for _, list := range []client.ObjectList{
		&corev1.ConfigMapList{}, &corev1.SecretList{}, &corev1.ServiceAccountList{}, &corev1.ServiceList{}, &corev1.NodeList{}, &rbacv1.RoleList{},
		&networkingv1.IngressList{}, &coordinationv1.LeaseList{}, &storagev1.StorageClassList{}, &appsv1.DeploymentList{}, things,
	} {
		e.Must(e.List(e.T.Context(), list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}))
		var names []string
		e.Must(meta.EachListItem(list, func(item runtime.Object) error {
			object, err := meta.Accessor(item)
			if err == nil && object.GetNamespace() != "kube-system" && object.GetNamespace() != "kube-public" && object.GetName() != "kubernetes" {
				names = append(names, object.GetNamespace()+"/"+object.GetName())
			}
			return err
		}))
		if len(names) > 0 {
			e.T.Errorf("the cache of the API server still shows %T %s", list, slices.Sorted(slices.Values(names)))
		}
	}
	var namespace corev1.Namespace
	e.Must(e.Get(e.T.Context(), client.ObjectKey{Name: "default"}, &namespace))
	if namespace.Labels["changed"] != "" {
		e.T.Errorf("namespace default has the labels %v", namespace.Labels)
	}
}

// What a server was prepared with is there for every test, whatever the one before has done, and is made once.
func TestPrepared(t *testing.T) {
	prepared := 0
	made := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	}
	lent := Prepared(func(t testing.TB, admin *rest.Config) {
		prepared++
		c, err := client.New(admin, client.Options{})
		if err == nil {
			err = c.Create(t.Context(), made("prepared"))
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	for _, name := range []string{"first", "second"} {
		t.Run(name, func(t *testing.T) {
			c, err := client.New(lent(t), client.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Delete(t.Context(), made("prepared")); err != nil {
				t.Errorf("what the server was prepared with: %v", err)
			}
			if err := c.Create(t.Context(), made("left")); err != nil {
				t.Errorf("what the test before has left: %v", err)
			}
		})
	}
	if prepared != 1 {
		t.Errorf("servers were prepared %d times, want once", prepared)
	}
}
