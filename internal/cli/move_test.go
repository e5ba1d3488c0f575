// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestMoveRefuses: what is wrong in the command itself is refused without a cluster.
func TestMoveRefuses(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	for line, want := range map[string]string{
		"move":             "move what? Try: liqoctl move volume NAME --target-node NODE",
		"move volume":      "want the name of one claim, got 0",
		"move volume a b":  "want the name of one claim, got 2",
		"move volume data": "--target-node must name",
		"move pvc data":    "--target-node must name",
		"move volume data --node a --target-node b":                                              "differ",
		"move volume data --cancel --online":                                                     "no other flag",
		"move volume data --cancel --target-node a":                                              "no other flag",
		"move volume data --cancel --containers-cpu-limits 1":                                    "no other flag",
		"move volume data --node a --containers-cpu-requests much":                               `--containers-cpu-requests "much" is not a valid quantity`,
		"move volume data --node a --containers-ram-limits -1Gi":                                 "is not a valid quantity",
		"move volume data --node a --containers-ram-requests 2Gi --containers-ram-limits 1Gi":    "exceed the limits",
		"move volume data --node a --containers-cpu-requests 500m --containers-cpu-limits 400m ": "exceed the limits",
	} {
		code, _, errOut := run(t, "", strings.Fields(line)...)
		if code == 0 || !strings.Contains(errOut, want) {
			t.Errorf("%s: exit code %d, %s; want %q", line, code, errOut, want)
		}
	}
}

// TestClaimNamespace: like kubectl, a command about claims takes the namespace of -n, or of the context, and not the one in which Liqo is installed.
func TestClaimNamespace(t *testing.T) {
	content := clientcmdapi.NewConfig()
	content.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	content.Contexts["shop"] = &clientcmdapi.Context{Cluster: "c", Namespace: "shop"}
	content.Contexts["none"] = &clientcmdapi.Context{Cluster: "c"}
	content.CurrentContext = "shop"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*content, file); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
	for args, want := range map[string]string{"": "shop", "-n web": "web", "-n liqo": "liqo", "--context none": "default", "--context none -n web": "web"} {
		streams, _, _, _ := genericiooptions.NewTestIOStreams()
		root, f := newRoot(streams, "liqoctl")
		cmd, rest, err := root.Find(append([]string{"move", "volume"}, strings.Fields(args)...))
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		if err != nil {
			t.Fatal(err)
		}
		if have, err := f.ClaimNamespace(cmd); err != nil || have != want {
			t.Errorf("%q: %s, %v; want %s", args, have, err, want)
		}
	}
}
