// SPDX-License-Identifier: Apache-2.0

package action

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
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/peering/proxy"
)

// sides are two clusters that may peer.
func sides() (local, remote *side) {
	local = &side{prefix: "(local) ", name: "milan", facts: sideFacts{identity: discoveryv1alpha1.ClusterIdentity{ClusterID: localID, ClusterName: "rome"}, proxy: true}}
	remote = &side{prefix: "(remote) ", name: "rome", facts: sideFacts{identity: discoveryv1alpha1.ClusterIdentity{ClusterID: remoteID, ClusterName: "milan"}, proxy: true}}
	local.other, remote.other = remote, local
	local.outgoing = true
	return local, remote
}

func TestJudgeInBand(t *testing.T) {
	foreign := func(name, id string, kind discoveryv1alpha1.PeeringType) *discoveryv1alpha1.ForeignCluster {
		fc := &discoveryv1alpha1.ForeignCluster{}
		fc.Name, fc.Spec.PeeringType, fc.Spec.ClusterIdentity = name, kind, &discoveryv1alpha1.ClusterIdentity{ClusterID: id, ClusterName: name}
		return fc
	}
	for name, row := range map[string]struct {
		change func(local, remote *side)
		want   []string // parts of the findings, in order; none: they may peer
	}{
		"two clusters": {func(*side, *side) {}, nil},
		"in-band already": {func(l, _ *side) {
			l.facts.known = append(l.facts.known, foreign("milan", remoteID, discoveryv1alpha1.InBand))
		}, nil},
		"not installed":        {func(_, r *side) { r.facts.err = errNotServed }, []string{"(remote) Liqo"}},
		"the same cluster":     {func(l, r *side) { r.facts.identity = l.facts.identity }, []string{"must be different"}},
		"the same name":        {func(_, r *side) { r.facts.identity.ClusterName = "rome" }, []string{"the name rome"}},
		"a bad name":           {func(l, _ *side) { l.name = "Mi lan" }, []string{`"Mi lan"`}},
		"no network here":      {func(l, _ *side) { l.facts.external = true }, []string{"(local) network"}},
		"no network there":     {func(_, r *side) { r.facts.external = true }, []string{"(remote) network"}},
		"an old version there": {func(_, r *side) { r.facts.proxy = false }, []string{"(remote) proxy"}},
		"out-of-band here": {func(l, _ *side) {
			l.facts.known = append(l.facts.known, foreign("milan", remoteID, discoveryv1alpha1.OutOfBand))
		}, []string{"(local) known clusters: the clusters are peered already"}},
		"out-of-band there": {func(_, r *side) {
			r.facts.known = append(r.facts.known, foreign("rome", localID, discoveryv1alpha1.OutOfBand))
		}, []string{"(remote) known clusters: the clusters are peered already"}},
		"the name is taken": {func(_, r *side) {
			r.facts.known = append(r.facts.known, foreign("rome", "another", discoveryv1alpha1.InBand))
		}, []string{"(remote) known clusters: the ForeignCluster \"rome\" belongs to another cluster"}},
		"another name": {func(l, _ *side) {
			l.facts.known = append(l.facts.known, foreign("mailand", remoteID, discoveryv1alpha1.InBand))
		}, []string{"another name"}},
		"another key": {func(l, r *side) {
			fc := foreign("milan", remoteID, discoveryv1alpha1.InBand)
			fc.Spec.ClusterKey, r.facts.key = "known", "other"
			l.facts.known = append(l.facts.known, fc)
		}, []string{"(local) known clusters: the cluster " + remoteID + " is known here by another key"}},
		"another key here": {func(l, r *side) {
			fc := foreign("rome", localID, discoveryv1alpha1.InBand)
			fc.Spec.ClusterKey, l.facts.key, l.facts.previous = "known", "other", "older"
			r.facts.known = append(r.facts.known, fc)
		}, []string{"(remote) known clusters: the cluster " + localID + " is known here by another key"}},
		"a key that was replaced": {func(l, r *side) {
			fc := foreign("milan", remoteID, discoveryv1alpha1.InBand)
			fc.Spec.ClusterKey, r.facts.key, r.facts.previous = "known", "other", "known"
			l.facts.known = append(l.facts.known, fc)
		}, nil},
		"being deleted": {func(l, _ *side) {
			fc := foreign("milan", remoteID, discoveryv1alpha1.InBand)
			fc.DeletionTimestamp = new(metav1.Now())
			l.facts.known = append(l.facts.known, fc)
		}, []string{"in deletion"}},
		"the provider refuses all": {func(_, r *side) { r.facts.refuses = true }, []string{"(remote) incoming peering"}},
		"this cluster refuses all": {func(l, _ *side) { l.facts.refuses = true }, nil},
		"this cluster refuses all, and is to be used": {func(l, r *side) {
			l.facts.refuses, r.outgoing = true, true
		}, []string{"(local) incoming peering"}},
		"this cluster refuses the other one, and is to be used": {func(l, r *side) {
			fc := foreign("milan", remoteID, discoveryv1alpha1.InBand)
			fc.Spec.IncomingPeeringEnabled = discoveryv1alpha1.PeeringNo
			l.facts.known, r.outgoing = append(l.facts.known, fc), true
		}, []string{"(local) incoming peering"}},
		"both refuse": {func(l, r *side) {
			l.facts.refuses, r.facts.refuses, r.outgoing = true, true, true
		}, []string{"(local) incoming peering", "(remote) incoming peering"}},
		"all but this one": {func(_, r *side) {
			fc := foreign("rome", localID, discoveryv1alpha1.InBand)
			fc.Spec.IncomingPeeringEnabled = discoveryv1alpha1.PeeringYes
			r.facts.refuses, r.facts.known = true, append(r.facts.known, fc)
		}, nil},
		"two problems": {func(l, r *side) { l.facts.external, r.facts.external = true, true }, []string{"(local) network", "(remote) network"}},
	} {
		t.Run(name, func(t *testing.T) {
			local, remote := sides()
			row.change(local, remote)
			got := judgeInBand(local, remote)
			if len(got) != len(row.want) {
				t.Fatalf("findings %v, want %q", got, row.want)
			}
			for i, want := range row.want {
				if !strings.Contains(got[i].String(), want) || got[i].Remedy == "" {
					t.Errorf("finding %q does not name %q, or no remedy", got[i], want)
				}
			}
		})
	}
}

