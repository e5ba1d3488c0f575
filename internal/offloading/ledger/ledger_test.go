// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	secrets = schema.GroupResource{Resource: "secrets"}
	start   = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// peerOf is the peer of a namespace of a test.
func peerOf(namespace string) string {
	_, peer, _ := strings.Cut(namespace, "-")
	return peer
}

// try asks a ledger for a new object of a peer.
func try(t *testing.T, l *Ledger, c Change, problem string) Verdict {
	t.Helper()
	c.Peer, c.New, c.Kept, c.Now = peerOf(c.Key.Namespace), true, true, start
	verdict := l.Admit(c)
	if (verdict.Problem == "") != (problem == "") || !strings.Contains(verdict.Problem, problem) {
		t.Errorf("%v: %q, want %q", c.Key, verdict.Problem, problem)
	}
	return verdict
}

func secret(namespace, name string, bytes int64) Change {
	return Change{Key: Key{secrets, namespace, name}, Use: Use{Bytes: bytes}}
}

// TestAttackNH4: a peer stays within the bounds of the cluster in all its namespaces together, and others are not kept from theirs.
func TestAttackNH4(t *testing.T) {
	limits := Limits{Use: Use{Bytes: 1 << 20}}
	if err := limits.Add(corev1.ResourceList{
		"services": resource.MustParse("40"), "services.nodeports": resource.MustParse("100"), "services.loadbalancers": resource.MustParse("5"),
		"persistentvolumeclaims": resource.MustParse("20"), "requests.storage": resource.MustParse("1Ti"),
		"count/ingresses.networking.k8s.io": resource.MustParse("3"),
	}); err != nil {
		t.Fatal(err)
	}
	if err := (&Limits{}).Add(corev1.ResourceList{"pods": resource.MustParse("1")}); err == nil {
		t.Error("pods are bounded by a grant, and not here")
	}
	ingresses := schema.GroupResource{Group: "networking.k8s.io", Resource: "ingresses"}
	for what, c := range map[string]struct {
		kind   schema.GroupResource
		use    Use
		admits int
		want   string
	}{
		"node ports":     {Services, Use{NodePorts: 10}, 10, "node ports of the peer in this cluster would be 110"},
		"load balancers": {Services, Use{LoadBalancers: 1, NodePorts: 1}, 5, "load balancers of the peer in this cluster would be 6"},
		"Services":       {Services, Use{}, 40, "40 services of the peer already"},
		"claims":         {Claims, Use{Storage: 1 << 30}, 20, "20 persistentvolumeclaims"},
		"storage":        {Claims, Use{Storage: 100 << 30}, 10, "storage of the peer in this cluster would be 1100Gi"},
		"Ingresses":      {ingresses, Use{}, 3, "3 ingresses.networking.k8s.io"},
		"bytes":          {secrets, Use{Bytes: 100 << 10}, 10, "would be 1100Ki"},
	} {
		t.Run(what, func(t *testing.T) {
			l, admitted := New(limits), 0
			var last string
			for i := range 60 { // each in a namespace of its own
				verdict := l.Admit(Change{Key: Key{c.kind, fmt.Sprintf("web%d-rome", i), "a"}, Use: c.use, Peer: "rome", New: true, Kept: true, Now: start})
				if last = verdict.Problem; last != "" {
					break
				}
				admitted++
			}
			if admitted != c.admits || !strings.Contains(last, c.want) {
				t.Errorf("%d objects in as many namespaces are admitted, want %d; then: %q, want %q", admitted, c.admits, last, c.want)
			}
			try(t, l, Change{Key: Key{c.kind, "web-milan", "a"}, Use: c.use}, "")
		})
	}
}

// TestAttackNH4Again: who creates an object that is there with less than it has is asked here first, and refused by the API server then. The object
// counts with what it has.
func TestAttackNH4Again(t *testing.T) {
	l, admitted := New(Limits{Use: Use{Bytes: 1000, LoadBalancers: 5}}), 0
	create := func(i int, use Use) bool {
		key := Key{Services, "web-rome", fmt.Sprint(i)}
		return l.Admit(Change{Key: key, Use: use, Peer: "rome", New: true, Kept: true, Now: start}).Problem == ""
	}
	for ; admitted < 100 && create(admitted, Use{Bytes: 100, LoadBalancers: 1}); admitted++ {
		create(admitted, Use{Bytes: 1})
	}
	if _, use := l.Has("rome", Services); admitted != 5 || use[Bytes] != 500 {
		t.Errorf("%d load balancers are admitted, and have %d bytes, want 5 with 500", admitted, use[Bytes])
	}
}

