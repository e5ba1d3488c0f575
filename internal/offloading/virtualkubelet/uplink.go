// SPDX-License-Identifier: Apache-2.0

package virtualkubelet

import (
	"context"
	"fmt"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/kube/remote"
)

// identityInterval is how often the identity is read again while it is used.
const identityInterval = 10 * time.Second

// Uplink is the connection to the provider. It reads our identity from its Secret when a request needs it.
type Uplink struct {
	local  client.Client
	secret client.ObjectKey

	mu         sync.Mutex
	connection *remote.Connection
	read       time.Time
}

// NewUplink returns an Uplink to the cluster whose local tenant namespace is namespace. It sends no request.
func NewUplink(local client.Client, namespace, clusterID string) *Uplink {
	return &Uplink{local: local, secret: client.ObjectKey{Namespace: namespace, Name: remote.SecretName(clusterID)}}
}

// NewClient returns a client for the requests of the kubelet API to the local API server: authentication, authorization, the identity, a
// certificate.
func NewClient(cfg *rest.Config) (client.Client, error) {
	scheme, mapper := runtime.NewScheme(), meta.NewDefaultRESTMapper(nil)
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme, certificatesv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	mapper.Add(authenticationv1.SchemeGroupVersion.WithKind("TokenReview"), meta.RESTScopeRoot)
	mapper.Add(authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"), meta.RESTScopeRoot)
	mapper.Add(certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"), meta.RESTScopeRoot)
	local, err := client.New(cfg, client.Options{Scheme: scheme, Mapper: mapper})
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
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.connection != nil && time.Since(u.read) < identityInterval {
		return u.connection, nil
	}
	ctx, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	var secret corev1.Secret
	switch err := u.local.Get(ctx, u.secret, &secret); {
	case err != nil && client.IgnoreNotFound(err) == nil:
		return nil, errNoIdentity
	case err != nil && u.connection != nil:
		return u.connection, nil // a busy local API server is no fault of the provider
	case err != nil:
		return nil, fmt.Errorf("read the identity in the remote cluster: %w", err)
	}
	identity, err := remote.ParseIdentity(secret.Data)
	if err != nil || identity.Invited {
		return nil, errNoIdentity
	}
	if u.connection == nil {
		u.connection, err = remote.NewConnection(identity, u.local.Scheme())
	} else {
		_, err = u.connection.Update(identity)
	}
	if err != nil {
		return nil, err
	}
	u.read = time.Now()
	return u.connection, nil
}

// Refused makes the next call read the identity again: the provider refused the token, which may have been renewed.
func (u *Uplink) Refused() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.read = time.Time{}
}
