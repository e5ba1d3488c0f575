// SPDX-License-Identifier: Apache-2.0

package nameserver

import (
	"bytes"
	"net/netip"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/offloading/names"
)

func TestMain(m *testing.M) {
	log.SetLogger(klog.Background())
	os.Exit(m.Run())
}

// TestWatch: with the rights in its markers, the role knows the pods of peers that run, the namespaces of each peer, and the domain that it has
// announced; nothing that a peer can write makes another pod one of its own.
func TestWatch(t *testing.T) {
	admin := kubetest.Cluster(t)
	scheme := runtime.NewScheme()
	b := &kubetest.Env{T: t}
	b.Must(clientgoscheme.AddToScheme(scheme))
	b.Must(vkv1alpha1.AddToScheme(scheme))
	_, err := envtest.InstallCRDs(admin, envtest.CRDInstallOptions{
		ErrorIfPathMissing: true, Paths: []string{"../../../deployments/liqo/crds/virtualkubelet.liqo.io_namespacemaps.yaml"},
	})
	b.Must(err)
	b.Client, err = client.New(admin, client.Options{Scheme: scheme})
	b.Must(err)
	b.Bind("dns-test", "", b.RBACMarkers("watch.go")[""])

	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-rome"}})
	asked := &vkv1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "liqo-tenant-rome", Name: "milan", Labels: map[string]string{labels.Replicated: "true"},
		Annotations: map[string]string{labels.ClusterDomain: "rome.example", "large": "text"},
	}}
	b.Make(asked)
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "shop-rome", Labels: map[string]string{labels.RemoteClusterID: "rome-id"},
		Annotations: map[string]string{labels.ManagedByNamespaceMap: "liqo-tenant-rome/milan", labels.OriginalName: "shop"},
	}}
	b.Make(shop)
	pod := func(namespace, name, managedBy, address string) *corev1.Pod {
		made := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{labels.ManagedBy: managedBy}},
			Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "c", Image: "image:1"}}, AutomountServiceAccountToken: new(false),
				NodeName: "physical", HostAliases: []corev1.HostAlias{
					{IP: "10.66.0.1", Hostnames: []string{"db.example"}}, {IP: "10.81.0.1", Hostnames: []string{"kubernetes.default"}},
				},
			},
		}
		b.Make(made)
		b.EditStatus(made, func() {
			made.Status.Phase, made.Status.PodIP = corev1.PodRunning, address
			made.Status.PodIPs = []corev1.PodIP{{IP: address}, {IP: "fd00::" + address[len(address)-1:]}}
		})
		return made
	}
	ended := pod("shop-rome", "client", labels.ManagedByShadowPod, "10.1.0.1")
	pod("shop-rome", "other", "someone", "10.1.0.2")
	pod("default", "own", labels.ManagedByShadowPod, "10.1.0.3") // a label that users of this cluster can write

	cfg := rest.CopyConfig(admin)
	cfg.Impersonate.UserName = "dns-test"
	caches, err := CacheOptions()
	b.Must(err)
	mgr, err := kubemanager.New(cfg, kubemanager.Options{Scheme: scheme, SkipNameValidation: true, Cache: caches})
	b.Must(err)
	callers := NewCallers()
	watcher, err := Watch(t.Context(), mgr.GetCache(), callers, names.Cluster{Domain: "cluster.local"})
	b.Must(err)
	if watcher.Check() == nil {
		t.Error("the role is ready before it knows anything")
	}
	b.Must(mgr.Add(manager.RunnableFunc(watcher.Run)))
	kubetest.Start(t, "manager", mgr.Start)
	<-watcher.Ready()
	b.Must(watcher.Check())

	question, err := names.Parse(query(t, "web.shop.svc.rome.example."))
	b.Must(err)
	server, err := names.Parse(query(t, "kubernetes.default."))
	b.Must(err)
	found := func(address string) string {
		known, _, _ := callers.find(netip.MustParseAddr(address), question)
		if known.view == nil {
			return "unknown"
		}
		if got := known.server.Answer(known.view, server, 0); !bytes.Contains(got, []byte{10, 81, 0, 1}) || bytes.Contains(got, []byte{10, 66, 0, 1}) {
			t.Errorf("%s: the API server is %q", address, got)
		}
		if kind, name := known.view.Look(question.Name()); kind == names.Mapped {
			return name
		}
		return "another name"
	}
	// What was there at the start is known when the role is ready.
	for address, want := range map[string]string{
		"10.1.0.1": "web.shop-rome.svc.cluster.local", "fd00::1": "web.shop-rome.svc.cluster.local", "10.1.0.2": "unknown", "10.1.0.3": "unknown",
		"10.1.0.9": "unknown",
	} {
		if got := found(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
	until := func(address, want string) {
		t.Helper()
		b.Until(address+" is "+want, func() bool { return found(address) == want })
	}
	waiting := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: "waiting", Labels: map[string]string{labels.ManagedBy: labels.ManagedByShadowPod}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image:1"}}, AutomountServiceAccountToken: new(false)},
	}
	b.Make(waiting)
	pod("shop-rome", "late", labels.ManagedByShadowPod, "10.1.0.4")
	until("10.1.0.4", "web.shop-rome.svc.cluster.local")
	if err := mgr.GetCache().Get(t.Context(), client.ObjectKeyFromObject(waiting), waiting.DeepCopy()); !apierrors.IsNotFound(err) {
		t.Errorf("a pod without an address, created before one that is known: got %v, want that it is not sent to this process", err)
	}
	b.EditStatus(ended, func() { ended.Status.Phase = corev1.PodSucceeded })
	until("10.1.0.1", "unknown")
	b.Edit(asked, func() { asked.Annotations[labels.ClusterDomain] = "other.example" })
	until("10.1.0.4", "another name")
	b.Edit(asked, func() { asked.Annotations[labels.ClusterDomain] = "no domain" })
	until("10.1.0.4", "unknown")
	b.Edit(asked, func() { asked.Annotations[labels.ClusterDomain] = "rome.example" })
	until("10.1.0.4", "web.shop-rome.svc.cluster.local")
	b.Edit(shop, func() { shop.Annotations[labels.KeptForData] = "not-requested" })
	until("10.1.0.4", "unknown")
}
