// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

func TestRemoteName(t *testing.T) {
	rome := discoveryv1alpha1.ClusterIdentity{ClusterID: "rome-id", ClusterName: "rome"}
	long := strings.Repeat("n", 63)
	for name, test := range map[string]struct {
		namespace string
		strategy  offloadingv1alpha1.NamespaceMappingStrategy
		local     discoveryv1alpha1.ClusterIdentity
		want      string
	}{
		"as documented":          {"shop", offloadingv1alpha1.DefaultName, rome, "shop-" + rome.UniqueName()},
		"no strategy":            {"shop", "", rome, "shop-" + rome.UniqueName()},
		"the same":               {"shop", offloadingv1alpha1.EnforceSameName, rome, "shop"},
		"the same, long":         {long, offloadingv1alpha1.EnforceSameName, rome, long},
		"just fits":              {strings.Repeat("n", 51), offloadingv1alpha1.DefaultName, rome, strings.Repeat("n", 51) + "-" + rome.UniqueName()},
		"one too many":           {strings.Repeat("n", 52), offloadingv1alpha1.DefaultName, rome, strings.Repeat("n", 52) + "-53a6df7d7c"},
		"much too long":          {long, offloadingv1alpha1.DefaultName, rome, strings.Repeat("n", 52) + "-c5d4d1f4a0"},
		"cut at a hyphen":        {strings.Repeat("n", 51) + "-nnnnn", offloadingv1alpha1.DefaultName, rome, strings.Repeat("n", 51) + "-"},
		"long name of a cluster": {"a", offloadingv1alpha1.DefaultName, discoveryv1alpha1.ClusterIdentity{ClusterID: "x", ClusterName: strings.Repeat("c", 63)}, "a-" + strings.Repeat("c", 44) + "-2d7116"},
		"both long":              {long, offloadingv1alpha1.DefaultName, discoveryv1alpha1.ClusterIdentity{ClusterID: "x", ClusterName: strings.Repeat("c", 63)}, strings.Repeat("n", 52) + "-"},
	} {
		got := remoteName(test.namespace, test.strategy, test.local)
		if hash := strings.TrimPrefix(got, test.want); got != test.want && (len(got) > 63 || len(hash) != 10 || !strings.HasSuffix(test.want, "-")) {
			// A cut name ends with ten digits of a hash, which the rows contain only where they matter.
			if !(strings.HasPrefix(name, "one too") || strings.HasPrefix(name, "much")) || got[:53] != test.want[:53] || len(got) != 63 {
				t.Errorf("%s: %s, want %s", name, got, test.want)
			}
		}
	}
}

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
		name := remoteName(namespace, offloadingv1alpha1.DefaultName, local)
		if faults := validation.IsDNS1123Label(name); len(faults) > 0 {
			t.Fatalf("%q for %q of %q: %v", name, namespace, local.ClusterName, faults)
		}
		if second := remoteName(namespace, offloadingv1alpha1.DefaultName, local); second != name {
			t.Fatalf("%q, then %q", name, second)
		}
		// One cluster ID has one cluster name.
		from := namespace + "/" + local.ClusterID + "/" + local.ClusterName
		if other, is := taken[name]; is && other != from && strings.Split(other, "/")[0] != namespace {
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
		"long": {[]corev1.NamespaceCondition{condition(corev1.ConditionTrue, "ab"+strings.Repeat("é", 1000))}, "; Kubernetes reports there: ab" + strings.Repeat("é", maxObstacles/2-1)},
		"cut":  {[]corev1.NamespaceCondition{condition(corev1.ConditionTrue, "a"+strings.Repeat("é", 1000))}, "; Kubernetes reports there: a" + strings.Repeat("é", maxObstacles/2-1)},
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
		"kept": remoteNamespaceOf("kept", p.key(), "kept"), "old": remoteNamespaceOf("old", p.key(), "old"), "renamed": remoteNamespaceOf("renamed", p.key(), "before"),
		"earlier": remoteNamespaceOf("earlier", p.tenant+"/before", "earlier"), "moved-1": remoteNamespaceOf("moved-1", p.key(), "moved"), "going": leaving, "unmanaged": unmanaged, "liar": liar,
	}
	desired := map[string]string{
		"kept": "kept", "new": "new", "going": "going", "unmanaged": "unmanaged", "liar": "liar", "renamed": "renamed", "earlier": "earlier", "moved": "moved-2",
		"a": "kube-system", "b": "default", "c": "liqo", "d": "liqo-tenant-turin-2", "e": strings.Repeat("x", 64), "f": "Not A Name", "g": "",
		"h": "liqo-storage", "i": "kube-anything", "twice": "kept", "j": "liqo-demo", "../k": "k", strings.Repeat("l", 64): "l",
	}
	wanted, unwanted := planRemoteNamespaces(p, desired, existing)
	got := map[string]string{}
	for _, one := range wanted {
		got[one.local] = string(one.answer.Phase)
		if one.create {
			got[one.local] = "create"
		}
		if one.answer.Phase == vkv1alpha1.MappingCreationLoopBackOff && one.answer.Message == "" {
			t.Errorf("%s is refused without a message", one.local)
		}
		if len(one.answer.RemoteNamespace) > 63 {
			t.Errorf("%s is answered with a name of %d characters", one.local, len(one.answer.RemoteNamespace))
		}
	}
	const refused = "CreationLoopBackOff"
	want := map[string]string{
		"kept": "Accepted", "new": "create", "going": "Terminating", "unmanaged": refused, "liar": refused, "renamed": refused, "earlier": "Terminating", "moved": "Terminating",
		"a": refused, "b": refused, "c": refused, "d": refused, "e": refused, "f": refused, "g": refused, "h": refused, "i": refused, "twice": refused, "j": "create",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	var names []string
	for _, one := range unwanted {
		names = append(names, one.Name)
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
		"argocd": "argocd", "x": "istio-system", "argo": "argo-rome-1", "y": "argo-rome-1", long: defaultName(long, "rome-1", "rome-id"), "shop": "shop", "before": "argo-before", "team-b": "team-b",
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
		for _, one := range wanted {
			switch {
			case one.create && one.local != "y":
				created = append(created, one.remote)
			case one.local == "before" && one.answer.Phase != vkv1alpha1.MappingAccepted:
				t.Errorf("%s: a namespace that exists is %s", what, one.answer.Phase)
			case one.local == "argocd" && !one.create && !strings.Contains(one.answer.Message, "controllerManager.config.peerNamespaces"):
				t.Errorf("%s: the message does not name the value: %s", what, one.answer.Message)
			}
		}
		slices.Sort(created)
		slices.Sort(test.want)
		if diff := cmp.Diff(test.want, created); diff != "" || len(unwanted) > 0 {
			t.Errorf("%s: %d unwanted, created (-want +got)\n%s", what, len(unwanted), diff)
		}
	}
	if (PeerNames{Deny: []string{"["}}).Validate() == nil || (PeerNames{Allow: []string{""}}).Validate() == nil || (PeerNames{Allow: []string{"a*"}}).Validate() != nil {
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
	for _, one := range wanted {
		if one.create {
			made++
		} else if one.answer.Phase == vkv1alpha1.MappingAccepted {
			kept++
		}
	}
	if made != maxRemoteNamespaces-100 || kept != 100 || len(unwanted) != 0 || len(wanted) != maxAnswers {
		t.Errorf("%d created, %d kept, %d unwanted, %d answers", made, kept, len(unwanted), len(wanted))
	}
}

func nodeWith(set map[string]string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "liqo-milan", Labels: map[string]string{corev1.LabelHostname: "liqo-milan"}, Annotations: map[string]string{labels.ProviderLabels: ""}}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for key, value := range set {
		node.Labels[key] = value
	}
	return node
}

