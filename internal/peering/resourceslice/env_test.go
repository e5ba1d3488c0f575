// SPDX-License-Identifier: Apache-2.0

package resourceslice

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/kube/storageclass"
	"liqo.io/liqo/internal/peering/grant"
)

// sliceEnv is a provider: an API server, an administrator's client, and the controller with only its own rights.
type sliceEnv struct {
	kubetest.Env // its T is that of the current subtest
	whole        *testing.T
	scheme       *runtime.Scheme
	admin        *rest.Config
	writes       atomic.Int64 // of the controller
}

func newSliceEnv(t *testing.T) *sliceEnv {
	t.Helper()
	b := &sliceEnv{Env: kubetest.Env{T: t}, whole: t, scheme: runtime.NewScheme(), admin: kubetest.Cluster(t)}
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, discoveryv1alpha1.AddToScheme, sharingv1alpha1.AddToScheme} {
		b.Must(add(b.scheme))
	}
	_, err := envtest.InstallCRDs(b.admin, envtest.CRDInstallOptions{Paths: []string{"../../../deployments/liqo/crds"}, ErrorIfPathMissing: true})
	b.Must(err)
	b.Client, err = client.New(b.admin, client.Options{Scheme: b.scheme})
	b.Must(err)
	for _, name := range []string{"liqo", "apps"} {
		b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	b.Make(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "apps"}})
	// A right that the RBAC markers lack makes the tests fail.
	for namespace, rules := range b.RBACMarkers("controller.go") {
		b.Bind("grant-test", namespace, rules)
	}
	return b
}

// run starts the controller, and returns how to stop it.
func (b *sliceEnv) run(o Options) (stop func()) {
	b.T.Helper()
	limited := rest.CopyConfig(b.admin)
	limited.Impersonate = rest.ImpersonationConfig{UserName: "grant-test", Groups: []string{"system:authenticated"}}
	mgr, err := manager.New(limited, manager.Options{
		Scheme: b.scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Transform: grant.TrimPod}, &corev1.Node{}: {Transform: grant.TrimNode},
		}},
		NewClient: func(config *rest.Config, options client.Options) (client.Client, error) {
			plain, err := client.NewWithWatch(config, options)
			return b.counting(plain), err
		},
	})
	b.Must(err)
	b.Must(Setup(mgr, o))
	return kubetest.Start(b.whole, "manager", mgr.Start)
}

// counting counts the writes that pass through a client.
func (b *sliceEnv) counting(plain client.WithWatch) client.Client {
	return interceptor.NewClient(plain, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			b.writes.Add(1)
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			b.writes.Add(1)
			return c.SubResource(sub).Apply(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			b.writes.Add(1)
			return c.Delete(ctx, o, opts...)
		},
	})
}

func sliceList(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func (b *sliceEnv) node(name string, allocatable corev1.ResourceList) *corev1.Node {
	b.T.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux"}}}
	b.Make(node)
	node.Status = corev1.NodeStatus{
		Capacity: allocatable, Allocatable: allocatable,
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}
	b.Must(b.Status().Update(b.T.Context(), node))
	return node
}

func (b *sliceEnv) pod(name, node, origin, cpu string) *corev1.Pod {
	b.T.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "apps"},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Name: "main", Image: "none", Resources: corev1.ResourceRequirements{Requests: sliceList("cpu", cpu)},
		}}},
	}
	if origin != "" {
		pod.Labels = map[string]string{labels.Origin: origin}
	}
	b.Make(pod)
	return pod
}

// tenant creates what a consumer's registration creates on the provider: the ForeignCluster and the tenant namespace.
func (b *sliceEnv) tenant(name string, change ...func(*discoveryv1alpha1.ForeignCluster)) *discoveryv1alpha1.ForeignCluster {
	b.T.Helper()
	peer := &discoveryv1alpha1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{labels.DiscoveryType: labels.DiscoveryIncoming}},
		Spec:       discoveryv1alpha1.ForeignClusterSpec{ClusterIdentity: &discoveryv1alpha1.ClusterIdentity{ClusterID: name + "-id", ClusterName: name}},
	}
	for _, apply := range change {
		apply(peer)
	}
	b.Make(peer)
	b.Make(&corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "tenant-" + name, Labels: map[string]string{labels.TenantNamespace: "true", labels.ClusterID: name + "-id"}},
	})
	return peer
}

