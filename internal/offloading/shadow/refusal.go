// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"liqo.io/liqo/internal/kube/printable"
)

const (
	// maxRefusal bounds the text of a refusal, which goes into an event.
	maxRefusal = 900
	// maxMessage bounds what is read of an API server's message, which repeats names that the peer has chosen.
	maxMessage = 16 << 10
)

var (
	ownPolicy  = regexp.MustCompile(`ValidatingAdmissionPolicy 'liqo-[a-z-]+' with binding 'liqo-[a-z-]+' denied request: (.*)`)
	requested  = regexp.MustCompile(`exceeded quota: [^,]*, (requested: .*?), used: `)
	limitRange = regexp.MustCompile(`is forbidden: (\[?(?:minimum|maximum) [a-z.-]+ usage per (?:Pod|Container) is .*)`)
)

// Refusal returns what a peer may know of an error of this cluster's API server about the peer's pod: what the peer can change. Rules of the
// provider's policies and webhooks, the names of its quotas and the state of its API server stay in the log of this cluster.
func Refusal(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return "the API server of this cluster does not answer; Liqo tries again"
	}
	text := printable.Line(status.Status().Message, maxMessage)
	match := func(pattern *regexp.Regexp) string {
		if found := pattern.FindStringSubmatch(text); found != nil {
			return found[1]
		}
		return ""
	}
	answer := fmt.Sprintf("the API server of this cluster cannot do that now (%s); Liqo tries again", apierrors.ReasonForError(err))
	switch own, quota, limits := match(ownPolicy), match(requested), match(limitRange); {
	case own != "":
		answer = own
	case ofPolicy(text):
		answer = "a policy or a webhook of this cluster refuses the pod; its administrator finds the rule in the log of liqo-controller-manager"
	case strings.Contains(text, "violates PodSecurity"):
		answer = text[strings.Index(text, "violates PodSecurity"):]
	case strings.Contains(text, "exceeded quota"):
		answer = "exceeded quota of this namespace: " + quota
	case limits != "":
		answer = "limits of this namespace: " + limits
	case apierrors.IsInvalid(err):
		answer = invalid(status)
	case apierrors.IsForbidden(err):
		answer = "this cluster refuses the pod; its administrator finds the reason in the log of liqo-controller-manager"
	}
	if len(answer) > maxRefusal {
		answer = strings.ToValidUTF8(answer[:maxRefusal], "")
	}
	return answer
}

// ofPolicy reports whether a message is that of a policy or a webhook.
func ofPolicy(message string) bool {
	return strings.Contains(message, "ValidatingAdmissionPolicy '") || strings.Contains(message, "admission webhook \"")
}

// invalid lists which fields of the pod the API server does not accept.
func invalid(status apierrors.APIStatus) string {
	var fields []string
	if details := status.Status().Details; details != nil {
		for _, cause := range details.Causes {
			if strings.HasPrefix(cause.Field, "spec") || strings.HasPrefix(cause.Field, "metadata") {
				fields = append(fields, printable.Line(cause.Field+": "+cause.Message, maxRefusal))
			}
		}
	}
	if len(fields) == 0 {
		return "this cluster does not accept the pod as valid; its administrator finds the reason in the log of liqo-controller-manager"
	}
	return strings.Join(fields, "; ")
}
