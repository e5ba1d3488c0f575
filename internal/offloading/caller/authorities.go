// SPDX-License-Identifier: Apache-2.0

package caller

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// The certificate authorities are read again after rereadInterval, or after shortInterval if they do not verify a certificate.
	rereadInterval = 5 * time.Minute
	shortInterval  = 10 * time.Second
	readTimeout    = 5 * time.Second
)

// ConfigMap is where each API server publishes the authorities of client certificates, and of proxies that make requests for other users.
var ConfigMap = client.ObjectKey{Namespace: "kube-system", Name: "extension-apiserver-authentication"}

// authorities are the content of the ConfigMap.
type authorities struct {
	clients, proxies *x509.CertPool
	// proxyNames are the common names that the certificate of a proxy may have; empty means any.
	proxyNames []string
	// The headers in which a proxy names the user.
	userHeaders, groupHeaders, uidHeaders, extraPrefixes []string
}

func parse(data map[string]string) (*authorities, error) {
	a := &authorities{clients: x509.NewCertPool(), proxies: x509.NewCertPool()}
	for key, pool := range map[string]*x509.CertPool{"client-ca-file": a.clients, "requestheader-client-ca-file": a.proxies} {
		if text := data[key]; text != "" && !pool.AppendCertsFromPEM([]byte(text)) {
			return nil, fmt.Errorf("%s holds no certificate", key)
		}
	}
	for key, list := range map[string]*[]string{
		"requestheader-allowed-names": &a.proxyNames, "requestheader-username-headers": &a.userHeaders, "requestheader-group-headers": &a.groupHeaders,
		"requestheader-uid-headers": &a.uidHeaders, "requestheader-extra-headers-prefix": &a.extraPrefixes,
	} {
		if text := data[key]; text != "" {
			if err := json.Unmarshal([]byte(text), list); err != nil {
				return nil, fmt.Errorf("%s is not a list: %w", key, err)
			}
		}
	}
	return a, nil
}

// source reads the ConfigMap when the copy that it has is too old.
type source struct {
	reader client.Reader
	mu     sync.Mutex
	last   *authorities
	read   time.Time
}

// get returns the authorities, read at most maxAge ago. If they cannot be read, it returns the last ones.
func (s *source) get(ctx context.Context, maxAge time.Duration) (*authorities, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && time.Since(s.read) < maxAge {
		return s.last, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var found corev1.ConfigMap
	err := s.reader.Get(ctx, ConfigMap, &found)
	if err == nil {
		var read *authorities
		if read, err = parse(found.Data); err == nil {
			s.last, s.read = read, time.Now()
			return s.last, nil
		}
	}
	if s.last != nil {
		s.read = time.Now() // do not try again with each request
		return s.last, nil
	}
	return nil, fmt.Errorf("read the API server's authorities in ConfigMap %s: %w", ConfigMap, err)
}

// verify returns the client certificate of a connection if one of the authorities in the pool signed it, and errUnknown otherwise. It reads the
// authorities again before it gives up, because one may just have been replaced.
func (s *source) verify(ctx context.Context, state *tls.ConnectionState, pool func(*authorities) *x509.CertPool) (*x509.Certificate, *authorities, error) {
	if state == nil || len(state.PeerCertificates) == 0 {
		return nil, nil, errUnknown
	}
	var failure error
	for _, maxAge := range []time.Duration{rereadInterval, shortInterval} {
		known, err := s.get(ctx, maxAge)
		if err != nil {
			return nil, nil, err
		}
		options := x509.VerifyOptions{Roots: pool(known), Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
		for _, intermediate := range state.PeerCertificates[1:] {
			options.Intermediates.AddCert(intermediate)
		}
		leaf := state.PeerCertificates[0]
		if _, failure = leaf.Verify(options); failure == nil {
			return leaf, known, nil
		}
	}
	return nil, nil, errors.Join(errUnknown, failure)
}

// headerUser returns the user whom a proxy names in the headers of a request.
func (a *authorities) headerUser(header http.Header) *authenticationv1.UserInfo {
	first := func(names []string) string {
		for _, name := range names {
			if value := strings.TrimSpace(header.Get(name)); value != "" {
				return value
			}
		}
		return ""
	}
	user := &authenticationv1.UserInfo{Username: first(a.userHeaders), UID: first(a.uidHeaders)}
	for _, name := range a.groupHeaders {
		user.Groups = append(user.Groups, header.Values(name)...)
	}
	for _, prefix := range a.extraPrefixes {
		for name, values := range header {
			if len(name) > len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
				if user.Extra == nil {
					user.Extra = map[string]authenticationv1.ExtraValue{}
				}
				key := unescape(strings.ToLower(name[len(prefix):]))
				user.Extra[key] = append(user.Extra[key], values...)
			}
		}
	}
	return user
}
