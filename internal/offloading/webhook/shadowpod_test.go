// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/offloading/ledger"
	"liqo.io/liqo/internal/offloading/metadata"
	"liqo.io/liqo/internal/offloading/peerobjects"
	"liqo.io/liqo/internal/offloading/quota"
	"liqo.io/liqo/internal/offloading/shadow"
)

const (
	remoteNamespace = "web-rome-a1b2c3"
	tenant          = "liqo-tenant-rome-a1b2c3"
	// refusedPeer may not use this cluster.
	refusedPeer = "paris-id"
)

// remoteNamespaces has the cluster ID of the peer of each remote namespace.
type remoteNamespaces map[string]string

func (t remoteNamespaces) Accepted(_ context.Context, peer string) (bool, error) {
	return peer != refusedPeer, nil
}

func (t remoteNamespaces) Peer(_ context.Context, namespace string) (string, error) {
	if namespace == "unknown" {
		return "", errors.New("no answer")
	}
	return t[namespace], nil
}

// env is a real API server that calls the webhook of this process.
type env struct {
	kubetest.Env
	scheme *runtime.Scheme
	admin  *rest.Config
	// asked counts the calls of the webhook.
	asked atomic.Int32
}

func newEnv(t *testing.T) *env {
	t.Helper()
	t.Parallel()
	b := &env{Env: kubetest.Env{T: t}, admin: kubetest.Cluster(t), scheme: runtime.NewScheme()}
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, sharingv1alpha1.AddToScheme, vkv1alpha1.AddToScheme} {
		b.Must(add(b.scheme))
	}
	crds := "../../../deployments/liqo/crds/"
	_, err := envtest.InstallCRDs(b.admin, envtest.CRDInstallOptions{ErrorIfPathMissing: true, Paths: []string{
		crds + "virtualkubelet.liqo.io_shadowpods.yaml", crds + "sharing.liqo.io_resourceslices.yaml",
	}})
	b.Must(err)
	b.Client, err = client.New(b.admin, client.Options{Scheme: b.scheme})
	b.Must(err)
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: remoteNamespace, Labels: map[string]string{labels.RemoteClusterID: "rome-id"}}})
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant, Labels: map[string]string{labels.TenantNamespace: "true", labels.ClusterID: "rome-id"}}})
	return b
}

// serve registers the webhook in the API server as the chart does.
func (b *env) serve(o ShadowPodOptions) {
	b.T.Helper()
	handler, paths := newShadowPod(b.scheme, o), http.NewServeMux()
	paths.Handle(NewShadowPodPath, &admission.Webhook{Handler: hold})
	paths.Handle(RemotePodPath, &admission.Webhook{Handler: dropRemote})
	paths.Handle(ShadowPodPath, &admission.Webhook{Handler: admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
		b.asked.Add(1)
		return handler.Handle(ctx, request)
	})})
	server := httptest.NewTLSServer(paths)
	b.T.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	namespaces := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: labels.RemoteClusterID, Operator: metav1.LabelSelectorOpExists}}}
	rules := func(operations ...admissionregistrationv1.OperationType) []admissionregistrationv1.RuleWithOperations {
		return []admissionregistrationv1.RuleWithOperations{{
			Operations: operations,
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{vkv1alpha1.GroupVersion.Group}, APIVersions: []string{"v1alpha1"}, Resources: []string{"shadowpods"},
			},
		}}
	}
	b.Make(&admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "liqo"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "shadowpod.mutate.liqo.io", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionregistrationv1.SideEffectClassNone),
			ClientConfig:      admissionregistrationv1.WebhookClientConfig{URL: new(server.URL + NewShadowPodPath), CABundle: authority},
			NamespaceSelector: namespaces, Rules: rules(admissionregistrationv1.Create),
		}, {
			Name: "remotepod.mutate.liqo.io", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionregistrationv1.SideEffectClassNone),
			ClientConfig:      admissionregistrationv1.WebhookClientConfig{URL: new(server.URL + RemotePodPath), CABundle: authority},
			NamespaceSelector: namespaces,
			ObjectSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{labels.ManagedBy: labels.ManagedByShadowPod}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
		}},
	})
	b.Make(&admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "liqo"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "shadowpod.validate.liqo.io", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionregistrationv1.SideEffectClassNone),
			ClientConfig:      admissionregistrationv1.WebhookClientConfig{URL: new(server.URL + ShadowPodPath), CABundle: authority},
			NamespaceSelector: namespaces, Rules: rules(admissionregistrationv1.Create, admissionregistrationv1.Update),
		}},
	})
	b.Until("the API server calls the webhook", func() bool {
		_ = b.Create(b.T.Context(), shadowPodNamed("probe", nil), client.DryRunAll)
		return b.asked.Load() > 0
	})
}

