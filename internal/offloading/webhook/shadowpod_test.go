// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/offloading/shadow"
)

const (
	twin   = "web-rome-a1b2c3"
	tenant = "liqo-tenant-rome-a1b2c3"
)

// twins are names of namespaces and whose they are.
type twins map[string]string

func (t twins) Peer(_ context.Context, namespace string) (string, error) {
	if namespace == "unknown" {
		return "", errors.New("no answer")
	}
	return t[namespace], nil
}

// bed is a real API server that asks the webhook of this process.
type bed struct {
	client.Client
	t      *testing.T
	scheme *runtime.Scheme
	admin  *rest.Config
	asked  atomic.Int32
}

func newBed(t *testing.T) *bed {
	t.Helper()
	t.Parallel()
	b := &bed{t: t, admin: kubetest.Cluster(t), scheme: runtime.NewScheme()}
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, sharingv1alpha1.AddToScheme, vkv1alpha1.AddToScheme} {
		b.must(add(b.scheme))
	}
	crds := "../../../deployments/liqo/crds/"
	_, err := envtest.InstallCRDs(b.admin, envtest.CRDInstallOptions{ErrorIfPathMissing: true, Paths: []string{
		crds + "virtualkubelet.liqo.io_shadowpods.yaml", crds + "sharing.liqo.io_resourceslices.yaml",
	}})
	b.must(err)
	b.Client, err = client.New(b.admin, client.Options{Scheme: b.scheme})
	b.must(err)
	b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: twin, Labels: map[string]string{labels.RemoteClusterID: "rome-id"}}})
	b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant, Labels: map[string]string{labels.TenantNamespace: "true", labels.ClusterID: "rome-id"}}})
	return b
}

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) create(object client.Object) {
	b.t.Helper()
	b.must(b.Create(b.t.Context(), object))
}

func (b *bed) until(what string, done func() bool) {
	b.t.Helper()
	for begin := time.Now(); time.Since(begin) < 30*time.Second; time.Sleep(5 * time.Millisecond) {
		if done() {
			return
		}
	}
	b.t.Fatalf("not in time: %s", what)
}

// serve makes the API server ask, as the chart does.
func (b *bed) serve(o ShadowPodOptions) {
	b.t.Helper()
	handler := newShadowPod(b.scheme, o)
	server := httptest.NewTLSServer(&admission.Webhook{Handler: admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
		b.asked.Add(1)
		return handler.Handle(ctx, request)
	})})
	b.t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	b.create(&admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "liqo"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "shadowpod.validate.liqo.io", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionregistrationv1.SideEffectClassNoneOnDryRun),
			ClientConfig:      admissionregistrationv1.WebhookClientConfig{URL: new(server.URL + ShadowPodPath), CABundle: authority},
			NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: labels.RemoteClusterID, Operator: metav1.LabelSelectorOpExists}}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{vkv1alpha1.GroupVersion.Group}, APIVersions: []string{"v1alpha1"}, Resources: []string{"shadowpods"}},
			}},
		}},
	})
	b.until("the API server asks", func() bool {
		_ = b.Create(b.t.Context(), wish("is-it-there", nil), client.DryRunAll)
		return b.asked.Load() > 0
	})
}

func wish(name string, change func(*vkv1alpha1.ShadowPod)) *vkv1alpha1.ShadowPod {
	s := &vkv1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{Namespace: twin, Name: name, Labels: map[string]string{labels.Origin: "rome-id"}},
		Spec: vkv1alpha1.ShadowPodSpec{Fence: "fence", Pod: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Mi")}},
		}}}},
	}
	if change != nil {
		change(s)
	}
	return s
}

func (b *bed) refused(err error, part string) {
	b.t.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), part) {
		b.t.Errorf("%v, want a refusal with %q", err, part)
	}
}

