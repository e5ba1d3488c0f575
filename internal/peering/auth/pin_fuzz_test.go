// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"crypto/ed25519"
	"encoding/base64"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// FuzzParsePin: an accepted ConfigMap names the cluster of its own name, and its texts can become names, labels and the address of a client. Written
// and read again, the pin is the same.
func FuzzParsePin(f *testing.F) {
	const id, another = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee", "11111111-2222-4333-8444-555555555555"
	key := base64.StdEncoding.EncodeToString(make([]byte, ed25519.PublicKeySize))
	name := PinName(id)
	f.Add(name, id, "rome", key, "https://192.0.2.1:32000/auth")
	f.Add(name, id, "rome", key, "")
	f.Add(PinName(another), id, "rome", key, "")                                   // the key of another cluster
	f.Add(PinName("../x"), "../x", "rome", key, "")                                // no cluster ID
	f.Add(name, id, strings.Repeat("a", 63), key, "")                              // as long as a label
	f.Add(name, id, strings.Repeat("a", 64), key, "")                              // longer
	f.Add(name, id, "rome\n", key, "")                                             // not a label
	f.Add(name, id, "rome", key[:40], "")                                          // a short key
	f.Add(name, id, "rome", key+"AAAA", "")                                        // a long key
	f.Add(name, id, "rome", "\r\n"+key+"\n", "https://[2001:db8::1]:443")          // line breaks, as a person may add
	f.Add(name, id, "rome", key, "http://192.0.2.1")                               // in clear text
	f.Add(name, id, "rome", key, "https://user:secret@192.0.2.1")                  // with credentials
	f.Add(name, id, "rome", key, "https://192.0.2.1/?a=b#c")                       // with a query
	f.Add(name, id, "rome", key, "https://:443/")                                  // without a host
	f.Add(name, id, "rome", key, "https://192.0.2.1/"+strings.Repeat("a/", 10000)) // endless
	f.Fuzz(func(t *testing.T, name, id, clusterName, key, address string) {
		object := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "liqo"},
			Data:       map[string]string{PinClusterID: id, PinClusterName: clusterName, PinPublicKey: key, PinAuthURL: address},
		}
		pin, err := ParsePin(object)
		if err != nil {
			if pin.Key != nil || pin.Cluster.ClusterID != "" || strings.Contains(err.Error(), key) && len(key) > len(PinPublicKey) {
				t.Errorf("refused with %v, and %+v is returned", err, pin)
			}
			return
		}
		if pin.Cluster.ClusterID != id || name != PinName(id) || len(validation.IsValidLabelValue(id)) > 0 ||
			len(validation.IsDNS1123Label(pin.Cluster.TenantNamespace())) > 0 {
			t.Errorf("cluster %q %q of ConfigMap %q passed", id, clusterName, name)
		}
		if decoded, err := base64.StdEncoding.DecodeString(key); err != nil || len(decoded) != 32 || !pin.Key.Equal(ed25519.PublicKey(decoded)) {
			t.Errorf("key %q passed as %x", key, pin.Key)
		}
		if parsed, err := url.Parse(address); address != "" && (err != nil || parsed.Scheme != "https" || parsed.Hostname() == "" || parsed.User != nil ||
			parsed.RawQuery != "" || parsed.Fragment != "" || len(address) > MaxURL || parsed.String() != address) {
			t.Errorf("URL %q passed", address)
		}
		again, err := ParsePin(pin.ConfigMap("liqo"))
		if err != nil || again.Cluster != pin.Cluster || !again.Key.Equal(pin.Key) || again.AuthURL != pin.AuthURL {
			t.Errorf("%+v is read again as %+v, %v", pin, again, err)
		}
	})
}
