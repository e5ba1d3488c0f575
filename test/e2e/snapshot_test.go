// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
)

// objects lists every object of the cluster as group/resource namespace/name; passing kinds only where they are ours.
func (c *cluster) objects(t testing.TB) (all []string) {
	t.Helper()
	eventually(t, 30*time.Second, "all objects of "+c.Name+" are listed", func() (string, bool) {
		var err error
		all, err = env.Everything(c.config)
		return fmt.Sprint(err), err == nil
	})
	return all
}

// nothingNew waits until the cluster has no object that it had not before.
func (c *cluster) nothingNew(t testing.TB, before []string, within time.Duration) {
	t.Helper()
	eventually(t, within, "no object is left over in "+c.Name, func() (string, bool) {
		now, err := env.Everything(c.config)
		if err != nil {
			return err.Error(), false
		}
		extra := env.Added(before, now)
		return strings.Join(extra, "\n            "), len(extra) == 0
	})
}
