// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/offloading/controllertest"
	"liqo.io/liqo/internal/offloading/serving"
)

// certificateEnv is a cluster whose virtual kubelets request certificates.
type certificateEnv struct{ *controllertest.Env }

func newCertificateEnv(t *testing.T) *certificateEnv {
	t.Helper()
	return &certificateEnv{controllertest.New(t)}
}

const (
	vkUser = "system:serviceaccount:" + controllertest.Tenant + ":virtual-kubelet"
)

// TestCertificates: a virtual kubelet gets a certificate of the cluster's signer as soon as its node exists, with the rights of its role; no other
// client gets one from this controller.
func TestCertificates(t *testing.T) {
	b := newCertificateEnv(t)
	b.certificateRights()
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: controllertest.Tenant}}
	b.Edit(space, func() { space.Labels[labels.TenantNamespace] = "true" })
	slice := b.Slice("rome")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: controllertest.Tenant, Name: "virtual-kubelet-0", Labels: map[string]string{"app.kubernetes.io/name": "virtual-kubelet"},
		},
		Spec: corev1.PodSpec{ServiceAccountName: "virtual-kubelet", Containers: []corev1.Container{{Name: "a", Image: "a"}}},
	}
	b.Make(pod)
	config := rest.CopyConfig(b.Admin)
	config.Impersonate.UserName = controllertest.User
	mgr, err := manager.New(config, manager.Options{Scheme: b.Scheme})
	b.Must(err)
	b.Must(Setup(mgr))
	kubetest.Start(t, "manager", mgr.Start)

	mine := rest.CopyConfig(b.Admin)
	mine.Impersonate = rest.ImpersonationConfig{UserName: vkUser, Groups: []string{"system:serviceaccounts"}}
	asKubelet, err := client.New(mine, client.Options{Scheme: b.Scheme})
	b.Must(err)
	certificate, err := serving.New(serving.Names{
		Common: "system:node:" + slice.Spec.NodeName, Organization: "system:nodes", IPs: []net.IP{net.IPv4(10, 0, 0, 9)},
	})
	b.Must(err)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: slice.Spec.NodeName}}
	b.Make(node)
	kubetest.Start(t, "certificate", func(ctx context.Context) error {
		certificate.KeepSigned(ctx, serving.Request{
			Client: asKubelet, Node: func(context.Context) (*corev1.Node, error) { return node, nil }, Retry: time.Millisecond,
		})
		return nil
	})

	// Its request is not decided before the status of its pod has the address.
	var request certificatesv1.CertificateSigningRequest
	b.Until("a request exists", func() bool {
		var all certificatesv1.CertificateSigningRequestList
		b.Must(b.List(t.Context(), &all))
		if len(all.Items) == 1 {
			request = all.Items[0]
		}
		return len(all.Items) == 1
	})
	if decided(&request) || len(request.OwnerReferences) != 1 || request.OwnerReferences[0].UID != node.UID {
		t.Errorf("%+v", request)
	}
	pod.Status.PodIPs, pod.Status.PodIP = []corev1.PodIP{{IP: "10.0.0.9"}}, "10.0.0.9"
	b.Must(b.Status().Update(t.Context(), pod))
	b.Until("the request is approved", func() bool {
		b.Read(&request)
		return slices.ContainsFunc(request.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
			return c.Type == certificatesv1.CertificateApproved
		})
	})
	if certificate.Signed() {
		t.Error("Signed before the signer signed")
	}
	// The signer is part of the Kubernetes controller manager, which does not run here.
	authority := newSigner(t)
	request.Status.Certificate = authority.sign(t, request.Spec.Request)
	b.Must(b.SubResource("status").Update(t.Context(), &request))
	b.Until("the certificate is used", certificate.Signed)
	used, err := certificate.Get(nil)
	b.Must(err)
	pool := x509.NewCertPool()
	pool.AddCert(authority.certificate)
	if _, err := used.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: "10.0.0.9"}); err != nil {
		t.Errorf("a client that verifies kubelets: %v", err)
	}
	b.foreignRequests(t, slice.Spec.NodeName)
}

