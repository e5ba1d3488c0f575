// SPDX-License-Identifier: Apache-2.0

package network

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"maps"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	network "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/test/env"
)

// claimant writes the network of a peer with the peer's identity and key, as a hostile peer would.
type claimant struct {
	api   client.Client // of the other cluster
	id    string
	key   ed25519.PrivateKey
	first *network.NetworkConfig // as the peer's own controller manager wrote it
}

// claim stops the controller manager of a consumer and takes its place. At the end of the test, it writes its own network again.
func claim(t *testing.T, consumer, provider *env.Cluster) *claimant {
	t.Helper()
	ctx := context.Background()
	const manager = "deployment/liqo-controller-manager"
	replicas := consumer.Kubectl(t, "-n", "liqo", "get", manager, "-o", "jsonpath={.spec.replicas}")
	consumer.Kubectl(t, "-n", "liqo", "scale", manager, "--replicas=0")
	t.Cleanup(func() {
		consumer.Kubectl(t, "-n", "liqo", "scale", manager, "--replicas="+replicas)
		consumer.Kubectl(t, "-n", "liqo", "rollout", "status", manager, "--timeout=120s")
		established(t, consumer, provider)
		established(t, provider, consumer)
	})
	env.Eventually(t, env.Hang, "the controller manager of "+consumer.Name+" is gone", func() (string, bool) {
		left := consumer.Kubectl(t, "-n", "liqo", "get", manager, "-o", "jsonpath={.status.replicas}")
		return left, left == "" || left == "0"
	})

	var identities corev1.SecretList
	local := consumer.Foreign(t, provider).Status.TenantNamespace.Local
	if err := consumer.API.List(ctx, &identities, client.InNamespace(local), client.MatchingLabels{labels.LocalIdentity: "true"}); err != nil ||
		len(identities.Items) != 1 {
		t.Fatalf("%d identities, %v", len(identities.Items), err)
	}
	config := rest.AnonymousClientConfig(provider.Config())
	config.BearerToken = string(identities.Items[0].Data["token"])
	api, err := client.New(config, client.Options{Scheme: provider.API.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	var secret corev1.Secret
	if err := consumer.API.Get(ctx, client.ObjectKey{Namespace: "liqo", Name: "liqo-cluster-key"}, &secret); err != nil ||
		len(secret.Data["key"]) != ed25519.SeedSize {
		t.Fatalf("the cluster key of %s has %d bytes, %v", consumer.Name, len(secret.Data["key"]), err)
	}
	c := &claimant{api: api, id: consumer.ID(t), key: ed25519.NewKeyFromSeed(secret.Data["key"])}

	var all network.NetworkConfigList
	tenant := string(identities.Items[0].Data["namespace"])
	if err := api.List(ctx, &all, client.InNamespace(tenant), client.MatchingLabels{labels.Replicated: "true"}); err != nil || len(all.Items) != 1 {
		t.Fatalf("%s has %d network configurations in namespace %s of %s, %v", consumer.Name, len(all.Items), tenant, provider.Name, err)
	}
	c.first = all.Items[0].DeepCopy()
	c.first.ResourceVersion, c.first.UID, c.first.ManagedFields, c.first.Finalizers, c.first.OwnerReferences = "", "", nil, nil, nil
	c.first.Status = network.NetworkConfigStatus{}
	if value, err := base64.StdEncoding.DecodeString(c.first.Spec.Signatures[0].Value); err != nil ||
		!ed25519.Verify(public(c.key), message(c.id, &c.first.Spec), value) {
		t.Fatalf("%s signs its network in another way than this test, whose claims would be refused for that reason (%v)", consumer.Name, err)
	}
	t.Cleanup(func() { c.withdraw(t) }) // its controller manager writes its own network again, which would be a change while another one is agreed
	return c
}

func public(key ed25519.PrivateKey) ed25519.PublicKey {
	half, _ := key.Public().(ed25519.PublicKey) // always this type
	return half
}

// sign sets another pod network. The version stays: the receiver refuses only those that go back, and must believe the peer's own network afterwards.
func (c *claimant) sign(spec *network.NetworkConfigSpec, pods string) {
	spec.PodCIDR = network.CIDR(pods)
	spec.Signatures = []network.Signature{{
		PublicKey: base64.StdEncoding.EncodeToString(public(c.key)), Value: base64.StdEncoding.EncodeToString(ed25519.Sign(c.key, message(c.id, spec))),
	}}
}

// message is what the sender of a network signs: each field after its length, and the length of each sequence before it.
func message(sender string, spec *network.NetworkConfigSpec) []byte {
	joined := []byte("liqo.io/net/config/v1\n")
	text := func(all ...string) {
		for _, one := range all {
			joined = append(binary.BigEndian.AppendUint32(joined, uint32(len(one))), one...)
		}
	}
	number := func(n int) { text(strconv.Itoa(n)) }
	text(sender, spec.Cluster.ClusterID, spec.Cluster.ClusterName, strconv.FormatInt(spec.Version, 10), string(spec.PodCIDR), string(spec.ExternalCIDR))
	number(len(spec.AdditionalPodCIDRs))
	for _, one := range spec.AdditionalPodCIDRs {
		text(string(one))
	}
	text(spec.EndpointIP, spec.BackendType)
	number(len(spec.BackendConfig))
	for _, name := range slices.Sorted(maps.Keys(spec.BackendConfig)) {
		text(name, spec.BackendConfig[name])
	}
	number(len(spec.Lanes))
	for _, lane := range slices.SortedStableFunc(slices.Values(spec.Lanes), func(a, b network.Lane) int { return cmp.Compare(a.Number, b.Number) }) {
		number(int(lane.Number))
		text(lane.PublicKey)
		number(len(lane.Carriers))
		for _, carrier := range lane.Carriers {
			text(carrier.Type)
			number(int(carrier.Port))
			number(len(carrier.Addresses))
			text(carrier.Addresses...)
			if carrier.Path != "" {
				text(carrier.Path)
			}
		}
	}
	return joined
}
