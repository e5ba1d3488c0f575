// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/action/actiontest"
	"liqo.io/liqo/internal/action/generate"
	"liqo.io/liqo/internal/action/pair"
	"liqo.io/liqo/internal/action/peer"
	"liqo.io/liqo/internal/action/tokens"
	"liqo.io/liqo/internal/action/unpeer"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/network/signature"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/invitation"
	"liqo.io/liqo/internal/peering/proxy"
)

// host does, in a provider, what Liqo does for an invitation. It checks what the guest writes as the network controllers do.
func host(ctx context.Context, c client.WithWatch, own discoveryv1alpha1.ClusterIdentity, carriers []netv1alpha1.Carrier) error {
	var fc discoveryv1alpha1.ForeignCluster
	if err := actiontest.Eventually(ctx, func(ctx context.Context) error {
		var all discoveryv1alpha1.ForeignClusterList
		if err := c.List(ctx, &all, client.HasLabels{labels.Invitation}); err != nil || len(all.Items) != 1 {
			return fmt.Errorf("%d invitations: %w", len(all.Items), err)
		}
		fc = all.Items[0]
		return nil
	}); err != nil {
		return err
	}
	guest := *fc.Spec.ClusterIdentity
	namespace := guest.TenantNamespace()
	ours := &netv1alpha1.NetworkConfig{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: own.NetworkConfigName(),
			Labels: map[string]string{labels.Replication: "true", labels.RemoteID: guest.ClusterID, labels.ClusterID: guest.ClusterID},
		},
		Spec: netv1alpha1.NetworkConfigSpec{
			Cluster: netv1alpha1.ClusterIdentity{ClusterID: guest.ClusterID, ClusterName: guest.ClusterName}, PodCIDR: "10.200.0.0/16", ExternalCIDR: "10.70.0.0/16",
			BackendType: "wireguard", BackendConfig: map[string]string{"publicKey": "key"}, Signatures: []netv1alpha1.Signature{{PublicKey: "key", Value: "value"}},
			Lanes: []netv1alpha1.Lane{{Number: 0, PublicKey: strings.Repeat("A", 43) + "=", Carriers: carriers}},
		},
	}
	fc.Status.TenantNamespace.Local = namespace
	if err := errors.Join(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}), c.Create(ctx, ours), c.Status().
		Update(ctx, &fc)); err != nil || len(carriers) == 0 {
		return err
	}
	if err := actiontest.Eventually(ctx, func(ctx context.Context) error {
		var theirs netv1alpha1.NetworkConfig
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: guest.NetworkConfigName()}, &theirs); err != nil {
			return err
		}
		if err := signature.CheckConfig(fc.Spec.ClusterKey, guest.ClusterID, &theirs.Spec); err != nil ||
			theirs.Labels[labels.Replicated] != "true" || theirs.Spec.Cluster.ClusterID != own.ClusterID {
			return fmt.Errorf("the network of the guest is not believed: %w", err)
		}
		theirs.Status.Processed, theirs.Status.PodCIDRNAT, theirs.Status.ExternalCIDRNAT, theirs.Status.ObservedGeneration = true, "172.30.0.4/30", "None",
			theirs.Generation
		return c.Status().Update(ctx, &theirs)
	}); err != nil {
		return err
	}
	if err := actiontest.Eventually(ctx, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(ours), ours); err != nil {
			return err
		}
		if !ours.Status.Processed {
			return errors.New("our network is not answered")
		}
		return signature.CheckAnswer(fc.Spec.ClusterKey, signature.Exchange{
			Asker: own.ClusterID, Answerer: guest.ClusterID, Config: &ours.Spec, Answer: &ours.Status,
		})
	}); err != nil {
		return err
	}
	mapping := &netv1alpha1.IPMapping{
		ObjectMeta: metav1.ObjectMeta{Name: proxy.Service + "-" + guest.UniqueName(), Labels: map[string]string{labels.ClusterID: guest.ClusterID}},
		Spec:       netv1alpha1.IPMappingSpec{Address: "10.80.0.9", ClusterIDs: []string{guest.ClusterID}},
	}
	if err := c.Create(ctx, mapping); err != nil {
		return err
	}
	mapping.Status.PeerAddresses = map[string]string{guest.ClusterID: "10.70.0.33"}
	return c.Status().Update(ctx, mapping)
}