func shadowPodNamed(name string, change func(*vkv1alpha1.ShadowPod)) *vkv1alpha1.ShadowPod {
	s := &vkv1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{Namespace: remoteNamespace, Name: name, Labels: map[string]string{labels.Origin: "rome-id"}},
		Spec: vkv1alpha1.ShadowPodSpec{Fence: "fence", Pod: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Image: "i",
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Mi")}},
		}}}},
	}
	if change != nil {
		change(s)
	}
	return s
}

func (b *env) refused(err error, part string) {
	b.T.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), part) {
		b.T.Errorf("%v, want a refusal with %q", err, part)
	}
}

// TestShadowPodWebhook: the API server calls the webhook for what peers write, and obeys it. The rules have their own table in package shadow.
func TestShadowPodWebhook(t *testing.T) {
	b := newEnv(t)
	b.serve(ShadowPodOptions{RemoteNamespaces: remoteNamespaces{remoteNamespace: "rome-id", "web-paris-000002": refusedPeer}, Level: shadow.Baseline})
	s := shadowPodNamed("web", nil)
	b.Make(s)
	if !slices.Equal(s.Finalizers, []string{labels.FinalizerPodGone}) {
		t.Errorf("finalizers %v of a new ShadowPod", s.Finalizers)
	}
	own := shadowPodNamed("own", func(s *vkv1alpha1.ShadowPod) { s.Finalizers = []string{labels.FinalizerPodGone} })
	b.Make(own)
	if !slices.Equal(own.Finalizers, []string{labels.FinalizerPodGone}) {
		t.Errorf("finalizers %v of a new ShadowPod that had ours", own.Finalizers)
	}
	b.refused(b.Create(t.Context(), shadowPodNamed("host", func(s *vkv1alpha1.ShadowPod) { s.Spec.Pod.HostNetwork = true })), "spec.pod.hostNetwork must be false")
	b.refused(b.Create(t.Context(), shadowPodNamed("other", func(s *vkv1alpha1.ShadowPod) { s.Labels[labels.Origin] = "milan-id" })), "cluster rome-id's")
	refused := shadowPodNamed("refused", nil)
	refused.Namespace, refused.Labels[labels.Origin] = "web-paris-000002", refusedPeer
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: refused.Namespace, Labels: map[string]string{labels.RemoteClusterID: refusedPeer}}})
	b.refused(b.Create(t.Context(), refused), "spec.incomingPeeringEnabled") // H1
	b.refused(
		b.Create(t.Context(), shadowPodNamed("held", func(s *vkv1alpha1.ShadowPod) { s.Finalizers = []string{"example.com/held"} })),
		"could block the deletion of a namespace",
	)

	s.Spec.Pod.Containers[0].Image = "new"
	b.Must(b.Update(t.Context(), s))
	changed := s.DeepCopy()
	changed.Spec.Pod.Containers[0].Resources.Limits["example.com/gpu"] = resource.MustParse("1")
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

	// The pods of ShadowPods have no managed fields, unless these are the only record of what they have from their ShadowPods.
	pod := shadow.Pod(own, "rome-id", metadata.Allowed{})
	b.Make(pod)
	b.Must(b.Status().Patch(t.Context(), pod, client.RawPatch(types.StrategicMergePatchType, []byte(`{"status":{"phase":"Running"}}`))))
	if len(pod.ManagedFields) > 0 || pod.Status.Phase != corev1.PodRunning {
		t.Errorf("managed fields %v, phase %s", pod.ManagedFields, pod.Status.Phase)
	}
	pod = shadow.Pod(s, "rome-id", metadata.Allowed{})
	delete(pod.Annotations, labels.ShadowPodKeys)
	b.Make(pod)
	if len(pod.ManagedFields) == 0 {
		t.Error("no managed fields, and nothing records the keys")
	}

	// The webhook is not called for deletions.
	asked := b.asked.Load()
	b.Must(b.Delete(t.Context(), s))
	if b.asked.Load() != asked {
		t.Error("the webhook was called for a deletion")
	}
}

