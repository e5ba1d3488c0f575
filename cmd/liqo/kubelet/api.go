// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"liqo.io/liqo/internal/kube/listener"
	"liqo.io/liqo/internal/offloading/caller"
	"liqo.io/liqo/internal/offloading/kubeletapi"
	"liqo.io/liqo/internal/offloading/pages"
	"liqo.io/liqo/internal/offloading/reflection"
	"liqo.io/liqo/internal/offloading/serving"
	vk "liqo.io/liqo/internal/offloading/virtualkubelet"
)

// The values of --certificate-type.
const (
	certificateKubelet = "kubelet"
	CertificateSelf    = "self-signed"
)

// kubeletAPIOptions are the options of the port that the API server calls.
type kubeletAPIOptions struct {
	port            uint16
	certificateType string
}

func (o *kubeletAPIOptions) Register(flags *pflag.FlagSet) {
	flags.Uint16Var(&o.port, "listen-port", 10250, "port at which the API server reads logs and opens streams to pods")
	flags.StringVar(&o.certificateType, "certificate-type", certificateKubelet,
		"signer of the certificate of that port: kubelet (the cluster's signer for kubelets; self-signed until it has signed), or self-signed")
}

func (o *kubeletAPIOptions) Validate() error {
	switch {
	case o.port == 0:
		return errors.New("--listen-port must not be 0: the node publishes it")
	case o.certificateType != certificateKubelet && o.certificateType != CertificateSelf:
		return fmt.Errorf("--certificate-type %q: want %s or %s", o.certificateType, certificateKubelet, CertificateSelf)
	}
	return nil
}

// reflected is what the kubelet API needs to know of the reflected objects.
type reflected interface {
	kubeletapi.NamespaceMappings
	kubeletapi.Pods
	EachPod(do func(*corev1.Pod))
	Another(namespace, name string) bool
}

func serveKubeletAPI(ctx context.Context, cfg *rest.Config, o *Options, node *vk.Node, from reflected) error {
	local, err := vk.NewClient(cfg)
	if err != nil {
		return err
	}
	address := net.ParseIP(o.node.NodeIP)
	if address == nil {
		return fmt.Errorf("--node-ip %q is not an IP address", o.node.NodeIP)
	}
	certificate, err := serving.New(serving.Names{Common: "system:node:" + o.node.NodeName, Organization: "system:nodes", IPs: []net.IP{address}})
	if err != nil {
		return err
	}
	at, err := listener.Open(ctx, ":"+strconv.Itoa(int(o.api.port)))
	if err != nil {
		return fmt.Errorf("port of the kubelet API: %w", err)
	}
	callers := caller.New(local)
	api := kubeletapi.New(kubeletapi.Options{
		NodeName: o.node.NodeName, ConsumerID: o.homeID, RemoteName: o.remoteName, Mappings: from, Pods: from, Another: from.Another,
		Provider: vk.NewUplink(local, o.node.Namespace, o.node.ClusterID), Callers: callers,
		EachPod: from.EachPod, Synced: node.Synced, Process: ProcessMetrics(),
		Node: func(ctx context.Context) pages.Node { return nodePage(ctx, node, o) },
	})
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serving.Serve(ctx, at, certificate.Get, callers.Certified, api) })
	group.Go(func() error {
		if o.api.certificateType == certificateKubelet {
			certificate.KeepSigned(ctx, serving.Request{Client: local, Node: node.Registered, Retry: time.Second})
		} else {
			certificate.Keep(ctx)
		}
		return nil
	})
	return group.Wait()
}

// ProcessMetrics serves what Prometheus knows of any process.
func ProcessMetrics() http.Handler {
	own := prometheus.NewRegistry()
	own.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(own, promhttp.HandlerOpts{DisableCompression: true})
}

// nodePage returns what the pages of the kubelet API show of the node.
func nodePage(ctx context.Context, node *vk.Node, o *Options) pages.Node {
	page := pages.Node{
		Port: int64(o.api.port), LeaseSeconds: int64(o.node.LeaseDuration.Seconds()), StatusSeconds: int64(o.node.PingInterval.Seconds()),
		SignedServing: o.api.certificateType == certificateKubelet,
	}
	if live, err := node.Registered(ctx); err == nil && live != nil {
		page.Version, page.Pods, page.Since = live.Status.NodeInfo.KubeletVersion, live.Status.Allocatable.Pods().Value(), live.CreationTimestamp
	}
	return page
}

// scheduledPods provides the pods of the node from the reflection engine.
type scheduledPods struct{ *reflection.Reflection }

// EachPod calls do with all pods of the node.
func (r scheduledPods) EachPod(do func(*corev1.Pod)) { r.Pods(do) }

// PodRefs returns all pods of the node.
func (r scheduledPods) PodRefs() (all []kubeletapi.PodRef) {
	r.Pods(func(pod *corev1.Pod) {
		all = append(all, kubeletapi.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID})
	})
	return all
}
