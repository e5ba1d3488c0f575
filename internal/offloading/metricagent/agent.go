// SPDX-License-Identifier: Apache-2.0

// Package metricagent serves the metrics of their remote pods to peers: an aggregated API, metrics.liqo.io, that scrapes the kubelets of the nodes on
// which the pods of a peer run, and passes on the samples of these pods. A peer has the right to scrape for itself in its tenant namespace. It
// gets samples only of pods in its own remote namespaces, and of those only the pods that it created.
//
// The package must not know what the metrics mean, nor the names of the pods in their own cluster. It is proved by agent_test.go: two peers, a
// real API server in front, and kubelets that report pods of all peers.
package metricagent

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/caller"
	"liqo.io/liqo/internal/offloading/exposition"
)

// +kubebuilder:rbac:groups="",resources=namespaces;nodes;pods,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=nodes/metrics,verbs=get
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// The served API.
const (
	Group    = "metrics.liqo.io"
	Version  = "v1alpha1"
	resource = "scrape"
	root     = "/apis/" + Group + "/" + Version
)

const (
	// nodeTimeout is how long a kubelet may take. The consumer and its client each wait for ten seconds.
	nodeTimeout = 5 * time.Second
	// nodesAtATime and scrapesAtATime bound the parallel requests for one peer, so that no peer delays the others.
	nodesAtATime, scrapesAtATime = 8, 2
	// maxOfPeer bounds the bytes held for one scrape.
	maxOfPeer          = 32 << 20
	defaultKubeletPort = 10250
)

// Agent serves the API.
type Agent struct {
	// cached has namespaces, pods of peers, and nodes.
	cached  client.Reader
	callers *caller.Callers
	// kubelets sends requests with our token.
	kubelets http.RoundTripper
	mux      *http.ServeMux

	mu      sync.Mutex
	scrapes map[string]int
}

func New(cached client.Reader, callers *caller.Callers, kubelets http.RoundTripper) *Agent {
	a := &Agent{cached: cached, callers: callers, kubelets: kubelets, mux: http.NewServeMux(), scrapes: map[string]int{}}
	a.mux.HandleFunc("GET "+root, a.discover)
	a.mux.HandleFunc("GET "+root+"/namespaces/{namespace}/"+resource+"/{cluster}/metrics/{kind}", a.scrape)
	return a
}

// ServeHTTP serves the API server.
func (a *Agent) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// discover lists the resources; the API server uses it as availability check.
func (a *Agent) discover(w http.ResponseWriter, r *http.Request) {
	if _, denied := a.callers.Proxied(r); denied != nil {
		refuse(w, denied.Code, denied.Error())
		return
	}
	answer(w, http.StatusOK, &metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: Group + "/" + Version,
		APIResources: []metav1.APIResource{{Name: resource + "/metrics", Kind: "Scrape", Namespaced: true, Verbs: metav1.Verbs{"get"}}},
	})
}

// scrape serves the metrics of one peer.
func (a *Agent) scrape(w http.ResponseWriter, r *http.Request) {
	namespace, cluster, kind := r.PathValue("namespace"), r.PathValue("cluster"), r.PathValue("kind")
	user, denied := a.callers.Proxied(r)
	if denied == nil {
		// The API server has authorized the path as it parses it. This checks the path as we parse it.
		denied = a.callers.Allow(r.Context(), user, &authorizationv1.ResourceAttributes{
			Verb: "get", Group: Group, Version: Version, Resource: resource, Subresource: "metrics", Namespace: namespace, Name: cluster,
		})
	}
	if denied != nil {
		refuse(w, denied.Code, denied.Error())
		return
	}
	if kind != "resource" && kind != "cadvisor" && kind != "probes" {
		refuse(w, http.StatusNotFound, "there are metrics/resource, metrics/cadvisor and metrics/probes")
		return
	}
	var tenant corev1.Namespace
	err := a.cached.Get(r.Context(), client.ObjectKey{Name: namespace}, &tenant)
	if err != nil || tenant.Labels[labels.TenantNamespace] != "true" || tenant.Labels[labels.ClusterID] != cluster {
		refuse(w, http.StatusForbidden, fmt.Sprintf("namespace %s is not the tenant namespace of cluster %s", namespace, cluster))
		return
	}
	if !a.acquire(cluster) {
		refuse(w, http.StatusTooManyRequests, "metrics of this cluster are being collected; retry")
		return
	}
	defer a.release(cluster)
	page, err := a.collect(r.Context(), cluster, kind)
	if err != nil {
		log.FromContext(r.Context()).Error(err, "metrics not collected", "cluster", cluster, "kind", kind)
		refuse(w, http.StatusBadGateway, "the kubelets on which the pods run cannot be scraped; see the log of liqo-metric-agent")
		return
	}
	write(w, r, page)
}

