// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	storagev1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/actiontest"
	"liqo.io/liqo/internal/action/move"
	"liqo.io/liqo/internal/action/offload"
	"liqo.io/liqo/internal/action/pair"
	"liqo.io/liqo/internal/action/peer"
)

const heldBy = "example.com/held"

// watching is a Progress that acts once, on a step that contains a text.
type watching struct {
	actiontest.Recorder
	text string
	act  func()
}

func (w *watching) Start(text string) { w.Recorder.Start(text); w.once(text) }
func (w *watching) Done(text string)  { w.Recorder.Done(text); w.once(text) }

func (w *watching) once(text string) {
	if w.act != nil && strings.Contains(text, w.text) {
		act := w.act
		w.act = nil
		act()
	}
}

// expiring returns a context whose time is over as soon as a line with the text is shown: however busy the machine is, the command has come so far.
func expiring(t *testing.T, text string) (context.Context, *watching) {
	over := make(chan struct{})
	return expired{t.Context(), over}, &watching{text: text, act: func() { close(over) }}
}

// expired is a context that ends by its time, not by the user.
type expired struct {
	context.Context
	over chan struct{}
}

func (e expired) Done() <-chan struct{} { return e.over }

func (e expired) Err() error {
	select {
	case <-e.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// stuck creates an object that a finalizer of others holds, and deletes it. The result releases it.
func stuck(t *testing.T, c client.Client, object client.Object) (release func()) {
	t.Helper()
	object.SetFinalizers([]string{heldBy})
	if err := c.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	held := object.DeepCopyObject().(client.Object) // a patch writes into it, while others may read the object
	release = func() {
		err := c.Patch(context.Background(), held, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		if client.IgnoreNotFound(err) != nil && !apierrors.IsInvalid(err) {
			t.Error(err)
		}
	}
	t.Cleanup(release)
	if err := c.Delete(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	return release
}

// testEndingPeer: commands that need a name or a cluster which is ending wait for its end, and report what holds it, in the progress and when the time is over.
func testEndingPeer(t *testing.T, config *rest.Config) {
	c := actiontest.Installed(t, config)
	fc := actiontest.Known("milan", actiontest.RemoteID, discoveryv1alpha1.OutOfBand, labels.DiscoveryManual)
	release := stuck(t, c, fc)
	if err := actiontest.SetStatus(
		t.Context(), c, "milan", nil,
		actiontest.Condition(discoveryv1alpha1.OutgoingPeering, discoveryv1alpha1.StatusDisconnecting, "waiting for node liqo-milan to be drained and removed"),
	); err != nil {
		t.Fatal(err)
	}
	const why = "OutgoingPeering is Disconnecting: waiting for node liqo-milan to be drained and removed; it has the finalizer " + heldBy
	url := provider(t, nil, time.Time{})
	before := actiontest.Inventory(t, c)
	for what, act := range map[string]func(context.Context, peer.Options, action.Progress) error{
		"out-of-band": func(ctx context.Context, o peer.Options, p action.Progress) error {
			return peer.OutOfBand(ctx, c, o, p)
		},
		"under another name": func(ctx context.Context, o peer.Options, p action.Progress) error {
			o.Name = "milano"
			return peer.OutOfBand(ctx, c, o, p)
		},
		"in-band": func(ctx context.Context, o peer.Options, p action.Progress) error {
			remote := &pair.Cluster{Facts: pair.Facts{}}
			remote.Facts.Identity.ClusterID = actiontest.RemoteID
			local := &pair.Cluster{
				Access: pair.Access{Client: c, Namespace: actiontest.Namespace}, Prefix: "(local) ", Name: "milan", Other: remote,
				Facts: pair.Facts{Known: []*discoveryv1alpha1.ForeignCluster{fc}},
			}
			fc.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			waited, err := pair.AwaitGone(ctx, []*pair.Cluster{local}, o.Timeout, p)
			if !waited {
				t.Error("in-band: not waited")
			}
			return err
		},
	} {
		ctx, lines := expiring(t, "Waiting until it is gone")
		err := act(ctx, peerOptions(url, func(o *peer.Options) { o.Timeout = 15 * time.Second }), lines)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "nothing was changed") ||
			!strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "liqoctl unpeer milan --force") {
			t.Errorf("%s: %v", what, err)
		}
		text := lines.Recorder.Text()
		if !strings.Contains(text, `ForeignCluster "milan" is still being deleted since 2`) ||
			!strings.Contains(text, "... "+strings.Repeat("(local) ", strings.Count(what, "in-band"))+"Waiting until it is gone: ") {
			t.Errorf("%s: lines\n%s", what, text)
		}
	}
	err := peer.Enable(t.Context(), c, peer.Options{Name: "milan", Namespace: actiontest.Namespace, Timeout: 15 * time.Second}, &actiontest.Recorder{})
	if err == nil || !strings.Contains(err.Error(), "still being deleted") || !strings.Contains(err.Error(), "liqoctl generate peer-command") {
		t.Errorf("peer by name: %v", err)
	}
	if after := actiontest.Inventory(t, c); after != before {
		t.Errorf("changed:\n%s\nbefore:\n%s", after, before)
	}

	// As soon as it is gone, the command goes on.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	enabled := &watching{text: "Peering enabled", act: cancel}
	lines := &watching{text: "Waiting until it is gone", act: release}
	err = peer.OutOfBand(ctx, c, peerOptions(url, nil), twice{lines, enabled})
	var live discoveryv1alpha1.ForeignCluster
	if get := c.Get(t.Context(), client.ObjectKey{Name: "milan"}, &live); get != nil || live.UID == fc.UID || !errors.Is(err, context.Canceled) {
		t.Errorf("after its end: %v, %v, %s\n%s", err, get, live.UID, lines.Recorder.Text())
	}
	if !strings.Contains(lines.Recorder.Text(), `INFO ForeignCluster "milan" is gone`) {
		t.Errorf("lines\n%s", lines.Recorder.Text())
	}
}

// twice is a Progress for two.
type twice [2]action.Progress

func (b twice) Start(text string) { b[0].Start(text); b[1].Start(text) }
func (b twice) Done(text string)  { b[0].Done(text); b[1].Done(text) }
func (b twice) Info(text string)  { b[0].Info(text); b[1].Info(text) }
func (b twice) Warn(text string)  { b[0].Warn(text); b[1].Warn(text) }
func (b twice) Stop()             { b[0].Stop(); b[1].Stop() }

// testEndingOffloading: offload waits for a former offloading; a namespace that is being deleted is reported as that, and unoffload refuses nothing
// that goes anyway.
func testEndingOffloading(t *testing.T, config *rest.Config) {
	c := actiontest.Installed(t, config)
	object := func(namespace string) *offloadingv1alpha1.NamespaceOffloading {
		return &offloadingv1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: offloadingv1alpha1.NamespaceOffloadingName}}
	}
	actiontest.Ensure(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "office"}})
	o := offload.Options{Namespace: "office", PodOffloadingStrategy: "LocalAndRemote", NamespaceMappingStrategy: "DefaultName", Timeout: 15 * time.Second}
	old := object("office")
	release := stuck(t, c, old)
	over, shown := expiring(t, "Waiting until it is gone")
	err := offload.Namespace(over, c, o, shown)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(
		err.Error(), `nothing was changed: after 15s, the offloading of namespace "office" is still ending since 2`,
	) || !strings.Contains(err.Error(), "the finalizer "+heldBy) {
		t.Errorf("offload while it ends: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go reconcile(ctx, c, "office", offloadingv1alpha1.OffloadingReady, func(one *offloadingv1alpha1.NamespaceOffloading) bool { return one.UID != old.UID })
	lines := &watching{text: "Waiting until it is gone", act: release}
	now := object("office")
	create := offload.Namespace(t.Context(), c, o, lines)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(now), now); err != nil || create != nil ||
		now.UID == old.UID || !strings.Contains(lines.Recorder.Text(), "INFO Offloading completed successfully") {
		t.Errorf("offload after it ended: %v, %v\n%s", create, err, lines.Recorder.Text())
	}
	if err := c.Delete(t.Context(), now); err != nil {
		t.Fatal(err)
	}

	going := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "going"}}
	actiontest.Ensure(t, c, going)
	inside := object("going")
	if err := c.Create(t.Context(), inside); err != nil {
		t.Fatal(err)
	}
	going.Status.Conditions = []corev1.NamespaceCondition{{
		Type: corev1.NamespaceFinalizersRemaining, Status: corev1.ConditionTrue,
		Message:            "Some content in the namespace has finalizers remaining: example.com/held in 1 resource instances",
		LastTransitionTime: metav1.Now(),
	}}
	if err := c.Status().Update(t.Context(), going); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), going); err != nil {
		t.Fatal(err)
	}
	o.Namespace = "going"
	if err := offload.Namespace(t.Context(), c, o, &actiontest.Recorder{}); err == nil ||
		!strings.Contains(err.Error(), `namespace "going" is being deleted since 2`) || !strings.Contains(err.Error(), "example.com/held in 1 resource instances") {
		t.Errorf("offload a namespace that is being deleted: %v", err)
	}
	over, shown = expiring(t, "Waiting until it is gone")
	err = offload.Unoffload(over, c, offload.UnoffloadOptions{Namespace: "going", Timeout: 15 * time.Second}, shown)
	text := &shown.Recorder
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "example.com/held in 1 resource instances") ||
		strings.Contains(text.Text(), "correctly disabled") ||
		!strings.Contains(text.Text(), `INFO namespace "going" is still being deleted since 2`) {
		t.Errorf("unoffload a namespace that is being deleted: %v\n%s", err, text.Text())
	}
	if err := c.Delete(t.Context(), inside); err != nil {
		t.Fatal(err)
	}
	if err := offload.Unoffload(t.Context(), c, offload.UnoffloadOptions{Namespace: "going", Timeout: 15 * time.Second}, &actiontest.Recorder{}); err == nil ||
		!strings.Contains(err.Error(), "is not offloaded") {
		t.Errorf("unoffload after it: %v", err)
	}
}

