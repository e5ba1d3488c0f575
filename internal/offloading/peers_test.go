// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/peering/replicate"
)

// link is what brings the maps of one bench to the other.
func link(consumer, provider *bench, there string) (plug, unplug func()) {
	t := consumer.T
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: there, Name: peerAccount}}
	provider.Make(account)
	meta := metav1.ObjectMeta{Namespace: there, Name: peerAccount}
	provider.Make(&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"sharing.liqo.io"}, Resources: []string{"resourceslices"}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
		{APIGroups: []string{"virtualkubelet.liqo.io"}, Resources: []string{"namespacemaps"}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
	}})
	provider.Make(&rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: peerAccount},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: there, Name: peerAccount}},
	})
	token := &authenticationv1.TokenRequest{}
	provider.Must(provider.SubResource("token").Create(t.Context(), account, token))
	now := time.Now().UTC().Truncate(time.Second)
	identity, err := remote.ParseIdentity(remote.Identity{
		Namespace: there, APIServerURL: provider.admin.Host, APIServerCA: provider.admin.CAData,
		Token: token.Status.Token, RenewAt: now.Add(30 * time.Minute), ExpiresAt: now.Add(time.Hour),
	}.Data())
	provider.Must(err)
	mgr, err := manager.New(consumer.admin, manager.Options{Scheme: consumer.scheme, SkipNameValidation: true})
	consumer.Must(err)
	replicator, err := replicate.New(mgr, replicate.Options{LocalClusterID: "rome-id", ProbeInterval: time.Second, RetryInterval: 50 * time.Millisecond})
	consumer.Must(err)
	kubetest.Start(t, "manager of the link", mgr.Start)
	plug = func() {
		consumer.Must(replicator.Connect(t.Context(), replicate.Peer{ClusterID: "milan-id", LocalNamespace: tenant, Identity: identity}))
	}
	return plug, func() { replicator.Disconnect("milan-id") }
}

// TestAcrossClusters is a namespace that extends to another cluster, with all that this takes on both sides: conflict and heal, a twin
// that comes back, and an end that the other side hears of later.
func TestAcrossClusters(t *testing.T) {
	t.Parallel()
	here, there := kubetest.Pair(t)
	consumer, provider := newBenchAt(t, here), newBenchAt(t, there)
	const guest = "liqo-tenant-rome-000002"
	provider.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: guest, Labels: map[string]string{
		labels.TenantNamespace: "true", labels.ClusterID: "rome-id", labels.AppPartOf: "liqo",
	}}})
	plug, unplug := link(consumer, provider, guest)
	consumer.consumer()
	stop := provider.host()
	consumer.shop()
	milan := consumer.lender("milan", "europe")
	plug()
	consumer.Until("its map has crossed", func() bool {
		twin := milan.namespaces.DeepCopy()
		twin.Namespace = guest
		return provider.exists(twin)
	})

	begin := time.Now()
	wish := consumer.offload(nil)
	consumer.stands(wish, "Ready", milan, "ClusterSelected", "NamespaceCreated")
	t.Logf("offloaded after %v", time.Since(begin).Round(time.Millisecond))
	twin := space(twinOfShop())
	provider.Read(twin)

	// The other's administrator deletes the twin.
	uid := twin.UID
	provider.Must(provider.Delete(t.Context(), twin))
	consumer.stands(wish, "InProgress", milan, "ClusterSelected", "Terminating")
	provider.bury(twin.Name)
	consumer.stands(wish, "Ready", milan, "ClusterSelected", "NamespaceCreated")
	if provider.Read(twin); twin.UID == uid {
		t.Error("it is the same")
	}

	// A name that is taken there.
	consumer.Make(space("taken"))
	provider.Make(space("taken"))
	second := &offloadingv1alpha1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: "taken", Name: "offloading"},
		Spec:       offloadingv1alpha1.NamespaceOffloadingSpec{NamespaceMappingStrategy: offloadingv1alpha1.EnforceSameName},
	}
	consumer.Make(second)
	consumer.stands(second, "AllFailed", milan, "ClusterSelected", "CreationLoopBackOff")
	provider.Must(provider.Delete(t.Context(), space("taken")))
	provider.bury("taken")
	consumer.stands(second, "Ready", milan, "ClusterSelected", "NamespaceCreated")

	// An end in order.
	begin = time.Now()
	consumer.Must(consumer.Delete(t.Context(), second))
	provider.bury("taken")
	consumer.Until("it is gone", func() bool { return consumer.gone(second) })
	t.Logf("unoffloaded after %v", time.Since(begin).Round(time.Millisecond))

	// Restarts of both sides change nothing.
	version := twin.ResourceVersion
	stop()
	provider.host()
	provider.Make(space("other"))

	// The end while the provider is away.
	unplug()
	consumer.ready(milan.node, corev1.ConditionFalse, "no answer")
	consumer.Must(consumer.Delete(t.Context(), wish))
	milan.asked("nothing", nil)
	consumer.ahead.Store(int64(silentEndTime + time.Second))
	consumer.ready(milan.node, corev1.ConditionFalse, "still no answer")
	// It is looked at again, if the news of the node has not ended it already.
	look := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"look":"again"}}}`))
	consumer.Must(client.IgnoreNotFound(consumer.Patch(t.Context(), wish.DeepCopy(), look)))
	consumer.Until("it is gone", func() bool { return consumer.gone(wish) })
	if provider.Read(twin); twin.DeletionTimestamp != nil || twin.ResourceVersion != version {
		t.Error("the twin was touched, though nobody could say so")
	}
	plug()
	provider.bury(twin.Name)
}
