// SPDX-License-Identifier: Apache-2.0

// Package pullsecret brings the credentials for the registry of Liqo's images to the namespaces in which virtual kubelets run. A pod can use pull Secrets
// of its own namespace only, and tenant namespaces come and go, so the administrator cannot create them there. The controller keeps one Secret beside
// each virtual kubelet, with the credentials of all that the chart's value names; it belongs to the Deployment, and goes with it.
//
// The package must not know what a virtual kubelet does. TestCredentials proves the content, TestPullSecret the controller with an API server.
package pullsecret
