// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/offloading/ledger"
)

var measure = flag.Bool("measure", false, "measure what a peer's objects cost (docs/benchmarks.md)")

// withoutPolicies removes the admission policies.
func withoutPolicies(t *testing.T, root client.Client) {
	t.Helper()
	if err := admissionregistrationv1.AddToScheme(root.Scheme()); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []client.Object{&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, &admissionregistrationv1.ValidatingAdmissionPolicy{}} {
		if err := root.DeleteAllOf(t.Context(), kind); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCostOfCounting measures how long the API server takes to create an object of a peer whose namespace has a quota and counts in the ledger,
// counts in the ledger, or neither, in turns. Admission policies do not apply.
func TestCostOfCounting(t *testing.T) {
	if !*measure {
		t.Skip("a measurement; run it with -measure")
	}
	totals := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{
		"secrets", "configmaps", "services", "services.loadbalancers", "services.nodeports", "count/ingresses.networking.k8s.io",
		"count/poddisruptionbudgets.policy", "persistentvolumeclaims", "requests.storage",
	} {
		totals[name] = resource.MustParse("1Ti")
	}
	limits := ledger.Limits{Use: ledger.Use{ledger.Bytes: 256 << 20}, AllBytes: 1 << 30, Rate: 1 << 20, Burst: 64 << 20}
	if err := limits.Add(totals); err != nil {
		t.Fatal(err)
	}
	_, root, as := withLedger(t, limits, "quota-rome", "ledger-rome")
	ctx, peer := t.Context(), as("system:serviceaccount:liqo-tenant-rome:liqo-peer")
	withoutPolicies(t, root)
	tenant := map[string]string{"discovery.liqo.io/tenant-namespace": "true", "discovery.liqo.io/cluster-id": "rome"}
	for name, labels := range map[string]map[string]string{
		"liqo-tenant-rome": tenant, "quota-rome": {"liqo.io/remote-cluster-id": "rome"}, "ledger-rome": {"liqo.io/remote-cluster-id": "rome"},
		"neither": nil,
	} {
		if err := root.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}); err != nil {
			t.Fatal(err)
		}
	}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "quota-rome", Name: "liqo-peer"}, Spec: corev1.ResourceQuotaSpec{Hard: totals}}
	if err := root.Create(ctx, quota); err != nil {
		t.Fatal(err)
	}
	quota.Status = corev1.ResourceQuotaStatus{Hard: totals, Used: corev1.ResourceList{}}
	for name := range totals { // the test acts as the quota controller
		quota.Status.Used[name] = resource.MustParse("0")
	}
	if err := root.Status().Update(ctx, quota); err != nil {
		t.Fatal(err)
	}
	ways := []string{"quota-rome", "ledger-rome", "neither"}
	kubetest.Eventually(t, "the quota counts", func() error {
		if err := peer.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ways[0], GenerateName: "first-"}}); err != nil {
			return err
		}
		if err := root.Get(ctx, client.ObjectKeyFromObject(quota), quota); err != nil {
			return err
		}
		if used := quota.Status.Used["configmaps"]; used.IsZero() {
			return fmt.Errorf("the quota has %v", quota.Status.Used)
		}
		return nil
	})
	at := func(way string, i int) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: way, Name: fmt.Sprint("x-", i)}
	}
	for _, kind := range []struct {
		name string
		of   func(metav1.ObjectMeta) client.Object
	}{
		{"ConfigMap", func(meta metav1.ObjectMeta) client.Object {
			return &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": "b"}}
		}},
		{"Secret", func(meta metav1.ObjectMeta) client.Object {
			return &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"a": []byte("b")}}
		}},
		{"Service", func(meta metav1.ObjectMeta) client.Object {
			return &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
		}},
	} {
		const warm, rounds = 20, 320
		taken := map[string][]time.Duration{}
		for i := range warm + rounds {
			for turn := range ways {
				way := ways[(i+turn)%len(ways)]
				one, began := kind.of(at(way, i)), time.Now()
				if err := peer.Create(ctx, one); err != nil {
					t.Fatal(err)
				}
				if i >= warm {
					taken[way] = append(taken[way], time.Since(began))
				}
				if err := root.Delete(ctx, one); err != nil { // there are 254 addresses of Services
					t.Fatal(err)
				}
			}
		}
		row := "| " + kind.name
		for _, way := range ways {
			all := slices.Sorted(slices.Values(taken[way]))
			row += fmt.Sprintf(" | %.1f / %.1f", all[len(all)/2].Seconds()*1000, all[len(all)*9/10].Seconds()*1000)
		}
		t.Log(row + " |")
	}
}
