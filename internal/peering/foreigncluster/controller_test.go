// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/peering/peeringtest"
	"liqo.io/liqo/internal/peering/pins"
	"liqo.io/liqo/internal/peering/tenant"
)

// newFCEnv is a real API server with the controllers of ForeignClusters and keys.
func newFCEnv(t *testing.T, changes ...func(*Options)) *peeringtest.Cluster {
	t.Helper()
	b := peeringtest.NewCluster(t)
	b.Start(func(mgr manager.Manager) error {
		options := Options{
			Local: discoveryv1alpha1.ClusterIdentity{ClusterID: "rome-id", ClusterName: "rome"}, Namespace: "liqo", InternalNetwork: true,
			Connector: peeringtest.NewNoConnector(), Tenants: tenant.New(mgr.GetClient(), mgr.GetAPIReader(), "liqo"),
		}
		for _, change := range changes {
			change(&options)
		}
		return errors.Join(Setup(mgr, options), pins.Setup(mgr, pins.Options{
			Local: options.Local, Namespace: options.Namespace, InternalNetwork: options.InternalNetwork, Admission: options.Admission, Tenants: options.Tenants,
		}))
	})
	return b
}

// TestDecisionOutlivesFailure: a reconciliation that fails before it decides keeps the last decision, which namespaces and network of the peer follow.
func TestDecisionOutlivesFailure(t *testing.T) {
	t.Parallel()
	b := peeringtest.NewCluster(t)
	milan := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}}
	b.Make(milan)
	r := &reconciler{own: ssa.NewApplier(b.Client, labels.OwnerForeignCluster)}
	write := func(incoming *discoveryv1alpha1.IncomingStatus) {
		t.Helper()
		s := &scope{fc: milan, now: time.Now()}
		s.facts.Spec, s.facts.Incoming = &milan.Spec, incoming
		b.Must(r.writeStatus(t.Context(), s))
		b.Read(milan)
	}
	write(&discoveryv1alpha1.IncomingStatus{State: discoveryv1alpha1.IncomingAccepted, Since: metav1.Now().Rfc3339Copy(), Message: "m"})
	write(nil)
	if !milan.Accepts() {
		t.Errorf("the decision is lost: %+v", milan.Status.Incoming)
	}
}

// TestFixedFields: the API server refuses another identity or type of an existing ForeignCluster, and accepts an identity where there was none.
func TestFixedFields(t *testing.T) {
	t.Parallel()
	b := peeringtest.NewCluster(t)
	milan := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}}
	b.Make(milan)
	milan.Spec.ClusterIdentity = &discoveryv1alpha1.ClusterIdentity{ClusterID: "milan-id", ClusterName: "milan"}
	b.Must(b.Update(t.Context(), milan))
	for field, change := range map[string]func(*discoveryv1alpha1.ForeignClusterSpec){
		"clusterID":   func(s *discoveryv1alpha1.ForeignClusterSpec) { s.ClusterIdentity.ClusterID = "naples-id" },
		"clusterName": func(s *discoveryv1alpha1.ForeignClusterSpec) { s.ClusterIdentity.ClusterName = "naples" },
		"peeringType": func(s *discoveryv1alpha1.ForeignClusterSpec) { s.PeeringType = discoveryv1alpha1.InBand },
	} {
		changed := milan.DeepCopy()
		change(&changed.Spec)
		if err := b.Update(t.Context(), changed); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), field+" cannot be changed") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// untilNetwork waits for the condition NetworkStatus to be as wanted.
func untilNetwork(b *peeringtest.Cluster, status discoveryv1alpha1.PeeringConditionStatus, because string) {
	b.T.Helper()
	kubetest.Eventually(b.T, fmt.Sprintf("%s: %s", status, because), func() error {
		var fc discoveryv1alpha1.ForeignCluster
		if err := b.Get(b.T.Context(), client.ObjectKey{Name: "milan"}, &fc); err != nil {
			return err
		}
		for _, condition := range fc.Status.PeeringConditions {
			if condition.Type == discoveryv1alpha1.NetworkStatus && (condition.Status != status || !strings.Contains(condition.Message, because)) {
				return fmt.Errorf("it is %s: %s", condition.Status, condition.Message)
			} else if condition.Type == discoveryv1alpha1.NetworkStatus {
				return nil
			}
		}
		return errors.New("no condition yet")
	})
}