func term(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
}

// TestChooses: a remote namespace is given up only if selector and labels are known.
func TestChooses(t *testing.T) {
	europe, unregistered := nodeWith(map[string]string{"region": "europe"}), nodeWith(nil)
	delete(unregistered.Labels, corev1.LabelHostname)
	unlabelled := nodeWith(nil)
	unlabelled.Status.Conditions = nil
	in := []corev1.NodeSelectorTerm{term("region", corev1.NodeSelectorOpIn, "europe")}
	asia := []corev1.NodeSelectorTerm{term("region", corev1.NodeSelectorOpIn, "asia")}
	notIn := []corev1.NodeSelectorTerm{term("region", corev1.NodeSelectorOpNotIn, "europe")}
	notAsia := []corev1.NodeSelectorTerm{term("region", corev1.NodeSelectorOpNotIn, "asia")}
	broken := []corev1.NodeSelectorTerm{term("region", "Sometimes", "asia")}
	for name, test := range map[string]struct {
		terms            []corev1.NodeSelectorTerm
		node             *corev1.Node
		leaving, deleted bool
		before           bool
		want             bool
		hidden           bool // the labels of the node are not accepted
	}{
		"excluded by a label that is not accepted":     {terms: notIn, node: europe, hidden: true},
		"excluded so later":                            {terms: notIn, node: europe, hidden: true, before: true, want: true},
		"not excluded by a label that is not accepted": {terms: notAsia, node: europe, hidden: true, want: true},
		"not selected by a label that is not accepted": {terms: in, node: europe, hidden: true},
		"all":                           {node: europe, want: true},
		"fits":                          {terms: in, node: europe, want: true},
		"one of two fits":               {terms: append(slices.Clone(asia), in...), node: europe, want: true},
		"does not fit":                  {terms: asia, node: europe, before: true},
		"an empty term fits nothing":    {terms: []corev1.NodeSelectorTerm{{}}, node: europe},
		"no node":                       {terms: in},
		"no node any more":              {terms: asia, before: true, want: true},
		"registered again":              {terms: in, node: unregistered, before: true, want: true},
		"registered for the first time": {terms: in, node: unregistered},
		"without conditions yet":        {terms: in, node: unlabelled, before: true, want: true},
		"invalid":                       {terms: broken, node: europe},
		"invalid now":                   {terms: broken, node: europe, before: true, want: true},
		"draining":                      {node: europe, leaving: true, before: true, want: true},
		"draining, new":                 {node: europe, leaving: true},
		"unoffloaded":                   {node: europe, deleted: true, before: true},
		"unoffloaded while draining":    {node: europe, deleted: true, leaving: true, before: true},
	} {
		offloading := &offloadingv1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}
		offloading.Spec.ClusterSelector.NodeSelectorTerms = test.terms
		if test.deleted {
			offloading.DeletionTimestamp = &metav1.Time{}
		}
		p := &provider{node: test.node, leaving: test.leaving, namespaces: &vkv1alpha1.NamespaceMap{}}
		if test.hidden {
			p.node, p.labelled, p.hidden = nodeWith(nil), test.node, []string{"region=europe"}
		}
		if test.before {
			p.namespaces.Spec.DesiredMapping = map[string]string{"shop": "shop-rome"}
		}
		if got := chooses(offloading, p); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestPlaces: on which virtual nodes the pods of a namespace run, and on which they would wait although strategy and selector lead there.
func TestPlaces(t *testing.T) {
	offloading := &offloadingv1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}
	offloading.Spec.ClusterSelector.NodeSelectorTerms = []corev1.NodeSelectorTerm{term("region", corev1.NodeSelectorOpIn, "europe")}
	everywhere := offloading.DeepCopy()
	everywhere.Spec.ClusterSelector.NodeSelectorTerms = nil
	one := func(change func(*provider)) provider {
		p := provider{nodeName: "liqo-milan", node: nodeWith(map[string]string{"region": "europe"}), namespaces: &vkv1alpha1.NamespaceMap{}}
		if change != nil {
			change(&p)
		}
		p.labelled = nodeWith(map[string]string{"region": "europe"})
		return p
	}
	answers := func(allowed, known bool) func(*provider) {
		return func(p *provider) { p.allows = func(string) (bool, bool) { return allowed, known } }
	}
	hidden := func(p *provider) { p.node, p.hidden = nodeWith(nil), []string{"region=europe"} }
	refused := func(p *provider) {
		p.namespaces.Status.CurrentMapping = map[string]vkv1alpha1.RemoteNamespaceStatus{"shop": {Phase: vkv1alpha1.MappingCreationLoopBackOff}}
	}
	unregistered := func(p *provider) { delete(p.node.Labels, corev1.LabelHostname) }
	milan := []string{"liqo-milan"}
	for name, test := range map[string]struct {
		of        *offloadingv1alpha1.NamespaceOffloading
		providers []provider
		run, vain []string
	}{
		"chosen":                                    {of: offloading, providers: []provider{one(nil)}, run: milan},
		"its labels are not accepted":               {of: offloading, providers: []provider{one(hidden)}, vain: milan},
		"one of two":                                {of: offloading, providers: []provider{one(hidden), one(nil)}, vain: milan, run: milan},
		"no selector":                               {of: everywhere, providers: []provider{one(hidden)}, run: milan},
		"it may not receive the namespace":          {of: everywhere, providers: []provider{one(answers(false, true))}, vain: milan},
		"it may":                                    {of: everywhere, providers: []provider{one(answers(true, true))}, run: milan},
		"whether it may is not known":               {of: everywhere, providers: []provider{one(answers(false, false))}},
		"it refuses the remote namespace":           {of: everywhere, providers: []provider{one(refused)}, vain: milan},
		"its labels are not known":                  {of: offloading, providers: []provider{one(unregistered)}},
		"it is leaving":                             {of: everywhere, providers: []provider{one(func(p *provider) { p.leaving = true })}},
		"no cluster":                                {of: offloading},
		"excluded by a label which is not accepted": {of: without(everywhere, "region"), providers: []provider{one(hidden)}},
	} {
		if run, vain := places(test.of, test.providers); !slices.Equal(run, test.run) || !slices.Equal(vain, test.vain) {
			t.Errorf("%s: run on %v, wait on %v", name, run, vain)
		}
	}
}

