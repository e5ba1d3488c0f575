// SPDX-License-Identifier: Apache-2.0

// Package namespaceoffloading extends namespaces to other clusters: the label of an offloaded namespace, the rights of virtual kubelets in it, and its
// status.
//
//	controller.go, phases.go   wiring, the list of phases, and what each writes
//	status.go                  the status, from values
//
// It must not know how a provider makes a remote namespace. It is proved by its tests against real API servers; peers_test.go runs the controllers
// of both clusters.
package namespaceoffloading
