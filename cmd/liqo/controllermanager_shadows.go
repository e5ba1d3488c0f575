// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
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
	labels, annotations      []string
	tolerations              []string
	enforce                  bool
	refresh                  time.Duration
}

// Register adds the flags.
func (o *shadowOptions) Register(flags *pflag.FlagSet) {
	flags.IntVar(&o.podWorkers, "shadow-pod-ctrl-workers", 10, "number of ShadowPods that are processed at the same time")
	flags.IntVar(&o.sliceWorkers, "shadow-endpointslice-ctrl-workers", 10, "number of ShadowEndpointSlices that are processed at the same time")
	flags.StringVar(&o.podSecurity, "peer-pod-security", string(shadow.Baseline), "restriction of the pods of peers: restricted or baseline (the Pod Security Standards), or privileged (only what their namespace enforces)")
	flags.StringSliceVar(&o.labels, "peer-pod-labels", nil, "further keys of labels that pods of peers may have, separated by commas; KEY* stands for all keys with that prefix")
	flags.StringSliceVar(&o.annotations, "peer-pod-annotations", nil, "the same for annotations")
	flags.StringSliceVar(&o.tolerations, "peer-tolerations", nil, "keys of further taints that pods of peers may tolerate, in the same form")
	flags.BoolVar(&o.enforce, "enable-resource-enforcement", false, "refuse pods of a peer if the sum of their limits, not only of their requests, exceeds its grant")
	flags.DurationVar(&o.refresh, "resource-validator-refresh-interval", 5*time.Minute, "interval at which the usage of peers is counted again")
}

// Validate refuses what cannot work.
func (o *shadowOptions) Validate() error {
	switch {
	case o.podWorkers < 1 || o.sliceWorkers < 1:
		return fmt.Errorf("--shadow-pod-ctrl-workers %d and --shadow-endpointslice-ctrl-workers %d must be positive", o.podWorkers, o.sliceWorkers)
	case !slices.Contains(shadow.Levels, shadow.Level(o.podSecurity)):
		return fmt.Errorf("--peer-pod-security %q: want one of %v", o.podSecurity, shadow.Levels)
	case o.refresh <= 0:
		return fmt.Errorf("--resource-validator-refresh-interval %v must be positive", o.refresh)
	}
	_, err := o.allowed()
	return err
}

// allowed returns what peers may decide about their pods.
func (o *shadowOptions) allowed() (allowed shadow.Allowed, _ error) {
	for _, flag := range []struct {
		name string
		from []string
		to   *shadow.Keys
	}{
		{"--peer-pod-labels", o.labels, &allowed.Labels}, {"--peer-pod-annotations", o.annotations, &allowed.Annotations}, {"--peer-tolerations", o.tolerations, &allowed.Tolerations},
	} {
		keys, err := shadow.ParseKeys(flag.from)
		if err != nil {
			return allowed, fmt.Errorf("%s: %w", flag.name, err)
		}
		*flag.to = keys
	}
	return allowed, nil
}

// setup adds the controllers and the webhook to the manager.
func (o *shadowOptions) setup(mgr manager.Manager, guard *policies.Guard, endpoints offloading.ShadowEndpointSliceOptions, webhooks bool) error {
	remoteNamespaces, err := offloading.WatchRemoteNamespaces(mgr)
	if err != nil {
		return err
	}
	remoteNamespaces.Policies = guard
	allowed, err := o.allowed()
	if err != nil {
		return err
	}
	err = offloading.SetupShadowPod(mgr, offloading.ShadowPodOptions{RemoteNamespaces: remoteNamespaces, Level: shadow.Level(o.podSecurity), Allowed: allowed, Workers: o.podWorkers})
	if err != nil {
		return err
	}
	endpoints.RemoteNamespaces, endpoints.Workers = remoteNamespaces, o.sliceWorkers
	err = offloading.SetupShadowEndpointSlice(mgr, endpoints)
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
