// SPDX-License-Identifier: Apache-2.0

// Package shadowpod creates the pods of peers in remote namespaces: one for each ShadowPod, once, and never again after it has finished.
//
//	controller.go                      wiring, and the steps that package shadow plans
//	amend.go                           changes of pods that exist
//	dropped.go, kept.go                fields that isolate a pod, and API servers that drop them
//	names.go, architectures.go         what a new pod gets from this cluster
//	incomplete.go                      what is reported to a peer that its pod lacks
//
// Package shadow decides. It must not know how ShadowPods get here. It is proved by its tests against real API servers.
package shadowpod
