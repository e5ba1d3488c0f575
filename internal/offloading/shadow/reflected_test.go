// SPDX-License-Identifier: Apache-2.0

package shadow_test

import (
	"encoding/json"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/reflection/project"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
	"liqo.io/liqo/internal/offloading/shadow"
)

// scheduled is a pod with the defaults of an API server, and with fields of users that have a meaning only in their own cluster.
const scheduled = `
metadata:
  name: web
  namespace: shop
  uid: 6a3f
  labels: {app: web, liqo.io/shadowPod: "true"}
  annotations: {kubernetes.io/config.seen: x, note: y, k8s.v1.cni.cncf.io/networks: storage}
spec:
  nodeName: liqo-milan
  nodeSelector: {liqo.io/type: virtual-node}
  schedulerName: default-scheduler
  priority: 1000
  priorityClassName: high
  preemptionPolicy: PreemptLowerPriority
  runtimeClassName: gvisor
  overhead: {cpu: 10m}
  hostNetwork: true
  hostPID: true
  serviceAccountName: shop
  serviceAccount: shop
  automountServiceAccountToken: true
  resourceClaims: [{name: gpu, resourceClaimName: gpu}]
  affinity:
    nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: liqo.io/type, operator: Exists}]}]}}
    podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {matchLabels: {app: web}}}]}
    podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {matchLabels: {app: web}}, namespaces: [shop]}]}
  tolerations:
  - {key: virtual-node.liqo.io/not-allowed, operator: Exists}
  - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}
  containers:
  - name: web
    image: web:1
    resources: {claims: [{name: gpu}]}
    ports: [{containerPort: 80, hostPort: 80}]
    volumeMounts: [{name: kube-api-access-x, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}]
  volumes:
  - name: kube-api-access-x
    projected:
      sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3607}
      - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
      - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
`

// TestProviderAccepts: the provider accepts what the reflection of a consumer creates, and what it changes later.
func TestProviderAccepts(t *testing.T) {
	mapping := project.NamespaceMapping{LocalID: "rome-id", LocalName: "rome", RemoteID: "milan-id", NodeName: "liqo-milan", Local: "shop", Remote: "shop-rome"}
	server := podspec.APIServer{Enabled: true, Address: netip.MustParseAddr("10.80.0.1"), ServicePort: "443"}
	for name, options := range map[string]podspec.Options{"without API server": {}, "with API server": {APIServer: server}} {
		var local corev1.Pod
		if err := yaml.UnmarshalStrict([]byte(scheduled), &local); err != nil {
			t.Fatal(err)
		}
		made := projected(t, mapping, &local, options)
		if problem := shadow.Check(made, "rome-id", shadow.Baseline); problem != "" {
			t.Errorf("%s: refused: %s", name, problem)
		}
		if problem := shadow.Check(made, "turin-id", shadow.Baseline); problem == "" {
			t.Errorf("%s: accepted in the namespace of another cluster", name)
		}

		// The image changes, and the address of the API server too: only the image can change in an existing pod.
		local.Spec.Containers[0].Image = "web:2"
		moved := server
		moved.Address = netip.MustParseAddr("10.81.0.1")
		again := projected(t, mapping, &local, podspec.Options{APIServer: moved})
		if problem := shadow.CheckUpdate(made, again); problem == "" {
			t.Errorf("%s: an immutable change was accepted", name)
		}
		again.Spec.Pod = *podspec.Amended(&made.Spec.Pod, &again.Spec.Pod)
		if problem := shadow.CheckUpdate(made, again); problem != "" || again.Spec.Pod.Containers[0].Image != "web:2" {
			t.Errorf("%s: change refused: %s", name, problem)
		}
		if problem := shadow.Check(again, "rome-id", shadow.Baseline); problem != "" {
			t.Errorf("%s: refused after a change: %s", name, problem)
		}
	}
}

func projected(t *testing.T, mapping project.NamespaceMapping, local *corev1.Pod, options podspec.Options) *vkv1alpha1.ShadowPod {
	t.Helper()
	intent, err := podspec.ShadowPod(mapping, local, options)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(intent)
	if err != nil {
		t.Fatal(err)
	}
	var shadowPod vkv1alpha1.ShadowPod
	if err := json.Unmarshal(text, &shadowPod); err != nil {
		t.Fatal(err)
	}
	return &shadowPod
}
