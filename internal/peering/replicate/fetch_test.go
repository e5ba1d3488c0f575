// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
)

// tell makes what the cluster of a client tells another one of its network.
func (b *bed) tell(at client.Client, name, to string, change ...func(*netv1alpha1.NetworkConfig)) {
	b.t.Helper()
	config := &netv1alpha1.NetworkConfig{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.name, Name: name,
			Labels: map[string]string{
				labels.Replication: "true", labels.RemoteID: to, labels.ClusterID: to, labels.Ownership: labels.OwnershipConfig, "mine": "stays",
			},
			Annotations: map[string]string{"mine": "stays"},
		},
		Spec: netv1alpha1.NetworkConfigSpec{
			Cluster: netv1alpha1.ClusterIdentity{ClusterID: to, ClusterName: "name"},
			PodCIDR: "10.200.0.0/16", ExternalCIDR: "10.70.0.0/16", EndpointIP: "192.0.2.7", BackendType: "wireguard",
			BackendConfig: map[string]string{"publicKey": "key", "port": "5871"},
			Lanes: []netv1alpha1.Lane{
				{Number: 0, PublicKey: "key", Carriers: []netv1alpha1.Carrier{{Type: "UDP", Addresses: []string{"192.0.2.7"}, Port: 5871}}},
				{Number: 1, PublicKey: "another key"},
			},
		},
	}
	for _, change := range change {
		change(config)
	}
	b.must(at.Create(b.t.Context(), config))
}

// config reads one; nil if it is not there.
func (b *bed) config(at client.Client, name string) *netv1alpha1.NetworkConfig {
	b.t.Helper()
	config := &netv1alpha1.NetworkConfig{}
	err := at.Get(b.t.Context(), client.ObjectKey{Namespace: b.name, Name: name}, config)
	if apierrors.IsNotFound(err) {
		return nil
	}
	b.must(err)
	return config
}

func (b *bed) untilConfig(at client.Client, name, what string, is func(*netv1alpha1.NetworkConfig) bool) (found *netv1alpha1.NetworkConfig) {
	b.t.Helper()
	kubetest.Eventually(b.t, what, func() error {
		if found = b.config(at, name); found == nil {
			return errors.New("not there")
		}
		if !is(found) {
			return fmt.Errorf("it is %+v", found)
		}
		return nil
	})
	return found
}

func (b *bed) untilGone(at client.Client, name, what string) {
	b.t.Helper()
	kubetest.Eventually(b.t, what, func() error {
		if found := b.config(at, name); found != nil {
			return fmt.Errorf("it is %+v", found)
		}
		return nil
	})
}

func (b *bed) change(at client.Client, name string, change func(*netv1alpha1.NetworkConfig)) {
	b.t.Helper()
	kubetest.Eventually(b.t, "change "+name, func() error {
		config := b.config(at, name)
		if config == nil {
			return errors.New("not there")
		}
		change(config)
		return at.Update(b.t.Context(), config)
	})
}

// answer is what the receiver's network controllers write on their copy.
func (b *bed) answer(at client.Client, name, network string) {
	b.t.Helper()
	kubetest.Eventually(b.t, "answer "+name, func() error {
		config := b.config(at, name)
		if config == nil {
			return errors.New("not there")
		}
		config.Status = netv1alpha1.NetworkConfigStatus{
			Processed: true, PodCIDRNAT: network, ExternalCIDRNAT: netv1alpha1.NotRemapped, ObservedGeneration: config.Generation,
			Conditions: []metav1.Condition{{
				Type: netv1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Assigned", Message: network,
				LastTransitionTime: metav1.Now().Rfc3339Copy(), ObservedGeneration: config.Generation,
			}},
		}
		return at.Status().Update(b.t.Context(), config, client.FieldOwner(labels.OwnerNetwork))
	})
}

// untilAnswered answers each spec of the copy, as the network controllers do: where both clusters carry, the slower one may bring back the
// spec before the last for a moment.
func (b *bed) untilAnswered(from, to client.Client, name, network string) {
	b.t.Helper()
	kubetest.Eventually(b.t, "the answer "+network, func() error {
		copied := b.config(to, name)
		if copied.Status.ObservedGeneration != copied.Generation || copied.Status.PodCIDRNAT != network {
			b.answer(to, name, network)
		}
		if original := b.config(from, name); !answered(network)(original) {
			return fmt.Errorf("the original is %+v, the copy %+v", original, copied)
		}
		return nil
	})
}

func answered(network string) func(*netv1alpha1.NetworkConfig) bool {
	return func(config *netv1alpha1.NetworkConfig) bool {
		status := config.Status
		return status.Processed && status.PodCIDRNAT == network && status.ExternalCIDRNAT == netv1alpha1.NotRemapped &&
			status.ObservedGeneration == config.Generation && len(status.Conditions) == 1 && status.Conditions[0].Message == network
	}
}

