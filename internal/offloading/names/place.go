// SPDX-License-Identifier: Apache-2.0

package names

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/domain"
)

// Where returns where the pods of a remote namespace belong, and the cluster ID of their peer. domainOf returns what the annotations of a NamespaceMap, by
// NAMESPACE/NAME, state about the domain of the peer: the labels and annotations of the namespace are ours, that one is the peer's.
func Where(remote metav1.Object, domainOf func(namespaceMap string) string) (at Place, peer string, found bool) {
	notes := remote.GetAnnotations()
	peer = remote.GetLabels()[labels.RemoteClusterID]
	at = Place{Domain: domainOf(notes[labels.ManagedByNamespaceMap]), Namespace: notes[labels.OriginalName], Remote: remote.GetName()}
	found = peer != "" && at.Namespace != "" && notes[labels.KeptForData] == "" && len(at.Domain) <= maxDomain && domain.Valid(at.Domain)
	return at, peer, found
}

// maxDomain bounds the domain of a peer: with a namespace and a Service before it, a name has at most 253 characters.
const maxDomain = 120

// Known is what the remote namespaces of this cluster mean, by their names.
type Known struct {
	of  map[string]*View
	all []*View
}

// Know returns what remote namespaces mean. The pods of a peer know the names of all its namespaces.
func Know(here Cluster, remote []metav1.Object, domainOf func(namespaceMap string) string) *Known {
	type key struct{ peer, domain string }
	namespaces, in := map[key]map[string]string{}, map[string]key{}
	sorted := slices.SortedFunc(slices.Values(remote), func(a, b metav1.Object) int { return strings.Compare(a.GetName(), b.GetName()) })
	for _, object := range sorted {
		at, peer, found := Where(object, domainOf)
		if !found {
			continue
		}
		of := key{peer, canonical(at.Domain)}
		if namespaces[of] == nil {
			namespaces[of] = map[string]string{}
		}
		if earlier := namespaces[of][at.Namespace]; earlier == "" || object.GetDeletionTimestamp() == nil {
			namespaces[of][at.Namespace] = at.Remote
		}
		in[at.Remote] = of
	}
	k, views := &Known{of: map[string]*View{}}, map[key]*View{}
	for remote, of := range in {
		if views[of] == nil {
			views[of] = NewView(of.domain, here, namespaces[of])
			k.all = append(k.all, views[of])
		}
		k.of[remote] = views[of]
	}
	return k
}

// In returns what names mean for the pods of a remote namespace; nil if it is none.
func (k *Known) In(remote string) *View { return k.of[remote] }

// Any returns a view if a name means the same for the pods of all peers, and so for one that is not known yet. The name of the API server of its
// cluster is each pod's own.
func (k *Known) Any(q *Query) *View {
	if len(k.all) == 0 {
		return nil
	}
	first := k.all[0]
	kind, _ := first.Look(q.Name())
	for _, other := range k.all {
		if other.AboutAPIServer(q.Name()) {
			return nil
		}
		its, _ := other.Look(q.Name())
		if other != first && (its != kind || kind != Pass && (kind != Absent || other.theirs != first.theirs)) {
			return nil
		}
	}
	return first
}
