// SPDX-License-Identifier: Apache-2.0

package env

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"liqo.io/liqo/apis/labels"
)

// Kill ends the processes of Liqo's component; its kubelet starts them again, later each time.
func (c *Cluster) Kill(t *testing.T, component string) {
	t.Helper()
	if !c.TryKill(t, component) {
		t.Fatalf("no process of %s runs in %s", component, c.Name)
	}
}

// TryKill is Kill if a process runs, and otherwise returns false.
func (c *Cluster) TryKill(t *testing.T, component string) bool {
	t.Helper()
	return slices.ContainsFunc([]string{labels.AppName, labels.AppComponent}, func(name string) bool {
		return c.kill(t, map[string]string{name: component}) > 0
	})
}

// Replace is Kill with pods that start in place of the killed ones at once.
func (c *Cluster) Replace(t *testing.T, component string) {
	t.Helper()
	c.Kill(t, component)
	c.Renew(t, component)
}

// Renew has pods start at once in place of those whose processes were killed.
func (c *Cluster) Renew(t *testing.T, component string) {
	t.Helper()
	for _, name := range []string{labels.AppName, labels.AppComponent} {
		c.Kubectl(t, "delete", "pods", "-A", "-l", name+"="+component, "--force", "--grace-period=0", "--wait=false")
	}
}

// KillAll ends every process of Liqo and returns how many there were.
func (c *Cluster) KillAll(t *testing.T) (n int) {
	t.Helper()
	if n = c.kill(t, map[string]string{labels.AppPartOf: labels.PartOf}); n == 0 {
		t.Fatalf("no process of Liqo runs in %s", c.Name)
	}
	return n
}

func (c *Cluster) kill(t *testing.T, found map[string]string) (n int) {
	t.Helper()
	var pods []Pod
	Eventually(t, Hang, "the API server lists the pods to kill", func() (string, bool) { // it may be slow, or just starting
		var err error
		pods, err = c.Pods("", found)
		return fmt.Sprint(err), err == nil
	})
	for _, pod := range pods {
		if id, err := pod.Process("liqo"); err == nil {
			n++
			if err := syscall.Kill(id, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Errorf("kill process %d of %s: %v", id, pod.Name, err)
			}
		}
	}
	return n
}