func (a *Agent) acquire(cluster string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.scrapes[cluster] >= scrapesAtATime {
		return false
	}
	a.scrapes[cluster]++
	return true
}

func (a *Agent) release(cluster string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.scrapes[cluster]--; a.scrapes[cluster] == 0 {
		delete(a.scrapes, cluster)
	}
}

// pods returns the pods of a cluster, and their nodes.
func (a *Agent) pods(ctx context.Context, cluster string) (pods map[types.NamespacedName]bool, nodes map[string]bool, err error) {
	pods, nodes = map[types.NamespacedName]bool{}, map[string]bool{}
	var namespaces corev1.NamespaceList
	if err := a.cached.List(ctx, &namespaces, client.MatchingLabels{labels.RemoteClusterID: cluster}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list namespaces of cluster %s: %w", cluster, err)
	}
	for i := range namespaces.Items {
		var list corev1.PodList
		err := a.cached.List(ctx, &list, client.InNamespace(namespaces.Items[i].Name), client.MatchingLabels{labels.Origin: cluster}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return nil, nil, fmt.Errorf("list pods of cluster %s: %w", cluster, err)
		}
		for j := range list.Items {
			if pod := &list.Items[j]; pod.Spec.NodeName != "" {
				pods[client.ObjectKeyFromObject(pod)] = true
				nodes[pod.Spec.NodeName] = true
			}
		}
	}
	return pods, nodes, nil
}

// collect scrapes the kubelets. Samples of kubelets that fail are missing; it is an error if all fail.
func (a *Agent) collect(ctx context.Context, cluster, kind string) (*exposition.Page, error) {
	pods, nodes, err := a.pods(ctx, cluster)
	if err != nil {
		return nil, err
	}
	page := exposition.NewPage(maxOfPeer)
	var mu sync.Mutex
	var failures []error
	var group errgroup.Group
	group.SetLimit(nodesAtATime)
	for name := range nodes {
		group.Go(func() error {
			// Lines are added as they come; several nodes may report the same family.
			err := a.ask(ctx, name, kind, func(from io.Reader) error {
				received := exposition.NewPage(maxOfPeer)
				if err := received.Read(from, func(s *exposition.Sample) bool {
					return pods[types.NamespacedName{Namespace: s.Label("namespace"), Name: s.Label("pod")}]
				}); err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				return page.Join(received)
			})
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				failures = append(failures, fmt.Errorf("node %s: %w", name, err))
			}
			return nil
		})
	}
	_ = group.Wait() // failures are in the list
	if len(failures) > 0 && len(failures) == len(nodes) {
		return nil, errors.Join(failures...)
	}
	for _, failure := range failures {
		log.FromContext(ctx).Error(failure, "metrics of a node are missing", "cluster", cluster, "kind", kind)
	}
	return page, nil
}

// ask scrapes one kubelet.
func (a *Agent) ask(ctx context.Context, name, kind string, read func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	var node corev1.Node
	if err := a.cached.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		return err
	}
	address, err := kubeletAddress(&node)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/metrics/"+kind, nil)
	if err != nil {
		return err
	}
	response, err := a.kubelets.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("its kubelet answers with %s", response.Status)
	}
	return read(response.Body)
}

func kubeletAddress(node *corev1.Node) (string, error) {
	port := int(node.Status.DaemonEndpoints.KubeletEndpoint.Port)
	if port == 0 {
		port = defaultKubeletPort
	}
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP, corev1.NodeHostName} {
		for _, address := range node.Status.Addresses {
			if address.Type == kind {
				return net.JoinHostPort(address.Address, strconv.Itoa(port)), nil
			}
		}
	}
	return "", errors.New("the node has no address")
}

// write sends the metrics, compressed if the peer accepts that: it is a tenth of the size, and crosses between clusters.
func write(w http.ResponseWriter, r *http.Request, page *exposition.Page) {
	w.Header().Set("Content-Type", exposition.ContentType)
	var to io.Writer = w
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		packed := gzip.NewWriter(w)
		defer packed.Close()
		to = packed
	}
	if _, err := page.WriteTo(to); err != nil {
		log.FromContext(r.Context()).V(1).Info("metrics not sent", "reason", err.Error())
	}
}

func refuse(w http.ResponseWriter, code int, message string) {
	reasons := map[int]metav1.StatusReason{
		http.StatusUnauthorized: metav1.StatusReasonUnauthorized, http.StatusForbidden: metav1.StatusReasonForbidden,
		http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests,
	}
	answer(w, code, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Message: message, Code: int32(code), Reason: reasons[code],
	})
}

func answer(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object) // the client may be gone
}
