// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	v1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	"liqo.io/liqo/internal/storage/data"
)

// asked are the facts of a move that can start: from this cluster to liqo-milan, and no pod uses the claim.
func asked() *Facts {
	f := during("")
	f.Class, f.Offloaded, f.Strategy = &storagev1.StorageClass{}, true, "LocalAndRemote"
	f.Volume.Annotations, f.Volume.Spec.ClaimRef.UID = map[string]string{data.Provisioned: data.Provisioner}, f.Claim.UID
	target("liqo-milan")(f)
	return f
}

// target is a node that is ready; it is virtual unless it is the worker.
func target(name string) change {
	return func(f *Facts) {
		f.Move.Spec.TargetNode = name
		f.Node = &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}
		if name != "worker" {
			f.Node.Labels[labels.Type] = labels.TypeVirtualNode
		}
	}
}

// at puts the data at the provider of a node.
func at(node string) change {
	return func(f *Facts) {
		f.Volume.Labels = map[string]string{labels.RemoteClusterID: "its-id"}
		f.Volume.Annotations[labels.RemoteVolume] = "disk"
		f.Volume.Spec.NodeAffinity = pinned(corev1.LabelHostname, corev1.NodeSelectorOpIn, node)
	}
}

func pinned(key string, operator corev1.NodeSelectorOperator, values ...string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}},
	}}}}
}

func controlled(f *Facts) {
	for i := range f.Users {
		f.Users[i].OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", Controller: new(true)}}
	}
}

func dryRun(f *Facts) { f.Move.Spec.DryRun = true }

func onePod(f *Facts) {
	f.Claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany, corev1.ReadWriteOncePod}
}

func attached(f *Facts) { f.Attached = true }

func strategy(name string) change { return func(f *Facts) { f.Strategy = name } }

func tainted(key string) change {
	return func(f *Facts) { f.Node.Spec.Taints = []corev1.Taint{{Key: key}} }
}

const (
	noData     = "claim data has no data yet: no pod has used it; its first pod decides where the data is"
	noVolumeOf = "volume pvc-claim of claim data is missing or being deleted"
	other      = "volume pvc-claim belongs to another claim than data"
	notOurs    = `claim data has the storage class "", which is not one of Liqo's; only claims of a virtual storage class move`
	once       = "claim data admits one pod only (ReadWriteOncePod), and db-0 uses it; stop it first"
	used       = "pods use the claim: db-0; stop them, or move with --online"
	noRemote   = "namespace shop is offloaded with the strategy Remote, so no pod can use the data in this cluster"
)

