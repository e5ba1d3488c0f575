// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/action/actiontest"
	"liqo.io/liqo/internal/action/rotate"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/peering/auth/key"
)

func testRotateIdentity(t *testing.T, config *rest.Config) {
	c := actiontest.Installed(t, config)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	now := time.Now()
	run := func(o rotate.IdentityOptions) (*actiontest.Recorder, error) {
		progress := &actiontest.Recorder{}
		o.Now = func() time.Time { return now }
		if o.Timeout == 0 {
			o.Timeout = time.Minute
		}
		return progress, rotate.Identity(ctx, c, actiontest.Namespace, o, progress)
	}
	if _, err := run(rotate.IdentityOptions{}); err == nil || !strings.Contains(err.Error(), "liqo-controller-manager creates it") {
		t.Errorf("without keys: %v", err)
	}
	roots := key.Generate()
	for name, data := range map[string]map[string][]byte{key.Secret: roots.Data(), clusterkey.Secret: providerKeys.Data()} {
		actiontest.Create(t, c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: actiontest.Namespace, Name: name}, Data: data})
	}
	read := func() (key.Roots, clusterkey.Keys) {
		t.Helper()
		var both [2]corev1.Secret
		for i, name := range []string{key.Secret, clusterkey.Secret} {
			if err := c.Get(ctx, client.ObjectKey{Namespace: actiontest.Namespace, Name: name}, &both[i]); err != nil {
				t.Fatal(err)
			}
		}
		keys, err := clusterkey.Parse(&both[1])
		if err != nil {
			t.Fatal(err)
		}
		return key.Parse(both[0].Data), keys
	}
	if _, err := run(rotate.IdentityOptions{}); err != nil {
		t.Fatal(err)
	}
	nextRoots, next := read()
	if string(nextRoots.Previous) != string(roots.Current) || string(nextRoots.Current) == string(roots.Current) || len(nextRoots.Current) != key.RootSize {
		t.Error("the root is not replaced, or its predecessor is lost")
	}
	if !next.Previous.Equal(providerKeys.Current) || next.Current.Equal(providerKeys.Current) {
		t.Error("the cluster key is not replaced, or its predecessor is lost")
	}

	now = now.Add(59 * time.Minute)
	if _, err := run(rotate.IdentityOptions{}); err == nil || !strings.Contains(err.Error(), "59m0s ago") || !strings.Contains(err.Error(), "--force") {
		t.Errorf("before all peers have renewed: %v", err)
	}
	if after, keys := read(); string(after.Current) != string(nextRoots.Current) || !keys.Current.Equal(next.Current) {
		t.Error("a refused rotation changed keys")
	}

	// Interrupted between the Secrets: the root is not replaced again, as peers know only its predecessor.
	now = now.Add(2 * time.Minute)
	var stored corev1.Secret
	if err := c.Get(ctx, client.ObjectKey{Namespace: actiontest.Namespace, Name: key.Secret}, &stored); err != nil {
		t.Fatal(err)
	}
	third := key.Generate()
	third.Previous = nextRoots.Current
	if err := rotate.StoreKeys(ctx, c, &stored, third.Data(), now); err != nil {
		t.Fatal(err)
	}
	// A provider learns the keys while the command waits.
	learn := func(name, id string) *corev1.Secret {
		fc := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
		fc.Spec.ClusterIdentity = &discoveryv1alpha1.ClusterIdentity{ClusterID: id, ClusterName: name}
		actiontest.Create(t, c, fc)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: actiontest.Namespace, Name: "identity-" + name, Labels: map[string]string{labels.LocalIdentity: "true", labels.ClusterID: id},
		}}
		actiontest.Create(t, c, secret)
		return secret
	}
	identity := learn("prompt", "prompt-id")
	learned := make(chan error, 1)
	go func() {
		learned <- actiontest.Eventually(ctx, func(ctx context.Context) error {
			var fc discoveryv1alpha1.ForeignCluster
			if err := c.Get(ctx, client.ObjectKey{Name: "prompt"}, &fc); err != nil || fc.Annotations[labels.OwnKey] == "" {
				return context.DeadlineExceeded
			}
			before := identity.DeepCopy()
			identity.Annotations = map[string]string{labels.OwnKey: fc.Annotations[labels.OwnKey]}
			return c.Patch(ctx, identity, client.MergeFrom(before))
		})
	}()
	progress, err := run(rotate.IdentityOptions{})
	if err != nil || <-learned != nil {
		t.Fatal(err)
	}
	if after, keys := read(); string(after.Current) != string(third.Current) || !keys.Previous.Equal(next.Current) {
		t.Error("the interrupted rotation is not completed")
	}
	// A command that ended before it announced the key: the next one does, and replaces nothing.
	var prompt discoveryv1alpha1.ForeignCluster
	if err := c.Get(ctx, client.ObjectKey{Name: "prompt"}, &prompt); err != nil {
		t.Fatal(err)
	}
	fingerprint := prompt.Annotations[labels.OwnKey]
	delete(prompt.Annotations, labels.OwnKey)
	if err := c.Update(ctx, &prompt); err != nil {
		t.Fatal(err)
	}
	if _, err := run(rotate.IdentityOptions{}); !errors.Is(err, rotate.ErrReplaced) {
		t.Errorf("a second rotation: %v", err)
	}
	if err := c.Get(ctx, client.ObjectKey{Name: "prompt"}, &prompt); err != nil || prompt.Annotations[labels.OwnKey] != fingerprint || fingerprint == "" {
		t.Errorf("the provider is not asked again: %v, %v", prompt.Annotations, err)
	}
	if text := progress.Text(); !strings.Contains(text, `"prompt" knows the new keys`) || strings.Contains(text, "do not know") {
		t.Errorf("reported:\n%s", text)
	}
	// Now it is silent.
	if progress, err = run(rotate.IdentityOptions{Force: true, Timeout: time.Millisecond}); err != nil {
		t.Errorf("forced: %v", err)
	}
	if text := progress.Text(); !strings.Contains(text, "do not know the new keys yet") || !strings.Contains(text, "liqoctl status peer prompt") {
		t.Errorf("reported:\n%s", text)
	}
	if _, keys := read(); keys.Previous.Equal(next.Current) {
		t.Error("a forced rotation replaced nothing")
	}
}
