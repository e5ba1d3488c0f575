// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/guide"
)

// tooLate is how long an attachment to a pod that does not end is held back: longer than a program needs for its answer.
const tooLate = 3 * time.Second

// late types the guide's questions to the pods again, with a kubectl that is attached to a pod only once that has ended, or late. A machine with
// other work does that by chance.
func late(t *testing.T, root string, rome *env.Cluster) {
	kubeconfig := behindSlowProxy(t, rome)
	rome.Kubectl(t, "delete", "pod", "client", "-n", "default")
	text, err := guide.Read(root, "quick-start")
	if err != nil {
		t.Fatal(err)
	}
	commands := guide.Commands(text)
	from := slices.IndexFunc(commands, func(c guide.Command) bool { return strings.HasPrefix(c.Line, "LOCAL_POD_IP=") })
	to := slices.IndexFunc(commands, func(c guide.Command) bool { return strings.Contains(c.Line, "demo-application") })
	if from < 0 || to < from {
		t.Fatalf("the guide asks no pods: commands %d to %d", from, to)
	}
	shell := guide.Shell{
		Folder: filepath.Join(root, "examples", "quick-start"),
		Env:    []string{"KUBECONFIG=" + kubeconfig, "PATH=" + clusters.Tools + ":/usr/bin:/bin"},
	}
	outputs, err := shell.Run(t.Context(), commands[from:to])
	if err != nil {
		t.Fatalf("%v\n%s", err, guide.Transcript(outputs))
	}
	asked := 0
	for _, one := range outputs {
		if strings.HasPrefix(one.Command.Line, "$ASK") {
			asked++
			if strings.Count(one.Text, "Server address") != 1 {
				t.Errorf("%s: want one answer, got\n%s", one.Command.Line, one.Text)
			}
		}
	}
	if asked != 3 {
		t.Errorf("the guide asks %d times, want 3:\n%s", asked, guide.Transcript(outputs))
	}
}

// attachment is the path of a request that opens the streams of a container.
var attachment = regexp.MustCompile(`^/api/v1/namespaces/([^/]+)/pods/([^/]+)/(?:attach|exec)$`)

// behindSlowProxy returns a kubeconfig for a cluster whose attachments to containers are held back.
func behindSlowProxy(t *testing.T, c *env.Cluster) (kubeconfig string) {
	transport, err := rest.TransportFor(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(c.Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = transport
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if pod := attachment.FindStringSubmatch(r.URL.Path); pod != nil {
			hold(r.Context(), c, client.ObjectKey{Namespace: pod[1], Name: pod[2]})
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig.yaml")
	config := api.Config{
		Clusters:       map[string]*api.Cluster{"late": {Server: server.URL}},
		Contexts:       map[string]*api.Context{"late": {Cluster: "late"}},
		CurrentContext: "late",
	}
	if err := clientcmd.WriteToFile(config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// hold returns when a pod has ended, or after tooLate.
func hold(ctx context.Context, c *env.Cluster, name client.ObjectKey) {
	ctx, cancel := context.WithTimeout(ctx, tooLate)
	defer cancel()
	for ctx.Err() == nil {
		var pod corev1.Pod
		if err := c.API.Get(ctx, name, &pod); err == nil && (pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed) {
			return
		}
	}
}
