// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

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
	"liqo.io/liqo/internal/peering/replicate/kinds"
)

// publish creates a NetworkConfig of the cluster of at for another one.
func (b *env) publish(at client.Client, name, to string, change ...func(*netv1alpha1.NetworkConfig)) {
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

// config reads a NetworkConfig; nil if there is none.
func (b *env) config(at client.Client, name string) *netv1alpha1.NetworkConfig {
	b.t.Helper()
	config := &netv1alpha1.NetworkConfig{}
	err := at.Get(b.t.Context(), client.ObjectKey{Namespace: b.name, Name: name}, config)
	if apierrors.IsNotFound(err) {
		return nil
	}
	b.must(err)
	return config
}

func (b *env) untilConfig(at client.Client, name, what string, is func(*netv1alpha1.NetworkConfig) bool) (found *netv1alpha1.NetworkConfig) {
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

func (b *env) untilGone(at client.Client, name, what string) {
	b.t.Helper()
	kubetest.Eventually(b.t, what, func() error {
		if found := b.config(at, name); found != nil {
			return fmt.Errorf("it is %+v", found)
		}
		return nil
	})
}

func (b *env) change(at client.Client, name string, change func(*netv1alpha1.NetworkConfig)) {
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

// answer writes the status of a copy as the receiver's network controllers do.
func (b *env) answer(at client.Client, name, network string) {
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

// untilAnswered answers each spec of the copy, as the network controllers do: if both clusters replicate, the slower one
// may write the previous spec again for a moment.
func (b *env) untilAnswered(from, to client.Client, name, network string) {
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

// exchange checks a NetworkConfig that the cluster of from, called origin, writes for the cluster of to, until a changed
// spec is answered.
func (b *env) exchange(from, to client.Client, origin, receiver, name string) {
	b.t.Helper()
	b.publish(from, name, receiver)
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

	// With three changes the generations differ if a copy misses one. The answer to the old spec is no answer to the new one.
	for i := range 3 {
		b.change(from, name, func(config *netv1alpha1.NetworkConfig) { config.Spec.EndpointIP = fmt.Sprintf("192.0.2.%d", 10+i) })
	}
	b.untilConfig(to, name, "the changed spec", func(config *netv1alpha1.NetworkConfig) bool { return config.Spec.EndpointIP == "192.0.2.12" })
	if original := b.config(from, name); original.Status.ObservedGeneration == original.Generation {
		b.t.Error("answered before the receiver saw the new spec")
	}
	b.untilAnswered(from, to, name, "10.2.0.0/16")
}

func (b *env) remove(at client.Client, name string) {
	b.t.Helper()
	b.must(at.Delete(b.t.Context(), &netv1alpha1.NetworkConfig{ObjectMeta: metav1.ObjectMeta{Namespace: b.name, Name: name}}))
}

// TestNetworkConfigsAreExchanged: the consumer replicates those of both clusters, spec and status.
func TestNetworkConfigsAreExchanged(t *testing.T) {
	b := newEnv(t)
	proxy, address := b.proxy(t)
	b.start()
	b.connect(b.peer(address))
	b.ready()
	b.exchange(b.here, b.there, b.origin, b.provider, "rome")
	b.exchange(b.there, b.here, b.provider, b.origin, "milan")

	// A copy that a user deletes is created again.
	first := b.config(b.here, "milan").UID
	b.remove(b.here, "milan")
	b.untilConfig(b.here, "milan", "the copy again", func(config *netv1alpha1.NetworkConfig) bool { return config.UID != first })
	b.answer(b.here, "milan", "10.3.0.0/16")
	b.untilConfig(b.there, "milan", "the answer again", answered("10.3.0.0/16"))

	// Deletions and changes while the connection is cut are replicated when it is back, and not before.
	b.publish(b.there, "milan-2", b.origin)
	b.untilConfig(b.here, "milan-2", "the copy", there)
	proxy.Set(kubetest.Refuse)
	kubetest.Eventually(b.t, "the connection is not ready", b.notReady)
	b.remove(b.there, "milan")
	b.remove(b.here, "rome")
	b.change(b.there, "milan-2", func(config *netv1alpha1.NetworkConfig) { config.Spec.PodCIDR = "10.201.0.0/16" })
	b.probes(3)
	if b.config(b.here, "milan") == nil {
		t.Fatal("the copy was deleted although the provider did not answer")
	}
	if b.config(b.there, "rome") == nil {
		t.Fatal("this test shows nothing: the connection is not cut")
	}
	proxy.Set(kubetest.Pass)
	b.untilGone(b.here, "milan", "the copy of what the provider deleted")
	b.untilGone(b.there, "rome", "the copy of what we deleted")
	b.untilConfig(b.here, "milan-2", "the change", func(config *netv1alpha1.NetworkConfig) bool { return config.Spec.PodCIDR == "10.201.0.0/16" })

	// Closing the connection deletes nothing.
	b.r.Disconnect(b.provider)
	b.remove(b.there, "milan-2")
	if b.config(b.here, "milan-2") == nil {
		t.Error("the copy was deleted without a connection")
	}
	b.connect(b.peer(""))
	b.untilGone(b.here, "milan-2", "the copy")

	before := b.settled("networkconfigs")
	b.probes(5)
	if after, _ := b.requestsOf("networkconfigs"); after != before || before == 0 {
		t.Errorf("%d writes while idle, after %d", after-before, before)
	}
}

// TestBothReplicate: two clusters that are connected to each other replicate the same objects without conflicting writes.
func TestBothReplicate(t *testing.T) {
	b := newEnv(t)
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
	// The test writes 6 times per object: creation, three changes, two answers. Each cluster replicates at most all of them.
	after := idle("after the exchange")
	t.Logf("%d writes for two exchanges, 12 of them by the test", after-before)
	if after-before > 12+2*2*6+10 { // some writes of the test met a conflict
		t.Errorf("%d writes for two exchanges", after-before)
	}
	for _, one := range []*env{b, m} {
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

// TestHostileNetworkConfigs: a provider can change copies of its own objects, a bounded number of them, and nothing else.
func TestHostileNetworkConfigs(t *testing.T) {
	b := newEnv(t)
	b.start()
	b.connect(b.peer(""))
	b.ready()
	b.publish(b.here, "rome", b.provider)
	b.untilConfig(b.there, "rome", "the copy", there)

	// One of our objects and an unmanaged one, each with the name of an object of the provider.
	b.publish(b.here, "ours", "another-peer")
	b.publish(b.here, "unmanaged", "x", func(config *netv1alpha1.NetworkConfig) { config.Labels = nil })
	evil := func(config *netv1alpha1.NetworkConfig) { config.Spec.PodCIDR = "0.0.0.0/0" }
	for _, name := range []string{"ours", "unmanaged"} {
		b.publish(b.there, name, b.origin, evil)
	}
	// The provider relabels our copy as its own object.
	b.change(b.there, "rome", func(config *netv1alpha1.NetworkConfig) {
		evil(config)
		config.Labels = map[string]string{labels.Replication: "true", labels.RemoteID: b.origin}
	})
	// Not for us.
	b.publish(b.there, "for-another", "another")
	b.publish(b.there, "a-copy", b.origin, func(config *netv1alpha1.NetworkConfig) { config.Labels[labels.Replicated] = "true" })
	// Too large: a provider can remove the bounds of its own API server.
	b.publish(b.there, "large", b.origin, func(config *netv1alpha1.NetworkConfig) {
		config.Spec.BackendConfig = map[string]string{"publicKey": strings.Repeat("x", 1000)}
	})
	for i := range maxFetched + 30 {
		b.publish(b.there, fmt.Sprint("many-", i), b.origin)
	}
	copies := func() (names []string) {
		var all netv1alpha1.NetworkConfigList
		b.must(b.here.List(t.Context(), &all, client.InNamespace(b.name)))
		for i := range all.Items {
			if kinds.IsCopy(&all.Items[i], b.provider) {
				names = append(names, all.Items[i].Name)
			}
		}
		return names
	}
	kubetest.Eventually(b.t, "the maximum number of copies", func() error {
		if names := copies(); len(names) != maxFetched {
			return fmt.Errorf("%v", names)
		}
		return nil
	})
	b.probes(5)
	names := copies()
	if len(names) != maxFetched {
		t.Errorf("copies %v", names)
	}
	for _, name := range names {
		if !strings.HasPrefix(name, "many-") {
			t.Errorf("copied: %s", name)
		}
	}
	for _, name := range []string{"rome", "ours", "unmanaged"} {
		if config := b.config(b.here, name); config == nil || config.Spec.PodCIDR != "10.200.0.0/16" || config.Labels[labels.Replicated] != "" {
			t.Errorf("object of ours: %+v", config)
		}
	}
	if config := b.config(b.there, "rome"); config.Spec.PodCIDR != "0.0.0.0/0" {
		t.Errorf("an object of the provider's was written: %+v", config)
	}
	// When one is deleted, another one is copied.
	b.remove(b.there, names[0])
	b.untilGone(b.here, names[0], "the copy")
	kubetest.Eventually(b.t, "the next one", func() error {
		if have := copies(); len(have) != maxFetched {
			return fmt.Errorf("%v", have)
		}
		return nil
	})
}

// TestRestlessNetwork: a provider that changes its network all the time causes no more writes here than the limiter
// admits, and its last spec arrives.
func TestRestlessNetwork(t *testing.T) {
	b := newEnv(t)
	var advance func(time.Duration)
	b.start(func(o *Options) { advance = stopClock(o) })
	b.connect(b.peer(""))
	b.ready()
	b.publish(b.there, "milan", b.origin)
	b.untilConfig(b.here, "milan", "the copy", there)
	before := b.settled("networkconfigs")
	const changes = 3 * writeBurst
	for i := range changes {
		b.change(b.there, "milan", func(config *netv1alpha1.NetworkConfig) { config.Spec.EndpointIP = fmt.Sprint("host-", i) })
	}
	if writes := b.settled("networkconfigs") - before - changes; writes > writeBurst {
		t.Errorf("%d writes here for %d changes of the provider, want %d at most", writes, changes, writeBurst)
	}
	advance(writeInterval)
	b.untilConfig(b.here, "milan", "the last spec", func(config *netv1alpha1.NetworkConfig) bool {
		return config.Spec.EndpointIP == fmt.Sprint("host-", changes-1)
	})
}

// TestWithoutNetworkConfigs: without NetworkConfigs in the provider, or without the right to read them, slices are replicated.
func TestWithoutNetworkConfigs(t *testing.T) {
	b := newEnv(t)
	role := &rbacv1.Role{}
	b.must(b.there.Get(t.Context(), client.ObjectKey{Namespace: b.name, Name: "liqo-peer"}, role))
	all := role.DeepCopy().Rules
	role.Rules = role.Rules[:2]
	b.must(b.there.Update(t.Context(), role))
	b.publish(b.there, "milan", b.origin)
	b.publish(b.here, "rome", b.provider)
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
		t.Error("this test shows nothing: a NetworkConfig was copied")
	}
	// The provider grants the right.
	role.Rules = all
	b.must(b.there.Update(t.Context(), role))
	b.untilConfig(b.here, "milan", "theirs", there)
	b.untilConfig(b.there, "rome", "ours", there)
	b.delete(b.here, "one")
	b.goes(b.here, "one", "the slice ends")
}

// TestNetworkOff: without the network option NetworkConfigs are not copied.
func TestNetworkOff(t *testing.T) {
	b := newEnv(t)
	b.start(func(o *Options) { o.Network = false })
	b.publish(b.there, "milan", b.origin)
	b.publish(b.here, "rome", b.provider)
	b.connect(b.peer(""))
	b.ready()
	b.slice("one")
	b.arrives(b.there, "one", "the copy of the slice", func(*sharingv1alpha1.ResourceSlice) bool { return true })
	b.probes(3)
	if b.config(b.here, "milan") != nil || b.config(b.there, "rome") != nil {
		t.Error("a NetworkConfig was copied")
	}
}

// TestIsGone: the 404 of an object proves that it is gone, the 404 of a kind does not.
func TestIsGone(t *testing.T) {
	b := newEnv(t)
	kind := kinds.All(true)[1]
	object, err := kind.Untyped(b.scheme)
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
