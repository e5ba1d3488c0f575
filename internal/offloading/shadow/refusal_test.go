// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// TestFinal: only an object that is invalid whatever the rules of the provider is given up.
func TestFinal(t *testing.T) {
	invalid := func(change func(*metav1.Status)) error {
		err := apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", field.ErrorList{
			field.Required(field.NewPath("spec", "containers"), ""), field.Invalid(field.NewPath("metadata", "name"), "_", "bad"),
		})
		if change != nil {
			change(&err.ErrStatus)
		}
		return fmt.Errorf("create pod: %w", err)
	}
	for _, test := range []struct {
		name string
		err  error
		want bool
	}{
		{"fields", invalid(nil), true},
		{"a policy", invalid(func(s *metav1.Status) { // as the API server builds it
			s.Message = `pods "web" is forbidden: ValidatingAdmissionPolicy 'images' with binding 'images' denied request: trusted images only`
			s.Details.Causes = []metav1.StatusCause{{Message: s.Message}}
		}), false},
		{"a webhook that names fields", invalid(func(s *metav1.Status) {
			s.Message = `admission webhook "images.example.com" denied the request: see spec`
		}), false},
		{"one cause without a field", invalid(func(s *metav1.Status) { s.Details.Causes[1].Field = "" }), false},
		{"no causes", invalid(func(s *metav1.Status) { s.Details.Causes = nil }), false},
		{"no details", invalid(func(s *metav1.Status) { s.Details = nil }), false},
		{"another reason", apierrors.NewForbidden(corev1.Resource("pods"), "web", errors.New("exceeded quota")), false},
		{"no answer", errors.New("connection refused"), false},
	} {
		if got := Final(test.err); got != test.want {
			t.Errorf("%s: final %t", test.name, got)
		}
	}
}
