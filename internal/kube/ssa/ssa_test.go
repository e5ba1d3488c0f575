// SPDX-License-Identifier: Apache-2.0

package ssa

import (
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	appsconfig "k8s.io/client-go/applyconfigurations/apps/v1"
	coreconfig "k8s.io/client-go/applyconfigurations/core/v1"
	metaconfig "k8s.io/client-go/applyconfigurations/meta/v1"
	rbacconfig "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/internal/kube/kubetest"
)

func TestMain(m *testing.M) {
	log.SetLogger(klog.Background())
	os.Exit(m.Run())
}

const owner = "liqo-test"

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// counted returns a client of a new namespace, and the number of patches it sent.
func counted(t *testing.T) (c client.Client, namespace string, patches *atomic.Int64) {
	t.Helper()
	config, _ := kubetest.SharedPair(t)
	patches = &atomic.Int64{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPatch {
				patches.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	config.WarningHandler = rest.NoWarnings{}
	c, err := client.New(config, client.Options{})
	must(t, err)
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "ssa-"}}
	must(t, c.Create(t.Context(), object))
	return c, object.Name, patches
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// deployment has the fields that are hard to compare: lists by key whose keys have defaults, sets, quantities, zeros.
func deployment(namespace string) *appsconfig.DeploymentApplyConfiguration {
	labels := map[string]string{"app": "x"}
	container := coreconfig.Container().WithName("main").WithImage("liqo:1").WithArgs("virtual-kubelet", "--nodename=x").
		WithPorts(coreconfig.ContainerPort().WithContainerPort(8081).WithName("health")).
		WithEnv(coreconfig.EnvVar().WithName("POD_IP").WithValueFrom(coreconfig.EnvVarSource().WithFieldRef(coreconfig.ObjectFieldSelector().WithAPIVersion("v1").
			WithFieldPath("status.podIP")))).
		WithResources(coreconfig.ResourceRequirements().WithRequests(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000m")})).
		WithSecurityContext(coreconfig.SecurityContext().WithPrivileged(false).WithCapabilities(coreconfig.Capabilities().WithDrop("ALL")))
	return appsconfig.Deployment("kubelet", namespace).WithLabels(labels).WithFinalizers("test/finalizer").
		WithSpec(appsconfig.DeploymentSpec().WithReplicas(1).
			WithSelector(metaconfig.LabelSelector().WithMatchLabels(labels)).
			WithStrategy(appsconfig.DeploymentStrategy().WithType(appsv1.RecreateDeploymentStrategyType)).
			WithTemplate(coreconfig.PodTemplateSpec().WithLabels(labels).
				WithSpec(coreconfig.PodSpec().WithContainers(container).WithServiceAccountName("x").WithHostNetwork(false))))
}

func role(namespace string, resources ...string) runtime.ApplyConfiguration {
	return rbacconfig.Role("role", namespace).WithRules(rbacconfig.PolicyRule().WithAPIGroups("").WithResources(resources...).WithVerbs("get"))
}

func TestApplyTwiceWritesOnce(t *testing.T) {
	c, namespace, patches := counted(t)
	for name, intent := range map[string]runtime.ApplyConfiguration{
		"Deployment":     deployment(namespace),
		"Role":           role(namespace, "pods", "services"),
		"ServiceAccount": coreconfig.ServiceAccount("account", namespace).WithLabels(map[string]string{"a": "b"}).WithAutomountServiceAccountToken(false),
		"Service": coreconfig.Service("service", namespace).WithSpec(coreconfig.ServiceSpec().WithSelector(map[string]string{"a": "b"}).
			WithPorts(coreconfig.ServicePort().WithName("http").WithPort(80), coreconfig.ServicePort().WithName("https").WithPort(443))),
		"Secret": coreconfig.Secret("secret", namespace).WithType(corev1.SecretTypeOpaque).WithData(map[string][]byte{"token": {0, 1, 2}}),
	} {
		patches.Store(0)
		applier := NewApplier(c, owner)
		must(t, applier.Apply(t.Context(), intent))
		if got := patches.Load(); got != 1 {
			t.Errorf("%s: %d requests for the first apply", name, got)
		}
		must(t, applier.Apply(t.Context(), intent))
		if got := patches.Load(); got != 1 {
			t.Errorf("%s: the second apply was sent", name)
		}
		// A new process has no memory, only the managed fields.
		must(t, NewApplier(c, owner).Apply(t.Context(), intent))
		if got := patches.Load(); got != 1 {
			t.Errorf("%s: applied again after a restart", name)
		}
		// Another owner with the same intent has to send it once to share the fields.
		must(t, NewApplier(c, "liqo-other").Apply(t.Context(), intent))
		if got := patches.Load(); got != 2 {
			t.Errorf("%s: %d requests, want one for another owner", name, got)
		}
	}
}

func TestChangesAreWritten(t *testing.T) {
	c, namespace, patches := counted(t)
	applier := NewApplier(c, owner)
	must(t, applier.Apply(t.Context(), role(namespace, "pods", "services")))

	// With fewer fields in the intent, the owner releases the others, even if the process does not remember them.
	must(t, NewApplier(c, owner).Apply(t.Context(), rbacconfig.Role("role", namespace)))
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("Role"))
	key := client.ObjectKey{Namespace: namespace, Name: "role"}
	must(t, c.Get(t.Context(), key, object))
	for _, entry := range object.ManagedFields {
		if entry.Manager == owner && strings.Contains(string(entry.FieldsV1.GetRawBytes()), "f:rules") {
			t.Error("a field that is not in the intent any more is still owned")
		}
	}

	// The change of another client is reverted.
	config := coreconfig.ConfigMap("map", namespace).WithData(map[string]string{"a": "1"})
	must(t, applier.Apply(t.Context(), config))
	live := &corev1.ConfigMap{}
	key.Name = "map"
	must(t, c.Get(t.Context(), key, live))
	live.Data["a"], live.Data["b"] = "2", "unmanaged"
	must(t, c.Update(t.Context(), live))
	must(t, applier.Apply(t.Context(), config))
	must(t, c.Get(t.Context(), key, live))
	if live.Data["a"] != "1" || live.Data["b"] != "unmanaged" {
		t.Errorf("data %v", live.Data)
	}
	// A change outside our fields is not.
	live.Data["b"] = "changed"
	must(t, c.Update(t.Context(), live))
	before := patches.Load()
	must(t, applier.Apply(t.Context(), config))
	if patches.Load() != before {
		t.Error("applied again because of a field that another client owns")
	}

	// Another client deletes and recreates it: a different object with the same name.
	must(t, c.Delete(t.Context(), live))
	must(t, c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "map"}, Data: map[string]string{"a": "1"}}))
	must(t, applier.Apply(t.Context(), config))
	if patches.Load() != before+1 {
		t.Error("not applied to an object that has the values but not our ownership")
	}
}

