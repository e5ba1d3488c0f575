// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"hash/fnv"
	"html/template"
	"net/http"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"hue": hue}).Parse(pageText))

// page shows the same as /api/info and /api/backends, for people.
func (s *web) page(w http.ResponseWriter, r *http.Request) {
	// A browser keeps its connection; closing it lets a reload reach another pod.
	w.Header().Set("Connection", "close")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	var page bytes.Buffer
	err := pageTemplate.Execute(&page, struct {
		info
		Backends []backendAnswer
	}{s.responder(r), s.backends.ask(r.Context())})
	if err != nil {
		answer(w, http.StatusInternalServerError, fmt.Sprintf("page: %v", err))
		return
	}
	w.Write(page.Bytes()) //nolint:errcheck // the client is gone, if anything
}

// hue gives every name its own colour (0-359 degrees), the same in every pod.
func hue(name string) int {
	sum := fnv.New32a()
	sum.Write([]byte(name)) //nolint:errcheck // a hash takes every write
	return int(sum.Sum32() % 360)
}
