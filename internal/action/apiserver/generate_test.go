// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/action/actiontest"
	"liqo.io/liqo/internal/action/generate"
	"liqo.io/liqo/internal/action/installed"
	"liqo.io/liqo/internal/action/rotate"
	"liqo.io/liqo/internal/action/tokens"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/peering/auth"
	authserver "liqo.io/liqo/internal/peering/auth/server"
)

// TestAttackNL9: who reads the printed command in a history or a log has a token that a second cluster cannot use, and that ends.
func TestAttackNL9(t *testing.T) {
	in := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: actiontest.Namespace, Name: name}
	}
	identity := &corev1.ConfigMap{ObjectMeta: in("clusterid"), Data: map[string]string{"CLUSTER_ID": actiontest.LocalID, "CLUSTER_NAME": "rome"}}
	identity.Labels = map[string]string{labels.AppName: "clusterid-configmap"}
	service := &corev1.Service{ObjectMeta: in("liqo-auth"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}}}
	service.Annotations = map[string]string{"liqo.io/override-address": "auth.example.org"}
	const shared = "the token of all clusters, without end"
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(identity, service,
		&corev1.Secret{ObjectMeta: in(clusterkey.Secret), Data: providerKeys.Data()},
		&corev1.Secret{ObjectMeta: in(auth.SharedTokenSecret), Data: map[string][]byte{auth.SharedTokenKey: []byte(shared)}},
	).WithIndex(&corev1.Service{}, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} }).Build()
	command, err := generate.ForPeer(t.Context(), c, actiontest.Namespace, tokens.Options{}, &actiontest.Recorder{})
	if err != nil {
		t.Fatal(err)
	}
	printed := auth.ParseToken(command.Token).Secret
	if printed == shared {
		t.Fatal("the command holds the token that all clusters may use, without end")
	}
	var stored corev1.Secret
	var token auth.AcceptedToken
	err = c.Get(t.Context(), client.ObjectKey{Namespace: actiontest.Namespace, Name: auth.IssuedTokensSecret}, &stored)
	if err := errors.Join(err, json.Unmarshal(stored.Data[auth.TokenID(printed)], &token)); err != nil {
		t.Fatal(err)
	}
	if left := time.Until(token.Expires); token.Secret != printed || !token.Once || left < 23*time.Hour || left > 24*time.Hour {
		t.Errorf("one cluster may use it: %t; valid for %s", token.Once, left)
	}
}

// setShared replaces the token that all clusters may use.
func setShared(t *testing.T, c client.Client, secret string) {
	t.Helper()
	if err := tokens.ChangeSecret(t.Context(), c, client.ObjectKey{Namespace: actiontest.Namespace, Name: auth.SharedTokenSecret}, func(data map[string][]byte) {
		data[auth.SharedTokenKey] = []byte(secret)
	}); err != nil {
		t.Fatal(err)
	}
}

