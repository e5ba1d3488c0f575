// SPDX-License-Identifier: Apache-2.0

package several

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
)

// moving is a claim of a virtual class, and a pod that writes to it on one node.
const moving = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: liqo, accessModes: [ReadWriteOnce], resources: {requests: {storage: 25Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: first}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {kubernetes.io/hostname: NODE}
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
  containers: [{name: main, image: "playground.local/tools:1", imagePullPolicy: Never, command: [sh, -c, "echo one >/data/file; sync; sleep infinity"], volumeMounts: [{name: data, mountPath: /data}]}]
`

// keysOfMoves is the attack N-M6: while a volume moves, no provider has keys of a pod that it does not run: neither the other side's, nor, if it is no side of
// the move, any.
func keysOfMoves(t *testing.T) {
	peered(t, star()...)
	a := app{"keys", rome, clusters.Clusters}
	a.offload(t)
	a.apply(t, strings.ReplaceAll(moving, "NODE", "liqo-milan"))
	rome.Kubectl(t, "-n", a.name, "wait", "--for=condition=Ready", "pod/first", "--timeout=120s")
	rome.Kubectl(t, "-n", a.name, "delete", "pod", "first", "--timeout=60s")
	for _, move := range []struct {
		to   string
		want map[*env.Cluster][]string // the ends of the names of keys that a provider has had
	}{
		{"liqo-turin", map[*env.Cluster][]string{milan: {"source"}, turin: {"target"}}},
		{rome.Nodes[0].Name, map[*env.Cluster][]string{milan: nil, turin: {"source"}}},
	} {
		seen := a.keysDuring(t, func() {
			if result := rome.TryLiqoctl("move", "volume", "data", "-n", a.name, "--target-node", move.to); result.Code != 0 ||
				!strings.Contains(result.Out, "verified") {
				t.Fatalf("move to %s: %s", move.to, result)
			}
		})
		for c, want := range move.want {
			if got := slices.Sorted(maps.Keys(seen[c])); !slices.Equal(got, want) {
				t.Errorf("during the move to %s, %s has had the keys %v, want %v", move.to, c.Name, got, want)
			}
		}
	}
}

// keysDuring returns the ends of the names of the keys that each provider has while a move runs.
func (a app) keysDuring(t *testing.T, run func()) map[*env.Cluster]map[string]bool {
	t.Helper()
	seen := map[*env.Cluster]map[string]bool{milan: {}, turin: {}}
	stop := make(chan struct{})
	var watching sync.WaitGroup
	for c, names := range seen {
		namespace := a.namespace(t, c)
		watching.Go(func() {
			ticks := time.NewTicker(100 * time.Millisecond)
			defer ticks.Stop()
			for {
				all, _ := c.Objects("v1/Secret", namespace)
				for i := range all {
					if name := all[i].GetName(); strings.HasPrefix(name, "liqo-move-") {
						names[name[strings.LastIndexByte(name, '-')+1:]] = true
					}
				}
				select {
				case <-stop:
					return
				case <-ticks.C:
				}
			}
		})
	}
	defer watching.Wait()
	defer close(stop)
	run()
	return seen
}
