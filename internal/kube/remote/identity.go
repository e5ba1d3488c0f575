// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Identity holds our credentials in another cluster, and the address of that cluster. It is stored in a Secret.
type Identity struct {
	// Namespace is our tenant namespace in the other cluster.
	Namespace string
	// APIServerURL is the address of its API server, and APIServerCA the authority of its certificate; empty means the authorities of the system.
	APIServerURL string
	APIServerCA  []byte
	// ProxyURL is an HTTP CONNECT proxy to that API server; it may be empty.
	ProxyURL string
	// Token is valid until ExpiresAt and is to be renewed at RenewAt, by the clock of this cluster.
	Token              string
	RenewAt, ExpiresAt time.Time
	// Invited: it leads through an invitation, which only the controller manager can dial. Other processes wait for the one that follows.
	Invited bool
	// Dial opens connections to the proxy or, without one, to the API server. Nil means a plain TCP connection. It is not stored.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// The keys of the Secret.
const (
	keyURL       = "apiServerUrl"
	keyCA        = "apiServerCa"
	keyProxy     = "proxyURL"
	keyNamespace = "namespace"
	keyToken     = "token"
	keyRenewAt   = "token-renew-at"
	keyExpiresAt = "token-expires-at"
	keyInvited   = "invited"
)

// SecretName returns the name of the Secret, in the tenant namespace, with our identity in the cluster.
func SecretName(clusterID string) string {
	sum := sha256.Sum256([]byte(clusterID))
	return "liqo-identity-" + hex.EncodeToString(sum[:])[:6]
}

// ParseIdentity reads the data of the Secret. Its errors name keys, never values, because some values are secret.
func ParseIdentity(data map[string][]byte) (Identity, error) {
	identity := Identity{
		Namespace: string(data[keyNamespace]), APIServerURL: string(data[keyURL]), ProxyURL: string(data[keyProxy]), Token: string(data[keyToken]),
		Invited: string(data[keyInvited]) == "true",
	}
	if ca := data[keyCA]; len(ca) > 0 {
		identity.APIServerCA = slices.Clone(ca)
	}
	var failures []error
	note := func(key string, err error) {
		if err != nil {
			failures = append(failures, fmt.Errorf("%s %w", key, err))
		}
	}
	note(keyNamespace, checkNamespace(identity.Namespace))
	note(keyURL, checkURL(identity.APIServerURL, "https"))
	if identity.ProxyURL != "" {
		note(keyProxy, CheckProxyURL(identity.ProxyURL))
	}
	note(keyCA, checkCA(identity.APIServerCA))
	note(keyToken, checkToken(identity.Token))
	var err error
	identity.RenewAt, err = parseTime(data[keyRenewAt])
	note(keyRenewAt, err)
	identity.ExpiresAt, err = parseTime(data[keyExpiresAt])
	note(keyExpiresAt, err)
	if err := errors.Join(failures...); err != nil {
		return Identity{}, fmt.Errorf("the identity in the Secret is not usable: %w", err)
	}
	return identity, nil
}

func (i Identity) Data() map[string][]byte {
	data := map[string][]byte{
		keyURL:       []byte(i.APIServerURL),
		keyCA:        slices.Clone(i.APIServerCA),
		keyProxy:     []byte(i.ProxyURL),
		keyNamespace: []byte(i.Namespace),
		keyToken:     []byte(i.Token),
		keyRenewAt:   []byte(i.RenewAt.UTC().Format(time.RFC3339)),
		keyExpiresAt: []byte(i.ExpiresAt.UTC().Format(time.RFC3339)),
	}
	if i.Invited {
		data[keyInvited] = []byte("true")
	}
	return data
}

func checkNamespace(name string) error {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return errors.New("is not the name of a namespace")
	}
	return nil
}

// CheckProxyURL returns an error that names what is wrong with the URL of a proxy.
func CheckProxyURL(text string) error { return checkURL(text, "http", "https") }

// checkURL does not quote the URL in its errors: that of a proxy may hold a password.
func checkURL(text string, schemes ...string) error {
	parsed, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("is not a URL")
	case !slices.Contains(schemes, parsed.Scheme) || parsed.Hostname() == "":
		return fmt.Errorf("is not an absolute URL of scheme %v", schemes)
	case parsed.RawQuery != "" || parsed.ForceQuery || parsed.Fragment != "":
		return errors.New("has a query or a fragment")
	case parsed.User != nil && !slices.Contains(schemes, "http"):
		return errors.New("holds a user name")
	}
	return nil
}

func checkCA(text []byte) error {
	for rest := bytes.TrimSpace(text); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" {
			return errors.New("is not a list of certificates in PEM")
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return errors.New("holds a certificate that cannot be read")
		}
	}
	return nil
}

// checkToken accepts only characters that a header may hold.
func checkToken(token string) error {
	if token == "" {
		return errors.New("is missing")
	}
	for _, char := range []byte(token) {
		if char <= ' ' || char > '~' {
			return errors.New("holds a character that no token has")
		}
	}
	return nil
}

func parseTime(text []byte) (time.Time, error) {
	parsed, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		return time.Time{}, errors.New("is not a time as in RFC 3339")
	}
	return parsed.UTC().Truncate(time.Second), nil
}
