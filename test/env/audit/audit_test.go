// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestAuditLog(t *testing.T) {
	dir := t.TempDir()
	line := func(at, user, verb, resource, subresource string) string {
		return fmt.Sprintf(`{"kind":"Event","stageTimestamp":"2026-01-01T%s.000000Z","verb":%q,"requestURI":"/liqo","user":{"username":%q},`+
			`"objectRef":{"resource":%q,"subresource":%q,"namespace":"n","name":"o"},"responseStatus":{"code":200}}`+"\n", at, verb, user, resource, subresource)
	}
	const account = "system:serviceaccount:liqo:liqo-route"
	for name, text := range map[string]string{
		"audit-2026.log": line("11:00:00", account, "get", "nodes", "") + line("12:00:00", account, "patch", "pods", "status"),
		"audit.log": line("12:00:01", "system:serviceaccount:kube-system:other", "create", "pods", "") + "no event\n" +
			line("12:00:02", account, "create", "tokenreviews", "") + line("13:00:00", account, "list", "pods", ""),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		from, to time.Time
		want     string
	}{
		{noon, noon.Add(time.Minute), "liqo-route patch pods/status true false, liqo-route create tokenreviews true true, "},
		{noon.Add(time.Minute), time.Time{}, "liqo-route list pods false false, "},
		{time.Time{}, noon, "liqo-route get nodes false false, liqo-route patch pods/status true false, "},
	} {
		all, err := Calls(filepath.Join(dir, "audit.log"), test.from, test.to)
		got := ""
		for _, call := range all {
			got += fmt.Sprint(call.Account(), " ", call.Verb, " ", call.Resource(), " ", call.Writes(), " ", call.Reviews(), ", ")
		}
		if err != nil || got != test.want {
			t.Errorf("%v to %v: %s (%v), want %s", test.from, test.to, got, err, test.want)
		}
	}
	if _, err := Calls(filepath.Join(dir, "none.log"), noon, noon); err == nil {
		t.Error("a missing log is no error")
	}
}