func TestApplyToLiveObject(t *testing.T) {
	c, namespace, patches := counted(t)
	applier := NewApplier(c, owner)
	key := client.ObjectKey{Namespace: namespace, Name: "map"}
	intent := func(value string) runtime.ApplyConfiguration {
		return coreconfig.ConfigMap("map", namespace).WithData(map[string]string{"a": value})
	}
	must(t, applier.ApplyTo(t.Context(), intent("1"), nil))
	first := &corev1.ConfigMap{}
	must(t, c.Get(t.Context(), key, first))
	must(t, applier.ApplyTo(t.Context(), intent("2"), first))
	if patches.Load() != 2 {
		t.Fatalf("%d requests", patches.Load())
	}
	// The cache lags behind: it has the object as it was before our last write.
	must(t, applier.ApplyTo(t.Context(), intent("2"), first))
	if patches.Load() != 2 {
		t.Error("applied again because the cache lags behind")
	}
	// Back to the first intent, which the cache still shows.
	must(t, applier.ApplyTo(t.Context(), intent("1"), first))
	last := &corev1.ConfigMap{}
	must(t, c.Get(t.Context(), key, last))
	if last.Data["a"] != "1" {
		t.Errorf("a change was skipped because the lagging cache shows it: %v", last.Data)
	}
	// Without managed fields there is no proof.
	stripped := last.DeepCopy()
	stripped.ManagedFields = nil
	before := patches.Load()
	must(t, NewApplier(c, owner).ApplyTo(t.Context(), intent("1"), stripped))
	if patches.Load() != before+1 {
		t.Error("an object without managed fields was taken as proof")
	}
	applier.Forget(key)
	if len(applier.last) > 0 {
		t.Error("Forget kept an entry")
	}
	for _, name := range []client.ObjectKey{{Name: "gone"}, {Namespace: "gone", Name: "a"}, {Namespace: "stays", Name: "gone"}, {Name: "stays"}} {
		applier.last[target{name: name}] = written{}
	}
	applier.ForgetNamespace("gone")
	if _, has := applier.last[target{name: client.ObjectKey{Namespace: "stays", Name: "gone"}}]; !has || len(applier.last) != 2 {
		t.Errorf("after ForgetNamespace: %v", applier.last)
	}
}