// TestNetworkStatus: the ForeignCluster reports each change of the network to the peer, and nothing of it stays after
// the peering.
func TestNetworkStatus(t *testing.T) {
	t.Parallel()
	b := newFCEnv(t)
	milan := discoveryv1alpha1.ClusterIdentity{ClusterID: "aaaaaaaa-0000-4000-8000-00000000000a", ClusterName: "milan"}
	b.Make(&discoveryv1alpha1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "milan"},
		Spec: discoveryv1alpha1.ForeignClusterSpec{
			PeeringType: discoveryv1alpha1.OutOfBand, ClusterIdentity: &milan,
			OutgoingPeeringEnabled: discoveryv1alpha1.PeeringNo, IncomingPeeringEnabled: discoveryv1alpha1.PeeringAuto,
		},
	})
	untilNetwork(b, discoveryv1alpha1.StatusNone, "no peering is wanted")

	namespace := milan.TenantNamespace()
	meta := func(name string, marks map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: marks}
	}
	spec := netv1alpha1.NetworkConfigSpec{
		PodCIDR: "10.200.0.0/16", ExternalCIDR: "10.70.0.0/16", BackendType: "wireguard", BackendConfig: map[string]string{"port": "5871"},
	}
	// A registered consumer may write here, so its NetworkConfig is kept.
	pin := b.PinOf(milan, "")
	b.Make(pin)
	kubetest.Eventually(b.T, "the peer is admitted", func() error {
		return b.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: tenant.PeerAccount}, &corev1.ServiceAccount{})
	})
	request := &sharingv1alpha1.ResourceSlice{
		ObjectMeta: meta("milan", map[string]string{labels.Replicated: "true", labels.Replication: "false", labels.OriginID: milan.ClusterID}),
		Spec:       sharingv1alpha1.ResourceSliceSpec{ConsumerClusterID: milan.ClusterID, ProviderClusterID: "rome-id", NodeName: "liqo-rome"},
	}
	b.Make(request)
	untilNetwork(b, discoveryv1alpha1.StatusNone, "this cluster has not described its network yet")
	rome := discoveryv1alpha1.ClusterIdentity{ClusterID: "rome-id", ClusterName: "rome"}
	ours := &netv1alpha1.NetworkConfig{
		ObjectMeta: meta(rome.NetworkConfigName(), map[string]string{labels.Replication: "true", labels.RemoteID: milan.ClusterID}), Spec: spec,
	}
	b.Make(ours)
	untilNetwork(b, discoveryv1alpha1.StatusNone, "the remote cluster has not described its network yet")
	theirs := &netv1alpha1.NetworkConfig{
		ObjectMeta: meta(milan.NetworkConfigName(), map[string]string{labels.Replication: "false", labels.Replicated: "true"}), Spec: spec,
	}
	b.Make(theirs)
	untilNetwork(b, discoveryv1alpha1.StatusNone, "the remote cluster has not answered")
	theirs.Status.Conditions = []metav1.Condition{{
		Type: netv1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Large", Message: "podCIDR 0.0.0.0/0 is too large", LastTransitionTime: metav1.Now(),
	}}
	b.Must(b.Status().Update(t.Context(), theirs))
	untilNetwork(b, discoveryv1alpha1.StatusNone, "does not accept the network of the remote one: podCIDR 0.0.0.0/0 is too large")

	tunnel := &netv1alpha1.TunnelEndpoint{
		ObjectMeta: meta("milan", map[string]string{labels.TunnelCluster: milan.ClusterID}),
		Spec: netv1alpha1.TunnelEndpointSpec{
			ClusterIdentity: netv1alpha1.ClusterIdentity{ClusterID: milan.ClusterID, ClusterName: milan.ClusterName},
			LocalPodCIDR:    "10.200.0.0/16", LocalExternalCIDR: "10.70.0.0/16", RemotePodCIDR: "10.201.0.0/16", RemoteExternalCIDR: "10.71.0.0/16",
			BackendType: "wireguard", BackendConfig: map[string]string{"port": "5871"},
		},
	}
	b.Make(tunnel)
	untilNetwork(b, discoveryv1alpha1.StatusPending, "have not reported")
	for _, c := range []struct {
		status  netv1alpha1.ConnectionStatus
		message string
		want    discoveryv1alpha1.PeeringConditionStatus
	}{
		{netv1alpha1.Connecting, "no handshake yet", discoveryv1alpha1.StatusPending},
		{netv1alpha1.Connected, "3 of 3 probes came back", discoveryv1alpha1.StatusEstablished},
		{netv1alpha1.ConnectionError, "3 of 3 probes lost", discoveryv1alpha1.StatusError},
	} {
		tunnel.Status.Connection = netv1alpha1.Connection{Status: c.status, StatusMessage: c.message}
		b.Must(b.Status().Update(t.Context(), tunnel))
		untilNetwork(b, c.want, c.message)
	}
	b.Must(b.Delete(t.Context(), tunnel))
	untilNetwork(b, discoveryv1alpha1.StatusNone, "does not accept")

	// The peering ends and the ForeignCluster stays: no connection would report a change of the peer's network any more.
	b.Must(b.Delete(t.Context(), request))
	untilNetwork(b, discoveryv1alpha1.StatusNone, "does not accept")
	b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs)) // it may come back, it is still admitted
	b.Must(b.Delete(t.Context(), pin))
	kubetest.Eventually(b.T, "the peer's NetworkConfig is deleted", func() error {
		if err := b.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs); !apierrors.IsNotFound(err) {
			return fmt.Errorf("still there (%v)", err)
		}
		return nil
	})
	b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(ours), ours)) // its controller deletes it
	untilNetwork(b, discoveryv1alpha1.StatusNone, "no peering is wanted")

	// A peer that left an hour ago comes back, and its NetworkConfig arrives before its request.
	back := &netv1alpha1.NetworkConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "back", Labels: map[string]string{labels.Replicated: "true"}},
		Spec:       spec,
	}
	b.Make(back)
	naples := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour))}}
	s := &scope{fc: naples, namespace: back.Namespace, now: time.Now()}
	s.facts.Admitted = true
	r := &reconciler{client: b.Client}
	b.Must(r.forgetNetwork(t.Context(), s))
	b.Read(back)
	if s.requeueAfter <= 0 || s.requeueAfter > networkDeadline {
		t.Errorf("judged again after %v", s.requeueAfter)
	}
	s.now = s.now.Add(2 * networkDeadline)
	b.Must(r.forgetNetwork(t.Context(), s))
	if err := b.Get(t.Context(), client.ObjectKeyFromObject(back), back); !apierrors.IsNotFound(err) {
		t.Errorf("without a request, its NetworkConfig stays: %v", err)
	}
}

