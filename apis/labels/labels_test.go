// SPDX-License-Identifier: Apache-2.0

package labels

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// documented are the names that users of the documented system have in manifests and scripts: labels and their values, annotations, a taint, finalizers,
// field owners.
const documented = `
liqo.io/type virtual-node liqo.io/remote-cluster-id liqo.io/provider storage.liqo.io/available liqo.io/scheduling-enabled
liqo.io/replication liqo.io/originID liqo.io/remoteID liqo.io/replicated liqo.io/ownership
liqo.io/shadowPod liqo.io/managed-by shadowpod shadowendpointslice virtualkubelet.liqo.io/origin virtualkubelet.liqo.io/destination
storage.liqo.io/virtual-pvc-namespace storage.liqo.io/virtual-pvc-name liqo.io/storage-provisioner net.liqo.io/gateway net.liqo.io/gatewayNodeIP
clusterID discovery.liqo.io/cluster-id discovery.liqo.io/discovery-type discovery.liqo.io/tenant-namespace discovery.liqo.io/local-identity
discovery.liqo.io/auth-token auth.liqo.io/remote-peering-permissions
virtualkubelet.liqo.io/service-account-for-pod-name virtualkubelet.liqo.io/service-account-for-pod-uid virtualkubelet.liqo.io/service-account-name
virtualkubelet.liqo.io/service-account-expiration endpointslice.reflection.liqo.io
liqo.io/override-address liqo.io/override-port liqo.io/force-remote-node-port liqo.io/skip-reflection liqo.io/anti-affinity-preset
liqo.io/anti-affinity-labels liqo.io/managed-by-namespace-map liqo.io/original-name virtual-node.liqo.io/not-allowed
liqo.io/node namespaceoffloading-controller.liqo.io/finalizer reflection.liqo.io shadow-pod shadow-endpointslice-controller
`

// TestDocumentedNames: the constants of this package have the documented values.
func TestDocumentedNames(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "labels.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	ast.Inspect(file, func(node ast.Node) bool {
		if literal, is := node.(*ast.BasicLit); is && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil {
				have[text] = true
			}
		}
		return true
	})
	for _, name := range strings.Fields(documented) {
		if !have[name] {
			t.Errorf("no constant has the documented value %s", name)
		}
	}
}