func TestStatusHasOneOwnerPerCondition(t *testing.T) {
	c, namespace, patches := counted(t)
	must(t, c.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pod"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}))
	intent := func(kind corev1.PodConditionType) runtime.ApplyConfiguration {
		return coreconfig.Pod("pod", namespace).WithStatus(coreconfig.PodStatus().WithConditions(
			coreconfig.PodCondition().WithType(kind).WithStatus(corev1.ConditionTrue).WithReason("Because")))
	}
	one, two := NewApplier(c, "liqo-one"), NewApplier(c, "liqo-two")
	for range 3 {
		must(t, one.ApplyStatus(t.Context(), intent("One")))
		must(t, two.ApplyStatus(t.Context(), intent("Two")))
	}
	if patches.Load() != 2 {
		t.Errorf("%d requests, want one per owner", patches.Load())
	}
	pod := &corev1.Pod{}
	must(t, c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "pod"}, pod))
	if len(pod.Status.Conditions) != 2 {
		t.Errorf("conditions %+v", pod.Status.Conditions)
	}
	must(t, NewApplier(c, "liqo-one").ApplyStatus(t.Context(), intent("One")))
	if patches.Load() != 2 {
		t.Error("applied again after a restart")
	}
	// An intent with a UID is for one object, not for a later one with the same name.
	with := func(uid types.UID) runtime.ApplyConfiguration {
		return intent("One").(*coreconfig.PodApplyConfiguration).WithUID(uid)
	}
	must(t, NewApplier(c, "liqo-one").ApplyStatus(t.Context(), with(pod.UID)))
	if patches.Load() != 2 {
		t.Error("applied again after a restart, with the UID of the object")
	}
	if err := NewApplier(c, "liqo-one").ApplyStatus(t.Context(), with("another")); err == nil {
		t.Error("applied to an object with another UID")
	}
	err := one.ApplyStatus(t.Context(), coreconfig.Pod("gone", namespace).WithStatus(coreconfig.PodStatus().WithReason("x")))
	if !apierrors.IsNotFound(err) {
		t.Errorf("status of an object that does not exist: %v, want NotFound", err)
	}
}

func TestTransformKeepsOurManagedFields(t *testing.T) {
	object := &corev1.ConfigMap{}
	object.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: owner, Operation: metav1.ManagedFieldsOperationApply},
		{Manager: owner, Operation: metav1.ManagedFieldsOperationUpdate},
		{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationApply},
	}
	transform := Owned(func(manager string) bool { return manager == owner })
	_, err := transform(object)
	must(t, err)
	if len(object.ManagedFields) != 1 || object.ManagedFields[0].Operation != metav1.ManagedFieldsOperationApply {
		t.Errorf("kept %+v", object.ManagedFields)
	}
	if out, err := transform("a key"); out != "a key" || err != nil {
		t.Errorf("got %v, %v for a value that is no object", out, err)
	}
}

