// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"os"
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/execution"
)

// TestGalera: the database of examples/stateful-applications, whose members know each other, and themselves, by full names. Its replicas lead each
// other to the arbitrator by its address, so each member must have the same address in both clusters.
func TestGalera(t *testing.T) {
	overlapping(t, there)
	p := start(t, "galera", "galera-image.tar", "mover-image.tar")
	text, err := os.ReadFile("../../examples/stateful-applications/manifests/database.yaml")
	if err != nil {
		t.Fatal(err)
	}
	manifest := string(text)
	domain := ".db." + p.namespace + ".svc.cluster.local"
	for _, change := range []struct{ from, to string }{
		{"gcomm://db-0.db,db-1.db", "gcomm://db-0" + domain + ",db-1" + domain},
		{"--wsrep-node-address=$POD_IP", "--wsrep-node-address=$POD_NAME" + domain},
		{"topologyKey: kubernetes.io/hostname", "topologyKey: topology.liqo.io/region"},
	} {
		if !strings.Contains(manifest, change.from) {
			t.Fatalf("the manifest of the example has no %q any more", change.from)
		}
		manifest = strings.ReplaceAll(manifest, change.from, change.to)
	}
	p.kubectl(t, "create", "secret", "generic", "db-passwords", "--from-literal=root=one", "--from-literal=user=two")
	if r := rome.TryKubectl(manifest, "-n", p.namespace, "apply", "-f", "-"); r.Code != 0 {
		t.Fatal(r)
	}
	home, remote := p.ready(t, 2, "app=db")
	if len(home) != 1 || len(remote) != 1 {
		t.Fatalf("%d replicas are here and %d at the provider: this proves nothing", len(home), len(remote))
	}
	local, distant := home[0].Name, remote[0].Name
	p.sql(t, local, "CREATE TABLE IF NOT EXISTS people (name VARCHAR(20) PRIMARY KEY); REPLACE INTO people VALUES ('Smith')")
	p.reads(t, distant, "Smith")
	p.sql(t, distant, "REPLACE INTO people VALUES ('Rossi')")
	p.reads(t, local, "Rossi Smith")
	rows := []string{"Rossi Smith while " + distant + " was away", "Rossi Smith while db-0 was away while db-1 was away"}
	for i, pod := range []string{distant, local} {
		p.kubectl(t, "delete", "pod", pod)
		p.sql(t, []string{local, distant}[i], "REPLACE INTO people VALUES ('while "+pod+" was away')")
		p.ready(t, 2, "app=db")
		p.reads(t, pod, rows[i])
	}
	env.Eventually(t, env.Hang, "the cluster has three members", func() (string, bool) {
		r := p.mariadb(local, "SHOW STATUS LIKE 'wsrep_cluster_size'")
		return r.String(), strings.Contains(r.Out, "3")
	})
}

func (p program) mariadb(pod, statement string) execution.Result {
	return p.try(
		"exec", pod, "--", "sh", "-c",
		`MYSQL_PWD=$PASSWORD mariadb --no-defaults --host=127.0.0.1 --user=user --batch --skip-column-names my_database --execute="$0"`,
		statement,
	)
}

func (p program) sql(t *testing.T, pod, statement string) {
	t.Helper()
	env.Eventually(t, env.Hang, pod+" takes "+statement, func() (string, bool) {
		r := p.mariadb(pod, statement)
		return r.String(), r.Code == 0
	})
}

// reads waits until a replica has these rows.
func (p program) reads(t *testing.T, pod, want string) {
	t.Helper()
	env.Eventually(t, env.Hang, pod+" has the rows", func() (string, bool) {
		r := p.mariadb(pod, "SELECT name FROM people ORDER BY name")
		rows := strings.Join(strings.Fields(r.Out), " ")
		return r.String(), rows == want
	})
}
