// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

const (
	// namespaceKey is the key, in a token Secret, of the namespace of the service account.
	namespaceKey = "namespace"
	// tokenSeconds is the lifetime of a token for which the pod requests none.
	tokenSeconds = 3600
	// extended is the lifetime that API servers set in the default volume of pods. They accept such a token for a year, for programs that never read it again
	// (serviceaccount.WarnOnlyBoundTokenExpirationPeriod). Ours are stored in another cluster, so we request a lifetime that is enforced.
	extended = 3607
)

// ServiceAccountName returns the service account of a pod.
func ServiceAccountName(local *corev1.Pod) string {
	if local.Spec.ServiceAccountName == "" {
		return "default"
	}
	return local.Spec.ServiceAccountName
}

// TokenRequest is a token to request: bound to the pod, for the audience (that of the API server if empty). The Secret holds it under all Keys.
type TokenRequest struct {
	Audience          string
	ExpirationSeconds int64
	Keys              []string
}

// TokenRequests returns the tokens that a pod mounts; equal ones are requested once. A pod without any needs no Secret.
func TokenRequests(local *corev1.Pod) []TokenRequest {
	var requests []TokenRequest
	for _, volume := range local.Spec.Volumes {
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			token := source.ServiceAccountToken
			if token == nil {
				continue
			}
			seconds := int64(tokenSeconds)
			if token.ExpirationSeconds != nil && *token.ExpirationSeconds != extended {
				seconds = *token.ExpirationSeconds
			}
			i := slices.IndexFunc(requests, func(other TokenRequest) bool {
				return other.Audience == token.Audience && other.ExpirationSeconds == seconds
			})
			if i < 0 {
				i, requests = len(requests), append(requests, TokenRequest{Audience: token.Audience, ExpirationSeconds: seconds})
			}
			requests[i].Keys = append(requests[i].Keys, tokenKey(volume.Name, token.Path))
		}
	}
	return requests
}

// MountsTokens reports whether a remote pod mounts the tokens of the local pod of this name.
func MountsTokens(remote *corev1.PodSpec, pod string) bool {
	return slices.ContainsFunc(remote.Volumes, func(volume corev1.Volume) bool {
		return volume.Projected != nil && slices.ContainsFunc(volume.Projected.Sources, func(source corev1.VolumeProjection) bool {
			return source.Secret != nil && source.Secret.Name == TokenSecretName(pod)
		})
	})
}

// TokenRefresh returns when to replace a token: after four fifths of its lifetime.
func TokenRefresh(expires time.Time, seconds int64) time.Time {
	return expires.Add(-time.Duration(seconds) * time.Second / 5)
}

// TokenSecret returns the Secret with a pod's tokens, by the keys of their requests. expires is the earliest expiration, seconds the shortest lifetime that
// was granted.
func TokenSecret(m project.NamespaceMapping, local *corev1.Pod, tokens map[string]string, expires time.Time,
	seconds int64,
) *coreapply.SecretApplyConfiguration {
	data := map[string][]byte{namespaceKey: []byte(local.Namespace)}
	for key, token := range tokens {
		data[key] = []byte(token)
	}
	return coreapply.Secret(TokenSecretName(local.Name), m.Remote).
		WithLabels(map[string]string{
			labels.Origin: m.LocalID, labels.Destination: m.RemoteID,
			labels.TokenPod: project.Short(local.Name, 63), labels.TokenServiceAccount: project.Short(ServiceAccountName(local), 63),
		}).
		WithAnnotations(map[string]string{
			labels.TokenPodUID: string(local.UID), labels.TokenExpiration: expires.UTC().Format(time.RFC3339),
			labels.TokenLifetime: strconv.FormatInt(seconds, 10),
		}).
		WithType(corev1.SecretTypeOpaque).WithData(data)
}

// TokenSecretName returns the name of the Secret with the tokens of the pod of this name.
func TokenSecretName(pod string) string {
	const end = "-token"
	return project.Short(pod, 253-len(end)) + end
}

// isPodCertificate recognises a certificate source. It is not reflected, because the peer's cluster would issue the certificate.
func isPodCertificate(source corev1.VolumeProjection) bool { return source.PodCertificate != nil }

// isTrustBundle recognises certificates to trust. They are not reflected, because the peer's cluster would choose them.
func isTrustBundle(source corev1.VolumeProjection) bool { return source.ClusterTrustBundle != nil }

// tokenSources returns the sources of a projected volume, with tokens taken from the Secret, or without any.
//
// Beside a token, the file with the pod's namespace holds the namespace of the service account: the account has no rights in a namespace of the remote name.
func tokenSources(local *corev1.Pod, volume *corev1.Volume, tokens bool) []corev1.VolumeProjection {
	sources := slices.DeleteFunc(slices.DeleteFunc(volume.Projected.Sources, isPodCertificate), isTrustBundle)
	if !slices.ContainsFunc(sources, func(source corev1.VolumeProjection) bool { return source.ServiceAccountToken != nil }) {
		return sources
	}
	var remote []corev1.VolumeProjection
	items := func(items ...corev1.KeyToPath) corev1.VolumeProjection {
		return corev1.VolumeProjection{Secret: &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: TokenSecretName(local.Name)}, Items: items,
		}}
	}
	for _, source := range sources {
		switch {
		case source.ServiceAccountToken != nil && tokens:
			path := source.ServiceAccountToken.Path
			remote = append(remote, items(corev1.KeyToPath{
				Key: tokenKey(volume.Name, path), Path: path, User: source.ServiceAccountToken.User, Mode: tokenMode(local, volume.Projected.DefaultMode),
			}))
		case source.ServiceAccountToken != nil:
		case source.DownwardAPI != nil && tokens:
			var others []corev1.DownwardAPIVolumeFile
			for _, file := range source.DownwardAPI.Items {
				if file.FieldRef != nil && file.FieldRef.FieldPath == fieldNamespace {
					remote = append(remote, items(corev1.KeyToPath{Key: namespaceKey, Path: file.Path, Mode: file.Mode, User: file.User}))
				} else {
					others = append(others, file)
				}
			}
			if len(others) > 0 {
				remote = append(remote, corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{Items: others}})
			}
		default:
			remote = append(remote, source)
		}
	}
	return remote
}

// tokenMode returns the mode of a token's file, nil for that of the volume. A kubelet lets the one user of a pod own its tokens, whatever the
// mode of the volume. A file of a Secret belongs to root, so that user needs the right of all others. If the pod has a group for its files
// (fsGroup), a kubelet gives that the right to read both.
func tokenMode(local *corev1.Pod, ofVolume *int32) *int32 {
	if ofVolume == nil || *ofVolume&othersRead != 0 || !hasOneUser(&local.Spec) || local.Spec.SecurityContext != nil && local.Spec.SecurityContext.FSGroup != nil {
		return nil
	}
	return project.Some(*ofVolume | allRead)
}

const allRead, othersRead = 0o444, 0o004

// hasOneUser reports whether all containers of a pod run as the same user, as its specification states.
func hasOneUser(spec *corev1.PodSpec) bool {
	var user *int64
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			var its *int64
			if spec.SecurityContext != nil {
				its = spec.SecurityContext.RunAsUser
			}
			if own := containers[i].SecurityContext; own != nil && own.RunAsUser != nil {
				its = own.RunAsUser
			}
			if its == nil || user != nil && *user != *its {
				return false
			}
			user = its
		}
	}
	return user != nil
}

func tokenKey(volume, path string) string { return volume + "-" + project.Hash(path) }
