// SPDX-License-Identifier: Apache-2.0

package features_test

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/offloading/features"
)

// newer are the fields that the API server of the tests does not have yet: the rows about them are proven by TestRows only.
var newer = strings.Fields(`PodSpec.evictionResponders EvictionResponder.name EvictionResponder.priority PodSpec.schedulingGroup EmptyDirVolumeSource.mode VolumeMount.bindMountOptions
	HTTPGetAction.protocol
	GRPCAction.mode
	ConfigMapVolumeSource.defaultUser SecretVolumeSource.defaultUser DownwardAPIVolumeSource.defaultUser ProjectedVolumeSource.defaultUser KeyToPath.user
	DownwardAPIVolumeFile.user ServiceAccountTokenProjection.user ClusterTrustBundleProjection.user PodCertificateProjection.user`)

// TestRowsOfAPIServers: a real API server of this cluster admits the pod of each row and fills in what it fills in; one of the provider admits the
// pod that becomes of it, and drops nothing.
func TestRowsOfAPIServers(t *testing.T) {
	config := kubetest.Newest(t)
	c := newClient(t, config)
	for _, name := range []string{mapping.Local, mapping.Remote} {
		create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	never := corev1.PreemptNever
	create(t, c, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000, PreemptionPolicy: &never})
	create(t, c, &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "gvisor"}, Handler: "gvisor",
		Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{"cpu": resource.MustParse("100m")}},
	})
	for name, row := range rows(t) {
		t.Run(name, func(t *testing.T) { acceptedRow(t, c, row) })
	}
	t.Run("subresources", func(t *testing.T) { subresources(t, config) })
}

func acceptedRow(t *testing.T, c client.Client, row features.Row) {
	for what, asks := range samples(t, row) {
		if strings.Contains(what, ", in ") {
			continue // Kubernetes does not accept every field in every container
		}
		local := asks.DeepCopy()
		local.UID, local.Spec.EphemeralContainers = "", nil // these are added to the running pod
		if err := c.Create(t.Context(), local, client.DryRunAll); err != nil {
			t.Errorf("%s: this cluster does not accept it, so the row is about nothing: %v", what, err)
			continue
		}
		local.Spec.EphemeralContainers = asks.Spec.EphemeralContainers
		kept := values(t, &local.Spec)
		for _, field := range slices.Sorted(maps.Keys(values(t, &asks.Spec))) {
			if len(kept[field]) == 0 && !slices.Contains(newer, field) {
				t.Errorf("%s: the API server drops %s", what, field)
			}
		}
		got := arrive(t, local)
		if row.Is == features.Refused {
			proven(t, what, row, local, got)
			continue
		}
		sent := got.spec.DeepCopy()
		sent.EphemeralContainers = nil
		remote := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: mapping.Remote, Labels: local.Labels}, Spec: *sent.DeepCopy()}
		if err := c.Create(t.Context(), remote, client.DryRunAll); err != nil {
			t.Errorf("%s: the provider does not accept what becomes of it: %v", what, err)
			continue
		}
		there := values(t, &remote.Spec)
		for field, of := range values(t, sent) {
			if !contains(there[field], of) && !slices.Contains(newer, field) {
				t.Errorf("%s: %s is %v in the pod that is created, and then %v", what, field, of, there[field])
			}
		}
	}
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func create(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	if err := c.Create(context.WithoutCancel(t.Context()), object); err != nil {
		t.Fatal(err)
	}
}

// subresources: each subresource of a pod has a row, and each row is about one that exists.
func subresources(t *testing.T, config *rest.Config) {
	found, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerResourcesForGroupVersion("v1")
	if err != nil {
		t.Fatal(err)
	}
	var served, have []string
	for _, apiResource := range found.APIResources {
		if name, ok := strings.CutPrefix(apiResource.Name, "pods/"); ok {
			served = append(served, name)
		}
	}
	for _, row := range rows(t) {
		have = slices.AppendSeq(have, maps.Keys(row.Subresources))
	}
	slices.Sort(served)
	slices.Sort(have)
	if !reflect.DeepEqual(served, have) {
		t.Errorf("an API server has the subresources %v of a pod, and the rows are about %v", served, have)
	}
}
