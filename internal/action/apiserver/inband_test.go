// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/action/actiontest"
	"liqo.io/liqo/internal/action/pair"
	"liqo.io/liqo/internal/action/peer"
	"liqo.io/liqo/internal/action/unpeer"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/peering/proxy"
)

// controllers do, in one of two clusters, what Liqo does there until the tunnel is up.
type controllers struct {
	client.WithWatch
	own, other discoveryv1alpha1.ClusterIdentity
}

func (c controllers) run(ctx context.Context) error {
	var fc discoveryv1alpha1.ForeignCluster
	if err := actiontest.Eventually(ctx, func(ctx context.Context) error {
		var all discoveryv1alpha1.ForeignClusterList
		if err := c.List(ctx, &all); err != nil || len(all.Items) != 1 {
			return fmt.Errorf("%d foreign clusters: %w", len(all.Items), err)
		}
		fc = all.Items[0]
		return nil
	}); err != nil {
		return err
	}
	namespace := c.other.TenantNamespace()
	if err := client.IgnoreAlreadyExists(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})); err != nil {
		return err
	}
	if err := actiontest.Eventually(ctx, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(&fc), &fc); err != nil {
			return err
		}
		fc.Status.TenantNamespace.Local = namespace
		return c.Status().Update(ctx, &fc)
	}); err != nil {
		return err
	}
	ours := &netv1alpha1.NetworkConfig{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: c.own.NetworkConfigName(),
			Labels: map[string]string{labels.Replication: "true", labels.RemoteID: c.other.ClusterID, labels.ClusterID: c.other.ClusterID},
		},
		Spec: netv1alpha1.NetworkConfigSpec{
			Cluster: netv1alpha1.ClusterIdentity{ClusterID: c.other.ClusterID, ClusterName: c.other.ClusterName}, PodCIDR: "10.200.0.0/16", ExternalCIDR: "10.70.0.0/16",
			BackendType: "wireguard", BackendConfig: map[string]string{"publicKey": "key"},
		},
	}
	if err := c.Create(ctx, ours); err != nil {
		return err
	}
	if err := actiontest.Eventually(ctx, func(ctx context.Context) error { // answer the copy of the other cluster's
		var theirs netv1alpha1.NetworkConfig
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: c.other.NetworkConfigName()}, &theirs); err != nil {
			return err
		}
		theirs.Status.Processed, theirs.Status.PodCIDRNAT, theirs.Status.ExternalCIDRNAT, theirs.Status.ObservedGeneration = true, "None", "None", theirs.Generation
		return c.Status().Update(ctx, &theirs)
	}); err != nil {
		return err
	}
	if err := actiontest.Eventually(ctx, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(ours), ours); err != nil || !ours.Status.Processed {
			return fmt.Errorf("our network is not answered: %w", err)
		}
		return nil
	}); err != nil {
		return err
	}
	mapping := &netv1alpha1.IPMapping{
		ObjectMeta: metav1.ObjectMeta{Name: proxy.Service + "-" + c.other.UniqueName(), Labels: map[string]string{labels.ClusterID: c.other.ClusterID}},
		Spec:       netv1alpha1.IPMappingSpec{Address: "10.80.0.9", ClusterIDs: []string{c.other.ClusterID}},
	}
	if err := c.Create(ctx, mapping); err != nil {
		return err
	}
	mapping.Status.PeerAddresses = map[string]string{c.other.ClusterID: "10.70.0.33", "another": "10.71.0.33"}
	if err := c.Status().Update(ctx, mapping); err != nil {
		return err
	}
	conditions := []discoveryv1alpha1.PeeringCondition{actiontest.Condition(discoveryv1alpha1.NetworkStatus, discoveryv1alpha1.StatusEstablished, "")}
	if fc.Spec.OutgoingPeeringEnabled == discoveryv1alpha1.PeeringYes {
		conditions = append(
			conditions, actiontest.Condition(discoveryv1alpha1.AuthenticationStatus, discoveryv1alpha1.StatusEstablished, ""),
			actiontest.Condition(discoveryv1alpha1.OutgoingPeering, discoveryv1alpha1.StatusEstablished, ""),
		)
	}
	if err := actiontest.SetStatus(
		ctx, c, fc.Name, func(fc *discoveryv1alpha1.ForeignCluster) bool { return fc.Spec.ForeignProxyURL != "" }, conditions...,
	); err != nil {
		return err
	}
	if fc.Spec.OutgoingPeeringEnabled != discoveryv1alpha1.PeeringYes {
		return nil
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: c.other.NodeName(), Labels: map[string]string{labels.Type: labels.TypeVirtualNode, labels.RemoteClusterID: c.other.ClusterID},
	}}
	if err := c.Create(ctx, node); err != nil {
		return err
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return c.Status().Update(ctx, node)
}

