// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// betweenChecks are checks of several clusters with the same networks.
var betweenChecks = []struct {
	name string
	do   func(t *testing.T, clusters ...cluster)
}{
	{"api_from_pods_and_host", apiFromEverywhere},
	{"node_port_from_other_cluster", nodePortFromOtherCluster},
	{"kubeconfigs_merge", kubeconfigsMerge},
	{"networks_are_published", networksArePublished},
}

// access is what a kubeconfig holds.
type access struct {
	Server        string
	ca, cert, key []byte
}

func readAccess(t testing.TB, c cluster) access {
	t.Helper()
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string
				CA     string `json:"certificate-authority-data"`
			}
		}
		Users []struct {
			User struct {
				Cert string `json:"client-certificate-data"`
				Key  string `json:"client-key-data"`
			}
		}
	}
	text := c.kubectl(t, "config", "view", "--raw", "-o", "json")
	if err := json.Unmarshal([]byte(text), &config); err != nil || len(config.Clusters) != 1 || len(config.Users) != 1 {
		t.Fatalf("kubeconfig of %s: want one cluster and one user (%v): %s", c.Name, err, text)
	}
	a := access{Server: config.Clusters[0].Cluster.Server}
	for _, part := range []struct {
		into *[]byte
		text string
	}{{&a.ca, config.Clusters[0].Cluster.CA}, {&a.cert, config.Users[0].User.Cert}, {&a.key, config.Users[0].User.Key}} {
		data, err := base64.StdEncoding.DecodeString(part.text)
		if err != nil || len(data) == 0 {
			t.Fatalf("kubeconfig of %s has no inline certificates and key (%v)", c.Name, err)
		}
		*part.into = data
	}
	return a
}

func apiFromEverywhere(t *testing.T, clusters ...cluster) {
	for _, to := range clusters {
		a := readAccess(t, to)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(a.ca)
		own, err := tls.X509KeyPair(a.cert, a.key)
		if err != nil {
			t.Fatal(err)
		}
		host := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12},
		}}
		if response, err := host.Get(a.Server + "/api/v1/namespaces/" + fixtureNS); err != nil {
			t.Errorf("from the host to %s: %v", to.Name, err)
		} else if _ = response.Body.Close(); response.StatusCode != http.StatusOK {
			t.Errorf("from the host to %s: %s", to.Name, response.Status)
		}
		for _, from := range clusters {
			f := fixtures[from.Name]
			for _, tool := range f.tools {
				script := fmt.Sprintf(`umask 077; d=$(mktemp -d); cd $d; trap "rm -r $d" EXIT
echo %s | base64 -d >ca; echo %s | base64 -d >cert; echo %s | base64 -d >key
curl --silent --show-error --max-time 10 --cacert ca --cert cert --key key -o /dev/null -w "%%{http_code}" %s/api/v1/namespaces/%s`,
					base64.StdEncoding.EncodeToString(a.ca), base64.StdEncoding.EncodeToString(a.cert), base64.StdEncoding.EncodeToString(a.key), a.Server, fixtureNS)
				if code := f.exec(t, tool, "sh", "-c", script); code != "200" {
					t.Errorf("from pod %s of %s to the API server of %s: %s, want 200", tool, from.Name, to.Name, code)
				}
			}
		}
	}
}

func nodePortFromOtherCluster(t *testing.T, clusters ...cluster) {
	for _, from := range clusters {
		for _, to := range clusters {
			f := fixtures[from.Name]
			for node, address := range to.nodes() {
				a := decode(t, f.curl(t, f.tool(), "http://"+address+":"+fixtures[to.Name].nodePort+"/api/info"))
				if a.Cluster != to.Name {
					t.Errorf("a pod of %s asked the port of %s, and got an answer of %+v", from.Name, node, a)
				}
			}
		}
	}
}

