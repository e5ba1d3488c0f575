// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// identities holds the authority for clients of the API server, and the certificates with which the API server authenticates to kubelets and to
// the servers of aggregated APIs. envtest provides only the former, so a kubelet could not authenticate the API server.
type identities struct {
	dir            string
	clients, front *authority
}

func newIdentities() (*identities, error) {
	clients, err := newAuthority("kubetest clients")
	if err != nil {
		return nil, err
	}
	front, err := newAuthority("kubetest front proxy")
	return &identities{clients: clients, front: front}, err
}

// Configure sets the flags of the API server to the files that Start will write.
func (i *identities) Configure(dir string, args *envtest.Arguments) error {
	i.dir = dir
	for flag, file := range map[string]string{
		"client-ca-file": "clients.crt", "kubelet-client-certificate": "kubelet-client.crt", "kubelet-client-key": "kubelet-client.key",
		"requestheader-client-ca-file": "front.crt", "proxy-client-cert-file": "front-client.crt", "proxy-client-key-file": "front-client.key",
	} {
		args.Set(flag, filepath.Join(dir, file))
	}
	args.Set("requestheader-allowed-names", "front-proxy-client").Set("requestheader-username-headers", "X-Remote-User").
		Set("requestheader-group-headers", "X-Remote-Group").Set("requestheader-extra-headers-prefix", "X-Remote-Extra-")
	return nil
}

// Start writes the files that Configure named.
func (i *identities) Start() error {
	files := map[string][]byte{"clients.crt": certificatePEM(i.clients.certificate.Raw), "front.crt": certificatePEM(i.front.certificate.Raw)}
	for name, made := range map[string]struct {
		by   *authority
		user envtest.User
	}{
		"kubelet-client": {i.clients, envtest.User{Name: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"}}},
		"front-client":   {i.front, envtest.User{Name: "front-proxy-client"}},
	} {
		certificate, key, err := made.by.client(made.user)
		if err != nil {
			return err
		}
		files[name+".crt"], files[name+".key"] = certificate, key
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(i.dir, name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// AddUser returns a configuration with a client certificate for the user.
func (i *identities) AddUser(user envtest.User, base *rest.Config) (*rest.Config, error) {
	config := rest.CopyConfig(base)
	var err error
	config.CertData, config.KeyData, err = i.clients.client(user)
	return config, err
}

// Stop does nothing: the guard removes the directory.
func (i *identities) Stop() error { return nil }

// authority is a certificate authority.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

const life = 24 * time.Hour

func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return &authority{certificate: certificate, key: key}, err
}

// client returns a client certificate and its key, in PEM.
func (a *authority) client(user envtest.User) (certificate, private []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: user.Name, Organization: user.Groups},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		return nil, nil, err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return certificatePEM(der), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), nil
}

func certificatePEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