// Unit tests of other packages use the library's fake client.
func TestFakeClient(t *testing.T) {
	c := fake.NewClientBuilder().WithReturnManagedFields().Build()
	intent := coreconfig.ConfigMap("map", "default").WithData(map[string]string{"a": "1"})
	applier := NewApplier(c, owner)
	must(t, applier.Apply(t.Context(), intent))
	must(t, applier.Apply(t.Context(), intent))
	live := &corev1.ConfigMap{}
	must(t, c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "map"}, live))
	if live.Data["a"] != "1" {
		t.Errorf("data %v", live.Data)
	}
	must(t, Apply(t.Context(), c, intent, owner))
}

// TestApplyToMetadata: a caller that has only metadata detects, by the managed fields, whether another client changed our fields.
func TestApplyToMetadata(t *testing.T) {
	c, namespace, patches := counted(t)
	intent := func() *coreconfig.ServiceApplyConfiguration {
		return coreconfig.Service("service", namespace).WithLabels(map[string]string{"a": "b"}).WithSpec(coreconfig.ServiceSpec().
			WithSelector(map[string]string{"a": "b"}).WithPorts(coreconfig.ServicePort().WithName("http").WithPort(80)))
	}
	must(t, NewApplier(c, owner).ApplyTo(t.Context(), intent(), nil))
	metadata := func() *metav1.PartialObjectMetadata {
		live := &metav1.PartialObjectMetadata{}
		live.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Service"))
		must(t, c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "service"}, live))
		Fingerprint(live, owner)
		Fingerprint(live, owner) // idempotent
		return live
	}
	var full corev1.Service
	must(t, c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "service"}, &full))
	applier := NewApplierOf(func() client.Client { return c }, owner)
	if held, err := applier.Recall(intent(), &full); err != nil || !held {
		t.Fatalf("Recall does not recognise the intent in the live object: %v", err)
	}
	if held, _ := applier.Recall(intent().WithLabels(map[string]string{"a": "c"}), &full); held {
		t.Error("Recall recognises another intent")
	}
	edit := func(do func(*corev1.Service)) {
		t.Helper()
		must(t, c.Get(t.Context(), client.ObjectKeyFromObject(&full), &full))
		do(&full)
		must(t, c.Update(t.Context(), &full, client.FieldOwner("other")))
		patches.Store(0)
		must(t, applier.ApplyTo(t.Context(), intent(), metadata()))
	}
	edit(func(s *corev1.Service) { s.Labels["other"] = "x" })
	if got := patches.Load(); got != 0 {
		t.Errorf("%d requests after another client added its own label", got)
	}
	for name, do := range map[string]func(*corev1.Service){
		"a value":  func(s *corev1.Service) { s.Spec.Selector["a"] = "x" },
		"an item":  func(s *corev1.Service) { s.Spec.Ports[0].Name = "x" },
		"a label":  func(s *corev1.Service) { s.Labels["a"] = "x" },
		"removed":  func(s *corev1.Service) { delete(s.Labels, "a") },
		"selector": func(s *corev1.Service) { s.Spec.Selector = nil },
	} {
		edit(do)
		if got := patches.Load(); got != 1 {
			t.Errorf("%s: %d requests after another client changed our field", name, got)
		}
		must(t, applier.ApplyTo(t.Context(), intent(), metadata()))
		if got := patches.Load(); got != 1 {
			t.Errorf("%s: %d requests after the repair", name, got)
		}
		must(t, c.Get(t.Context(), client.ObjectKeyFromObject(&full), &full))
		if full.Labels["a"] != "b" || full.Spec.Selector["a"] != "b" || full.Spec.Ports[0].Name != "http" {
			t.Errorf("%s: not repaired: %v %v", name, full.Labels, full.Spec)
		}
	}
}