// refusals are the answers to a user who asks for a move; empty if it begins.
var refusals = []step{
	{"nothing is wrong", "", nil},
	{"no claim", "namespace shop has no claim data", []change{func(f *Facts) { f.Claim = nil }}},
	{"the claim goes", "claim data is being deleted", []change{func(f *Facts) { leaving(f.Claim) }}},
	{"the claim is lost", "claim data has lost its volume", []change{func(f *Facts) { f.Claim.Status.Phase = corev1.ClaimLost }}},
	{"the claim waits for its first pod", noData, []change{func(f *Facts) { f.Claim.Status.Phase = corev1.ClaimPending }}},
	{"the claim names no volume", noData, []change{func(f *Facts) { f.Claim.Spec.VolumeName = "" }}},
	{"no volume", noVolumeOf, []change{noVolume}},
	{"the volume goes", noVolumeOf, []change{func(f *Facts) { leaving(f.Volume) }}},
	{"the volume names no claim", other, []change{func(f *Facts) { f.Volume.Spec.ClaimRef = nil }}},
	{"the volume names an earlier claim", other, []change{func(f *Facts) { f.Volume.Spec.ClaimRef.UID = "earlier" }}},
	{"another provisioner", notOurs, []change{func(f *Facts) { f.Volume.Annotations[data.Provisioned] = "disk.example.com" }}},
	{"no class", notOurs, []change{func(f *Facts) { f.Class = nil }}},
	{
		"a block device", "claim data is a block device; only volumes with files move",
		[]change{func(f *Facts) { f.Claim.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) }},
	},
	{"files, expressly", "", []change{func(f *Facts) { f.Claim.Spec.VolumeMode = new(corev1.PersistentVolumeFilesystem) }}},
	{"from a provider", "", []change{at("liqo-turin")}},
	{
		"its provider has made nothing yet", "the data of claim data does not exist yet: liqo-turin has made no volume for it; see the events of the claim",
		[]change{at("liqo-turin"), func(f *Facts) { delete(f.Volume.Annotations, labels.RemoteVolume) }},
	},
	{"no node", "there is no node liqo-milan", []change{func(f *Facts) { f.Node = nil }}},
	{"it is at this provider", "the data of claim data is there already", []change{at("liqo-milan")}},
	{"it is in this cluster", "the data of claim data is there already", []change{target("worker")}},
	{"it is pinned to the host name of a virtual node", "", []change{func(f *Facts) {
		f.Volume.Spec.NodeAffinity = pinned(corev1.LabelHostname, corev1.NodeSelectorOpIn, "liqo-milan")
	}}},
	{"a worker has the name of the provider's node", "", []change{at("worker"), target("worker")}},
	{"from a provider to this cluster", "", []change{at("liqo-turin"), target("worker"), func(f *Facts) { f.Offloaded = false }}},
	{"cordoned", "node liqo-milan is cordoned; uncordon it first", []change{func(f *Facts) { f.Node.Spec.Unschedulable = true }}},
	{
		"the provider takes no more", "the cluster of node liqo-milan takes no further pods; see the ResourceSlice of the node",
		[]change{tainted(labels.TaintNoNewPods)},
	},
	{"another taint", "", []change{tainted(labels.TaintVirtualNode)}},
	{"not ready", "node liqo-milan is not ready", []change{func(f *Facts) { f.Node.Status.Conditions = nil }}},
	{
		"not offloaded there", "namespace shop is not offloaded to the cluster of node liqo-milan; run `liqoctl offload namespace shop` first",
		[]change{func(f *Facts) { f.Offloaded = false }},
	},
	{"the provider has no class", "it has none", []change{func(f *Facts) { f.NoClass = "it has none" }}},
	{"no pod may run here", noRemote, []change{strategy("Remote")}},
	{"no pod may run here, where the data is to go", noRemote, []change{strategy("Remote"), at("liqo-turin"), target("worker")}},
	{"no pod may run here, where no data is", "", []change{strategy("Remote"), at("liqo-turin")}},
	{
		"pods may run here only", "namespace shop is offloaded with the strategy Local, so no pod can use the data in another cluster",
		[]change{strategy("Local")},
	},
	{"pods may run here only, and the data comes", "", []change{strategy("Local"), at("liqo-turin"), target("worker")}},
	{
		"no pod may run as root", "namespace shop enforces the Pod Security level restricted, and the pods that copy run as root to keep owners; " +
			"relax the level while the data moves", []change{func(f *Facts) { f.Restricted = true }},
	},
	{"a pod uses it", used, []change{aUser("worker"), controlled}},
	{"a pod that has no node yet uses it", used, []change{aUser(""), controlled}},
	{"a pod uses it, online", "", []change{online, aUser("worker"), controlled}},
	{"no pod uses it, online", "", []change{online}},
	{
		"nothing starts the pod again", "pod db-0 has no controller that starts it again at the target; delete it first",
		[]change{online, aUser("worker")},
	},
	{"a pod uses it alone, online", once, []change{online, onePod, aUser("worker"), controlled}},
	{"no pod uses it alone, online", "", []change{online, onePod}},
	{"a pod uses it alone", used, []change{onePod, aUser("worker"), controlled}},
	{"a pod uses it, dry run", "", []change{dryRun, aUser("worker")}},
	{"a pod uses it alone, dry run", once, []change{dryRun, onePod, aUser("worker")}},
	{"no pod uses it alone, dry run", "", []change{dryRun, onePod}},
	{
		"a driver has attached it, online", "the volume of claim data is attached to a node by its driver, so it cannot be copied while pods use it; " +
			"stop them, and move without --online", []change{online, attached},
	},
	{"a driver has it attached still", "", []change{attached}},
}

// TestRefused: what cannot work is refused in one sentence, before anything is made.
func TestRefused(t *testing.T) {
	for _, row := range refusals {
		f := asked()
		for _, apply := range row.changes {
			apply(f)
		}
		want := "then Preparing: making the target"
		if row.want != "" {
			want = "then Failed: " + row.want
		}
		if got := inWords(f, Plan(*f)); got != want {
			t.Errorf("%s:\n got %s\nwant %s", row.name, got, want)
		}
	}
}

