// SPDX-License-Identifier: Apache-2.0

package remotenamespace

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	networkingapply "k8s.io/client-go/applyconfigurations/networking/v1"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/ending"
	"liqo.io/liqo/internal/offloading/remotename"
)

// Bounds on what one consumer may have.
const (
	maxRemoteNamespaces = 500
	// maxAnswers bounds the entries of a map that are answered, so that the answers fit into one object.
	maxAnswers = 1000
)

// tenantPrefix of the names of tenant namespaces. The unique name of the peer follows.
const tenantPrefix = "liqo-tenant-"

// mapOwner identifies the map that owns remote namespaces, and the names that it may not take.
type mapOwner struct {
	// consumer is the cluster ID, tenant the tenant namespace of the consumer, mapName the name of the map in it.
	consumer, tenant, mapName string
	// install is the namespace in which Liqo is installed.
	install string
	// others are the unique names of the other consumers.
	others []string
	// most bounds the remote namespaces of the consumer.
	most int
	// names are those that the consumer may choose.
	names PeerNames
	// closed is why no new namespace is created; empty if they are.
	closed string
	// fingerprint is that of the key of the consumer; empty if it is not known. ended: the consumer is no peer any more.
	fingerprint string
	ended       bool
	// isolation is the specification of the NetworkPolicy of each remote namespace; nil for none.
	isolation *networkingapply.NetworkPolicySpecApplyConfiguration
}

func (p mapOwner) key() string { return p.tenant + "/" + p.mapName }

// keeps reports whether the namespace was created for the consumer, for this map or an earlier one.
func (p mapOwner) keeps(namespace *corev1.Namespace) bool {
	return namespace.Labels[labels.RemoteClusterID] == p.consumer && strings.HasPrefix(namespace.Annotations[labels.ManagedByNamespaceMap], p.tenant+"/")
}

// owns reports whether the namespace was created for the map, or is kept for its data: then the next map may have it.
func (p mapOwner) owns(namespace *corev1.Namespace) bool {
	return p.keeps(namespace) && (namespace.Annotations[labels.ManagedByNamespaceMap] == p.key() || namespace.Annotations[labels.KeptForData] != "")
}

// refuses returns in one sentence why no remote namespace may have a name; nothing if it may.
func (p mapOwner) refuses(name string) string {
	switch faults := validation.IsDNS1123Label(name); {
	case len(faults) > 0:
		return fmt.Sprintf("%.80q cannot be the name of a namespace: %s", name, faults[0])
	case name == "default" || name == "openshift" || strings.HasPrefix(name, "openshift-") ||
		strings.HasPrefix(name, "kube-") || strings.HasPrefix(name, tenantPrefix) || name == "liqo-storage" || name == p.install:
		return fmt.Sprintf("namespace %s belongs to the provider itself; use the mapping strategy DefaultName", name)
	}
	return ""
}

// isOthers reports whether a name has the form of the remote namespaces of another consumer. Taking it would block that consumer.
func (p mapOwner) isOthers(name string) bool {
	own := "-" + strings.TrimPrefix(p.tenant, tenantPrefix)
	return !strings.HasSuffix(name, own) && slices.ContainsFunc(p.others, func(other string) bool { return strings.HasSuffix(name, "-"+other) })
}

// mayChoose reports whether the consumer may have a new namespace of the name. Default names contain the name of the consumer, so they are no
// other component's, and are always allowed.
func (p mapOwner) mayChoose(local, name string) bool {
	return name == remotename.Default(local, strings.TrimPrefix(p.tenant, tenantPrefix), p.consumer) || p.names.allows(name)
}

// holdsOthersData reports whether the namespace holds the data of a cluster with this ID and another key.
func (p mapOwner) holdsOthersData(namespace *corev1.Namespace) bool {
	return namespace.Annotations[labels.KeptForData] != "" && namespace.Annotations[labels.OwnerKey] != p.fingerprint
}

// wants reports whether the map requests the remote namespace.
func (p mapOwner) wants(desired map[string]string, namespace *corev1.Namespace) bool {
	return p.owns(namespace) && desired[namespace.Annotations[labels.OriginalName]] == namespace.Name
}

// remoteNamespace is one requested namespace, and the next step for it.
type remoteNamespace struct {
	local, remote string
	live          *corev1.Namespace
	create        bool
	answer        vkv1alpha1.RemoteNamespaceStatus
	// before is the previous answer.
	before vkv1alpha1.MappingPhase
}

