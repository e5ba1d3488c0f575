// SPDX-License-Identifier: Apache-2.0

package virtualkubelet

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestPodRange registers the node in a cluster whose controller manager assigns ranges of the pod network: the node gets one range, no event reports a failure
// (ADR 25), and the controller manager starts again with the node.
func TestPodRange(t *testing.T) {
	b := newEnv(t)
	stop := b.controllerManager()
	b.slice(granted("4", "8G"))
	b.run()
	for range 10 {
		node := b.untilReady(corev1.ConditionTrue)
		if node.Spec.PodCIDR == "" {
			t.Error("the node is Ready and has no range yet: its status was written while a range was being assigned")
		}
		time.Sleep(100 * time.Millisecond) // a second assignment fails within milliseconds
		var all corev1.EventList
		b.Must(b.List(t.Context(), &all))
		for i := range all.Items {
			if event := &all.Items[i]; event.InvolvedObject.Name == nodeName && (event.Type == corev1.EventTypeWarning || event.Reason == "CIDRAssignmentFailed") {
				t.Errorf("event %s: %s", event.Reason, event.Message)
			}
		}
		b.Must(b.Delete(t.Context(), node))
		b.Until("the node was deleted", func() bool {
			var now corev1.Node
			return b.Get(t.Context(), client.ObjectKeyFromObject(node), &now) != nil || now.UID != node.UID
		})
	}
	b.untilReady(corev1.ConditionTrue)
	stop()
	b.controllerManager()
	other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	b.Make(other)
	b.Until("another node gets a range of its own", func() bool { b.Read(other); return other.Spec.PodCIDR != "" })
	if mine := b.untilReady(corev1.ConditionTrue).Spec.PodCIDR; mine == "" || mine == other.Spec.PodCIDR {
		t.Errorf("ranges %q and %q", mine, other.Spec.PodCIDR)
	}
}

// controllerManager starts the controllers of Kubernetes that write to new nodes, until stop or the end of the test.
func (b *env) controllerManager() (stop func()) {
	b.T.Helper()
	program := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kube-controller-manager")
	if _, err := os.Stat(program); err != nil {
		b.T.Skipf("NOT RUN: %v; the playground builds it: bin/playground build", err)
	}
	access := clientcmdapi.NewConfig()
	access.Clusters["admin"] = &clientcmdapi.Cluster{Server: b.admin.Host, CertificateAuthorityData: b.admin.CAData}
	access.AuthInfos["admin"] = &clientcmdapi.AuthInfo{ClientCertificateData: b.admin.CertData, ClientKeyData: b.admin.KeyData}
	access.Contexts["admin"] = &clientcmdapi.Context{Cluster: "admin", AuthInfo: "admin"}
	access.CurrentContext = "admin"
	path := filepath.Join(b.T.TempDir(), "kubeconfig")
	b.Must(clientcmd.WriteToFile(*access, path))
	// The shell ends the program when this process ends, in whatever way.
	process := exec.Command("sh", "-c", `"$0" "$@" & read -r _; kill -s KILL $!`, program, "--kubeconfig="+path, "--leader-elect=false", "--secure-port=0",
		"--allocate-node-cidrs", "--cluster-cidr=10.200.0.0/16", "--controllers=node-ipam-controller,ttl-controller,node-lifecycle-controller")
	pipe, err := process.StdinPipe()
	b.Must(err)
	b.Must(process.Start())
	stop = func() {
		_ = pipe.Close()
		_ = process.Wait()
	}
	b.T.Cleanup(stop)
	probe := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}}
	b.Make(probe)
	b.Until("the controllers work", func() bool { b.Read(probe); return probe.Spec.PodCIDR != "" })
	b.Must(b.Delete(b.T.Context(), probe))
	return stop
}
