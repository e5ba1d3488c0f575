// SPDX-License-Identifier: Apache-2.0

package purge

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

type silent struct{}

func (silent) Start(string) {}
func (silent) Done(string)  {}
func (silent) Info(string)  {}
func (silent) Warn(string)  {}
func (silent) Stop()        {}

// installation is the set of objects of a Liqo whose processes do not clean up, in a namespace that stays.
func installation(ready int32) []client.Object {
	ours := map[string]string{labels.AppPartOf: labels.PartOf}
	in := func(name string, more ...string) metav1.ObjectMeta {
		meta := metav1.ObjectMeta{Namespace: "liqo", Name: name, Labels: map[string]string{labels.AppPartOf: labels.PartOf}}
		for i := 0; i+1 < len(more); i += 2 {
			meta.Labels[more[i]] = more[i+1]
		}
		return meta
	}
	definition := func(plural, kind string) client.Object {
		return &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: plural + ".net.liqo.io"},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: "net.liqo.io", Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind, ListKind: kind + "List"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1alpha1", Served: true}},
			},
		}
	}
	return []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-milan", Labels: map[string]string{labels.TenantNamespace: "true"}}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "unmanaged"}},
		&appsv1.Deployment{ObjectMeta: in("liqo-controller-manager", labels.AppComponent, "controller-manager")},
		&appsv1.Deployment{ObjectMeta: in("liqo-gateway-1", labels.AppComponent, "gateway")},
		&appsv1.DaemonSet{ObjectMeta: in("liqo-route", labels.AppComponent, "route"), Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 2, NumberReady: ready}},
		&corev1.Service{ObjectMeta: in("liqo-gateway-1", labels.Gateway, "true")},
		&corev1.Secret{ObjectMeta: in("liqo-gateway-keys")},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "liqo-route", Labels: ours}},
		definition("tunnelendpoints", "TunnelEndpoint"), definition("networkconfigs", "NetworkConfig"),
		&netv1alpha1.TunnelEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"}},
		&netv1alpha1.NetworkConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "rome", Finalizers: []string{labels.FinalizerReplication}}},
	}
}

// TestNothingStaysHeld: no controller is left to remove our finalizers, so a purge removes them from our kinds and from pods of
// peers.
func TestNothingStaysHeld(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, offloadingv1alpha1.AddToScheme, vkv1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	definition := func(group, plural, kind string) client.Object {
		return &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: group, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind, ListKind: kind + "List"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1alpha1", Served: true}},
			},
		}
	}
	ofPeer := map[string]string{labels.ManagedBy: labels.ManagedByShadowPod}
	held := []string{labels.FinalizerPodEnd, "example.com/theirs"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: "job", Labels: ofPeer, Finalizers: held}}
	objects := []client.Object{
		definition("offloading.liqo.io", "namespaceoffloadings", "NamespaceOffloading"), definition("virtualkubelet.liqo.io", "namespacemaps", "NamespaceMap"),
		&offloadingv1alpha1.NamespaceOffloading{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "offloading", Finalizers: []string{labels.FinalizerNamespaceOffloading}},
		},
		&vkv1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan", Finalizers: []string{labels.FinalizerNamespaceMap}}},
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(objects, pod)...).Build()
	if _, err := Purge(t.Context(), c, "liqo", true, silent{}); err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
			t.Errorf("%T %s is not gone: %v", object, object.GetName(), err)
		}
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil || !slices.Equal(pod.Finalizers, held[1:]) {
		t.Errorf("held by %q, %v", pod.Finalizers, err)
	}
}

// TestNodesFirst: agents observe the end of the last tunnel while they still run and have their permissions; if they do not run,
// the purge still ends.
func TestNodesFirst(t *testing.T) {
	for _, test := range []struct {
		name  string
		ready int32
		most  time.Duration
	}{
		{"agents run", 2, tidyTime + time.Second},
		{"an agent is dead", 1, agentsTime + time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { purgeInOrder(t, test.ready, test.most) })
		})
	}
}

