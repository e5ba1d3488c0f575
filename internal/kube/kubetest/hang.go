// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Hang makes the API server answer the creation of matching objects in a namespace only after its longest timeout (30 s), until the test ends.
// requests returns how many such requests have arrived.
func Hang(t *testing.T, c client.Client, namespace string, what ...admissionregistrationv1.Rule) (requests func() int) {
	t.Helper()
	var count atomic.Int32
	ended := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		count.Add(1)
		select {
		case <-request.Context().Done():
		case <-ended:
		}
	}))
	webhook := admissionregistrationv1.ValidatingWebhook{
		Name: "hangs.test.liqo.io", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionregistrationv1.SideEffectClassNone),
		TimeoutSeconds: new(int32(30)), FailurePolicy: new(admissionregistrationv1.Fail),
		ClientConfig: admissionregistrationv1.WebhookClientConfig{
			URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
	}
	for _, rule := range what {
		webhook.Rules = append(webhook.Rules, admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create}, Rule: rule,
		})
	}
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "hangs-"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{webhook},
	}
	if err := c.Create(t.Context(), configuration); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		close(ended)
		server.Close()
		if err := c.Delete(context.Background(), configuration); err != nil {
			t.Logf("%s was not deleted: %v", configuration.Name, err)
		}
	})
	return func() int { return int(count.Load()) }
}
