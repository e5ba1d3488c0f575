// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// list splits a text at commas; an empty text has no items.
func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// FuzzCertificateRequest: a request is admitted if and only if it is one signed request, for a server, for nothing but a virtual node of the tenant at
// addresses of its virtual kubelet.
func FuzzCertificateRequest(f *testing.F) {
	const node, group, kind, usages = "system:node:liqo-rome", "system:nodes", "CERTIFICATE REQUEST", "digital signature,server auth"
	f.Add(node, group, "", "10.0.0.9", usages, kind, "", uint16(0))
	f.Add("system:node:liqo-rome-2", group, "", "10.0.0.9,fd00::9", usages+",key encipherment", kind, "\n \n", uint16(0))
	f.Add("system:node:master", group, "", "10.0.0.9", usages, kind, "", uint16(0))
	f.Add("liqo-rome", group, "", "10.0.0.9", usages, kind, "", uint16(0))
	f.Add(node, "system:masters", "", "10.0.0.9", usages, kind, "", uint16(0))
	f.Add(node, group+",system:masters", "", "10.0.0.9", usages, kind, "", uint16(0))
	f.Add(node, "", "", "10.0.0.9", usages, kind, "", uint16(0))
	f.Add(node, group, "kubernetes.default.svc", "10.0.0.9", usages, kind, "", uint16(0))
	f.Add(node, group, "root@example.com", "10.0.0.9", usages, kind, "", uint16(0))
	f.Add(node, group, "spiffe://cluster/x", "10.0.0.9", usages, kind, "", uint16(0))
	f.Add(node, group, "", "", usages, kind, "", uint16(0))
	f.Add(node, group, "", "10.0.0.9,10.96.0.1", usages, kind, "", uint16(0))
	f.Add(node, group, "", "10.0.0.9", "client auth", kind, "", uint16(0))
	f.Add(node, group, "", "10.0.0.9", "", kind, "", uint16(0))
	f.Add(node, group, "", "10.0.0.9", usages, "CERTIFICATE", "", uint16(0))
	f.Add(node, group, "", "10.0.0.9", usages, kind, "-----BEGIN CERTIFICATE REQUEST-----", uint16(0))
	f.Add(node, group, "", "10.0.0.9", usages, kind, "", uint16(30)) // a byte of the signed part
	f.Add(node, group, "", "10.0.0.9", usages, kind, "", uint16(1))  // the last byte of the signature
	nodes, addresses := []string{"liqo-rome", "liqo-rome-2"}, []string{"10.0.0.9", "fd00::9"}
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	f.Fuzz(func(t *testing.T, name, groups, other, ips, usages, kind, rest string, tampered uint16) {
		template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: name, Organization: list(groups)}}
		good := tampered == 0 && kind == "CERTIFICATE REQUEST" && strings.TrimSpace(rest) == "" && other == "" &&
			(name == nodePrefix+nodes[0] || name == nodePrefix+nodes[1]) && groups == nodesGroup
		switch {
		case other == "":
		case strings.Contains(other, "@"):
			template.EmailAddresses = list(other)
		case strings.Contains(other, "://"):
			parsed, err := url.Parse(other)
			if err != nil {
				return
			}
			template.URIs = []*url.URL{parsed}
		default:
			template.DNSNames = list(other)
		}
		known := true
		for _, text := range list(ips) {
			if ip := net.ParseIP(text); ip != nil {
				template.IPAddresses = append(template.IPAddresses, ip)
				known = known && slices.Contains(addresses, ip.String())
			}
		}
		good = good && known && len(template.IPAddresses) > 0
		request := &certificatesv1.CertificateSigningRequest{}
		for _, usage := range list(usages) {
			request.Spec.Usages = append(request.Spec.Usages, certificatesv1.KeyUsage(usage))
			good = good && slices.Contains([]string{"digital signature", "key encipherment", "server auth"}, usage)
		}
		der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
		if err != nil {
			return
		}
		if tampered > 0 {
			der = bytes.Clone(der)
			der[len(der)-1-int(tampered-1)%len(der)] ^= 1
		}
		text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
		if text == nil {
			return
		}
		request.Spec.Request = append(text, rest...)
		problem := judge(request, nodes, addresses)
		if (problem == nil) != good {
			t.Errorf("%v; admissible: %t; %+v, %q", problem, good, template, request.Spec.Request)
		}
		// A request for an address that may still become known waits; it must be right in all else.
		if errors.Is(problem, errAddress) && (groups != nodesGroup || other != "" || tampered > 0 || known) {
			t.Errorf("waits: %v", problem)
		}
	})
}