// TestAsked: a move that begins records where the data is and where it goes; and on which node of this cluster its pods run, so that the copies run there.
func TestAsked(t *testing.T) {
	type record struct{ from, to, node string }
	for _, row := range []struct {
		name    string
		changes []change
		want    record
	}{
		{"to a provider", nil, record{here, "liqo-milan", ""}},
		{"with a pod", []change{online, aUser("worker"), controlled}, record{here, "liqo-milan", "worker"}},
		{"from a provider", []change{at("liqo-turin"), target("worker")}, record{"liqo-turin", here, ""}},
		{"from a provider, with a pod", []change{at("liqo-turin"), online, aUser("liqo-turin"), controlled}, record{"liqo-turin", "liqo-milan", ""}},
	} {
		f := asked()
		for _, apply := range row.changes {
			apply(f)
		}
		s := Plan(*f).Status
		if got := (record{s.From, s.To, s.Node}); got != row.want || s.ClaimUID != f.Claim.UID || s.Volume != "pvc-claim" {
			t.Errorf("%s: %+v, claim %s, volume %s; want %+v", row.name, got, s.ClaimUID, s.Volume, row.want)
		}
	}
}

// TestPlace: data of a provider is at the one node that its volume is pinned to by host name; all other data is in this cluster.
func TestPlace(t *testing.T) {
	two := pinned(corev1.LabelHostname, corev1.NodeSelectorOpIn, "liqo-turin")
	two.Required.NodeSelectorTerms = append(two.Required.NodeSelectorTerms, two.Required.NodeSelectorTerms[0])
	for name, row := range map[string]struct {
		affinity *corev1.VolumeNodeAffinity
		remote   bool
		want     string
	}{
		"a provider":             {pinned(corev1.LabelHostname, corev1.NodeSelectorOpIn, "liqo-turin"), true, "liqo-turin"},
		"a worker":               {pinned(corev1.LabelHostname, corev1.NodeSelectorOpIn, "worker"), false, here},
		"usable everywhere":      {nil, true, here},
		"nothing is required":    {&corev1.VolumeNodeAffinity{}, true, here},
		"nothing to choose from": {&corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{}}, true, here},
		"two choices":            {two, true, here},
		"by another label":       {pinned("zone", corev1.NodeSelectorOpIn, "liqo-turin"), true, here},
		"all but one":            {pinned(corev1.LabelHostname, corev1.NodeSelectorOpNotIn, "liqo-turin"), true, here},
		"two nodes":              {pinned(corev1.LabelHostname, corev1.NodeSelectorOpIn, "liqo-turin", "liqo-milan"), true, here},
	} {
		volume := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{NodeAffinity: row.affinity}}
		if row.remote {
			volume.Labels = map[string]string{labels.RemoteClusterID: "its-id"}
		}
		if got := placeOf(volume); got != row.want {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
}

// TestDenied: an API server that refuses an object for good takes a move back that has changed nothing yet. Later, what is refused is tried again.
func TestDenied(t *testing.T) {
	f := during(v1alpha1.MovePreparing)
	if s := Denied(*f, "quota"); s == nil || inWords(f, *s) != "then Restoring: quota" {
		t.Errorf("while the target is made: %+v", s)
	}
	if s := Denied(*during(v1alpha1.MoveCopying), "quota"); s != nil {
		t.Errorf("while it copies: %+v", s)
	}
}

// TestKept: pods that the API server does not evict hold a move up for some time, and then take it back.
func TestKept(t *testing.T) {
	f := during(v1alpha1.MoveStopping)
	after(evicts)(f)
	if s := Kept(*f, "budget"); inWords(f, s) != "wait: waiting until the pods end: budget" || !s.Later {
		t.Errorf("for %v: %+v", evicts, s)
	}
	after(1)(f)
	want := "then Restoring: pods that use the claim could not be evicted for 5m0s, and no other can start meanwhile; " +
		"stop them, and move without --online: budget"
	if s := Kept(*f, "budget"); inWords(f, s) != want || s.Later {
		t.Errorf("for longer: %+v", s)
	}
}
