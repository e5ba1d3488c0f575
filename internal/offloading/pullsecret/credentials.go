// SPDX-License-Identifier: Apache-2.0

package pullsecret

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// credentials returns what a pull Secret holds, by registry.
func credentials(secret *corev1.Secret) (byRegistry map[string]json.RawMessage, err error) {
	var config struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	switch secret.Type {
	case corev1.SecretTypeDockerConfigJson:
		err = json.Unmarshal(secret.Data[corev1.DockerConfigJsonKey], &config)
		byRegistry = config.Auths
	case corev1.SecretTypeDockercfg:
		err = json.Unmarshal(secret.Data[corev1.DockerConfigKey], &byRegistry)
	default:
		return nil, fmt.Errorf("the type of Secret %s/%s is %q, and a pull Secret has %s; create it with `kubectl create secret docker-registry`",
			secret.Namespace, secret.Name, secret.Type, corev1.SecretTypeDockerConfigJson)
	}
	if err != nil {
		// The message of the parser would quote a part of the credentials.
		return nil, fmt.Errorf("the content of Secret %s/%s is not valid JSON; create it with `kubectl create secret docker-registry`", secret.Namespace, secret.Name)
	}
	return byRegistry, nil
}

// merged returns the content of one pull Secret with the credentials of all. For a registry that several name, the first counts.
func merged(all []map[string]json.RawMessage) ([]byte, error) {
	auths := map[string]json.RawMessage{}
	for _, config := range all {
		for registry, credential := range config {
			if _, taken := auths[registry]; !taken {
				auths[registry] = credential
			}
		}
	}
	return json.Marshal(map[string]any{"auths": auths})
}
