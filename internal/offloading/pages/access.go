// SPDX-License-Identifier: Apache-2.0

package pages

import "strings"

// Subresources returns which rights on a node open a path: one of them suffices. They are those that a kubelet asks for, with its fine-grained rights
// first, so that a reader who needs one page needs no right to run commands in pods.
func Subresources(path string) []string {
	for _, known := range []struct {
		prefix string
		rights []string
	}{
		{"/stats", []string{"stats"}},
		{"/metrics", []string{"metrics"}},
		{"/logs", []string{"log"}},
		{"/checkpoint", []string{"checkpoint"}},
		{"/pods", []string{"pods", proxy}},
		{"/runningpods", []string{"pods", proxy}},
		{"/healthz", []string{"healthz", proxy}},
		{"/configz", []string{"configz", proxy}},
	} {
		if path == known.prefix || strings.HasPrefix(path, known.prefix+"/") {
			return known.rights
		}
	}
	return []string{proxy}
}

// proxy is the right to everything that has no right of its own.
const proxy = "proxy"

// Verb returns the verb of a request by its method, as a kubelet takes it.
func Verb(method string) string {
	switch method {
	case "POST":
		return "create"
	case "PUT":
		return "update"
	case "PATCH":
		return "patch"
	case "DELETE":
		return "delete"
	}
	return "get"
}