// planRemoteNamespaces decides on each entry of a map, and returns the remote namespaces that the map no longer requests. existing are the namespaces
// that have a requested name or were created for the consumer.
func planRemoteNamespaces(
	p mapOwner, desired map[string]string, existing map[string]*corev1.Namespace,
) (wanted []remoteNamespace, unwanted []*corev1.Namespace) {
	free := p.most
	for _, name := range slices.Sorted(maps.Keys(existing)) {
		namespace := existing[name]
		if !p.keeps(namespace) {
			continue
		}
		free--
		if !p.wants(desired, namespace) {
			unwanted = append(unwanted, namespace)
		}
	}
	var refused []remoteNamespace
	earlier := map[string]*corev1.Namespace{}
	for _, namespace := range unwanted {
		if namespace.Annotations[labels.KeptForData] != "" {
			continue // no pod runs there
		}
		earlier[namespace.Annotations[labels.OriginalName]] = namespace
	}
	for _, local := range slices.Sorted(maps.Keys(desired)) {
		if len(validation.IsDNS1123Label(local)) > 0 {
			continue // no namespace has such a name, so no consumer reads the answer
		}
		namespace := remoteNamespace{local: local, remote: desired[local]}
		namespace.live = existing[namespace.remote]
		namespace.decide(p, free)
		if last := earlier[local]; last != nil && namespace.create {
			// Its pods may still run there, and must not run twice.
			namespace.create = false
			namespace.answer = vkv1alpha1.RemoteNamespaceStatus{
				RemoteNamespace: last.Name, Phase: vkv1alpha1.MappingTerminating,
				Message: fmt.Sprintf("namespace %s of an earlier request is being deleted; %s is created when it is gone", last.Name, namespace.remote),
			}
		}
		if namespace.create {
			free--
		}
		if namespace.answer.Phase == vkv1alpha1.MappingCreationLoopBackOff {
			refused = append(refused, namespace)
		} else {
			wanted = append(wanted, namespace)
		}
	}
	if left := maxAnswers - len(wanted); left < len(refused) {
		refused = refused[:max(left, 0)]
	}
	return append(wanted, refused...), unwanted
}

// maxObstacles is the most of what Kubernetes reports about a namespace, in bytes.
const maxObstacles = 400

// obstacles is the end of the answer about a namespace that is being deleted: what Kubernetes reports about it.
func obstacles(namespace *corev1.Namespace) string {
	text := ending.Obstacles(namespace)
	if text == "" {
		return ""
	}
	return "; Kubernetes reports there: " + strings.ToValidUTF8(text[:min(len(text), maxObstacles)], "")
}

func (t *remoteNamespace) decide(p mapOwner, free int) {
	no := func(text string) {
		t.answer.Phase, t.answer.Message = vkv1alpha1.MappingCreationLoopBackOff, text
	}
	t.answer = vkv1alpha1.RemoteNamespaceStatus{RemoteNamespace: t.remote, Phase: vkv1alpha1.MappingAccepted}
	refusal := p.refuses(t.remote)
	if refusal != "" {
		t.answer.RemoteNamespace = "" // never reported: it is not a remote namespace
	}
	switch {
	case refusal != "":
		no(refusal)
	case t.live == nil && free <= 0:
		no(fmt.Sprintf("the provider keeps at most %d namespaces for one cluster; unoffload another one", p.most))
	case t.live == nil && p.isOthers(t.remote):
		no(fmt.Sprintf("namespace %s has the form reserved for another cluster; use the mapping strategy DefaultName", t.remote))
	case t.live == nil && p.closed != "":
		no("the provider creates no namespaces for peers now: " + p.closed)
	case t.live == nil && !p.mayChoose(t.local, t.remote):
		no(fmt.Sprintf("the provider reserves the name %s (values controllerManager.config.peerNamespaces of its chart): use the mapping strategy DefaultName, "+
			"or ask its administrator to allow the name", t.remote))
	case t.live == nil:
		t.create = true
	case p.keeps(t.live) && !p.owns(t.live):
		t.answer.Phase, t.answer.Message = vkv1alpha1.MappingTerminating, "it was created for an earlier request and is created again when it is gone"
	case !p.owns(t.live):
		no(fmt.Sprintf(
			"namespace %s exists at the provider and was not made for this cluster; ask for its removal there, or unoffload and use another mapping strategy",
			t.remote,
		))
	case p.holdsOthersData(t.live):
		no(fmt.Sprintf("namespace %s holds the data of a cluster with this ID and another key; the provider's administrator may delete it there, "+
			"or set its annotation %s to the fingerprint of this cluster's key", t.remote, labels.OwnerKey))
	case t.live.Annotations[labels.OriginalName] != t.local:
		no(fmt.Sprintf(
			"namespace %s is the remote namespace of namespace %.63s of this cluster; unoffload one of the two", t.remote,
			t.live.Annotations[labels.OriginalName],
		))
	case t.live.DeletionTimestamp != nil:
		t.answer.Phase = vkv1alpha1.MappingTerminating
		t.answer.Message = "it is being deleted at the provider, and is created again when it is gone" + obstacles(t.live)
	}
}