// TestShadowPodWebhook: the API server hands the webhook what peers write, and takes its word. The rules have a table of their own, in package shadow.
func TestShadowPodWebhook(t *testing.T) {
	b := newBed(t)
	b.serve(ShadowPodOptions{RemoteNamespaces: twins{twin: "rome-id"}, Level: shadow.Baseline})
	s := wish("web", nil)
	b.create(s)
	b.refused(b.Create(t.Context(), wish("host", func(s *vkv1alpha1.ShadowPod) { s.Spec.Pod.HostNetwork = true })), "spec.pod.hostNetwork must be false")
	b.refused(b.Create(t.Context(), wish("other", func(s *vkv1alpha1.ShadowPod) { s.Labels[labels.Origin] = "milan-id" })), "cluster rome-id's")
	b.refused(b.Create(t.Context(), wish("held", func(s *vkv1alpha1.ShadowPod) { s.Finalizers = []string{"example.com/held"} })), "would hold a namespace")

	s.Spec.Pod.Containers[0].Image = "new"
	b.must(b.Update(t.Context(), s))
	changed := s.DeepCopy()
	changed.Spec.Pod.Containers[0].Resources.Limits["cpu"] = resource.MustParse("1000")
	b.refused(b.Update(t.Context(), changed), "spec.pod cannot be changed")
	changed = s.DeepCopy()
	changed.Spec.Pod.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	b.refused(b.Update(t.Context(), changed), "privileged")
	changed = s.DeepCopy()
	changed.Labels = nil
	b.refused(b.Update(t.Context(), changed), labels.Origin)
	changed = s.DeepCopy()
	changed.Spec.Fence = "another"
	if err := b.Update(t.Context(), changed); err == nil {
		t.Error("another fence")
	}

	// What was let in before the rules, and holds itself, may go.
	asked := b.asked.Load()
	b.must(b.Delete(t.Context(), s))
	if b.asked.Load() != asked {
		t.Error("asked whether something may be deleted")
	}
}

// quota starts counting, from a cache like the controller manager's.
func (b *bed) quota() *Quota {
	b.t.Helper()
	mgr, err := kubemanager.New(b.admin, kubemanager.Options{Scheme: b.scheme, SkipNameValidation: true, Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
		&vkv1alpha1.ShadowPod{}: {Transform: func(in any) (any, error) {
			if s, ok := in.(*vkv1alpha1.ShadowPod); ok {
				shadow.Trim(s)
			}
			return in, nil
		}},
		&corev1.Namespace{}: {},
	}}})
	b.must(err)
	q, err := SetupQuota(mgr, twins{twin: "rome-id"}, 50*time.Millisecond)
	b.must(err)
	if problem, err := q.admit("rome-id", wish("early", nil), time.Now(), true); !errors.Is(err, errUnfilled) {
		b.t.Errorf("before anything is known: %q, %v", problem, err)
	}
	b.start(mgr)
	b.until("it has counted", func() bool {
		_, err := q.admit("rome-id", wish("x", nil), time.Now(), true)
		return err == nil
	})
	return q
}

func (b *bed) start(mgr manager.Manager) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t := b.t
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("manager ended: %v", err)
		}
	})
}

// granted is a slice in the tenant namespace, with an answer of ours.
func (b *bed) granted(name, cpu string, marks map[string]string) *sharingv1alpha1.ResourceSlice {
	b.t.Helper()
	slice := &sharingv1alpha1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name, Labels: marks},
		Spec:       sharingv1alpha1.ResourceSliceSpec{ConsumerClusterID: "rome-id", ProviderClusterID: "milan-id", NodeName: "liqo-milan"},
	}
	b.create(slice)
	slice.Status.Phase = sharingv1alpha1.SliceAccepted
	slice.Status.Resources = corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("1Gi"), "pods": resource.MustParse("100")}
	b.must(b.Status().Update(b.t.Context(), slice))
	return slice
}

