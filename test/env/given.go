// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// The kubeconfigs of clusters that tests use instead of bringing up their own. The images of product and tests must have been loaded into them
// (LoadNeeded does it on the playground). A third one serves tests that need three.
const (
	ConsumerVariable = "LIQO_E2E_CONSUMER_KUBECONFIG"
	ProviderVariable = "LIQO_E2E_PROVIDER_KUBECONFIG"
	ThirdVariable    = "LIQO_E2E_THIRD_KUBECONFIG"
)

// The scenarios in whose place clusters can be given. Those in the place of Stateful and Three must be the playground's, with networks as theirs.
const (
	Pair     = "quick-start"
	Stateful = "stateful"
	Three    = "testdata/three.yaml"
)

// Given returns the kubeconfigs of the environment for a scenario, consumer first; none if the tests bring up clusters of their own.
func Given(scenario string) (kubeconfigs []string, err error) {
	consumer, provider, third := os.Getenv(ConsumerVariable), os.Getenv(ProviderVariable), os.Getenv(ThirdVariable)
	switch {
	case consumer == "" && provider == "":
		return nil, nil
	case consumer == "" || provider == "":
		return nil, fmt.Errorf("only one of %s and %s is set; set both, or none", ConsumerVariable, ProviderVariable)
	}
	all := []string{consumer, provider}
	switch {
	case scenario == Pair:
		return all, nil
	case scenario == Three && third != "":
		all = append(all, third)
	case scenario != Stateful:
		return nil, nil
	}
	if !playgroundHas(&Env{Bin: filepath.Join(root, "bin")}, scenario, all) {
		return nil, nil
	}
	return all, nil
}

// placeNames are the names that given clusters have for Liqo and for tests, whatever the playground calls them.
var placeNames = []string{"rome", "milan", "turin"}

// use connects to clusters that are up. If the playground runs them, its faults and audit logs can be used.
func use(scenario string, kubeconfigs []string) (*Env, error) {
	e := &Env{Bin: filepath.Join(root, "bin")}
	if _, err := os.Stat(filepath.Join(e.Bin, "liqoctl")); err != nil {
		return nil, fmt.Errorf("bin/liqoctl is missing (%w); run: make build", err)
	}
	if playgroundHas(e, scenario, kubeconfigs) {
		return e, nil
	}
	for i, name := range placeNames[:2] {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfigs[i])
		if err != nil {
			return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfigs[i], err)
		}
		c := &Cluster{Name: name, NodePrefix: name, env: e, kubeconfig: kubeconfigs[i], config: config}
		if c.API, err = connect(config); err != nil {
			return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfigs[i], err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		var nodes corev1.NodeList
		if err := c.API.List(ctx, &nodes); err != nil {
			return nil, fmt.Errorf("list nodes with kubeconfig %s: %w", kubeconfigs[i], err)
		}
		for _, node := range nodes.Items {
			if node.Labels["liqo.io/type"] != "virtual-node" {
				c.Nodes = append(c.Nodes, &Node{Name: node.Name, Cluster: c})
			}
		}
		e.Clusters = append(e.Clusters, c)
	}
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		return nil, fmt.Errorf("these clusters are not the playground's, so kubectl must be in PATH: %w", err)
	}
	e.Tools = filepath.Dir(kubectl)
	return e, nil
}

// playgroundHas fills e from the playground if the clusters of these kubeconfigs are its own.
func playgroundHas(e *Env, scenario string, kubeconfigs []string) bool {
	if _, err := os.Stat(filepath.Join(e.Bin, "playground")); err != nil || os.Geteuid() != 0 {
		return false
	}
	found := &Env{Bin: e.Bin}
	if err := found.meet(""); err != nil {
		return false
	}
	var chosen []*Cluster
	for place, kubeconfig := range kubeconfigs {
		i := slices.IndexFunc(found.Clusters, func(c *Cluster) bool { return c.kubeconfig == kubeconfig })
		if i < 0 {
			return false
		}
		c := found.Clusters[i]
		c.env = e
		if scenario != Stateful { // its guide names them
			c.Name = placeNames[place]
		}
		chosen = append(chosen, c)
	}
	e.Tools, e.Clusters, e.playground = found.Tools, chosen, true
	return true
}

// HasPlayground reports whether the clusters are the playground's.
func (b *Env) HasPlayground() bool { return b.playground }

// NeedsPlayground skips a test on other clusters than the playground's. what names the ability it needs, for example faults or audit logs.
func (b *Env) NeedsPlayground(t testing.TB, what string) {
	t.Helper()
	if !b.playground {
		t.Skipf("NOT RUN: it needs %s of the playground, and these clusters are given by %s and %s", what, ConsumerVariable, ProviderVariable)
	}
}

// LoadNeeded puts images into all nodes: archives below bin, or names of images that the playground ships. On other clusters the images
// must have been loaded before.
func (b *Env) LoadNeeded(images ...string) error {
	if !b.playground {
		return nil
	}
	for _, image := range images {
		if filepath.Ext(image) == ".tar" {
			image = filepath.Join(b.Bin, image)
		}
		if err := b.Load(image); err != nil {
			return err
		}
	}
	return nil
}
