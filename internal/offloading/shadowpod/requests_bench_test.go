// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/offloading/metadata"
	"liqo.io/liqo/internal/offloading/reflection/project"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
	"liqo.io/liqo/internal/offloading/shadow"
	"liqo.io/liqo/test/env/process"
)

// BenchmarkRequestsOfAPod sends a provider the requests that an offloaded pod costs there from its creation to its removal, without those of its kubelet that
// both ways share. The metrics with cpu are the processor time of the API server and its etcd. See ADR 28.
func BenchmarkRequestsOfAPod(b *testing.B) {
	b.Run("ShadowPod", func(b *testing.B) { withShadowPod(b, newRequests(b)) })
	b.Run("PodAlone", func(b *testing.B) { podAlone(b, newRequests(b)) })
}

// requests is the API server of a provider, and the requests that are sent.
type requests struct {
	client    client.Client
	namespace string
	count     int
}

func newRequests(b *testing.B) *requests {
	b.Helper()
	admin := kubetest.Cluster(b)
	r := &requests{namespace: "requests"}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, vkv1alpha1.AddToScheme} {
		check(b, add(scheme))
	}
	_, err := envtest.InstallCRDs(admin, envtest.CRDInstallOptions{
		ErrorIfPathMissing: true, Paths: []string{"../../../deployments/liqo/crds/virtualkubelet.liqo.io_shadowpods.yaml"},
	})
	check(b, err)
	config := rest.CopyConfig(admin)
	config.QPS = -1
	config.Wrap(ssa.LeanApplies)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return kubetest.RoundTripper(func(request *http.Request) (*http.Response, error) {
			r.count++
			return next.RoundTrip(request)
		})
	})
	r.client, err = client.New(config, client.Options{Scheme: scheme})
	check(b, err)
	check(b, r.client.Create(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}}))
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "default"}} // no controller makes it here
	check(b, r.client.Create(b.Context(), account))
	return r
}

// measure creates a pod for each iteration and then removes them all. It reports the processor time of the API server for each half, and the requests.
func (r *requests) measure(b *testing.B, create, remove func(i int)) {
	for i := range 50 { // until the API server knows the kinds
		create(b.N + i)
		remove(b.N + i)
	}
	r.count = 0
	b.ResetTimer()
	for _, half := range []struct {
		name string
		do   func(i int)
	}{{"created", create}, {"removed", remove}} {
		before := processors(b)
		for i := range b.N {
			half.do(i)
		}
		b.ReportMetric(float64((processors(b)-before).Microseconds())/1000/float64(b.N), half.name+"-cpu-ms/op")
	}
	b.StopTimer()
	b.ReportMetric(float64(r.count)/float64(b.N), "requests/op")
}

// localPod is a pod of the consumer as a Deployment makes it.
func localPod(i int) *corev1.Pod {
	amount := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi")}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "web", Name: fmt.Sprintf("web-6d4cf56db6-%d", 1000+i), UID: types.UID(fmt.Sprintf("5f6b3c0e-0000-4000-8000-%012d", 1000+i)),
			Labels: map[string]string{"app": "web", "pod-template-hash": "6d4cf56db6"},
		},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{
			Name: "web", Image: "registry.example/web:1", Ports: []corev1.ContainerPort{{ContainerPort: 80}},
			Resources: corev1.ResourceRequirements{Requests: amount, Limits: amount},
		}}},
	}
}

// withShadowPod sends the requests of today.
func withShadowPod(b *testing.B, r *requests) {
	ctx := b.Context()
	shadows, pods := map[int]*vkv1alpha1.ShadowPod{}, map[int]*corev1.Pod{}
	r.measure(b, func(i int) {
		intent, err := podspec.ShadowPod(project.NamespaceMapping{Local: "web", Remote: r.namespace}, localPod(i), podspec.Options{})
		check(b, err)
		check(b, ssa.NewApplier(r.client, labels.OwnerReflection).ApplyTo(ctx, intent, nil)) // the virtual kubelet
		made := &vkv1alpha1.ShadowPod{}
		check(b, r.client.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: *intent.Name}, made)) // the provider's controller looks before it creates
		pod := shadow.Pod(made, "rome-id", metadata.Allowed{})
		check(b, r.client.Create(ctx, pod, client.FieldOwner(labels.OwnerShadowPod)))
		shadows[i], pods[i] = made, pod
	}, func(i int) {
		made, pod := shadows[i], pods[i]
		// the virtual kubelet
		check(b, r.client.Delete(ctx, made.DeepCopy(), client.Preconditions{UID: &made.UID}, client.PropagationPolicy(metav1.DeletePropagationForeground)))
		// the provider's controller
		check(b, r.client.Delete(ctx, pod.DeepCopy(), client.Preconditions{UID: &pod.UID}, client.GracePeriodSeconds(0)))
		// it frees the name only when the pod is gone
		check(b, client.IgnoreNotFound(r.client.Get(ctx, client.ObjectKeyFromObject(made), &corev1.Pod{})))
		check(b, r.client.Patch(ctx, made, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/metadata/finalizers"}]`))))
	})
}

// podAlone sends the requests of a virtual kubelet that creates the pod itself, with a finalizer that holds its end.
func podAlone(b *testing.B, r *requests) {
	ctx := b.Context()
	pods := map[int]*corev1.Pod{}
	r.measure(b, func(i int) {
		local := localPod(i)
		wanted := &vkv1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: local.Name, Labels: local.Labels, UID: local.UID}}
		wanted.Spec.Pod = local.Spec
		pod := shadow.Pod(wanted, "rome-id", metadata.Allowed{})
		pod.OwnerReferences, pod.Finalizers = nil, []string{labels.FinalizerPodEnd}
		check(b, r.client.Create(ctx, pod, client.FieldOwner(labels.OwnerReflection)))
		pods[i] = pod
	}, func(i int) {
		pod := pods[i]
		check(b, r.client.Delete(ctx, pod.DeepCopy(), client.Preconditions{UID: &pod.UID}, client.GracePeriodSeconds(0)))
		check(b, r.client.Patch(ctx, pod, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/metadata/finalizers"}]`)))) // its end is recorded
	})
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// processors returns the processor time of the API servers and etcds that this process has started.
func processors(b *testing.B) time.Duration {
	b.Helper()
	spent, err := process.Spent()
	check(b, err)
	if spent["kube-apiserver"] == 0 || spent["etcd"] == 0 {
		b.Fatalf("an API server and an etcd of this process were not found: %v", spent)
	}
	return spent["kube-apiserver"] + spent["etcd"]
}
