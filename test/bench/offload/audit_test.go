// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
)

// writes are API calls of our identities that change something.
type writes struct {
	Total  int
	Across int            `json:",omitempty"` // by the consumer's identity at the provider
	ByCall map[string]int `json:",omitempty"` // identity, verb, resource
	Failed map[string]int `json:",omitempty"` // the same, of those that were refused
}

// call is one line of an audit log.
type call struct {
	StageTimestamp time.Time
	Verb           string
	User           struct{ Username string }
	ObjectRef      struct{ Resource, Subresource, Namespace, Name string }
	ResponseStatus struct{ Code int }
}

// String leaves out what differs from one object to the next.
func (c call) String() string {
	words := strings.Split(c.User.Username, ":")
	resource := c.ObjectRef.Resource
	if c.ObjectRef.Subresource != "" {
		resource += "/" + c.ObjectRef.Subresource
	}
	return words[len(words)-1] + " " + c.Verb + " " + resource
}

// peerAccount is the name of the account by which a consumer works at its provider.
const peerAccount = ":liqo-peer"

// written counts writes of ours between two moments, but for those that except picks.
func written(t testing.TB, c *env.Cluster, from, to time.Time, except func(call) bool) writes {
	t.Helper()
	sum := writes{ByCall: map[string]int{}, Failed: map[string]int{}}
	for _, found := range calls(t, c, from, to) {
		if !slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, found.Verb) || except != nil && except(found) {
			continue
		}
		sum.Total++
		sum.ByCall[found.String()]++
		if found.ResponseStatus.Code >= 400 {
			sum.Failed[found.String()]++
		}
		if strings.HasSuffix(found.User.Username, peerAccount) {
			sum.Across++
		}
	}
	return sum
}

// calls reads the audit log and what was rotated away from it meanwhile. Only lines of the time and of our identities are decoded: a log of
// 100 MB is usual.
func calls(t testing.TB, c *env.Cluster, from, to time.Time) (all []call) {
	t.Helper()
	logs, err := filepath.Glob(strings.TrimSuffix(c.AuditLog, ".log") + "*.log")
	if err != nil || len(logs) == 0 {
		t.Fatalf("no audit log %s of %s: %v", c.AuditLog, c.Name, err)
	}
	const key, layout = `"stageTimestamp":"`, "2006-01-02T15:04:05.000000Z"
	first, last := []byte(from.UTC().Format(layout)), []byte(to.UTC().Format(layout))
	for _, name := range logs {
		info, err := os.Stat(name)
		if err != nil || info.ModTime().Before(from) {
			continue
		}
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			line := lines.Bytes()
			at := bytes.Index(line, []byte(key))
			if at < 0 || len(line) < at+len(key)+len(layout) {
				continue
			}
			stamp := line[at+len(key):][:len(layout)]
			if bytes.Compare(stamp, first) < 0 || bytes.Compare(stamp, last) > 0 || !bytes.Contains(line, []byte("liqo")) {
				continue
			}
			var found call
			if err := json.Unmarshal(line, &found); err != nil {
				t.Fatalf("%s: %v in %s", name, err, line)
			}
			if strings.Contains(found.User.Username, "liqo") { // liqo, liqo-tenant-..., or the node of a virtual kubelet
				all = append(all, found)
			}
		}
		if err := lines.Err(); err != nil {
			t.Fatal(err)
		}
		_ = file.Close()
	}
	return all
}
