// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the kinds of group storage.liqo.io: moves of volumes between clusters.
// It is public API: fields keep their names and meaning, and nothing here acts. The schema test in
// package apis compares the generated manifests with the documented contract.
//
// +kubebuilder:object:generate=true
// +groupName=storage.liqo.io
package v1alpha1
