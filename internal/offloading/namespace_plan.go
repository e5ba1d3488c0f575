// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/choice"
)

// remoteName is what the twins of a namespace of the local cluster are called. What is too long is cut, and ends with a hash of
// what it stands for, so that it is the same each time, and not that of another namespace.
func remoteName(namespace string, strategy offloadingv1alpha1.NamespaceMappingStrategy, local discoveryv1alpha1.ClusterIdentity) string {
	if strategy == offloadingv1alpha1.EnforceSameName {
		return namespace
	}
	name := namespace + "-" + local.UniqueName()
	if len(name) <= validation.DNS1123LabelMaxLength {
		return name
	}
	sum := sha256.Sum256([]byte(namespace + "/" + local.ClusterID))
	hash := "-" + hex.EncodeToString(sum[:])[:10]
	return strings.TrimRight(name[:validation.DNS1123LabelMaxLength-len(hash)], "-") + hash
}

// provider is a cluster that lends this one a virtual node.
type provider struct {
	id, name string // name is the unique one
	// tenant is its namespace here.
	tenant string
	// leaving: the virtual node is on its way out, or the provider does not lend any more.
	leaving bool
	// nodeName is what the virtual node is called, node is nil if there is none.
	nodeName string
	node     *corev1.Node
	// namespaces is our NamespaceMap for it, nil if there is none.
	namespaces *vkv1alpha1.NamespaceMap
}

// answers tells whether the provider does, as far as its virtual node knows.
func (p *provider) answers() bool { return p.node != nil && nodeReady(p.node) }

// settled tells whether the node's labels are those of the provider: a node that has just been registered has none yet.
func (p *provider) settled() bool { return choice.Settled(p.node) }

func (p *provider) asked(namespace string) bool {
	if p.namespaces == nil {
		return false
	}
	_, is := p.namespaces.Spec.DesiredMapping[namespace]
	return is
}

// said is what the provider says of the twin of a namespace, nil for nothing.
func (p *provider) said(namespace string) *vkv1alpha1.RemoteNamespaceStatus {
	if p.namespaces == nil {
		return nil
	}
	if said, is := p.namespaces.Status.CurrentMapping[namespace]; is {
		return &said
	}
	return nil
}

// holds tells whether the provider has, or is asked for, a twin of the namespace.
func (p *provider) holds(namespace string) bool {
	return p.asked(namespace) || p.said(namespace) != nil
}

// checkSelector returns what is wrong with a cluster selector, in a sentence; nothing if all is well.
func checkSelector(selector *corev1.NodeSelector) string {
	if _, err := nodeaffinity.NewNodeSelector(selector); err != nil {
		return fmt.Sprintf("spec.clusterSelector cannot be understood: %v", err)
	}
	return ""
}

// chooses tells whether the namespace is to have a twin at the provider. Where it is not known what is wanted, or which labels the
// provider has, all stays as it is: to give a twin up deletes what is in it.
func chooses(offloading *offloadingv1alpha1.NamespaceOffloading, p *provider) bool {
	switch {
	case offloading.DeletionTimestamp != nil:
		return false
	case p.leaving || !p.settled():
		return p.asked(offloading.Namespace)
	}
	fits, err := choice.Fits(&offloading.Spec.ClusterSelector, p.node)
	if err != nil {
		return p.asked(offloading.Namespace)
	}
	return fits
}

// mapping is the whole wish for twins at a provider, and the namespaces among them, sorted, whose pods are kept from this API server there.
func mapping(all []offloadingv1alpha1.NamespaceOffloading, p *provider) (wanted map[string]string, without []string) {
	wanted = map[string]string{}
	for i := range all {
		one := &all[i]
		if one.Name == offloadingv1alpha1.NamespaceOffloadingName && one.Status.RemoteNamespaceName != "" && chooses(one, p) {
			wanted[one.Namespace] = one.Status.RemoteNamespaceName
			if !apiServerSupport(one) {
				without = append(without, one.Namespace)
			}
		}
	}
	slices.Sort(without)
	return wanted, without
}

// apiServerSupport tells whether pods of the namespace that run elsewhere may know of this API server. What cannot be understood, which the
// webhook does not let in, is a no: tokens that are out cannot be called back.
func apiServerSupport(offloading *offloadingv1alpha1.NamespaceOffloading) bool {
	value, is := offloading.Annotations[labels.APIServerSupport]
	return !is || value == "true"
}

// ---- what a provider makes of a consumer's map ----

// Bounds on what one consumer may have here.
const (
	mostTwins = 500
	// mostAnswers is how many entries of a map are answered; the answers must fit into an object.
	mostAnswers = 1000
)

// tenantPrefix begins the names of tenant namespaces; a unique name follows.
const tenantPrefix = "liqo-tenant-"

// place is where the twins of one map belong.
type place struct {
	// consumer is the cluster ID, tenant the consumer's namespace here, mapName the name of the map in it.
	consumer, tenant, mapName string
	// install is the namespace of this product.
	install string
	// others are the unique names of the other consumers.
	others []string
}

func (p place) key() string { return p.tenant + "/" + p.mapName }

// keeps tells whether the namespace was made for the consumer, for this map or one before it.
func (p place) keeps(namespace *corev1.Namespace) bool {
	return namespace.Labels[labels.RemoteClusterID] == p.consumer && strings.HasPrefix(namespace.Annotations[labels.ManagedByNamespaceMap], p.tenant+"/")
}

