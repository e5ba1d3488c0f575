// SPDX-License-Identifier: Apache-2.0

// Package audit reads what Liqo asked an API server, from its audit log.
//
// It knows files and no cluster. Proof: audit_test.go.
package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Call is one request to an API server, as its audit log has it.
type Call struct {
	StageTimestamp   time.Time
	Verb, RequestURI string
	User             struct{ Username string }
	ObjectRef        struct{ APIGroup, Resource, Subresource, Namespace, Name string }
	ResponseStatus   struct{ Code int }
}

// Writes returns true if the request changes or creates an object. A review (see Reviews) is a create as well.
func (c Call) Writes() bool {
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, c.Verb)
}

// Reviews returns true if the request is a TokenReview or SubjectAccessReview: a question to the API server that stores nothing.
func (c Call) Reviews() bool {
	return slices.Contains([]string{"tokenreviews", "subjectaccessreviews"}, c.ObjectRef.Resource)
}

// Account is the name of the client's service account, without its namespace, or of its node.
func (c Call) Account() string {
	return c.User.Username[strings.LastIndexByte(c.User.Username, ':')+1:]
}

// Resource is the resource with its subresource, as RBAC writes it: pods/status.
func (c Call) Resource() string {
	if c.ObjectRef.Subresource == "" {
		return c.ObjectRef.Resource
	}
	return c.ObjectRef.Resource + "/" + c.ObjectRef.Subresource
}

func (c Call) String() string {
	return fmt.Sprintf("%s %s %s %s/%s %s/%s %d", c.StageTimestamp.Format("15:04:05.000"), c.User.Username, c.Verb,
		c.ObjectRef.APIGroup, c.Resource(), c.ObjectRef.Namespace, c.ObjectRef.Name, c.ResponseStatus.Code)
}

// Calls returns the requests of Liqo's identities in an audit log from one moment to another; a zero time is no limit.
// Liqo's identities are its service accounts, those of its tenants, and the nodes of virtual kubelets: all have liqo in their name.
//
// It reads the log and its rotated files: the API server renames the log to audit-TIME.log each 100 MB.
func Calls(log string, from, to time.Time) (all []Call, err error) {
	files, err := filepath.Glob(strings.TrimSuffix(log, ".log") + "*.log")
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no file %s (%w)", log, err)
	}
	for _, name := range files {
		if info, err := os.Stat(name); err != nil || info.ModTime().Before(from) {
			continue
		}
		found, err := callsOf(name, from, to)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// callsOf decodes only the lines of the time and of Liqo's identities: decoding a whole log of 100 MB takes seconds.
func callsOf(name string, from, to time.Time) (all []Call, err error) {
	const key, layout = `"stageTimestamp":"`, "2006-01-02T15:04:05.000000Z"
	first, last := []byte(from.UTC().Format(layout)), []byte(to.UTC().Format(layout))
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Bytes()
		at := bytes.Index(line, []byte(key))
		if at < 0 || len(line) < at+len(key)+len(layout) {
			continue
		}
		timestamp := line[at+len(key):][:len(layout)]
		if bytes.Compare(timestamp, first) < 0 || !to.IsZero() && bytes.Compare(timestamp, last) > 0 || !bytes.Contains(line, []byte("liqo")) {
			continue
		}
		var found Call
		if err := json.Unmarshal(line, &found); err != nil {
			return nil, fmt.Errorf("%w in %s", err, line)
		}
		if strings.Contains(found.User.Username, "liqo") {
			all = append(all, found)
		}
	}
	return all, lines.Err()
}
