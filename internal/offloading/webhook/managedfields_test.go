// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/pem"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
)

// TestWithoutManagedFields: a real API server stores pods of controllers without managed fields, keeps it so through all later writes, and keeps the managed
// fields of a pod that a user creates, of one that a controller creates with server-side apply, and of one of a ShadowPod that does not record its keys.
func TestWithoutManagedFields(t *testing.T) {
	t.Parallel()
	config := kubetest.Cluster(t)
	c, err := client.New(config, client.Options{})
	b := kubetest.Env{T: t, Client: c}
	b.Must(err)
	source := oneOffloading{offloadingv1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1alpha1.PodsLocalAndRemote}}
	handler := &pods{
		options: Options{Cached: source, Live: source}, admitted: &admittedVersions{all: map[string]version{}},
		decoder: admission.NewDecoder(clientgoscheme.Scheme),
	}
	var asked atomic.Int32
	server := httptest.NewTLSServer(&admission.Webhook{Handler: admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
		asked.Add(1)
		return handler.handle(ctx, request)
	})})
	t.Cleanup(server.Close)
	b.Make(&admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "liqo"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "pod.mutate.liqo.io", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionregistrationv1.SideEffectClassNone),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: new(server.URL + PodPath), CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
		}},
	})
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web", Controller: new(true)}
	pod := func(name string, owners ...metav1.OwnerReference) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name, OwnerReferences: owners}, Spec: spec}
	}
	b.Until("the API server calls the webhook", func() bool {
		_ = b.Create(t.Context(), pod("probe"), client.DryRunAll)
		return asked.Load() > 0
	})

	made := pod("controller", owner)
	b.Make(made)
	if len(made.ManagedFields) > 0 || len(made.Spec.Tolerations) == 0 {
		t.Errorf("created: %v, tolerations %v", made.ManagedFields, made.Spec.Tolerations)
	}
	b.Must(b.SubResource("binding").Create(t.Context(), made, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}))
	b.Must(b.Status().Patch(t.Context(), made, client.RawPatch(types.StrategicMergePatchType, []byte(`{"status":{"phase":"Running"}}`))))
	b.Must(b.Patch(t.Context(), made, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))))
	b.Read(made)
	if len(made.ManagedFields) > 0 || made.Status.Phase != corev1.PodRunning || made.Spec.NodeName != "n" {
		t.Errorf("after its status was written: %v, %s", made.ManagedFields, made.Status.Phase)
	}

	peers := pod("peer", metav1.OwnerReference{APIVersion: "virtualkubelet.liqo.io/v1alpha1", Kind: "ShadowPod", Name: "peer", UID: "web", Controller: new(true)})
	b.Make(peers)
	if len(peers.ManagedFields) == 0 {
		t.Error("the pod of a ShadowPod has no managed fields")
	}
	recorded := pod("recorded", peers.OwnerReferences...)
	recorded.Annotations = map[string]string{labels.ShadowPodKeys: ";"}
	b.Make(recorded)
	if len(recorded.ManagedFields) > 0 {
		t.Error("the pod of a ShadowPod that records its keys has managed fields")
	}
	user := pod("user")
	b.Make(user)
	if len(user.ManagedFields) == 0 {
		t.Error("the pod of a user has no managed fields")
	}
	applied := coreapply.Pod("applied", metav1.NamespaceDefault).WithSpec(coreapply.PodSpec().WithContainers(coreapply.Container().WithName("c").WithImage("i"))).
		WithOwnerReferences(metaapply.OwnerReference().WithAPIVersion(owner.APIVersion).WithKind(owner.Kind).WithName(owner.Name).WithUID(owner.UID).
			WithController(true))
	b.Must(b.Apply(t.Context(), applied, client.FieldOwner("operator")))
	got := pod("applied")
	b.Read(got)
	if len(got.ManagedFields) == 0 {
		t.Error("the pod of a controller that applies has no managed fields")
	}
}
