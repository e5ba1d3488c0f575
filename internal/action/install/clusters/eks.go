// SPDX-License-Identifier: Apache-2.0

package clusters

// eks is Amazon Elastic Kubernetes Service: documented, and not supported yet.
var eks = Type{Name: "eks", Refused: untested("eks")}
