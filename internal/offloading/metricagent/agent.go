// SPDX-License-Identifier: Apache-2.0

// Package metricagent tells peers what their pods use here: an aggregated API, metrics.liqo.io, that asks the kubelets of the nodes on which a peer's
// pods run, and hands on what they say of those pods. A peer asks in its tenant namespace, where it is given the right to, for itself; what it
// gets is of pods in its own twin namespaces, and of those only such as it sent.
//
// It must not know what the metrics mean, nor the names that pods have at home. Its proof is agent_test.go: two peers, a real API server in
// front, and kubelets that say too much.
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

// The API that is served.
const (
	Group    = "metrics.liqo.io"
	Version  = "v1alpha1"
	resource = "scrape"
	root     = "/apis/" + Group + "/" + Version
)

const (
	// nodeTimeout is how long a kubelet may take. The consumer waits for ten seconds, and so does who asks there.
	nodeTimeout = 5 * time.Second
	// nodesAtATime are asked at once for one peer, and a peer may ask that often at once: no peer can keep the others waiting.
	nodesAtATime, asksAtATime = 8, 2
	// mostOfPeer bounds what is held.
	mostOfPeer         = 32 << 20
	defaultKubeletPort = 10250
)

// Agent serves the API.
type Agent struct {
	// cached knows namespaces, pods of peers, and nodes.
	cached  client.Reader
	callers *caller.Callers
	// kubelets carries our token to kubelets.
	kubelets http.RoundTripper
	mux      *http.ServeMux

	mu   sync.Mutex
	asks map[string]int
}

// New returns an agent.
func New(cached client.Reader, callers *caller.Callers, kubelets http.RoundTripper) *Agent {
	a := &Agent{cached: cached, callers: callers, kubelets: kubelets, mux: http.NewServeMux(), asks: map[string]int{}}
	a.mux.HandleFunc("GET "+root, a.discover)
	a.mux.HandleFunc("GET "+root+"/namespaces/{namespace}/"+resource+"/{cluster}/metrics/{kind}", a.scrape)
	return a
}

// ServeHTTP answers the API server.
func (a *Agent) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// discover says what there is; the API server looks at it to know that we are there.
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

// scrape answers a peer.
func (a *Agent) scrape(w http.ResponseWriter, r *http.Request) {
	namespace, cluster, kind := r.PathValue("namespace"), r.PathValue("cluster"), r.PathValue("kind")
	user, denied := a.callers.Proxied(r)
	if denied == nil {
		// The API server has asked this already, of the path as it reads it. This is as we read it.
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
	if !a.enter(cluster) {
		refuse(w, http.StatusTooManyRequests, "metrics of this cluster are being collected; ask again")
		return
	}
	defer a.leave(cluster)
	page, err := a.collect(r.Context(), cluster, kind)
	if err != nil {
		log.FromContext(r.Context()).Error(err, "metrics not collected", "cluster", cluster, "kind", kind)
		refuse(w, http.StatusBadGateway, "the kubelets on which the pods run cannot be asked; the log of liqo-metric-agent says why")
		return
	}
	write(w, r, page)
}

func (a *Agent) enter(cluster string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asks[cluster] >= asksAtATime {
		return false
	}
	a.asks[cluster]++
	return true
}

func (a *Agent) leave(cluster string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asks[cluster]--; a.asks[cluster] == 0 {
		delete(a.asks, cluster)
	}
}

// pods of a cluster, and the nodes they run on.
func (a *Agent) pods(ctx context.Context, cluster string) (pods map[types.NamespacedName]bool, nodes map[string]bool, err error) {
	pods, nodes = map[types.NamespacedName]bool{}, map[string]bool{}
	var twins corev1.NamespaceList
	if err := a.cached.List(ctx, &twins, client.MatchingLabels{labels.RemoteClusterID: cluster}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list namespaces of cluster %s: %w", cluster, err)
	}
	for i := range twins.Items {
		var list corev1.PodList
		err := a.cached.List(ctx, &list, client.InNamespace(twins.Items[i].Name), client.MatchingLabels{labels.Origin: cluster}, client.UnsafeDisableDeepCopy)
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

// collect asks the kubelets. What some of them do not answer is missing; it is an error if none does.
func (a *Agent) collect(ctx context.Context, cluster, kind string) (*exposition.Page, error) {
	pods, nodes, err := a.pods(ctx, cluster)
	if err != nil {
		return nil, err
	}
	page := exposition.NewPage(mostOfPeer)
	var mu sync.Mutex
	var failures []error
	var group errgroup.Group
	group.SetLimit(nodesAtATime)
	for name := range nodes {
		group.Go(func() error {
			// Lines are added as they come; a family may be said by several nodes.
			err := a.ask(ctx, name, kind, func(from io.Reader) error {
				one := exposition.NewPage(mostOfPeer)
				if err := one.Read(from, func(s *exposition.Sample) bool {
					return pods[types.NamespacedName{Namespace: s.Label("namespace"), Name: s.Label("pod")}]
				}); err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				return page.Join(one)
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

// ask one kubelet.
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

// write sends the metrics, compressed if the peer likes that: it is a tenth, and crosses between clusters.
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
	_ = json.NewEncoder(w).Encode(object) // whoever asked may be gone
}
