// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/internal/kube/printable"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/offloading/caller"
	"liqo.io/liqo/internal/offloading/pages"
)

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=get;create

const (
	// maxStreams bounds the open streams: each takes two connections, about six goroutines and 64 kB.
	maxStreams = 256
	// maxError bounds how much of a refusal is read; printable.MaxLine bounds what is passed on.
	maxError = 64 << 10
)

// NamespaceMappings returns the remote namespace of a local one; false if the local namespace is not offloaded to the cluster of this node.
type NamespaceMappings interface {
	Remote(local string) (string, bool)
}

// Provider connects to the cluster that runs the pods.
type Provider interface {
	Connection(ctx context.Context) (*remote.Connection, error)
	// Refused is called when that cluster refuses our token.
	Refused()
}

// Options of the kubelet API of one virtual node.
type Options struct {
	NodeName string
	// ConsumerID is the ID of this cluster, RemoteName the name of the provider.
	ConsumerID, RemoteName string
	Mappings               NamespaceMappings
	Pods                   Pods
	// Another, if not nil, reports whether the provider still has an earlier pod of the name of a pod.
	Another  func(namespace, name string) bool
	Provider Provider
	Callers  *caller.Callers
	// EachPod calls a function with each pod of the node, as this cluster has it.
	EachPod pages.Each
	// Node, if not nil, returns what is known of the node, without its name.
	Node func(context.Context) pages.Node
	// Synced, if not nil, reports whether the node is kept current.
	Synced func() bool
	// Process, if not nil, serves the metrics of this process.
	Process http.Handler
}

// Kubelet is the HTTP API of a kubelet, as far as the API server and the usual readers of kubelets use it; see routes.
type Kubelet struct {
	options Options
	mux     *http.ServeMux
	slots   chan struct{}
	usage   usage
	// maxMetrics is smaller than the constant in tests only.
	maxMetrics int
}

// New returns the handler.
func New(o Options) *Kubelet {
	k := &Kubelet{options: o, slots: make(chan struct{}, maxStreams), maxMetrics: maxMetrics}
	k.mux = k.handler(k.guard)
	return k
}

// ServeHTTP serves the API server, and other callers that may call kubelets.
func (k *Kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) { k.mux.ServeHTTP(w, r) }

// Streams returns the number of open streams.
func (k *Kubelet) Streams() int { return len(k.slots) }

// stream forwards a request about a pod to the provider's API server.
func (k *Kubelet) stream(kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s := &stream{
			kind: kind, namespace: r.PathValue("namespace"), pod: r.PathValue("pod"), container: r.PathValue("container"), query: r.URL.Query(),
		}
		if err := s.check(); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if k.anotherPod(s, r.PathValue("uid")) {
			http.Error(w, "pod does not exist", http.StatusNotFound)
			return
		}
		namespace, ok := k.options.Mappings.Remote(s.namespace)
		if !ok {
			http.Error(
				w, fmt.Sprintf("namespace %s is not offloaded to cluster %s; see its NamespaceOffloading", s.namespace, k.options.RemoteName),
				http.StatusBadRequest,
			)
			return
		}
		if k.another(s.namespace, s.pod) {
			http.Error(
				w, fmt.Sprintf("pod %q waits for its predecessor of the same name, which cluster %s still has", s.pod, k.options.RemoteName),
				http.StatusBadRequest,
			)
			return
		}
		path, query, err := s.target(namespace)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if s.upgrades() && r.Header.Get("Upgrade") == "" {
			http.Error(w, "the request has no Upgrade header", http.StatusBadRequest)
			return
		}
		select {
		case k.slots <- struct{}{}:
			defer func() { <-k.slots }()
		default:
			http.Error(w, fmt.Sprintf("node %s has %d open streams, which is the limit", k.options.NodeName, maxStreams), http.StatusTooManyRequests)
			return
		}
		connection, err := k.options.Provider.Connection(r.Context())
		if err != nil {
			k.fail(w, r, err)
			return
		}
		base, transport := connection.Streams()
		to, err := url.Parse(base)
		if err != nil {
			k.fail(w, r, err)
			return
		}
		// No part of the path needs escaping.
		to.Path, to.RawPath, to.RawQuery = strings.TrimSuffix(to.Path, "/")+path, "", query.Encode()
		k.proxy(s, to, transport).ServeHTTP(fullClose{w}, r)
	}
}

