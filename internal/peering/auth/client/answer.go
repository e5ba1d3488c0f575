// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/internal/kube/printable"
	"liqo.io/liqo/internal/peering/auth"
)

// A provider's answers are not trusted. They go into conditions and onto terminals, and they decide where we connect.

const (
	maxMessage  = 1024
	maxWord     = 64
	maxWords    = 64
	maxBearer   = 16 << 10
	maxLifetime = 365 * 24 * time.Hour
	// minLifetime is the least that an API server grants. A shorter one would cause a write per renewal all the time.
	minLifetime = 10 * time.Minute
)

// IDs is the identity of the cluster that answers at a URL.
type IDs struct {
	ClusterID    string
	ClusterName  string
	Version      string
	Protocol     auth.Range
	Capabilities []string
	// Date is the provider's clock when it answered; zero if the answer has no date.
	Date time.Time
	TLS  TLSFacts
}

// TLSFacts are the properties of the connection.
type TLSFacts struct {
	Version string
	// Trusted: this machine trusts the certificate for this host. Problem is why it does not.
	Trusted bool
	Problem string
	// SelfSigned: the service generated the certificate.
	SelfSigned          bool
	Issuer              string
	NotBefore, NotAfter time.Time
	// Fingerprint is the SHA-256 of the certificate, in hexadecimal.
	Fingerprint string
}

// IDs requests the provider's identity.
func (c *Client) IDs(ctx context.Context) (IDs, error) {
	var answer auth.IDsAnswer
	response, err := c.do(ctx, http.MethodGet, auth.PathIDs, nil, &answer)
	if err != nil {
		return IDs{}, clean(err, "")
	}
	identity := discoveryv1alpha1.ClusterIdentity{ClusterID: answer.ClusterID, ClusterName: answer.ClusterName}
	if auth.CheckClusterID(answer.ClusterID) != nil || !auth.ValidClusterName(identity) {
		return IDs{}, c.notAuthService("an invalid cluster ID or name")
	}
	if answer.Protocol == (auth.Range{}) {
		answer.Protocol = auth.Range{Min: 1, Max: 1} // of a service that does not send it
	}
	ids := IDs{
		ClusterID: answer.ClusterID, ClusterName: answer.ClusterName,
		Version: printable.Line(answer.Version, maxWord), Protocol: answer.Protocol,
	}
	for _, capability := range answer.Capabilities[:min(len(answer.Capabilities), maxWords)] {
		ids.Capabilities = append(ids.Capabilities, printable.Line(capability, maxWord))
	}
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		ids.Date = date
	}
	if response.TLS != nil {
		ids.TLS = tlsFacts(response.TLS, c.host, time.Now())
	}
	return ids, nil
}

func tlsFacts(state *tls.ConnectionState, host string, now time.Time) TLSFacts {
	facts := TLSFacts{Version: tls.VersionName(state.Version)}
	if len(state.PeerCertificates) == 0 {
		facts.Problem = "there is no certificate"
		return facts
	}
	certificate := state.PeerCertificates[0]
	sum := sha256.Sum256(certificate.Raw)
	facts.SelfSigned = certificate.CheckSignatureFrom(certificate) == nil || string(certificate.RawIssuer) == string(certificate.RawSubject)
	facts.Issuer = printable.Line(certificate.Issuer.String(), maxMessage)
	facts.NotBefore, facts.NotAfter = certificate.NotBefore, certificate.NotAfter
	facts.Fingerprint = hex.EncodeToString(sum[:])
	between := x509.NewCertPool()
	for _, other := range state.PeerCertificates[1:] {
		between.AddCert(other)
	}
	if _, err := certificate.Verify(x509.VerifyOptions{DNSName: host, Intermediates: between, CurrentTime: now}); err != nil {
		facts.Problem = printable.Line(err.Error(), maxMessage)
	}
	facts.Trusted = facts.Problem == ""
	return facts
}

// granted validates an answer, whose fields are used without further checks. Its errors quote nothing: the answer has a token.
func granted(a auth.GrantAnswer, token string) (auth.Grant, error) {
	address, err := auth.ParseAddress(a.APIServerURL)
	switch {
	case len(validation.IsDNS1123Label(a.Namespace)) > 0:
		return auth.Grant{}, errors.New("its namespace is not a DNS-1123 label")
	case token == "" || len(token) > maxBearer || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return auth.Grant{}, fmt.Errorf("its token, of %d bytes, is empty, longer than %d bytes, or has characters that no token has", len(token), maxBearer)
	case err != nil || address == "" || len(address) > auth.MaxURL:
		return auth.Grant{}, errors.New("its URL of the API server does not look like https://HOST:PORT")
	case len(a.APIServerCA) > 0 && !x509.NewCertPool().AppendCertsFromPEM(a.APIServerCA):
		return auth.Grant{}, errors.New("its CA of the API server is not a certificate in PEM")
	case a.ExpiresIn < int64(minLifetime/time.Second) || a.ExpiresIn > int64(maxLifetime/time.Second):
		return auth.Grant{}, fmt.Errorf("the lifetime of its token is %d s; it must be between ten minutes and a year", a.ExpiresIn)
	}
	return auth.Grant{
		Namespace: a.Namespace, Token: token, Lifetime: time.Duration(a.ExpiresIn) * time.Second, APIServerURL: address,
		APIServerCA: a.APIServerCA,
	}, nil
}

// clean makes a refusal safe for conditions, logs and terminals: one short line without control characters, and without
// the token, which a provider may repeat.
func clean(err error, token string) error {
	var refusal *auth.Error
	if !errors.As(err, &refusal) {
		return err
	}
	cleaned := *refusal
	if token != "" {
		cleaned.Message = strings.ReplaceAll(cleaned.Message, token, "[token]")
	}
	cleaned.Message = printable.Line(cleaned.Message, maxMessage)
	cleaned.Reason = auth.Reason(printable.Line(string(cleaned.Reason), maxWord))
	if cleaned.Message == "" {
		cleaned.Message = "the provider refused without a reason"
	}
	return &cleaned
}
