// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// stream is a request to the kubelet about one pod.
type stream struct {
	// kind is the subresource of the pod: log, exec, attach or portforward.
	kind                      string
	namespace, pod, container string
	query                     url.Values
}

// flags are the parameters that a kubelet spells differently from an API server.
var flags = map[string]string{"input": "stdin", "output": "stdout", "error": "stderr", "tty": "tty"}

// logOptions are the query parameters of a log that are forwarded.
var logOptions = []string{"follow", "previous", "timestamps", "sinceSeconds", "sinceTime", "tailLines", "limitBytes", "stream"}

// check refuses invalid names, because they become part of a path.
func (s *stream) check() error {
	switch {
	case len(validation.IsDNS1123Label(s.namespace)) > 0:
		return fmt.Errorf("%q is not the name of a namespace", s.namespace)
	case len(validation.IsDNS1123Subdomain(s.pod)) > 0:
		return fmt.Errorf("%q is not the name of a pod", s.pod)
	case s.kind != "portforward" && len(validation.IsDNS1123Label(s.container)) > 0:
		return fmt.Errorf("%q is not the name of a container", s.container)
	}
	return nil
}

// upgrades reports whether the response switches the protocol.
func (s *stream) upgrades() bool { return s.kind != "log" }

// target returns path and query of the same request to the API server of the remote cluster.
func (s *stream) target(namespace string) (path string, query url.Values, err error) {
	path = "/api/v1/namespaces/" + namespace + "/pods/" + s.pod + "/" + s.kind
	query = url.Values{}
	switch s.kind {
	case "log":
		query.Set("container", s.container)
		for _, option := range logOptions {
			if value := s.query.Get(option); value != "" {
				query.Set(option, value)
			}
		}
	case "portforward":
		for _, list := range s.query["port"] {
			for text := range strings.SplitSeq(list, ",") {
				if port, err := strconv.ParseUint(strings.TrimSpace(text), 10, 16); err != nil || port == 0 {
					return "", nil, fmt.Errorf("%q is not a port", text)
				}
				query.Add("ports", strings.TrimSpace(text))
			}
		}
	default:
		query.Set("container", s.container)
		for ours, theirs := range flags {
			// Always set: an API server takes stdout and stderr for true if they are missing.
			query.Set(theirs, strconv.FormatBool(s.query.Get(ours) == "1" || s.query.Get(ours) == "true"))
		}
		if s.kind == "exec" {
			if len(s.query["command"]) == 0 {
				return "", nil, errors.New("no command")
			}
			query["command"] = s.query["command"]
		}
	}
	return path, query, nil
}
