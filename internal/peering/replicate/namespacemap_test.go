// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkconfig "liqo.io/liqo/apis/applyconfiguration/virtualkubelet/v1alpha1"
	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
)

type said = vkv1alpha1.RemoteNamespaceStatus

// TestNamespacesHere: a provider speaks of what it was asked for, and of nothing else.
func TestNamespacesHere(t *testing.T) {
	const accepted, refused, terminating = vkv1alpha1.MappingAccepted, vkv1alpha1.MappingCreationLoopBackOff, vkv1alpha1.MappingTerminating
	for name, test := range map[string]struct {
		desired map[string]string
		before  map[string]said
		asked   map[string]string // of the provider, as it has it
		says    map[string]said
		want    map[string]said // nil: nothing is written
	}{
		"nothing":              {},
		"accepted":             {desired: map[string]string{"a": "x"}, says: map[string]said{"a": {RemoteNamespace: "x", Phase: accepted}}, want: map[string]said{"a": {RemoteNamespace: "x", Phase: accepted}}},
		"refused":              {desired: map[string]string{"a": "x"}, says: map[string]said{"a": {Phase: refused, Message: "no"}}, want: map[string]said{"a": {RemoteNamespace: "x", Phase: refused, Message: "no"}}},
		"another name":         {desired: map[string]string{"a": "x"}, says: map[string]said{"a": {RemoteNamespace: "kube-system", Phase: accepted}}},
		"another phase":        {desired: map[string]string{"a": "x"}, says: map[string]said{"a": {RemoteNamespace: "x", Phase: "Evil"}}},
		"not asked for":        {desired: map[string]string{"a": "x"}, says: map[string]said{"kube-system": {RemoteNamespace: "x", Phase: accepted}}},
		"a long story":         {desired: map[string]string{"a": "x"}, says: map[string]said{"a": {Phase: refused, Message: strings.Repeat("m", 10_000)}}, want: map[string]said{"a": {RemoteNamespace: "x", Phase: refused, Message: strings.Repeat("m", mostText)}}},
		"not wanted any more":  {before: map[string]said{"a": {RemoteNamespace: "x", Phase: accepted}}, says: map[string]said{"a": {RemoteNamespace: "x", Phase: accepted}}, want: map[string]said{"a": {RemoteNamespace: "x", Phase: terminating}}},
		"it has not heard yet": {before: map[string]said{"a": {RemoteNamespace: "x", Phase: accepted}}, asked: map[string]string{"a": "x"}, want: map[string]said{"a": {RemoteNamespace: "x", Phase: terminating}}},
		"gone":                 {before: map[string]said{"a": {RemoteNamespace: "x", Phase: terminating}}, want: map[string]said{}},
		"never there":          {before: map[string]said{"a": {RemoteNamespace: "x", Phase: refused}}, says: map[string]said{"a": {RemoteNamespace: "x", Phase: refused}}, want: map[string]said{}},
		"gone, another one":    {before: map[string]said{"a": {RemoteNamespace: "x", Phase: terminating}}, says: map[string]said{"a": {RemoteNamespace: "y", Phase: terminating}}, want: map[string]said{}},
	} {
		local, remote := &vkv1alpha1.NamespaceMap{}, &vkv1alpha1.NamespaceMap{}
		local.Spec.DesiredMapping, local.Status.CurrentMapping = test.desired, test.before
		remote.Spec.DesiredMapping, remote.Status.CurrentMapping = test.asked, test.says
		intent := namespacesHere(local, remote)
		if (intent == nil) != (test.want == nil) {
			t.Errorf("%s: %+v", name, intent)
		}
		if intent == nil {
			continue
		}
		got := map[string]said{}
		if intent.Status == nil {
			intent.Status = vkconfig.NamespaceMapStatus()
		}
		for key, one := range intent.Status.CurrentMapping {
			entry := said{RemoteNamespace: *one.RemoteNamespace, Phase: *one.Phase}
			if one.Message != nil {
				entry.Message = *one.Message
			}
			got[key] = entry
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
	many := map[string]any{}
	for i := range mostMapped + 1 {
		many[fmt.Sprint(i)] = map[string]any{}
	}
	if namespacesCheck(map[string]any{"status": map[string]any{"currentMapping": many}}) == nil {
		t.Error("any number is understood")
	}
}

// TestNamespaceMap: it crosses, its answer comes back, and it ends after its copy.
func TestNamespaceMap(t *testing.T) {
	b := newBed(t)
	b.start()
	b.connect(b.peer(""))
	b.ready()
	wish := &vkv1alpha1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.name, Name: "map", Labels: map[string]string{
			labels.Replication: "true", labels.RemoteID: b.provider, labels.RemoteClusterID: b.provider,
		}},
		Spec: vkv1alpha1.NamespaceMapSpec{DesiredMapping: map[string]string{"shop": "shop-rome"}, WithoutAPIServer: []string{"shop"}},
	}
	b.must(b.here.Create(t.Context(), wish))
	key := client.ObjectKeyFromObject(wish)
	var there vkv1alpha1.NamespaceMap
	kubetest.Eventually(b.t, "the copy is there", func() error { return b.there.Get(t.Context(), key, &there) })
	if !maps.Equal(there.Spec.DesiredMapping, wish.Spec.DesiredMapping) || len(there.Spec.WithoutAPIServer) > 0 || there.Labels[labels.RemoteClusterID] != b.origin || there.Labels[labels.Replicated] != "true" {
		t.Errorf("%+v", there)
	}
	kubetest.Eventually(b.t, "it says so", func() error {
		if err := b.there.Get(t.Context(), key, &there); err != nil {
			return err
		}
		there.Finalizers = []string{labels.FinalizerNamespaceMap}
		there.Spec.WithoutAPIServer = []string{"evil"}
		if err := b.there.Update(t.Context(), &there); err != nil {
			return err
		}
		there.Status.CurrentMapping = map[string]said{
			"shop": {RemoteNamespace: "shop-rome", Phase: vkv1alpha1.MappingAccepted}, "evil": {RemoteNamespace: "kube-system", Phase: vkv1alpha1.MappingAccepted},
		}
		return b.there.Status().Update(t.Context(), &there)
	})
	want := map[string]said{"shop": {RemoteNamespace: "shop-rome", Phase: vkv1alpha1.MappingAccepted}}
	kubetest.Eventually(b.t, "its answer comes back", func() error {
		if err := b.here.Get(t.Context(), key, wish); err != nil {
			return err
		}
		if diff := cmp.Diff(want, wish.Status.CurrentMapping); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	if len(wish.Spec.WithoutAPIServer) != 1 || wish.Spec.WithoutAPIServer[0] != "shop" {
		t.Errorf("the provider has a say in who knows of the API server: %v", wish.Spec.WithoutAPIServer)
	}
	change := func(mapping map[string]string, answer map[string]said) {
		kubetest.Eventually(b.t, "the last namespace goes", func() error {
			if err := b.here.Get(t.Context(), key, wish); err != nil {
				return err
			}
			wish.Spec.DesiredMapping = mapping
			return b.here.Update(t.Context(), wish)
		})
		kubetest.Eventually(b.t, "the provider says so", func() error {
			if err := b.there.Get(t.Context(), key, &there); err != nil {
				return err
			}
			if len(there.Spec.DesiredMapping) != len(mapping) {
				return fmt.Errorf("%+v", there.Spec)
			}
			there.Status.CurrentMapping = answer
			return b.there.Status().Update(t.Context(), &there)
		})
		kubetest.Eventually(b.t, "it is known here", func() error {
			if err := b.here.Get(t.Context(), key, wish); err != nil || !maps.Equal(wish.Status.CurrentMapping, answer) {
				return fmt.Errorf("%v, %+v", err, wish.Status)
			}
			return nil
		})
	}
	change(nil, nil)
	change(map[string]string{"shop": "shop-rome"}, want)
	b.must(b.here.Delete(t.Context(), wish))
	kubetest.Eventually(b.t, "the copy is told to go, with its finalizer left alone", func() error {
		if err := b.there.Get(t.Context(), key, &there); err != nil {
			return err
		}
		if there.DeletionTimestamp == nil || len(there.Finalizers) != 1 {
			return fmt.Errorf("%+v", there.ObjectMeta)
		}
		return nil
	})
	b.must(b.here.Get(t.Context(), key, wish))
	there.Finalizers = nil
	b.must(b.there.Update(t.Context(), &there))
	kubetest.Eventually(b.t, "it ends", func() error {
		if b.here.Get(t.Context(), key, wish) == nil {
			return errors.New("it is there")
		}
		return nil
	})
}
