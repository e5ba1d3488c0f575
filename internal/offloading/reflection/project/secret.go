// SPDX-License-Identifier: Apache-2.0

package project

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"

	"liqo.io/liqo/apis/labels"
)

// helmRelease is the type of the Secrets in which Helm keeps its releases: the values of the user with their passwords, and all objects.
const helmRelease corev1.SecretType = "helm.sh/release.v1"

// neverSecret are the types of Secrets that are not reflected, as no pod needs them. The token of a service account does not expire: anyone who reads it
// in the peer could act as the account here until the Secret is deleted; pods get tokens that expire, see TokenSecret. A bootstrap token lets a
// machine join this cluster.
var neverSecret = []corev1.SecretType{corev1.SecretTypeServiceAccountToken, corev1.SecretTypeBootstrapToken, helmRelease}

// Secret returns the remote Secret: a full copy. Nil: it is skipped, or of a type that is never reflected.
func Secret(m NamespaceMapping, local *corev1.Secret) *coreapply.SecretApplyConfiguration {
	if m.Skips(local) || slices.Contains(neverSecret, local.Type) {
		return nil
	}
	remote := coreapply.Secret(local.Name, m.Remote).
		WithLabels(m.labelsOf(local)).WithAnnotations(m.annotationsOf(local)).
		WithData(local.Data)
	remote.Type, remote.Immutable = some(local.Type), local.Immutable
	return remote
}

// StaysHere returns why a ConfigMap or Secret is never sent to this peer, whatever refers to it; empty if it is.
func (m NamespaceMapping) StaysHere(object metav1.Object) string {
	secret, is := object.(*corev1.Secret)
	switch {
	case is && secret.Type == corev1.SecretTypeServiceAccountToken:
		return "a token that does not expire; pods have tokens of their service account, which do"
	case is && slices.Contains(neverSecret, secret.Type):
		return "of the type " + string(secret.Type)
	case skipped(object):
		return "annotation " + labels.SkipReflection
	case m.Skips(object):
		return "annotation " + labels.ReflectTo
	}
	return ""
}
