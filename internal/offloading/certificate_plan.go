// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
)

const (
	accountPrefix = "system:serviceaccount:"
	nodePrefix    = "system:node:"
	nodesGroup    = "system:nodes"
)

// tenantOf is the namespace of the virtual kubelet that requests a certificate; empty if it is somebody else who does.
func tenantOf(request *certificatesv1.CertificateSigningRequest) string {
	account, ok := strings.CutPrefix(request.Spec.Username, accountPrefix)
	namespace, name, two := strings.Cut(account, ":")
	if !ok || !two || name != kubeletName || request.Spec.SignerName != certificatesv1.KubeletServingSignerName {
		return ""
	}
	return namespace
}

// decided tells whether somebody has said yes or no.
func decided(request *certificatesv1.CertificateSigningRequest) bool {
	return len(request.Status.Certificate) > 0 || slices.ContainsFunc(request.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateApproved || c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed
	})
}

// errAddress says that a request is for an address that the virtual kubelet is not known to have; it may have been too early.
var errAddress = errors.New("no pod of the virtual kubelet has the address")

// judge says what is wrong with a request, by the nodes that the virtual kubelets of its namespace stand behind, and by the addresses of their
// pods: it must be for one of those nodes, at one of those addresses, and for nothing else.
func judge(request *certificatesv1.CertificateSigningRequest, nodes, addresses []string) error {
	for _, usage := range request.Spec.Usages {
		if usage != certificatesv1.UsageDigitalSignature && usage != certificatesv1.UsageKeyEncipherment && usage != certificatesv1.UsageServerAuth {
			return fmt.Errorf("the usage %q is not that of a server", usage)
		}
	}
	block, rest := pem.Decode(request.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(strings.TrimSpace(string(rest))) > 0 {
		return errors.New("not one certificate request in PEM")
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return fmt.Errorf("the certificate request cannot be read: %w", err)
	}
	if err := parsed.CheckSignature(); err != nil {
		return fmt.Errorf("the certificate request is not signed by its key: %w", err)
	}
	node, ok := strings.CutPrefix(parsed.Subject.CommonName, nodePrefix)
	switch {
	case !ok || !slices.Contains(nodes, node):
		return fmt.Errorf("%q is not a virtual node of this tenant", parsed.Subject.CommonName)
	case !slices.Equal(parsed.Subject.Organization, []string{nodesGroup}):
		return fmt.Errorf("the organization is %q, not %s", parsed.Subject.Organization, nodesGroup)
	case len(parsed.DNSNames)+len(parsed.EmailAddresses)+len(parsed.URIs) > 0 || len(parsed.IPAddresses) == 0:
		return errors.New("it is for other names than an address")
	}
	for _, ip := range parsed.IPAddresses {
		if !slices.Contains(addresses, ip.String()) {
			return fmt.Errorf("%w %s", errAddress, ip)
		}
	}
	return nil
}
