// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/auth/published"
	"liqo.io/liqo/internal/peering/ownproxy"
	"liqo.io/liqo/internal/peering/proxy"
)

// TestOffer: a cluster sends its provider its address, and accepts that provider's key, as long as it uses it and allows incoming peerings.
func TestOffer(t *testing.T) {
	t.Parallel()
	b := newFCEnv(t)
	b.Make(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: published.Service, Annotations: map[string]string{labels.OverrideAddress: "rome.example.org"}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}},
	})
	milan := discoveryv1alpha1.ClusterIdentity{ClusterID: "milan-id", ClusterName: "milan"}
	fc := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: discoveryv1alpha1.ForeignClusterSpec{
		ClusterIdentity: &milan, ClusterKey: strings.Repeat("k", 43), ForeignAuthURL: "https://192.0.2.1",
		OutgoingPeeringEnabled: discoveryv1alpha1.PeeringYes, IncomingPeeringEnabled: discoveryv1alpha1.PeeringAuto,
	}}
	b.Make(fc)
	b.Make(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: proxy.Service},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: proxy.Port}}},
	})
	inside := func(want bool) {
		t.Helper()
		kubetest.Eventually(t, fmt.Sprintf("its proxy is offered: %v", want), func() error {
			var mapping netv1alpha1.IPMapping
			err := b.Get(t.Context(), client.ObjectKey{Name: ownproxy.Name(milan)}, &mapping)
			if client.IgnoreNotFound(err) != nil || want != (err == nil) {
				return fmt.Errorf("the address: %v, %w", mapping.Spec, err)
			}
			if want && len(mapping.Status.PeerAddresses) == 0 {
				mapping.Status.PeerAddresses = map[string]string{milan.ClusterID: "10.9.0.7", "another": "10.10.0.7"}
				b.Must(b.Status().Update(t.Context(), &mapping))
			}
			var slices sharingv1alpha1.ResourceSliceList
			b.Must(b.List(t.Context(), &slices))
			if len(slices.Items) != 1 || want != strings.HasSuffix(slices.Items[0].Spec.ProxyURL, "@10.9.0.7:8118") ||
				want != strings.HasPrefix(slices.Items[0].Spec.ProxyURL, "http://milan-id:") {
				return fmt.Errorf("requests: %+v", slices.Items)
			}
			return nil
		})
	}
	offered := func(want bool) {
		t.Helper()
		kubetest.Eventually(t, fmt.Sprintf("it is offered: %v", want), func() error {
			var key corev1.ConfigMap
			err := b.Get(t.Context(), client.ObjectKey{Namespace: "liqo", Name: auth.ProviderName(milan.ClusterID)}, &key)
			if client.IgnoreNotFound(err) != nil || want != (err == nil) || want && auth.ProviderFingerprint(&key) != fc.Spec.ClusterKey {
				return fmt.Errorf("the key: %v, %v", key.Data, err)
			}
			var slices sharingv1alpha1.ResourceSliceList
			b.Must(b.List(t.Context(), &slices))
			if len(slices.Items) != 1 || want != (slices.Items[0].Spec.AuthURL == "https://rome.example.org") {
				return fmt.Errorf("requests: %+v", slices.Items)
			}
			return nil
		})
	}
	offered(true)
	inside(false)
	var requests sharingv1alpha1.ResourceSliceList
	b.Must(b.List(t.Context(), &requests))
	requests.Items[0].Status.Phase, requests.Items[0].Status.ProxyWanted = sharingv1alpha1.SliceAccepted, true // the provider does not reach the address
	b.Must(b.Status().Update(t.Context(), &requests.Items[0]))
	inside(true)
	b.Edit(fc, func() { fc.Spec.IncomingPeeringEnabled = discoveryv1alpha1.PeeringNo })
	offered(false)
	inside(false)
	b.Edit(fc, func() { fc.Spec.IncomingPeeringEnabled = discoveryv1alpha1.PeeringYes })
	offered(true)
	inside(true)
	b.Must(b.Delete(t.Context(), fc))
	kubetest.Eventually(t, "the key goes with the peering", func() error {
		var key corev1.ConfigMap
		if err := b.Get(t.Context(), client.ObjectKey{Namespace: "liqo", Name: auth.ProviderName(milan.ClusterID)}, &key); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%v, %v", key.Data, err)
		}
		return nil
	})
}