// testEndingMove: a move begins when the one before it has been taken back.
func testEndingMove(t *testing.T, config *rest.Config) {
	c := actiontest.Installed(t, config)
	actiontest.Ensure(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "moves"}})
	moving := func(target string) *storagev1alpha1.VolumeMove {
		return &storagev1alpha1.VolumeMove{ObjectMeta: metav1.ObjectMeta{Namespace: "moves", Name: "taken"}, Spec: storagev1alpha1.VolumeMoveSpec{TargetNode: target}}
	}
	old := moving("liqo-turin")
	release := stuck(t, c, old)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(old), old); err != nil {
		t.Fatal(err)
	}
	old.Status.Phase, old.Status.Message = storagev1alpha1.MoveRestoring, "waiting for the volume"
	if err := c.Status().Update(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	o := move.Options{Namespace: "moves", Claim: "taken", TargetNode: "liqo-milan", Timeout: 15 * time.Second}
	over, lines := expiring(t, "still being taken back")
	const want = `the move of claim "taken" to node "liqo-turin" is still being taken back: Bringing the volume back as it was: waiting for the volume`
	if err := move.Volume(over, c, o, lines); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "nothing was changed: "+want) || !strings.Contains(lines.Recorder.Text(), "INFO "+want) {
		t.Errorf("while it is taken back: %v\n%s", err, lines.Recorder.Text())
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_ = actiontest.Eventually(ctx, func(ctx context.Context) error {
			now := moving("")
			if err := c.Get(ctx, client.ObjectKeyFromObject(now), now); err != nil {
				return err
			}
			if now.UID == old.UID {
				return errors.New("still the old one")
			}
			now.Status.Phase, now.Status.Message = storagev1alpha1.MoveCompleted, "the data is in liqo-milan"
			return c.Status().Update(ctx, now)
		})
	}()
	after := &watching{text: "still being taken back", act: release}
	if err := move.Volume(t.Context(), c, o, after); err != nil || !strings.Contains(after.Recorder.Text(), "the data is in liqo-milan") {
		t.Errorf("after it: %v\n%s", err, after.Recorder.Text())
	}
}
