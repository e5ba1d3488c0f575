// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// TestAPIServerByMap: a mapping has the policy of our NamespaceMap from its start. A map of the peer and a deleted map change nothing.
func TestAPIServerByMap(t *testing.T) {
	p := newNamespaces(&Engine{})
	p.ctx = t.Context()
	mapWithout := func(without ...string) *vkv1alpha1.NamespaceMap {
		m := &vkv1alpha1.NamespaceMap{}
		m.Spec.DesiredMapping = map[string]string{"shop": "shop-x", "vault": "vault-x"}
		m.Spec.WithoutAPIServer = without
		m.Status.CurrentMapping = map[string]vkv1alpha1.RemoteNamespaceStatus{}
		for local, remote := range m.Spec.DesiredMapping {
			m.Status.CurrentMapping[local] = vkv1alpha1.RemoteNamespaceStatus{RemoteNamespace: remote, Phase: vkv1alpha1.MappingAccepted}
		}
		return m
	}
	ofPeer := mapWithout()
	ofPeer.Labels = map[string]string{labels.Replicated: "true"}
	ending := mapWithout()
	delete(ending.Spec.DesiredMapping, "vault")
	for _, step := range []struct {
		name  string
		comes *vkv1alpha1.NamespaceMap
		want  string
	}{
		{"at first", mapWithout("vault"), "shop"},
		{"map of the peer", ofPeer, "shop"},
		{"deleted map", nil, "shop"},
		{"none", mapWithout("vault", "shop"), ""},
		{"both", mapWithout(), "shop vault"},
		{"no more", mapWithout("vault"), "shop"},
		{"unoffloaded", ending, "shop"},
		{"offloaded again", mapWithout(), "shop vault"},
	} {
		var comes client.Object
		if step.comes != nil {
			comes = step.comes
		}
		p.update(comes)
		var may []string
		p.Each(func(one *Mapping) {
			if one.APIServer() {
				may = append(may, one.Local)
			}
		})
		slices.Sort(may)
		if got := strings.Join(may, " "); got != step.want {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
	}
}
