// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
)

// Meta is the metadata of a copy.
type Meta struct {
	name, namespace     string
	labels, annotations map[string]string
}

// Copied returns the metadata of the copy of an object of the cluster origin: that of the object, with the labels of a copy.
func Copied(original metav1.Object, origin, namespace string) Meta {
	to := Meta{name: original.GetName(), namespace: namespace, labels: maps.Clone(original.GetLabels()), annotations: maps.Clone(original.GetAnnotations())}
	to.labels[labels.Replication] = "false"
	to.labels[labels.Replicated] = labels.True
	to.labels[labels.OriginID] = origin
	for _, peer := range []string{labels.ClusterID, labels.RemoteClusterID} {
		if _, ok := to.labels[peer]; ok {
			to.labels[peer] = origin // for the receiver, the peer is the origin
		}
	}
	// These two apply only to the original.
	delete(to.annotations, corev1.LastAppliedConfigAnnotation)
	delete(to.annotations, labels.ForceUnpeer)
	return to
}

// PeerOf returns the cluster that the object is to be copied to. ours also holds for an object that lost its labels but
// not its finalizer, because its deletion must finish. It never holds for a copy: another cluster writes its labels.
func PeerOf(object metav1.Object) (id string, ours bool) {
	id = object.GetLabels()[labels.RemoteID]
	if object.GetLabels()[labels.Replicated] == labels.True {
		return id, false
	}
	if object.GetLabels()[labels.Replication] == labels.True && id != "" {
		return id, true
	}
	return id, slices.Contains(object.GetFinalizers(), labels.FinalizerReplication)
}

// IsCopy reports whether the object is a copy of one of the cluster origin.
func IsCopy(object metav1.Object, origin string) bool {
	return object.GetLabels()[labels.Replicated] == labels.True && object.GetLabels()[labels.OriginID] == origin
}

// IsFor reports whether the object is to be copied to a cluster, by the replicator of either cluster.
func IsFor(object metav1.Object, clusterID string) bool {
	return IsOriginal(object) && object.GetLabels()[labels.RemoteID] == clusterID
}

// IsOriginal reports whether the object is to be copied.
func IsOriginal(object metav1.Object) bool {
	return object.GetLabels()[labels.Replication] == labels.True && object.GetLabels()[labels.Replicated] != labels.True
}
