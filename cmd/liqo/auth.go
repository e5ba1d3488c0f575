// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/log"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/cmd/liqo/role"
	"liqo.io/liqo/internal/kube/version"
	"liqo.io/liqo/internal/offloading/serving"
	peeringauth "liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/auth/endpoint"
	authserver "liqo.io/liqo/internal/peering/auth/server"
	"liqo.io/liqo/internal/peering/auth/ways"
)

// auth is the only process that unauthenticated clients can reach. It watches and caches nothing, which keeps it small.
func auth() role.Role {
	return role.Role{Name: "auth", Short: "Authenticate other clusters that peer with this one", New: func() *cobra.Command {
		var o authOptions
		return role.Command(&o, config.GetConfig, func(cmd *cobra.Command, cfg *rest.Config) error {
			return runAuth(cmd.Context(), cfg, o)
		})
	}}
}

type authOptions struct {
	namespace          string
	clusterID          string
	clusterName        string
	address            string
	healthAddress      string
	enableTLS          bool
	certPath, keyPath  string
	enableAuth         bool
	apiServerAddress   string
	apiServerTrustedCA bool
}

func (o *authOptions) Register(flags *pflag.FlagSet) {
	flags.StringVar(&o.namespace, "namespace", role.AuthEnvironment("POD_NAMESPACE", "liqo"), "namespace in which Liqo is installed")
	flags.StringVar(&o.clusterID, "cluster-id", role.AuthEnvironment("CLUSTER_ID", ""), "ID of this cluster")
	flags.StringVar(&o.clusterName, "cluster-name", role.AuthEnvironment("CLUSTER_NAME", ""), "name of this cluster")
	flags.StringVar(&o.address, "address", ":5000", "address to serve at")
	flags.StringVar(&o.healthAddress, "health-probe-address", ":8081", "address of the probes /healthz and /readyz")
	flags.BoolVar(&o.enableTLS, "enable-tls", false, "serve TLS; without --cert-path and --key-path, with a self-signed certificate")
	flags.StringVar(&o.certPath, "cert-path", "", "file with the TLS certificate, in PEM; read again when it changes")
	flags.StringVar(&o.keyPath, "key-path", "", "file with the key of the TLS certificate, in PEM")
	flags.BoolVar(&o.enableAuth, "enable-authentication", true, "refuse clusters without a token")
	flags.StringVar(&o.apiServerAddress, "advertise-api-server-address", "", "address at which peers reach the API server; if empty, a control plane node, "+
		"port 6443")
	flags.BoolVar(&o.apiServerTrustedCA, "advertise-api-server-trusted-ca", false, "the certificate of the API server is signed by a public authority, so "+
		"peers receive no CA")
	role.Ignore(flags, role.NoteNoCache, "resync-period")
	role.Ignore(flags, role.NoteAWS, "aws-access-key-id", "aws-secret-access-key", "aws-region", "aws-cluster-name")
}

func (o *authOptions) Validate() error {
	var err error
	if o.apiServerAddress, err = peeringauth.ParseAddress(o.apiServerAddress); err != nil {
		return fmt.Errorf("--advertise-api-server-address: %w", err)
	}
	switch {
	case o.namespace == "":
		return errors.New("--namespace must not be empty")
	case o.clusterID == "" || o.clusterName == "":
		return errors.New("--cluster-id and --cluster-name, or the variables CLUSTER_ID and CLUSTER_NAME, must identify this cluster")
	case (o.certPath == "") != (o.keyPath == ""):
		return errors.New("--cert-path and --key-path must be set together")
	case o.certPath != "" && !o.enableTLS:
		return errors.New("--cert-path needs --enable-tls")
	}
	return nil
}

func runAuth(ctx context.Context, cfg *rest.Config, o authOptions) error {
	role.Frugal(ctx)
	log := log.FromContext(ctx).WithName("auth")
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = "liqo-auth/" + version.Version
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	// Higher than the limits of the service, so that the client never delays a request that was admitted.
	cfg.QPS, cfg.Burst = 200, 400
	core, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return err
	}
	tokens := authserver.SecretTokens{Secrets: core, Namespace: o.namespace}
	keys := &authserver.SecretKeys{Secrets: core, Namespace: o.namespace}
	handler, err := authserver.New(authserver.Options{
		Cluster:              discoveryv1alpha1.ClusterIdentity{ClusterID: o.clusterID, ClusterName: o.clusterName},
		EnableAuthentication: o.enableAuth,
		Tokens:               tokens,
		Keys:                 keys,
		Peers: authserver.Registry{
			Client: core, Namespace: o.namespace,
			Address: authserver.Address{URL: o.apiServerAddress, Nodes: core, TrustedCA: o.apiServerTrustedCA, CA: authCA(cfg)},
		},
		Ways: ways.Finder{Client: core, Namespace: o.namespace}.Find,
		Log:  log,
	})
	if err != nil {
		return err
	}
	certificate, err := authCertificate(o)
	if err != nil {
		return err
	}
	log.Info("starting", "version", version.Version, "address", o.address, "tls", o.enableTLS, "authentication", o.enableAuth)
	return endpoint.Serve(ctx, endpoint.Drained, endpoint.Service(o.address, handler, certificate, log),
		endpoint.Health(o.healthAddress, func(ctx context.Context) error {
			_, tokensErr := tokens.Tokens(ctx)
			_, keysErr := keys.ClusterKeys(ctx)
			return errors.Join(tokensErr, keysErr)
		}))
}

const (
	// authCertificateLifetime is long, because clients do not verify a self-signed certificate, and some report an expired one.
	authCertificateLifetime = 10 * 365 * 24 * time.Hour
	// authClockTolerance makes the certificate valid for peers whose clocks are behind.
	authClockTolerance = 7 * 24 * time.Hour
)

// authCertificate returns the current certificate of the files, or a self-signed one. It is nil without TLS.
func authCertificate(o authOptions) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if !o.enableTLS {
		return nil, nil
	}
	if o.certPath == "" {
		certificate, err := selfSignedAuth(o.namespace, time.Now())
		return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil }, err
	}
	files, err := serving.FromFiles(o.certPath, o.keyPath)
	return files.Get, err
}

// selfSignedAuth returns a certificate for the names and addresses of the service within the cluster.
func selfSignedAuth(namespace string, now time.Time) (*tls.Certificate, error) {
	names := serving.Names{
		Common: "liqo-auth", Organization: "liqo.io",
		DNS: []string{"localhost", "liqo-auth", "liqo-auth." + namespace, "liqo-auth." + namespace + ".svc"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if host, err := os.Hostname(); err == nil {
		names.DNS = append(names.DNS, host)
	}
	if ip := net.ParseIP(os.Getenv("POD_IP")); ip != nil {
		names.IPs = append(names.IPs, ip)
	}
	return serving.SelfSigned(names, now.Add(-authClockTolerance), now.Add(authCertificateLifetime))
}

// authCA returns a function that reads the CA of the API server from the configuration of this process: in a pod, from a file that the kubelet
// keeps current.
func authCA(cfg *rest.Config) func() ([]byte, error) {
	return func() ([]byte, error) {
		switch {
		case len(cfg.CAData) > 0:
			return cfg.CAData, nil
		case cfg.CAFile != "":
			return os.ReadFile(cfg.CAFile)
		}
		return nil, errors.New("this process has no CA of the API server; if a public authority signed its certificate, set --advertise-api-server-trusted-ca")
	}
}
