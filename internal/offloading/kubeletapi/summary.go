// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/internal/kube/printable"
)

// atATime is how many namespaces are read at once.
const atATime = 4

// podMetrics is the answer of metrics.k8s.io for the pods of a namespace.
type podMetrics struct {
	Items []struct {
		Metadata   metav1.ObjectMeta `json:"metadata"`
		Timestamp  metav1.Time       `json:"timestamp"`
		Containers []struct {
			Name  string                     `json:"name"`
			Usage map[string]metricsQuantity `json:"usage"`
		} `json:"containers"`
	} `json:"items"`
}

// maxContainers bounds the containers of one pod in a summary, whose text is many times longer than that of an empty container in the answer.
const maxContainers = 1000

// metricsQuantity is a quantity in the provider's answer.
type metricsQuantity struct{ resource.Quantity }

// cheapQuantity matches the JSON of quantities that are parsed in a bounded time. With an exponent of many digits, that takes hours.
var cheapQuantity = regexp.MustCompile(`^"?[-+.0-9]{1,32}([a-zA-Z]{0,2}|[eE][-+]?[0-9]{1,2})"?$`)

// UnmarshalJSON decodes the quantity.
func (q *metricsQuantity) UnmarshalJSON(text []byte) error {
	if !cheapQuantity.Match(text) {
		return fmt.Errorf("%.40q is not an amount", text)
	}
	return q.Quantity.UnmarshalJSON(text)
}

// The part of a kubelet's summary (stats/v1alpha1) that is known here.
type (
	cpuStats struct {
		Time           metav1.Time `json:"time"`
		UsageNanoCores uint64      `json:"usageNanoCores"`
	}
	memoryStats struct {
		Time            metav1.Time `json:"time"`
		WorkingSetBytes uint64      `json:"workingSetBytes"`
	}
	containerStats struct {
		Name      string      `json:"name"`
		StartTime metav1.Time `json:"startTime"`
		CPU       cpuStats    `json:"cpu"`
		Memory    memoryStats `json:"memory"`
	}
	podReference struct {
		Name      string    `json:"name"`
		Namespace string    `json:"namespace"`
		UID       types.UID `json:"uid"`
	}
	podStats struct {
		PodRef     podReference     `json:"podRef"`
		StartTime  metav1.Time      `json:"startTime"`
		Containers []containerStats `json:"containers"`
		CPU        cpuStats         `json:"cpu"`
		Memory     memoryStats      `json:"memory"`
	}
	nodeStats struct {
		NodeName  string      `json:"nodeName"`
		StartTime metav1.Time `json:"startTime"`
		CPU       cpuStats    `json:"cpu"`
		Memory    memoryStats `json:"memory"`
	}
	stats struct {
		Node nodeStats  `json:"node"`
		Pods []podStats `json:"pods"`
	}
)

// started is since when a pod and its containers run, as this cluster shows it. Readers take a missing time for one long ago.
type started struct {
	pod        metav1.Time
	containers map[string]metav1.Time
}

// starts returns that of each pod of the node.
func (k *Kubelet) starts() map[types.UID]started {
	all := map[types.UID]started{}
	k.each(func(pod *corev1.Pod) {
		since := started{containers: map[string]metav1.Time{}}
		if at := pod.Status.StartTime; at != nil {
			since.pod = *at
		}
		for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses} {
			for i := range list {
				if running := list[i].State.Running; running != nil {
					since.containers[list[i].Name] = running.StartedAt
				}
			}
		}
		all[pod.UID] = since
	})
	return all
}

// summary serves /stats/summary from the metrics.k8s.io API of the provider.
func (k *Kubelet) summary(w http.ResponseWriter, r *http.Request) {
	pods, starts := k.podsByRemoteName(), k.starts()
	answer := stats{Node: nodeStats{NodeName: k.options.NodeName, StartTime: k.node(r).Since}, Pods: []podStats{}}
	answer.Node.CPU.Time, answer.Node.Memory.Time = metav1.NewTime(time.Now()), metav1.NewTime(time.Now())
	var mu sync.Mutex
	ctx, cancel := context.WithTimeout(r.Context(), answerTime)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atATime)
	for _, namespace := range remoteNamespaces(pods) {
		group.Go(func() error {
			found, err := k.podMetrics(ctx, namespace)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			seen := map[string]bool{}
			for i := range found.Items {
				item := &found.Items[i]
				pod, ok := pods[types.NamespacedName{Namespace: namespace, Name: item.Metadata.Name}]
				if !ok || seen[item.Metadata.Name] {
					continue
				}
				seen[item.Metadata.Name] = true
				since := starts[pod.UID]
				entry := podStats{PodRef: podReference{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID}, StartTime: since.pod}
				entry.CPU.Time, entry.Memory.Time = item.Timestamp, item.Timestamp
				for _, container := range item.Containers[:min(len(item.Containers), maxContainers)] {
					if len(validation.IsDNS1123Label(container.Name)) > 0 {
						continue
					}
					c := containerStats{
						Name: container.Name, StartTime: since.containers[container.Name], CPU: cpuStats{Time: item.Timestamp},
						Memory: memoryStats{Time: item.Timestamp},
					}
					c.CPU.UsageNanoCores, c.Memory.WorkingSetBytes = amount(container.Usage["cpu"].Quantity, resource.Nano), amount(container.Usage["memory"].Quantity, 0)
					entry.CPU.UsageNanoCores += c.CPU.UsageNanoCores
					entry.Memory.WorkingSetBytes += c.Memory.WorkingSetBytes
					entry.Containers = append(entry.Containers, c)
				}
				answer.Node.CPU.UsageNanoCores += entry.CPU.UsageNanoCores
				answer.Node.Memory.WorkingSetBytes += entry.Memory.WorkingSetBytes
				answer.Pods = append(answer.Pods, entry)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		k.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(&answer); err != nil {
		log.FromContext(r.Context()).V(1).Info("statistics not sent", "reason", err.Error())
	}
}

func (k *Kubelet) podMetrics(ctx context.Context, namespace string) (*podMetrics, error) {
	body, err := k.get(ctx, func(string) string { return "/apis/metrics.k8s.io/v1beta1/namespaces/" + namespace + "/pods" })
	if err != nil {
		return nil, err
	}
	defer body.Close()
	var found podMetrics
	if err := json.NewDecoder(io.LimitReader(body, maxMetrics)).Decode(&found); err != nil {
		return nil, &refused{
			http.StatusBadGateway,
			fmt.Sprintf("metrics of cluster %s cannot be read: %s", k.options.RemoteName, printable.Line(err.Error(), printable.MaxLine)),
		}
	}
	return &found, nil
}

// amount returns a quantity in the unit of scale, at least 0.
func amount(quantity resource.Quantity, scale resource.Scale) uint64 {
	return uint64(max(quantity.ScaledValue(scale), 0))
}
