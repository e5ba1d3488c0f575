// SPDX-License-Identifier: Apache-2.0

// Package serving holds the TLS side of our HTTPS ports: certificates that are renewed while they are used, signed by the process or, for API
// servers that verify their kubelets, by the cluster; certificates from files; and a server whose connections are bounded.
//
// It must not know who calls nor what is served. Its proof is serving_test.go, and TestCertificates in the folder above, with a real API server.
package serving

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math"
	"math/big"
	"net"
	"sync/atomic"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/apis/labels"
)

const (
	// lifetime is what we ask for. Each start asks anew, so a short one is enough.
	lifetime = 30 * 24 * time.Hour
	// clockTolerance is for callers whose clock is behind.
	clockTolerance = time.Hour
	// The first and the longest interval between two reads of a request that is not answered yet.
	firstPoll, longestPoll = 50 * time.Millisecond, 10 * time.Second
	// signTimeout is how long a request may stay unanswered, and retryInterval the pause after one that failed.
	signTimeout, retryInterval = 10 * time.Minute, 10 * time.Minute
	// callTimeout bounds one call of the API server.
	callTimeout = 10 * time.Second
)

// Names are the subject and the addresses of a certificate.
type Names struct {
	// Common is the subject's common name, Organization may be empty.
	Common, Organization string
	IPs                  []net.IP
	DNS                  []string
}

// Certificate is the certificate in use. One goroutine renews it (Keep or KeepSigned) while others call Get.
type Certificate struct {
	names   Names
	current atomic.Pointer[tls.Certificate]
	signed  atomic.Bool
}

// New returns a certificate that the process has signed.
func New(names Names) (*Certificate, error) {
	c := &Certificate{names: names}
	return c, c.selfSign(time.Now())
}

// Get is for tls.Config.GetCertificate.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.current.Load(), nil
}

// Signed returns whether the cluster has signed the certificate in use.
func (c *Certificate) Signed() bool { return c.signed.Load() }

// Keep renews the certificate in time, signed by the process, until ctx ends.
func (c *Certificate) Keep(ctx context.Context) {
	for sleep(ctx, renewal(c.current.Load().Leaf, time.Now())) {
		if err := c.selfSign(time.Now()); err != nil { // the machine has no randomness
			log.FromContext(ctx).Error(err, "certificate not renewed")
		}
	}
}

// Request is what KeepSigned needs for its requests.
type Request struct {
	Client client.Client
	// Node returns the node whose kubelet this is, nil if there is none yet. No certificate is requested before, and requests are deleted with the node.
	Node func(context.Context) (*corev1.Node, error)
	// Retry is the interval between calls of Node until there is one.
	Retry time.Duration
}

// KeepSigned gets a certificate from the cluster's signer of kubelets, and renews it in time, until ctx ends. Before the first one arrives, Get
// returns the self-signed one, which most API servers accept.
//
// It does not use client-go's certificate.Manager, which kubelets use: the Manager needs the right to list and watch all requests of the cluster,
// gives its requests no owner, and repeats a denied request every 32 seconds.
func (c *Certificate) KeepSigned(ctx context.Context, r Request) {
	logger := log.FromContext(ctx)
	for ctx.Err() == nil {
		node, err := r.Node(ctx)
		if err != nil || node == nil {
			sleep(ctx, r.Retry)
			continue
		}
		made, err := c.request(ctx, r.Client, node)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			logger.Error(err, "no certificate from the cluster; API servers that verify kubelets cannot call this one", "node", node.Name)
			if now := time.Now(); now.After(c.current.Load().Leaf.NotAfter.Add(-clockTolerance)) && c.selfSign(now) == nil {
				c.signed.Store(false)
			}
			sleep(ctx, retryInterval)
			continue
		}
		c.current.Store(made)
		c.signed.Store(true)
		logger.Info("certificate signed by the cluster", "node", node.Name, "until", made.Leaf.NotAfter)
		sleep(ctx, renewal(made.Leaf, time.Now()))
	}
}