// quota starts a Quota on a cache like that of the controller manager.
func (b *env) quota(limits bool) *Quota {
	b.T.Helper()
	cached := map[client.Object]cache.ByObject{
		&vkv1alpha1.ShadowPod{}: {Transform: func(in any) (any, error) {
			if s, ok := in.(*vkv1alpha1.ShadowPod); ok {
				shadow.Trim(s)
			}
			return in, nil
		}},
		&corev1.Namespace{}: {},
	}
	mgr, err := kubemanager.New(b.admin, kubemanager.Options{
		Scheme: b.scheme, SkipNameValidation: true, Cache: cache.Options{ByObject: cached},
	})
	b.Must(err)
	q, err := SetupQuota(mgr, remoteNamespaces{remoteNamespace: "rome-id"}, 50*time.Millisecond, limits, quota.Defaults{})
	b.Must(err)
	if problem, err := q.fits("rome-id", shadowPodNamed("early", nil), time.Now()); !errors.Is(err, errUnfilled) {
		b.T.Errorf("before the first list: %q, %v", problem, err)
	}
	kubetest.Start(b.T, "manager", mgr.Start)
	b.Until("the quota has counted", func() bool {
		_, err := q.fits("rome-id", shadowPodNamed("x", nil), time.Now())
		return err == nil
	})
	return q
}

// counted waits until the quota knows a ShadowPod.
func (b *env) counted(q *Quota, s *vkv1alpha1.ShadowPod) {
	b.T.Helper()
	b.Until("the quota knows "+s.Name, func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.known.Has(s)
	})
}

// granted creates a slice in the tenant namespace and accepts it.
func (b *env) granted(name, cpu string, own map[string]string) *sharingv1alpha1.ResourceSlice {
	b.T.Helper()
	slice := &sharingv1alpha1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name, Labels: own},
		Spec:       sharingv1alpha1.ResourceSliceSpec{ConsumerClusterID: "rome-id", ProviderClusterID: "milan-id", NodeName: "liqo-milan"},
	}
	b.Make(slice)
	slice.Status.Phase = sharingv1alpha1.SliceAccepted
	slice.Status.Resources = corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("1Gi"), "pods": resource.MustParse("100")}
	b.Must(b.Status().Update(b.T.Context(), slice))
	return slice
}