// controllers do, in one of two clusters, what Liqo does there until the tunnel is up.
type controllers struct {
	client.WithWatch
	own, other discoveryv1alpha1.ClusterIdentity
}

func (c controllers) run(ctx context.Context) error {
	var fc discoveryv1alpha1.ForeignCluster
	if err := eventually(ctx, func(ctx context.Context) error {
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
	if err := eventually(ctx, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(&fc), &fc); err != nil {
			return err
		}
		fc.Status.TenantNamespace.Local = namespace
		return c.Status().Update(ctx, &fc)
	}); err != nil {
		return err
	}
	ours := &netv1alpha1.NetworkConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: c.own.NetworkConfigName(), Labels: map[string]string{labels.Replication: "true", labels.RemoteID: c.other.ClusterID, labels.ClusterID: c.other.ClusterID}},
		Spec: netv1alpha1.NetworkConfigSpec{
			Cluster: netv1alpha1.ClusterIdentity{ClusterID: c.other.ClusterID, ClusterName: c.other.ClusterName}, PodCIDR: "10.200.0.0/16", ExternalCIDR: "10.70.0.0/16",
			BackendType: "wireguard", BackendConfig: map[string]string{"publicKey": "key"},
		},
	}
	if err := c.Create(ctx, ours); err != nil {
		return err
	}
	if err := eventually(ctx, func(ctx context.Context) error { // answer the copy of the other cluster's
		var theirs netv1alpha1.NetworkConfig
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: c.other.NetworkConfigName()}, &theirs); err != nil {
			return err
		}
		theirs.Status.Processed, theirs.Status.PodCIDRNAT, theirs.Status.ExternalCIDRNAT, theirs.Status.ObservedGeneration = true, "None", "None", theirs.Generation
		return c.Status().Update(ctx, &theirs)
	}); err != nil {
		return err
	}
	if err := eventually(ctx, func(ctx context.Context) error {
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
	conditions := []discoveryv1alpha1.PeeringCondition{condition(discoveryv1alpha1.NetworkStatus, discoveryv1alpha1.StatusEstablished, "")}
	if fc.Spec.OutgoingPeeringEnabled == discoveryv1alpha1.PeeringYes {
		conditions = append(conditions, condition(discoveryv1alpha1.AuthenticationStatus, discoveryv1alpha1.StatusEstablished, ""), condition(discoveryv1alpha1.OutgoingPeering, discoveryv1alpha1.StatusEstablished, ""))
	}
	if err := setStatus(ctx, c, fc.Name, func(fc *discoveryv1alpha1.ForeignCluster) bool { return fc.Spec.ForeignProxyURL != "" }, conditions...); err != nil {
		return err
	}
	if fc.Spec.OutgoingPeeringEnabled != discoveryv1alpha1.PeeringYes {
		return nil
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.other.NodeName(), Labels: map[string]string{labels.Type: labels.TypeVirtualNode, labels.RemoteClusterID: c.other.ClusterID}}}
	if err := c.Create(ctx, node); err != nil {
		return err
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return c.Status().Update(ctx, node)
}

// TestPeerInBand: liqoctl pins the keys, carries the networks, writes the addresses of the proxies, and changes nothing when it is repeated.
func TestPeerInBand(t *testing.T) {
	here, there := kubetest.Pair(t)
	rome, milan := discoveryv1alpha1.ClusterIdentity{ClusterID: localID, ClusterName: "rome"}, discoveryv1alpha1.ClusterIdentity{ClusterID: remoteID, ClusterName: "milan"}
	romeKeys, milanKeys := clusterkey.Keys{}, clusterkey.Keys{}
	local, remote := ready(t, here, rome, &romeKeys), ready(t, there, milan, &milanKeys)
	o := InBandOptions{Timeout: time.Minute, Local: Access{local, testNamespace}, Remote: Access{remote, testNamespace}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	worked := make(chan error, 2)
	go func() { worked <- controllers{local, rome, milan}.run(ctx) }()
	go func() { worked <- controllers{remote, milan, rome}.run(ctx) }()
	lines := &recorder{}
	err := PeerInBand(ctx, o, lines)
	if err != nil {
		cancel()
	}
	if err := errors.Join(err, <-worked, <-worked); err != nil {
		t.Fatalf("%v\n%s", err, lines.text())
	}
	for _, want := range []string{"(local) Network established", "(local) Peering successfully established"} {
		if !strings.Contains(lines.text(), want) {
			t.Errorf("%q is not in the output:\n%s", want, lines.text())
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
		if s := fc.Spec; s.PeeringType != discoveryv1alpha1.InBand || s.ClusterKey != at.other.Fingerprint() || s.OutgoingPeeringEnabled != at.outgoing || s.ForeignAuthURL != discoveryv1alpha1.AuthURLInside ||
			!strings.HasPrefix(s.ForeignProxyURL, "http://") || !strings.HasSuffix(s.ForeignProxyURL, "@10.70.0.33:8118") {
			t.Errorf("%s: %+v", at.name, s)
		}
		var all corev1.SecretList
		if err := at.c.List(ctx, &all, client.InNamespace(testNamespace)); err != nil || slices.ContainsFunc(all.Items, func(one corev1.Secret) bool { return strings.HasPrefix(one.Name, "remote-token-") }) {
			t.Errorf("%s: there is a token, or %v", at.name, err)
		}
	}
	before := inventory(t, local) + inventory(t, remote)
	if err := PeerInBand(ctx, o, &recorder{}); err != nil {
		t.Fatal(err)
	}
	if after := inventory(t, local) + inventory(t, remote); after != before {
		t.Errorf("the second command changed something:\n%s\n%s", before, after)
	}

	// The end: the directions first, in both clusters, then the objects.
	ended := make(chan error, 2)
	for name, c := range map[string]client.WithWatch{"milan": local, "rome": remote} {
		go func() {
			ended <- setStatus(ctx, c, name, wants(discoveryv1alpha1.PeeringNo), condition(discoveryv1alpha1.OutgoingPeering, discoveryv1alpha1.StatusNone, ""))
		}()
	}
	lines = &recorder{}
	if err := errors.Join(UnpeerInBand(ctx, o, lines), <-ended, <-ended); err != nil {
		t.Fatalf("%v\n%s", err, lines.text())
	}
	for name, c := range map[string]client.Client{"milan": local, "rome": remote} {
		if err := c.Get(ctx, client.ObjectKey{Name: name}, &discoveryv1alpha1.ForeignCluster{}); !apierrors.IsNotFound(err) {
			t.Errorf("ForeignCluster %s: %v", name, err)
		}
	}
	if err := UnpeerInBand(ctx, o, &recorder{}); err == nil || !strings.Contains(err.Error(), "not peered") {
		t.Errorf("once more: %v", err)
	}
}

// ready is a cluster in which Liqo is installed, with keys.
func ready(t *testing.T, config *rest.Config, identity discoveryv1alpha1.ClusterIdentity, keys *clusterkey.Keys) client.WithWatch {
	t.Helper()
	if _, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: []string{"../../deployments/liqo/crds"}}); err != nil {
		t.Fatal(err)
	}
	c := connect(t, config)
	var err error
	if *keys, err = clusterkey.Generate(); err != nil {
		t.Fatal(err)
	}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: testNamespace}},
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: "liqo-clusterid-configmap", Labels: map[string]string{labels.AppName: identityAppName}},
			Data:       map[string]string{"CLUSTER_ID": identity.ClusterID, "CLUSTER_NAME": identity.ClusterName},
		},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: clusterkey.Secret}, Data: keys.Data()},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: proxy.KeySecret}, Data: map[string][]byte{proxy.KeyName: []byte(strings.Repeat("k", 32))}},
	} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	return c
}
