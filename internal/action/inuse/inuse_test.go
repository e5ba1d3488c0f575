// SPDX-License-Identifier: Apache-2.0

package inuse

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	storagev1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
)

const (
	none, established, disconnecting = discoveryv1alpha1.StatusNone, discoveryv1alpha1.StatusEstablished, discoveryv1alpha1.StatusDisconnecting
	denied, external                 = discoveryv1alpha1.StatusDenied, discoveryv1alpha1.StatusExternal
	yes, no, auto                    = discoveryv1alpha1.PeeringYes, discoveryv1alpha1.PeeringNo, discoveryv1alpha1.PeeringAuto
)

// TestJudge: only what the user still has to end is a use; what ends already, whatever began that, is waited for.
func TestJudge(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	type peer struct {
		outgoing, incoming          discoveryv1alpha1.PeeringEnabled
		out, in, net                discoveryv1alpha1.PeeringConditionStatus
		deleted, unobserved, inBand bool
	}
	for _, test := range []struct {
		name         string
		peer         *peer
		namespace    string // its state: used, unoffloaded, deleted, terminating or gone
		move         string // its state: moves, taken back or ended
		used, ending string
	}{
		{name: "nothing"},
		{name: "a known cluster", peer: &peer{auto, auto, none, none, none, false, false, false}},
		{name: "an outgoing peering", peer: &peer{yes, auto, established, none, established, false, false, false}, used: "out net"},
		{name: "one that is only wanted", peer: &peer{yes, auto, none, none, none, false, true, false}, used: "out"},
		{name: "one that is refused", peer: &peer{yes, auto, denied, none, none, false, false, false}, used: "out"},
		{name: "one that ends", peer: &peer{no, auto, disconnecting, none, established, false, false, false}, ending: "peer milan"},
		{name: "one that ends, with another network", peer: &peer{no, auto, disconnecting, none, external, false, false, false}, ending: "peer milan"},
		{name: "one whose end is not observed yet", peer: &peer{no, auto, established, none, established, false, true, false}, ending: "peer milan"},
		{name: "one that ended, with a last tunnel", peer: &peer{no, auto, none, none, established, false, false, false}, ending: "peer milan"},
		{name: "one that was wanted again while it ended", peer: &peer{yes, auto, disconnecting, none, established, false, false, false}, used: "out net"},
		{name: "an incoming peering", peer: &peer{auto, auto, none, established, established, false, false, false}, used: "in net"},
		{name: "one that the peer withdraws", peer: &peer{auto, auto, none, disconnecting, established, false, false, false}, ending: "peer milan"},
		{name: "one that is withdrawn here", peer: &peer{auto, no, none, disconnecting, established, false, false, false}, ending: "peer milan"},
		{name: "one that stays refused", peer: &peer{auto, no, none, denied, none, false, false, false}, used: "in"},
		{
			name: "one direction ends, and one stays", peer: &peer{no, auto, disconnecting, established, established, false, false, false},
			used: "in net", ending: "peer milan",
		},
		{name: "in-band, the tunnel stays", peer: &peer{no, auto, none, none, established, false, false, true}, used: "net"},
		{
			name: "in-band, the outgoing direction ends", peer: &peer{no, auto, disconnecting, none, established, false, false, true}, used: "net",
			ending: "peer milan",
		},
		{name: "everything of a deleted cluster ends", peer: &peer{yes, auto, established, established, established, true, false, false}, ending: "peer milan"},
		{name: "in-band, too", peer: &peer{no, auto, none, none, established, true, false, true}, ending: "peer milan"},
		{name: "a tunnel whose peering is not observed yet", peer: &peer{auto, auto, none, none, established, false, true, false}, used: "net"},
		{name: "an offloaded namespace", namespace: "used", used: "shop"},
		{name: "one that is unoffloaded", namespace: "unoffloaded", ending: "namespace shop"},
		{name: "one that is being deleted, its offloading not yet", namespace: "deleted", ending: "namespace shop"},
		{name: "one in phase Terminating", namespace: "terminating", ending: "namespace shop"},
		{name: "one that is not there", namespace: "gone", used: "shop"},
		{name: "a volume that moves", move: "moves", used: "shop/data"},
		{name: "a volume whose move is taken back", move: "taken back", ending: "move shop/data"},
		{name: "a volume that has moved", move: "ended"},
		{
			name: "a namespace ends, and a peering stays", peer: &peer{yes, auto, established, none, none, false, false, false},
			namespace: "deleted", used: "out", ending: "namespace shop",
		},
		{
			name: "all of them end", peer: &peer{no, no, disconnecting, disconnecting, established, false, false, false}, namespace: "unoffloaded",
			move: "taken back", ending: "move shop/data, namespace shop, peer milan",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := State{Namespaces: map[string]*corev1.Namespace{}}
			if p := test.peer; p != nil {
				fc := discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan", Generation: 2, Finalizers: []string{labels.FinalizerPeer}}}
				fc.Spec.PeeringType, fc.Spec.OutgoingPeeringEnabled, fc.Spec.IncomingPeeringEnabled = discoveryv1alpha1.OutOfBand, p.outgoing, p.incoming
				if p.inBand {
					fc.Spec.PeeringType = discoveryv1alpha1.InBand
				}
				if fc.Status.ObservedGeneration = 2; p.unobserved {
					fc.Status.ObservedGeneration = 1
				}
				if p.deleted {
					fc.DeletionTimestamp = &at
				}
				for kind, status := range map[discoveryv1alpha1.PeeringConditionType]discoveryv1alpha1.PeeringConditionStatus{
					discoveryv1alpha1.OutgoingPeering: p.out, discoveryv1alpha1.IncomingPeering: p.in, discoveryv1alpha1.NetworkStatus: p.net,
				} {
					fc.Status.PeeringConditions = append(fc.Status.PeeringConditions, discoveryv1alpha1.PeeringCondition{Type: kind, Status: status})
				}
				s.Peers = append(s.Peers, fc)
			}
			if test.namespace != "" {
				one := offloadingv1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "offloading"}}
				namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}}
				s.Namespaces["shop"] = namespace
				switch test.namespace {
				case "unoffloaded":
					one.DeletionTimestamp = &at
				case "deleted":
					namespace.DeletionTimestamp = &at
				case "terminating":
					namespace.Status.Phase = corev1.NamespaceTerminating
				case "gone":
					delete(s.Namespaces, "shop")
				}
				s.Offloadings = append(s.Offloadings, one)
			}
			if test.move != "" {
				move := storagev1alpha1.VolumeMove{
					ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"},
					Status:     storagev1alpha1.VolumeMoveStatus{Phase: storagev1alpha1.MoveCopying},
				}
				switch test.move {
				case "taken back":
					move.DeletionTimestamp = &at
				case "ended":
					move.Status.Phase = storagev1alpha1.MoveFailed
				}
				s.Moves = append(s.Moves, move)
			}
			used, ends := Judge(s)
			var have, names []string
			if used != nil {
				for what, all := range map[string][]string{"1out": used.Outgoing, "2in": used.Incoming, "3net": used.Networks} {
					if len(all) > 0 {
						have = append(have, what)
					}
				}
				slices.Sort(have)
				for i := range have {
					have[i] = have[i][1:]
				}
				have = append(append(have, used.Namespaces...), used.Moves...)
				if len(ends) > 0 != strings.Contains(used.Error(), "these are ending already") {
					t.Errorf("the refusal: %v", used)
				}
			}
			for _, one := range ends {
				names = append(names, one.What)
				if !strings.Contains(one.State, "still") {
					t.Errorf("%s: %q", one.What, one.State)
				}
			}
			if have, names := strings.Join(have, " "), strings.Join(names, ", "); have != test.used || names != test.ending {
				t.Errorf("used: %q, want %q; ending: %q, want %q", have, test.used, names, test.ending)
			}
		})
	}
}