// TestQuota: of many concurrent requests, exactly the granted amount is admitted; a pod that ends frees its share.
func TestQuota(t *testing.T) {
	b := newEnv(t)
	b.granted("rome", "10", map[string]string{labels.Replicated: "true", labels.Replication: "false"})
	// Our own request to the peer is in the same namespace; the peer writes its status.
	b.granted("ours", "1000", map[string]string{labels.Replication: "true"})
	b.granted("ours-labelled-by-the-peer", "1000", map[string]string{labels.Replication: "true", labels.Replicated: "true"})
	q := b.quota(true)
	b.Until("the grant is recorded", func() bool {
		problem, _ := q.fits("rome-id", shadowPodNamed("x", nil), time.Now())
		return problem == ""
	})
	b.serve(ShadowPodOptions{RemoteNamespaces: remoteNamespaces{remoteNamespace: "rome-id"}, Level: shadow.Baseline, Quota: q})

	b.refused(
		b.Create(t.Context(), shadowPodNamed("unlimited", func(s *vkv1alpha1.ShadowPod) { s.Spec.Pod.Containers[0].Resources.Limits = nil })),
		"needs limits for cpu and memory",
	)
	// The controller reserves: of many at the same time, exactly the granted amount gets pods.
	var made atomic.Int32
	var asking sync.WaitGroup
	reserved := make([]*vkv1alpha1.ShadowPod, 40)
	for i := range reserved {
		asking.Go(func() {
			s := shadowPodNamed(fmt.Sprint("pod-", i), func(s *vkv1alpha1.ShadowPod) { s.UID = types.UID(fmt.Sprint(i)) })
			switch problem, err := q.Reserve("rome-id", s, nil, time.Now()); {
			case err != nil || problem != "" && !strings.Contains(problem, "granted to cluster rome-id"):
				t.Errorf("refused with %q, %v", problem, err)
			case problem == "":
				made.Add(1)
				reserved[i] = s
			}
		})
	}
	asking.Wait()
	if made.Load() != 10 {
		t.Errorf("%d pods of one CPU are reserved, 10 CPUs are granted", made.Load())
	}
	for _, s := range reserved {
		if s == nil {
			continue
		}
		if problem, err := q.Reserve("rome-id", s, nil, time.Now()); problem != "" || err != nil {
			t.Errorf("a pod that is created again: %q, %v", problem, err)
		}
		q.Release(s)
	}

	// The webhook refuses what does not fit beside the ShadowPods that are known.
	for i := range 10 {
		s := shadowPodNamed(fmt.Sprint("web-", i), nil)
		b.Make(s)
		b.counted(q, s)
	}
	b.refused(b.Create(t.Context(), shadowPodNamed("web-10", nil)), "granted to cluster rome-id")

	// One ends, one is deleted: two more are admitted.
	var all vkv1alpha1.ShadowPodList
	b.Must(b.List(t.Context(), &all))
	all.Items[0].Status.Phase = vkv1alpha1.ShadowPodSucceeded
	b.Must(b.Status().Update(t.Context(), &all.Items[0]))
	b.Must(b.Delete(t.Context(), &all.Items[1]))
	for _, name := range []string{"next-1", "next-2"} {
		s := shadowPodNamed(name, nil)
		if name == "next-2" { // until then, the pod of the one that is deleted may run
			b.refused(b.Create(t.Context(), s), "granted to cluster rome-id")
			b.Edit(&all.Items[1], func() { all.Items[1].Finalizers = nil })
		}
		b.Until("admitted: "+name, func() bool { return b.Create(t.Context(), s) == nil })
		b.counted(q, s)
	}
	b.refused(b.Create(t.Context(), shadowPodNamed("next-3", nil)), "10 of 10 granted")
	// A pod may become smaller or larger within the grant, and keeps counting with its largest size.
	resize := func(cpu string) error {
		var s vkv1alpha1.ShadowPod
		b.Must(b.Get(t.Context(), types.NamespacedName{Namespace: remoteNamespace, Name: "next-2"}, &s))
		s.Spec.Pod.Containers[0].Resources.Limits["cpu"] = resource.MustParse(cpu)
		return b.Update(t.Context(), &s)
	}
	b.refused(resize("1500m"), "1500m of cpu in place of 1, and 10 of 10 granted to cluster rome-id are in use")
	b.Must(resize("500m"))
	b.refused(b.Create(t.Context(), shadowPodNamed("half", func(s *vkv1alpha1.ShadowPod) {
		s.Spec.Pod.Containers[0].Resources.Limits["cpu"] = resource.MustParse("500m")
	})), "10 of 10 granted")
	b.Must(resize("1"))
	// An image may change although the grant is used up.
	b.Must(b.Get(t.Context(), types.NamespacedName{Namespace: remoteNamespace, Name: "next-1"}, &all.Items[0]))
	all.Items[0].Spec.Pod.Containers[0].Image = "new"
	b.Must(b.Update(t.Context(), &all.Items[0]))
}

// TestQuotaOfWhatIsDeleted: a pod runs until its grace period ends and counts with its original size, whatever changes in its ShadowPod meanwhile.
func TestQuotaOfWhatIsDeleted(t *testing.T) {
	b := newEnv(t)
	b.granted("rome", "1", map[string]string{labels.Replicated: "true", labels.Replication: "false"})
	q := b.quota(true)
	b.Until("the grant is recorded", func() bool {
		problem, _ := q.fits("rome-id", shadowPodNamed("x", nil), time.Now())
		return problem == ""
	})
	b.serve(ShadowPodOptions{RemoteNamespaces: remoteNamespaces{remoteNamespace: "rome-id"}, Level: shadow.Baseline, Quota: q})

	s := shadowPodNamed("large", nil)
	b.Make(s)
	b.counted(q, s)
	b.Must(b.Delete(t.Context(), s, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(s), s))
	s.Finalizers = []string{metav1.FinalizerDeleteDependents, metav1.FinalizerDeleteDependents}
	b.Must(b.Update(t.Context(), s))
	small := s.DeepCopy()
	small.Finalizers = small.Finalizers[:1]
	small.Spec.Pod.Containers[0].Resources.Limits["cpu"] = resource.MustParse("1m")
	b.Must(b.Update(t.Context(), small))
	b.refused(b.Create(t.Context(), shadowPodNamed("next", nil)), "1 of 1 granted")

	b.Read(s)
	s.Finalizers = nil
	b.Must(b.Update(t.Context(), s))
	if err := b.Get(t.Context(), client.ObjectKeyFromObject(s), s); !apierrors.IsNotFound(err) {
		t.Errorf("an unchanged ShadowPod is not deleted: %v", err)
	}
}

