// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/internal/action/status"
	"liqo.io/liqo/internal/cli/boxes"
	"liqo.io/liqo/internal/cli/output"
	"liqo.io/liqo/internal/cli/peering"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/kube/scheme"
)

// golden compares with testdata/NAME.golden; UPDATE_GOLDEN=1 rewrites it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (UPDATE_GOLDEN=1 rewrites it):\n%s", file, diff)
	}
}

func drawn(boxes ...output.Box) string {
	var text bytes.Buffer
	output.Draw(&text, boxes)
	return text.String()
}

func TestLocalBoxes(t *testing.T) {
	well := status.Local{
		Namespace: status.Namespace{Name: "liqo", Exists: true},
		Components: []status.Component{
			{Kind: "Deployment", Name: "liqo-controller-manager", Found: true, Desired: 1, Ready: 1, Available: 1, Images: []string{"localhost/liqo:v1"}},
			{Kind: "Deployment", Name: "liqo-auth", Found: true, Desired: 1, Ready: 1, Available: 1, Images: []string{"localhost/liqo:v1"}},
		},
		Cluster:   &status.Cluster{ID: "11111111-1111-4111-8111-111111111111", Name: "rome", Labels: map[string]string{"zone": "b", "tier": "gold"}},
		Network:   &status.Network{Status: "External"},
		Endpoints: &status.Endpoints{Authentication: "https://192.0.2.7", APIServer: "https://10.0.0.1:6443"},
	}
	golden(t, "status", drawn(boxes.Local(well, false)...))
	golden(t, "status_verbose", drawn(boxes.Local(well, true)...))
	internal := well
	internal.Components = append(slices.Clone(well.Components),
		status.Component{Kind: "Deployment", Name: "liqo-gateway", Found: true, Desired: 1, Ready: 1, Available: 1, Images: []string{"localhost/liqo:v1"}},
		status.Component{Kind: "Deployment", Name: "liqo-gateway-1", Found: true, Desired: 1, Ready: 1, Available: 1, Images: []string{"localhost/liqo:v1"}},
		status.Component{Kind: "DaemonSet", Name: "liqo-route", Found: true, Desired: 3, Ready: 2, Available: 2, Images: []string{"localhost/liqo:v1"}})
	internal.Network = &status.Network{
		Status: "Internal", PodCIDR: "10.200.0.0/16", ServiceCIDR: "10.80.0.0/12", ExternalCIDR: "10.201.0.0/16",
		ReservedSubnets: []string{"10.1.0.0/16", "10.2.0.0/16"},
	}
	internal.Endpoints = &status.Endpoints{
		Gateways:       []status.GatewayEndpoint{{Lane: 0, URL: "udp://192.0.2.7:5871"}, {Lane: 1, Error: "the load balancer has no address yet"}},
		Authentication: "https://192.0.2.7", APIServer: "https://10.0.0.1:6443",
	}
	golden(t, "status_internal", drawn(boxes.Local(internal, false)...))
	sick := well
	sick.Components = []status.Component{
		{Kind: "Deployment", Name: "liqo-controller-manager"},
		{Kind: "Deployment", Name: "liqo-auth", Found: true, Desired: 2, Ready: 1, Available: 0, Message: "Deployment does not have minimum availability."},
	}
	sick.Cluster = nil
	offloading := well
	offloading.Offloaded = []status.OffloadedNamespace{
		{Namespace: "lab", Phase: "NoClusterSelected", Pods: "Remote"},
		{Namespace: "shop", Phase: "Ready", Pods: "LocalAndRemote", Clusters: []string{"milan", "turin"}, Remote: "shop-rome-111111"},
		{
			Namespace: "web", Phase: "SomeFailed", Pods: "Local", Clusters: []string{"milan"}, Remote: "web",
			Message: "milan: namespace web is there and not ours (CreationLoopBackOff)",
		},
	}
	offloading.Kept = []status.KeptNamespace{{Namespace: "data-turin-333333", ClusterID: "turin-id", State: "no-peer"}}
	golden(t, "status_offloading", drawn(boxes.Local(offloading, false)...))
	golden(t, "status_sick", drawn(boxes.Local(sick, false)...))
	golden(t, "status_missing", drawn(boxes.Local(status.Local{Namespace: status.Namespace{Name: "liqo"}}, false)...))
}

