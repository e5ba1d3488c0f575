// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"liqo.io/liqo/internal/peering/auth"
)

// +kubebuilder:rbac:namespace=liqo,groups="",resources=configmaps,verbs=create;get;watch
// +kubebuilder:rbac:namespace=liqo,groups="",resources=secrets,resourceNames=auth-token;liqo-peer-tokens;liqo-cluster-key,verbs=get
// +kubebuilder:rbac:namespace=liqo-tenant,groups="",resources=serviceaccounts/token,resourceNames=liqo-peer,verbs=create
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list

const (
	// PeerServiceAccount is the account of a peer, in the tenant's namespace. The right to request tokens is restricted to
	// this name, so this process can obtain a token of no other account.
	PeerServiceAccount = "liqo-peer"

	tokenLifetime = time.Hour

	minRetry = 20 * time.Millisecond
	maxRetry = 250 * time.Millisecond
)

// Registry stores the peers in the API server.
type Registry struct {
	Client corev1client.CoreV1Interface
	// Namespace is the install namespace.
	Namespace string
	Address   Address
	// Wait is how long first contact waits for the tenant. Default 10 s.
	Wait time.Duration
}

var (
	errNotPinned = errors.New("no key is pinned for this cluster")
	errRevoked   = errors.New("the tenant's account is gone")
	errUnpinned  = errors.New("the pinned key was removed before its tenant was ready")
)

// Pinned returns the pin of a cluster, or errNotPinned.
func (r Registry) Pinned(ctx context.Context, clusterID string) (auth.Pin, error) {
	object, err := r.Client.ConfigMaps(r.Namespace).Get(ctx, auth.PinName(clusterID), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return auth.Pin{}, errNotPinned
	}
	if err != nil {
		return auth.Pin{}, fmt.Errorf("read the pinned key: %w", err)
	}
	return auth.ParsePin(object)
}

// Pin pins a key if none is pinned for this cluster, and returns the pin. created: it is the wanted one.
func (r Registry) Pin(ctx context.Context, wanted auth.Pin) (pinned auth.Pin, created bool, err error) {
	object, err := r.Client.ConfigMaps(r.Namespace).Create(ctx, wanted.ConfigMap(r.Namespace), metav1.CreateOptions{})
	switch {
	case err == nil:
		pinned, err = auth.ParsePin(object)
		return pinned, true, err
	case apierrors.IsAlreadyExists(err):
		pinned, err = r.Pinned(ctx, wanted.Cluster.ClusterID)
		return pinned, false, err
	default:
		return auth.Pin{}, false, fmt.Errorf("pin the key: %w", err)
	}
}

// Provider returns the fingerprint of the key of a provider that may register without a token; empty if the cluster is none.
func (r Registry) Provider(ctx context.Context, clusterID string) (string, error) {
	object, err := r.Client.ConfigMaps(r.Namespace).Get(ctx, auth.ProviderName(clusterID), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read the key of provider %s: %w", clusterID, err)
	}
	return auth.ProviderFingerprint(object), nil
}

// Spend records that a cluster uses a token, unless another cluster has.
func (r Registry) Spend(ctx context.Context, tokenID, clusterID string) (bool, error) {
	object := auth.SpentToken(r.Namespace, tokenID, clusterID)
	_, err := r.Client.ConfigMaps(r.Namespace).Create(ctx, object, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return false, fmt.Errorf("record the use of a token: %w", err)
		}
		return true, nil
	}
	spent, err := r.Client.ConfigMaps(r.Namespace).Get(ctx, object.Name, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("read who used a token: %w", err)
	}
	return spent.Data[auth.PinClusterID] == clusterID, nil
}

// Replace asks the controller manager to pin the new keys of a cluster, and waits until it has: this process may not change what is pinned.
func (r Registry) Replace(ctx context.Context, pin auth.Pin, by auth.Replacement) (auth.Pin, error) {
	// Another one exists while the controller manager has not handled it; then the cluster tries again.
	_, err := r.Client.ConfigMaps(r.Namespace).Create(ctx, by.ConfigMap(r.Namespace), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return auth.Pin{}, fmt.Errorf("store the new keys: %w", err)
	}
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(r.Wait, auth.TenantDeadline))
	defer cancel()
	for !by.Done(pin) {
		if pin, err = r.nextPin(ctx, pin); err != nil {
			break
		}
	}
	if err == nil || ctx.Err() == nil || caller.Err() != nil {
		return pin, err
	}
	return auth.Pin{}, &auth.Error{
		Code: http.StatusServiceUnavailable, Reason: auth.ReasonUnavailable, Cause: err,
		Message: "the provider has not stored the new keys of this cluster; its administrator finds the cause in the events of the " +
			"ForeignCluster, and in the logs of Deployment liqo-controller-manager",
	}
}