// equalPodAddresses asks the same address in every cluster. The pods are on nodes with the
// same part of the pod network, and more are made until there is an address that all have.
func equalPodAddresses(t *testing.T, clusters ...cluster) {
	var namespaces []namespace
	for _, c := range clusters {
		r := c.newNamespace(t)
		first := "10.200.0.0/24"
		node := c.kubectl(t, "get", "nodes", "-o", `jsonpath={.items[?(@.spec.podCIDR=="`+first+`")].metadata.name}`)
		r.apply(t, "many.yaml", map[string]any{"Node": node})
		namespaces = append(namespaces, r)
	}
	replicas := 6                   // as in the manifest
	owners := map[string][]string{} // clusters by address
	eventually(t, 90*time.Second, "an address that a ready pod has in each cluster", func() (string, bool) {
		owners = map[string][]string{}
		for _, r := range namespaces {
			if res := r.try("rollout", "status", "deployment/many", "--timeout=1s"); res.code != 0 {
				return res.String(), false
			}
			for _, p := range r.pods(t, "app=many") {
				owners[p.ip] = append(owners[p.ip], r.Name)
			}
		}
		for _, names := range owners {
			if len(names) == len(clusters) {
				return "", true
			}
		}
		replicas += 8
		for _, r := range namespaces {
			r.kubectl(t, "scale", "deployment/many", fmt.Sprint("--replicas=", replicas))
		}
		return fmt.Sprint(owners), false
	})
	for address, names := range owners {
		if len(names) < 2 {
			continue
		}
		for _, name := range names {
			f := fixtures[name]
			if a := decode(t, f.curl(t, f.tool(), "http://"+address+":8080/api/info")); a.Cluster != name || a.IP != address {
				t.Errorf("address %s belongs to pods of %v; asked in %s, the answer was %+v", address, names, name, a)
			}
		}
	}
}

func kubeconfigsMerge(t *testing.T, clusters ...cluster) {
	merged := filepath.Join(t.TempDir(), "merged.yaml")
	if err := os.WriteFile(merged, []byte(must(t, "kubeconfig")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, kubeconfig := range []string{strings.TrimSpace(must(t, "kubeconfig", "--path")), merged} {
		kubectl := func(args ...string) []string {
			r := startWith("", []string{"KUBECONFIG=" + kubeconfig}, append([]string{current.Bin + "/kubectl"}, args...)...).wait()
			if r.code != 0 {
				t.Errorf("KUBECONFIG=%s: %s", kubeconfig, r)
			}
			return strings.Fields(r.out)
		}
		contexts := kubectl("config", "get-contexts", "--output=name")
		for _, c := range clusters {
			if !slices.Contains(contexts, c.Name) {
				t.Errorf("KUBECONFIG=%s has contexts %v, not %s", kubeconfig, contexts, c.Name)
			}
			var want []string
			for node := range c.nodes() {
				want = append(want, "node/"+node)
			}
			slices.Sort(want)
			if have := kubectl("--context="+c.Name, "get", "nodes", "--output=name"); !slices.Equal(have, want) {
				t.Errorf("context %s has nodes %v, want %v", c.Name, have, want)
			}
		}
	}
}

// networksArePublished: tools find a cluster's networks in the objects of kubeadm and of Kubernetes.
func networksArePublished(t *testing.T, clusters ...cluster) {
	for _, c := range clusters {
		kubeadm := c.kubectl(t, "-n", "kube-system", "get", "configmap", "kubeadm-config", "-o", "jsonpath={.data.ClusterConfiguration}")
		for _, line := range []string{"podSubnet: " + c.PodCIDR, "serviceSubnet: " + c.ServiceCIDR} {
			if !strings.Contains(kubeadm, line+"\n") && !strings.HasSuffix(kubeadm, line) {
				t.Errorf("%s: kubeadm-config lacks %q:\n%s", c.Name, line, kubeadm)
			}
		}
		services := netip.MustParsePrefix(c.ServiceCIDR).Masked().String()
		if have := c.kubectl(t, "get", "servicecidr", "kubernetes", "-o", "jsonpath={.spec.cidrs[*]}"); have != services {
			t.Errorf("%s: ServiceCIDR object holds %q, want %s", c.Name, have, services)
		}
		pods := netip.MustParsePrefix(c.PodCIDR)
		nodes := map[string]netip.Prefix{}
		for line := range strings.Lines(c.kubectl(t, "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name} {.spec.podCIDR}{"\n"}{end}`)) {
			name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
			prefix, err := netip.ParsePrefix(text)
			if err != nil || !pods.Contains(prefix.Addr()) {
				t.Errorf("%s: node %s has the pod network %q, not a part of %s", c.Name, name, text, pods)
				continue
			}
			for other, taken := range nodes {
				if taken.Overlaps(prefix) {
					t.Errorf("%s: pod networks of %s (%s) and %s (%s) overlap", c.Name, other, taken, name, prefix)
				}
			}
			nodes[name] = prefix
		}
		if len(nodes) != len(c.nodes()) {
			t.Errorf("%s: want pod networks of %v, have %v", c.Name, c.nodes(), nodes)
		}
	}
}
