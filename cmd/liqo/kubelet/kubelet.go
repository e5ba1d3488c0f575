// SPDX-License-Identifier: Apache-2.0

// Package kubelet is the role virtual-kubelet: a virtual node, the reflection behind it, and the port of a kubelet. Its proof are
// reflection_test.go and the tests of cmd/liqo.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"liqo.io/liqo/cmd/liqo/role"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	vk "liqo.io/liqo/internal/offloading/virtualkubelet"
	"liqo.io/liqo/internal/storage/claims"
)

// Role is the kubelet of one virtual node.
func Role() role.Role {
	return role.Role{Name: "virtual-kubelet", Short: "Run the virtual node of one remote cluster", New: func() *cobra.Command {
		var o Options
		return role.Command(&o, o.home, func(cmd *cobra.Command, cfg *rest.Config) error {
			return runVirtualKubelet(cmd.Context(), cfg, &o)
		})
	}}
}

type Options struct {
	homeConfig       string
	node             vk.Options
	api              kubeletAPIOptions
	reflection       reflectionOptions
	remoteName       string
	homeID, homeName string
	healthAddress    string
	metricsEnabled   bool
	metricsAddress   string
	storage          bool
	claimWorkers     int
}

func (o *Options) Register(flags *pflag.FlagSet) {
	flags.StringVar(&o.homeConfig, "home-kubeconfig", "", "kubeconfig of this cluster (default: KUBECONFIG, or the service account of the pod)")
	flags.StringVar(&o.node.NodeName, "nodename", "", "name of the virtual node")
	flags.StringVar(&o.node.Namespace, "tenant-namespace", os.Getenv("POD_NAMESPACE"), "namespace of the remote cluster in this one")
	flags.StringVar(&o.node.SliceName, "slice-name", "", "name of the ResourceSlice that the node represents")
	flags.StringVar(&o.node.ClusterID, "foreign-cluster-id", "", "ID of the remote cluster")
	flags.StringVar(&o.remoteName, "foreign-cluster-name", "", "name of the remote cluster")
	flags.StringVar(&o.homeID, "home-cluster-id", "", "ID of this cluster")
	flags.StringVar(&o.homeName, "home-cluster-name", "", "name of this cluster")
	flags.StringVar(&o.node.NodeIP, "node-ip", os.Getenv("POD_IP"), "address of the node, which is that of this process")
	flags.DurationVar(&o.node.LeaseDuration, "node-lease-duration", 40*time.Second, "duration of the node's lease, which is renewed four times in that time")
	flags.DurationVar(&o.node.PingInterval, "node-ping-interval", 10*time.Second, "interval of the probes of the remote API server")
	flags.DurationVar(&o.node.PingTimeout, "node-ping-timeout", time.Second, "timeout of a probe of the remote API server")
	flags.BoolVar(&o.node.CheckNetwork, "node-check-network", false, "the node is Ready only while the network fabric works")
	flags.StringToStringVar(&o.node.ExtraLabels, "node-extra-labels", nil, "labels of the node (KEY=VALUE,...)")
	flags.StringToStringVar(&o.node.ExtraAnnotations, "node-extra-annotations", nil, "annotations of the node (KEY=VALUE,...)")
	flags.StringVar(&o.healthAddress, "health-probe-address", ":8081", "address of the probes /healthz and /readyz")
	flags.BoolVar(&o.metricsEnabled, "metrics-enabled", false, "serve metrics")
	flags.StringVar(&o.metricsAddress, "metrics-address", ":8080", "address of the metrics")
	o.api.Register(flags)
	o.reflection.Register(flags)
	role.Ignore(flags, role.NoteResync, "resync-period")
	role.Ignore(flags, role.NoteIPAM, "ipam-server")
	role.IgnoreSwitch(flags, role.NoteProfiling, "enable-profiling")
	flags.BoolVar(&o.storage, "enable-storage", true, "keep the data of claims of virtual storage classes in the remote cluster")
	flags.IntVar(&o.claimWorkers, "persistentvolumeclaim-reflection-workers", 3, "number of claims that are processed at the same time; 0 for none, as "+
		"--enable-storage=false")
	role.Ignore(flags, role.NoteClasses, "virtual-storage-class-name", "remote-real-storage-class-name")
}

func (o *Options) Validate() error {
	switch {
	case o.node.NodeName == "" || o.node.Namespace == "" || o.node.SliceName == "" || o.node.ClusterID == "":
		return errors.New("--nodename, --tenant-namespace, --slice-name and --foreign-cluster-id must be set; the controller manager does so")
	case o.node.NodeIP == "":
		return errors.New("--node-ip, or the variable POD_IP, must be the address of this process")
	case o.node.LeaseDuration < 4*time.Second || o.node.PingInterval <= 0 || o.node.PingTimeout <= 0:
		return errors.New("--node-lease-duration must be at least 4s, --node-ping-interval and --node-ping-timeout more than zero")
	}
	return errors.Join(o.api.Validate(), o.reflection.Validate())
}

// home returns the configuration for the API server of this cluster.
func (o *Options) home() (*rest.Config, error) {
	if o.homeConfig != "" {
		return clientcmd.BuildConfigFromFlags("", o.homeConfig)
	}
	return config.GetConfig()
}

// gcPercent trades a little time for memory: there is one process per provider, and its caches hold most of the memory.
const gcPercent = 50

func runVirtualKubelet(ctx context.Context, cfg *rest.Config, o *Options) error {
	role.Frugal(ctx)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = 100, 100
	o.node.PingRetry = time.Second
	o.node.KubeletPort = int32(o.api.port)
	engine, addresses, err := newReflection(cfg, o)
	if err != nil {
		return err
	}
	o.node.OnProbe, o.node.OnNetwork, o.node.Failing, o.node.Storage = engine.SetConnection, engine.SetNetwork, engine.Failing, o.storage && o.claimWorkers > 0
	node, err := vk.New(cfg, o.node)
	if err != nil {
		return err
	}
	engine.OnFailing(node.Requeue)
	group, ctx := errgroup.WithContext(ctx)
	if o.storage && o.claimWorkers > 0 {
		keeper := claims.New(claims.Options{Local: engine.LocalClient(), ClusterID: o.node.ClusterID, Peer: engine, Workers: o.claimWorkers})
		engine.Attach(keeper)
		group.Go(func() error { return keeper.Run(ctx) })
	}
	group.Go(func() error { return node.Run(ctx) })
	group.Go(func() error { return engine.Run(ctx) })
	group.Go(func() error { return addresses.Run(ctx) })
	group.Go(func() error { return serveKubeletAPI(ctx, cfg, o, node, scheduledPods{engine}) })
	group.Go(func() error { return role.Serve(ctx, o.healthAddress, healthOf(node)) })
	if o.metricsEnabled {
		group.Go(func() error { return role.Serve(ctx, o.metricsAddress, kubemanager.Metrics()) })
	}
	return group.Wait()
}

func healthOf(node *vk.Node) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !node.Synced() {
			http.Error(w, "the local API server has not answered yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}
