// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
)

type statuses = map[string]vkv1alpha1.RemoteNamespaceStatus

// TestNamespaceMap: the spec is copied to the provider, the status to the consumer, and the object is deleted after its copy.
func TestNamespaceMap(t *testing.T) {
	b := newEnv(t)
	b.start()
	b.connect(b.peer(""))
	b.ready()
	local := &vkv1alpha1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.name, Name: "map", Labels: map[string]string{
			labels.Replication: "true", labels.RemoteID: b.provider, labels.RemoteClusterID: b.provider,
		}},
		Spec: vkv1alpha1.NamespaceMapSpec{DesiredMapping: map[string]string{"shop": "shop-rome"}, WithoutAPIServer: []string{"shop"}},
	}
	b.must(b.here.Create(t.Context(), local))
	key := client.ObjectKeyFromObject(local)
	var there vkv1alpha1.NamespaceMap
	kubetest.Eventually(b.t, "the copy is there", func() error { return b.there.Get(t.Context(), key, &there) })
	if !maps.Equal(there.Spec.DesiredMapping, local.Spec.DesiredMapping) || len(there.Spec.WithoutAPIServer) > 0 ||
		there.Labels[labels.RemoteClusterID] != b.origin || there.Labels[labels.Replicated] != "true" {
		t.Errorf("%+v", there)
	}
	kubetest.Eventually(b.t, "the provider writes its status", func() error {
		if err := b.there.Get(t.Context(), key, &there); err != nil {
			return err
		}
		there.Finalizers = []string{labels.FinalizerNamespaceMap}
		there.Spec.WithoutAPIServer = []string{"evil"}
		if err := b.there.Update(t.Context(), &there); err != nil {
			return err
		}
		there.Status.CurrentMapping = statuses{
			"shop": {RemoteNamespace: "shop-rome", Phase: vkv1alpha1.MappingAccepted}, "evil": {RemoteNamespace: "kube-system", Phase: vkv1alpha1.MappingAccepted},
		}
		return b.there.Status().Update(t.Context(), &there)
	})
	want := statuses{"shop": {RemoteNamespace: "shop-rome", Phase: vkv1alpha1.MappingAccepted}}
	kubetest.Eventually(b.t, "the status is copied", func() error {
		if err := b.here.Get(t.Context(), key, local); err != nil {
			return err
		}
		if diff := cmp.Diff(want, local.Status.CurrentMapping); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	if len(local.Spec.WithoutAPIServer) != 1 || local.Spec.WithoutAPIServer[0] != "shop" {
		t.Errorf("the provider changed withoutAPIServer: %v", local.Spec.WithoutAPIServer)
	}
	change := func(mapping map[string]string, answer statuses) {
		kubetest.Eventually(b.t, "change the desired mapping", func() error {
			if err := b.here.Get(t.Context(), key, local); err != nil {
				return err
			}
			local.Spec.DesiredMapping = mapping
			return b.here.Update(t.Context(), local)
		})
		kubetest.Eventually(b.t, "the provider answers", func() error {
			if err := b.there.Get(t.Context(), key, &there); err != nil {
				return err
			}
			if len(there.Spec.DesiredMapping) != len(mapping) {
				return fmt.Errorf("%+v", there.Spec)
			}
			there.Status.CurrentMapping = answer
			return b.there.Status().Update(t.Context(), &there)
		})
		kubetest.Eventually(b.t, "the answer is copied", func() error {
			if err := b.here.Get(t.Context(), key, local); err != nil || !maps.Equal(local.Status.CurrentMapping, answer) {
				return fmt.Errorf("%v, %+v", err, local.Status)
			}
			return nil
		})
	}
	change(nil, nil)
	change(map[string]string{"shop": "shop-rome"}, want)
	b.must(b.here.Delete(t.Context(), local))
	kubetest.Eventually(b.t, "the copy is being deleted and keeps its finalizer", func() error {
		if err := b.there.Get(t.Context(), key, &there); err != nil {
			return err
		}
		if there.DeletionTimestamp == nil || len(there.Finalizers) != 1 {
			return fmt.Errorf("%+v", there.ObjectMeta)
		}
		return nil
	})
	b.must(b.here.Get(t.Context(), key, local))
	there.Finalizers = nil
	b.must(b.there.Update(t.Context(), &there))
	kubetest.Eventually(b.t, "the object is deleted", func() error {
		if b.here.Get(t.Context(), key, local) == nil {
			return errors.New("it is there")
		}
		return nil
	})
}