// request creates a CertificateSigningRequest and waits until it is signed.
func (c *Certificate) request(ctx context.Context, api client.Client, node *corev1.Node) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	text, err := cert.MakeCSRFromTemplate(key, &x509.CertificateRequest{Subject: subject(c.names), DNSNames: c.names.DNS, IPAddresses: c.names.IPs})
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
			Request: text, SignerName: certificatesv1.KubeletServingSignerName, ExpirationSeconds: new(int32(lifetime.Seconds())),
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		},
	}
	within, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := api.Create(within, request); err != nil {
		return nil, fmt.Errorf("create a CertificateSigningRequest: %w", err)
	}
	if err := waitSigned(ctx, api, request); err != nil {
		return nil, err
	}
	return parseSigned(request.Status.Certificate, key, c.names)
}

// waitSigned reads the request at growing intervals until it holds a certificate. It polls: a watch needs the right to see every request.
func waitSigned(ctx context.Context, api client.Client, request *certificatesv1.CertificateSigningRequest) error {
	ctx, cancel := context.WithTimeout(ctx, signTimeout)
	defer cancel()
	var failure error
	poll := wait.Backoff{Duration: firstPoll, Factor: 1.5, Cap: longestPoll, Steps: math.MaxInt}.DelayFunc()
	err := poll.Until(ctx, false, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		if failure = api.Get(ctx, client.ObjectKeyFromObject(request), request); apierrors.IsNotFound(failure) {
			return false, failure
		}
		for _, condition := range request.Status.Conditions {
			if condition.Type == certificatesv1.CertificateDenied || condition.Type == certificatesv1.CertificateFailed {
				return false, fmt.Errorf("%s: %s %s", condition.Type, condition.Reason, condition.Message)
			}
		}
		return len(request.Status.Certificate) > 0, nil
	})
	switch {
	case err == nil:
		return nil
	case !wait.Interrupted(err):
		return fmt.Errorf("CertificateSigningRequest %s: %w", request.Name, err)
	case failure != nil:
		return fmt.Errorf("read CertificateSigningRequest %s: %w", request.Name, failure)
	}
	return fmt.Errorf("CertificateSigningRequest %s has no certificate after %v; the controller manager approves it, and the cluster's signer "+
		"%s signs it: kubectl get csr %s",
		request.Name, signTimeout, certificatesv1.KubeletServingSignerName, request.Name)
}

// parseSigned returns the signed certificate, if it is of our key and for our addresses.
func parseSigned(chain []byte, key *ecdsa.PrivateKey, names Names) (*tls.Certificate, error) {
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, err
	}
	made, err := tls.X509KeyPair(chain, text)
	if err != nil {
		return nil, fmt.Errorf("read the signed certificate: %w", err)
	}
	for _, ip := range names.IPs {
		if err := made.Leaf.VerifyHostname(ip.String()); err != nil {
			return nil, fmt.Errorf("the signed certificate: %w", err)
		}
	}
	return &made, nil
}

func subject(names Names) pkix.Name {
	name := pkix.Name{CommonName: names.Common}
	if names.Organization != "" {
		name.Organization = []string{names.Organization}
	}
	return name
}

func (c *Certificate) selfSign(now time.Time) error {
	made, err := SelfSigned(c.names, now.Add(-clockTolerance), now.Add(lifetime))
	if err == nil {
		c.current.Store(made)
	}
	return err
}

// SelfSigned returns a server certificate that the process signs, with a key of its own.
func SelfSigned(names Names, from, until time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: subject(names), DNSNames: names.DNS, IPAddresses: names.IPs, NotBefore: from, NotAfter: until,
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

// renewal returns how long a certificate is used: until three quarters of its lifetime are over.
func renewal(leaf *x509.Certificate, now time.Time) time.Duration {
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	return max(leaf.NotAfter.Add(-life/4).Sub(now), time.Minute)
}

// sleep returns false if ctx ended first.
func sleep(ctx context.Context, pause time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return true
	}
}