// TestAttackResize: a size that the controller refused is refused by its successor as well, and a size that the controller of another replica gave to a pod
// counts here.
func TestAttackResize(t *testing.T) {
	b := newEnv(t)
	b.granted("rome", "3", map[string]string{labels.Replicated: "true", labels.Replication: "false"})
	cpu := func(s *vkv1alpha1.ShadowPod, amount string) {
		s.Spec.Pod.Containers[0].Resources.Limits["cpu"] = resource.MustParse(amount)
	}
	var shadows []*vkv1alpha1.ShadowPod
	for _, name := range []string{"a", "b"} {
		s := shadowPodNamed(name, nil)
		b.Make(s)
		pod := shadow.Pod(s, "rome-id", metadata.Allowed{})
		pod.Spec.Containers[0].Image = "i"
		b.Make(pod)
		b.Edit(s, func() { cpu(s, "2") }) // both at once, past the webhook
		shadows = append(shadows, s)
	}
	q := b.quota(true)
	for _, s := range shadows {
		b.Until(s.Name+" keeps its size", func() bool {
			problem, err := q.Reserve("rome-id", s, nil, time.Now())
			return err == nil && strings.Contains(problem, "4 of 3 granted")
		})
	}
	// One is made smaller again, and the other one gets its size in another replica.
	b.Edit(shadows[0], func() { cpu(shadows[0], "1") })
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: remoteNamespace, Name: "b"}}
	b.Edit(pod, func() { pod.Annotations[labels.ShadowPodRevision] = shadow.Revision(shadows[1]) })
	b.Until("the size of the other one is proven", func() bool {
		problem, err := q.Reserve("rome-id", shadows[1], nil, time.Now())
		return err == nil && problem == ""
	})
}

// TestQuotaOfAnotherReplica: a pod that the controller of another replica created counts here as soon as it is observed. The phase of its ShadowPod, which is
// recorded later, does not matter.
func TestQuotaOfAnotherReplica(t *testing.T) {
	b := newEnv(t)
	b.granted("rome", "3", map[string]string{labels.Replicated: "true", labels.Replication: "false"})
	q := b.quota(true)
	s := shadowPodNamed("a", nil)
	b.Make(s)
	b.counted(q, s)
	if q.isReserved(s) {
		t.Error("a ShadowPod without a pod is reserved")
	}
	pod := shadow.Pod(s, "rome-id", metadata.Allowed{})
	pod.Spec.Containers[0].Image = "i"
	b.Make(pod)
	b.Until("its pod counts", func() bool { return q.isReserved(s) })
	if b.Read(s); s.Status != (vkv1alpha1.ShadowPodStatus{}) {
		t.Errorf("status %+v", s.Status)
	}
}

func (q *Quota) isReserved(s *vkv1alpha1.ShadowPod) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.reserved.Has(s)
}

// TestAttackH7: with the default settings, a peer whose own scheduler ignores what it is granted gets pods up to the grant, and no more.
func TestAttackH7(t *testing.T) {
	b := newEnv(t)
	b.granted("rome", "3", map[string]string{labels.Replicated: "true", labels.Replication: "false"})
	q := b.quota(false)
	b.Until("the grant is recorded", func() bool {
		problem, _ := q.fits("rome-id", shadowPodNamed("x", nil), time.Now())
		return problem == ""
	})
	b.serve(ShadowPodOptions{RemoteNamespaces: remoteNamespaces{remoteNamespace: "rome-id"}, Level: shadow.Baseline, Quota: q})
	made := 0
	for i := range 8 {
		miner := shadowPodNamed(fmt.Sprint("miner-", i), func(s *vkv1alpha1.ShadowPod) {
			s.Spec.Pod.Containers[0].Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}
		})
		switch err := b.Create(t.Context(), miner); {
		case err == nil:
			made++
			b.counted(q, miner)
		default:
			b.refused(err, "the requests of this pod ask for 1 of cpu; 3 of 3 granted to cluster rome-id are in use")
		}
	}
	if made != 3 {
		t.Errorf("%d pods of one CPU each run, 3 CPUs are granted", made)
	}
	// Pods without requests are bounded by the granted number of pods: 100.
	idle := func(name string) *vkv1alpha1.ShadowPod {
		return shadowPodNamed(name, func(s *vkv1alpha1.ShadowPod) { s.Spec.Pod.Containers[0].Resources = corev1.ResourceRequirements{} })
	}
	for i := range 97 {
		s := idle(fmt.Sprint("idle-", i))
		b.Make(s)
		b.counted(q, s)
	}
	b.refused(b.Create(t.Context(), idle("one-more")), "1 of pods; 100 of 100")
}