func TestPeerBox(t *testing.T) {
	established := status.Aspect{Status: "Established", Reason: "ResourceRequestAccepted", Message: "the peering is up"}
	none := status.Aspect{Status: "None"}
	peers := []status.Peer{
		{
			Name: "milan", Found: true, ClusterID: "22222222-2222-4222-8222-222222222222", Type: "OutOfBand", Version: "v1.0.0",
			Outgoing: established, Incoming: none, Authentication: established, AuthURL: "https://192.0.2.8",
			APIServer: established, Network: status.Aspect{Status: "External"}, Processing: status.Aspect{Status: "Success"},
			Resources: &status.SharedResources{Acquired: corev1.ResourceList{
				"nvidia.com/gpu": resource.MustParse("2"), corev1.ResourceCPU: resource.MustParse("3500m"), corev1.ResourcePods: resource.MustParse("110"),
				corev1.ResourceMemory: resource.MustParse("7900Mi"), corev1.ResourceEphemeralStorage: resource.MustParse("20Gi"),
				"a.example.org/disk": resource.MustParse("1"),
			}},
		},
		{
			Name: "naples", Found: true, ClusterID: "33333333-3333-4333-8333-333333333333", Type: "OutOfBand",
			Outgoing: status.Aspect{Status: "Pending"}, Incoming: established,
			Authentication: status.Aspect{
				Status: "Denied", Reason: "IdentityDenied",
				Message: "the provider does not accept the token; run `liqoctl generate peer-command` in the other cluster again, and here what it prints",
			},
			APIServer: none, Network: none, Processing: status.Aspect{Status: "Success"},
			Resources: &status.SharedResources{Shared: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
		},
		{Name: "turin"},
	}
	golden(t, "status_peer", drawn(boxes.Peers(peers, false)))
	golden(t, "status_peer_verbose", drawn(boxes.Peers(peers[:1], true)))
	milan := peers[0]
	milan.Network = status.Aspect{Status: "Established", Reason: "Connected", Message: "2 of 2 lanes work"}
	milan.Fabric = &status.PeerNetwork{
		Local:  &status.SeenNetworks{PodCIDR: "10.200.0.0/16", ExternalCIDR: "10.201.0.0/16", RemappedPodCIDR: "10.2.0.0/16", RemappedExternalCIDR: "None"},
		Remote: &status.SeenNetworks{PodCIDR: "10.200.0.0/16", ExternalCIDR: "10.202.0.0/16", RemappedPodCIDR: "10.1.0.0/16", RemappedExternalCIDR: "None"},
		Shown:  "10.2.0.0/16 leads to the pods here, for pods of both clusters",
		Connection: &status.PeerConnection{
			RemoteGateway: "192.0.2.2:5871", Status: "Connected", Message: "2 of 2 lanes", Latency: "1.2ms", MTU: 1420,
			Lanes: []status.PeerLane{{Number: 0, Endpoints: []string{"192.0.2.2:5871", "192.0.2.3:5871"}}, {Number: 1}},
		},
	}
	early := milan
	early.Fabric = &status.PeerNetwork{Local: &status.SeenNetworks{PodCIDR: "10.200.0.0/16", ExternalCIDR: "10.201.0.0/16"}}
	golden(t, "status_peer_network", drawn(boxes.Peers([]status.Peer{milan}, false)))
	golden(t, "status_peer_network_verbose", drawn(boxes.Peers([]status.Peer{milan, early}, true)))
	used := peers[0]
	used.Offloaded = []status.RemoteNamespace{
		{Namespace: "shop", Remote: "shop-rome-111111", Phase: "Accepted"},
		{Namespace: "web", Remote: "web", Phase: "CreationLoopBackOff", Message: "namespace web is there and not ours"},
	}
	used.Hosted = []status.RemoteNamespace{{Namespace: "data", Remote: "data-milan-222222", Phase: "Accepted"}}
	used.Volumes = []status.RemoteVolume{
		{Claim: "shop/data", Size: "1Gi", StorageClass: "disk", Volume: "pvc-1"},
		{Claim: "shop/new", Size: "2Gi", StorageClass: "disk"},
		{Claim: "shop/old", Size: "3Gi", StorageClass: "disk", Deleted: true},
	}
	golden(t, "status_peer_offloading", drawn(boxes.Peers([]status.Peer{used}, false)))
	golden(t, "status_peer_none", drawn(boxes.Peers(nil, false)))
}

// run executes a command line.
func run(t *testing.T, in string, args ...string) (code int, out, errOut string) {
	t.Helper()
	streams, stdin, stdout, stderr := genericiooptions.NewTestIOStreams()
	stdin.WriteString(in)
	code = Run(t.Context(), streams, append([]string{"liqoctl"}, args...))
	return code, stdout.String(), stderr.String()
}

func TestPeeringCommandsRefuse(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv(peering.TokenVariable, "")
	if err := os.Unsetenv(peering.TokenVariable); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args string
		want string
	}{
		"unknown context":       {"--context nowhere status", `"nowhere"`},
		"unknown context, peer": {"--context nowhere peer milan", `"nowhere"`},
		"unreachable API":       {"--server https://127.0.0.1:1 status", "127.0.0.1:1"},
		"unreachable API, peer": {"--server https://127.0.0.1:1 peer out-of-band milan --auth-url https://a --cluster-id b --auth-token c", "127.0.0.1:1"},
		"generate, unreachable": {"--server https://127.0.0.1:1 generate peer-command", "127.0.0.1:1"},
		"unpeer, unreachable":   {"--server https://127.0.0.1:1 unpeer oob milan", "127.0.0.1:1"},
		"no name":               {"peer", "name of one cluster"},
		"two names":             {"unpeer oob a b", "name of one cluster"},
		"no token":              {"peer oob milan --auth-url https://a --cluster-id b", peering.TokenVariable},
		"no flags":              {"peer oob milan", `"auth-url", "cluster-id"`},
		"in-band":               {"peer in-band --remote-context x --bidirectional", "(remote) kubeconfig"},
		"half an invitation":    {"peer in-band milan --invitation x", "as it was printed"},
		"no invitation":         {"peer in-band milan --cluster-id y --auth-token z --remote-context w", "add --invitation"},
		"an invitation to both": {"peer in-band milan --invitation x --cluster-id y --auth-token z --remote-context w", "as it was printed"},
		"a bad invitation":      {"peer in-band milan --invitation x --cluster-id y --auth-token z", "not an invitation"},
		"invite, unreachable":   {"--server https://127.0.0.1:1 generate peer-command --in-band", "127.0.0.1:1"},
		"unpeer in-band":        {"unpeer ib --remote-context x", "(remote) kubeconfig"},
		"format":                {"status -o xml", `"xml"`},
		"format, peer":          {"status peer -o xml", `"xml"`},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errOut := run(t, "", strings.Fields(test.args)...)
			if code != 1 || out != "" || !strings.Contains(errOut, "ERRO") || !strings.Contains(errOut, test.want) {
				t.Errorf("exit code %d\n%s%s", code, out, errOut)
			}
		})
	}
}

