// SPDX-License-Identifier: Apache-2.0

package pins

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/peeringtest"
)

// TestReplacedKeys: a consumer replaces its keys while the peering lasts. The provider believes what the old keys signed, and nothing else, even from its own
// authentication service.
func TestReplacedKeys(t *testing.T) {
	t.Parallel()
	b := newPinsEnv(t, Limits{})
	milan, provider, consumer, newKey := b.Local, b.Provider, b.Consumer, b.NewKey
	first := b.Registration(peeringtest.Rome)
	grant, err := b.Register(first)
	b.Must(err)
	known := func() (pin auth.Pin, fc discoveryv1alpha1.ForeignCluster) {
		t.Helper()
		var object corev1.ConfigMap
		b.Must(b.Get(t.Context(), client.ObjectKey{Namespace: "liqo", Name: auth.PinName(peeringtest.Rome.ClusterID)}, &object))
		pin, err := auth.ParsePin(&object)
		b.Must(err)
		b.Must(b.Get(t.Context(), client.ObjectKey{Name: "rome"}, &fc))
		return pin, fc
	}
	fingerprint := func(key ed25519.PrivateKey) string { return clusterkey.Fingerprint(clusterkey.Public(key)) }
	replacementGone := func() {
		t.Helper()
		b.Until("the request is handled", func() bool {
			return apierrors.IsNotFound(b.Get(t.Context(), client.ObjectKey{
				Namespace: "liqo", Name: auth.ReplacementName(peeringtest.Rome.ClusterID),
			}, &corev1.ConfigMap{}))
		})
	}

	// A taken over authentication service stores what no key of the consumer signed.
	text := func(bytes []byte) string { return base64.StdEncoding.EncodeToString(bytes) }
	thief := newKey()
	b.Make(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "liqo", Name: auth.ReplacementName(peeringtest.Rome.ClusterID),
			Labels: map[string]string{labels.PinnedKey: auth.PinReplacement, labels.ClusterID: peeringtest.Rome.ClusterID},
		},
		Data: map[string]string{
			auth.PinClusterID: peeringtest.Rome.ClusterID, "provider": milan.ClusterID, auth.PinPublicKey: text(clusterkey.Public(thief)),
			auth.PinClusterKey: text(clusterkey.Public(thief)),
			"proofs":           text(ed25519.Sign(thief, []byte("anything"))),
		},
	})
	replacementGone()
	if pin, fc := known(); !pin.Key.Equal(clusterkey.Public(first.Key)) || fc.Spec.ClusterKey != fingerprint(first.ClusterKey) {
		t.Fatalf("an unsigned replacement is believed: %+v", pin)
	}
	kubetest.Eventually(t, "an event reports it", func() error {
		var all eventsv1.EventList
		b.Must(b.List(t.Context(), &all))
		for i := range all.Items {
			if all.Items[i].Reason == "PeerKeyNotReplaced" && strings.Contains(all.Items[i].Note, "not signed with the keys") {
				return nil
			}
		}
		return fmt.Errorf("%d events", len(all.Items))
	})

	second := first
	second.Secret, second.Key, second.ClusterKey, second.Previous = "", newKey(), newKey(), []ed25519.PrivateKey{first.Key, first.ClusterKey}
	again, err := consumer.Register(t.Context(), second)
	b.Must(err)
	if again.Namespace != grant.Namespace {
		t.Errorf("another tenant: %s, before %s", again.Namespace, grant.Namespace)
	}
	if pin, fc := known(); !pin.Key.Equal(clusterkey.Public(second.Key)) ||
		fc.Spec.ClusterKey != fingerprint(second.ClusterKey) || pin.Namespace != grant.Namespace {
		t.Errorf("pinned %+v, foreign cluster %s", pin, fc.Spec.ClusterKey)
	}
	replacementGone()
	if _, err := consumer.Renew(t.Context(), provider, peeringtest.Rome, second.Key); err != nil {
		t.Errorf("renewal with the new key: %v", err)
	}
	if _, err := consumer.Renew(t.Context(), provider, peeringtest.Rome, first.Key); !errors.Is(err, auth.ErrConflict) {
		t.Errorf("renewal with the old key: %v", err)
	}
}
