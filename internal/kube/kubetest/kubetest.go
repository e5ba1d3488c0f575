// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/internal/kube/kubetest/guard"
)

// assetsVariable is envtest's own name, so that tools which know envtest work here too.
const assetsVariable = "KUBEBUILDER_ASSETS"

const (
	// The second API server of a pair starts beside the first, and both beside
	// the compiler of the next test package.
	startTimeout = 60 * time.Second
	stopTimeout  = 10 * time.Second
)

// Cluster lends the test an API server with its etcd, which no other test uses until this one ends. It holds what a new one holds, and perhaps the
// definitions of our own kinds. The returned configuration is that of an administrator (group system:masters), with a request rate limit that no
// test reaches.
func Cluster(t testing.TB) *rest.Config {
	t.Helper()
	return lend(t, &lending, 1, nil)[0]
}

// Fresh starts an API server that no other test has used and stops it when the test ends: for a test that needs one without our definitions, or
// that does something to the server that a reset does not undo.
func Fresh(t testing.TB) *rest.Config {
	t.Helper()
	return fresh(t)
}

func fresh(t testing.TB, flags ...string) *rest.Config {
	t.Helper()
	configs, stop, err := start(assets(t), 1, flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { report(t, stop()) })
	return configs[0]
}

// lend takes n servers from a pool until the end of the test; prepare may be nil.
func lend(t testing.TB, from *pool, n int, prepare func(testing.TB, *rest.Config)) (configs []*rest.Config) {
	t.Helper()
	clusters, err := from.borrow(assets(t), n)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range clusters {
		t.Cleanup(func() {
			if t.Failed() { // what it holds may be why
				t.Logf("the end of what the API server and its etcd have written:\n%s", c.guard.Logs())
				report(t, c.stop())
				return
			}
			report(t, from.giveBack(c))
		})
		configs = append(configs, rest.CopyConfig(c.config))
	}
	for i, c := range clusters {
		if c.first != nil {
			continue
		}
		if prepare != nil {
			prepare(t, configs[i])
		}
		if err := c.remember(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return configs
}

// Prepared returns a function that lends servers as [Cluster] does, which hold what prepare has made. It is called for each server that starts: a
// server that is lent again is reset to what it held then.
func Prepared(prepare func(testing.TB, *rest.Config)) func(testing.TB) *rest.Config {
	own := &pool{}
	return func(t testing.TB) *rest.Config {
		t.Helper()
		return lend(t, own, 1, prepare)[0]
	}
}

// Newest is [Fresh] with every feature of its version, also those that are off by default.
func Newest(t testing.TB) *rest.Config {
	t.Helper()
	return fresh(t, "feature-gates=AllAlpha=true,AllBeta=true", "runtime-config=api/all=true")
}

// Pair is [Cluster] twice, each with its own etcd and its own certificate authority. Names, UIDs and resource
// versions of one mean nothing in the other.
func Pair(t testing.TB) (consumer, provider *rest.Config) {
	t.Helper()
	configs := lend(t, &lending, 2, nil)
	return configs[0], configs[1]
}

// SharedPair is [Pair], started by the first test that needs it and shared by all
// tests of the same test binary, also in parallel. It ends with the test
// process. Work in your own namespace and do not change cluster-wide objects.
func SharedPair(t testing.TB) (consumer, provider *rest.Config) {
	t.Helper()
	configs, err := shared(assets(t))
	if err != nil {
		t.Fatal(err)
	}
	return rest.CopyConfig(configs[0]), rest.CopyConfig(configs[1])
}

// shared does not call stop: the guard of each cluster detects the end of the process. But stop must stay reachable: it
// holds the pipe that the guard watches, and the garbage collector closes an unreachable pipe.
var shared = func() func(string) ([]*rest.Config, error) {
	var (
		once    sync.Once
		configs []*rest.Config
		stop    func() error
		err     error
	)
	return func(dir string) ([]*rest.Config, error) {
		once.Do(func() { configs, stop, err = start(dir, 2) })
		runtime.KeepAlive(stop)
		return configs, err
	}
}()

// logged has controllers log what they do, unless the package has set a logger before: `go test` prints it if a test fails.
var logged = sync.OnceFunc(func() { log.SetLogger(klog.Background()) })

// assets returns the directory with etcd, kube-apiserver and kubectl. It skips
// the test if the variable is not set, and fails it if a program is missing.
func assets(t testing.TB) string {
	t.Helper()
	logged()
	dir := os.Getenv(assetsVariable)
	if dir == "" {
		t.Skipf("NOT RUN: %s is not set, so there is no API server to test against; "+
			"run `make test`, or: %s=$(bin/playground assets) go test ./...", assetsVariable, assetsVariable)
	}
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if err := executable(filepath.Join(dir, name)); err != nil {
			t.Fatalf("%s=%s: %v; build the binaries again: bin/playground build", assetsVariable, dir, err)
		}
	}
	return dir
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() || info.Mode().Perm()&0o111 == 0 {
		return fmt.Errorf("%s is not an executable file (mode %s)", path, info.Mode())
	}
	return nil
}

// start starts n clusters in parallel. Either all of them run and stop ends them,
// or it returns an error and leaves none.
func start(dir string, n int, flags ...string) (configs []*rest.Config, stop func() error, err error) {
	clusters, err := startAll(n, func() (*cluster, error) { return startOne(dir, flags) })
	if err != nil {
		return nil, nil, err
	}
	for _, c := range clusters {
		configs = append(configs, c.config)
	}
	return configs, func() error { return stopAll(clusters) }, nil
}

// startAll calls startNew n times in parallel. It returns all clusters, or an error and leaves none.
func startAll(n int, startNew func() (*cluster, error)) ([]*cluster, error) {
	clusters := make([]*cluster, n)
	failures := make([]error, n)
	var starting sync.WaitGroup
	for i := range n {
		starting.Go(func() { clusters[i], failures[i] = startNew() })
	}
	starting.Wait()
	if err := errors.Join(failures...); err != nil {
		return nil, errors.Join(err, stopAll(clusters))
	}
	return clusters, nil
}

// stopAll stops clusters in parallel; those that are nil have not started.
func stopAll(clusters []*cluster) error {
	failures := make([]error, len(clusters))
	var stopping sync.WaitGroup
	for i, c := range clusters {
		if c != nil {
			stopping.Go(func() { failures[i] = c.stop() })
		}
	}
	stopping.Wait()
	return errors.Join(failures...)
}

func report(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("stop API servers: %v", err)
	}
}

