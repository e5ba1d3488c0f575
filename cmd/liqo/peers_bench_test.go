// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/cmd/liqo/kubelet"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/test/env/process"
)

// BenchmarkVirtualKubelets measures the virtual kubelets of a cluster with many providers, while nothing happens: memory and processor time of each
// process, and processor time of the API servers. Each provider is a tenant namespace of one API server; the processes are those of users, with their
// defaults.
func BenchmarkVirtualKubelets(b *testing.B) {
	const idle = time.Minute
	log.SetLogger(logr.Discard())
	program := filepath.Join(b.TempDir(), "liqo")
	build := exec.CommandContext(b.Context(), "go", "build", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", program, ".")
	if output, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, output)
	}
	for _, providers := range []int{1, 5, 20} {
		b.Run(fmt.Sprint(providers), func(b *testing.B) {
			h := newHub(b)
			base := h.spent()["kube-apiserver"]
			time.Sleep(idle) // what is measured: the API servers alone
			base = h.spent()["kube-apiserver"] - base
			var running []process.Process
			for i := range providers {
				running = append(running, h.start(program, i))
			}
			for i := range providers {
				h.ready(i)
			}
			before := h.spent()
			time.Sleep(idle) // what is measured
			after := h.spent()
			var memory process.Memory
			for _, one := range running {
				m, err := one.Memory()
				h.must(err)
				memory.Anonymous += m.Anonymous
				memory.PSS += m.PSS
			}
			n := float64(providers)
			b.ReportMetric(memory.Anonymous/n, "MiB-anonymous/provider")
			b.ReportMetric(memory.PSS/n, "MiB-PSS/provider")
			b.ReportMetric(float64((after["liqo"]-before["liqo"]).Milliseconds())/n, "ms-CPU/min/provider")
			b.ReportMetric(float64((after["kube-apiserver"]-before["kube-apiserver"]-base).Milliseconds())/n, "ms-CPU-of-API-servers/min/provider")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// hub is a cluster with many providers, which are tenant namespaces of one API server.
type hub struct {
	client.Client
	b          *testing.B
	kubeconfig string
	identity   remote.Identity
}

func newHub(b *testing.B) *hub {
	b.Helper()
	consumer, provider := kubetest.Pair(b)
	h := &hub{b: b, kubeconfig: filepath.Join(b.TempDir(), "kubeconfig")}
	scheme := runtime.NewScheme()
	h.must(clientgoscheme.AddToScheme(scheme))
	h.must(sharingv1alpha1.AddToScheme(scheme))
	for _, cluster := range []*rest.Config{consumer, provider} {
		_, err := envtest.InstallCRDs(cluster, envtest.CRDInstallOptions{Paths: []string{"../../deployments/liqo/crds"}, ErrorIfPathMissing: true})
		h.must(err)
	}
	var err error
	h.Client, err = client.New(consumer, client.Options{Scheme: scheme})
	h.must(err)
	h.must(clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			"hub": {Server: "https://" + strings.TrimPrefix(consumer.Host, "https://"), CertificateAuthorityData: consumer.CAData},
		},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"admin": {ClientCertificateData: consumer.CertData, ClientKeyData: consumer.KeyData}},
		Contexts:       map[string]*clientcmdapi.Context{"hub": {Cluster: "hub", AuthInfo: "admin"}},
		CurrentContext: "hub",
	}, h.kubeconfig))

	there, err := client.New(provider, client.Options{})
	h.must(err)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "consumer"}}
	h.must(there.Create(b.Context(), account))
	h.must(there.Create(b.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "consumer"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: account.Namespace, Name: account.Name}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}, // rights are not what is measured
	}))
	token := &authenticationv1.TokenRequest{}
	h.must(there.SubResource("token").Create(b.Context(), account, token))
	h.identity = remote.Identity{
		APIServerURL: "https://" + strings.TrimPrefix(provider.Host, "https://"), APIServerCA: bytes.Clone(provider.CAData), Token: token.Status.Token,
		RenewAt: time.Now().Add(time.Hour), ExpiresAt: time.Now().Add(2 * time.Hour),
	}
	return h
}

// start runs the virtual kubelet of one provider, as the controller manager would.
func (h *hub) start(program string, i int) process.Process {
	h.b.Helper()
	ctx, id, node, namespace := h.b.Context(), fmt.Sprintf("provider-%d-id", i), nodeOf(i), fmt.Sprintf("liqo-tenant-provider-%d", i)
	h.must(h.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	identity := h.identity
	identity.Namespace = namespace
	h.must(h.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: remote.SecretName(id)}, Data: identity.Data()}))
	slice := &sharingv1alpha1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "hub", Finalizers: []string{labels.FinalizerNode}},
		Spec:       sharingv1alpha1.ResourceSliceSpec{ConsumerClusterID: "hub-id", ProviderClusterID: id, NodeName: node},
	}
	h.must(h.Create(ctx, slice))
	slice.Status = sharingv1alpha1.ResourceSliceStatus{
		Phase:     sharingv1alpha1.SliceAccepted,
		Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")},
	}
	h.must(h.Status().Update(ctx, slice))
	var output bytes.Buffer
	command := exec.CommandContext(ctx, program, "virtual-kubelet", "--home-kubeconfig="+h.kubeconfig,
		"--nodename="+node, "--tenant-namespace="+namespace, "--slice-name=hub", "--foreign-cluster-id="+id, "--foreign-cluster-name="+fmt.Sprintf("provider-%d", i),
		"--home-cluster-id=hub-id", "--home-cluster-name=hub", "--node-ip=127.0.0.1", "--certificate-type="+kubelet.CertificateSelf,
		fmt.Sprintf("--listen-port=%d", 21000+i), fmt.Sprintf("--health-probe-address=127.0.0.1:%d", 22000+i))
	command.Stdout, command.Stderr = &output, &output
	h.must(command.Start())
	h.b.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if h.b.Failed() {
			h.b.Logf("virtual kubelet of %s:\n%s", node, output.String())
		}
	})
	return process.Process{Number: command.Process.Pid, Role: node}
}

func nodeOf(i int) string { return fmt.Sprintf("liqo-provider-%d", i) }

// ready waits until a virtual node is Ready.
func (h *hub) ready(i int) {
	h.b.Helper()
	kubetest.Eventually(h.b, nodeOf(i)+" is Ready", func() error {
		var node corev1.Node
		if err := h.Get(h.b.Context(), client.ObjectKey{Name: nodeOf(i)}, &node); err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("conditions %v", node.Status.Conditions)
	})
}

func (h *hub) spent() map[string]time.Duration {
	h.b.Helper()
	spent, err := process.Spent()
	h.must(err)
	return spent
}

func (h *hub) must(err error) {
	h.b.Helper()
	if err != nil {
		h.b.Fatal(err)
	}
}
