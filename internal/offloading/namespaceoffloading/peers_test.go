// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading

import (
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/offloading/controllertest"
	"liqo.io/liqo/internal/offloading/remotenamespace"
	"liqo.io/liqo/internal/offloading/shadow"
	"liqo.io/liqo/internal/peering/replicate"
)

// replicatorBetween starts a replicator from one env to the other.
func replicatorBetween(consumer, provider *controllertest.Env, there string) (connect, disconnect func()) {
	t := consumer.T
	t.Helper()
	const peerAccount = "liqo-peer"
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
		Namespace: there, APIServerURL: provider.Admin.Host, APIServerCA: provider.Admin.CAData,
		Token: token.Status.Token, RenewAt: now.Add(30 * time.Minute), ExpiresAt: now.Add(time.Hour),
	}.Data())
	provider.Must(err)
	mgr, err := manager.New(consumer.Admin, manager.Options{Scheme: consumer.Scheme, SkipNameValidation: true})
	consumer.Must(err)
	replicator, err := replicate.New(mgr, replicate.Options{LocalClusterID: "rome-id", ProbeInterval: time.Second, RetryInterval: 50 * time.Millisecond})
	consumer.Must(err)
	kubetest.Start(t, "manager of the replicator", mgr.Start)
	connect = func() {
		consumer.Must(replicator.Connect(t.Context(), replicate.Peer{ClusterID: "milan-id", LocalNamespace: controllertest.Tenant, Identity: identity}))
	}
	return connect, func() { replicator.Disconnect("milan-id") }
}

// TestAcrossClusters offloads a namespace with the controllers of both clusters: a name conflict and its end, a remote namespace that is deleted and
// created again, and an end that the provider learns of later.
func TestAcrossClusters(t *testing.T) {
	t.Parallel()
	here, there := kubetest.Pair(t)
	consumer, provider := &consumerEnv{controllertest.At(t, here)}, controllertest.At(t, there)
	const consumerTenant = "liqo-tenant-rome-000002"
	provider.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: consumerTenant, Labels: map[string]string{
		labels.TenantNamespace: "true", labels.ClusterID: "rome-id", labels.AppPartOf: "liqo",
	}}})
	provider.Consumer("rome", consumerTenant)
	connect, disconnect := replicatorBetween(consumer.Env, provider, consumerTenant)
	consumer.runConsumer()
	runRemoteNamespaces := func() (stop func()) {
		return provider.Start(func(mgr ctrl.Manager) error {
			bounds := remotenamespace.Bounds{Quota: corev1.ResourceList{"secrets": resource.MustParse("2")}}
			return remotenamespace.Setup(mgr, remotenamespace.Options{Namespace: "liqo", Bounds: bounds, Level: shadow.Baseline})
		})
	}
	stop := runRemoteNamespaces()
	consumer.shop()
	milan := consumer.newProvider("milan", "europe")
	connect()
	consumer.Until("the map is replicated", func() bool {
		remoteNamespace := milan.namespaces.DeepCopy()
		remoteNamespace.Namespace = consumerTenant
		return provider.Exists(remoteNamespace)
	})

	offloading := consumer.Offload(nil)
	consumer.untilPhase(offloading, "Ready", milan, "ClusterSelected", "NamespaceCreated")
	remoteNamespace := controllertest.Space(remoteNameOfShop())
	provider.Read(remoteNamespace)

	// The administrator of the provider deletes the remote namespace.
	uid := remoteNamespace.UID
	provider.Must(provider.Delete(t.Context(), remoteNamespace))
	consumer.untilPhase(offloading, "InProgress", milan, "ClusterSelected", "Terminating")
	provider.FinalizeNamespace(remoteNamespace.Name)
	consumer.untilPhase(offloading, "Ready", milan, "ClusterSelected", "NamespaceCreated")
	if provider.Read(remoteNamespace); remoteNamespace.UID == uid {
		t.Error("the remote namespace has the same UID")
	}

	// A name that exists at the provider.
	consumer.Make(controllertest.Space("taken"))
	provider.Make(controllertest.Space("taken"))
	second := &offloadingv1alpha1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: "taken", Name: "offloading"},
		Spec:       offloadingv1alpha1.NamespaceOffloadingSpec{NamespaceMappingStrategy: offloadingv1alpha1.EnforceSameName},
	}
	consumer.Make(second)
	consumer.untilPhase(second, "AllFailed", milan, "ClusterSelected", "CreationLoopBackOff")
	provider.Must(provider.Delete(t.Context(), controllertest.Space("taken")))
	provider.FinalizeNamespace("taken")
	consumer.untilPhase(second, "Ready", milan, "ClusterSelected", "NamespaceCreated")

	// An end while both clusters answer.
	consumer.Must(consumer.Delete(t.Context(), second))
	provider.FinalizeNamespace("taken")
	consumer.Until("the object is gone", func() bool { return consumer.Gone(second) })

	// Restarts of both sides change nothing.
	version := remoteNamespace.ResourceVersion
	stop()
	runRemoteNamespaces()
	provider.Make(controllertest.Space("other"))

	// An end while the provider is unreachable.
	disconnect()
	consumer.Ready(milan.node, corev1.ConditionFalse, "no answer")
	consumer.Must(consumer.Delete(t.Context(), offloading))
	milan.asked("nothing", nil)
	consumer.Ahead.Store(int64(silentEndDeadline + time.Second))
	consumer.Ready(milan.node, corev1.ConditionFalse, "still no answer")
	// Another reconciliation, unless the event of the node has ended it already.
	touch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"touched":"yes"}}}`))
	consumer.Must(client.IgnoreNotFound(consumer.Patch(t.Context(), offloading.DeepCopy(), touch)))
	consumer.Until("the object is gone", func() bool { return consumer.Gone(offloading) })
	if provider.Read(remoteNamespace); remoteNamespace.DeletionTimestamp != nil || remoteNamespace.ResourceVersion != version {
		t.Error("the remote namespace was changed, although the clusters were disconnected")
	}
	connect()
	provider.FinalizeNamespace(remoteNamespace.Name)
}