func testGeneratePeerCommand(t *testing.T, config *rest.Config) {
	const sharedBefore = "a shared secret of an administrator"
	c := actiontest.Installed(t, config)
	_, err := generate.ForPeer(t.Context(), c, actiontest.Namespace, tokens.Options{}, &actiontest.Recorder{})
	if err == nil || !strings.Contains(err.Error(), "liqo-cluster-key") {
		t.Errorf("without the cluster key: %v", err)
	}
	actiontest.Create(t, c, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: actiontest.Namespace, Name: "auth-token"},
		Data:       map[string][]byte{"token": []byte(sharedBefore)},
	})
	actiontest.Create(t, c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: actiontest.Namespace, Name: clusterkey.Secret}, Data: providerKeys.Data()})
	if _, err = generate.ForPeer(t.Context(), c, actiontest.Namespace, tokens.Options{}, &actiontest.Recorder{}); !errors.Is(err, installed.ErrNotInstalled) {
		t.Errorf("without a Service: %v", err)
	}
	if _, err = generate.ForPeer(t.Context(), c, "elsewhere", tokens.Options{}, &actiontest.Recorder{}); !errors.Is(err, installed.ErrNotInstalled) {
		t.Errorf("in another namespace: %v", err)
	}

	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: actiontest.Namespace, Name: "liqo-auth"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 443}}},
	}
	actiontest.Create(t, c, service)
	// The address comes while the command waits for it.
	progress := &actiontest.Recorder{}
	given := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() {
		given <- actiontest.Eventually(ctx, func(ctx context.Context) error {
			if !strings.Contains(progress.Text(), "address") {
				return errors.New("the command does not report that it waits")
			}
			service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.7"}}
			return c.Status().Patch(ctx, service, client.MergeFrom(&corev1.Service{}))
		})
	}()
	_, err = generate.ForPeer(ctx, c, actiontest.Namespace, tokens.Options{}, progress)
	if err := errors.Join(err, <-given); err != nil {
		t.Fatal(err)
	}
	command, err := generate.ForPeer(ctx, c, actiontest.Namespace, tokens.Options{Shared: true}, progress)
	if err != nil {
		t.Fatal(err)
	}
	want := "peer out-of-band rome --auth-url https://192.0.2.7 --cluster-id " +
		actiontest.LocalID + " --auth-token " + sharedBefore + "." + providerKeys.Fingerprint()
	if got := strings.Join(command.Args(), " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, both := range []tokens.Options{{Shared: true, For: "milan"}, {Shared: true, Expires: time.Hour}, {Expires: -time.Hour}} {
		if _, err := generate.ForPeer(ctx, c, actiontest.Namespace, both, progress); err == nil {
			t.Errorf("%+v is accepted", both)
		}
	}
	if err := rotate.Token(ctx, c, actiontest.Namespace); err != nil { // of what is above, nothing is left
		t.Fatal(err)
	}
	setShared(t, c, sharedBefore)
	source := authserver.SecretTokens{Secrets: kubernetes.NewForConfigOrDie(config).CoreV1(), Namespace: actiontest.Namespace}
	issued := map[string]bool{}
	for range 2 {
		command, err := generate.ForPeer(ctx, c, actiontest.Namespace, tokens.Options{For: "milan", Expires: time.Hour}, progress)
		token := auth.ParseToken(command.Token)
		if err != nil || token.Fingerprint != providerKeys.Fingerprint() || issued[token.Secret] {
			t.Fatalf("%v, issued before: %v", err, issued[token.Secret])
		}
		issued[token.Secret] = true
	}
	accepted := func() (names []string) {
		all, err := source.Tokens(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range all {
			switch {
			case issued[one.Secret] && one.Once && one.For == "milan" && time.Until(one.Expires) > 50*time.Minute && time.Until(one.Expires) <= time.Hour:
				names = append(names, "issued")
			case one.Secret == sharedBefore:
				names = append(names, "shared before")
			case one == auth.AcceptedToken{Secret: one.Secret}:
				names = append(names, "shared")
			default:
				t.Errorf("%+v", one)
			}
		}
		slices.Sort(names)
		return names
	}
	if got := accepted(); !slices.Equal(got, []string{"issued", "issued", "shared before"}) {
		t.Errorf("%v", got)
	}
	used := map[string]bool{auth.SpentName("of-a-token-that-has-expired"): false}
	for secret := range issued {
		used[auth.SpentName(auth.TokenID(secret))] = true
	}
	for name := range used {
		actiontest.Create(t, c, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: actiontest.Namespace, Name: name, Labels: map[string]string{labels.SpentToken: "true"}},
		})
	}
	records := func(want int) {
		t.Helper()
		var all corev1.ConfigMapList
		if err := c.List(ctx, &all, client.InNamespace(actiontest.Namespace), client.MatchingLabels{labels.SpentToken: "true"}); err != nil ||
			len(all.Items) != want {
			t.Errorf("%d records of used tokens, want %d (%v)", len(all.Items), want, err)
		}
		for i := range all.Items {
			if !used[all.Items[i].Name] {
				t.Errorf("the record %s is kept", all.Items[i].Name)
			}
		}
	}
	if _, err := generate.ForPeer(ctx, c, actiontest.Namespace, tokens.Options{For: "turin", Expires: time.Hour}, progress); err != nil {
		t.Fatal(err)
	}
	records(2)
	if err := rotate.Token(ctx, c, actiontest.Namespace); err != nil {
		t.Fatal(err)
	}
	records(0)
	if got := accepted(); !slices.Equal(got, []string{"shared"}) {
		t.Errorf("after the rotation: %v", got)
	}
	if err := c.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: actiontest.Namespace, Name: auth.SharedTokenSecret}}); err != nil {
		t.Fatal(err)
	}
	if err := rotate.Token(ctx, c, actiontest.Namespace); err != nil || len(accepted()) > 0 {
		t.Errorf("a rotation without a shared token makes one (%v)", err)
	}
}