// without returns an offloading that excludes nodes with a label.
func without(of *offloadingv1alpha1.NamespaceOffloading, key string) *offloadingv1alpha1.NamespaceOffloading {
	excluding := of.DeepCopy()
	excluding.Spec.ClusterSelector.NodeSelectorTerms = []corev1.NodeSelectorTerm{term(key, corev1.NodeSelectorOpDoesNotExist)}
	return excluding
}

// TestMapping: which namespaces have a remote namespace, and which may not use the API server; an invalid annotation means no.
func TestMapping(t *testing.T) {
	one := func(namespace string, annotations map[string]string) offloadingv1alpha1.NamespaceOffloading {
		made := offloadingv1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "offloading", Annotations: annotations}}
		made.Status.RemoteNamespaceName = namespace + "-rome"
		return made
	}
	support := func(value string) map[string]string { return map[string]string{labels.APIServerSupport: value} }
	deleted, unnamed, other, elsewhere := one("deleted", support("false")), one("unnamed", support("false")), one("other", support("false")), one("elsewhere", support("false"))
	deleted.DeletionTimestamp = &metav1.Time{}
	unnamed.Status.RemoteNamespaceName = ""
	other.Name = "mine"
	elsewhere.Spec.ClusterSelector.NodeSelectorTerms = []corev1.NodeSelectorTerm{term("region", corev1.NodeSelectorOpIn, "asia")}
	all := []offloadingv1alpha1.NamespaceOffloading{
		one("vault", support("false")), one("typo", support("False")), one("empty", support("")), one("shop", support("true")), one("web", nil),
		one("notes", map[string]string{"other": "false"}), deleted, unnamed, other, elsewhere,
	}
	all[0].Spec.Reflection = offloadingv1alpha1.ReflectReferenced
	all[3].Spec.RunWithout = []offloadingv1alpha1.PodField{"runtimeClassName", "os"}
	for _, i := range []int{1, 6, 9} { // of these, only the first one is mapped
		all[i].Spec.UnreachableTolerationSeconds = new(int64(3600))
	}
	spec := mapping(all, &provider{node: nodeWith(map[string]string{"region": "europe"})}, nil)
	mapped := map[string]string{
		"vault": "vault-rome", "typo": "typo-rome", "empty": "empty-rome", "shop": "shop-rome", "web": "web-rome", "notes": "notes-rome",
	}
	if diff := cmp.Diff(mapped, spec.DesiredMapping); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"empty", "typo", "vault"}, spec.WithoutAPIServer); diff != "" {
		t.Errorf("without the API server (-want +got)\n%s", diff)
	}
	if !slices.Equal(spec.ReferencedOnly, []string{"vault"}) {
		t.Errorf("only what is referenced: %v", spec.ReferencedOnly)
	}
	if diff := cmp.Diff(map[string][]string{"shop": {"runtimeClassName", "os"}}, spec.RunWithout); diff != "" {
		t.Errorf("what pods may lack (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int64{"typo": 3600}, spec.UnreachableTolerationSeconds); diff != "" {
		t.Errorf("tolerated (-want +got)\n%s", diff)
	}
	bounded := &provider{node: nodeWith(map[string]string{"region": "europe"}), namespaces: &vkv1alpha1.NamespaceMap{}, allows: func(namespace string) (allowed, known bool) {
		return namespace == "shop", namespace != "web" && namespace != "notes"
	}}
	bounded.namespaces.Spec.DesiredMapping = map[string]string{"vault": "vault-rome", "web": "web-rome"}
	if spec = mapping(all, bounded, nil); !maps.Equal(spec.DesiredMapping, map[string]string{"shop": "shop-rome", "web": "web-rome"}) {
		t.Errorf("a provider that may receive shop, and of which web and notes are unknown, gets %v", spec.DesiredMapping)
	}
	leaving := &provider{node: nodeWith(nil), leaving: true, namespaces: &vkv1alpha1.NamespaceMap{}}
	leaving.namespaces.Spec.DesiredMapping = map[string]string{"vault": "vault-rome"}
	if spec = mapping(all, leaving, nil); len(spec.DesiredMapping) != 1 || !slices.Equal(spec.WithoutAPIServer, []string{"vault"}) {
		t.Errorf("while the provider leaves: %+v", spec)
	}
}