// TestAttackNH4All: many peers together do not fill etcd, and each gets its part although others have taken theirs first.
func TestAttackNH4All(t *testing.T) {
	l := New(Limits{Use: Use{Bytes: 500}, AllBytes: 1000})
	try(t, l, secret("web-rome", "a", 500), "")
	try(t, l, secret("web-rome", "b", 1), "501")
	try(t, l, secret("web-milan", "a", 450), "")
	try(t, l, secret("web-paris", "a", 300), "")
	try(t, l, secret("web-paris", "b", 34), "all peers")
	try(t, l, secret("web-milan", "b", 1), "all peers")
	l.Forget(Key{secrets, "web-rome", "a"})
	try(t, l, secret("web-milan", "b", 50), "")
}

// TestAttackNH5: who writes one object again and again is stopped after a burst, may go on as time passes, and does not stop another peer.
func TestAttackNH5(t *testing.T) {
	l := New(Limits{Use: Use{Bytes: 256 << 20}, Rate: 1 << 20, Burst: 64 << 20})
	write := func(namespace string, now time.Time, dryRun bool) Verdict {
		c := secret(namespace, "a", 1<<20)
		c.Peer, c.Kept, c.Written, c.Now, c.DryRun = peerOf(namespace), true, true, now, dryRun
		return l.Admit(c)
	}
	admitted := 0
	for ; admitted < 1000 && write("web-rome", start, false).Problem == ""; admitted++ {
	}
	if admitted != 64 {
		t.Errorf("%d MiB are admitted at once, want 64", admitted)
	}
	verdict := write("shop-rome", start, false)
	if verdict.Wait < time.Second || verdict.Wait > 2*time.Second || !strings.Contains(verdict.Problem, "1Mi") {
		t.Errorf("another namespace of the peer: %+v, want a wait of a second", verdict)
	}
	if verdict := write("web-milan", start, false); verdict.Problem != "" {
		t.Errorf("another peer: %q", verdict.Problem)
	}
	after := start.Add(10 * time.Second)
	for range 20 {
		if verdict := write("web-rome", after, true); verdict.Problem != "" {
			t.Errorf("a dry run after ten seconds: %q", verdict.Problem)
		}
	}
	admitted = 0
	for ; admitted < 1000 && write("web-rome", after, false).Problem == ""; admitted++ {
	}
	if admitted != 10 {
		t.Errorf("%d MiB are admitted after ten seconds, want 10", admitted)
	}
	// What the peer does not write itself costs it nothing, and a clock that goes back gives nothing.
	c := secret("web-rome", "a", 1<<20)
	c.Peer, c.Kept, c.Now = "rome", true, after
	if verdict := l.Admit(c); verdict.Problem != "" {
		t.Errorf("an update by another client: %q", verdict.Problem)
	}
	if write("web-rome", start, false).Problem == "" {
		t.Error("a clock that goes back fills the bucket")
	}
}

// TestAttackNH5All: ten peers that write as fast as they may store no more revisions than etcd can keep, and one that writes
// little never waits.
func TestAttackNH5All(t *testing.T) {
	const peers, seconds = 10, 600
	l := New(Limits{Use: Use{Bytes: 256 << 20}, AllBytes: 1 << 30, Rate: 1 << 20, Burst: 64 << 20, AllRate: 1 << 20, AllBurst: 64 << 20})
	write := func(peer string, bytes int64, now time.Time) bool {
		c := secret("web-"+peer, "a", bytes)
		c.Peer, c.Kept, c.Written, c.Now = peer, true, true, now
		return l.Admit(c).Problem == ""
	}
	total := 0
	for second := range seconds {
		now := start.Add(time.Duration(second) * time.Second)
		for peer := range peers {
			for write(fmt.Sprint("evil", peer), 1<<20, now) {
				total++
			}
		}
		if !write("milan", 64<<10, now) {
			t.Fatalf("an honest peer has to wait after %d seconds", second)
		}
	}
	if most := seconds + 2*64 + peers; total > most {
		t.Errorf("%d MiB are written in %d seconds, want at most %d", total, seconds, most)
	}
	verdict := l.Admit(Change{Key: Key{secrets, "web-evil0", "a"}, Use: Use{Bytes: 1 << 20}, Peer: "evil0", Written: true, Now: start.Add(seconds * time.Second)})
	if verdict.Wait == 0 || !strings.Contains(verdict.Problem, "all peers together") {
		t.Errorf("the answer is %+v", verdict)
	}
}

