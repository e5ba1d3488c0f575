// SPDX-License-Identifier: Apache-2.0

package clusters

// openshift is the OpenShift Container Platform: documented, and not supported yet.
var openshift = Type{Name: "openshift", Refused: untested("openshift")}