// TestReflectedKinds: the status of custom resources comes back from one cluster at most.
func TestReflectedKinds(t *testing.T) {
	for _, test := range []struct {
		statusFrom string
		elsewhere  bool
		want       bool
	}{
		{"", false, true},
		{"", true, false},
		{"liqo-milan", false, true},
		{"liqo-milan", true, true},
		{"liqo-turin", false, false},
		{offloadingv1alpha1.StatusFromNone, false, false},
	} {
		all := []offloadingv1alpha1.NamespaceOffloading{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "offloading"}}}
		all[0].Status.RemoteNamespaceName = "shop-rome"
		all[0].Spec.CustomResources = []offloadingv1alpha1.CustomResource{{APIVersion: "example.com/v1", Kind: "Widget", StatusFrom: test.statusFrom}}
		spec := mapping(all, &provider{nodeName: "liqo-milan", node: nodeWith(nil)}, func(string) bool { return test.elsewhere })
		want := map[string][]vkv1alpha1.ReflectedKind{"shop": {{APIVersion: "example.com/v1", Kind: "Widget", Status: test.want}}}
		if diff := cmp.Diff(want, spec.CustomResources); diff != "" {
			t.Errorf("from %q, elsewhere %v (-want +got)\n%s", test.statusFrom, test.elsewhere, diff)
		}
	}
}

