// SPDX-License-Identifier: Apache-2.0

package caller

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"reflect"
	"testing"
)

// FuzzParse: an authority that cannot be read is an error, never none: a pool is empty only if the ConfigMap names no authority, and a list of the names of
// proxies, which means any if it is empty, is never dropped.
func FuzzParse(f *testing.F) {
	garbage := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("no certificate")}))
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		f.Fatal(err)
	}
	good := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	f.Add(good, good, `["front-proxy-client"]`)
	f.Add(good, "", "")
	f.Add("", "", `[]`)
	f.Add(garbage, good, `["a"]`)
	f.Add(good, garbage+good, `["a","b"]`)
	f.Add(good, " ", `["a"]`)
	f.Add(good[:len(good)/2], "", `["a"]`)
	f.Add("", "", `"front-proxy-client"`)
	f.Add("", "", `["a",7]`)
	f.Add("", "", `["a"`)
	f.Add("", "", `null`)
	f.Fuzz(func(t *testing.T, clients, proxies, names string) {
		known, err := parse(map[string]string{"client-ca-file": clients, "requestheader-client-ca-file": proxies, "requestheader-allowed-names": names})
		var list []string
		invalid := names != "" && json.Unmarshal([]byte(names), &list) != nil
		if err != nil {
			if clients == "" && proxies == "" && !invalid || known != nil {
				t.Errorf("refused: %v, %+v", err, known)
			}
			return
		}
		for text, pool := range map[*string]*x509.CertPool{&clients: known.clients, &proxies: known.proxies} {
			if empty := pool.Equal(x509.NewCertPool()); empty != (*text == "") {
				t.Errorf("no authority: %t, of %q", empty, *text)
			}
		}
		if invalid || len(list) != len(known.proxyNames) || len(list) > 0 && !reflect.DeepEqual(list, known.proxyNames) {
			t.Errorf("the names %s are read as %q", names, known.proxyNames)
		}
	})
}
