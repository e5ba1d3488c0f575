// SPDX-License-Identifier: Apache-2.0

package virtualkubelet

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/kube/remote"
)

// TestNode walks through the life of one virtual node, with the rights of its role.
func TestNode(t *testing.T) {
	b := newEnv(t)
	b.slice(nil)
	stop := b.run()
	b.Until("the remote cluster is probed before anything is granted", func() bool { return b.provider.asked.Load() > 1 })
	if err := b.Get(t.Context(), client.ObjectKey{Name: nodeName}, &corev1.Node{}); !apierrors.IsNotFound(err) {
		t.Fatalf("a node before the grant: %v", err)
	}

	first := granted("4", "8G")
	first.Labels = map[string]string{"liqo.io/provider": "k3s"}
	first.Architectures, first.OperatingSystems = []string{"arm64"}, []string{"linux"}
	first.StorageClasses = []sharingv1alpha1.StorageClass{{StorageClassName: "fast", Default: true}}
	b.grant(first)
	node := b.untilReady(corev1.ConditionTrue)

	steps := []struct {
		name string
		do   func(*testing.T, *env, *corev1.Node)
	}{
		{"as documented", asDocumented},
		{"idle", idle},
		{"others may write", others},
		{"new grant", newGrant},
		{"the remote cluster becomes unreachable", unreachableProvider},
		{"the token is renewed", renewed},
		{"the node is deleted", deleted},
	}
	for _, step := range steps {
		if !t.Run(step.name, func(t *testing.T) { b.T = t; step.do(t, b, node) }) {
			return
		}
	}
	b.T = t
	b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(node), node))

	stop()
	writes := b.writes.Load()
	asked := b.provider.asked.Load()
	b.run()
	b.Until("it runs again", func() bool { return b.provider.asked.Load() > asked+2 })
	again := b.untilReady(corev1.ConditionTrue)
	if again.ResourceVersion != node.ResourceVersion {
		t.Errorf("the restart of the virtual kubelet changed the node:\n%+v\n%+v", node.Status, again.Status)
	}
	t.Logf("requests to write, by a restart: %d", b.writes.Load()-writes)

	t.Run("unpeered", func(t *testing.T) { b.T = t; unpeered(t, b) })
}

func asDocumented(t *testing.T, b *env, node *corev1.Node) {
	want := map[string]string{
		"kubernetes.io/hostname": nodeName, "kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64", "kubernetes.io/role": "agent",
		"node.kubernetes.io/exclude-from-external-load-balancers": "true", "alpha.service-controller.kubernetes.io/exclude-balancer": "true",
		"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": "milan-id", "liqo.io/provider": "k3s", "extra": "x",
	}
	if !maps.Equal(node.Labels, want) {
		t.Errorf("labels %v, want %v", node.Labels, want)
	}
	if node.Annotations["note"] != "y" {
		t.Errorf("annotations %v", node.Annotations)
	}
	taint := corev1.Taint{Key: "virtual-node.liqo.io/not-allowed", Value: "true", Effect: corev1.TaintEffectNoExecute}
	if !slices.ContainsFunc(node.Spec.Taints, func(have corev1.Taint) bool { return have.MatchTaint(&taint) && have.Value == taint.Value }) {
		t.Errorf("taints %v", node.Spec.Taints)
	}
	if cpu, memory := node.Status.Capacity.Cpu(), node.Status.Allocatable.Memory(); cpu.String() != "4" || memory.String() != "8G" {
		t.Errorf("capacity %v, allocatable %v", node.Status.Capacity, node.Status.Allocatable)
	}
	if got := node.Status.Addresses; len(got) != 1 || got[0].Address != "10.0.0.9" || got[0].Type != corev1.NodeInternalIP {
		t.Errorf("addresses %v", got)
	}
	if node.Status.DaemonEndpoints.KubeletEndpoint.Port != 10250 || node.Status.NodeInfo.KubeletVersion != b.version() {
		t.Errorf("status %+v", node.Status)
	}
	b.Until("the lease is there", func() bool {
		var lease coordinationv1.Lease
		err := b.Get(b.T.Context(), client.ObjectKey{Namespace: "kube-node-lease", Name: nodeName}, &lease)
		return err == nil && *lease.Spec.LeaseDurationSeconds == 4 && lease.OwnerReferences[0].UID == node.UID
	})
}

// idle: only the lease is written, and renewed before it expires.
func idle(t *testing.T, b *env, node *corev1.Node) {
	var lease coordinationv1.Lease
	key := client.ObjectKey{Namespace: "kube-node-lease", Name: nodeName}
	b.Must(b.Get(t.Context(), key, &lease))
	before, writes := lease.Spec.RenewTime.Time, b.writes.Load()
	b.Until("the lease is renewed", func() bool {
		b.Must(b.Get(t.Context(), key, &lease))
		return lease.Spec.RenewTime.Sub(before) > 1500*time.Millisecond
	})
	if got := b.writes.Load() - writes; got != 0 {
		t.Errorf("%d writes while idle", got)
	}
}