// TestQuota: however many ask at once, exactly as much is admitted as is granted; what ends makes room.
func TestQuota(t *testing.T) {
	b := newBed(t)
	b.granted("rome", "10", map[string]string{labels.Replicated: "true", labels.Replication: "false"})
	// What we ask of the peer lies beside it, and its answer is the peer's.
	b.granted("ours", "1000", map[string]string{labels.Replication: "true"})
	b.granted("ours-marked-by-the-peer", "1000", map[string]string{labels.Replication: "true", labels.Replicated: "true"})
	q := b.quota()
	b.until("it knows what is granted", func() bool {
		problem, _ := q.admit("rome-id", wish("x", nil), time.Now(), true)
		return problem == ""
	})
	b.serve(ShadowPodOptions{RemoteNamespaces: twins{twin: "rome-id"}, Level: shadow.Baseline, Quota: q})

	b.refused(b.Create(t.Context(), wish("unlimited", func(s *vkv1alpha1.ShadowPod) { s.Spec.Pod.Containers[0].Resources.Limits = nil })), "needs limits for cpu and memory")
	var made atomic.Int32
	var asking sync.WaitGroup
	for i := range 40 {
		asking.Go(func() {
			err := b.Create(context.Background(), wish(fmt.Sprint("web-", i), nil))
			if err == nil {
				made.Add(1)
			} else if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "granted to cluster rome-id") {
				t.Errorf("refused with %v", err)
			}
		})
	}
	asking.Wait()
	if made.Load() != 10 {
		t.Errorf("%d pods of one cpu are admitted, 10 are granted", made.Load())
	}

	// One ends, one is deleted: room for two.
	var all vkv1alpha1.ShadowPodList
	b.must(b.List(t.Context(), &all))
	all.Items[0].Status.Phase = vkv1alpha1.ShadowPodSucceeded
	b.must(b.Status().Update(t.Context(), &all.Items[0]))
	b.must(b.Delete(t.Context(), &all.Items[1]))
	for _, name := range []string{"next-1", "next-2"} {
		b.until("room for "+name, func() bool { return b.Create(t.Context(), wish(name, nil)) == nil })
	}
	b.refused(b.Create(t.Context(), wish("next-3", nil)), "10 of 10 granted")
	// An image may change although all is used.
	b.must(b.Get(t.Context(), types.NamespacedName{Namespace: twin, Name: "next-1"}, &all.Items[0]))
	all.Items[0].Spec.Pod.Containers[0].Image = "new"
	b.must(b.Update(t.Context(), &all.Items[0]))
}

// TestQuotaOfWhatIsDeleted: a pod runs on for as long as its grace is, and counts as what it was made of, whatever is done to its ShadowPod meanwhile.
func TestQuotaOfWhatIsDeleted(t *testing.T) {
	b := newBed(t)
	b.granted("rome", "1", map[string]string{labels.Replicated: "true", labels.Replication: "false"})
	q := b.quota()
	b.until("it knows what is granted", func() bool {
		problem, _ := q.admit("rome-id", wish("x", nil), time.Now(), true)
		return problem == ""
	})
	b.serve(ShadowPodOptions{RemoteNamespaces: twins{twin: "rome-id"}, Level: shadow.Baseline, Quota: q})

	s := wish("large", nil)
	b.create(s)
	b.must(b.Delete(t.Context(), s, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	b.must(b.Get(t.Context(), client.ObjectKeyFromObject(s), s))
	s.Finalizers = []string{metav1.FinalizerDeleteDependents, metav1.FinalizerDeleteDependents}
	b.must(b.Update(t.Context(), s))
	small := s.DeepCopy()
	small.Finalizers = small.Finalizers[:1]
	small.Spec.Pod.Containers[0].Resources.Limits["cpu"] = resource.MustParse("1m")
	b.refused(b.Update(t.Context(), small), "spec.pod cannot be changed")
	b.refused(b.Create(t.Context(), wish("next", nil)), "1 of 1 granted")

	s.Finalizers = nil
	b.must(b.Update(t.Context(), s))
	if err := b.Get(t.Context(), client.ObjectKeyFromObject(s), s); !apierrors.IsNotFound(err) {
		t.Errorf("what is unchanged may go: %v", err)
	}
}
