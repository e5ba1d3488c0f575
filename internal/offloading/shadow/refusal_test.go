// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestAttackL5Refusals: a peer provokes errors of the provider's API server, to learn about its webhooks, policies, quotas and machines. It learns
// what concerns its own pod.
func TestAttackL5Refusals(t *testing.T) {
	denied := func(text string) error {
		return fmt.Errorf("create pod: %w", apierrors.NewForbidden(corev1.Resource("pods"), "web", errors.New(text)))
	}
	webhook := apierrors.NewBadRequest(`admission webhook "validate.kyverno.svc-fail" denied the request: violates PodSecurity and the image is not from registry.internal:5000`)
	for _, test := range []struct {
		name       string
		err        error
		want, hide string
	}{
		{"a field", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", field.ErrorList{field.Invalid(field.NewPath("spec", "containers").Index(0).Child("name"), "Not_A_Name", "bad")}), `spec.containers[0].name: Invalid value: "Not_A_Name"`, "log of"},
		{"the standard", denied(`violates PodSecurity "restricted:latest": runAsNonRoot != true`), "violates PodSecurity \"restricted:latest\"", "forbidden"},
		{"a quota", denied("exceeded quota: team-7-of-12, requested: pods=1, used: pods=4711, limited: pods=4711"), "exceeded quota of this namespace: requested: pods=1", "4711"},
		{"a quota, more", denied("exceeded quota: team-7-of-12, requested: pods=1, used: pods=4711, limited: pods=4711"), "exceeded quota", "team-7"},
		{"a limit range", denied("[maximum cpu usage per Container is 1, but limit is 2]"), "maximum cpu usage per Container is 1", "forbidden"},
		{"our policy", denied("ValidatingAdmissionPolicy 'liqo-peers-pods' with binding 'liqo-peers-pods' denied request: a pod of a peer must not"), "a pod of a peer must not", "liqo-peers-pods"},
		{"another policy", denied("ValidatingAdmissionPolicy 'only-registry-internal' with binding 'x' denied request: use registry.internal"), "a policy or a webhook", "registry"},
		{"a webhook", webhook, "a policy or a webhook", "registry"},
		{"a webhook that does not answer", apierrors.NewInternalError(errors.New(`failed calling webhook "x": Post "https://gatekeeper.svc:443": dial tcp 10.96.3.4:443: refused`)), "cannot do that now", "10.96"},
		{"rights", denied(`User "system:serviceaccount:liqo:liqo-controller-manager" cannot create`), "its administrator", "liqo:"},
		{"etcd", apierrors.NewInternalError(errors.New("etcdserver: mvcc: database space exceeded")), "InternalError", "etcd"},
		{"the network", errors.New("dial tcp 10.0.0.1:6443: connection refused"), "does not answer", "10.0"},
		{"a long text", denied("violates PodSecurity " + strings.Repeat("x", 5000)), "violates", strings.Repeat("x", 1000)},
	} {
		if got := Refusal(test.err); !strings.Contains(got, test.want) || test.hide != "" && strings.Contains(got, test.hide) {
			t.Errorf("%s: %q, want %q without %q", test.name, got, test.want, test.hide)
		}
	}
}