// proxy forwards one request, without headers that could have a meaning for the provider.
func (k *Kubelet) proxy(s *stream, to *url.URL, transport http.RoundTripper) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			header := http.Header{}
			for name, values := range r.Out.Header {
				switch {
				case s.upgrades() && (name == "Connection" || name == "Upgrade" || name == "X-Stream-Protocol-Version" || strings.HasPrefix(name, "Sec-Websocket-")):
					header[name] = values
				}
			}
			r.Out.URL, r.Out.Host, r.Out.Header = to, "", header
			// Set, because the library would add a default.
			header.Set("User-Agent", "liqo-virtual-kubelet")
			r.Out.Body, r.Out.ContentLength = http.NoBody, 0
			r.Out.Method = http.MethodGet
			if s.upgrades() && !strings.EqualFold(r.Out.Header.Get("Upgrade"), "websocket") {
				r.Out.Method = http.MethodPost
			}
		},
		ModifyResponse: func(response *http.Response) error { return k.answer(s, response) },
		ErrorHandler:   k.fail,
	}
}

// answer passes the expected responses on, and converts a refusal to the form of a kubelet. Everything else is an error: a redirect, for
// instance, would lead the API server elsewhere.
func (k *Kubelet) answer(s *stream, response *http.Response) error {
	switch {
	case s.upgrades() && response.StatusCode == http.StatusSwitchingProtocols:
		kept := http.Header{}
		for name, values := range response.Header {
			if name == "Connection" || name == "Upgrade" || name == "X-Stream-Protocol-Version" || strings.HasPrefix(name, "Sec-Websocket-") {
				kept[name] = values
			}
		}
		response.Header = kept
		connection, ok := response.Body.(io.ReadWriteCloser)
		if !ok {
			return errors.New("the connection cannot be written to")
		}
		response.Body = struct{ io.ReadWriteCloser }{connection} // as in fullClose
		return nil
	case !s.upgrades() && response.StatusCode == http.StatusOK:
		response.Header = http.Header{"Content-Type": {"text/plain; charset=utf-8"}}
		response.Trailer = nil
		return nil
	}
	return k.refusal(response)
}

// refused is a refusal by the provider.
type refused struct {
	code    int
	message string
}

func (r *refused) Error() string { return r.message }

// refusal returns why the provider refused. kubectl shows the text of only 400 and 500, so the status becomes one of these.
func (k *Kubelet) refusal(response *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxError)) // what could be read
	var status metav1.Status
	if err := json.Unmarshal(text, &status); err == nil && status.Message != "" {
		text = []byte(status.Message)
	}
	message := printable.Line(string(text), printable.MaxLine)
	if message == "" {
		message = remote.Answer(response.StatusCode)
	}
	switch code := response.StatusCode; {
	case code == http.StatusUnauthorized:
		k.options.Provider.Refused()
		return &refused{
			http.StatusInternalServerError,
			fmt.Sprintf("cluster %s does not accept the token of this cluster; the controller manager renews it, so try again", k.options.RemoteName),
		}
	case code == http.StatusForbidden:
		return &refused{http.StatusInternalServerError, fmt.Sprintf("cluster %s does not allow it: %s", k.options.RemoteName, message)}
	case code >= 400 && code < 500:
		return &refused{http.StatusBadRequest, message}
	case code >= 500:
		return &refused{http.StatusInternalServerError, fmt.Sprintf("cluster %s: %s", k.options.RemoteName, message)}
	}
	return &refused{http.StatusInternalServerError, fmt.Sprintf("cluster %s sent the unexpected answer %d", k.options.RemoteName, response.StatusCode)}
}

// fail answers a request with the reason why it was not served.
func (k *Kubelet) fail(w http.ResponseWriter, r *http.Request, err error) {
	var reply *refused
	switch {
	case r.Context().Err() != nil:
		return // the caller has gone
	case errors.As(err, &reply):
	case errors.Is(err, remote.ErrNoIdentity):
		reply = &refused{http.StatusInternalServerError, err.Error()}
	default:
		reply = &refused{http.StatusInternalServerError, fmt.Sprintf("cluster %s, where the pod runs, does not answer: %s; see: kubectl describe node %s",
			k.options.RemoteName, remote.Reason(err, answerTime), k.options.NodeName)}
	}
	log.FromContext(r.Context()).V(1).Info("request about a pod not served", "path", r.URL.Path, "reason", reply.message)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(reply.code)
	fmt.Fprint(w, reply.message)
}

// fullClose hides CloseWrite of hijacked connections, so that both directions close together. No protocol here uses a half-closed
// connection, and the other end may never close its half.
type fullClose struct{ http.ResponseWriter }

// Unwrap is for http.ResponseController.
func (w fullClose) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack is for httputil.ReverseProxy.
func (w fullClose) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	connection, buffer, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return struct{ net.Conn }{connection}, buffer, nil
}
