// SPDX-License-Identifier: Apache-2.0

// Package features has a row for everything that a pod may ask for: whether it works at a provider as on a node of this cluster, differs, or is
// refused, and why. rows.yaml is the table; hack/generate writes it into docs/reference/pods.md.
//
// The package must not decide anything: packages project, shadow, quota and names do. Its tests prove each row: they send a pod that asks for it through these
// packages, as a virtual kubelet and a provider do, and through real API servers. They fail if a field of the newest Kubernetes has no row.
package features
