// SPDX-License-Identifier: Apache-2.0

package env

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/test/env/netns"
)

// Pod is a running pod of a node.
type Pod struct {
	Name, UID string
	Address   netip.Addr
	Node      *Node
	Restarts  int32
	Labels    map[string]string
}

// Node finds one by name.
func (c *Cluster) Node(name string) *Node {
	i := slices.IndexFunc(c.Nodes, func(n *Node) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return c.Nodes[i]
}

// Pods are those that run and are Ready, in the order of their nodes.
func (c *Cluster) Pods(namespace string, labels map[string]string) ([]Pod, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var list corev1.PodList
	if err := c.API.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels(labels)); err != nil {
		return nil, fmt.Errorf("list pods of %s: %w", c.Name, err)
	}
	var all []Pod
	for _, pod := range list.Items {
		ready := slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
			return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
		})
		address, err := netip.ParseAddr(pod.Status.PodIP)
		if !ready || pod.DeletionTimestamp != nil || err != nil || c.Node(pod.Spec.NodeName) == nil {
			continue
		}
		found := Pod{Name: pod.Name, UID: string(pod.UID), Address: address, Node: c.Node(pod.Spec.NodeName), Labels: pod.Labels}
		for _, status := range pod.Status.ContainerStatuses {
			found.Restarts += status.RestartCount
		}
		all = append(all, found)
	}
	slices.SortFunc(all, func(a, b Pod) int { return strings.Compare(a.Node.Name+a.Name, b.Node.Name+b.Name) })
	return all, nil
}

// Net is the node's own network, which pods with hostNetwork share.
func (n *Node) Net() netns.Place {
	place := netns.Named("lpg-" + n.Name)
	place.Name = n.Name
	return place
}

// Net is the pod's network. The pod must run.
func (p Pod) Net() (netns.Place, error) {
	all, err := p.Processes()
	if err != nil {
		return netns.Place{}, err
	}
	if len(all) == 0 {
		return netns.Place{}, fmt.Errorf("pod %s in %s has no process", p.Name, p.Node.Name)
	}
	place := netns.OfProcess(all[0])
	place.Name = p.Node.Name + "/" + p.Name
	return place, nil
}

// Beside is the pod's network, in the control groups for processor time of its program.
func (p Pod) Beside(program string) (netns.Place, error) {
	place, err := p.Net()
	if err != nil {
		return place, err
	}
	number, err := p.Process(program)
	if err != nil {
		return place, err
	}
	return place.Beside(number)
}

// Processes are the pod's processes by their numbers on this machine; the control group of each names its pod.
func (p Pod) Processes() (all []int, err error) {
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return nil, err
	}
	for _, file := range groups {
		text, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(text, []byte("/pod"+p.UID)) {
			continue // it may have ended since
		}
		number, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, err
		}
		all = append(all, number)
	}
	return all, nil
}

// Process is the one process of the pod whose program has the name.
func (p Pod) Process(program string) (int, error) {
	all, err := p.Processes()
	if err != nil {
		return 0, err
	}
	for _, number := range all {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", number))
		if first, _, _ := strings.Cut(string(line), "\x00"); err == nil && filepath.Base(first) == program {
			return number, nil
		}
	}
	return 0, fmt.Errorf("none of the processes %v of pod %s is a %s", all, p.Name, program)
}
