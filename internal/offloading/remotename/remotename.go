// SPDX-License-Identifier: Apache-2.0

package remotename

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
)

// Of returns the name of the remote namespaces of a local namespace. A name that is too long is cut and ends with a hash of namespace and
// cluster ID, so it is stable and differs between namespaces.
func Of(namespace string, strategy offloadingv1alpha1.NamespaceMappingStrategy, local discoveryv1alpha1.ClusterIdentity) string {
	if strategy == offloadingv1alpha1.EnforceSameName {
		return namespace
	}
	return Default(namespace, local.UniqueName(), local.ClusterID)
}

// Default is the name of a remote namespace with the mapping strategy DefaultName, for the consumer with this unique name and ID.
func Default(namespace, unique, clusterID string) string {
	name := namespace + "-" + unique
	if len(name) <= validation.DNS1123LabelMaxLength {
		return name
	}
	sum := sha256.Sum256([]byte(namespace + "/" + clusterID))
	hash := "-" + hex.EncodeToString(sum[:])[:10]
	return strings.TrimRight(name[:validation.DNS1123LabelMaxLength-len(hash)], "-") + hash
}
