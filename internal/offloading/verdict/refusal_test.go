// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// TestRefusals: whatever refuses an object of a peer, the peer's user gets the API server's own words.
func TestRefusals(t *testing.T) {
	forbidden := func(text string) error {
		return fmt.Errorf("create pod: %w", apierrors.NewForbidden(corev1.Resource("pods"), "web", errors.New(text)))
	}
	webhook := func(code int32, reason metav1.StatusReason, text string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: text}}
	}
	policy := apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", nil)
	policy.ErrStatus.Message = `pods "web" is forbidden: ValidatingAdmissionPolicy 'limits' with binding 'all' denied request: each container needs a limit of cpu`
	for _, test := range []struct {
		name string
		err  error
		want string
	}{
		{"a quota", forbidden("exceeded quota: team, requested: pods=1, used: pods=4, limited: pods=4"), "exceeded quota of this namespace: requested: pods=1"},
		{
			"a quota of limits", forbidden("failed quota: team: must specify limits.cpu for: main; limits.memory for: main"),
			"failed quota of this namespace: must specify limits.cpu for: main; limits.memory for: main",
		},
		{
			"a quota of a class", forbidden("insufficient quota to match these scopes: [{PriorityClass In [high]}]"),
			"insufficient quota to match these scopes: [{PriorityClass In [high]}]",
		},
		{
			"a limit range",
			forbidden("[maximum cpu usage per Container is 1, but limit is 2, minimum memory usage per Pod is 1Gi, but request is 1Mi]"),
			"[maximum cpu usage per Container is 1, but limit is 2, minimum memory usage per Pod is 1Gi, but request is 1Mi]",
		},
		{
			"a ratio", forbidden("cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000"),
			"cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000",
		},
		{"the standard", forbidden(
			`violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "main" must set securityContext.allowPrivilegeEscalation=false)`,
		), `violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "main" must set securityContext.allowPrivilegeEscalation=false)`},
		{"a class of priority", forbidden("no PriorityClass with name high was found"), "no PriorityClass with name high was found"},
		{
			"an account that is missing", forbidden(`error looking up service account shop-rome-1/default: serviceaccount "default" not found`),
			`error looking up service account shop-rome-1/default: serviceaccount "default" not found`,
		},
		{"a policy", policy, "ValidatingAdmissionPolicy 'limits' with binding 'all' denied request: each container needs a limit of cpu"},
		{
			"a policy of Liqo",
			forbidden("ValidatingAdmissionPolicy 'liqo-peers-pods' with binding 'liqo-peers-pods' denied request: a pod of a peer must not"),
			"a pod of a peer must not",
		},
		{
			"a webhook", webhook(400, "", `admission webhook "images.example.com" denied the request: use images of registry.example.com`),
			`admission webhook "images.example.com" denied the request: use images of registry.example.com`,
		},
		{
			"a webhook with a code", webhook(403, "NotWanted", `admission webhook "x.example.com" denied the request without explanation`),
			`admission webhook "x.example.com" denied the request without explanation`,
		},
		{"fields", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", field.ErrorList{
			field.Invalid(field.NewPath("spec", "containers").Index(0).Child("name"), "Not_A_Name", "bad"),
			field.Required(field.NewPath("spec", "volumes").Index(1).Child("name"), ""),
		}), `spec.containers[0].name: Invalid value: "Not_A_Name": bad; spec.volumes[1].name: Required value`},
		{"a size", apierrors.NewRequestEntityTooLargeError("limit is 3145728"), "Request entity too large: limit is 3145728"},
		{
			"an amount that is named",
			forbidden("exceeded quota: gpus, requested: requests.nvidia.com/gpu=2, used: requests.nvidia.com/gpu=7, limited: requests.nvidia.com/gpu=8"),
			"exceeded quota of this namespace: requested: requests.nvidia.com/gpu=2",
		},
		{
			"our rights",
			forbidden(`User "system:serviceaccount:liqo:liqo-controller-manager" cannot create resource "pods" in API group "" in the namespace "shop-rome-1"`),
			`User "(an account)" cannot create resource "pods" in API group "" in the namespace "shop-rome-1"`,
		},
	} {
		if got, want := Refusal(test.err, "shop-rome-1", "web"), "this cluster refuses it: "+test.want; got != want {
			t.Errorf("%s: %q, want %q", test.name, got, want)
		}
	}
	for reason, err := range map[string]error{
		"InternalError": apierrors.NewInternalError(
			errors.New(`failed calling webhook "x": Post "https://gatekeeper.svc:443": dial tcp 10.96.3.4:443: refused`),
		),
		"TooManyRequests":    apierrors.NewTooManyRequests("the peer writes too much", 1),
		"ServerTimeout":      apierrors.NewServerTimeout(corev1.Resource("pods"), "create", 1),
		"Timeout":            apierrors.NewTimeoutError("slow", 1),
		"ServiceUnavailable": apierrors.NewServiceUnavailable("etcdserver: mvcc: database space exceeded"),
		"Conflict":           apierrors.NewConflict(corev1.Resource("resourcequotas"), "team", errors.New("modified")),
		"Unauthorized":       apierrors.NewUnauthorized("token of system:serviceaccount:liqo:x expired"),
	} {
		if got, want := Refusal(err, "ns"), "the API server of this cluster cannot do that now ("+reason+"); Liqo tries again"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestWordsOfPolicies: what known policies state about a pod arrives as they state it. Numbers, fields of pods and what the peer has named are no
// names of others.
func TestWordsOfPolicies(t *testing.T) {
	shadow := &vkv1alpha1.ShadowPod{}
	shadow.Name, shadow.Labels = "web", map[string]string{"team": "blue", "example.com/owner": "shop-7"}
	shadow.Annotations = map[string]string{"docs": "see namespace bank-1"}
	shadow.Spec.Pod = corev1.PodSpec{
		Containers: []corev1.Container{{
			Name: "main", Image: "nginx/nginx-ingress:1.0", Env: []corev1.EnvVar{{Name: "PROXY", Value: "http://proxy.example:3128"}},
			EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}}}},
		}},
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "10.7.0.5", Path: "/exports/shop"}}}},
	}
	for _, text := range []string{
		`[psp-pods-allowed-user-ranges] Container main is attempting to run as disallowed user 0. Allowed runAsUser: {"rule": "MustRunAsNonRoot"}`,
		`[container-must-have-limits] container <main> has no resource limits`,
		`[repos] container <main> has an invalid image repo <nginx/nginx-ingress:1.0>, allowed repos are ["registry.example.com/team/", "gcr.io/proj/"]`,
		`require-requests-limits: validate-resources: 'validation error: requests/limits of cpu/memory are required. rule validate-resources ` +
			`failed at path /spec/containers/0/resources/limits/'`,
		`resource Pod/shop-rome-1/web was blocked due to the following policies: labels and/or annotations are missing`,
		`0/3 rules passed; run as user: 65532 or users 1000 and 2000`,
		`label example.com/owner has the value "shop-7", and namespace "blue" is not one of a team`,
		`env PROXY of main leads to http://proxy.example:3128, volume data to 10.7.0.5 and /exports/shop`,
		`command/args of main, requests.cpu=100m, ephemeral-storage 1Gi, hostPath volumes are forbidden. The field spec.volumes[*].hostPath must be unset`,
		`violates PodSecurity "restricted:v1.34": runAsNonRoot != true (pod or container "main" must set securityContext.runAsNonRoot=true), seccompProfile`,
		`image index.docker.io/nginx/nginx-ingress@sha256:0123456789abcdef has no signature`,
	} {
		err := apierrors.NewForbidden(corev1.Resource("pods"), "web", errors.New(text))
		if got, want := Refusal(err, "shop-rome-1", Names(shadow)...), "this cluster refuses it: "+text; got != want {
			t.Errorf("%q\n want %q", got, want)
		}
	}
	for theirs, want := range map[string]string{
		"user 'bank-7' or user bank-7 or user 10.0.0.7":                  "user '(another's)' or user (another's) or user (an address)",
		"node 7 of namespace 12, requests/web-1 and bank/requests":       "node (another's) of namespace (another's), (another's) and (another's)",
		"opa (see https://opa.example/rules), or https://opa.example/2;": "opa (see (an address)), or (an address);",
		"from 10.7.0.6:/exports/bank":                                    "from (an address)",
		"limits/bank-1 is full, as are bank-1/0 and namespace bank-1":    "(another's) is full, as are (another's) and namespace (another's)",
	} {
		err := apierrors.NewForbidden(corev1.Resource("pods"), "web", errors.New(theirs))
		if got, want := Refusal(err, "shop-rome-1", Names(shadow)...), "this cluster refuses it: "+want; got != want {
			t.Errorf("%q: %q, want %q", theirs, got, want)
		}
	}
	for i := range 1000 {
		shadow.Spec.Pod.Containers[0].Args = append(shadow.Spec.Pod.Containers[0].Args, fmt.Sprintf("guess-%d", i))
	}
	if got := Names(shadow); len(got) > maxNames || !slices.Contains(got, "nginx/nginx-ingress:1.0") || !slices.Contains(got, "blue") {
		t.Errorf("%d names", len(got))
	}
}

