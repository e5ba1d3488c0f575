// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"liqo.io/liqo/cmd/liqo/role"
	"liqo.io/liqo/internal/kube/policies"
	"liqo.io/liqo/internal/offloading/certificate"
	"liqo.io/liqo/internal/offloading/namespacemap"
	"liqo.io/liqo/internal/offloading/namespaceoffloading"
	"liqo.io/liqo/internal/offloading/remotecontents"
	"liqo.io/liqo/internal/offloading/remotenamespace"
	"liqo.io/liqo/internal/offloading/shadow"
	"liqo.io/liqo/internal/peering/replicate"
	"liqo.io/liqo/internal/storage"
	"liqo.io/liqo/internal/storage/home"
	"liqo.io/liqo/internal/storage/move"
)

// setupNamespaces adds what offloads namespaces, and gives their pods data.
func (o *Options) setupNamespaces(mgr manager.Manager, guard *policies.Guard, connector *replicate.Replicator) error {
	err := errors.Join(
		certificate.Setup(mgr),
		o.pull.setup(mgr, o.namespace),
		namespaceoffloading.Setup(mgr, namespaceoffloading.Options{Local: o.local}),
		remotecontents.Setup(mgr, remotecontents.Options{Consumer: o.local.ClusterID, Reader: connector.Reader}),
		namespacemap.Setup(mgr, namespacemap.Options{Domain: role.ClusterResolver(mgr.GetLogger()).Domain}),
		remotenamespace.Setup(mgr, remotenamespace.Options{
			Namespace: o.namespace, Names: o.peerNames, Policies: guard, Bounds: o.shadows.bounds, Isolation: o.shadows.isolation,
			Level: shadow.Level(o.shadows.podSecurity), Most: o.shadows.mostNamespaces,
		}),
	)
	if err != nil || !o.storage {
		return err
	}
	if err := errors.Join(storage.Setup(mgr, o.volumes), home.Setup(mgr)); err != nil || o.moves.Image == "" {
		return err
	}
	o.moves.Namespace, o.moves.Storage = o.namespace, o.volumes.Namespace
	o.moves.PullPolicy, o.moves.PullSecrets = corev1.PullPolicy(o.pull.policy), o.pull.references()
	return move.Setup(mgr, o.moves)
}
