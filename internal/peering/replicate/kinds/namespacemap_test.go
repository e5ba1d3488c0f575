// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	vkconfig "liqo.io/liqo/apis/applyconfiguration/virtualkubelet/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

type statuses = map[string]vkv1alpha1.RemoteNamespaceStatus

// TestNamespacesStatusIntent: only the status of requested namespaces is copied.
func TestNamespacesStatusIntent(t *testing.T) {
	const accepted, refused, terminating = vkv1alpha1.MappingAccepted, vkv1alpha1.MappingCreationLoopBackOff, vkv1alpha1.MappingTerminating
	for name, test := range map[string]struct {
		desired map[string]string
		before  statuses          // our status
		copied  map[string]string // the desired mapping of the copy
		remote  statuses          // the provider's status
		want    statuses          // nil: nothing is written
	}{
		"nothing": {},
		"accepted": {
			desired: map[string]string{"a": "x"}, remote: statuses{"a": {RemoteNamespace: "x", Phase: accepted}},
			want: statuses{"a": {RemoteNamespace: "x", Phase: accepted}},
		},
		"refused": {
			desired: map[string]string{"a": "x"}, remote: statuses{"a": {Phase: refused, Message: "no"}},
			want: statuses{"a": {RemoteNamespace: "x", Phase: refused, Message: "no"}},
		},
		"another name":  {desired: map[string]string{"a": "x"}, remote: statuses{"a": {RemoteNamespace: "kube-system", Phase: accepted}}},
		"another phase": {desired: map[string]string{"a": "x"}, remote: statuses{"a": {RemoteNamespace: "x", Phase: "Evil"}}},
		"not asked for": {desired: map[string]string{"a": "x"}, remote: statuses{"kube-system": {RemoteNamespace: "x", Phase: accepted}}},
		"long message": {
			desired: map[string]string{"a": "x"}, remote: statuses{"a": {Phase: refused, Message: strings.Repeat("m", 10_000)}},
			want: statuses{"a": {RemoteNamespace: "x", Phase: refused, Message: strings.Repeat("m", maxText-4) + " ..."}},
		},
		"not wanted any more": {
			before: statuses{"a": {RemoteNamespace: "x", Phase: accepted}}, remote: statuses{"a": {RemoteNamespace: "x", Phase: accepted}},
			want: statuses{"a": {RemoteNamespace: "x", Phase: terminating}},
		},
		"the copy is older": {
			before: statuses{"a": {RemoteNamespace: "x", Phase: accepted}}, copied: map[string]string{"a": "x"},
			want: statuses{"a": {RemoteNamespace: "x", Phase: terminating}},
		},
		"gone": {before: statuses{"a": {RemoteNamespace: "x", Phase: terminating}}, want: statuses{}},
		"never there": {
			before: statuses{"a": {RemoteNamespace: "x", Phase: refused}}, remote: statuses{"a": {RemoteNamespace: "x", Phase: refused}},
			want: statuses{},
		},
		"gone, another one": {
			before: statuses{"a": {RemoteNamespace: "x", Phase: terminating}}, remote: statuses{"a": {RemoteNamespace: "y", Phase: terminating}},
			want: statuses{},
		},
	} {
		local, remote := &vkv1alpha1.NamespaceMap{}, &vkv1alpha1.NamespaceMap{}
		local.Spec.DesiredMapping, local.Status.CurrentMapping = test.desired, test.before
		remote.Spec.DesiredMapping, remote.Status.CurrentMapping = test.copied, test.remote
		intent := namespacesStatusIntent(local, remote)
		if (intent == nil) != (test.want == nil) {
			t.Errorf("%s: %+v", name, intent)
		}
		if intent == nil {
			continue
		}
		got := statuses{}
		if intent.Status == nil {
			intent.Status = vkconfig.NamespaceMapStatus()
		}
		for key, one := range intent.Status.CurrentMapping {
			entry := vkv1alpha1.RemoteNamespaceStatus{RemoteNamespace: *one.RemoteNamespace, Phase: *one.Phase}
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
	for i := range maxMapped + 1 {
		many[fmt.Sprint(i)] = map[string]any{}
	}
	if namespacesCheck(map[string]any{"status": map[string]any{"currentMapping": many}}) == nil {
		t.Error("too many entries are accepted")
	}
}
