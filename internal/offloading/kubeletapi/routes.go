// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/internal/kube/printable"
	"liqo.io/liqo/internal/offloading/caller"
	"liqo.io/liqo/internal/offloading/exposition"
	"liqo.io/liqo/internal/offloading/pages"
)

// route serves a path. The verb is that of the method, unless one is given. Like a kubelet, the port authorizes a caller before it shows what exists.
type route struct {
	path    string
	methods []string
	verb    string
	serve   http.HandlerFunc
}

// routes are the paths of a kubelet, except for those that it has no more and those of features that are off.
func (k *Kubelet) routes() []route {
	get, post, both := []string{http.MethodGet}, []string{http.MethodPost}, []string{http.MethodGet, http.MethodPost}
	all := []route{
		{"/healthz", get, "", k.healthz},
		{"/healthz/{check}", get, "", k.healthz},
		{"/pods", get, "", k.podList(pages.Whole)},
		{"/runningpods", get, "", k.podList(pages.Running)},
		{"/configz", get, "", k.configz},
		{"/metrics", get, "", k.ownMetrics},
		{"/metrics/slis", get, "", k.indicators},
		{"/stats/summary", get, "", k.summary},
		{"/containerLogs/{namespace}/{pod}/{container}", get, "", k.stream("log")},
		{"/checkpoint/{namespace}/{pod}/{container}", post, "", k.noCheckpoint},
		{"/", nil, "", http.NotFound},
	}
	for _, kind := range []string{"resource", "cadvisor", "probes"} {
		all = append(all, route{"/metrics/" + kind, get, "", k.metrics(kind)})
	}
	// The verb is create for both methods: a WebSocket starts with a GET, and a caller that may only read must not open one.
	for kind, path := range map[string]string{"exec": "/exec/{namespace}/{pod}/", "attach": "/attach/{namespace}/{pod}/"} {
		all = append(all, route{path + "{container}", both, "create", k.stream(kind)}, route{path + "{uid}/{container}", both, "create", k.stream(kind)})
	}
	all = append(
		all, route{"/portForward/{namespace}/{pod}", both, "create", k.stream("portforward")},
		route{"/portForward/{namespace}/{pod}/{uid}", both, "create", k.stream("portforward")},
	)
	// A kubelet that has them off answers in this way.
	return append(all,
		route{"/run/", nil, "create", disabled("run endpoint is disabled. Use exec.")},
		route{"/logs/", nil, "", disabled("logs endpoint is disabled. The nodes of cluster " + k.options.RemoteName + " keep their own logs.")},
		route{"/debug/pprof/", nil, "", disabled("profiling endpoint is disabled.")},
		route{"/debug/flags/", nil, "", disabled("flags endpoint is disabled.")},
	)
}

// handler returns the handler of all routes, each behind a guard.
func (k *Kubelet) handler(guard func(route, http.Handler) http.Handler) *http.ServeMux {
	mux := http.NewServeMux()
	for _, served := range k.routes() {
		handler := guard(served, only(served))
		mux.Handle(served.path, handler)
		if !strings.HasSuffix(served.path, "/") {
			mux.Handle(served.path+"/{$}", handler) // a kubelet ignores the last slash
		}
	}
	return mux
}

// only refuses other methods.
func only(of route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		if len(of.methods) > 0 && !slices.Contains(of.methods, method) {
			w.Header().Set("Allow", strings.Join(of.methods, ", "))
			http.Error(w, "405: Method Not Allowed", http.StatusMethodNotAllowed)
			return
		}
		of.serve(w, r)
	})
}

// guard authorizes a caller for the path.
func (k *Kubelet) guard(of route, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, denied := k.options.Callers.Direct(r)
		if denied == nil {
			denied = k.allowed(r, user, of)
		}
		if denied != nil {
			w.Header().Set("Connection", "close")
			http.Error(w, denied.Error(), denied.Code)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// allowed returns nil if one of the rights that open the path lets the user in.
func (k *Kubelet) allowed(r *http.Request, user *authenticationv1.UserInfo, of route) (denied *caller.Denied) {
	verb := of.verb
	if verb == "" {
		verb = pages.Verb(r.Method)
	}
	for _, subresource := range pages.Subresources(of.path) {
		if denied = k.options.Callers.Allow(r.Context(), user, &authorizationv1.ResourceAttributes{
			Verb: verb, Version: "v1", Resource: "nodes", Subresource: subresource, Name: k.options.NodeName,
		}); denied == nil {
			return nil
		}
	}
	return denied
}

// node returns what the pages show of the node.
func (k *Kubelet) node(r *http.Request) pages.Node {
	if k.options.Node == nil {
		return pages.Node{Name: k.options.NodeName}
	}
	node := k.options.Node(r.Context())
	node.Name = k.options.NodeName
	return node
}

// each calls a function with each pod of the node.
func (k *Kubelet) each(do func(*corev1.Pod)) {
	if k.options.EachPod != nil {
		k.options.EachPod(do)
	}
}

// healthz answers as the health checks of a kubelet do.
func (k *Kubelet) healthz(w http.ResponseWriter, r *http.Request) {
	checks, asked := k.checks(), r.PathValue("check")
	if asked != "" {
		healthy, ok := checks[asked]
		switch {
		case !ok:
			http.NotFound(w, r)
		case !healthy:
			http.Error(w, "internal server error: the node is not kept current", http.StatusInternalServerError)
		default:
			fmt.Fprint(w, "ok")
		}
		return
	}
	var list strings.Builder
	failed := false
	for _, name := range pages.Checks {
		mark := "[+]" + name + " ok\n"
		if !checks[name] {
			mark, failed = "[-]"+name+" failed: reason withheld\n", true
		}
		list.WriteString(mark)
	}
	_, verbose := r.URL.Query()["verbose"]
	switch {
	case failed:
		http.Error(w, list.String()+"healthz check failed", http.StatusInternalServerError)
	case verbose:
		fmt.Fprint(w, list.String()+"healthz check passed\n")
	default:
		fmt.Fprint(w, "ok")
	}
}

func (k *Kubelet) checks() map[string]bool {
	return map[string]bool{"ping": true, "log": true, "syncloop": k.options.Synced == nil || k.options.Synced()}
}

// podList serves the pods of this node as this cluster knows them: the provider is not asked.
func (k *Kubelet) podList(show func(*corev1.Pod) *corev1.Pod) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if err := pages.WritePods(w, k.each, show); err != nil {
			log.FromContext(r.Context()).V(1).Info("pods not sent", "reason", err.Error())
		}
	}
}