func (b *sliceEnv) slice(namespace, name string, resources corev1.ResourceList) *sharingv1alpha1.ResourceSlice {
	b.T.Helper()
	slice := &sharingv1alpha1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{
			labels.Replication: "false", labels.Replicated: "true", labels.OriginID: "any-id",
		}},
		// Wrong cluster IDs: the provider must trust only the namespace.
		Spec: sharingv1alpha1.ResourceSliceSpec{ConsumerClusterID: "milan-id", ProviderClusterID: "turin-id", NodeName: "liqo-turin", Resources: resources},
	}
	b.Make(slice)
	return slice
}

// until waits until problem returns nothing for the object as the API server has it.
func (b *sliceEnv) until(what string, object client.Object, problem func() string) {
	b.T.Helper()
	kubetest.Eventually(b.T, what, func() error {
		if err := b.Get(b.T.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		if text := problem(); text != "" {
			return errors.New(text)
		}
		return nil
	})
}

func (b *sliceEnv) untilGranted(what string, slice *sharingv1alpha1.ResourceSlice, cpu string) {
	b.T.Helper()
	b.until(what, slice, func() string {
		granted := slice.Status.Resources[corev1.ResourceCPU]
		if slice.Status.Phase != sharingv1alpha1.SliceAccepted || granted.String() != cpu {
			return fmt.Sprintf("phase %q, cpu %s, want %s; %v", slice.Status.Phase, granted.String(), cpu, slice.Status.Conditions)
		}
		return ""
	})
}

func (b *sliceEnv) untilReason(what string, slice *sharingv1alpha1.ResourceSlice, phase sharingv1alpha1.SlicePhase, reason string) {
	b.T.Helper()
	b.until(what, slice, func() string {
		granted := meta.FindStatusCondition(slice.Status.Conditions, sharingv1alpha1.ConditionGranted)
		if granted == nil || granted.Reason != reason || slice.Status.Phase != phase {
			return fmt.Sprintf("phase %q, condition %v", slice.Status.Phase, granted)
		}
		if phase == sharingv1alpha1.SliceRefused && len(slice.Status.Resources)+len(slice.Status.Architectures) > 0 {
			return fmt.Sprintf("refused, but still granted: %v", slice.Status.Resources)
		}
		return ""
	})
}

func (b *sliceEnv) untilGone(what string, object client.Object) {
	b.T.Helper()
	kubetest.Eventually(b.T, what, func() error {
		if err := b.Get(b.T.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s: %w, finalizers %v", object.GetName(), err, object.GetFinalizers())
		}
		return nil
	})
}

// edit changes an object without a check of its version.
func (b *sliceEnv) edit(object client.Object, change func()) {
	b.T.Helper()
	before := object.DeepCopyObject().(client.Object)
	change()
	b.Must(b.Patch(b.T.Context(), object, client.MergeFrom(before)))
}

// writesNothing fails if the controller writes anything when an event makes it reconcile all tenants.
func (b *sliceEnv) writesNothing(what string) {
	b.T.Helper()
	before := b.writes.Load()
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}}
	b.Must(b.Get(b.T.Context(), client.ObjectKeyFromObject(class), class))
	b.edit(class, func() { metav1.SetMetaDataAnnotation(&class.ObjectMeta, "changed-at", time.Now().String()) })
	time.Sleep(time.Second) // only waiting shows that nothing happens
	if after := b.writes.Load(); after != before {
		b.T.Errorf("%s: %d writes", what, after-before)
	}
}

func (b *sliceEnv) storageClasses() {
	for name, provisioner := range map[string]string{"fast": "example.com/fast", "slow": "example.com/slow", "liqo": virtualProvisioner} {
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner}
		if name == "fast" {
			class.Annotations = map[string]string{storageclass.DefaultAnnotation: "true"}
		}
		b.Make(class)
	}
}
