// SPDX-License-Identifier: Apache-2.0

// Package webhook serves the admission webhooks of offloading. As a consumer: pod.go adds to new pods of offloaded namespaces where they may run,
// and daemonset.go keeps DaemonSets that tolerate every taint off virtual nodes, both as strategy.go decides from values.
// namespaceoffloading.go refuses invalid NamespaceOffloadings and reports why. As a provider: shadowpod.go decides what a peer may request,
// quota.go how much of its grant its pods use, and package peerobjects what it has besides.
//
// Every pod of the cluster can connect to the port of the webhooks and send a forged review, so no handler writes to an API server.
//
// The package must not know which clusters exist, nor how objects reach them. The rules for ShadowPods are in package shadow, which the
// controllers use as well. It is proved by the tables of strategy_test.go, namespaceoffloading_test.go and shadowpod_test.go (what hostile peers
// try, and many concurrent requests), and by TestOffloadingRace in deployments/liqo/integration, against a real API server with the configuration of the chart.
package webhook
