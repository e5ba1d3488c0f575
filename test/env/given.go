// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// The kubeconfigs of two clusters that tests use instead of bringing up their own. The images of product and tests must
// have been loaded into them (LoadNeeded does it on the playground).
const (
	ConsumerVariable = "LIQO_E2E_CONSUMER_KUBECONFIG"
	ProviderVariable = "LIQO_E2E_PROVIDER_KUBECONFIG"
)

// Given returns the kubeconfigs of the environment, consumer first; none if the tests bring up clusters of their own.
func Given() (kubeconfigs []string, err error) {
	consumer, provider := os.Getenv(ConsumerVariable), os.Getenv(ProviderVariable)
	switch {
	case consumer == "" && provider == "":
		return nil, nil
	case consumer == "" || provider == "":
		return nil, fmt.Errorf("only one of %s and %s is set; set both, or none", ConsumerVariable, ProviderVariable)
	}
	return []string{consumer, provider}, nil
}

// use connects to clusters that are up. If the playground runs them, its faults and audit logs can be used.
func use(root string, kubeconfigs []string) (*Env, error) {
	e := &Env{Bin: filepath.Join(root, "bin")}
	if _, err := os.Stat(filepath.Join(e.Bin, "liqoctl")); err != nil {
		return nil, fmt.Errorf("bin/liqoctl is missing (%w); run: make build", err)
	}
	if playgroundHas(e, kubeconfigs) {
		return e, nil
	}
	for i, name := range []string{"rome", "milan"} {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfigs[i])
		if err != nil {
			return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfigs[i], err)
		}
		c := &Cluster{Name: name, env: e, kubeconfig: kubeconfigs[i], config: config}
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

// playgroundHas fills e from the playground if the clusters of these kubeconfigs are its own, in the same order.
func playgroundHas(e *Env, kubeconfigs []string) bool {
	if _, err := os.Stat(filepath.Join(e.Bin, "playground")); err != nil || os.Geteuid() != 0 {
		return false
	}
	found := &Env{Bin: e.Bin}
	if err := found.meet(""); err != nil {
		return false
	}
	for i, kubeconfig := range kubeconfigs {
		if i >= len(found.Clusters) || found.Clusters[i].kubeconfig != kubeconfig {
			return false
		}
	}
	e.Tools, e.Clusters, e.playground = found.Tools, found.Clusters, true
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