// GrantNew waits until the tenant of a pin is ready, and returns a token for its peer.
func (r Registry) GrantNew(ctx context.Context, pin auth.Pin) (auth.Grant, error) {
	wait := cmp.Or(r.Wait, auth.TenantDeadline)
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	namespace, err := r.awaitTenant(ctx, pin)
	var grant auth.Grant
	for retry := minRetry; err == nil; retry = min(2*retry, maxRetry) {
		// The tenant's account and our right to request its token are created in any order.
		if grant, err = r.grant(ctx, namespace, pin.InBand); err == nil {
			return grant, nil
		}
		if errors.Is(err, errRevoked) && pause(ctx, retry) == nil {
			err = nil
		}
	}
	if ctx.Err() == nil || caller.Err() != nil {
		return auth.Grant{}, err
	}
	return auth.Grant{}, &auth.Error{
		Code: http.StatusServiceUnavailable, Reason: auth.ReasonTenantNotReady, Cause: err,
		Message: fmt.Sprintf("the provider did not make the tenant within %s; "+
			"its administrator finds the cause in the logs of Deployment liqo-controller-manager", wait),
	}
}

// Renew returns another token for a peer, or errRevoked if its account is gone.
func (r Registry) Renew(ctx context.Context, pin auth.Pin) (auth.Grant, error) {
	if pin.Namespace == "" {
		return auth.Grant{}, errRevoked
	}
	return r.grant(ctx, pin.Namespace, pin.InBand)
}

// grant requests a token. Without rights in a namespace we cannot see whether the account exists, so both are errRevoked.
func (r Registry) grant(ctx context.Context, namespace string, inBand bool) (auth.Grant, error) {
	if len(validation.IsDNS1123Label(namespace)) > 0 {
		return auth.Grant{}, errors.New("the namespace on the pinned key is not a DNS-1123 label")
	}
	seconds := int64(tokenLifetime / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	answer, err := r.Client.ServiceAccounts(namespace).CreateToken(ctx, PeerServiceAccount, request, metav1.CreateOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return auth.Grant{}, fmt.Errorf("%w: %w", errRevoked, err)
	}
	if err != nil {
		return auth.Grant{}, fmt.Errorf("request a token for %s/%s: %w", namespace, PeerServiceAccount, err)
	}
	// The API server may grant a shorter lifetime, which it returns. We do not use the expiry time, which depends on its clock.
	if answer.Spec.ExpirationSeconds != nil {
		seconds = *answer.Spec.ExpirationSeconds
	}
	grant := auth.Grant{Namespace: namespace, Token: answer.Status.Token, Lifetime: time.Duration(seconds) * time.Second}
	if inBand {
		grant.APIServerURL, grant.APIServerCA, err = r.Address.Inside()
	} else {
		grant.APIServerURL, grant.APIServerCA, err = r.Address.Find(ctx)
	}
	return grant, err
}

// awaitTenant returns the tenant's namespace as soon as the controller manager has recorded it on the pin.
func (r Registry) awaitTenant(ctx context.Context, pin auth.Pin) (string, error) {
	for pin.Namespace == "" {
		if pin.Refused != "" {
			return "", auth.Refuse(http.StatusForbidden, auth.ReasonNotAdmitted, "%s", pin.Refused)
		}
		var err error
		if pin, err = r.nextPin(ctx, pin); err != nil {
			return "", err
		}
	}
	return pin.Namespace, nil
}

// nextPin returns a pin after its next change, or errUnpinned if it was deleted.
func (r Registry) nextPin(ctx context.Context, pin auth.Pin) (auth.Pin, error) {
	changed, err := r.watchPin(ctx, pin)
	if err != nil {
		return auth.Pin{}, err
	}
	uid := pin.UID
	if changed != nil {
		pin, err = auth.ParsePin(changed)
	} else if err = pause(ctx, minRetry); err == nil {
		// The watch ended without an event, as watches do.
		pin, err = r.Pinned(ctx, pin.Cluster.ClusterID)
	}
	if errors.Is(err, errNotPinned) || err == nil && pin.UID != uid {
		return auth.Pin{}, errUnpinned
	}
	return pin, err
}

// watchPin waits for one change of a pin. It returns nil if the watch ends first.
func (r Registry) watchPin(ctx context.Context, pin auth.Pin) (*corev1.ConfigMap, error) {
	changes, err := r.Client.ConfigMaps(r.Namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector(metav1.ObjectNameField, auth.PinName(pin.Cluster.ClusterID)).String(),
		ResourceVersion: pin.Version,
	})
	if err != nil {
		return nil, fmt.Errorf("watch the pinned key: %w", err)
	}
	defer changes.Stop()
	select {
	case event := <-changes.ResultChan():
		object, _ := event.Object.(*corev1.ConfigMap)
		if object != nil && object.DeletionTimestamp != nil || event.Type == watch.Deleted {
			return nil, errUnpinned
		}
		return object, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the tenant of the pinned key: %w", ctx.Err())
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
