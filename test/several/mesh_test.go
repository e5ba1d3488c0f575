// SPDX-License-Identifier: Apache-2.0

package several

import (
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/traffic"
)

// consumerAndProvider: rome and milan use each other, and rome uses turin as well. The applications of both work in both, and the one of rome goes on when
// milan does not use rome any more.
func consumerAndProvider(t *testing.T) {
	peered(t, append(star(), use{milan, rome})...)
	ofRome, ofMilan := deploy(t, rome, "ours", milan, turin), deploy(t, milan, "theirs", rome)
	for _, a := range []app{ofRome, ofMilan} {
		a.answersEverywhere(t, a.in, a.in)
		a.notOffloadedOn(t)
	}
	before := ofRome.state(t, milan, rome, turin) + "\n" + ofRome.state(t, turin, rome, milan)
	milan.Liqoctl(t, "unpeer", "out-of-band", rome.Name)
	rome.WantColumns(t, milan, "Established None Established Established")
	ofRome.answersEverywhere(t, ofRome.in, ofRome.in)
	if after := ofRome.state(t, milan, rome, turin) + "\n" + ofRome.state(t, turin, rome, milan); after != before {
		t.Errorf("the application of rome before:\n%s\nand after milan unpeered rome:\n%s", before, after)
	}
	answers(t, ofMilan.at(t, milan), ofMilan.service(t, milan, ".spec.clusterIP")+":7001", milan)
}

// ring: each of three clusters uses the next one.
func ring(t *testing.T) {
	peered(t, use{rome, milan}, use{milan, turin}, use{turin, rome})
	all := []app{deploy(t, rome, "ring-rome", milan), deploy(t, milan, "ring-milan", turin), deploy(t, turin, "ring-turin", rome)}
	for _, a := range all {
		a.answersEverywhere(t, a.in, a.in)
		a.notOffloadedOn(t)
	}
}

// notOffloadedOn checks that no other cluster than those of the application has its namespace.
func (a app) notOffloadedOn(t *testing.T) {
	t.Helper()
	for _, c := range clusters.Clusters {
		count := 0
		for name := range strings.FieldsSeq(c.Kubectl(t, "get", "namespaces", "-o", "jsonpath={.items[*].metadata.name}")) {
			if name == a.name || strings.HasPrefix(name, a.name+"-") {
				count++
			}
		}
		want := 0
		for _, its := range a.in {
			if its == c {
				want = 1
			}
		}
		if count != want {
			t.Errorf("%s has %d namespaces of application %s, want %d", c.Name, count, a.name, want)
		}
	}
}

// fourClusters: each of four clusters uses each other one. Every pod reaches every pod of every cluster, and every application, which has a server in each
// cluster, answers from all of them in each.
func fourClusters(t *testing.T) {
	clusters.Measure("memory available with three clusters", "%s", available(t))
	genoa := clusters.Add(t, "genoa")
	installed(t, genoa)
	var all []use
	for _, consumer := range clusters.Clusters {
		for _, provider := range others(consumer) {
			all = append(all, use{consumer, provider})
		}
	}
	start := time.Now()
	peered(t, all...)
	clusters.Measure("four clusters, each of which uses the others: peered", "%.1f s", time.Since(start).Seconds())
	checks := 0
	for _, c := range clusters.Clusters {
		traffic.Serve(t, c)
	}
	for _, one := range all {
		checks += traffic.Matrix(t, clusters, one[0], one[1])
	}
	clusters.Measure("reachability of four clusters", "%d checks", checks)
	var apps []app
	for _, c := range clusters.Clusters {
		apps = append(apps, deploy(t, c, "mesh-"+c.Name, others(c)...))
	}
	for _, a := range apps {
		a.answersEverywhere(t, clusters.Clusters, clusters.Clusters)
	}
	clusters.Measure("memory available with four clusters and their applications", "%s", available(t))

	// Nothing that one does to the others keeps them from ending it.
	for _, c := range clusters.Clusters {
		c.Kubectl(t, "delete", "namespace", traffic.Namespace, "--timeout=60s")
	}
	peered(t)
	for _, c := range clusters.Clusters {
		env.Settled(t, c)
	}
}