// TestLedger: what a peer has counts in all its namespaces, and what it deletes does not once its objects are listed again.
func TestLedger(t *testing.T) {
	l := New(Limits{Objects: map[schema.GroupResource]int64{secrets: 100}, Use: Use{Bytes: 1000}})
	kinds := map[schema.GroupResource]bool{secrets: true}
	try(t, l, secret("web-rome", "a", 600), "")
	if verdict := try(t, l, secret("shop-rome", "b", 500), "1100"); !verdict.Stale {
		t.Error("a refusal is no reason to list the objects again")
	}
	dry := secret("web-rome", "dry", 400)
	dry.DryRun = true
	try(t, l, dry, "")
	try(t, l, secret("shop-rome", "b", 400), "")
	try(t, l, secret("web-rome", "a", 601), "1001")
	try(t, l, secret("web-rome", "a", 100), "")
	try(t, l, secret("web-rome", "a", 600), "")
	mark := l.Mark(start.Add(Storing))
	smaller := secret("web-rome", "a", 500)
	smaller.Peer, smaller.Kept, smaller.Now = "rome", true, start
	if verdict := l.Admit(smaller); verdict.Problem != "" { // an update, while the list runs
		t.Errorf("an object that becomes smaller: %q", verdict.Problem)
	}
	l.Replace("rome", kinds, nil, map[Key]Use{{secrets, "web-rome", "a"}: {Bytes: 600}, {secrets, "more-rome", "c"}: {Bytes: 50}}, mark)
	if number, use := l.Has("rome", secrets); number != 2 || use[Bytes] != 550 {
		t.Errorf("after the list, the peer has %d objects with %v, want 2 with 550 bytes", number, use)
	}
	// The owner of a namespace becomes known after its objects.
	l.Note(Key{secrets, "late-rome", "x"}, "late-rome")
	try(t, l, secret("late-rome", "x", 40), "")
	if number, use := l.Has("rome", secrets); number != 3 || use[Bytes] != 590 {
		t.Errorf("with a namespace that became known late, the peer has %d objects with %v", number, use)
	}
	l.Forget(Key{secrets, "late-rome", "x"})
	l.Forget(Key{secrets, "late-rome", "x"})
	// A bound that has become smaller: an object may still become smaller.
	l.limits.Use[Bytes] = 300
	try(t, l, secret("web-rome", "a", 501), "551")
	try(t, l, secret("web-rome", "a", 499), "")
	l.Retain(func(peer string) bool { return peer != "rome" })
	if len(l.spaces) > 0 || l.bytes != 0 || l.peers["rome"] != nil {
		t.Errorf("left: %v, %d bytes", l.spaces, l.bytes)
	}
}

