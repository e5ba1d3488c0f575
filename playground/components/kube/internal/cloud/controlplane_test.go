// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"liqo.io/liqo/playground/components/kube/internal/session"
)

// controlPlane is a real control plane on the loopback device, with state in temporary directories.
type controlPlane struct {
	test       *testing.T // all processes end with this test, whichever step started them
	kube       string     // the multi-call binary
	directory  string
	kubeconfig string
	etcd, api  int // ports
	running    *exec.Cmd
	config     *rest.Config
	client     kubernetes.Interface
}

// startControlPlane runs etcd, an API server with an audit log, and the controllers
// that the parts under test depend on. All end with the test.
func startControlPlane(t *testing.T) *controlPlane {
	t.Helper()
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		t.Skip("SKIPPED: needs a real control plane; set KUBEBUILDER_ASSETS to what `playground assets` prints")
	}
	c := &controlPlane{test: t, kube: filepath.Join(assets, "kube"), directory: t.TempDir(), etcd: freePort(t), api: freePort(t)}
	c.kubeconfig = filepath.Join(c.directory, "kubeconfig")
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	c.write(t, "sa.key", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	c.write(t, "tokens.csv", "secret,admin,1,\"system:masters\"\n")
	c.write(t, "audit.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n")
	c.write(t, "kubeconfig", fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",
		"clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:%d","insecure-skip-tls-verify":true}}],
		"users":[{"name":"u","user":{"token":"secret"}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}]}`, c.api))
	store := fmt.Sprintf("http://127.0.0.1:%d", c.etcd)
	c.start(t, "etcd", "--data-dir=etcd", "--unsafe-no-fsync", "--log-level=error", "--listen-client-urls="+store,
		"--advertise-client-urls="+store, fmt.Sprintf("--listen-peer-urls=http://127.0.0.1:%d", freePort(t)))
	c.startAPI(t)
	if c.config, err = session.Config(session.Options{Kubeconfig: c.kubeconfig, UserAgent: "test", QPS: 500, Burst: 500}); err != nil {
		t.Fatal(err)
	}
	c.client = kubernetes.NewForConfigOrDie(c.config)
	c.awaitAPI(t)
	c.start(t, "kube-controller-manager", "--kubeconfig=kubeconfig", "--leader-elect=false", fmt.Sprintf("--secure-port=%d", freePort(t)), "--cert-dir=certs-kcm",
		"--allocate-node-cidrs", "--cluster-cidr=10.200.0.0/16", "--kube-api-qps=300", "--kube-api-burst=600",
		"--controllers=node-ipam-controller,persistentvolume-binder-controller,persistentvolume-protection-controller,persistentvolumeclaim-protection-controller")
	return c
}

func (c *controlPlane) startAPI(t *testing.T) {
	t.Helper()
	c.running = c.start(t, "kube-apiserver", fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", c.etcd), fmt.Sprintf("--secure-port=%d", c.api),
		"--bind-address=127.0.0.1", "--cert-dir=certs", "--service-account-key-file=sa.key", "--service-account-signing-key-file=sa.key",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.90.0.0/12", "--token-auth-file=tokens.csv",
		"--authorization-mode=RBAC", "--audit-policy-file=audit.yaml", "--audit-log-path=audit.log")
}

// killAPI ends the API server at once, as a crash does.
func (c *controlPlane) killAPI(t *testing.T) {
	t.Helper()
	if err := c.running.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.running.Wait() // its error is the kill
}

func (c *controlPlane) awaitAPI(t *testing.T) {
	t.Helper()
	eventually(t, "the API server is ready", func() bool { return session.Probe(t.Context(), c.config) == nil })
}

func (c *controlPlane) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(c.directory, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (c *controlPlane) start(t *testing.T, program string, arguments ...string) *exec.Cmd {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(c.directory, program+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	command := exec.Command(c.kube, append([]string{program}, arguments...)...)
	command.Dir, command.Stdout, command.Stderr = c.directory, log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	c.test.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if text, err := os.ReadFile(log.Name()); err == nil && c.test.Failed() {
			c.test.Logf("end of the log of %s:\n%s", program, text[max(0, len(text)-2000):])
		}
	})
	return command
}

// requests counts the requests of the process under test by verb, from the audit log. The log
// records a watch when it ends.
func (c *controlPlane) requests(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.directory, "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var entry struct{ Verb, UserAgent, Stage string }
		if err := json.Unmarshal(lines.Bytes(), &entry); err == nil && entry.UserAgent == "playground-cloud" {
			count[entry.Verb]++
		}
	}
	return count
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// idle is a window of measurement, not a wait for something to happen.
func idle(window time.Duration) { time.Sleep(window) }
