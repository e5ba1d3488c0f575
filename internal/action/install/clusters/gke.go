// SPDX-License-Identifier: Apache-2.0

package clusters

// gke is Google Kubernetes Engine: documented, and not supported yet.
var gke = Type{Name: "gke", Refused: untested("gke")}