// TestStates: what holds something is in its line, bounded and printable.
func TestStates(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	offloading := offloadingv1alpha1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "offloading", DeletionTimestamp: &at, Finalizers: []string{labels.FinalizerNamespaceOffloading}},
	}
	offloading.Status.RemoteNamespacesConditions = map[string]offloadingv1alpha1.RemoteNamespaceConditions{"milan": {
		{
			Type: offloadingv1alpha1.ConditionReady, Status: corev1.ConditionFalse, Reason: "Terminating",
			Message: "it is being deleted;\x1b[2J" + strings.Repeat(" pods", 1000),
		},
	}}
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	_, ends := Judge(State{Offloadings: []offloadingv1alpha1.NamespaceOffloading{offloading}, Namespaces: map[string]*corev1.Namespace{"shop": shop}})
	if len(ends) != 1 || !strings.HasPrefix(
		ends[0].State,
		`the offloading of namespace "shop" is still ending since 2026-01-02T03:04:05Z; in other clusters: milan: it is being deleted; [2J pods`,
	) || len(ends[0].State) > 900 ||
		!strings.HasSuffix(ends[0].State, " ...; the NamespaceOffloading has the finalizer "+labels.FinalizerNamespaceOffloading) {
		t.Errorf("%q", ends)
	}
	fc := discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan", DeletionTimestamp: &at, Finalizers: []string{"a", "b"}}}
	fc.Status.PeeringConditions = []discoveryv1alpha1.PeeringCondition{{
		Type: discoveryv1alpha1.OutgoingPeering, Status: disconnecting, Reason: "ResourceRequestDeleting",
		Message: "waiting for node liqo-milan to be drained and removed",
	}}
	_, ends = Judge(State{Peers: []discoveryv1alpha1.ForeignCluster{fc}})
	if want := `ForeignCluster "milan" is still being deleted since 2026-01-02T03:04:05Z; OutgoingPeering is Disconnecting ` +
		`(ResourceRequestDeleting): waiting for node liqo-milan to be drained and removed; ` +
		"it has the finalizers a, b"; len(ends) != 1 || ends[0].State != want {
		t.Errorf("%q, want %q", ends, want)
	}
}