// cluster is one running etcd with its kube-apiserver.
type cluster struct {
	environment *envtest.Environment
	config      *rest.Config
	guard       *guard.Guard
	first       map[string]entry // what the store held when the server had started and was prepared; nil before, and unless it is lent
}

func startOne(dir string, flags []string) (*cluster, error) {
	own, err := guard.New()
	if err != nil {
		return nil, err
	}
	c := &cluster{guard: own, environment: &envtest.Environment{
		// USE_EXISTING_CLUSTER in the environment must not direct tests at a real cluster.
		UseExistingCluster:       new(false),
		ControlPlaneStartTimeout: startTimeout,
		ControlPlaneStopTimeout:  stopTimeout,
	}}
	if err := c.start(dir, flags); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

func (c *cluster) start(dir string, flags []string) error {
	plane := &c.environment.ControlPlane
	plane.Etcd = &envtest.Etcd{}
	server := plane.GetAPIServer()
	var err error
	plane.Etcd.Configure().Set("unsafe-no-fsync", "true") // see wrap
	if plane.Etcd.Path, err = c.guard.Wrap(dir, "etcd"); err != nil {
		return err
	}
	if server.Path, err = c.guard.Wrap(dir, "kube-apiserver"); err != nil {
		return err
	}
	if plane.Etcd.DataDir, err = c.guard.MakeDir("data"); err != nil {
		return err
	}
	if server.CertDir, err = c.guard.MakeDir("certificates"); err != nil {
		return err
	}
	if server.Authn, err = newIdentities(); err != nil {
		return err
	}
	// By default the server resolves the Service of a webhook by name, in the DNS of the machine, which does not have the name or,
	// worse, has an unrelated one. With this flag it uses the endpoints, and knows when there are none.
	server.Configure().Set("enable-aggregator-routing", "true")
	for _, flag := range flags {
		name, value, _ := strings.Cut(flag, "=")
		server.Configure().Set(name, value)
	}
	c.config, err = c.environment.Start()
	if err != nil {
		return fmt.Errorf("start etcd and kube-apiserver from %s: %w; last lines of their output:\n%s", dir, err, c.guard.Logs())
	}
	// envtest creates certificates for webhooks in a directory that the guard does not know; no test needs them.
	return c.environment.WebhookInstallOptions.Cleanup()
}

func (c *cluster) stop() error {
	killed := c.guard.Kill()
	// Stop waits until the processes have ended. It returns "no such process" if it
	// signals a process that has just died and was not reaped yet.
	stopped := c.environment.Stop()
	if errors.Is(stopped, syscall.ESRCH) {
		stopped = nil
	}
	return errors.Join(killed, stopped, c.guard.Release())
}
