// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/test/env"
)

// identity is what a consumer holds of a provider: the Secret in its own cluster.
func identity(t testing.TB, c, provider *env.Cluster) (token, url, namespace string) {
	t.Helper()
	var all corev1.SecretList
	if err := c.API.List(context.Background(), &all, client.MatchingLabels{labels.LocalIdentity: "true"}); err != nil {
		t.Fatal(err)
	}
	fc := c.Foreign(t, provider)
	if fc == nil {
		t.Fatalf("%s has no ForeignCluster %s", c.Name, provider.Name)
	}
	for _, secret := range all.Items {
		if secret.Namespace == fc.Status.TenantNamespace.Local {
			return string(secret.Data["token"]), string(secret.Data["apiServerUrl"]), string(secret.Data["namespace"])
		}
	}
	t.Fatalf("no Secret in namespace %q of %s is labelled %s", fc.Status.TenantNamespace.Local, c.Name, labels.LocalIdentity)
	return "", "", ""
}

// call sends one request with the identity of a peer.
func call(t testing.TB, provider *env.Cluster, token, method, path, body string) (int, string) {
	t.Helper()
	config := rest.AnonymousClientConfig(provider.Config())
	config.BearerToken = token
	http1, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequest(method, strings.TrimSuffix(provider.Config().Host, "/")+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	kind := "application/json"
	if method == http.MethodPatch {
		kind = "application/merge-patch+json"
	}
	request.Header.Set("Content-Type", kind)
	response, err := http1.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 2000))
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// hostilePeer tries with the identity that a consumer gets what it must not be able to do.
func hostilePeer(t *testing.T) {
	token, _, own := identity(t, rome, milan)
	status, text := call(t, milan, token, http.MethodGet, "/apis/sharing.liqo.io/v1alpha1/namespaces/"+own+"/resourceslices", "")
	if status != http.StatusOK {
		t.Fatalf("the identity cannot even read its own slices, so this test proves nothing: %d %s", status, text)
	}
	const core, rbac, nets = "/api/v1", "/apis/rbac.authorization.k8s.io/v1", "/apis/net.liqo.io/v1alpha1"
	agreed, err := tunnels(milan)
	if err != nil || len(agreed.Items) != 1 {
		t.Fatalf("milan has the tunnels %v, want one: %v", agreed.Items, err)
	}
	tunnel, node := agreed.Items[0].Name, milan.Nodes[0].Name
	object := func(kind, name string) string {
		return fmt.Sprintf(`{"kind":%q,"metadata":{"name":%q}}`, kind, name)
	}
	pod := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"evil"},"spec":{"containers":[{"name":"c","image":"playground.local/demo:1"}]}}`
	binding := `{"kind":"ClusterRoleBinding","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{"name":"evil"},` +
		`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"kind":"ServiceAccount",` +
		`"name":"liqo-peer","namespace":"` + own + `"}]}`
	tokens := `{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","spec":{"audiences":[]}}`
	forbidden := []struct{ method, path, body string }{
		{"GET", core + "/secrets", ""},
		{"GET", core + "/namespaces/kube-system/secrets", ""},
		{"GET", core + "/namespaces/liqo/secrets", ""},
		{"GET", core + "/namespaces/liqo/secrets/auth-token", ""},
		{"GET", core + "/namespaces/" + own + "/secrets", ""},
		{"POST", core + "/namespaces/" + own + "/secrets", object("Secret", "evil")},
		{"GET", core + "/namespaces/liqo/configmaps", ""},
		{"GET", core + "/namespaces/kube-system/configmaps/kubeadm-config", ""},
		{"POST", core + "/namespaces/liqo/configmaps", object("ConfigMap", "peer-key-evil")},
		{"POST", core + "/namespaces/" + own + "/configmaps", object("ConfigMap", "evil")},
		{"GET", core + "/pods", ""},
		{"GET", core + "/namespaces/" + own + "/pods", ""},
		{"POST", core + "/namespaces/" + own + "/pods", pod},
		{"POST", core + "/namespaces/default/pods", pod},
		{"POST", core + "/namespaces/liqo/pods", pod},
		{"GET", core + "/nodes", ""},
		{"POST", core + "/nodes", object("Node", "evil")},
		{"PATCH", core + "/nodes/" + node + "", `{"spec":{"unschedulable":true}}`},
		{"GET", core + "/nodes/" + node + "/proxy/pods", ""},
		{"GET", core + "/namespaces", ""},
		{"POST", core + "/namespaces", object("Namespace", "evil")},
		{"PATCH", core + "/namespaces/" + own, `{"metadata":{"labels":{"discovery.liqo.io/cluster-id":"another"}}}`},
		{"DELETE", core + "/namespaces/" + own, ""},
		{"GET", core + "/namespaces/" + own + "/serviceaccounts", ""},
		{"POST", core + "/namespaces/" + own + "/serviceaccounts", object("ServiceAccount", "evil")},
		{"POST", core + "/namespaces/" + own + "/serviceaccounts/liqo-peer/token", tokens},
		{"POST", core + "/namespaces/liqo/serviceaccounts/liqo-controller-manager/token", tokens},
		{"POST", core + "/namespaces/kube-system/serviceaccounts/default/token", tokens},
		{"GET", rbac + "/clusterroles", ""},
		{"POST", rbac + "/clusterrolebindings", binding},
		{"GET", rbac + "/namespaces/" + own + "/rolebindings", ""},
		{"POST", rbac + "/namespaces/" + own + "/rolebindings", strings.ReplaceAll(binding, "ClusterRoleBinding", "RoleBinding")},
		{"POST", rbac + "/namespaces/" + own + "/roles", object("Role", "evil")},
		{"DELETE", rbac + "/namespaces/" + own + "/rolebindings/liqo-binding-liqo-remote-peering-basic", ""},
		{"GET", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", ""},
		{"POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", object("ValidatingWebhookConfiguration", "evil")},
		{"GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", ""},
		{"POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests", object("CertificateSigningRequest", "evil")},
		{"POST", "/apis/apps/v1/namespaces/" + own + "/deployments", object("Deployment", "evil")},
		{"POST", "/apis/batch/v1/namespaces/" + own + "/jobs", object("Job", "evil")},
		{"GET", "/apis/discovery.liqo.io/v1alpha1/foreignclusters", ""},
		{"PATCH", "/apis/discovery.liqo.io/v1alpha1/foreignclusters/rome", `{"spec":{"incomingPeeringEnabled":"Yes"}}`},
		{"GET", "/apis/sharing.liqo.io/v1alpha1/resourceslices", ""},
		{"GET", "/apis/sharing.liqo.io/v1alpha1/namespaces/default/resourceslices", ""},
		{"PATCH", "/apis/sharing.liqo.io/v1alpha1/namespaces/" + own + "/resourceslices/rome/status", `{"status":{"resources":{"cpu":"1000"}}}`},
		{"GET", nets + "/networkconfigs", ""},
		{"GET", nets + "/namespaces/default/networkconfigs", ""},
		{"GET", nets + "/namespaces/liqo/networkconfigs", ""},
		{"POST", nets + "/namespaces/default/networkconfigs", object("NetworkConfig", "evil")},
		{"POST", nets + "/namespaces/liqo/networkconfigs", object("NetworkConfig", "evil")},
		{"DELETE", nets + "/namespaces/" + own + "/networkconfigs", ""},
		{"GET", nets + "/tunnelendpoints", ""},
		{"GET", nets + "/namespaces/" + own + "/tunnelendpoints", ""},
		{"POST", nets + "/namespaces/" + own + "/tunnelendpoints", object("TunnelEndpoint", "evil")},
		{"DELETE", nets + "/namespaces/" + own + "/tunnelendpoints", ""},
		{"PATCH", nets + "/namespaces/" + own + "/tunnelendpoints/" + tunnel, `{"spec":{"remotePodCIDR":"10.0.0.0/8"}}`},
		{"PATCH", nets + "/namespaces/" + own + "/tunnelendpoints/" + tunnel + "/status", `{"status":{"connection":{"status":"Connected"}}}`},
		{"GET", nets + "/ipmappings", ""},
		{"POST", nets + "/ipmappings", `{"kind":"IPMapping","apiVersion":"net.liqo.io/v1alpha1","metadata":{"name":"evil"},"spec":{"address":"10.0.0.1"}}`},
		{"GET", core + "/namespaces/liqo/secrets/liqo-gateway-keys", ""},
		{"PATCH", core + "/namespaces/liqo/secrets/liqo-gateway-keys", `{"metadata":{"annotations":{"net.liqo.io/rotate-keys":"now"}}}`},
		{"GET", core + "/namespaces/liqo/services", ""},
		{"PATCH", "/apis/apps/v1/namespaces/liqo/deployments/liqo-gateway", `{"spec":{"replicas":0}}`},
		{"PATCH", "/apis/apps/v1/namespaces/liqo/daemonsets/liqo-route", `{"metadata":{"labels":{"evil":"true"}}}`},
		{"POST", "/apis/virtualkubelet.liqo.io/v1alpha1/namespaces/default/shadowpods", object("ShadowPod", "evil")},
		{"POST", "/apis/authentication.k8s.io/v1/tokenreviews", object("TokenReview", "evil")},
		{"GET", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", ""},
		{"GET", "/metrics", ""},
		{"GET", core + "/nodes/worker/proxy/metrics/resource", ""},
		{"GET", "/apis/metrics.liqo.io/v1alpha1/namespaces/liqo/scrape/evil/metrics/resource", ""},
		{"GET", "/logs/", ""},

		// Keys and tokens of the provider.
		{"GET", core + "/namespaces/liqo/secrets/liqo-cluster-key", ""},
		{"GET", core + "/namespaces/liqo/secrets/liqo-peering-key", ""},
		{"GET", core + "/namespaces/liqo/secrets/liqo-peer-tokens", ""},
		{"PATCH", core + "/namespaces/liqo/secrets/liqo-peer-tokens", `{"data":{}}`},
		{"DELETE", core + "/namespaces/liqo/secrets", ""},
		{"DELETE", core + "/namespaces/liqo/configmaps", ""},
		// The decision about the peer itself.
		{"POST", "/apis/discovery.liqo.io/v1alpha1/foreignclusters", object("ForeignCluster", "evil")},
		{"DELETE", "/apis/discovery.liqo.io/v1alpha1/foreignclusters/rome", ""},
		{"PATCH", "/apis/discovery.liqo.io/v1alpha1/foreignclusters/rome/status", `{"status":{"incoming":{"state":"Accepted"}}}`},
		{
			"PATCH", "/apis/virtualkubelet.liqo.io/v1alpha1/namespaces/" + own + "/namespacemaps/rome/status",
			`{"status":{"currentMapping":{"a":{"remoteNamespace":"kube-system","phase":"Accepted"}}}}`,
		},
		{"GET", "/apis/virtualkubelet.liqo.io/v1alpha1/namespacemaps", ""},
		{"GET", "/apis/virtualkubelet.liqo.io/v1alpha1/shadowpods", ""},
		{"POST", "/apis/virtualkubelet.liqo.io/v1alpha1/namespaces/" + own + "/shadowpods", object("ShadowPod", "evil")},
		{"POST", "/apis/virtualkubelet.liqo.io/v1alpha1/namespaces/kube-system/shadowendpointslices", object("ShadowEndpointSlice", "evil")},
		{"GET", "/apis/offloading.liqo.io/v1alpha1/namespaceoffloadings", ""},
		{"POST", "/apis/offloading.liqo.io/v1alpha1/namespaces/default/namespaceoffloadings", object("NamespaceOffloading", "offloading")},
		// What bounds it: quotas, limits, priorities, policies.
		{"GET", core + "/namespaces/" + own + "/resourcequotas", ""},
		{"DELETE", core + "/namespaces/" + own + "/resourcequotas", ""},
		{"DELETE", core + "/namespaces/" + own + "/limitranges", ""},
		{"POST", "/apis/scheduling.k8s.io/v1/priorityclasses", object("PriorityClass", "evil")},
		{"GET", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", ""},
		{"POST", "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations", object("PriorityLevelConfiguration", "evil")},
		{"GET", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", ""},
		{"DELETE", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/liqo-peers", ""},
		{"DELETE", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/liqo-peers", ""},
		{"DELETE", "/apis/networking.k8s.io/v1/namespaces/" + own + "/networkpolicies", ""},
		{"POST", "/apis/networking.k8s.io/v1/namespaces/liqo/networkpolicies", object("NetworkPolicy", "evil")},
		// Other ways to run something, or to get into what runs.
		{"POST", "/apis/apps/v1/namespaces/" + own + "/daemonsets", object("DaemonSet", "evil")},
		{"POST", "/apis/apps/v1/namespaces/" + own + "/statefulsets", object("StatefulSet", "evil")},
		{"POST", "/apis/apps/v1/namespaces/" + own + "/replicasets", object("ReplicaSet", "evil")},
		{"POST", "/apis/batch/v1/namespaces/" + own + "/cronjobs", object("CronJob", "evil")},
		{"POST", core + "/namespaces/" + own + "/replicationcontrollers", object("ReplicationController", "evil")},
		{"POST", core + "/namespaces/" + own + "/podtemplates", object("PodTemplate", "evil")},
		{"PATCH", "/apis/apps/v1/namespaces/liqo/deployments/liqo-controller-manager", `{"spec":{"replicas":0}}`},
		{"PATCH", "/apis/apps/v1/namespaces/liqo/deployments/liqo-controller-manager/scale", `{"spec":{"replicas":0}}`},
		{"GET", core + "/namespaces/kube-system/pods/etcd/log", ""},
		{"POST", core + "/namespaces/kube-system/pods/etcd/exec?command=sh&stdin=true", ""},
		{"POST", core + "/namespaces/liqo/pods/evil/eviction", object("Eviction", "evil")},
		{"PATCH", core + "/namespaces/kube-system/pods/etcd/ephemeralcontainers", `{"spec":{"ephemeralContainers":[]}}`},
		{"DELETE", core + "/namespaces/kube-system/pods", ""},
		// The cluster's own machinery.
		{"PATCH", core + "/nodes/" + node + "/status", `{"status":{"conditions":[]}}`},
		{"DELETE", core + "/nodes/" + node, ""},
		{"PUT", core + "/namespaces/" + own + "/finalize", object("Namespace", own)},
		{"GET", core + "/persistentvolumes", ""},
		{"POST", core + "/persistentvolumes", object("PersistentVolume", "evil")},
		{"POST", core + "/namespaces/" + own + "/persistentvolumeclaims", object("PersistentVolumeClaim", "evil")},
		{"POST", core + "/namespaces/default/persistentvolumeclaims", object("PersistentVolumeClaim", "evil")},
		{"GET", core + "/persistentvolumeclaims", ""},
		{"POST", "/apis/storage.k8s.io/v1/storageclasses", object("StorageClass", "evil")},
		{"POST", "/apis/apiregistration.k8s.io/v1/apiservices", object("APIService", "v1.evil")},
		{"PATCH", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/shadowpods.virtualkubelet.liqo.io", `{"spec":{"scope":"Cluster"}}`},
		{"PUT", "/apis/certificates.k8s.io/v1/certificatesigningrequests/evil/approval", object("CertificateSigningRequest", "evil")},
		{"POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", object("SubjectAccessReview", "evil")},
		{"POST", rbac + "/clusterroles", object("ClusterRole", "evil")},
		{"PATCH", rbac + "/clusterroles/liqo-remote-peering-basic", `{"rules":[]}`},
		{"GET", core + "/services", ""},
		{"GET", core + "/namespaces/default/endpoints", ""},
		{"GET", core + "/namespaces/kube-system/events", ""},
		{"GET", "/apis/metrics.k8s.io/v1beta1/nodes", ""},
		{"GET", "/debug/pprof/", ""},
	}
	if len(forbidden) < 120 {
		t.Fatalf("only %d calls", len(forbidden))
	}
	for _, f := range forbidden {
		if status, text := call(t, milan, token, f.method, f.path, f.body); status != http.StatusForbidden {
			t.Errorf("%s %s: %d, want 403\n%s", f.method, f.path, status, text)
		}
	}
	hostileNeighbour(t, token, own)
	clusters.Measure("hostile peer: calls that answer Forbidden", "%d", len(forbidden)+hostileNetwork(t, token, own))
}

// denied reports whether a call was refused: of RBAC, or of the policy for peers, which has another code.
func denied(status int, text string) bool {
	return status == http.StatusForbidden || status == http.StatusUnprocessableEntity && strings.Contains(text, "ValidatingAdmissionPolicy 'liqo-peers'")
}

// hostileNetwork: the network configurations of both clusters are in one namespace, in which the peer may write. It must not change
// ours: neither our description of our network, nor our answer to its own. It returns the number of calls.
func hostileNetwork(t *testing.T, token, own string) int {
	t.Helper()
	path := "/apis/net.liqo.io/v1alpha1/namespaces/" + own + "/networkconfigs"
	if status, text := call(t, milan, token, http.MethodGet, path, ""); status != http.StatusOK {
		t.Fatalf("the identity cannot even read the network configurations, so this test proves nothing: %d %s", status, text)
	}
	all, err := networkConfigs(milan)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := "", ""
	for _, one := range all.Items {
		switch {
		case one.Namespace != own:
		case one.Labels[labels.Replicated] == "true":
			theirs = one.Name
		default:
			ours = one.Name
		}
	}
	if ours == "" || theirs == "" {
		t.Fatalf("the network configurations in namespace %s are %q of ours and %q of the peer's, want both", own, ours, theirs)
	}
	evil := `{"apiVersion":"net.liqo.io/v1alpha1","kind":"NetworkConfig","metadata":{"name":"evil","labels":{"liqo.io/replication":"true",` +
		`"liqo.io/remoteID":"x"}},"spec":{` +
		`"cluster":{"clusterID":"x","clusterName":"x"},"podCIDR":"10.0.0.0/16","externalCIDR":"10.1.0.0/16","endpointIP":"192.0.2.7",` +
		`"backendType":"wireguard","backend_config":{}}}`
	answer := `{"status":{"processed":true,"podCIDRNAT":"10.0.0.0/16","externalCIDRNAT":"None"}}`
	calls := []struct{ method, path, body string }{
		{"POST", path, evil},
		{"POST", path, strings.Replace(evil, `"liqo.io/replication":"true"`, `"liqo.io/replication":"false","liqo.io/replicated":"true"`, 1)}, // one more copy
		{"PATCH", path + "/" + theirs + "/status", answer},
		{"PATCH", path + "/" + theirs, `{"metadata":{"labels":{"liqo.io/replicated":"false","liqo.io/replication":"true"}}}`},
		{"PATCH", path + "/" + theirs, `{"metadata":{"labels":{"liqo.io/replicated":null}}}`},
		{"PATCH", path + "/" + theirs, `{"metadata":{"finalizers":["x.example/hold"]}}`},
		{"PATCH", path + "/" + ours, `{"spec":{"endpointIP":"192.0.2.8"}}`},
		{"PATCH", path + "/" + ours, `{"spec":{"podCIDR":"10.0.0.0/8"}}`},
		{"PATCH", path + "/" + ours, `{"metadata":{"labels":{"liqo.io/replicated":"true","liqo.io/replication":"false"}}}`},
		{"PATCH", path + "/" + ours, `{"metadata":{"annotations":{"x.example/a":"b"}}}`},
		{"PATCH", path + "/" + ours, `{"metadata":{"finalizers":["x.example/hold"]}}`},
		{"DELETE", path + "/" + ours, ""},
	}
	for _, f := range calls {
		if status, text := call(t, milan, token, f.method, f.path, f.body); !denied(status, text) {
			t.Errorf("%s %s %s: %d, want a refusal\n%s", f.method, f.path, f.body, status, text)
		}
	}
	milan.WantColumns(t, rome, "None Established Established Established")
	return len(calls)
}

// hostileNeighbour: in a bidirectional peering, the provider's own request to the peer lies in the same namespace as
// the peer's request. The peer has rights on the kind, and must not have them on that object.
func hostileNeighbour(t *testing.T, token, own string) {
	t.Helper()
	const slices = "/apis/sharing.liqo.io/v1alpha1/namespaces/"
	name := fmt.Sprintf(`{"apiVersion":"sharing.liqo.io/v1alpha1","kind":"ResourceSlice","metadata":{"name":"ours","namespace":%q,`+
		`"labels":{"liqo.io/replication":"true"}},"spec":{"consumerClusterID":"a","providerClusterID":"b","nodeName":"n"}}`, own)
	if result := milan.TryKubectl(name, "apply", "-f", "-"); result.Code != 0 {
		t.Fatal(result)
	}
	defer milan.Kubectl(t, "-n", own, "delete", "resourceslices.sharing.liqo.io", "ours")
	path := slices + own + "/resourceslices"
	for _, f := range []struct{ method, path, body string }{
		{"DELETE", path + "/ours", ""},
		{"PATCH", path + "/ours", `{"metadata":{"labels":{"liqo.io/replicated":"true","liqo.io/replication":"false"}}}`},
		{"PATCH", path + "/ours", `{"metadata":{"annotations":{"liqo.io/force-unpeer":"true"}}}`},
		{"POST", path, strings.ReplaceAll(name, `"ours"`, `"evil"`)},
		{"PATCH", path + "/rome", `{"metadata":{"finalizers":null}}`},
		{"PATCH", path + "/rome", `{"metadata":{"finalizers":["liqo.io/grant","x.example/hold"]}}`},
	} {
		if status, text := call(t, milan, token, f.method, f.path, f.body); !denied(status, text) {
			t.Errorf("%s %s %s: %d, want a refusal\n%s", f.method, f.path, f.body, status, text)
		}
	}
}
