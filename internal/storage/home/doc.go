// SPDX-License-Identifier: Apache-2.0

// Package home decides which claims keep their pods in this cluster: those whose volume no provider has, and for which none is made there.
//
//	keep.go        PURE: what keeps a pod here
//	reader.go      reads the claims and classes that this decision needs
//	astray.go      PURE: how a claim comes back that the scheduler has sent to a virtual node
//	controller.go  carries that out
//
// The webhook for pods asks before a pod is placed: the scheduler takes a virtual node for a node like any other, and the provisioner of a foreign
// class then fails to make a volume there, for ever.
//
// It must not know how pods are placed, nor which providers exist. Its proof are the tables of TestKeeps and TestBack, and TestReturns against a real
// API server with exactly the rights of its markers; TestClaimsOfPods in deployments/liqo/integration asks through the webhook, with the rights of
// the controller manager.
package home
