// SPDX-License-Identifier: Apache-2.0

package project

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"

	"liqo.io/liqo/apis/labels"
)

// APIServer is how pods in the peer reach the API server of this cluster. The zero value: not at all, and no token crosses.
type APIServer struct {
	Enabled bool
	// Host and Port, both or none, are where it is reached from the peer without the network between the clusters.
	Host, Port string
	// Address is that of the Service kubernetes as the peer sees it, and ServicePort the Service's port. They are for pods if there is no Host.
	Address     netip.Addr
	ServicePort string
}

const (
	// apiServerName is the name under which pods find the API server of their own cluster.
	apiServerName = "kubernetes.default"
	// namespaceKey, in the Secret of tokens, is the namespace that the tokens are of.
	namespaceKey = "namespace"
	// tokenSeconds is how long a token lives if the pod does not say.
	tokenSeconds = 3600
	// extended is what API servers write into the pods' own volumes, and take for a sign that the token may be good for a year: for programs that
	// never read it again (serviceaccount.WarnOnlyBoundTokenExpirationPeriod). It stays in another cluster, so it ends when it says.
	extended = 3607
)

// ErrNoAPIServer says that it is not known yet where the peer's pods reach our API server.
var ErrNoAPIServer = errors.New("the address of the API server as the peer sees it is not known")

// give tells the containers where the API server is, and who they are there.
func (a APIServer) give(local *corev1.Pod, spec *corev1.PodSpec) error {
	host, port := a.Host, a.Port
	if host == "" || port == "" {
		if !a.Address.IsValid() || a.ServicePort == "" {
			return ErrNoAPIServer
		}
		host, port = apiServerName, a.ServicePort
		spec.HostAliases = withAlias(spec.HostAliases, a.Address.String(), apiServerName, apiServerName+".svc")
	}
	url := "tcp://" + net.JoinHostPort(host, port)
	variables := []corev1.EnvVar{
		{Name: "KUBERNETES_SERVICE_HOST", Value: host},
		{Name: "KUBERNETES_SERVICE_PORT", Value: port},
		{Name: "KUBERNETES_PORT", Value: url},
		{Name: "KUBERNETES_PORT_" + port + "_TCP", Value: url},
		{Name: "KUBERNETES_PORT_" + port + "_TCP_PROTO", Value: "tcp"},
		{Name: "KUBERNETES_PORT_" + port + "_TCP_ADDR", Value: host},
		{Name: "KUBERNETES_PORT_" + port + "_TCP_PORT", Value: port},
	}
	eachContainer(spec, func(container *corev1.Container) {
		for i := range container.Env {
			variable := &container.Env[i]
			if from := variable.ValueFrom; from != nil && from.FieldRef != nil && from.FieldRef.FieldPath == "spec.serviceAccountName" {
				variable.Value, variable.ValueFrom = ServiceAccountName(local), nil
			}
		}
		container.Env = append(container.Env, variables...) // of two with the same name the last one counts
	})
	return nil
}

func withAlias(aliases []corev1.HostAlias, address string, names ...string) []corev1.HostAlias {
	for i := range aliases {
		if aliases[i].IP == address { // an address may be there once only
			aliases[i].Hostnames = append(aliases[i].Hostnames, names...)
			return aliases
		}
	}
	return append(aliases, corev1.HostAlias{IP: address, Hostnames: names})
}

// ServiceAccountName is the account that a pod is of.
func ServiceAccountName(local *corev1.Pod) string {
	if local.Spec.ServiceAccountName == "" {
		return "default"
	}
	return local.Spec.ServiceAccountName
}

// TokenRequest is one token to ask for: bound to the pod, for the audience (that of the API server if empty). It goes under all Keys of
// the Secret.
type TokenRequest struct {
	Audience          string
	ExpirationSeconds int64
	Keys              []string
}

// TokenRequests are the tokens that a pod mounts. Those that are alike are asked for once. A pod without any needs no Secret.
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

// MountsTokens says whether a pod in the peer was made with the tokens of the local pod of this name.
func MountsTokens(remote *corev1.PodSpec, pod string) bool {
	return slices.ContainsFunc(remote.Volumes, func(volume corev1.Volume) bool {
		return volume.Projected != nil && slices.ContainsFunc(volume.Projected.Sources, func(source corev1.VolumeProjection) bool {
			return source.Secret != nil && source.Secret.Name == TokenSecretName(pod)
		})
	})
}

// TokenRefresh is when a token has lived four fifths of its life and is replaced.
func TokenRefresh(expires time.Time, seconds int64) time.Time {
	return expires.Add(-time.Duration(seconds) * time.Second / 5)
}

// TokenSecret holds a pod's tokens in the peer, by the keys of their requests. expires is when the first of them ends, seconds the shortest life
// that one of them was given.
func TokenSecret(m NamespaceMapping, local *corev1.Pod, tokens map[string]string, expires time.Time, seconds int64) *coreapply.SecretApplyConfiguration {
	data := map[string][]byte{namespaceKey: []byte(local.Namespace)}
	for key, token := range tokens {
		data[key] = []byte(token)
	}
	return coreapply.Secret(TokenSecretName(local.Name), m.Remote).
		WithLabels(map[string]string{
			labels.Origin: m.LocalID, labels.Destination: m.RemoteID,
			labels.TokenPod: short(local.Name, 63), labels.TokenServiceAccount: short(ServiceAccountName(local), 63),
		}).
		WithAnnotations(map[string]string{
			labels.TokenPodUID: string(local.UID), labels.TokenExpiration: expires.UTC().Format(time.RFC3339),
			labels.TokenLifetime: strconv.FormatInt(seconds, 10),
		}).
		WithType(corev1.SecretTypeOpaque).WithData(data)
}

// TokenSecretName is the name of the Secret that holds a pod's tokens in the peer.
func TokenSecretName(pod string) string {
	const end = "-token"
	return short(pod, 253-len(end)) + end
}

// certified says whether a source is a certificate for the pod: it would be one of the peer's cluster.
func certified(source corev1.VolumeProjection) bool { return source.PodCertificate != nil }

// tokenSources are the sources of a projected volume with tokens taken from the Secret, or without any.
//
// Beside a token, the file that tells a pod its namespace tells that of the token: in the twin's, the account has no rights.
func tokenSources(local *corev1.Pod, volume string, sources []corev1.VolumeProjection, tokens bool) []corev1.VolumeProjection {
	sources = slices.DeleteFunc(sources, certified)
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
			remote = append(remote, items(corev1.KeyToPath{Key: tokenKey(volume, path), Path: path}))
		case source.ServiceAccountToken != nil:
		case source.DownwardAPI != nil && tokens:
			var others []corev1.DownwardAPIVolumeFile
			for _, file := range source.DownwardAPI.Items {
				if file.FieldRef != nil && file.FieldRef.FieldPath == "metadata.namespace" {
					remote = append(remote, items(corev1.KeyToPath{Key: namespaceKey, Path: file.Path, Mode: file.Mode}))
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

func tokenKey(volume, path string) string { return volume + "-" + hash(path) }

// hash is short, and enough to tell the few texts apart that stand in one place.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:6]
}

// short is a name of at most so many characters, and another one for another name.
func short(name string, most int) string {
	if len(name) <= most {
		return name
	}
	return name[:most-7] + "-" + hash(name)
}