// TestPeerInBand: liqoctl pins the keys, carries the networks, writes the addresses of the proxies, and changes nothing when it is repeated.
func TestPeerInBand(t *testing.T) {
	here, there := kubetest.Pair(t)
	rome, milan := discoveryv1alpha1.ClusterIdentity{ClusterID: actiontest.LocalID, ClusterName: "rome"},
		discoveryv1alpha1.ClusterIdentity{ClusterID: actiontest.RemoteID, ClusterName: "milan"}
	romeKeys, milanKeys := clusterkey.Keys{}, clusterkey.Keys{}
	local, remote := ready(t, here, rome, &romeKeys), ready(t, there, milan, &milanKeys)
	o := peer.InBandOptions{
		Timeout: time.Minute, Local: pair.Access{Client: local, Namespace: actiontest.Namespace},
		Remote: pair.Access{Client: remote, Namespace: actiontest.Namespace},
	}
	end := unpeer.InBandOptions{Timeout: o.Timeout, Local: o.Local, Remote: o.Remote}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	worked := make(chan error, 2)
	go func() { worked <- controllers{local, rome, milan}.run(ctx) }()
	go func() { worked <- controllers{remote, milan, rome}.run(ctx) }()
	lines := &actiontest.Recorder{}
	err := peer.InBand(ctx, o, lines)
	if err != nil {
		cancel()
	}
	if err := errors.Join(err, <-worked, <-worked); err != nil {
		t.Fatalf("%v\n%s", err, lines.Text())
	}
	for _, want := range []string{"(local) Network established", "(local) Peering successfully established"} {
		if !strings.Contains(lines.Text(), want) {
			t.Errorf("%q is not in the output:\n%s", want, lines.Text())
		}
	}
	for _, at := range []struct {
		c        client.Client
		name     string
		other    *clusterkey.Keys
		outgoing discoveryv1alpha1.PeeringEnabled
	}{{local, "milan", &milanKeys, discoveryv1alpha1.PeeringYes}, {remote, "rome", &romeKeys, discoveryv1alpha1.PeeringNo}} {
		var fc discoveryv1alpha1.ForeignCluster
		if err := at.c.Get(ctx, client.ObjectKey{Name: at.name}, &fc); err != nil {
			t.Fatal(err)
		}
		if s := fc.Spec; s.PeeringType != discoveryv1alpha1.InBand || s.ClusterKey != at.other.Fingerprint() ||
			s.OutgoingPeeringEnabled != at.outgoing || s.ForeignAuthURL != discoveryv1alpha1.AuthURLInside ||
			!strings.HasPrefix(s.ForeignProxyURL, "http://") || !strings.HasSuffix(s.ForeignProxyURL, "@10.70.0.33:8118") {
			t.Errorf("%s: %+v", at.name, s)
		}
		var all corev1.SecretList
		if err := at.c.List(ctx, &all, client.InNamespace(actiontest.Namespace)); err != nil ||
			slices.ContainsFunc(all.Items, func(one corev1.Secret) bool { return strings.HasPrefix(one.Name, "remote-token-") }) {
			t.Errorf("%s: there is a token, or %v", at.name, err)
		}
	}
	before := actiontest.Inventory(t, local) + actiontest.Inventory(t, remote)
	if err := peer.InBand(ctx, o, &actiontest.Recorder{}); err != nil {
		t.Fatal(err)
	}
	if after := actiontest.Inventory(t, local) + actiontest.Inventory(t, remote); after != before {
		t.Errorf("the second command changed something:\n%s\n%s", before, after)
	}

	// The end: the directions first, in both clusters, then the objects.
	ended := make(chan error, 2)
	for name, c := range map[string]client.WithWatch{"milan": local, "rome": remote} {
		go func() {
			ended <- actiontest.SetStatus(
				ctx, c, name, actiontest.Wants(discoveryv1alpha1.PeeringNo),
				actiontest.Condition(discoveryv1alpha1.OutgoingPeering, discoveryv1alpha1.StatusNone, ""),
			)
		}()
	}
	lines = &actiontest.Recorder{}
	if err := errors.Join(unpeer.InBand(ctx, end, lines), <-ended, <-ended); err != nil {
		t.Fatalf("%v\n%s", err, lines.Text())
	}
	for name, c := range map[string]client.Client{"milan": local, "rome": remote} {
		if err := c.Get(ctx, client.ObjectKey{Name: name}, &discoveryv1alpha1.ForeignCluster{}); !apierrors.IsNotFound(err) {
			t.Errorf("ForeignCluster %s: %v", name, err)
		}
	}
	if err := unpeer.InBand(ctx, end, &actiontest.Recorder{}); err == nil || !strings.Contains(err.Error(), "not peered") {
		t.Errorf("once more: %v", err)
	}
}

// ready is a cluster in which Liqo is installed, with keys.
func ready(t *testing.T, config *rest.Config, identity discoveryv1alpha1.ClusterIdentity, keys *clusterkey.Keys) client.WithWatch {
	t.Helper()
	if _, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: []string{"../../../deployments/liqo/crds"}, ErrorIfPathMissing: true}); err != nil {
		t.Fatal(err)
	}
	c := actiontest.Connect(t, config)
	var err error
	if *keys, err = clusterkey.Generate(); err != nil {
		t.Fatal(err)
	}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: actiontest.Namespace}},
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: actiontest.Namespace, Name: "liqo-clusterid-configmap", Labels: map[string]string{labels.AppName: "clusterid-configmap"},
			},
			Data: map[string]string{"CLUSTER_ID": identity.ClusterID, "CLUSTER_NAME": identity.ClusterName},
		},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: actiontest.Namespace, Name: clusterkey.Secret}, Data: keys.Data()},
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: actiontest.Namespace, Name: proxy.KeySecret},
			Data:       map[string][]byte{proxy.KeyName: []byte(strings.Repeat("k", 32))},
		},
	} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	return c
}