func others(t *testing.T, b *env, node *corev1.Node) {
	b.Edit(node, func() {
		node.Labels["mine"], node.Labels["kubernetes.io/arch"] = "yes", "s390x"
		node.Annotations["mine"] = "yes"
		node.Spec.Unschedulable = true
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "mine", Effect: corev1.TaintEffectNoSchedule})
	})
	b.EditStatus(node, func() { node.Status.Capacity["example.com/dongle"] = resource.MustParse("1") })
	b.Until("our label is restored", func() bool {
		b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(node), node))
		return node.Labels["kubernetes.io/arch"] == "arm64"
	})
	_, dongle := node.Status.Capacity["example.com/dongle"]
	if node.Labels["mine"] != "yes" || node.Annotations["mine"] != "yes" || !node.Spec.Unschedulable || !dongle ||
		!slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == "mine" }) {
		t.Errorf("the writes of others are lost: %+v", node)
	}
}

func newGrant(t *testing.T, b *env, node *corev1.Node) {
	second := granted("2", "3G")
	second.Resources["nvidia.com/gpu"] = resource.MustParse("1")
	second.Architectures = []string{"amd64"}
	b.grant(second)
	b.Until("less, and another architecture", func() bool {
		b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(node), node))
		_, provider := node.Labels["liqo.io/provider"]
		gpu := node.Status.Allocatable["nvidia.com/gpu"]
		return node.Status.Capacity.Cpu().String() == "2" && gpu.String() == "1" && node.Labels["kubernetes.io/arch"] == "amd64" && !provider
	})
	if node.Labels["mine"] != "yes" || !node.Spec.Unschedulable {
		t.Errorf("the writes of others are lost: %+v", node)
	}
	b.grant(granted("0", "3G"))
	b.Until("no CPU", func() bool {
		b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(node), node))
		return node.Status.Capacity.Cpu().IsZero()
	})
	if _, gpu := node.Status.Capacity["nvidia.com/gpu"]; gpu {
		t.Errorf("capacity %v", node.Status.Capacity)
	}
	b.grant(granted("2", "3G"))
	b.Until("CPU again, and the taint is gone", func() bool {
		b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(node), node))
		return node.Status.Capacity.Cpu().String() == "2" &&
			!slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == labels.TaintNoNewPods })
	})
}

func unreachableProvider(t *testing.T, b *env, _ *corev1.Node) {
	for _, how := range []struct {
		name, message string
		cut           func()
	}{
		{"swallowed", "the API server of the remote cluster does not answer: no answer within 500ms", func() { b.proxy.Set(kubetest.Swallow) }},
		{"refused", "the API server of the remote cluster does not answer: the connection was closed", func() { b.proxy.Set(kubetest.Refuse) }},
		{
			"sick", "the API server of the remote cluster does not answer: GET /livez was answered with 500 Internal Server Error",
			func() { b.provider.sick.Store(true) },
		},
	} {
		asked, writes := b.provider.asked.Load(), b.writes.Load()
		how.cut()
		node := b.untilReady(corev1.ConditionFalse)
		message := ready(node).Message
		if how.message != "" && message != how.message {
			t.Errorf("%s: %q, want %q", how.name, message, how.message)
		}
		b.Until("it is probed repeatedly", func() bool { return b.proxy.Dialled.Load() > 3 || b.provider.asked.Load() > asked+6 })
		if got := b.writes.Load() - writes; got != 1 {
			t.Errorf("%s: %d writes", how.name, got)
		}
		b.provider.sick.Store(false)
		b.proxy.Set(kubetest.Pass)
		b.untilReady(corev1.ConditionTrue)
	}
}

func renewed(t *testing.T, b *env, _ *corev1.Node) {
	b.provider.token.Store("second")
	node := b.untilReady(corev1.ConditionFalse)
	if want := "the API server of the remote cluster does not answer: GET /livez: the remote API server does not accept our token"; ready(node).Message != want {
		t.Errorf("message %q, want %q", ready(node).Message, want)
	}
	b.identity("second")
	b.untilReady(corev1.ConditionTrue)

	b.Must(b.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: b.secret}}))
	b.provider.token.Store("third")
	node = b.untilReady(corev1.ConditionFalse)
	if ready(node).Message != remote.ErrNoIdentity.Error() {
		t.Errorf("message %q", ready(node).Message)
	}
	// Only the controller manager can dial through an invitation.
	b.identityThrough("third", true)
	stored := remote.NewStored(b.Client, b.Scheme(), tenant, "milan-id")
	if _, _, err := stored.Connection(t.Context(), 0); !errors.Is(err, remote.ErrNoIdentity) {
		t.Errorf("with the identity of an invitation, the peer would be asked: %v", err)
	}
	b.identity("third")
	b.untilReady(corev1.ConditionTrue)
}