// TestInBandWithoutNetwork: where the network is not that of Liqo, a ForeignCluster of type InBand gets a condition and nothing else, and can be deleted.
func TestInBandWithoutNetwork(t *testing.T) {
	t.Parallel()
	b := newFCEnv(t, func(o *Options) { o.InternalNetwork = false })
	milan := discoveryv1alpha1.ClusterIdentity{ClusterID: "milan-id", ClusterName: "milan"}
	fc := &discoveryv1alpha1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "milan"},
		Spec: discoveryv1alpha1.ForeignClusterSpec{
			PeeringType: discoveryv1alpha1.InBand, ClusterIdentity: &milan, ForeignAuthURL: "https://192.0.2.1",
			OutgoingPeeringEnabled: discoveryv1alpha1.PeeringYes, IncomingPeeringEnabled: discoveryv1alpha1.PeeringAuto,
		},
	}
	b.Make(fc)
	kubetest.Eventually(t, "it is refused", func() error {
		b.Read(fc)
		for _, condition := range fc.Status.PeeringConditions {
			if condition.Type == discoveryv1alpha1.ProcessForeignClusterStatus && condition.Status == discoveryv1alpha1.StatusError &&
				condition.Reason == discoveryv1alpha1.ReasonInBandNotSupported && strings.Contains(condition.Message, "out-of-band") {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", fc.Status.PeeringConditions)
	})
	if len(fc.Finalizers) > 0 {
		t.Errorf("finalizers %v", fc.Finalizers)
	}
	if err := b.Get(t.Context(), client.ObjectKey{Name: milan.TenantNamespace()}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
		t.Errorf("it has a tenant namespace: %v", err)
	}
	b.Must(b.Delete(t.Context(), fc))
	kubetest.Eventually(t, "it is deleted", func() error {
		if err := b.Get(t.Context(), client.ObjectKeyFromObject(fc), fc); !apierrors.IsNotFound(err) {
			return fmt.Errorf("still there: %w", err)
		}
		return nil
	})
}

// TestDecisionEvent: an administrator who refuses a peer, and others who look later, find the change in an event of the ForeignCluster.
func TestDecisionEvent(t *testing.T) {
	t.Parallel()
	b := newFCEnv(t)
	milan := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: discoveryv1alpha1.ForeignClusterSpec{
		ClusterIdentity:        &discoveryv1alpha1.ClusterIdentity{ClusterID: "milan-id", ClusterName: "milan"},
		OutgoingPeeringEnabled: discoveryv1alpha1.PeeringNo, IncomingPeeringEnabled: discoveryv1alpha1.PeeringManual,
	}}
	b.Make(milan)
	for _, step := range []struct {
		setting discoveryv1alpha1.PeeringEnabled
		state   discoveryv1alpha1.IncomingState
		reason  string
	}{
		{discoveryv1alpha1.PeeringManual, discoveryv1alpha1.IncomingWaiting, ""},
		{discoveryv1alpha1.PeeringYes, discoveryv1alpha1.IncomingAccepted, "PeerAccepted"},
		{discoveryv1alpha1.PeeringNo, discoveryv1alpha1.IncomingRefused, "PeerDenied"},
	} {
		b.Edit(milan, func() { milan.Spec.IncomingPeeringEnabled = step.setting })
		b.Until("the decision is "+string(step.state), func() bool {
			b.Read(milan)
			return milan.Status.Incoming != nil && milan.Status.Incoming.State == step.state
		})
		b.Until("its event is "+step.reason, func() bool {
			var all eventsv1.EventList
			b.Must(b.List(t.Context(), &all))
			return step.reason == "" || slices.ContainsFunc(all.Items, func(event eventsv1.Event) bool {
				return event.Reason == step.reason && event.Regarding.UID == milan.UID
			})
		})
	}
}

