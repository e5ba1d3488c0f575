// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"liqo.io/liqo/playground/demo/command"
)

func TestAPI(t *testing.T) {
	server := httptest.NewServer(apiHandler(command.Environment{Pod: "api-1", Cluster: "rome"}))
	defer server.Close()
	for path, want := range map[string]string{
		"/apis":                                 "APIGroupList",
		"/apis/demo.liqo.io":                    "APIGroup",
		"/apis/demo.liqo.io/v1":                 "APIResourceList",
		"/apis/demo.liqo.io/v1/greetings":       "GreetingList",
		"/apis/demo.liqo.io/v1/greetings/hello": "Greeting",
	} {
		status, body := get(t, server.Client(), server.URL+path)
		if got := parsed[object](t, body); status != http.StatusOK || got["kind"] != want || got["apiVersion"] == nil {
			t.Errorf("%s: %d %s, want kind %s", path, status, body, want)
		}
	}
	_, body := get(t, server.Client(), server.URL+"/apis/demo.liqo.io/v1/greetings?limit=500")
	list := parsed[struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ Pod, Cluster string }
		}
	}](t, body)
	if len(list.Items) != 1 || list.Items[0].Metadata.Name != "hello" || list.Items[0].Spec.Pod != "api-1" || list.Items[0].Spec.Cluster != "rome" {
		t.Errorf("list is %s", body)
	}
	for _, path := range []string{"/openapi/v2", "/apis/demo.liqo.io/v1/greetings/other", "/"} {
		status, body := get(t, server.Client(), server.URL+path)
		if got := parsed[object](t, body); status != http.StatusNotFound || got["kind"] != "Status" || got["reason"] != "NotFound" {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, body := post(t, server.URL+"/apis/demo.liqo.io/v1/greetings", "{}"); status != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d %s", status, body)
	}
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		if status, _ := get(t, server.Client(), server.URL+path); status != http.StatusOK {
			t.Errorf("%s: %d", path, status)
		}
	}
}
