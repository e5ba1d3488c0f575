// SPDX-License-Identifier: Apache-2.0

// Package webhook serves the admission webhooks of offloading. As a consumer: pod.go adds to new pods of offloaded namespaces where they may run,
// as strategy.go decides from values. namespaceoffloading.go refuses invalid NamespaceOffloadings and reports why. label.go makes the pods of a
// namespace pass this webhook before the request that offloads the namespace succeeds, so that pods applied after the
// NamespaceOffloading, even by the same command, are placed by it. As a provider: shadowpod.go decides what a peer may request, and quota.go how much.
//
// The package must not know which clusters exist, nor how objects reach them. The rules for ShadowPods are in package shadow, which the
// controllers use as well. It is proved by the tables of strategy_test.go, namespaceoffloading_test.go and shadowpod_test.go (what hostile peers
// try, and many concurrent requests), and by TestOffloadingRace in deployments/liqo, against a real API server with the configuration of the chart.
package webhook