func deleted(t *testing.T, b *env, node *corev1.Node) {
	b.Must(b.Delete(t.Context(), node))
	var again *corev1.Node
	b.Until("the node is created again", func() bool {
		again = b.untilReady(corev1.ConditionTrue)
		return again.UID != node.UID
	})
	if again.Spec.Unschedulable || again.Labels["liqo.io/type"] != labels.TypeVirtualNode || len(again.Spec.Taints) == 0 {
		t.Errorf("differs from the first one: %+v", again)
	}
	b.Until("the lease is created again", func() bool {
		var lease coordinationv1.Lease
		err := b.Get(t.Context(), client.ObjectKey{Namespace: "kube-node-lease", Name: nodeName}, &lease)
		return err == nil && lease.OwnerReferences[0].UID == again.UID
	})
}

// unpeered: a node in removal is observed, and not created again.
func unpeered(t *testing.T, b *env) {
	withdrawn := sharingv1alpha1.ResourceSliceStatus{Phase: sharingv1alpha1.SliceRefused}
	b.grant(&withdrawn)
	b.proxy.Set(kubetest.Swallow)
	node := b.untilReady(corev1.ConditionFalse)
	if node.Status.Capacity.Cpu().String() != "2" {
		t.Errorf("capacity %v while pods are leaving", node.Status.Capacity)
	}
	b.proxy.Set(kubetest.Pass)
	node = b.untilReady(corev1.ConditionTrue)
	asked := b.provider.asked.Load()
	b.Must(b.Delete(t.Context(), node))
	b.Until("probing goes on", func() bool { return b.provider.asked.Load() > asked+5 })
	if err := b.Get(t.Context(), client.ObjectKeyFromObject(node), node); !apierrors.IsNotFound(err) {
		t.Fatalf("created again after the provider withdrew: %v", err)
	}

	b.grant(granted("2", "3G"))
	node = b.untilReady(corev1.ConditionTrue)
	slice := &sharingv1alpha1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "rome"}}
	b.Must(b.Delete(t.Context(), slice)) // its finalizer keeps it
	b.proxy.Set(kubetest.Swallow)
	b.untilReady(corev1.ConditionFalse)
	b.proxy.Set(kubetest.Pass)
	b.untilReady(corev1.ConditionTrue)
	asked = b.provider.asked.Load()
	b.Must(b.Delete(t.Context(), node))
	b.Until("probing goes on", func() bool { return b.provider.asked.Load() > asked+5 })
	if err := b.Get(t.Context(), client.ObjectKeyFromObject(node), node); !apierrors.IsNotFound(err) {
		t.Fatalf("created again after unpeering: %v", err)
	}
}

// TestForeignNode: an unmanaged node of the same name is not touched.
func TestForeignNode(t *testing.T) {
	b := newEnv(t)
	foreign := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{"mine": "yes"}}}
	b.Make(foreign)
	b.slice(granted("4", "8G"))
	b.run()
	b.Until("the provider is probed", func() bool { return b.provider.asked.Load() > 5 })
	version := foreign.ResourceVersion
	b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign))
	if foreign.ResourceVersion != version {
		t.Errorf("changed: %+v", foreign)
	}
	b.Must(b.Delete(t.Context(), foreign))
	b.untilReady(corev1.ConditionTrue)
}

// TestTakesOver: if everything is in place, a process makes its node Ready without waiting for a periodic step, and its updates do not create a
// node that is gone.
func TestTakesOver(t *testing.T) {
	b := newEnv(t)
	b.slice(granted("4", "8G"))
	b.run(func(o *Options) { o.LeaseDuration, o.PingInterval, o.PingRetry = 4*time.Hour, time.Hour, time.Hour })
	node := b.untilReady(corev1.ConditionTrue)

	// With a stale cache, these writes may still happen.
	n := &Node{options: Options{NodeName: nodeName}, client: b.node.client}
	gone := node.DeepCopy()
	gone.UID = "00000000-0000-0000-0000-000000000000"
	gone.Name = "liqo-gone"
	inputs := testInputs()
	inputs.name, inputs.granted, inputs.reach = "liqo-gone", granted("1", "1"), reachable
	if err := n.applyMeta(t.Context(), gone, inputs); !apierrors.IsConflict(err) {
		t.Errorf("labels of a node that is gone: %v", err)
	}
	gone.Status = corev1.NodeStatus{}
	if err := n.applyStatus(t.Context(), gone, inputs); !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		t.Errorf("status of a node that is gone: %v", err)
	}
	if err := b.Get(t.Context(), client.ObjectKey{Name: "liqo-gone"}, &corev1.Node{}); !apierrors.IsNotFound(err) {
		t.Errorf("it was created: %v", err)
	}
	if refused := b.denied.All(); len(refused) > 0 {
		t.Errorf("refused: %q", refused)
	}
}
