// SPDX-License-Identifier: Apache-2.0

package remotenamespace

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// namespacesOf reads "NAME CONSUMER ANNOTATION ORIGINAL [deleted]" lines: the namespaces that exist at the provider.
func namespacesOf(text string) map[string]*corev1.Namespace {
	existing := map[string]*corev1.Namespace{}
	for line := range strings.SplitSeq(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) < 4 || len(validation.IsDNS1123Label(fields[0])) > 0 {
			continue // no API server stores it
		}
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: fields[0], Labels: map[string]string{labels.RemoteClusterID: fields[1]},
			Annotations: map[string]string{labels.ManagedByNamespaceMap: fields[2], labels.OriginalName: fields[3]},
		}}
		if len(fields) > 4 {
			namespace.DeletionTimestamp = &metav1.Time{}
		}
		existing[namespace.Name] = namespace
	}
	return existing
}

// FuzzRemoteNamespaces: whatever a consumer requests, this cluster creates only namespaces that exist nowhere and that neither the provider nor another
// consumer needs, deletes only those that it created for this consumer, confirms only those of this map, and keeps within the bounds.
func FuzzRemoteNamespaces(f *testing.F) {
	const ours = "liqo-tenant-rome-000000"
	f.Add("shop shop-rome\nweb web-rome", "web-rome rome-id "+ours+"/map web", uint16(0))
	f.Add("a kube-system\nb kube-more\nc default\nd liqo\ne liqo-tenant-milan-000000\nf liqo-storage\ng openshift\nh openshift-x\ni ../x\nj X", "", uint16(0))
	f.Add("a web-milan-111111\nb web-rome-000000\nc -milan-111111", "", uint16(0))                                                 // of another consumer
	f.Add("a taken\nb theirs\nc prefix", "taken - - -\ntheirs milan-id "+ours+"/map b\nprefix rome-id "+ours+"x/map c", uint16(0)) // not created for the map
	f.Add("a same\nb same", "same rome-id "+ours+"/map a", uint16(0))
	f.Add("a new", "old rome-id "+ours+"/map a", uint16(0))           // another name than before
	f.Add("a old", "old rome-id "+ours+"/earlier a", uint16(0))       // of an earlier map
	f.Add("a x", "x rome-id "+ours+"/map a deleted", uint16(0))       // ending
	f.Add("../a x\nB y", "gone rome-id "+ours+"/map ../a", uint16(0)) // names that no namespace has
	f.Add("", "", uint16(600))
	f.Add("z0 kube-x", "x rome-id "+ours+"/map -", uint16(1600))
	f.Fuzz(func(t *testing.T, requests, exist string, many uint16) {
		owner := mapOwner{consumer: "rome-id", tenant: ours, mapName: "map", install: "liqo", others: []string{"milan-111111"}, most: maxRemoteNamespaces}
		desired, existing := map[string]string{}, namespacesOf(exist)
		for i := range many % 2000 {
			desired[fmt.Sprintf("many%d", i)] = fmt.Sprintf("many%d-rome", i%700) // some names twice
		}
		for line := range strings.SplitSeq(requests, "\n") {
			if local, remote, ok := strings.Cut(line, " "); ok {
				desired[local] = remote
			}
		}
		keeps := func(namespace *corev1.Namespace) bool {
			return namespace.Labels[labels.RemoteClusterID] == "rome-id" && strings.HasPrefix(namespace.Annotations[labels.ManagedByNamespaceMap], ours+"/")
		}
		kept, created := 0, 0
		for _, namespace := range existing {
			if keeps(namespace) {
				kept++
			}
		}
		wanted, unwanted := planRemoteNamespaces(owner, desired, existing)
		for _, namespace := range unwanted {
			local := namespace.Annotations[labels.OriginalName]
			if !keeps(namespace) || existing[namespace.Name] != namespace ||
				namespace.Annotations[labels.ManagedByNamespaceMap] == ours+"/map" && desired[local] == namespace.Name {
				t.Errorf("namespace %s is deleted: %v %v", namespace.Name, namespace.Labels, namespace.Annotations)
			}
		}
		answered := map[string]bool{}
		for i := range wanted {
			namespace := &wanted[i]
			if answered[namespace.local] || namespace.remote != desired[namespace.local] || len(validation.IsDNS1123Label(namespace.local)) > 0 {
				t.Errorf("namespace %q is answered twice or was not requested", namespace.local)
			}
			answered[namespace.local] = true
			if namespace.create {
				created++
			}
			checkRemote(t, namespace, existing[namespace.remote])
		}
		if created+kept > max(maxRemoteNamespaces, kept) || len(wanted) > maxAnswers+maxRemoteNamespaces {
			t.Errorf("%d namespaces are created besides %d, %d are answered", created, kept, len(wanted))
		}
	})
}

func checkRemote(t *testing.T, namespace *remoteNamespace, live *corev1.Namespace) {
	const ours = "liqo-tenant-rome-000000"
	reserved := len(validation.IsDNS1123Label(namespace.remote)) > 0 || namespace.remote == "openshift"
	for _, name := range []string{"default", "liqo", "liqo-storage"} {
		reserved = reserved || namespace.remote == name
	}
	for _, prefix := range []string{"kube-", "openshift-", "liqo-tenant-"} {
		reserved = reserved || strings.HasPrefix(namespace.remote, prefix)
	}
	accepted := namespace.answer.Phase == vkv1alpha1.MappingAccepted
	switch {
	case (namespace.create || accepted) && reserved, reserved && namespace.answer.RemoteNamespace != "":
		t.Errorf("namespace %q of the provider itself: %+v, created: %t", namespace.remote, namespace.answer, namespace.create)
	case namespace.create && (live != nil || strings.HasSuffix(namespace.remote, "-milan-111111")):
		t.Errorf("namespace %s is created, which belongs to another client", namespace.remote)
	case accepted && !namespace.create && (live == nil || live.DeletionTimestamp != nil || live.Labels[labels.RemoteClusterID] != "rome-id" ||
		live.Annotations[labels.ManagedByNamespaceMap] != ours+"/map" || live.Annotations[labels.OriginalName] != namespace.local):
		t.Errorf("namespace %s is accepted as the remote namespace of %s: %+v", namespace.remote, namespace.local, live)
	case !accepted && namespace.answer.Message == "", len(namespace.answer.Message) > 600:
		t.Errorf("namespace %s is not accepted because of %q", namespace.remote, namespace.answer.Message)
	}
}
