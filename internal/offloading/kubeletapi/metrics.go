// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/internal/kube/printable"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/offloading/exposition"
)

const (
	// maxMetrics bounds the bytes of a scrape. A pod has about 500 bytes of resource metrics, and 20 kB of cAdvisor metrics.
	maxMetrics = 32 << 20
	// answerTime is the deadline of a request to the provider, as package remote sets it.
	answerTime = 10 * time.Second
)

// PodRef identifies a pod that is scheduled to the node.
type PodRef struct {
	Namespace, Name string
	UID             types.UID
}

// Pods returns the pods of the node. Metrics of other pods are dropped, whatever the provider sends.
type Pods interface {
	PodRefs() []PodRef
}

// podsByRemoteName returns the pods of the node by their names in the remote cluster, without those whose name an earlier pod still has there.
func (k *Kubelet) podsByRemoteName() map[types.NamespacedName]PodRef {
	all := map[types.NamespacedName]PodRef{}
	for _, pod := range k.options.Pods.PodRefs() {
		if remote, ok := k.options.Mappings.Remote(pod.Namespace); ok && !k.another(pod.Namespace, pod.Name) {
			all[types.NamespacedName{Namespace: remote, Name: pod.Name}] = pod
		}
	}
	return all
}

// get sends a GET to the provider's API server. The caller sets the deadline and bounds what it reads. path gets our tenant namespace there.
func (k *Kubelet) get(ctx context.Context, path func(tenant string) string) (io.ReadCloser, error) {
	connection, err := k.options.Provider.Connection(ctx)
	if err != nil {
		return nil, err
	}
	at := path(connection.Namespace())
	base, transport := connection.Streams()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+at, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept-Encoding", "gzip")
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		if response.StatusCode == http.StatusNotFound || response.StatusCode == http.StatusServiceUnavailable {
			return nil, &refused{http.StatusBadGateway, fmt.Sprintf("cluster %s does not serve %s (%s)", k.options.RemoteName, at, remote.Answer(response.StatusCode))}
		}
		return nil, k.refusal(response)
	}
	if response.Header.Get("Content-Encoding") != "gzip" {
		return response.Body, nil
	}
	plain, err := gzip.NewReader(response.Body)
	if err != nil {
		_ = response.Body.Close() // nothing can be read from it
		return nil, fmt.Errorf("GET %s: %w", at, err)
	}
	return struct {
		io.Reader
		io.Closer
	}{plain, response.Body}, nil
}

// metrics serves the metrics of the pods as the kubelets of the provider report them.
func (k *Kubelet) metrics(kind string) http.HandlerFunc {
	path := func(tenant string) string {
		return "/apis/metrics.liqo.io/v1alpha1/namespaces/" + tenant + "/scrape/" + url.PathEscape(k.options.ConsumerID) + "/metrics/" + kind
	}
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerTime)
		defer cancel()
		pods := k.podsByRemoteName()
		body, err := io.NopCloser(strings.NewReader("")), error(nil)
		if len(pods) > 0 { // else the provider has nothing to report
			body, err = k.get(ctx, path)
		}
		if err != nil {
			k.fail(w, r, err)
			return
		}
		defer body.Close()
		page, sums := exposition.NewPage(k.maxMetrics), sums{}
		err = page.Read(body, func(s *exposition.Sample) bool {
			pod, ok := pods[types.NamespacedName{Namespace: s.Label("namespace"), Name: s.Label("pod")}]
			if !ok || kind == "resource" && !sums.add(s, pod) {
				return false
			}
			s.SetLabel("namespace", pod.Namespace)
			s.SetLabel("pod_uid", string(pod.UID))
			return true
		})
		if err == nil && kind == "resource" {
			err = k.usage.node(page, &sums, pods)
		}
		if err != nil {
			k.fail(w, r, &refused{
				http.StatusBadGateway,
				fmt.Sprintf("metrics of cluster %s cannot be read: %s", k.options.RemoteName, printable.Line(err.Error(), printable.MaxLine)),
			})
			return
		}
		w.Header().Set("Content-Type", exposition.ContentType)
		if _, err := page.WriteTo(w); err != nil {
			log.FromContext(r.Context()).V(1).Info("metrics not sent", "reason", err.Error())
		}
	}
}

// sums is the resource use of the node: the sum of its pods.
type sums struct {
	cpu    map[types.UID]float64
	memory float64
	at     int64
}

// add counts a sample, and reports whether its value is valid.
func (s *sums) add(sample *exposition.Sample, pod PodRef) bool {
	value, err := strconv.ParseFloat(sample.Value, 64)
	if err != nil || math.IsNaN(value) || math.IsInf(value, 0) || value < 0 || value > 1e18 {
		return false
	}
	at := int64(0)
	if sample.Timestamp != "" {
		if at, err = strconv.ParseInt(sample.Timestamp, 10, 64); err != nil {
			return false
		}
	}
	switch sample.Name {
	case "pod_cpu_usage_seconds_total":
		if s.cpu == nil {
			s.cpu = map[types.UID]float64{}
		}
		s.cpu[pod.UID] = value
	case "pod_memory_working_set_bytes":
		s.memory += value
	default:
		return true
	}
	s.at = max(s.at, at)
	return true
}

// usage is the CPU time of all pods since this process started. It never decreases, even if pods go.
type usage struct {
	mu    sync.Mutex
	last  map[types.UID]float64
	total float64
}

func (u *usage) node(page *exposition.Page, s *sums, pods map[types.NamespacedName]PodRef) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last == nil {
		u.last = map[types.UID]float64{}
	}
	for uid, value := range s.cpu {
		if before := u.last[uid]; value >= before {
			u.total += value - before
		} else {
			u.total += value // the pod was created again at the provider, and starts at zero
		}
		u.last[uid] = value
	}
	here := map[types.UID]bool{}
	for _, pod := range pods {
		here[pod.UID] = true
	}
	maps.DeleteFunc(u.last, func(uid types.UID, _ float64) bool { return !here[uid] })
	at := ""
	if s.at > 0 {
		at = strconv.FormatInt(s.at, 10)
	}
	number := func(value float64) string { return strconv.FormatFloat(value, 'g', -1, 64) }
	return errors.Join(
		page.Add("[STABLE] Cumulative cpu time consumed by the node in core-seconds", "counter",
			exposition.Sample{Name: "node_cpu_usage_seconds_total", Value: number(u.total), Timestamp: at}),
		page.Add("[STABLE] Current working set of the node in bytes", "gauge",
			exposition.Sample{Name: "node_memory_working_set_bytes", Value: number(s.memory), Timestamp: at}),
	)
}

// remoteNamespaces returns the namespaces of the pods.
func remoteNamespaces(pods map[types.NamespacedName]PodRef) []string {
	all := map[string]bool{}
	for name := range pods {
		all[name.Namespace] = true
	}
	return slices.SortedFunc(maps.Keys(all), strings.Compare)
}