func purgeInOrder(t *testing.T, ready int32, most time.Duration) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, netv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	var order []string
	at := map[string]time.Duration{}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(installation(ready)...).WithInterceptorFuncs(interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, _ ...client.DeleteOption) error {
			name := kindOf(object, scheme) + " " + object.GetName()
			order, at[name] = append(order, name), time.Since(start)
			return c.Delete(ctx, object)
		},
	}).Build()
	if _, err := Purge(t.Context(), c, "liqo", true, silent{}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > most {
		t.Errorf("took %s, more than %s", took, most)
	}
	last := -1
	for _, name := range []string{
		"Deployment liqo-controller-manager", "TunnelEndpoint milan", "ClusterRoleBinding liqo-route", "DaemonSet liqo-route",
	} {
		i := slices.Index(order, name)
		if i <= last {
			t.Errorf("%s was deleted as number %d, after one that comes later:\n%q", name, i, order)
		}
		last = i
	}
	if between := at["ClusterRoleBinding liqo-route"] - at["TunnelEndpoint milan"]; between < tidyTime {
		t.Errorf("the agents had %s, want %s", between, tidyTime)
	}
	for _, object := range installation(ready) {
		_, isPod := object.(*corev1.Pod)
		stays := isPod || object.GetName() == "liqo"
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); (err == nil) != stays || err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("%T %s: %v, stays: %t", object, object.GetName(), err, stays)
		}
	}
}

// TestNamespaceOfOthersStays: a namespace is deleted only if it is known to be Liqo's, and one without its label only if nothing of others is in it.
func TestNamespaceOfOthersStays(t *testing.T) {
	ours := map[string]string{labels.AppPartOf: labels.PartOf}
	in := func(name string, has map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "infra", Name: name, Labels: has}
	}
	ofKubernetes := []client.Object{
		&corev1.ServiceAccount{ObjectMeta: in("default", nil)}, &corev1.ConfigMap{ObjectMeta: in("kube-root-ca.crt", nil)},
		&corev1.Secret{ObjectMeta: in("sh.helm.release.v1.liqo.v1", map[string]string{"owner": "helm", "name": "liqo"})},
	}
	key := &corev1.Secret{ObjectMeta: in("liqo-peering-key", ours)}
	for _, test := range []struct {
		name      string
		labels    map[string]string
		installed bool
		objects   []client.Object
		stays     bool
	}{
		{"misspelt, without anything", nil, false, nil, true},
		{"misspelt, with a Secret", nil, false, []client.Object{&corev1.Secret{ObjectMeta: in("theirs", nil)}}, true},
		{"created by liqoctl", ours, false, nil, false},
		{"created by liqoctl, with credentials of a registry", ours, true, []client.Object{&corev1.Secret{ObjectMeta: in("registry", nil)}}, false},
		{"created by liqoctl, with a workload", ours, true, []client.Object{&appsv1.StatefulSet{ObjectMeta: in("theirs", nil)}}, true},
		{"created for Helm", nil, true, nil, false},
		{"created for Helm, whose record is lost", nil, false, []client.Object{key}, false},
		{"shared, with a CronJob", nil, true, []client.Object{key, &batchv1.CronJob{ObjectMeta: in("theirs", nil)}}, true},
		{"shared, with a Secret", nil, false, []client.Object{key, &corev1.Secret{ObjectMeta: in("theirs", nil)}}, true},
		{
			"shared, with the record of another release", nil, true,
			[]client.Object{&corev1.Secret{ObjectMeta: in("theirs", map[string]string{"owner": "helm", "name": "shop"})}},
			true,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme} {
				if err := add(scheme); err != nil {
					t.Fatal(err)
				}
			}
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "infra", Labels: test.labels}}
			builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(namespace)
			for _, object := range append(ofKubernetes, test.objects...) {
				builder.WithObjects(object.DeepCopyObject().(client.Object))
			}
			c := builder.Build()
			if _, err := Purge(t.Context(), c, "infra", test.installed, silent{}); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace); (err == nil) != test.stays {
				t.Errorf("%v, stays: %t", err, test.stays)
			}
			for _, object := range test.objects {
				if object.GetLabels()[labels.AppPartOf] == labels.PartOf || !test.stays {
					continue
				}
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
					t.Errorf("%s: %v", object.GetName(), err)
				}
			}
		})
	}
}