func there(*netv1alpha1.NetworkConfig) bool { return true }

// exchange checks one life of a NetworkConfig that the cluster of from, called origin, wrote for the cluster of to.
func (b *bed) exchange(from, to client.Client, origin, receiver, name string) {
	b.t.Helper()
	b.tell(from, name, receiver)
	copied := b.untilConfig(to, name, "the copy", there)
	want := map[string]string{
		labels.Replication: "false", labels.Replicated: "true", labels.OriginID: origin, labels.RemoteID: receiver, labels.ClusterID: origin,
		labels.Ownership: labels.OwnershipConfig,
	}
	if !maps.Equal(copied.Labels, want) || len(copied.Annotations) > 0 || len(copied.Finalizers) > 0 {
		b.t.Errorf("the copy has labels %v, annotations %v, finalizers %v", copied.Labels, copied.Annotations, copied.Finalizers)
	}
	if len(copied.Spec.Lanes) != 2 || copied.Spec.Lanes[0].Carriers[0].Addresses[0] != "192.0.2.7" || copied.Spec.PodCIDR != "10.200.0.0/16" {
		b.t.Errorf("spec of the copy: %+v", copied.Spec)
	}
	if original := b.config(from, name); len(original.Finalizers) > 0 || original.Status.Processed {
		b.t.Errorf("the original: %+v", original)
	}
	b.untilAnswered(from, to, name, "10.1.0.0/16")

	// Three changes of the spec make the generations differ, if a copy misses one; the answer to the old spec is none to the new.
	for i := range 3 {
		b.change(from, name, func(config *netv1alpha1.NetworkConfig) { config.Spec.EndpointIP = fmt.Sprintf("192.0.2.%d", 10+i) })
	}
	b.untilConfig(to, name, "the changed spec", func(config *netv1alpha1.NetworkConfig) bool { return config.Spec.EndpointIP == "192.0.2.12" })
	if original := b.config(from, name); original.Status.ObservedGeneration == original.Generation {
		b.t.Error("answered before the receiver saw the new spec")
	}
	b.untilAnswered(from, to, name, "10.2.0.0/16")
}

func (b *bed) remove(at client.Client, name string) {
	b.t.Helper()
	b.must(at.Delete(b.t.Context(), &netv1alpha1.NetworkConfig{ObjectMeta: metav1.ObjectMeta{Namespace: b.name, Name: name}}))
}

// TestNetworkConfigsCross: the consumer alone carries both, spec and status.
func TestNetworkConfigsCross(t *testing.T) {
	b := newBed(t)
	wire := newWire(t, b.thereConfig.Host)
	b.start()
	b.connect(b.peer(wire.url()))
	b.ready()
	b.exchange(b.here, b.there, b.origin, b.provider, "rome")
	b.exchange(b.there, b.here, b.provider, b.origin, "milan")

	// A copy that somebody deletes comes back.
	first := b.config(b.here, "milan").UID
	b.remove(b.here, "milan")
	b.untilConfig(b.here, "milan", "the copy again", func(config *netv1alpha1.NetworkConfig) bool { return config.UID != first })
	b.answer(b.here, "milan", "10.3.0.0/16")
	b.untilConfig(b.there, "milan", "the answer again", answered("10.3.0.0/16"))

	// What is deleted while nobody hears of it is noticed afterwards, and not before; what changed, too.
	b.tell(b.there, "milan-too", b.origin)
	b.untilConfig(b.here, "milan-too", "the copy", there)
	wire.cut()
	kubetest.Eventually(b.t, "the link is not ready", b.notReady)
	b.remove(b.there, "milan")
	b.remove(b.here, "rome")
	b.change(b.there, "milan-too", func(config *netv1alpha1.NetworkConfig) { config.Spec.PodCIDR = "10.201.0.0/16" })
	b.probes(3)
	if b.config(b.here, "milan") == nil {
		t.Fatal("the copy was deleted although the provider could not be asked")
	}
	if b.config(b.there, "rome") == nil {
		t.Fatal("this test shows nothing: the link is not cut")
	}
	wire.mend(t)
	b.untilGone(b.here, "milan", "the copy of what the provider deleted")
	b.untilGone(b.there, "rome", "the copy of what we deleted")
	b.untilConfig(b.here, "milan-too", "the change", func(config *netv1alpha1.NetworkConfig) bool { return config.Spec.PodCIDR == "10.201.0.0/16" })

	// Nothing is deleted because a link is closed.
	b.r.Disconnect(b.provider)
	b.remove(b.there, "milan-too")
	b.connect(b.peer("")) // to be sure that time has passed; the copy goes with the link back, not before
	b.untilGone(b.here, "milan-too", "the copy")

	before := b.settled("networkconfigs")
	b.probes(5)
	if after, _ := b.requestsOf("networkconfigs"); after != before || before == 0 {
		t.Errorf("%d writes while idle, after %d", after-before, before)
	}
}

