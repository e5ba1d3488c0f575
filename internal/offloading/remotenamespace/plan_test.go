// SPDX-License-Identifier: Apache-2.0

package remotenamespace

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/remotename"
)

// TestRemoteNames: for any names, the remote name is valid and stable, and no two namespaces share one.
func TestRemoteNames(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	word := func(most int) string {
		const letters = "ab-"
		text := make([]byte, 1+random.IntN(most))
		for i := range text {
			text[i] = letters[random.IntN(len(letters))]
		}
		text[0], text[len(text)-1] = 'x', 'y'
		return string(text)
	}
	taken := map[string]string{}
	for range 20_000 {
		local := discoveryv1alpha1.ClusterIdentity{ClusterID: fmt.Sprint("id-", random.IntN(3)), ClusterName: word(63)}
		namespace := word(63)
		name := remotename.Of(namespace, offloadingv1alpha1.DefaultName, local)
		if faults := validation.IsDNS1123Label(name); len(faults) > 0 {
			t.Fatalf("%q for %q of %q: %v", name, namespace, local.ClusterName, faults)
		}
		if second := remotename.Of(namespace, offloadingv1alpha1.DefaultName, local); second != name {
			t.Fatalf("%q, then %q", name, second)
		}
		// One cluster ID has one cluster name.
		from := namespace + "/" + local.ClusterID + "/" + local.ClusterName
		if other, ok := taken[name]; ok && other != from && strings.Split(other, "/")[0] != namespace {
			t.Fatalf("%q is the name for %s and %s", name, other, from)
		}
		taken[name] = from
	}
}

func remoteNamespaceOf(name, annotation, original string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{labels.RemoteClusterID: "rome-id"},
		Annotations: map[string]string{labels.ManagedByNamespaceMap: annotation, labels.OriginalName: original},
	}}
}

// TestObstacles: an answer explains why a namespace is still being deleted, in bounded length.
func TestObstacles(t *testing.T) {
	p := mapOwner{consumer: "rome-id", tenant: "liqo-tenant-rome-1", mapName: "milan-1", install: "liqo", most: maxRemoteNamespaces}
	condition := func(status corev1.ConditionStatus, message string) corev1.NamespaceCondition {
		return corev1.NamespaceCondition{Type: corev1.NamespaceDeletionDiscoveryFailure, Status: status, Message: message}
	}
	for name, test := range map[string]struct {
		conditions []corev1.NamespaceCondition
		want       string // the end of the message
	}{
		"nothing reported": {nil, "when it is gone"},
		"not true":         {[]corev1.NamespaceCondition{condition(corev1.ConditionFalse, "All resources successfully discovered")}, "when it is gone"},
		"two": {
			[]corev1.NamespaceCondition{condition(corev1.ConditionTrue, "Discovery failed: metrics.k8s.io/v1beta1"), condition(corev1.ConditionTrue, "3 pods")},
			"; Kubernetes reports there: Discovery failed: metrics.k8s.io/v1beta1; 3 pods",
		},
		"long": {
			[]corev1.NamespaceCondition{condition(corev1.ConditionTrue, "ab"+strings.Repeat("é", 1000))},
			"; Kubernetes reports there: ab" + strings.Repeat("é", maxObstacles/2-1),
		},
		"cut": {
			[]corev1.NamespaceCondition{condition(corev1.ConditionTrue, "a"+strings.Repeat("é", 1000))},
			"; Kubernetes reports there: a" + strings.Repeat("é", maxObstacles/2-1),
		},
	} {
		live := remoteNamespaceOf("shop", p.key(), "shop")
		live.DeletionTimestamp, live.Status.Conditions = &metav1.Time{}, test.conditions
		wanted, _ := planRemoteNamespaces(p, map[string]string{"shop": "shop"}, map[string]*corev1.Namespace{"shop": live})
		if len(wanted) != 1 || wanted[0].answer.Phase != vkv1alpha1.MappingTerminating || !strings.HasSuffix(wanted[0].answer.Message, test.want) {
			t.Errorf("%s: %+v, want the end %q", name, wanted, test.want)
		}
	}
}

func TestPlanRemoteNamespaces(t *testing.T) {
	p := mapOwner{consumer: "rome-id", tenant: "liqo-tenant-rome-1", mapName: "milan-1", install: "liqo", most: maxRemoteNamespaces}
	leaving := remoteNamespaceOf("going", p.key(), "going")
	leaving.DeletionTimestamp = &metav1.Time{}
	unmanaged := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "unmanaged"}}
	liar := remoteNamespaceOf("liar", p.key(), "liar")
	liar.Labels[labels.RemoteClusterID] = "turin-id"
	existing := map[string]*corev1.Namespace{
		"kept": remoteNamespaceOf("kept", p.key(), "kept"), "old": remoteNamespaceOf("old", p.key(), "old"),
		"renamed": remoteNamespaceOf("renamed", p.key(), "before"),
		"earlier": remoteNamespaceOf("earlier", p.tenant+"/before", "earlier"), "moved-1": remoteNamespaceOf("moved-1", p.key(), "moved"),
		"going": leaving, "unmanaged": unmanaged, "liar": liar,
	}
	desired := map[string]string{
		"kept": "kept", "new": "new", "going": "going", "unmanaged": "unmanaged", "liar": "liar", "renamed": "renamed", "earlier": "earlier", "moved": "moved-2",
		"a": "kube-system", "b": "default", "c": "liqo", "d": "liqo-tenant-turin-2", "e": strings.Repeat("x", 64), "f": "Not A Name", "g": "",
		"h": "liqo-storage", "i": "kube-anything", "twice": "kept", "j": "liqo-demo", "../k": "k", strings.Repeat("l", 64): "l",
	}
	wanted, unwanted := planRemoteNamespaces(p, desired, existing)
	got := map[string]string{}
	for _, namespace := range wanted {
		got[namespace.local] = string(namespace.answer.Phase)
		if namespace.create {
			got[namespace.local] = "create"
		}
		if namespace.answer.Phase == vkv1alpha1.MappingCreationLoopBackOff && namespace.answer.Message == "" {
			t.Errorf("%s is refused without a message", namespace.local)
		}
		if len(namespace.answer.RemoteNamespace) > 63 {
			t.Errorf("%s is answered with a name of %d characters", namespace.local, len(namespace.answer.RemoteNamespace))
		}
	}
	const refused = "CreationLoopBackOff"
	want := map[string]string{
		"kept": "Accepted", "new": "create", "going": "Terminating", "unmanaged": refused, "liar": refused, "renamed": refused,
		"earlier": "Terminating", "moved": "Terminating",
		"a": refused, "b": refused, "c": refused, "d": refused, "e": refused, "f": refused, "g": refused, "h": refused, "i": refused, "twice": refused, "j": "create",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	var names []string
	for _, namespace := range unwanted {
		names = append(names, namespace.Name)
	}
	if diff := cmp.Diff([]string{"earlier", "moved-1", "old", "renamed"}, names); diff != "" {
		t.Errorf("unwanted (-want +got)\n%s", diff)
	}
}