// TestInvite: the provider prints a command with a way that leads to its proxy only, and what it needs for that is in its cluster; the consumer stores what
// the command carries, and waits.
func TestInvite(t *testing.T) {
	here, there := kubetest.Pair(t)
	rome, milan := discoveryv1alpha1.ClusterIdentity{ClusterID: actiontest.LocalID, ClusterName: "rome"},
		discoveryv1alpha1.ClusterIdentity{ClusterID: actiontest.RemoteID, ClusterName: "milan"}
	romeKeys, milanKeys := clusterkey.Keys{}, clusterkey.Keys{}
	consumer, provider := ready(t, here, rome, &romeKeys), ready(t, there, milan, &milanKeys)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	worked := make(chan error, 1)

	// A gateway that cannot be reached: nothing is left.
	go func() { worked <- host(ctx, provider, milan, nil) }()
	_, err := generate.Invite(ctx, provider, actiontest.Namespace, tokens.Options{For: "rome"}, &actiontest.Recorder{})
	if failed := <-worked; failed != nil || err == nil || !strings.Contains(err.Error(), "over UDP") {
		t.Fatalf("without an address: %v, %v", err, failed)
	}
	var all discoveryv1alpha1.ForeignClusterList
	if err := provider.List(ctx, &all); err != nil || len(all.Items) > 0 {
		t.Fatalf("left over: %+v, %v", all.Items, err)
	}

	go func() {
		worked <- host(ctx, provider, milan, []netv1alpha1.Carrier{
			{Type: netv1alpha1.CarrierTLS, Addresses: []string{"192.0.2.1"}, Port: 443},
			{Type: netv1alpha1.CarrierUDP, Addresses: []string{"192.0.2.1", "gw.example.org"}, Port: 5871},
		})
	}()
	command, err := generate.Invite(ctx, provider, actiontest.Namespace, tokens.Options{For: "rome", Expires: time.Hour}, &actiontest.Recorder{})
	if err := errors.Join(err, <-worked); err != nil {
		t.Fatal(err)
	}
	way, err := invitation.Parse(command.Invitation.String())
	if err != nil || way.Address.String() != "172.30.0.5" || way.Proxy.String() != "10.70.0.33:8118" ||
		strings.Join(way.Endpoints, " ") != "192.0.2.1:5871 gw.example.org:5871" {
		t.Errorf("the way is %+v, %v", way, err)
	}
	if want, err := proxy.Pass([]byte(strings.Repeat("k", 32)), way.User); err != nil || way.Pass != want {
		t.Errorf("the pass is not that of the guest, %v", err)
	}
	token := auth.ParseToken(command.Token)
	if token.Fingerprint != milanKeys.Fingerprint() || strings.Join(command.Args()[:5], " ") != "peer in-band milan --cluster-id "+actiontest.RemoteID {
		t.Errorf("the command is %v", command.Args()[:5])
	}
	if err := provider.List(ctx, &all); err != nil || len(all.Items) != 1 {
		t.Fatalf("%d ForeignClusters, %v", len(all.Items), err)
	}
	if fc := all.Items[0]; fc.Name != command.Name || fc.Labels[labels.Invitation] != auth.TokenID(token.Secret) ||
		fc.Annotations[labels.InvitationExpires] != command.Expires.Format(time.RFC3339) ||
		fc.Spec.IncomingPeeringEnabled != discoveryv1alpha1.PeeringManual ||
		fc.Spec.ClusterKey == milanKeys.Fingerprint() || time.Until(command.Expires) > time.Hour {
		t.Errorf("the invitation is %+v, until %s", fc, command.Expires)
	}

	o := peer.Options{Name: "milan", Namespace: actiontest.Namespace, Timeout: time.Minute, ClusterID: actiontest.RemoteID, Token: command.Token}
	// A command that is interrupted before the ForeignCluster exists leaves no token.
	interrupted, interrupt := context.WithCancel(ctx)
	err = peer.Invited(interrupted, interruptedAfterApply(consumer, interrupt), o, command.Invitation.String(), &actiontest.Recorder{})
	left := consumer.Get(ctx, client.ObjectKey{Namespace: actiontest.Namespace, Name: "remote-token-" + actiontest.RemoteID}, &corev1.Secret{})
	if !errors.Is(err, context.Canceled) || !apierrors.IsNotFound(left) {
		t.Fatalf("interrupted: %v; the Secret with the token: %v", err, left)
	}

	done := make(chan error, 1)
	go func() {
		conditions := []discoveryv1alpha1.PeeringCondition{
			actiontest.Condition(discoveryv1alpha1.NetworkStatus, discoveryv1alpha1.StatusEstablished, ""),
			actiontest.Condition(discoveryv1alpha1.AuthenticationStatus, discoveryv1alpha1.StatusEstablished, ""),
			actiontest.Condition(discoveryv1alpha1.OutgoingPeering, discoveryv1alpha1.StatusEstablished, ""),
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: milan.NodeName(), Labels: map[string]string{labels.Type: labels.TypeVirtualNode, labels.RemoteClusterID: milan.ClusterID},
		}}
		err := errors.Join(actiontest.SetStatus(ctx, consumer, "milan", actiontest.Wants(discoveryv1alpha1.PeeringYes), conditions...), consumer.Create(ctx, node))
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		done <- errors.Join(err, consumer.Status().Update(ctx, node))
	}()
	lines := &actiontest.Recorder{}
	if err := errors.Join(peer.Invited(ctx, consumer, o, command.Invitation.String(), lines), <-done); err != nil {
		t.Fatalf("%v\n%s", err, lines.Text())
	}
	var fc discoveryv1alpha1.ForeignCluster
	var secret corev1.Secret
	if err := errors.Join(
		consumer.Get(ctx, client.ObjectKey{Name: "milan"}, &fc),
		consumer.Get(ctx, client.ObjectKey{Namespace: actiontest.Namespace, Name: "remote-token-" + actiontest.RemoteID}, &secret),
	); err != nil {
		t.Fatal(err)
	}
	if s := fc.Spec; s.PeeringType != discoveryv1alpha1.InBand || s.ClusterKey != milanKeys.Fingerprint() ||
		s.ForeignAuthURL != discoveryv1alpha1.AuthURLInside || s.ForeignProxyURL != "" || fc.Annotations[labels.Invited] != "true" {
		t.Errorf("the provider is %+v", fc)
	}
	if string(secret.Data[tokens.Key]) != command.Token || string(secret.Data[invitation.SecretKey]) != command.Invitation.String() {
		t.Error("token or invitation is not stored")
	}
	if alone, err := unpeer.Alone(ctx, unpeer.InBandOptions{
		Name: "milan", Local: pair.Access{Client: consumer, Namespace: actiontest.Namespace},
	}); !alone || err != nil {
		t.Errorf("its end needs the other cluster: %v", err)
	}
	refusedInvitations(ctx, t, consumer, o, command)
}