// lines is a Progress.
type lines struct{ all []string }

func (l *lines) Start(text string) { l.all = append(l.all, "... "+text) }
func (l *lines) Done(text string)  { l.all = append(l.all, text) }
func (l *lines) Info(text string)  { l.all = append(l.all, text) }
func (l *lines) Warn(text string)  { l.all = append(l.all, text) }
func (l *lines) Stop()             {}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	all := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, discoveryv1alpha1.AddToScheme, offloadingv1alpha1.AddToScheme, storagev1alpha1.AddToScheme,
	} {
		if err := add(all); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// TestMovesForbidUninstallation: only the controller manager brings back a volume that a move has taken away, so an uninstallation would leave its claim Lost.
func TestMovesForbidUninstallation(t *testing.T) {
	move := func(claim string, phase storagev1alpha1.MovePhase) client.Object {
		return &storagev1alpha1.VolumeMove{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: claim, Finalizers: []string{labels.FinalizerMove}},
			Status:     storagev1alpha1.VolumeMoveStatus{Phase: phase},
		}
	}
	ended := []client.Object{move("moved", storagev1alpha1.MoveCompleted), move("refused", storagev1alpha1.MoveFailed)}
	if err := Await(t.Context(), fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(ended...).Build(), &lines{}); err != nil {
		t.Errorf("moves that have ended: %v", err)
	}
	all := append(ended, move("stopped", storagev1alpha1.MoveFinishing), move("new", ""), move("cancelled", storagev1alpha1.MoveRestoring))
	for _, err := range []error{
		Await(t.Context(), fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(all...).Build(), &lines{}),
		Check(t.Context(), fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(all...).Build()),
	} {
		var used *Error
		if !errors.As(err, &used) || !slices.Equal(used.Moves, []string{"shop/cancelled", "shop/new", "shop/stopped"}) {
			t.Fatalf("in use: %v", err)
		}
		if !strings.Contains(err.Error(), "liqoctl move volume CLAIM -n NAMESPACE --cancel`):\n    - shop/cancelled\n    - shop/new\n    - shop/stopped") {
			t.Error(err)
		}
	}
}

// failing is a client whose lists fail while broken is set.
type failing struct {
	client.Client
	broken bool
}

func (f *failing) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if f.broken {
		return errors.New("connection refused")
	}
	return f.Client.List(ctx, list, options...)
}

// TestAwait: a wait outlives an API server that restarts, but begins with one that answers; a use that appears meanwhile ends it.
func TestAwait(t *testing.T) {
	peer := func() *discoveryv1alpha1.ForeignCluster {
		fc := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}}
		fc.Spec.OutgoingPeeringEnabled = no
		fc.Status.PeeringConditions = []discoveryv1alpha1.PeeringCondition{
			{Type: discoveryv1alpha1.OutgoingPeering, Status: disconnecting, Message: "waiting for node liqo-milan"},
		}
		return fc
	}
	world := func() *failing {
		return &failing{Client: fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(peer()).WithStatusSubresource(&discoveryv1alpha1.ForeignCluster{}).Build()}
	}
	c := world()
	c.broken = true
	if err := Await(t.Context(), c, &lines{}); err == nil || err.Error() != "list foreign clusters: connection refused" {
		t.Errorf("an API server that does not answer: %v", err)
	}
	c = world()
	step := &steps{at: map[int]func(){
		2: func() { c.broken = true },
		3: func() { c.broken = false },
		4: func() {
			fc := peer()
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(fc), fc); err != nil {
				t.Error(err)
			}
			fc.Spec.OutgoingPeeringEnabled = yes
			if err := c.Update(t.Context(), fc); err != nil {
				t.Error(err)
			}
		},
	}, reader: c}
	progress := &lines{}
	err := Await(t.Context(), step, progress)
	var used *Error
	if !errors.As(err, &used) || !slices.Equal(used.Outgoing, []string{"milan"}) {
		t.Errorf("wanted again: %v", err)
	}
	if len(progress.all) == 0 ||
		progress.all[0] != `Waiting: the peering with "milan" is still ending; OutgoingPeering is Disconnecting: waiting for node liqo-milan` {
		t.Errorf("lines: %q", progress.all)
	}
	if fmt.Sprint(slices.Compact(progress.all[1:])) != fmt.Sprint([]string{
		"... Waiting until what is ending already is gone: " + strings.TrimPrefix(progress.all[0], "Waiting: "),
	}) {
		t.Errorf("lines: %q", progress.all)
	}
}

// steps changes the world after so many looks at the ForeignClusters.
type steps struct {
	at     map[int]func()
	reader client.Reader
	looks  int
}

func (s *steps) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return s.reader.Get(ctx, key, object, options...)
}

func (s *steps) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := s.reader.List(ctx, list, options...)
	if _, is := list.(*discoveryv1alpha1.ForeignClusterList); is {
		s.looks++
		if change := s.at[s.looks]; change != nil {
			change()
		}
	}
	return err
}