// TestBothCarry: two clusters with a link to each other carry the same objects, and do not write against each other.
func TestBothCarry(t *testing.T) {
	b := newBed(t)
	m := b.mirror()
	b.start()
	m.start()
	b.connect(b.peer(""))
	m.connect(m.peer(""))
	b.ready()
	m.ready()
	before, _ := b.requestsOf("networkconfigs")
	b.exchange(b.here, b.there, b.origin, b.provider, "rome")
	b.exchange(b.there, b.here, b.provider, b.origin, "milan")
	idle := func(what string) (writes int) {
		t.Helper()
		m.probes(5)
		writes = b.settled("networkconfigs")
		b.probes(5)
		m.probes(5)
		if after, _ := b.requestsOf("networkconfigs"); after != writes {
			t.Errorf("%s: %d writes while idle", what, after-writes)
		}
		return writes
	}
	// Of each: one to make it, three changes and two answers by hand, and as many on the other side; twice that, if both were as fast.
	after := idle("after the exchange")
	t.Logf("%d writes for two exchanges, 12 of them by hand", after-before)
	if after-before > 12+2*2*6+10 { // some by hand met a conflict
		t.Errorf("%d writes for two exchanges", after-before)
	}
	for _, one := range []*bed{b, m} {
		one.stop()
		one.start()
		one.connect(one.peer(""))
		one.ready()
	}
	if restarted := idle("after a restart"); restarted != after {
		t.Errorf("%d writes after a restart of both", restarted-after)
	}
	b.remove(b.here, "rome")
	b.untilGone(b.there, "rome", "the copy")
	b.remove(b.there, "milan")
	b.untilGone(b.here, "milan", "the copy")
	idle("after the end")
	for name, at := range map[string]client.Client{"rome": b.there, "milan": b.here} {
		if b.config(at, name) != nil {
			t.Errorf("copy %s came back", name)
		}
	}
}

// TestHostileNetworkConfigs: a provider reaches copies of its own objects, few of them, and nothing else.
func TestHostileNetworkConfigs(t *testing.T) {
	b := newBed(t)
	b.start()
	b.connect(b.peer(""))
	b.ready()
	b.tell(b.here, "rome", b.provider)
	b.untilConfig(b.there, "rome", "the copy", there)

	// An object of ours, and one of nobody, under the name of one of the provider's.
	b.tell(b.here, "ours", "another-peer")
	b.tell(b.here, "nobodys", "x", func(config *netv1alpha1.NetworkConfig) { config.Labels = nil })
	evil := func(config *netv1alpha1.NetworkConfig) { config.Spec.PodCIDR = "0.0.0.0/0" }
	for _, name := range []string{"ours", "nobodys"} {
		b.tell(b.there, name, b.origin, evil)
	}
	// Ours becomes theirs over there.
	b.change(b.there, "rome", func(config *netv1alpha1.NetworkConfig) {
		evil(config)
		config.Labels = map[string]string{labels.Replication: "true", labels.RemoteID: b.origin}
	})
	// Not for us.
	b.tell(b.there, "for-another", "another")
	b.tell(b.there, "a-copy", b.origin, func(config *netv1alpha1.NetworkConfig) { config.Labels[labels.Replicated] = "true" })
	// Too large: the API server's own bounds do not hold for those who run it.
	b.tell(b.there, "large", b.origin, func(config *netv1alpha1.NetworkConfig) {
		config.Spec.BackendConfig = map[string]string{"publicKey": strings.Repeat("x", 1000)}
	})
	for i := range mostFetched + 30 {
		b.tell(b.there, fmt.Sprint("many-", i), b.origin)
	}
	copies := func() (names []string) {
		var all netv1alpha1.NetworkConfigList
		b.must(b.here.List(t.Context(), &all, client.InNamespace(b.name)))
		for i := range all.Items {
			if isCopy(&all.Items[i], b.provider) {
				names = append(names, all.Items[i].Name)
			}
		}
		return names
	}
	kubetest.Eventually(b.t, "as many copies as there may be", func() error {
		if names := copies(); len(names) != mostFetched {
			return fmt.Errorf("%v", names)
		}
		return nil
	})
	b.probes(5)
	names := copies()
	if len(names) != mostFetched {
		t.Errorf("copies %v", names)
	}
	for _, name := range names {
		if !strings.HasPrefix(name, "many-") {
			t.Errorf("copied: %s", name)
		}
	}
	for _, name := range []string{"rome", "ours", "nobodys"} {
		if config := b.config(b.here, name); config == nil || config.Spec.PodCIDR != "10.200.0.0/16" || config.Labels[labels.Replicated] != "" {
			t.Errorf("object of ours: %+v", config)
		}
	}
	if config := b.config(b.there, "rome"); config.Spec.PodCIDR != "0.0.0.0/0" {
		t.Errorf("an object of the provider's was written: %+v", config)
	}
	// One goes, and makes room for the next.
	b.remove(b.there, names[0])
	b.untilGone(b.here, names[0], "the copy")
	kubetest.Eventually(b.t, "the next one", func() error {
		if have := copies(); len(have) != mostFetched {
			return fmt.Errorf("%v", have)
		}
		return nil
	})
}

