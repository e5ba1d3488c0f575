// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"

	"liqo.io/liqo/playground/demo/command"
	"liqo.io/liqo/playground/demo/server"
)

const (
	apiGroup     = "demo.liqo.io"
	apiVersion   = "v1"
	groupVersion = apiGroup + "/" + apiVersion
)

// object is any Kubernetes JSON object; the few that we serve are fixed.
type object = map[string]any

// apiserver is the smallest server the aggregation layer accepts: discovery and one
// cluster-wide resource, greetings, with one object, to get and to list. It lets
// everyone in: the main API server authorizes clients, and only tests run this.
func apiserver(ctx context.Context, c command.Call) error {
	at := server.Listener{CertificateOut: c.Stdout}
	flags := flag.NewFlagSet("apiserver", flag.ContinueOnError)
	at.Register(flags, ":8443")
	if err := command.NoArguments(c.Parse(flags)); err != nil {
		return err
	}
	if err := at.RequireTLS(); err != nil {
		return err
	}
	return at.Run(ctx, apiHandler(c.Env), func() {})
}

func apiHandler(env command.Environment) http.Handler {
	hello := greeting(env)
	group := object{
		"kind": "APIGroup", "apiVersion": "v1", "name": apiGroup,
		"versions":         []object{{"groupVersion": groupVersion, "version": apiVersion}},
		"preferredVersion": object{"groupVersion": groupVersion, "version": apiVersion},
	}
	fixed := map[string]object{
		"/apis":             {"kind": "APIGroupList", "apiVersion": "v1", "groups": []object{group}},
		"/apis/" + apiGroup: group,
		"/apis/" + groupVersion: {
			"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": groupVersion,
			"resources": []object{{
				"name": "greetings", "singularName": "greeting", "kind": "Greeting",
				"namespaced": false, "verbs": []string{"get", "list"},
			}},
		},
		"/apis/" + groupVersion + "/greetings": {
			"kind": "GreetingList", "apiVersion": groupVersion,
			"metadata": object{"resourceVersion": "1"}, "items": []object{hello},
		},
		"/apis/" + groupVersion + "/greetings/hello": hello,
	}
	mux := http.NewServeMux()
	healthy := func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") }
	mux.HandleFunc("GET /healthz", healthy)
	mux.HandleFunc("GET /livez", healthy)
	mux.HandleFunc("GET /readyz", healthy)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		value, ok := fixed[r.URL.Path]
		switch {
		case !ok:
			writeStatus(w, http.StatusNotFound, "NotFound", fmt.Sprintf("%s: not served; see /apis/%s", r.URL.Path, groupVersion))
		case r.Method != http.MethodGet:
			writeStatus(w, http.StatusMethodNotAllowed, "MethodNotAllowed", fmt.Sprintf("%s %s: greetings can only be read", r.Method, r.URL.Path))
		default:
			server.WriteJSON(w, http.StatusOK, value)
		}
	})
	return mux
}

// greeting is the one object: it names the pod and the cluster that it comes from.
func greeting(env command.Environment) object {
	return object{
		"kind": "Greeting", "apiVersion": groupVersion,
		"metadata": object{
			"name": "hello", "uid": "00000000-0000-0000-0000-000000000001",
			"resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z",
		},
		"spec": object{"text": "hello from the aggregated API", "pod": env.Pod, "node": env.Node, "cluster": env.Cluster},
	}
}

// writeStatus answers with an error in the form that Kubernetes clients show.
func writeStatus(w http.ResponseWriter, code int, reason, message string) {
	server.WriteJSON(w, code, object{
		"kind": "Status", "apiVersion": "v1", "metadata": object{}, "status": "Failure",
		"reason": reason, "message": message, "code": code,
	})
}