// TestAttackRequestName: a request of the peer that has the name of ours is not taken over: it would be ours and his at once, and no one would remove
// its finalizer.
func TestAttackRequestName(t *testing.T) {
	t.Parallel()
	b := newFCEnv(t)
	milan := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: discoveryv1alpha1.ForeignClusterSpec{
		ClusterIdentity:        &discoveryv1alpha1.ClusterIdentity{ClusterID: "milan-id", ClusterName: "milan"},
		OutgoingPeeringEnabled: discoveryv1alpha1.PeeringNo, IncomingPeeringEnabled: discoveryv1alpha1.PeeringYes, ForeignAuthURL: "https://192.0.2.1",
	}}
	b.Make(milan)
	b.Until("the peer has a tenant namespace", func() bool { b.Read(milan); return milan.Status.TenantNamespace.Local != "" })
	theirs := &sharingv1alpha1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: milan.Status.TenantNamespace.Local, Name: "rome", Finalizers: []string{labels.FinalizerGrant},
			Labels: map[string]string{labels.Replicated: "true", labels.Replication: "false"},
		},
		Spec: sharingv1alpha1.ResourceSliceSpec{ConsumerClusterID: "milan-id", ProviderClusterID: "rome-id", NodeName: "liqo-rome"},
	}
	b.Make(theirs)
	before := theirs.DeepCopy()
	outgoing := func() string {
		b.Read(milan)
		for _, one := range milan.Status.PeeringConditions {
			if one.Type == discoveryv1alpha1.OutgoingPeering {
				return one.Message
			}
		}
		return ""
	}
	b.Edit(milan, func() { milan.Spec.OutgoingPeeringEnabled = discoveryv1alpha1.PeeringYes })
	b.Until("the ForeignCluster reports it", func() bool { return strings.Contains(outgoing(), "need different names") })
	if b.Read(theirs); !reflect.DeepEqual(theirs.Labels, before.Labels) || !reflect.DeepEqual(theirs.Spec, before.Spec) {
		t.Errorf("the peer's request was changed: %v, %+v", theirs.Labels, theirs.Spec)
	}
	b.Must(b.Delete(t.Context(), theirs))
	b.Edit(theirs, func() { theirs.Finalizers = nil })
	b.Until("our request is written", func() bool {
		var ours sharingv1alpha1.ResourceSlice
		return b.Get(t.Context(), client.ObjectKeyFromObject(theirs), &ours) == nil &&
			ours.Labels[labels.Replication] == "true" && ours.Spec.ProviderClusterID == "milan-id"
	})
}
