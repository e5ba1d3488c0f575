// SPDX-License-Identifier: Apache-2.0

package status

import (
	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/action/claims"
)

// RemoteVolume is a claim of this cluster whose data is at a peer.
type RemoteVolume struct {
	// Claim is NAMESPACE/NAME.
	Claim string `json:"claim"`
	Size  string `json:"size"`
	// StorageClass and Volume are at the peer. Volume is empty until it exists.
	StorageClass string `json:"storageClass,omitempty"`
	Volume       string `json:"volume,omitempty"`
	// Deleted: the claim is gone, and its data is not yet.
	Deleted bool `json:"deleted,omitempty"`
}

func newRemoteVolumes(clusterID string, claims []claims.Claim) (all []RemoteVolume) {
	for _, one := range claims {
		if one.ClusterID == clusterID {
			all = append(all, RemoteVolume{one.Key.String(), one.Size, one.Class, one.Remote, one.Deleted})
		}
	}
	return all
}

// KeptNamespace is a remote namespace in this cluster that is kept for the data in it.
type KeptNamespace struct {
	Namespace string `json:"namespace"`
	// ClusterID is the cluster that it was made for, State whether that is still a peer (not-requested) or not (no-peer).
	ClusterID string `json:"clusterID"`
	State     string `json:"state"`
}

func newKeptNamespaces(all []corev1.Namespace) (kept []KeptNamespace) {
	for i := range all {
		if state := all[i].Annotations[labels.KeptForData]; state != "" {
			kept = append(kept, KeptNamespace{all[i].Name, all[i].Labels[labels.RemoteClusterID], state})
		}
	}
	return kept
}
