// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
)

// TestSentinel: three servers with their sentinels, by names, in two clusters. The master dies, wherever it is: the sentinels elect another one,
// nothing that was confirmed by all is lost, and the dead one returns as a replica.
func TestSentinel(t *testing.T) {
	p := start(t, "sentinel", "redis-image.tar")
	p.apply(t, "sentinel")
	home, remote := p.ready(t, 3, "app=redis")
	if len(home) != 1 || len(remote) != 2 {
		t.Fatalf("%d members are here and %d at the provider, want 1 and 2", len(home), len(remote))
	}
	p.settled(t)
	deaths := map[string]bool{}
	for i := 0; i < 4 && len(deaths) < 2; i++ { // until a master has died in each cluster, or the sentinels chose one cluster four times
		master := p.master(t)
		node := p.kubectl(t, "get", "pod", master, "-o", "jsonpath={.spec.nodeName}")
		key, value := fmt.Sprint("key-", i), "written to "+master
		if reply := p.redis(t, master, "set", key, value); reply != "OK" {
			t.Fatalf("set %s on %s: %s", key, master, reply)
		}
		if reply := p.redis(t, master, "wait", "2", "10000"); reply != "2" {
			t.Fatalf("%s of 2 replicas have confirmed", reply)
		}
		began := time.Now()
		p.kubectl(t, "delete", "pod", master, "--now", "--wait=false")
		env.Eventually(t, env.Hang, "the sentinels have another master than "+master, func() (string, bool) {
			now := p.asked()
			return now, now != master && now != ""
		})
		clusters.Measure("Redis Sentinel: another master after that on "+node+" died", "%.1f s", time.Since(began).Seconds())
		deaths[fmt.Sprint(node == virtualNode())] = true
		p.ready(t, 3, "app=redis")
		p.settled(t)
		if reply := p.redis(t, p.master(t), "get", key); reply != value {
			t.Errorf("%s is %q after the failover, want %q", key, reply, value)
		}
	}
}

// asked is the master of which a sentinel knows.
func (p program) asked() string {
	r := p.try("exec", "statefulset/redis", "-c", "sentinel", "--", "/usr/bin/redis-cli", "-p", "26379", "sentinel", "get-master-addr-by-name", "mymaster")
	name, _, _ := strings.Cut(strings.TrimSpace(r.Out), ".")
	return name
}

func (p program) master(t *testing.T) (name string) {
	t.Helper()
	env.Eventually(t, env.Hang, "there is a master", func() (string, bool) {
		name = p.asked()
		return name, name != ""
	})
	return name
}

func (p program) redis(t *testing.T, pod string, args ...string) string {
	t.Helper()
	return p.kubectl(t, append([]string{"exec", pod, "-c", "redis", "--", "/usr/bin/redis-cli"}, args...)...)
}

// settled waits until all three sentinels know the same master, two replicas and each other, by name, and both replicas are in sync.
func (p program) settled(t *testing.T) {
	t.Helper()
	env.Eventually(t, env.Hang, "three sentinels agree, and two replicas are in sync", func() (string, bool) {
		var seen []string
		good := true
		for i := range 3 {
			pod := fmt.Sprint("redis-", i)
			r := p.try("exec", pod, "-c", "sentinel", "--", "/usr/bin/redis-cli", "-p", "26379", "info", "sentinel")
			_, line, _ := strings.Cut(r.Out, "master0:")
			line, _, _ = strings.Cut(line, "\r")
			seen = append(seen, pod+": "+line)
			good = good && strings.Contains(line, "status=ok,") && strings.Contains(line, ".svc.cluster.local:6379,slaves=2,sentinels=3")
			if pod == p.asked() {
				info := p.try("exec", pod, "-c", "redis", "--", "/usr/bin/redis-cli", "info", "replication").Out
				seen = append(seen, info)
				good = good && strings.Count(info, "state=online") == 2
			}
		}
		return strings.Join(seen, "\n"), good
	})
}
