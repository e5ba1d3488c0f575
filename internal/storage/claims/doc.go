// SPDX-License-Identifier: Apache-2.0

// Package claims keeps, at one provider, the data of claims whose pods run there. It runs in the virtual kubelet.
//
//	plan.go       PURE: what to do next for a volume, from the claims of both clusters
//	project.go    PURE: the claim at the provider
//	pods.go       what a pod waits for, and the names of its claims there
//	deletion.go   the other records of the same data, and what is read again before data is deleted
//	keeper.go     observes both clusters, and carries out what plan.go decides
//
// It must not know how pods are reflected: the reflection asks it whether a pod may start (Held), and follows the namespaces with it. Its proof are
// TestPlan, and keeper_test.go with two real API servers.
package claims
