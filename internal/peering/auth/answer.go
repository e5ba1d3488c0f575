// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
)

// What a provider answers, read with suspicion: it goes into conditions, onto terminals, and decides whom we talk to.

const (
	maxMessage  = 1024
	maxWord     = 64
	maxWords    = 64
	maxBearer   = 16 << 10
	maxLifetime = 365 * 24 * time.Hour
	// minLifetime is the least that an API server gives; with less, a provider would keep us writing.
	minLifetime = 10 * time.Minute
)

// IDs is who answers at a URL.
type IDs struct {
	ClusterID    string
	ClusterName  string
	Version      string
	Protocol     Range
	Capabilities []string
	// Date is the provider's clock when it answered; zero if it does not say.
	Date time.Time
	TLS  TLSFacts
}

// TLSFacts are what was seen of the connection.
type TLSFacts struct {
	Version string
	// Trusted says whether this machine trusts the certificate for this host; Problem says why not.
	Trusted bool
	Problem string
	// SelfSigned certificates are what the service makes for itself.
	SelfSigned          bool
	Issuer              string
	NotBefore, NotAfter time.Time
	// Fingerprint is the SHA-256 of the certificate, in hexadecimal.
	Fingerprint string
}

// IDs asks who the provider is.
func (c *Client) IDs(ctx context.Context) (IDs, error) {
	var answer idsAnswer
	response, err := c.do(ctx, http.MethodGet, pathIDs, nil, &answer)
	if err != nil {
		return IDs{}, clean(err, "")
	}
	identity := discoveryv1alpha1.ClusterIdentity{ClusterID: answer.ClusterID, ClusterName: answer.ClusterName}
	if validClusterID(answer.ClusterID) != nil || !validClusterName(identity) {
		return IDs{}, c.stranger("an ID or a name that no cluster has")
	}
	if answer.Protocol == (Range{}) {
		answer.Protocol = Range{Min: 1, Max: 1} // who does not say
	}
	ids := IDs{
		ClusterID: answer.ClusterID, ClusterName: answer.ClusterName,
		Version: printable(answer.Version, maxWord), Protocol: answer.Protocol,
	}
	for _, capability := range answer.Capabilities[:min(len(answer.Capabilities), maxWords)] {
		ids.Capabilities = append(ids.Capabilities, printable(capability, maxWord))
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
	facts.Issuer = printable(certificate.Issuer.String(), maxMessage)
	facts.NotBefore, facts.NotAfter = certificate.NotBefore, certificate.NotAfter
	facts.Fingerprint = hex.EncodeToString(sum[:])
	between := x509.NewCertPool()
	for _, other := range state.PeerCertificates[1:] {
		between.AddCert(other)
	}
	if _, err := certificate.Verify(x509.VerifyOptions{DNSName: host, Intermediates: between, CurrentTime: now}); err != nil {
		facts.Problem = printable(err.Error(), maxMessage)
	}
	facts.Trusted = facts.Problem == ""
	return facts
}

// grant checks what will be used without a second look. Its errors quote nothing: the answer holds a token.
func (a grantAnswer) grant() (Grant, error) {
	address, err := ParseAddress(a.APIServerURL)
	switch {
	case len(validation.IsDNS1123Label(a.Namespace)) > 0:
		return Grant{}, errors.New("the namespace is not the name of one")
	case a.Token == "" || len(a.Token) > maxBearer || strings.ContainsFunc(a.Token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return Grant{}, errors.New("the token is not one")
	case err != nil || address == "" || len(address) > maxURL:
		return Grant{}, errors.New("the API server's URL does not look like https://HOST:PORT")
	case len(a.APIServerCA) > 0 && !x509.NewCertPool().AppendCertsFromPEM(a.APIServerCA):
		return Grant{}, errors.New("the API server's CA is no certificate in PEM")
	case a.ExpiresIn < int64(minLifetime/time.Second) || a.ExpiresIn > int64(maxLifetime/time.Second):
		return Grant{}, errors.New("the token's lifetime is not between ten minutes and a year")
	}
	return Grant{Namespace: a.Namespace, Token: a.Token, Lifetime: time.Duration(a.ExpiresIn) * time.Second, APIServerURL: address, APIServerCA: a.APIServerCA}, nil
}

// clean makes a refusal fit for conditions, logs and terminals: one short line without control characters, and
// without the token, which the provider knows and might repeat.
func clean(err error, token string) error {
	var refusal *Error
	if !errors.As(err, &refusal) {
		return err
	}
	cleaned := *refusal
	if token != "" {
		cleaned.Message = strings.ReplaceAll(cleaned.Message, token, "[token]")
	}
	cleaned.Message = printable(cleaned.Message, maxMessage)
	cleaned.Reason = Reason(printable(string(cleaned.Reason), maxWord))
	if cleaned.Message == "" {
		cleaned.Message = "the provider refused without saying why"
	}
	return &cleaned
}

// printable cuts a text, and replaces what is not printable.
func printable(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && r != unicode.ReplacementChar {
			return r
		}
		return ' '
	}, text))
}
