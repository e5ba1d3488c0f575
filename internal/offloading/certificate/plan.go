// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"liqo.io/liqo/internal/offloading/kubelet"
)

const (
	accountPrefix = "system:serviceaccount:"
	nodePrefix    = "system:node:"
	nodesGroup    = "system:nodes"
)

// tenantOf returns the namespace of the virtual kubelet that requests a certificate; empty if the requester is no virtual kubelet.
func tenantOf(request *certificatesv1.CertificateSigningRequest) string {
	account, ok := strings.CutPrefix(request.Spec.Username, accountPrefix)
	namespace, name, two := strings.Cut(account, ":")
	if !ok || !two || name != kubelet.Name || request.Spec.SignerName != certificatesv1.KubeletServingSignerName {
		return ""
	}
	return namespace
}

// decided reports whether the request has been approved, denied or signed.
func decided(request *certificatesv1.CertificateSigningRequest) bool {
	return len(request.Status.Certificate) > 0 || slices.ContainsFunc(request.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateApproved || c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed
	})
}

// errAddress: no known pod of the virtual kubelet has the requested address. The status of the pod may still be missing.
var errAddress = errors.New("no pod of the virtual kubelet has the address")

// judge returns why a request is denied. nodes are the virtual nodes of its tenant namespace, addresses those of the pods of their virtual kubelets:
// the request must be for one of these nodes, with these addresses, and for nothing else.
func judge(request *certificatesv1.CertificateSigningRequest, nodes, addresses []string) error {
	for _, usage := range request.Spec.Usages {
		if usage != certificatesv1.UsageDigitalSignature && usage != certificatesv1.UsageKeyEncipherment && usage != certificatesv1.UsageServerAuth {
			return fmt.Errorf("usage %q is not allowed for a server certificate", usage)
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
		return errors.New("it must be for IP addresses only")
	}
	for _, ip := range parsed.IPAddresses {
		if !slices.Contains(addresses, ip.String()) {
			return fmt.Errorf("%w %s", errAddress, ip)
		}
	}
	return nil
}