// TestAttackH4: reviews, which may be forged, reserve nothing of what another peer is granted.
func TestAttackH4(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := vkv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	q := &Quota{known: quota.NewLedger(true, quota.Defaults{}), reserved: quota.NewLedger(true, quota.Defaults{}), filled: true}
	q.known.SetGrant(
		"rome-id", types.NamespacedName{Name: "slice"},
		corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi"), "pods": resource.MustParse("5")},
	)
	handler := newShadowPod(scheme, ShadowPodOptions{RemoteNamespaces: remoteNamespaces{remoteNamespace: "rome-id"}, Level: shadow.Baseline, Quota: q})
	for i := range 20 {
		raw, err := json.Marshal(shadowPodNamed(fmt.Sprint("forged-", i), nil))
		if err != nil {
			t.Fatal(err)
		}
		raw = []byte(strings.Replace(string(raw), "{", `{"apiVersion":"virtualkubelet.liqo.io/v1alpha1","kind":"ShadowPod",`, 1))
		answer := handler.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Namespace: remoteNamespace, Object: runtime.RawExtension{Raw: raw},
		}})
		if !answer.Allowed {
			t.Fatalf("after %d reviews, of which none was followed by an object, the peer's own pod is refused: %s", i, answer.Result.Message)
		}
	}
}

// TestAttackH5: a peer that keeps ShadowPods of pods that have ended, which use nothing of its grant, is refused at the bound.
func TestAttackH5(t *testing.T) {
	const most = 5
	b := newEnv(t)
	crds := "../../../deployments/liqo/crds/virtualkubelet.liqo.io_"
	_, err := envtest.InstallCRDs(b.admin, envtest.CRDInstallOptions{
		ErrorIfPathMissing: true, Paths: []string{crds + "namespacemaps.yaml", crds + "shadowendpointslices.yaml"},
	})
	b.Must(err)
	mgr, err := kubemanager.New(b.admin, kubemanager.Options{Scheme: b.scheme, SkipNameValidation: true, Cache: cache.Options{
		ByObject: map[client.Object]cache.ByObject{&corev1.Namespace{}: {}},
	}})
	b.Must(err)
	p, err := peerobjects.Setup(mgr, peerobjects.Options{
		Limits: ledger.Limits{Objects: map[schema.GroupResource]int64{peerobjects.ShadowPods: most}},
		Known:  func(string) string { return "rome-id" }, Namespaces: func(string) []string { return []string{remoteNamespace} },
	})
	b.Must(err)
	kubetest.Start(t, "manager", mgr.Start)
	b.serve(ShadowPodOptions{RemoteNamespaces: remoteNamespaces{remoteNamespace: "rome-id"}, Level: shadow.Baseline, Peers: p})
	for i := range most {
		s := shadowPodNamed(fmt.Sprint("ended-", i), nil)
		b.Until("the objects are counted, and this one is admitted", func() bool { return b.Create(t.Context(), s) == nil })
		s.Status.Phase = vkv1alpha1.ShadowPodSucceeded
		b.Must(b.Status().Update(t.Context(), s))
	}
	b.refused(b.Create(t.Context(), shadowPodNamed("one-more", nil)), "has 5 shadowpods.virtualkubelet.liqo.io of the peer already, and at most 5 are accepted")
	gone := shadowPodNamed("ended-0", nil)
	b.Must(b.Delete(t.Context(), gone))
	b.Edit(gone, func() { gone.Finalizers = nil })
	b.Until("another one is admitted", func() bool { return b.Create(t.Context(), shadowPodNamed("one-more", nil)) == nil })
}
