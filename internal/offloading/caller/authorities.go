// SPDX-License-Identifier: Apache-2.0

package caller

import (
	"context"
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
	// rereadInterval is how often the certificate authorities are read; earlier, if somebody comes whom they do not vouch for.
	rereadInterval = 5 * time.Minute
	rereadAtOnce   = 10 * time.Second
	readTimeout    = 5 * time.Second
)

// ConfigMap is where each API server says whose certificates it trusts, and who speaks in the name of others.
var ConfigMap = client.ObjectKey{Namespace: "kube-system", Name: "extension-apiserver-authentication"}

// authorities are what the ConfigMap says.
type authorities struct {
	clients, proxies *x509.CertPool
	// proxyNames are the names that the certificate of a proxy may have; empty means any.
	proxyNames []string
	// The headers in which a proxy says for whom it asks.
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

// source reads the ConfigMap when it must.
type source struct {
	reader client.Reader
	mu     sync.Mutex
	last   *authorities
	read   time.Time
}

// get returns what is known, at most so old. What is known is better than nothing.
func (s *source) get(ctx context.Context, atMost time.Duration) (*authorities, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && time.Since(s.read) < atMost {
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
		s.read = time.Now() // not with each request
		return s.last, nil
	}
	return nil, fmt.Errorf("read whom the API server trusts, in ConfigMap %s: %w", ConfigMap, err)
}

// check verifies the certificate of a connection, if it has one. The second look is for an authority that has just been replaced.
func (s *source) check(r *http.Request, pool func(*authorities) *x509.CertPool) (*x509.Certificate, *authorities, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil, errUnknown
	}
	var failure error
	for _, atMost := range []time.Duration{rereadInterval, rereadAtOnce} {
		known, err := s.get(r.Context(), atMost)
		if err != nil {
			return nil, nil, err
		}
		options := x509.VerifyOptions{Roots: pool(known), Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
		for _, intermediate := range r.TLS.PeerCertificates[1:] {
			options.Intermediates.AddCert(intermediate)
		}
		leaf := r.TLS.PeerCertificates[0]
		if _, failure = leaf.Verify(options); failure == nil {
			return leaf, known, nil
		}
	}
	return nil, nil, errors.Join(errUnknown, failure)
}

// spokenFor is for whom a proxy asks.
func (a *authorities) spokenFor(header http.Header) *authenticationv1.UserInfo {
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