func kubeconfig(t *testing.T, config *rest.Config) string {
	t.Helper()
	content := clientcmdapi.NewConfig()
	content.Clusters["c"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	content.AuthInfos["c"] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	content.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}
	content.CurrentContext = "c"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*content, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestPeeringCommands runs what reads a cluster against a real API server, as users type it.
func TestPeeringCommands(t *testing.T) {
	config := kubetest.Fresh(t)
	t.Setenv("KUBECONFIG", kubeconfig(t, config))
	if code, _, errOut := run(t, "", "status", "peer"); code != 1 || !strings.Contains(errOut, "not installed") {
		t.Errorf("status peer without Liqo: %d %s", code, errOut)
	}
	if code, out, errOut := run(t, "", "status"); code != 1 || !strings.Contains(out, "does not exist") || !strings.Contains(errOut, "a check failed") {
		t.Errorf("status without Liqo: %d %s%s", code, out, errOut)
	}
	definitions := envtest.CRDInstallOptions{Paths: []string{filepath.Join("..", "..", "deployments", "liqo", "crds")}}
	if _, err := envtest.InstallCRDs(config, definitions); err != nil {
		t.Fatal(err)
	}
	known, err := scheme.All()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: known})
	if err != nil {
		t.Fatal(err)
	}
	keys := clusterkey.Keys{Current: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))}
	inLiqo := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "liqo", Name: name} }
	identity := &corev1.ConfigMap{
		ObjectMeta: inLiqo("liqo-clusterid-configmap"),
		Data:       map[string]string{"CLUSTER_ID": "11111111-1111-4111-8111-111111111111", "CLUSTER_NAME": "rome"},
	}
	identity.Labels = map[string]string{"app.kubernetes.io/name": "clusterid-configmap"}
	service := &corev1.Service{ObjectMeta: inLiqo("liqo-auth"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}}}
	service.Annotations = map[string]string{"liqo.io/override-address": "auth.example.org", "liqo.io/override-port": "8443"}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}}, identity, service,
		&corev1.Secret{ObjectMeta: inLiqo("auth-token"), Data: map[string][]byte{"token": []byte("abc")}},
		&corev1.Secret{ObjectMeta: inLiqo(clusterkey.Secret), Data: keys.Data()},
		&discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}},
		&discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "naples"}},
	} {
		if err := c.Create(context.Background(), object); err != nil {
			t.Fatal(err)
		}
	}
	command := "liqoctl peer out-of-band rome --auth-url https://auth.example.org:8443 --cluster-id 11111111-1111-4111-8111-111111111111 --auth-token abc." +
		keys.Fingerprint() + "\n"
	for args, want := range map[string]string{
		"generate peer-command --shared --only-command": command,
		"generate peer-command --shared":                "\nTo let another cluster use the resources of this one, run there:\n\n" + command,
		"__complete peer m":                             "milan\n:4\n",
		"__complete unpeer out-of-band n":               "naples\n:4\n",
		"__complete status peer milan ":                 "naples\n:4\n",
	} {
		words := strings.Split(args, " ")
		if code, out, errOut := run(t, "", words...); code != 0 || out != want {
			t.Errorf("%s: %d\n%q, want\n%q\n%s", args, code, out, want, errOut)
		}
	}
	own := regexp.MustCompile("^" + strings.Replace(regexp.QuoteMeta(command), "abc", "[0-9a-f]{64}", 1) + "$")
	if code, out, errOut := run(t, "", "generate", "peer-command", "--only-command"); code != 0 || !own.MatchString(out) {
		t.Errorf("a command for one cluster: %d\n%q\n%s", code, out, errOut)
	}
	if code, out, _ := run(t, "", "status", "-o", "yaml"); code != 1 ||
		!strings.Contains(out, "name: liqo-controller-manager\n") || !strings.Contains(out, "status: External") {
		t.Errorf("status as YAML: %d\n%s", code, out)
	}
	if code, out, _ := run(t, "", "status", "peer", "-o", "json", "milan"); code != 0 ||
		!strings.Contains(out, `"name": "milan"`) || strings.Contains(out, "naples") {
		t.Errorf("status peer as JSON: %d\n%s", code, out)
	}
	if code, out, errOut := run(t, "", "status", "peer", "turin"); code != 1 || !strings.Contains(out, "Peer Not Found") || !strings.Contains(errOut, "turin") {
		t.Errorf("status of an unknown peer: %d\n%s%s", code, out, errOut)
	}
}