// TestAttackL2: a user who may write ResourceSlices and an account of the right name in a namespace of their own gets no certificate of a node.
func TestAttackL2(t *testing.T) {
	b := newCertificateEnv(t)
	b.certificateRights()
	own := b.Slice("rome").DeepCopy()
	own.ObjectMeta = metav1.ObjectMeta{Namespace: "apps", Name: "rome", Labels: own.Labels}
	own.Spec.NodeName = "worker"
	b.Make(own)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "virtual-kubelet-0", Labels: map[string]string{"app.kubernetes.io/name": "virtual-kubelet"}},
		Spec:       corev1.PodSpec{ServiceAccountName: "virtual-kubelet", Containers: []corev1.Container{{Name: "a", Image: "a"}}},
	}
	b.Make(pod)
	pod.Status.PodIPs, pod.Status.PodIP = []corev1.PodIP{{IP: "10.0.0.9"}}, "10.0.0.9"
	b.Must(b.Status().Update(t.Context(), pod))
	config := rest.CopyConfig(b.Admin)
	config.Impersonate.UserName = controllertest.User
	options := manager.Options{Scheme: b.Scheme}
	options.Metrics.BindAddress = "0"                 // the port is taken as well
	options.Controller.SkipNameValidation = new(true) // TestCertificates sets up the same controller
	mgr, err := manager.New(config, options)
	b.Must(err)
	b.Must(Setup(mgr))
	kubetest.Start(t, "manager", mgr.Start)

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	b.Must(err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:worker", Organization: []string{"system:nodes"}}, IPAddresses: []net.IP{net.IPv4(10, 0, 0, 9)},
	}, key)
	b.Must(err)
	config = rest.CopyConfig(b.Admin)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:apps:virtual-kubelet", Groups: []string{"system:masters"}}
	as, err := client.New(config, client.Options{Scheme: b.Scheme})
	b.Must(err)
	request := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "foreign-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeletServingSignerName, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		},
	}
	b.Must(as.Create(t.Context(), request))
	b.Until("the request is decided", func() bool { b.Read(request); return decided(request) })
	if got := request.Status.Conditions[0].Type; got != certificatesv1.CertificateDenied {
		t.Errorf("the request is %s", got)
	}
}

// foreignRequests: requests that are not from a virtual kubelet are ignored or denied.
func (b *certificateEnv) foreignRequests(t *testing.T, node string) {
	good := x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}, IPAddresses: []net.IP{net.IPv4(10, 0, 0, 9)},
	}
	serve := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}
	with := func(change func(*x509.CertificateRequest)) x509.CertificateRequest { r := good; change(&r); return r }
	for name, c := range map[string]struct {
		user    string
		request x509.CertificateRequest
		usages  []certificatesv1.KeyUsage
		want    string
	}{
		"another node":      {vkUser, with(func(r *x509.CertificateRequest) { r.Subject.CommonName = "system:node:master" }), serve, "Denied"},
		"with a DNS name":   {vkUser, with(func(r *x509.CertificateRequest) { r.DNSNames = []string{"kubernetes.default.svc"} }), serve, "Denied"},
		"no address":        {vkUser, with(func(r *x509.CertificateRequest) { r.IPAddresses, r.DNSNames = nil, []string{"a"} }), serve, "Denied"},
		"administrators":    {vkUser, with(func(r *x509.CertificateRequest) { r.Subject.Organization = []string{"system:masters"} }), serve, "Denied"},
		"another account":   {"system:serviceaccount:" + controllertest.Tenant + ":other", good, serve, ""},
		"another namespace": {"system:serviceaccount:apps:virtual-kubelet", good, serve, "Denied"},
		"a user":            {"user", good, serve, ""},
		"another's address": {vkUser, with(func(r *x509.CertificateRequest) { r.IPAddresses = append(r.IPAddresses, net.IPv4(10, 0, 0, 1)) }), serve, "waits"},
		"to be a client":    {vkUser, good, append(slices.Clone(serve), certificatesv1.UsageClientAuth), "Denied"},
		"a valid request":   {vkUser, good, serve, "Approved"},
	} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		b.Must(err)
		der, err := x509.CreateCertificateRequest(rand.Reader, &c.request, key)
		b.Must(err)
		config := rest.CopyConfig(b.Admin)
		config.Impersonate = rest.ImpersonationConfig{UserName: c.user, Groups: []string{"system:masters"}}
		as, err := client.New(config, client.Options{Scheme: b.Scheme})
		b.Must(err)
		request := &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "foreign-"},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: certificatesv1.KubeletServingSignerName, Usages: c.usages,
			},
		}
		b.Must(as.Create(t.Context(), request))
		decision := func() string {
			b.Read(request)
			for _, condition := range request.Status.Conditions {
				return string(condition.Type)
			}
			return ""
		}
		switch c.want {
		case "Denied", "Approved":
			b.Until(name, func() bool { return decision() == c.want })
		case "waits":
			if err := judge(request, []string{node}, []string{"10.0.0.9"}); err == nil || decision() != "" {
				t.Errorf("%s: %v", name, err)
			}
		default:
			// The controller reconciles this request before it decides on the next one.
			if tenantOf(request) != "" || decision() != "" {
				t.Errorf("%s: handled as ours: %s", name, decision())
			}
		}
	}
}

// certificateRights binds the rights in the RBAC markers of this controller, and the role of the virtual kubelet.
func (b *certificateEnv) certificateRights() {
	b.T.Helper()
	if _, err := os.Stat("controller.go"); err != nil {
		b.T.Fatal(err)
	}
	b.Make(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "certificates"}, Rules: b.RBACMarkers("controller.go")[""]})
	for role, name := range map[string]string{"certificates": controllertest.User, "liqo-virtual-kubelet": vkUser} {
		b.Make(&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role + "-here"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: name}},
		})
	}
}

// signer signs certificates like the signer of a cluster.
type signer struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: "cluster"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &signer{certificate, key}
}

func (s *signer) sign(t *testing.T, text []byte) []byte {
	t.Helper()
	block, _ := pem.Decode(text)
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: request.Subject, IPAddresses: request.IPAddresses, DNSNames: request.DNSNames,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, s.certificate, request.PublicKey, s.key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
