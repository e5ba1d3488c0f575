// SPDX-License-Identifier: Apache-2.0

// Package serving holds the TLS side of the HTTPS ports that the API server calls: a certificate that is renewed while it is used, signed by
// the process itself or, for API servers that verify their kubelets, by the cluster; and a server whose connections are bounded.
//
// It must not know who calls nor what is served. Its proof is serving_test.go, against a real API server.
package serving

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync/atomic"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/apis/labels"
)

const (
	// lifetime of a certificate, as far as we say: it is asked for anew with each start, so a short one does.
	lifetime = 30 * 24 * time.Hour
	// tolerance is for callers whose clock is behind.
	tolerance = time.Hour
	// Between two looks at a request that is not answered, and between two requests.
	firstLook, longestLook = 50 * time.Millisecond, 10 * time.Second
	patience               = 10 * time.Minute
	askTimeout             = 10 * time.Second
)

// Names are those for which a certificate is.
type Names struct {
	// Common is the subject's name, Organization may be empty.
	Common, Organization string
	IPs                  []net.IP
	DNS                  []string
}

// Certificate is the one that is used now.
type Certificate struct {
	names   Names
	current atomic.Pointer[tls.Certificate]
	signed  atomic.Bool
}

// New returns a certificate that the process has signed itself.
func New(names Names) (*Certificate, error) {
	c := &Certificate{names: names}
	made, err := selfSigned(names, time.Now())
	if err != nil {
		return nil, err
	}
	c.current.Store(made)
	return c, nil
}

// Get is for tls.Config.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.current.Load(), nil
}

// Signed tells whether the cluster vouches for the certificate.
func (c *Certificate) Signed() bool { return c.signed.Load() }

// Keep renews the certificate in time, signed by the process itself, until ctx ends.
func (c *Certificate) Keep(ctx context.Context) {
	for wait(ctx, renewal(c.current.Load().Leaf, time.Now())) {
		made, err := selfSigned(c.names, time.Now())
		if err != nil { // the machine has no randomness
			log.FromContext(ctx).Error(err, "certificate not renewed")
			continue
		}
		c.current.Store(made)
	}
}

// Request is what KeepSigned asks with.
type Request struct {
	Client client.Client
	// Node is the name of the node whose kubelet this is. Nothing is asked before there is such a node, and the requests go with it.
	Node  func(context.Context) (*corev1.Node, error)
	Retry time.Duration
}

// KeepSigned gets a certificate from the cluster's signer of kubelets, and another one in time, until ctx ends. Until the first one comes, the
// process's own is used, which most API servers take.
func (c *Certificate) KeepSigned(ctx context.Context, r Request) {
	logger := log.FromContext(ctx)
	for ctx.Err() == nil {
		node, err := r.Node(ctx)
		if err != nil || node == nil {
			wait(ctx, r.Retry)
			continue
		}
		made, err := c.ask(ctx, r.Client, node)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			logger.Error(err, "no certificate from the cluster; who verifies kubelets cannot call this one", "node", node.Name)
			if now := time.Now(); now.After(c.current.Load().Leaf.NotAfter.Add(-tolerance)) {
				if own, err := selfSigned(c.names, now); err == nil {
					c.current.Store(own)
					c.signed.Store(false)
				}
			}
			wait(ctx, patience)
			continue
		}
		c.current.Store(made)
		c.signed.Store(true)
		logger.Info("certificate signed by the cluster", "node", node.Name, "until", made.Leaf.NotAfter)
		wait(ctx, renewal(made.Leaf, time.Now()))
	}
}

// ask makes a request and waits for its answer.
func (c *Certificate) ask(ctx context.Context, api client.Client, node *corev1.Node) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: subject(c.names), DNSNames: c.names.DNS, IPAddresses: c.names.IPs,
	}, key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate request: %w", err)
	}
	request := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: node.Name + "-",
			Labels:       map[string]string{labels.AppPartOf: labels.PartOf},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID,
			}},
		},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeletServingSignerName, ExpirationSeconds: new(int32(lifetime.Seconds())),
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		},
	}
	within, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := api.Create(within, request); err != nil {
		return nil, fmt.Errorf("request a certificate: %w", err)
	}
	text, err := answerTo(ctx, api, request)
	if err != nil {
		return nil, err
	}
	return parseChain(text, key, c.names)
}

// answerTo looks for the answer, ever more seldom.
func answerTo(ctx context.Context, api client.Client, request *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var failure error
	for pause := firstLook; wait(ctx, pause); pause = min(pause*3/2, longestLook) {
		within, cancel := context.WithTimeout(ctx, askTimeout)
		err := api.Get(within, client.ObjectKeyFromObject(request), request)
		cancel()
		if err != nil {
			failure = err
			if client.IgnoreNotFound(err) == nil {
				break
			}
			continue
		}
		for _, condition := range request.Status.Conditions {
			if condition.Type == certificatesv1.CertificateDenied || condition.Type == certificatesv1.CertificateFailed {
				return nil, fmt.Errorf("certificate request %s: %s: %s %s", request.Name, condition.Type, condition.Reason, condition.Message)
			}
		}
		if len(request.Status.Certificate) > 0 {
			return request.Status.Certificate, nil
		}
	}
	if failure != nil {
		return nil, fmt.Errorf("look at certificate request %s: %w", request.Name, failure)
	}
	return nil, fmt.Errorf("certificate request %s is not answered within %v; the controller manager approves it, and the cluster's signer %s signs it",
		request.Name, patience, certificatesv1.KubeletServingSignerName)
}

// parseChain makes sure that the answer is to our question.
func parseChain(text []byte, key *ecdsa.PrivateKey, names Names) (*tls.Certificate, error) {
	made := &tls.Certificate{PrivateKey: key}
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type == "CERTIFICATE" {
			made.Certificate = append(made.Certificate, block.Bytes)
		}
	}
	if len(made.Certificate) == 0 {
		return nil, errors.New("what was signed holds no certificate")
	}
	leaf, err := x509.ParseCertificate(made.Certificate[0])
	if err != nil {
		return nil, fmt.Errorf("read what was signed: %w", err)
	}
	if public, ok := leaf.PublicKey.(*ecdsa.PublicKey); !ok || !public.Equal(&key.PublicKey) {
		return nil, errors.New("what was signed is of another key")
	}
	for _, ip := range names.IPs {
		if err := leaf.VerifyHostname(ip.String()); err != nil {
			return nil, fmt.Errorf("what was signed: %w", err)
		}
	}
	made.Leaf = leaf
	return made, nil
}

func subject(names Names) pkix.Name {
	name := pkix.Name{CommonName: names.Common}
	if names.Organization != "" {
		name.Organization = []string{names.Organization}
	}
	return name
}

func selfSigned(names Names, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: subject(names), DNSNames: names.DNS, IPAddresses: names.IPs,
		NotBefore: now.Add(-tolerance), NotAfter: now.Add(lifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// renewal is how long a certificate is used: until three quarters of its life are over.
func renewal(leaf *x509.Certificate, now time.Time) time.Duration {
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	return max(leaf.NotAfter.Add(-life/4).Sub(now), time.Minute)
}

// wait says false if ctx ended first.
func wait(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
