// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/execution"
)

// TestEtcd: a quorum of three by names, one member here and two at the provider. The leader dies, once here and once there: the two others elect
// one of them and take writes, and the dead one returns with its volume.
func TestEtcd(t *testing.T) {
	p := start(t, "etcd", "etcd-image.tar")
	p.apply(t, "etcd")
	home, remote := p.ready(t, 3, "app=etcd")
	if len(home) != 1 || len(remote) != 2 {
		t.Fatalf("%d members are here and %d at the provider, want 1 and 2", len(home), len(remote))
	}
	for at, pod := range map[string]string{here: home[0].Name, there: remote[0].Name} {
		t.Run("the leader "+at+" dies", func(t *testing.T) {
			p.lead(t, pod)
			p.put(t, "before", at)
			began := time.Now()
			p.kubectl(t, "delete", "pod", pod, "--now", "--wait=false")
			env.Eventually(t, env.Hang, "another member leads", func() (string, bool) {
				now := p.leader()
				return now, now != pod && now != ""
			})
			clusters.Measure("etcd: another leader after that "+at+" died", "%.1f s", time.Since(began).Seconds())
			p.put(t, "after", at)
			p.ready(t, 3, "app=etcd")
			for i := range 3 {
				for _, key := range []string{"before", "after"} {
					member := fmt.Sprint("etcd-", i)
					env.Eventually(t, env.Hang, member+" has what was written "+key+" the death", func() (string, bool) {
						r := p.etcd(member, "kv/range", map[string]any{"key": base64.StdEncoding.EncodeToString([]byte(key)), "serializable": true})
						return r.String(), strings.Contains(r.Out, `"value":"`+base64.StdEncoding.EncodeToString([]byte(at))+`"`)
					})
				}
			}
		})
	}
}

// etcd asks a member by the API of etcd in JSON, through the API server.
func (p program) etcd(member, what string, body any) execution.Result {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // it stands in the test
	}
	return rome.TryKubectl(string(text), "create", "--raw", fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:2379/proxy/v3/%s", p.namespace, member, what), "-f", "-")
}

// status is what a member reports: its ID, and that of its leader.
func (p program) status(member string) (id, leader string) {
	var status struct {
		Header struct {
			Member string `json:"member_id"`
		}
		Leader string
	}
	if err := json.Unmarshal([]byte(p.etcd(member, "maintenance/status", map[string]any{}).Out), &status); err != nil {
		return "", ""
	}
	return status.Header.Member, status.Leader
}

// leader is the member that reports itself.
func (p program) leader() string {
	for i := range 3 {
		member := fmt.Sprint("etcd-", i)
		if id, leader := p.status(member); id != "" && id == leader {
			return member
		}
	}
	return ""
}

// lead makes a member the leader.
func (p program) lead(t *testing.T, member string) {
	t.Helper()
	env.Eventually(t, env.Hang, member+" leads", func() (string, bool) {
		leader := p.leader()
		if leader == member || leader == "" {
			return leader, leader == member
		}
		id, _ := p.status(member)
		return p.etcd(leader, "maintenance/transfer-leadership", map[string]any{"targetID": id}).String(), false
	})
}

// put writes a value through whichever member leads.
func (p program) put(t *testing.T, key, value string) {
	t.Helper()
	env.Eventually(t, env.Hang, "the quorum takes a write", func() (string, bool) {
		r := p.etcd(p.leader(), "kv/put", map[string]any{
			"key": base64.StdEncoding.EncodeToString([]byte(key)), "value": base64.StdEncoding.EncodeToString([]byte(value)),
		})
		return r.String(), r.Code == 0 && strings.Contains(r.Out, "revision")
	})
}
