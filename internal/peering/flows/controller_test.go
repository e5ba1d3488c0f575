// SPDX-License-Identifier: Apache-2.0

package flows

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	flowv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/kubetest"
	kubemanager "liqo.io/liqo/internal/kube/manager"
)

// TestAttackH5Flows: the API server assigns the requests of every peer to the priority level of peers, so a flood of them delays no other client.
func TestAttackH5Flows(t *testing.T) {
	t.Parallel()
	admin := kubetest.Cluster(t)
	b := kubetest.Env{T: t}
	var err error
	b.Client, err = client.New(admin, client.Options{Scheme: scheme.Scheme})
	b.Must(err)
	const user = "flows-test"
	for namespace, rules := range b.RBACMarkers("controller.go") {
		b.Bind(user, namespace, rules)
	}
	// As the chart creates it: without rules.
	b.Make(&flowv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: peerFlows}, Spec: flowv1.PriorityLevelConfigurationSpec{
		Type: flowv1.PriorityLevelEnablementLimited, Limited: &flowv1.LimitedPriorityLevelConfiguration{
			NominalConcurrencyShares: new(int32(30)), LimitResponse: flowv1.LimitResponse{Type: flowv1.LimitResponseTypeReject},
		},
	}})
	flows := &flowv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: peerFlows}, Spec: flowv1.FlowSchemaSpec{
		MatchingPrecedence: 2000, PriorityLevelConfiguration: flowv1.PriorityLevelConfigurationReference{Name: peerFlows},
		DistinguisherMethod: &flowv1.FlowDistinguisherMethod{Type: flowv1.FlowDistinguisherMethodByUserType},
	}}
	b.Make(flows)
	tenants := []*corev1.Namespace{}
	for _, name := range []string{"liqo-tenant-rome-000001", "liqo-tenant-milan-000002"} {
		one := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{labels.TenantNamespace: "true"}}}
		tenants = append(tenants, one)
	}
	b.Make(tenants[0])
	cfg := rest.CopyConfig(admin)
	cfg.Impersonate.UserName = user
	mgr, err := kubemanager.New(cfg, kubemanager.Options{Scheme: scheme.Scheme, SkipNameValidation: true})
	b.Must(err)
	b.Must(Setup(mgr))
	kubetest.Start(t, "manager", mgr.Start)
	b.Make(tenants[1])
	for _, one := range tenants {
		b.Until("requests of the peer in "+one.Name+" have their own priority level", func() bool {
			return flowOf(t, admin, "system:serviceaccount:"+one.Name+":liqo-peer") == string(flows.UID)
		})
	}
	if flowOf(t, admin, "system:serviceaccount:liqo-tenant-rome-000001:virtual-kubelet") == string(flows.UID) {
		t.Error("our own virtual kubelet has the priority level of peers")
	}
	b.Must(b.Delete(t.Context(), tenants[1]))
	b.Read(tenants[1])
	tenants[1].Spec.Finalizers = nil // as Kubernetes does when the namespace is empty
	b.Must(b.SubResource("finalize").Update(t.Context(), tenants[1]))
	b.Until("the peer that is gone is removed", func() bool {
		b.Read(flows)
		return len(flows.Spec.Rules) == 1 && len(flows.Spec.Rules[0].Subjects) == 1
	})
}

// flowOf returns the UID of the FlowSchema that the API server chooses for a service account.
func flowOf(t *testing.T, admin *rest.Config, user string) (uid string) {
	t.Helper()
	cfg := rest.CopyConfig(admin)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	caller, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, cfg.Host+"/api/v1/namespaces/default/secrets", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := caller.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := answer.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return answer.Header.Get(flowv1.ResponseHeaderMatchedFlowSchemaUID)
}
