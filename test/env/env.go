// SPDX-License-Identifier: Apache-2.0

// Package env is the environment of tests on real clusters: the clusters, their nodes and pods, installing and peering Liqo on them, and what
// a failure leaves to read. The clusters are the playground's, or any two whose kubeconfigs are given by environment variables.
//
// It knows programs, kubeconfigs and the public API types, and nothing of the product's code. Each other noun of tests has a folder here: below
// this package execution, netns, audit and inventory; above it networks, traffic, wireguard and recorder. Its proof is the tests that use it.
package env

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discovery "liqo.io/liqo/apis/discovery/v1alpha1"
	network "liqo.io/liqo/apis/net/v1alpha1"
	offloading "liqo.io/liqo/apis/offloading/v1alpha1"
	sharing "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/test/env/execution"
)

// Env is a set of clusters that are up.
type Env struct {
	Bin      string // folder of our programs and images
	Tools    string // folder of kubectl and of the playground's own programs
	Clusters []*Cluster

	playground bool // the clusters are the playground's: there are faults, audit logs and network namespaces of nodes

	mu       sync.Mutex
	measured []string
	working  sync.Mutex // held while a command of the playground runs
}

// Playground runs a command of the playground. One after the other, also those of other processes that test on other clusters of the same scenario:
// the playground refuses a command while another one is at work. A name of a
// cluster among args stands for what the playground calls it.
func (b *Env) Playground(args ...string) execution.Result {
	b.working.Lock()
	defer b.working.Unlock()
	lock, err := os.OpenFile(filepath.Join(b.Bin, ".playground.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		defer lock.Close()
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		return execution.Result{Args: strings.Join(args, " "), Code: 1, Err: "wait for other commands of the playground: " + err.Error()}
	}
	args = slices.Clone(args)
	for i, arg := range args {
		if c := slices.IndexFunc(b.Clusters, func(c *Cluster) bool { return c.Name == arg }); c >= 0 {
			args[i] = b.Clusters[c].NodePrefix
		}
	}
	return execution.Run("", filepath.Join(b.Bin, "playground"), args...)
}

// Needed are the files that must have been built.
var Needed = []string{"playground", "liqoctl", "liqo-image.tar", "mover-image.tar", "traffic", "traffic-image.tar"}

// images of product and tests.
var images = []string{"liqo-image.tar", "mover-image.tar", "traffic-image.tar"}

// Up takes down the clusters that are up, and brings a scenario up with the images of product and tests; flags are further ones of
// `playground up`. With keep it uses the clusters that are up.
func Up(root, scenario string, keep bool, flags ...string) (*Env, error) {
	b := &Env{Bin: filepath.Join(root, "bin"), playground: true}
	for _, name := range Needed {
		if _, err := os.Stat(filepath.Join(b.Bin, name)); err != nil {
			return nil, fmt.Errorf("bin/%s is missing (%w); run: make image mover traffic", name, err)
		}
	}
	if !keep {
		for _, args := range [][]string{{"down"}, append([]string{"up", scenario}, flags...)} {
			if result := b.Playground(args...); result.Code != 0 {
				return nil, errors.New(result.String())
			}
		}
	}
	for _, image := range images {
		if result := b.Playground("load", filepath.Join(b.Bin, image)); result.Code != 0 {
			return nil, errors.New(result.String())
		}
	}
	return b, b.meet(scenario)
}

// Add brings up one more cluster, of one node, with the images of product and tests.
func (b *Env) Add(t testing.TB, name string) *Cluster {
	t.Helper()
	if r := b.Playground("add", name); r.Code != 0 {
		t.Fatal(r)
	}
	all := &Env{Bin: b.Bin}
	if err := all.meet(""); err != nil {
		t.Fatal(err)
	}
	for _, added := range all.Clusters {
		if added.Name == name {
			added.env = b
			b.Clusters = append(b.Clusters, added)
			if err := b.LoadNeeded(images...); err != nil {
				t.Fatal(err)
			}
			return added
		}
	}
	t.Fatalf("the playground has added cluster %s, but its status does not list it", name)
	return nil
}

// Down takes the clusters away.
func (b *Env) Down() error {
	if result := b.Playground("down"); result.Code != 0 {
		return errors.New(result.String())
	}
	return nil
}

func (b *Env) meet(scenario string) error {
	result := b.Playground("status", "-o", "json")
	var status struct {
		Scenario, Bin string
		Clusters      []struct {
			Name, Kubeconfig, AuditLog string
			PodCIDR                    netip.Prefix
			ServiceCIDR                netip.Prefix
			NodeCIDR                   netip.Prefix
			Machines                   []struct {
				Name    string
				Address netip.Addr
			}
		}
	}
	if err := json.Unmarshal([]byte(result.Out), &status); err != nil {
		return fmt.Errorf("%s: %w", result, err)
	}
	if name := strings.TrimSuffix(filepath.Base(scenario), ".yaml"); scenario != "" && status.Scenario != name { // it is a name, or a file
		return fmt.Errorf("the playground runs %q, want %q", status.Scenario, scenario)
	}
	b.Tools = status.Bin
	for _, found := range status.Clusters {
		c := &Cluster{
			Name: found.Name, NodePrefix: found.Name, AuditLog: found.AuditLog, env: b, kubeconfig: found.Kubeconfig, PodCIDR: found.PodCIDR,
			ServiceCIDR: found.ServiceCIDR, NodeCIDR: found.NodeCIDR,
		}
		for _, m := range found.Machines {
			if m.Name != "control-plane" { // a part of the first node, for the network
				c.Nodes = append(c.Nodes, &Node{Name: m.Name, Address: m.Address, Cluster: c})
			}
		}
		var err error
		if c.config, err = clientcmd.BuildConfigFromFlags("", found.Kubeconfig); err != nil {
			return fmt.Errorf("cluster %s: %w", c.Name, err)
		}
		if c.API, err = connect(c.config); err != nil {
			return fmt.Errorf("cluster %s: %w", c.Name, err)
		}
		b.Clusters = append(b.Clusters, c)
	}
	return nil
}

func connect(config *rest.Config) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, discovery.AddToScheme, network.AddToScheme, offloading.AddToScheme, sharing.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	config.QPS, config.Burst, config.WarningHandler = 500, 500, rest.NoWarnings{}
	return client.NewWithWatch(config, client.Options{Scheme: scheme})
}
