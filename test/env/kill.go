// SPDX-License-Identifier: Apache-2.0

package env

import (
	"errors"
	"syscall"
	"testing"

	"liqo.io/liqo/apis/labels"
)

// Kill ends the processes of Liqo's component ; its kubelet starts them again.
func (c *Cluster) Kill(t *testing.T, component string) {
	t.Helper()
	n := 0
	for _, found := range []map[string]string{{labels.AppName: component}, {labels.AppComponent: component}} {
		pods, err := c.Pods("", found)
		if err != nil {
			t.Fatal(err)
		}
		for _, pod := range pods {
			if id, err := pod.Process("liqo"); err == nil {
				n++
				if err := syscall.Kill(id, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
					t.Errorf("kill process %d of %s: %v", id, pod.Name, err)
				}
			}
		}
		if n > 0 {
			return
		}
	}
	t.Fatalf("no process of %s runs in %s", component, c.Name)
}