// refusedInvitations: what is not an invitation for this cluster changes nothing.
func refusedInvitations(ctx context.Context, t *testing.T, c client.WithWatch, o peer.Options, command *generate.InviteCommand) {
	t.Helper()
	other, err := clusterkey.Generate()
	if err != nil {
		t.Fatal(err)
	}
	text := command.Invitation.String()
	for name, row := range map[string]struct {
		change func(*peer.Options)
		text   string
		want   string
	}{
		"not one":      {func(*peer.Options) {}, "hello", "not an invitation"},
		"a half":       {func(*peer.Options) {}, text[:len(text)/2], "not complete"},
		"no token":     {func(o *peer.Options) { o.Token = "" }, text, "token"},
		"its own":      {func(o *peer.Options) { o.ClusterID = actiontest.LocalID }, text, "of this cluster itself"},
		"a name":       {func(o *peer.Options) { o.ClusterID, o.Name = "another-id", "Mi lan" }, text, "Mi lan"},
		"a taken name": {func(o *peer.Options) { o.ClusterID = "another-id" }, text, "belongs to another cluster"},
		"another key":  {func(o *peer.Options) { o.Token = "secret." + other.Fingerprint() }, text, "known here by another key"},
	} {
		changed := o
		row.change(&changed)
		if err := peer.Invited(ctx, c, changed, row.text, &actiontest.Recorder{}); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
	if err := c.Get(ctx, client.ObjectKey{Namespace: actiontest.Namespace, Name: "remote-token-another-id"}, &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("a refused invitation is stored: %v", err)
	}
}
