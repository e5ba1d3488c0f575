// SPDX-License-Identifier: Apache-2.0

package pullsecret

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func pullSecret(kind corev1.SecretType, content string) *corev1.Secret {
	s := &corev1.Secret{Type: kind, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(content), corev1.DockerConfigKey: []byte(content)}}
	s.Namespace, s.Name = "liqo", "registry"
	return s
}

// TestCredentials: pull Secrets of both types become one; the first credential of a registry counts, and an error shows nothing of the content.
func TestCredentials(t *testing.T) {
	for name, test := range map[string]struct {
		secrets []*corev1.Secret
		want    string
		err     string
	}{
		"none": {nil, `{"auths":{}}`, ""},
		"as kubectl makes": {
			[]*corev1.Secret{pullSecret(corev1.SecretTypeDockerConfigJson, `{"auths":{"a.example":{"auth":"eDp5"}}}`)},
			`{"auths":{"a.example":{"auth":"eDp5"}}}`, "",
		},
		"of the old type": {
			[]*corev1.Secret{pullSecret(corev1.SecretTypeDockercfg, `{"a.example":{"auth":"eDp5"}}`)},
			`{"auths":{"a.example":{"auth":"eDp5"}}}`,
			"",
		},
		"several": {[]*corev1.Secret{
			pullSecret(corev1.SecretTypeDockerConfigJson, `{"auths":{"a.example":{"auth":"MQ=="}}}`),
			pullSecret(corev1.SecretTypeDockerConfigJson, `{"auths":{"a.example":{"auth":"Mg=="},"b.example/team":{"auth":"Mw=="}}}`),
		}, `{"auths":{"a.example":{"auth":"MQ=="},"b.example/team":{"auth":"Mw=="}}}`, ""},
		"another type": {[]*corev1.Secret{pullSecret(corev1.SecretTypeOpaque, `{}`)}, "", `the type of Secret liqo/registry is "Opaque"`},
		"broken":       {[]*corev1.Secret{pullSecret(corev1.SecretTypeDockerConfigJson, `{"auths": geheim`)}, "", "is not valid JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			var all []map[string]json.RawMessage
			for _, secret := range test.secrets {
				read, err := credentials(secret)
				if err != nil {
					if test.err == "" || !strings.Contains(err.Error(), test.err) || strings.Contains(err.Error(), "geheim") {
						t.Errorf("error %v, want %q", err, test.err)
					}
					return
				}
				all = append(all, read)
			}
			have, err := merged(all)
			if err != nil || string(have) != test.want || test.err != "" {
				t.Errorf("%s, %v, want %s", have, err, test.want)
			}
		})
	}
}