// TestOffloadingStatus: every reason, and the phase of each mixture, as documented.
func TestOffloadingStatus(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const name = "shop-rome-1"
	reporting := func(phase vkv1alpha1.MappingPhase, called string) provider {
		p := provider{name: "milan-1", nodeName: "liqo-milan", node: nodeWith(nil), namespaces: &vkv1alpha1.NamespaceMap{}}
		p.namespaces.Spec.DesiredMapping = map[string]string{"shop": name}
		if phase != "" {
			p.namespaces.Status.CurrentMapping = map[string]vkv1alpha1.RemoteNamespaceStatus{"shop": {RemoteNamespace: called, Phase: phase, Message: "why"}}
		}
		return p
	}
	unselected := reporting("", "")
	unselected.node.Labels["no"] = "no"
	unselected.namespaces.Spec.DesiredMapping = nil
	given := unselected
	given.namespaces = &vkv1alpha1.NamespaceMap{}
	given.namespaces.Status.CurrentMapping = map[string]vkv1alpha1.RemoteNamespaceStatus{"shop": {RemoteNamespace: name, Phase: vkv1alpha1.MappingTerminating}}
	ready, failed := reporting(vkv1alpha1.MappingAccepted, name), reporting(vkv1alpha1.MappingCreationLoopBackOff, name)
	leaving := unselected
	leaving.leaving = true
	for what, test := range map[string]struct {
		providers []provider
		deleted   bool
		phase     offloadingv1alpha1.OffloadingPhase
		reasons   string // of the first cluster
	}{
		"no cluster":        {nil, false, "NoClusterSelected", ""},
		"none chosen":       {[]provider{unselected}, false, "NoClusterSelected", "ClusterNotSelected"},
		"given up":          {[]provider{given}, false, "NoClusterSelected", "ClusterNotSelected Terminating"},
		"leaving":           {[]provider{leaving}, false, "NoClusterSelected", ""},
		"asked":             {[]provider{reporting("", "")}, false, "InProgress", "ClusterSelected Creating"},
		"ready":             {[]provider{ready}, false, "Ready", "ClusterSelected NamespaceCreated"},
		"another name":      {[]provider{reporting(vkv1alpha1.MappingAccepted, "kube-system")}, false, "InProgress", "ClusterSelected Creating"},
		"deleted there":     {[]provider{reporting(vkv1alpha1.MappingTerminating, name)}, false, "InProgress", "ClusterSelected Terminating"},
		"failed":            {[]provider{failed}, false, "AllFailed", "ClusterSelected CreationLoopBackOff"},
		"both failed":       {[]provider{failed, failed}, false, "AllFailed", "ClusterSelected CreationLoopBackOff"},
		"one failed":        {[]provider{failed, ready}, false, "SomeFailed", "ClusterSelected CreationLoopBackOff"},
		"one failed so far": {[]provider{failed, reporting("", "")}, false, "SomeFailed", "ClusterSelected CreationLoopBackOff"},
		"one to come":       {[]provider{ready, reporting("", "")}, false, "InProgress", "ClusterSelected NamespaceCreated"},
		"others unselected": {[]provider{ready, unselected}, false, "Ready", "ClusterSelected NamespaceCreated"},
		"deleted":           {[]provider{ready}, true, "Terminating", "ClusterNotSelected Terminating"},
	} {
		offloading := &offloadingv1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "offloading", Generation: 3}}
		offloading.Spec.ClusterSelector.NodeSelectorTerms = []corev1.NodeSelectorTerm{term("no", corev1.NodeSelectorOpDoesNotExist)}
		if test.deleted {
			offloading.DeletionTimestamp = &metav1.Time{Time: now}
		}
		for i := range test.providers {
			test.providers[i].name = fmt.Sprint("cluster-", i)
		}
		status := offloadingStatus(offloading, name, test.providers, now)
		var reasons []string
		for _, one := range status.RemoteNamespacesConditions["cluster-0"] {
			reasons = append(reasons, one.Reason)
			if one.Message == "" || one.LastTransitionTime.IsZero() {
				t.Errorf("%s: %+v", what, one)
			}
			if what == "deleted there" && one.Reason == "Terminating" && !strings.HasSuffix(one.Message, "why") {
				t.Errorf("the provider's reason is missing: %s", one.Message)
			}
		}
		if status.OffloadingPhase != test.phase || strings.Join(reasons, " ") != test.reasons || status.ObservedGeneration != 3 || status.RemoteNamespaceName != name {
			t.Errorf("%s: %s %v, want %s %s", what, status.OffloadingPhase, reasons, test.phase, test.reasons)
		}
		// Time passes; what is the same stays the same.
		offloading.Status = status
		if diff := cmp.Diff(status, offloadingStatus(offloading, name, test.providers, now.Add(time.Hour))); diff != "" {
			t.Errorf("%s, an hour later: %s", what, diff)
		}
	}
}
