// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// Secret is copied as it is, but for types that no pod needs.
var Secret = row(Kind{
	Local:    Resource{corev1.SchemeGroupVersion.WithKind("Secret"), "secrets"},
	Remote:   Resource{corev1.SchemeGroupVersion.WithKind("Secret"), "secrets"},
	Register: []func(*runtime.Scheme) error{corev1.AddToScheme}, Order: 50,
	Flag: "secret", Workers: defaultWorkers,
	Counted: true, Content: true,
	Metadata: &Metadata{Value: "secrets", Collected: true}, Most: "5000", Total: "20000",
	Copy: copied(copySecret), ByReference: true,
})

// helmRelease is the type of the Secrets in which Helm keeps its releases: the values of the user with their passwords, and all objects.
const helmRelease corev1.SecretType = "helm.sh/release.v1"

// neverSecret are the types of Secrets that are not reflected, as no pod needs them. The token of a service account does not expire: anyone who reads it
// in the peer could act as the account here until the Secret is deleted; pods get tokens that expire, see TokenSecret. A bootstrap token lets a
// machine join this cluster.
var neverSecret = []corev1.SecretType{corev1.SecretTypeServiceAccountToken, corev1.SecretTypeBootstrapToken, helmRelease}

// copySecret returns nil for a type that is never reflected.
func copySecret(m project.NamespaceMapping, local *corev1.Secret) *coreapply.SecretApplyConfiguration {
	if slices.Contains(neverSecret, local.Type) {
		return nil
	}
	remote := coreapply.Secret(local.Name, m.Remote).
		WithLabels(m.LabelsOf(local)).WithAnnotations(m.AnnotationsOf(local)).
		WithData(local.Data)
	remote.Type, remote.Immutable = project.Some(local.Type), local.Immutable
	return remote
}

// StaysHere returns why a ConfigMap or Secret is never sent to this peer, whatever refers to it; empty if it is.
func StaysHere(m project.NamespaceMapping, object metav1.Object) string {
	secret, ok := object.(*corev1.Secret)
	switch {
	case ok && secret.Type == corev1.SecretTypeServiceAccountToken:
		return "a token that does not expire; pods have tokens of their service account, which do"
	case ok && slices.Contains(neverSecret, secret.Type):
		return "of the type " + string(secret.Type)
	case project.Skipped(object):
		return "annotation " + labels.SkipReflection
	case m.Skips(object):
		return "annotation " + labels.ReflectTo
	}
	return ""
}
