// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"errors"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/offloading/exposition"
)

// Node is what the pages show of the node itself.
type Node struct {
	Name string
	// Since is when the node was registered.
	Since metav1.Time
	// Version is that of the kubelet in the status of the node: rules compare the versions of all components.
	Version string
	// Port is the port of this API, Pods how many pods the node may have, 0 if that is not known.
	Port, Pods int64
	// LeaseSeconds and StatusSeconds are how long the lease of the node is, and how often its provider is asked.
	LeaseSeconds, StatusSeconds int64
	// SignedServing: the certificate of the port is requested from the cluster's signer.
	SignedServing bool
}

// Metrics adds the metrics of a kubelet about itself, under the names and with the labels of Kubernetes.
func Metrics(page *exposition.Page, node Node, each Each) error {
	pods, active, running := 0, 0, 0
	containers := map[string]int{"created": 0, "running": 0, "exited": 0, "unknown": 0}
	each(func(pod *corev1.Pod) {
		pods++
		if !podphase.Final(pod.Status.Phase) {
			active++
		}
		if Running(pod) != nil {
			running++
		}
		statuses(pod, func(status *corev1.ContainerStatus) {
			switch {
			case status.State.Running != nil:
				containers["running"]++
			case status.State.Terminated != nil:
				containers["exited"]++
			}
		})
	})
	major, minor := release(node.Version)
	failure := errors.Join(
		gauge(page, "kubelet_node_name", "[ALPHA] The node's name. The count is always 1.", 1, "node", node.Name),
		gauge(page, "kubelet_running_pods", "[ALPHA] Number of pods that have a running pod sandbox", running),
		gauge(
			page, "kubelet_desired_pods",
			"[ALPHA] The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver.", pods,
			"static", "false",
		),
		gauge(page, "kubelet_active_pods", "[ALPHA] The number of pods the kubelet considers active and which are being considered when admitting "+
			"new pods. static is true if the pod is not from the apiserver.", active, "static", "false"),
		gauge(page, "kubernetes_build_info", "[ALPHA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git "+
			"tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
			1, "git_version", node.Version, "major", major, "minor", minor),
	)
	for _, state := range []string{"created", "exited", "running", "unknown"} {
		failure = errors.Join(
			failure,
			gauge(page, "kubelet_running_containers", "[ALPHA] Number of containers currently running", containers[state], "container_state", state),
		)
	}
	return failure
}

// Indicators adds the metrics of /metrics/slis.
func Indicators(page *exposition.Page, checks map[string]bool) error {
	var failure error
	for _, name := range Checks {
		value := 0
		if checks[name] {
			value = 1
		}
		failure = errors.Join(
			failure,
			gauge(page, "kubernetes_healthcheck", "[STABLE] This metric records the result of a single healthcheck.", value, "name", name, "type", "healthz"),
		)
	}
	return failure
}

// Checks are those of /healthz, in the order of a kubelet.
var Checks = []string{"ping", "log", "syncloop"}

func gauge(page *exposition.Page, name, help string, value int, labels ...string) error {
	sample := exposition.Sample{Name: name, Value: strconv.Itoa(value)}
	for i := 0; i+1 < len(labels); i += 2 {
		sample.Labels = append(sample.Labels, exposition.Label{Name: labels[i], Value: labels[i+1]})
	}
	return page.Add(help, "gauge", sample)
}

// release returns the two numbers of a version such as v1.37.2.
func release(version string) (major, minor string) {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 {
		return "", ""
	}
	return parts[0], parts[1]
}
