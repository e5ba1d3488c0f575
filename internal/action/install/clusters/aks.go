// SPDX-License-Identifier: Apache-2.0

package clusters

// aks is Azure Kubernetes Service: documented, and not supported yet.
var aks = Type{Name: "aks", Refused: untested("aks")}
