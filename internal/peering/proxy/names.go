// SPDX-License-Identifier: Apache-2.0

package proxy

import discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"

// The names under which peers reach a cluster through its proxy. They are the same for each cluster, so a peer needs to know nothing of what is behind.
const (
	// Service is the name of the Service of the proxy, and Port its port.
	Service = "liqo-proxy"
	Port    = discoveryv1alpha1.ProxyPort
	// KeySecret is the Secret, in the install namespace, with the key from which passes are derived, and KeyName the key in it.
	KeySecret = "liqo-proxy-key"
	KeyName   = "key"

	// APIServerURL is the URL of the API server. Its certificate has this name, because pods use it.
	APIServerURL = "https://kubernetes.default.svc"

	// APIServer and Auth are what clients ask the proxy for: the hosts of APIServerURL, and of AuthURLInside of the API.
	APIServer = "kubernetes.default.svc:443"
	Auth      = "liqo-auth:443"
)