// TestAttackH3: a consumer cannot take a name before the component of this cluster that uses it is installed. Default names, and namespaces that
// the consumer has, stay.
func TestAttackH3(t *testing.T) {
	p := mapOwner{consumer: "rome-id", tenant: "liqo-tenant-rome-1", mapName: "milan-1", install: "liqo", most: maxRemoteNamespaces}
	long := strings.Repeat("l", 60)
	desired := map[string]string{
		"argocd": "argocd", "x": "istio-system", "argo": "argo-rome-1", "y": "argo-rome-1", long: remotename.Default(long, "rome-1", "rome-id"),
		"shop": "shop", "before": "argo-before", "team-b": "team-b",
	}
	existing := map[string]*corev1.Namespace{"argo-before": remoteNamespaceOf("argo-before", p.key(), "before")}
	for what, test := range map[string]struct {
		names PeerNames
		want  []string // what is created
	}{
		"all":            {PeerNames{}, []string{"argo-rome-1", "argocd", "istio-system", desired[long], "shop", "team-b"}},
		"but some":       {PeerNames{Allow: []string{"*"}, Deny: []string{"argo*", "*-system", "lll*"}}, []string{"argo-rome-1", desired[long], "shop", "team-b"}},
		"some":           {PeerNames{Allow: []string{"team-*"}}, []string{"argo-rome-1", desired[long], "team-b"}},
		"some, not all":  {PeerNames{Allow: []string{"team-*"}, Deny: []string{"team-b"}}, []string{"argo-rome-1", desired[long]}},
		"only default":   {PeerNames{Allow: []string{}}, []string{"argo-rome-1", desired[long]}},
		"broken pattern": {PeerNames{Allow: []string{"["}}, []string{"argo-rome-1", desired[long]}},
	} {
		p.names = test.names
		wanted, unwanted := planRemoteNamespaces(p, desired, existing)
		var created []string
		for _, namespace := range wanted {
			switch {
			case namespace.create && namespace.local != "y":
				created = append(created, namespace.remote)
			case namespace.local == "before" && namespace.answer.Phase != vkv1alpha1.MappingAccepted:
				t.Errorf("%s: a namespace that exists is %s", what, namespace.answer.Phase)
			case namespace.local == "argocd" && !namespace.create && !strings.Contains(namespace.answer.Message, "controllerManager.config.peerNamespaces"):
				t.Errorf("%s: the message does not name the value: %s", what, namespace.answer.Message)
			}
		}
		slices.Sort(created)
		slices.Sort(test.want)
		if diff := cmp.Diff(test.want, created); diff != "" || len(unwanted) > 0 {
			t.Errorf("%s: %d unwanted, created (-want +got)\n%s", what, len(unwanted), diff)
		}
	}
	if (PeerNames{Deny: []string{"["}}).Validate() == nil ||
		(PeerNames{Allow: []string{""}}).Validate() == nil || (PeerNames{Allow: []string{"a*"}}).Validate() != nil {
		t.Error("patterns are not validated")
	}
}

// TestRemoteNamespacesBounded: for any number of requests, creations and answers are limited, and existing namespaces stay.
func TestRemoteNamespacesBounded(t *testing.T) {
	p := mapOwner{consumer: "rome-id", tenant: "liqo-tenant-rome-1", mapName: "milan-1", install: "liqo", most: maxRemoteNamespaces}
	desired, existing := map[string]string{}, map[string]*corev1.Namespace{}
	for i := range 20_000 {
		name := fmt.Sprintf("n%05d", i)
		desired[name] = name
		if i >= 19_900 {
			existing[name] = remoteNamespaceOf(name, p.key(), name)
		}
	}
	wanted, unwanted := planRemoteNamespaces(p, desired, existing)
	made, kept := 0, 0
	for _, namespace := range wanted {
		if namespace.create {
			made++
		} else if namespace.answer.Phase == vkv1alpha1.MappingAccepted {
			kept++
		}
	}
	if made != maxRemoteNamespaces-100 || kept != 100 || len(unwanted) != 0 || len(wanted) != maxAnswers {
		t.Errorf("%d created, %d kept, %d unwanted, %d answers", made, kept, len(unwanted), len(wanted))
	}
}
