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

// What is decided from values alone.

const yes, no = "true", "false"

// meta is what the copy is called and carries.
type meta struct {
	name, namespace     string
	labels, annotations map[string]string
}

// copied says what the copy of an object of the cluster origin carries: what the object carries, with the labels of a copy.
func copied(original metav1.Object, origin, namespace string) meta {
	to := meta{name: original.GetName(), namespace: namespace, labels: maps.Clone(original.GetLabels()), annotations: maps.Clone(original.GetAnnotations())}
	to.labels[labels.Replication] = no
	to.labels[labels.Replicated] = yes
	to.labels[labels.OriginID] = origin
	for _, peer := range []string{labels.ClusterID, labels.RemoteClusterID} {
		if _, ok := to.labels[peer]; ok {
			to.labels[peer] = origin // where the copy is, that is the peer
		}
	}
	// The two speak of the original only.
	delete(to.annotations, corev1.LastAppliedConfigAnnotation)
	delete(to.annotations, labels.ForceUnpeer)
	return to
}

// peerOf is the cluster that the object is to be copied to. An object that lost its labels but not its finalizer
// belongs to nobody and still has to end. A copy is another cluster's, which may write what it likes on it.
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

// isCopy says whether the object is a copy of one of the cluster origin.
func isCopy(object metav1.Object, origin string) bool {
	return object.GetLabels()[labels.Replicated] == yes && object.GetLabels()[labels.OriginID] == origin
}

// isFor says whether the object is one to be copied to a cluster, by whoever has a link.
func isFor(object metav1.Object, clusterID string) bool {
	return isOriginal(object) && object.GetLabels()[labels.RemoteID] == clusterID
}

// isOriginal says whether the object is one to be copied.
func isOriginal(object metav1.Object) bool {
	return object.GetLabels()[labels.Replication] == yes && object.GetLabels()[labels.Replicated] != yes
}

// How long the end of an object waits for the provider, see docs/adr/0012-taking-a-peering-down.md.
const (
	// removeTime is for the removal of the copy, once the local side is done with the object.
	removeTime = 30 * time.Second
	// drainTime is the most that the local side takes if the provider answers.
	drainTime = 120 * time.Second
	// silentTime is for all of it, if the provider does not answer; silentGrace is what a provider that fell silent only
	// after a long drain gets all the same.
	silentTime  = 45 * time.Second
	silentGrace = 5 * time.Second
)

// ending is one object on its way out.
type ending struct {
	// deleted is when somebody deleted it, drained when our finalizer was first seen to be the last one.
	deleted, drained time.Time
	// forced: no waiting at all.
	forced bool
	// ready: the provider's API server answers.
	ready bool
}

// deadline is when the finalizer goes, whether the copy is gone or not.
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

// leftover tells people what a deadline left over there. where is the namespace there, empty if it is not known.
func leftover(kind, name, peer, where string, accepted bool) string {
	if where == "" {
		where = "our tenant namespace"
	} else {
		where = "namespace " + where
	}
	seen := "the provider could not be asked to delete it"
	if accepted {
		seen = "the provider was asked to delete it and has not finished"
	}
	return fmt.Sprintf("the copy of %s %s in cluster %s, %s, may be left: %s. It ends with the tenant of this cluster over there; "+
		"an administrator of that cluster may delete the ForeignCluster of this cluster", kind, name, peer, where, seen)
}
