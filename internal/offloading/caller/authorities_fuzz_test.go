// SPDX-License-Identifier: Apache-2.0

package caller

import (
	"bufio"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"testing"
)

// FuzzHeaderUser: only the headers that the ConfigMap lists name a user. Their order and case do not matter.
func FuzzHeaderUser(f *testing.F) {
	f.Add(`["X-Remote-User"]`, `["X-Remote-Extra-"]`, "X-Remote-User: alice\r\nX-Remote-Group: a\r\nX-Remote-Group: b\r\nX-Remote-Extra-Example.com%2fkey: 1\r\n")
	f.Add(`["X-Remote-User", "X-User"]`, `["X-"]`, "x-remote-user:  \r\nX-User: bob\r\n")
	f.Add(`[]`, `[""]`, "X-Remote-User: root\r\nAuthorization: Bearer x\r\n")
	f.Add(`{`, `null`, "")
	f.Add(
		`["X-Remote-User"]`, `["X-Remote-Extra-"]`,
		"X-Remote-Extra-: empty\r\nX-Remote-Extra-%zz: not escaped\r\nX-Remote-Extra-A: 1\r\nX-Remote-Extra-a: 2\r\n",
	)
	f.Fuzz(func(t *testing.T, users, prefixes, headers string) {
		known, err := parse(map[string]string{
			"requestheader-username-headers": users, "requestheader-group-headers": `["X-Remote-Group"]`, "requestheader-extra-headers-prefix": prefixes,
		})
		if err != nil {
			return
		}
		mime, err := textproto.NewReader(bufio.NewReader(strings.NewReader(headers + "\r\n"))).ReadMIMEHeader()
		if err != nil {
			return
		}
		header := http.Header(mime)
		user := known.headerUser(header)
		named := slices.ContainsFunc(known.userHeaders, func(name string) bool { return strings.TrimSpace(header.Get(name)) != "" })
		if (user.Username != "") != named {
			t.Fatalf("user %q of the headers %v, which %v names: %v", user.Username, header, known.userHeaders, named)
		}
		if !slices.Equal(user.Groups, header.Values("X-Remote-Group")) {
			t.Fatalf("groups %q of %v", user.Groups, header)
		}
		for key := range user.Extra {
			if key == "" {
				t.Fatalf("an extra without a key, of %v", header)
			}
		}
	})
}
