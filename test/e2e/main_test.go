// SPDX-License-Identifier: Apache-2.0

// Package e2e runs the product on real clusters, as a user would: with its programs and kubeconfigs only.
// It knows nothing of the product's code but the public API types. The clusters are the quick start of
// the playground, with audit logs; it brings them up and takes them away. Run it with: make e2e
package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/go-logr/logr"

	discovery "liqo.io/liqo/apis/discovery/v1alpha1"
	network "liqo.io/liqo/apis/net/v1alpha1"
	sharing "liqo.io/liqo/apis/sharing/v1alpha1"
)

var (
	keep = flag.Bool("keep", false, "use the clusters that are up, and leave them up (for work on these tests)")

	bin          string   // folder of playground, liqoctl, liqo-image.tar
	tools        string   // folder of kubectl
	rome, milan  *cluster // consumer and provider, unless a test says otherwise
	measurements []string
)

func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	if os.Geteuid() != 0 || testing.Short() {
		fmt.Println("SKIPPED: these tests make real clusters, for which they must be root and not -short")
		os.Exit(0)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	root, err := filepath.Abs("../..")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	bin = filepath.Join(root, "bin")
	for _, name := range []string{"playground", "liqoctl", "liqo-image.tar"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			fmt.Fprintf(os.Stderr, "bin/%s is missing (%v); run: make build image\n", name, err)
			return 1
		}
	}
	if !*keep {
		defer playground("down")
		if said := playground("down"); said.code != 0 {
			fmt.Fprintln(os.Stderr, said)
			return 1
		}
		for _, args := range [][]string{{"up", "quick-start", "--audit"}, {"load", filepath.Join(bin, "liqo-image.tar")}} {
			if said := playground(args...); said.code != 0 {
				fmt.Fprintln(os.Stderr, said)
				return 1
			}
		}
	}
	if err := meet(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if len(measurements) > 0 {
		fmt.Printf("measured:\n  %s\n", strings.Join(measurements, "\n  "))
	}
	return code
}

// meet fills rome, milan and the paths of tools and audit logs from what the playground says.
func meet() error {
	said := playground("status", "-o", "json")
	var status struct {
		Bin      string
		Clusters []struct {
			Name, Kubeconfig, AuditLog string
		}
	}
	if err := json.Unmarshal([]byte(said.out), &status); err != nil {
		return fmt.Errorf("%s: %w", said, err)
	}
	tools = status.Bin
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, discovery.AddToScheme, network.AddToScheme, sharing.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	for _, c := range status.Clusters {
		config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
		if err != nil {
			return err
		}
		config.QPS, config.Burst, config.WarningHandler = 500, 500, rest.NoWarnings{}
		api, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
		if err != nil {
			return err
		}
		known := &cluster{Name: c.Name, kubeconfig: c.Kubeconfig, audit: c.AuditLog, config: config, api: api}
		switch c.Name {
		case "rome":
			rome = known
		case "milan":
			milan = known
		}
	}
	if rome == nil || milan == nil {
		return fmt.Errorf("the clusters rome and milan are not both up: %s", said)
	}
	return nil
}

// result is how a program ended.
type result struct {
	args     string
	out, err string
	code     int
	took     time.Duration
}

func (r result) String() string {
	return fmt.Sprintf("%s\n      exit code %d after %v\n      said: %s\n      complained: %s",
		r.args, r.code, r.took.Round(time.Millisecond), strings.TrimSpace(r.out), strings.TrimSpace(r.err))
}

func execute(stdin string, env []string, name string, args ...string) result {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var out, complaint strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &complaint
	cmd.Env = append(os.Environ(), env...)
	began := time.Now()
	err := cmd.Run()
	r := result{args: filepath.Base(name) + " " + strings.Join(args, " "), out: out.String(), err: complaint.String(), took: time.Since(began)}
	if err != nil {
		r.code = cmd.ProcessState.ExitCode()
		if r.code <= 0 {
			r.code, r.err = 255, r.err+err.Error()
		}
	}
	return r
}

func playground(args ...string) result {
	return execute("", nil, filepath.Join(bin, "playground"), args...)
}

// measure keeps a line for the end of the run.
func measure(what, format string, values ...any) {
	measurements = append(measurements, fmt.Sprintf("%-60s %s", what, fmt.Sprintf(format, values...)))
}
