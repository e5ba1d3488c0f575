// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"liqo.io/liqo/internal/kube/policies"
	"liqo.io/liqo/internal/offloading"
	"liqo.io/liqo/internal/offloading/shadow"
	offloadingwebhook "liqo.io/liqo/internal/offloading/webhook"
)

// shadowOptions are the options for the ShadowPods and ShadowEndpointSlices of peers.
type shadowOptions struct {
	podWorkers, sliceWorkers int
	podSecurity              string
	enforce                  bool
	refresh                  time.Duration
}

// Register adds the flags.
func (o *shadowOptions) Register(flags *pflag.FlagSet) {
	flags.IntVar(&o.podWorkers, "shadow-pod-ctrl-workers", 10, "number of ShadowPods that are processed at the same time")
	flags.IntVar(&o.sliceWorkers, "shadow-endpointslice-ctrl-workers", 10, "number of ShadowEndpointSlices that are processed at the same time")
	flags.StringVar(&o.podSecurity, "peer-pod-security", string(shadow.Baseline), "restriction of the pods of peers: baseline (the Pod Security Standard), or privileged (only what their namespace enforces)")
	flags.BoolVar(&o.enforce, "enable-resource-enforcement", false, "refuse pods of a peer if the sum of their limits, not only of their requests, exceeds its grant")
	flags.DurationVar(&o.refresh, "resource-validator-refresh-interval", 5*time.Minute, "interval at which the usage of peers is counted again")
}

// Validate refuses what cannot work.
func (o *shadowOptions) Validate() error {
	switch {
	case o.podWorkers < 1 || o.sliceWorkers < 1:
		return fmt.Errorf("--shadow-pod-ctrl-workers %d and --shadow-endpointslice-ctrl-workers %d must be positive", o.podWorkers, o.sliceWorkers)
	case o.podSecurity != string(shadow.Baseline) && o.podSecurity != string(shadow.Privileged):
		return fmt.Errorf("--peer-pod-security %q: want %s or %s", o.podSecurity, shadow.Baseline, shadow.Privileged)
	case o.refresh <= 0:
		return fmt.Errorf("--resource-validator-refresh-interval %v must be positive", o.refresh)
	}
	return nil
}

// setup adds the controllers and the webhook to the manager.
func (o *shadowOptions) setup(mgr manager.Manager, guard *policies.Guard, internalNetwork, webhooks bool) error {
	remoteNamespaces, err := offloading.WatchRemoteNamespaces(mgr)
	if err != nil {
		return err
	}
	remoteNamespaces.Policies = guard
	if err := offloading.SetupShadowPod(mgr, offloading.ShadowPodOptions{RemoteNamespaces: remoteNamespaces, Level: shadow.Level(o.podSecurity), Workers: o.podWorkers}); err != nil {
		return err
	}
	err = offloading.SetupShadowEndpointSlice(mgr, offloading.ShadowEndpointSliceOptions{RemoteNamespaces: remoteNamespaces, InternalNetwork: internalNetwork, Workers: o.sliceWorkers})
	if err != nil || !webhooks {
		return err
	}
	options := offloadingwebhook.ShadowPodOptions{RemoteNamespaces: remoteNamespaces, Level: shadow.Level(o.podSecurity)}
	if options.Quota, err = offloadingwebhook.SetupQuota(mgr, remoteNamespaces, o.refresh, o.enforce); err != nil {
		return err
	}
	offloadingwebhook.RegisterShadowPod(mgr.GetWebhookServer(), mgr.GetScheme(), options)
	return nil
}
