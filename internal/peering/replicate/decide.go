// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
)

const yes, no = "true", "false"

// meta is the metadata of a copy.
type meta struct {
	name, namespace     string
	labels, annotations map[string]string
}

// copied returns the metadata of the copy of an object of the cluster origin: that of the object, with the labels of a copy.
func copied(original metav1.Object, origin, namespace string) meta {
	to := meta{name: original.GetName(), namespace: namespace, labels: maps.Clone(original.GetLabels()), annotations: maps.Clone(original.GetAnnotations())}
	to.labels[labels.Replication] = no
	to.labels[labels.Replicated] = yes
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

// peerOf returns the cluster that the object is to be copied to. ours also holds for an object that lost its labels but
// not its finalizer, because its deletion must finish. It never holds for a copy: another cluster writes its labels.
func peerOf(object metav1.Object) (id string, ours bool) {
	id = object.GetLabels()[labels.RemoteID]
	if object.GetLabels()[labels.Replicated] == yes {
		return id, false
	}
	if object.GetLabels()[labels.Replication] == yes && id != "" {
		return id, true
	}
	return id, slices.Contains(object.GetFinalizers(), labels.FinalizerReplication)
}

// isCopy reports whether the object is a copy of one of the cluster origin.
func isCopy(object metav1.Object, origin string) bool {
	return object.GetLabels()[labels.Replicated] == yes && object.GetLabels()[labels.OriginID] == origin
}

// isFor reports whether the object is to be copied to a cluster, by the replicator of either cluster.
func isFor(object metav1.Object, clusterID string) bool {
	return isOriginal(object) && object.GetLabels()[labels.RemoteID] == clusterID
}

// isOriginal reports whether the object is to be copied.
func isOriginal(object metav1.Object) bool {
	return object.GetLabels()[labels.Replication] == yes && object.GetLabels()[labels.Replicated] != yes
}

// How long the deletion of an object waits for the provider, see docs/adr/0012-taking-a-peering-down.md.
const (
	// removeTime is for the removal of the copy, once all other finalizers are gone.
	removeTime = 30 * time.Second
	// drainTime is the longest that the other finalizers take if the provider answers.
	drainTime = 120 * time.Second
	// silentTime is for both if the provider does not answer. silentGrace is the least that is left for the removal, if the
	// provider stopped answering only after a long drain.
	silentTime  = 45 * time.Second
	silentGrace = 5 * time.Second
)

// ending is what the deadline of a deletion depends on.
type ending struct {
	// deleted is the deletion timestamp, drained when our finalizer was first seen to be the last one.
	deleted, drained time.Time
	// forced: do not wait.
	forced bool
	// ready: the provider's API server answers.
	ready bool
}

// deadline is when the finalizer is removed although the copy is not gone.
func (e ending) deadline() time.Time {
	if e.forced {
		return e.deleted
	}
	if e.ready {
		return earlier(e.drained.Add(removeTime), e.deleted.Add(drainTime+removeTime))
	}
	late := e.deleted.Add(silentTime)
	if grace := e.drained.Add(silentGrace); grace.After(late) {
		late = grace
	}
	return late
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// leftover is the text of the event about a copy that a deadline left in the peer. where is its namespace, if known.
func leftover(kind, name, peer, where string, accepted bool) string {
	if where == "" {
		where = "our tenant namespace"
	} else {
		where = "namespace " + where
	}
	cause := "the provider did not answer the request to delete it"
	if accepted {
		cause = "the provider accepted the request to delete it and has not finished"
	}
	return fmt.Sprintf("the copy of %s %s in cluster %s, %s, may be left: %s. It is deleted with the tenant of this cluster there; "+
		"to delete it now, an administrator of that cluster can delete the ForeignCluster of this cluster", kind, name, peer, where, cause)
}