// TestRestlessNetwork: a provider that changes its mind all the time is followed at a pace.
func TestRestlessNetwork(t *testing.T) {
	b := newBed(t)
	b.start()
	b.connect(b.peer(""))
	b.ready()
	b.tell(b.there, "milan", b.origin)
	b.untilConfig(b.here, "milan", "the copy", there)
	before, _ := b.requestsOf("networkconfigs")
	const changes = 150
	for i := range changes {
		b.change(b.there, "milan", func(config *netv1alpha1.NetworkConfig) { config.Spec.EndpointIP = fmt.Sprint("host-", i) })
	}
	b.untilConfig(b.here, "milan", "the last word", func(config *netv1alpha1.NetworkConfig) bool {
		return config.Spec.EndpointIP == fmt.Sprint("host-", changes-1)
	})
	after, _ := b.requestsOf("networkconfigs")
	if writes := after - before - changes; writes > changes/2 {
		t.Errorf("%d writes here for %d changes of the provider", writes, changes)
	}
}

// TestWithoutNetworkConfigs: a provider that has no network of ours, or does not let us see it, lends its resources all the same.
func TestWithoutNetworkConfigs(t *testing.T) {
	b := newBed(t)
	role := &rbacv1.Role{}
	b.must(b.there.Get(t.Context(), client.ObjectKey{Namespace: b.name, Name: "liqo-peer"}, role))
	all := role.DeepCopy().Rules
	role.Rules = role.Rules[:2]
	b.must(b.there.Update(t.Context(), role))
	b.tell(b.there, "milan", b.origin)
	b.tell(b.here, "rome", b.provider)
	b.start()
	b.connect(b.peer(""))
	b.ready()
	b.slice("one")
	b.arrives(b.there, "one", "the copy of the slice", func(*sharingv1alpha1.ResourceSlice) bool { return true })
	b.grant("one", accepted)
	b.arrives(b.here, "one", "the grant", isAccepted)
	b.probes(3)
	if state := b.r.State(b.provider); !state.Ready || state.Message != "" {
		t.Errorf("state %+v", state)
	}
	if b.config(b.here, "milan") != nil || b.config(b.there, "rome") != nil {
		t.Error("this test shows nothing: a NetworkConfig crossed")
	}
	// The provider's network is switched on.
	role.Rules = all
	b.must(b.there.Update(t.Context(), role))
	b.untilConfig(b.here, "milan", "theirs", there)
	b.untilConfig(b.there, "rome", "ours", there)
	b.delete(b.here, "one")
	b.goes(b.here, "one", "the slice ends")
}

// TestNetworkOff: without a network of ours the kind is not even looked at.
func TestNetworkOff(t *testing.T) {
	b := newBed(t)
	b.start(func(o *Options) { o.Network = false })
	b.tell(b.there, "milan", b.origin)
	b.tell(b.here, "rome", b.provider)
	b.connect(b.peer(""))
	b.ready()
	b.slice("one")
	b.arrives(b.there, "one", "the copy of the slice", func(*sharingv1alpha1.ResourceSlice) bool { return true })
	b.probes(3)
	if b.config(b.here, "milan") != nil || b.config(b.there, "rome") != nil {
		t.Error("a NetworkConfig crossed")
	}
}

// TestIsGone: only that there is no such object is a proof.
func TestIsGone(t *testing.T) {
	b := newBed(t)
	kind := catalog(Options{Network: true})[1]
	object, err := kind.untyped(b.scheme)
	b.must(err)
	name := client.ObjectKey{Namespace: b.name, Name: "nothing"}
	if err := b.there.Get(t.Context(), name, object); !isGone(err) {
		t.Errorf("no such object: %v", err)
	}
	made, err := rest.RESTClientFor(func() *rest.Config {
		config := rest.CopyConfig(b.thereConfig)
		config.GroupVersion, config.NegotiatedSerializer = &netv1alpha1.SchemeGroupVersion, clientgoscheme.Codecs.WithoutConversion()
		return config
	}())
	b.must(err)
	err = made.Get().AbsPath("/apis/not.liqo.io/v1/namespaces/" + b.name + "/unknowns/nothing").Do(t.Context()).Error()
	if !apierrors.IsNotFound(err) || isGone(err) {
		t.Errorf("no such kind: %v", err)
	}
}