func (k *Kubelet) configz(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(pages.Config(k.node(r))); err != nil {
		log.FromContext(r.Context()).V(1).Info("configuration not sent", "reason", err.Error())
	}
}

// ownMetrics serves the metrics of a kubelet about itself, and those of the process.
func (k *Kubelet) ownMetrics(w http.ResponseWriter, r *http.Request) {
	page := exposition.NewPage(k.maxMetrics)
	if err := pages.Metrics(page, k.node(r), k.each); err != nil {
		k.fail(w, r, &refused{http.StatusInternalServerError, printable.Line(err.Error(), printable.MaxLine)})
		return
	}
	k.page(w, r, page)
	if k.options.Process != nil {
		plain := r.Clone(r.Context())
		plain.Header = http.Header{} // neither another form nor a compressed one
		k.options.Process.ServeHTTP(bodyOnly{w}, plain)
	}
}

func (k *Kubelet) indicators(w http.ResponseWriter, r *http.Request) {
	page := exposition.NewPage(k.maxMetrics)
	if err := pages.Indicators(page, k.checks()); err != nil {
		k.fail(w, r, &refused{http.StatusInternalServerError, printable.Line(err.Error(), printable.MaxLine)})
		return
	}
	k.page(w, r, page)
}

func (k *Kubelet) page(w http.ResponseWriter, r *http.Request, page io.WriterTo) {
	w.Header().Set("Content-Type", exposition.ContentType)
	if _, err := page.WriteTo(w); err != nil {
		log.FromContext(r.Context()).V(1).Info("metrics not sent", "reason", err.Error())
	}
}

// bodyOnly adds the body of a second handler to an answer.
type bodyOnly struct{ http.ResponseWriter }

// Header implements http.ResponseWriter.
func (bodyOnly) Header() http.Header { return http.Header{} }

// WriteHeader implements http.ResponseWriter.
func (bodyOnly) WriteHeader(int) {}

// noCheckpoint answers as a kubelet whose runtime has no checkpoints.
func (k *Kubelet) noCheckpoint(w http.ResponseWriter, r *http.Request) {
	namespace, name, container := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	pod, found := false, false
	k.each(func(candidate *corev1.Pod) {
		if candidate.Namespace != namespace || candidate.Name != name {
			return
		}
		pod = true
		for _, list := range [][]corev1.Container{candidate.Spec.InitContainers, candidate.Spec.Containers} {
			found = found || slices.ContainsFunc(list, func(c corev1.Container) bool { return c.Name == container })
		}
		found = found || slices.ContainsFunc(candidate.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == container })
	})
	switch {
	case !pod:
		http.Error(w, "pod does not exist", http.StatusNotFound)
	case !found:
		http.Error(w, "container does not exist in pod", http.StatusNotFound)
	default:
		http.Error(w, printable.Line(fmt.Sprintf("checkpointing of %s/%s/%s failed (the container runs in cluster %s, and its checkpoint would be "+
			"a file on a node there)",
			namespace, name, container, k.options.RemoteName), printable.MaxLine), http.StatusInternalServerError)
	}
}

// disabled refuses a part of a kubelet that is off here.
func disabled(reason string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, reason, http.StatusMethodNotAllowed) }
}

// another reports whether what is asked of a pod by its name would be asked of an earlier one.
func (k *Kubelet) another(namespace, name string) bool {
	return k.options.Another != nil && k.options.Another(namespace, name)
}

// anotherPod reports whether a path names the UID of a pod that is not there any more.
func (k *Kubelet) anotherPod(s *stream, uid string) bool {
	if uid == "" {
		return false
	}
	return !slices.ContainsFunc(k.options.Pods.PodRefs(), func(pod PodRef) bool {
		return pod.Namespace == s.namespace && pod.Name == s.pod && string(pod.UID) == uid
	})
}