// owns tells whether the namespace was made for the map.
func (p place) owns(namespace *corev1.Namespace) bool {
	return namespace.Labels[labels.RemoteClusterID] == p.consumer && namespace.Annotations[labels.ManagedByNamespaceMap] == p.key()
}

// refuses says why no twin may have a name, in a sentence; nothing if it may.
func (p place) refuses(name string) string {
	switch faults := validation.IsDNS1123Label(name); {
	case len(faults) > 0:
		return fmt.Sprintf("%.80q cannot be the name of a namespace: %s", name, faults[0])
	case name == "default" || name == "openshift" || strings.HasPrefix(name, "openshift-") || strings.HasPrefix(name, "kube-") || strings.HasPrefix(name, tenantPrefix) || name == "liqo-storage" || name == p.install:
		return fmt.Sprintf("namespace %s belongs to the provider itself; use the mapping strategy DefaultName", name)
	}
	return ""
}

// isOthers tells whether a name is of the form of another consumer's twins: who took it first could keep that from its namespaces.
func (p place) isOthers(name string) bool {
	own := "-" + strings.TrimPrefix(p.tenant, tenantPrefix)
	return !strings.HasSuffix(name, own) && slices.ContainsFunc(p.others, func(other string) bool { return strings.HasSuffix(name, "-"+other) })
}

// wants tells whether a twin is one that the map asks for.
func (p place) wants(desired map[string]string, namespace *corev1.Namespace) bool {
	return p.owns(namespace) && desired[namespace.Annotations[labels.OriginalName]] == namespace.Name
}

// twin is one wanted namespace and what is to be done for it.
type twin struct {
	local, remote string
	live          *corev1.Namespace
	create        bool
	answer        vkv1alpha1.RemoteNamespaceStatus
	// before is what was answered last.
	before vkv1alpha1.MappingPhase
}

// twins decides what to do for each entry of a map, and which twins nobody wants any more. existing are the namespaces that have
// one of the wanted names or were made for the consumer.
func twins(p place, desired map[string]string, existing map[string]*corev1.Namespace) (wanted []twin, unwanted []*corev1.Namespace) {
	room := mostTwins
	for _, name := range slices.Sorted(maps.Keys(existing)) {
		namespace := existing[name]
		if !p.keeps(namespace) {
			continue
		}
		room--
		if !p.wants(desired, namespace) {
			unwanted = append(unwanted, namespace)
		}
	}
	var refused []twin
	earlier := map[string]*corev1.Namespace{}
	for _, namespace := range unwanted {
		earlier[namespace.Annotations[labels.OriginalName]] = namespace
	}
	for _, local := range slices.Sorted(maps.Keys(desired)) {
		if len(validation.IsDNS1123Label(local)) > 0 {
			continue // no namespace has such a name, so nobody reads the answer
		}
		one := twin{local: local, remote: desired[local]}
		one.live = existing[one.remote]
		one.decide(p, room)
		if last := earlier[local]; last != nil && one.create {
			// Its pods may run there still, and must not run twice.
			one.create = false
			one.answer = vkv1alpha1.RemoteNamespaceStatus{
				RemoteNamespace: last.Name, Phase: vkv1alpha1.MappingTerminating,
				Message: fmt.Sprintf("namespace %s of an earlier request is being deleted; %s is made when it is gone", last.Name, one.remote),
			}
		}
		if one.create {
			room--
		}
		if one.answer.Phase == vkv1alpha1.MappingCreationLoopBackOff {
			refused = append(refused, one)
		} else {
			wanted = append(wanted, one)
		}
	}
	if left := mostAnswers - len(wanted); left < len(refused) {
		refused = refused[:max(left, 0)]
	}
	return append(wanted, refused...), unwanted
}

func (t *twin) decide(p place, room int) {
	no := func(text string) {
		t.answer.Phase, t.answer.Message = vkv1alpha1.MappingCreationLoopBackOff, text
	}
	t.answer = vkv1alpha1.RemoteNamespaceStatus{RemoteNamespace: t.remote, Phase: vkv1alpha1.MappingAccepted}
	refusal := p.refuses(t.remote)
	if refusal != "" {
		t.answer.RemoteNamespace = "" // whatever it is, it is none of ours
	}
	switch {
	case refusal != "":
		no(refusal)
	case t.live == nil && room <= 0:
		no(fmt.Sprintf("the provider keeps at most %d namespaces for one cluster; unoffload another one", mostTwins))
	case t.live == nil && p.isOthers(t.remote):
		no(fmt.Sprintf("namespace %s is of the form that is kept for another cluster; use the mapping strategy DefaultName", t.remote))
	case t.live == nil:
		t.create = true
	case p.keeps(t.live) && !p.owns(t.live):
		t.answer.Phase, t.answer.Message = vkv1alpha1.MappingTerminating, "it was made for an earlier request and is made again when it is gone"
	case !p.owns(t.live):
		no(fmt.Sprintf("namespace %s exists at the provider and was not made for this cluster; ask for its removal there, or unoffload and use another mapping strategy", t.remote))
	case t.live.Annotations[labels.OriginalName] != t.local:
		no(fmt.Sprintf("namespace %s stands for namespace %.63s of this cluster; unoffload one of the two", t.remote, t.live.Annotations[labels.OriginalName]))
	case t.live.DeletionTimestamp != nil:
		t.answer.Phase = vkv1alpha1.MappingTerminating
		t.answer.Message = "it is being deleted at the provider, and is made again when it is gone"
	}
}
