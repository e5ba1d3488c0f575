// SPDX-License-Identifier: Apache-2.0

// Package cloud serves a playground cluster as a cloud provider's controllers serve a real
// one: addons, CNI configuration and routes of nodes, addresses of LoadBalancer Services,
// volumes, and Node objects without a machine.
//
// Decisions are functions of values (plan.go, loadbalancer.go, cni.go, the upper half of
// hollow.go), each with a table test; the other files read the API and write the API, the
// kernel or files. Addons and volumes are packages below. One process serves one cluster. It
// writes only when something differs: an idle cluster sees no request at all.
//
// It must not know how machines are started, nor any cluster but its own.
// integration_test.go proves it against a real API server and real network namespaces.
package cloud

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"liqo.io/liqo/playground/components/kube/internal/cloud/addons"
	"liqo.io/liqo/playground/components/kube/internal/cloud/settings"
	"liqo.io/liqo/playground/components/kube/internal/cloud/volumes"
	"liqo.io/liqo/playground/components/kube/internal/session"
)

// NewCommand returns the program "cloud".
func NewCommand() *cobra.Command {
	var path string
	command := &cobra.Command{
		Use:   "cloud --config FILE",
		Short: "Addons, routes, load balancer addresses, volumes and hollow nodes of one playground cluster",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			config, err := settings.Load(path)
			if err != nil {
				return err
			}
			return run(command.Context(), config)
		},
	}
	command.Flags().StringVar(&path, "config", "", "JSON file that describes the cluster")
	_ = command.MarkFlagRequired("config") // fails only for a flag that does not exist
	return command
}

// run serves the cluster until ctx ends, which is no error.
func run(ctx context.Context, config settings.Config) error {
	pool, err := settings.ParsePool(config.LoadBalancerPool)
	if err != nil {
		return err
	}
	// The kernel keeps its configuration while the API is away, so the fabric outlives sessions.
	fabric := newFabric(config.Nodes, pool)
	var background sync.WaitGroup
	background.Go(func() { fabric.run(ctx) })
	defer background.Wait()

	options := session.Options{Kubeconfig: config.Kubeconfig, UserAgent: "playground-cloud", QPS: 200, Burst: 400, Probe: 50 * time.Millisecond}
	err = session.Run(ctx, options, func(ctx context.Context, access *rest.Config) error {
		return serve(ctx, cluster{Config: config, pool: pool, fabric: fabric}, access)
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// cluster is what all parts share: the configuration and, during a session, the API clients.
type cluster struct {
	settings.Config
	pool   settings.Pool
	fabric *fabric

	client    kubernetes.Interface
	informers informers.SharedInformerFactory
	events    record.EventRecorder
}

// serve runs all parts for one session. It returns when ctx ends, or with an error of the setup.
func serve(ctx context.Context, c cluster, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("client for %s: %w", config.Host, err)
	}
	c.client = client
	c.informers = informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(trim))
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	c.events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "playground-cloud"})

	// All parts register their handlers before the first watch starts, then run concurrently.
	parts := []func(context.Context){addons.Loop(c.Config, config)}
	for _, part := range []func() (func(context.Context), error){c.nodes, c.services, func() (func(context.Context), error) {
		return volumes.Loop(ctx, c.Nodes, c.client, c.informers, c.events)
	}, c.hollow} {
		run, err := part()
		if err != nil {
			return err
		}
		parts = append(parts, run)
	}
	c.informers.Start(ctx.Done())
	var group sync.WaitGroup
	for _, run := range parts {
		if run != nil {
			group.Go(func() { run(ctx) })
		}
	}
	group.Wait()
	c.informers.Shutdown()
	return context.Cause(ctx)
}

// trim drops unused fields before an object is cached. The informers also pass tombstones to it.
func trim(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	if node, isNode := object.(*corev1.Node); isNode {
		node.Status.Images, node.Status.VolumesInUse, node.Status.VolumesAttached = nil, nil, nil
	}
	return object, nil
}