// TestFollowAddress: the ForeignCluster of a consumer that registered has the URL that it offers, also after a change; one of an administrator does not.
func TestFollowAddress(t *testing.T) {
	t.Parallel()
	b := newFCEnv(t)
	rome := discoveryv1alpha1.ClusterIdentity{ClusterID: "rome-2-id", ClusterName: strings.Repeat("r", 63)} // the longest name
	fc := &discoveryv1alpha1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: rome.ClusterName, Labels: map[string]string{labels.DiscoveryType: labels.DiscoveryIncoming}},
		Spec:       discoveryv1alpha1.ForeignClusterSpec{ClusterIdentity: &rome, OutgoingPeeringEnabled: discoveryv1alpha1.PeeringAuto},
	}
	b.Make(fc)
	kubetest.Eventually(t, "it has a tenant namespace", func() error {
		return b.Get(t.Context(), client.ObjectKey{Name: rome.TenantNamespace()}, &corev1.Namespace{})
	})
	request := &sharingv1alpha1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: rome.TenantNamespace(), Name: rome.ClusterName,
			Labels: map[string]string{labels.Replicated: "true", labels.Replication: "false", labels.OriginID: rome.ClusterID},
		},
		Spec: sharingv1alpha1.ResourceSliceSpec{ConsumerClusterID: rome.ClusterID, ProviderClusterID: "rome-id", NodeName: rome.NodeName()},
	}
	b.Make(request)
	follows := func(want string) {
		t.Helper()
		kubetest.Eventually(t, "the URL is "+want, func() error {
			b.Read(fc)
			proxied := ""
			if want == discoveryv1alpha1.AuthURLInside {
				proxied = request.Spec.ProxyURL
			}
			if fc.Spec.ForeignAuthURL != want || fc.Spec.ForeignProxyURL != proxied {
				return fmt.Errorf("it is %q through %q", fc.Spec.ForeignAuthURL, fc.Spec.ForeignProxyURL)
			}
			return nil
		})
	}
	for _, url := range []string{"https://rome.example.org", "https://192.0.2.9:8443", "", "https://rome.example.org"} {
		b.Edit(request, func() { request.Spec.AuthURL = url })
		follows(url)
	}
	b.Edit(request, func() { request.Spec.AuthURL, request.Spec.ProxyURL = "", "http://rome-2-id:pass@10.9.0.7:8118" })
	follows("") // there is no tunnel
	tunnel := tunnelTo(rome)
	b.Make(tunnel)
	follows(discoveryv1alpha1.AuthURLInside)
	before := fc.DeepCopy()
	b.Edit(request, func() { request.Spec.ProxyURL = "http://rome-2-id:pass@169.254.169.254:8118" })
	b.Edit(fc, func() { fc.Spec.IncomingPeeringEnabled = discoveryv1alpha1.PeeringYes })
	b.Until("the change is handled", func() bool { b.Read(fc); return fc.Status.ObservedGeneration == fc.Generation })
	if fc.Spec.ForeignProxyURL != before.Spec.ForeignProxyURL {
		t.Errorf("the proxy is %s", fc.Spec.ForeignProxyURL)
	}
	b.Edit(request, func() { request.Spec.ProxyURL = before.Spec.ForeignProxyURL })
	follows(discoveryv1alpha1.AuthURLInside)
	b.Edit(request, func() { request.Spec.ProxyURL = "" })
	follows("")
	b.Edit(request, func() { request.Spec.AuthURL, request.Spec.ProxyURL = "https://rome.example.org", "" })
	follows("https://rome.example.org")
	for _, bad := range []string{"http://rome.example.org", "https://user:password@rome.example.org", "file:///etc/passwd"} {
		request.Spec.AuthURL = bad
		if err := b.Update(t.Context(), request); !apierrors.IsInvalid(err) {
			t.Errorf("URL %q: %v", bad, err)
		}
		b.Read(request)
	}
	b.Edit(fc, func() {
		fc.Labels[labels.DiscoveryType], fc.Spec.ForeignAuthURL = labels.DiscoveryManual, "https://chosen.example.org"
	})
	b.Edit(request, func() { request.Spec.AuthURL = "https://other.example.org" })
	b.Edit(fc, func() { fc.Spec.IncomingPeeringEnabled = discoveryv1alpha1.PeeringNo })
	b.Until("the change is handled", func() bool {
		b.Read(fc)
		return fc.Status.Incoming != nil && fc.Status.Incoming.State == discoveryv1alpha1.IncomingRefused
	})
	if fc.Spec.ForeignAuthURL != "https://chosen.example.org" {
		t.Errorf("the administrator's URL became %q", fc.Spec.ForeignAuthURL)
	}
}