// TestAttackL5Refusals: a peer provokes errors of the provider's API server, to learn about its machines and about others. It learns what concerns
// its own object: no address, no account, no name of others, whatever component wrote the message.
func TestAttackL5Refusals(t *testing.T) {
	own := []string{"web", "registry.example:5000/team/web:1", "team/web"}
	for theirs, want := range map[string]string{
		"host shop.example.com is used by ingress bank/front":                 "host shop.example.com is used by ingress (another's)",
		`already defined in ingress "bank/front"`:                             `already defined in ingress "(another's)"`,
		`is in namespace "bank" already`:                                      `is in namespace "(another's)" already`,
		"is in namespace: bank already":                                       "is in namespace: (another's) already",
		"taken by namespace bank-of-rome.":                                    "taken by namespace (another's).",
		"this namespace has no quota for it":                                  "this namespace has no quota for it",
		"in the namespace \"shop-rome-1\" or shop-rome-1/web":                 "in the namespace \"shop-rome-1\" or shop-rome-1/web",
		"does not fit on node worker-3":                                       "does not fit on node (another's)",
		"does not fit on node 'worker'":                                       "does not fit on node '(another's)'",
		"provided IP 10.96.0.10 is already allocated":                         "provided IP (an address) is already allocated",
		"in 10.0.0.0/8, [fd00::1]:443 and 192.0.2.1:22.":                      "in (an address), [(an address)]:443 and (an address).",
		`Post "https://gatekeeper.svc:443/v1?timeout=10s": refused`:           `Post "(an address)": refused`,
		"ask opa.gatekeeper.svc or opa.gatekeeper.svc.cluster.local":          "ask (an address) or (an address)",
		"not from mirror.internal:5000/base":                                  "not from (an address)",
		"image registry.example:5000/team/web:1 is old, team/web as well":     "image registry.example:5000/team/web:1 is old, team/web as well",
		"image:1 is refused":                                                  "image:1 is refused",
		"held by 01234567-89ab-cdef-0123-456789abcdef":                        "held by (another's)",
		"User 'alice' or system:serviceaccount:bank:front":                    "User '(another's)' or (an account)",
		"\x1b[31mred\x07 and 10.1.2.3":                                        "[31mred and (an address)",
		`cannot update resource "pods/resize" in API group ""`:                `cannot update resource "pods/resize" in API group ""`,
		"label example.com/role is not allowed, requests.nvidia.com/gpu=2 is": "label example.com/role is not allowed, requests.nvidia.com/gpu=2 is",
	} {
		err := apierrors.NewForbidden(corev1.Resource("pods"), "web", errors.New(theirs))
		if got, want := Refusal(err, "shop-rome-1", own...), "this cluster refuses it: "+want; got != want {
			t.Errorf("%q: %q, want %q", theirs, got, want)
		}
	}
	if got := Refusal(errors.New("dial tcp 10.0.0.1:6443: connection refused"), "ns"); strings.Contains(got, "10.0") || !strings.Contains(got, "does not answer") {
		t.Errorf("the network: %q", got)
	}
	long := Refusal(apierrors.NewForbidden(corev1.Resource("pods"), "web", errors.New("violates "+strings.Repeat("x", 1<<20))), "ns")
	if len(long) > maxRefusal {
		t.Errorf("a long text has %d bytes", len(long))
	}
}
