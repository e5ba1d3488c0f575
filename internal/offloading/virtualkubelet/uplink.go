// SPDX-License-Identifier: Apache-2.0

package virtualkubelet

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/kube/scheme"
)

// identityInterval is how often the identity is read again while it is used.
const identityInterval = 10 * time.Second

// Uplink is the connection to the provider for the requests of users. It reads our identity from its Secret when one of them needs it.
type Uplink struct{ stored *remote.Stored }

// NewUplink returns an Uplink to the cluster whose local tenant namespace is namespace. It sends no request.
func NewUplink(local client.Client, namespace, clusterID string) *Uplink {
	return &Uplink{remote.NewStored(local, local.Scheme(), namespace, clusterID)}
}

// NewClient returns a client for the requests of the kubelet API to the local API server: authentication, authorization, the identity, a
// certificate.
func NewClient(cfg *rest.Config) (client.Client, error) {
	known, err := scheme.Of(corev1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme, certificatesv1.AddToScheme)
	if err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	mapper.Add(authenticationv1.SchemeGroupVersion.WithKind("TokenReview"), meta.RESTScopeRoot)
	mapper.Add(authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"), meta.RESTScopeRoot)
	mapper.Add(certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"), meta.RESTScopeRoot)
	local, err := client.New(cfg, client.Options{Scheme: known, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("client of the local cluster: %w", err)
	}
	return local, nil
}

// Registered returns the node from the cache; nil if there is none.
func (n *Node) Registered(ctx context.Context) (*corev1.Node, error) {
	if !n.Synced() {
		return nil, nil
	}
	return n.node(ctx)
}

// Connection returns the current connection, and reads the identity again after identityInterval.
func (u *Uplink) Connection(ctx context.Context) (*remote.Connection, error) {
	connection, _, err := u.stored.Connection(ctx, identityInterval)
	return connection, err
}

// Refused makes the next call read the identity again: the provider refused the token, which may have been renewed.
func (u *Uplink) Refused() { u.stored.Expire(0) }