// TestUnderWay: what was admitted a moment before a list began may be stored after it, so that its absence is no proof.
func TestUnderWay(t *testing.T) {
	kinds := map[schema.GroupResource]bool{secrets: true}
	a, b := Key{secrets, "web-rome", "a"}, Key{secrets, "web-rome", "b"}
	l := New(Limits{Objects: map[schema.GroupResource]int64{secrets: 2}})
	has := func(when string, objects, bytes int64) {
		t.Helper()
		if number, use := l.Has("rome", secrets); number != objects || use[Bytes] != bytes {
			t.Errorf("%s: %d objects with %d bytes, want %d with %d", when, number, use[Bytes], objects, bytes)
		}
	}
	try(t, l, secret("web-rome", "a", 100), "")
	try(t, l, secret("web-rome", "b", 100), "")
	if !l.Replace("rome", kinds, nil, map[Key]Use{a: {Bytes: 100}}, l.Mark(start)) {
		t.Error("nothing is to be listed again, while b may be on its way")
	}
	has("b is on its way", 2, 200)
	try(t, l, secret("web-rome", "c", 100), "at most 2")
	if l.Replace("rome", kinds, nil, map[Key]Use{a: {Bytes: 100}, b: {Bytes: 100}}, l.Mark(start)) {
		t.Error("all is there, and is to be listed again")
	}
	update := secret("web-rome", "b", 300)
	update.Peer, update.Kept, update.Now = "rome", true, start
	l.Admit(update)
	if !l.Replace("rome", kinds, nil, map[Key]Use{a: {Bytes: 100}, b: {Bytes: 100}}, l.Mark(start)) {
		t.Error("nothing is to be listed again, while an update may be on its way")
	}
	has("an update is on its way", 2, 400)
	l.Replace("rome", kinds, nil, map[Key]Use{b: {Bytes: 100}}, l.Mark(start))
	has("what a list had before was deleted", 1, 300)
	if l.Replace("rome", kinds, nil, map[Key]Use{}, l.Mark(start.Add(Storing))) {
		t.Error("what was not stored is to be listed again")
	}
	has("later", 0, 0)
}

// TestStale: a peer that comes near to a bound, with objects some of which may be gone, is listed again before it is refused.
func TestStale(t *testing.T) {
	l := New(Limits{Objects: map[schema.GroupResource]int64{secrets: 100}})
	var lists []int
	for i := range 100 {
		if try(t, l, secret("web-rome", fmt.Sprint(i), 1), "").Stale {
			lists = append(lists, i+1)
			l.Replace("rome", nil, nil, nil, l.Mark(start))
		}
	}
	if fmt.Sprint(lists) != "[80 90 100]" {
		t.Errorf("lists after %v objects", lists)
	}
}

// TestMeasure: what counts of a Service or a claim is what the cluster gives for it.
func TestMeasure(t *testing.T) {
	for text, c := range map[string]struct {
		kind schema.GroupResource
		want Use
	}{
		`{"metadata":{"name":"x"},` +
			`"spec":{"type":"ClusterIP","ports":[{},{}]}}`: {Services, Use{}},
		`{"metadata":{"name":"x"},"spec":{"type":"NodePort","ports":[{},` +
			`{"nodePort":30000}]}}`: {Services, Use{NodePorts: 2}},
		`{"metadata":{"name":"x"},"spec":{"type":"LoadBalancer","ports":[{},{}]}}`: {
			Services, Use{NodePorts: 2, LoadBalancers: 1},
		},
		`{"metadata":{"name":"x"},"spec":{"type":"LoadBalancer","externalTrafficPolicy":"Local","allocateLoadBalancerNodePorts":false,` +
			`"ports":[{},{"nodePort":1}]}}`: {Services, Use{NodePorts: 2, LoadBalancers: 1}},
		`{"metadata":{"name":"x"},"spec":{"resources":{"requests":{"storage":"10Gi"}}}}`: {
			Claims, Use{Storage: 10 << 30},
		},
		`{"metadata":{"name":"x"},"spec":{"resources":{"requests":{"storage":"9E"}}}}`: {
			Claims, Use{Storage: maxStorage},
		},
		`{"metadata":{"name":"x"},` +
			`"spec":{"resources":{"requests":{"storage":"-1"}}}}`: {Claims, Use{}},
		`{"metadata":{"name":"x"},"spec":{"type":"NodePort"},"data":{}}`: {
			secrets, Use{},
		},
	} {
		c.want[Bytes] = int64(len(text))
		if got, name, err := Measure(c.kind, []byte(text), ""); got != c.want || name != "x" || err != nil {
			t.Errorf("%s: %v of %q (%v), want %v", text, got, name, err, c.want)
		}
	}
	if _, _, err := Measure(Claims, []byte(`{"metadata":{"name":"x"},"spec":{"resources":{"requests":{"storage":"1e999999999"}}}}`), "x"); err == nil {
		t.Error("an amount that takes hours is read")
	}
}
