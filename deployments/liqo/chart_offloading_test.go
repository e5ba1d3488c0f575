// SPDX-License-Identifier: Apache-2.0

package liqo_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	offloadingwebhook "liqo.io/liqo/internal/offloading/webhook"
)

// hooked is a real API server with the chart in it, and the webhooks of offloading with the rights of the controller manager. No
// controller runs.
type hooked struct {
	*testing.T
	client.Client
	warned *warned
}

// warned keeps the warnings of an API server.
type warned struct {
	mu    sync.Mutex
	texts []string
}

func (w *warned) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

func (w *warned) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.texts, "\n")
}

func newHooked(t *testing.T) *hooked {
	t.Helper()
	admin := kubetest.Cluster(t)
	h := &hooked{T: t, warned: &warned{}}
	admin.WarningHandler = h.warned
	h.Client = connect(t, admin)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	h.must(offloadingv1alpha1.AddToScheme(h.Scheme()))
	h.must(eventsv1.AddToScheme(h.Scheme()))
	install(ctx, t, h.Client)
	h.must(client.IgnoreAlreadyExists(h.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "liqo-controller-manager"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-controller-manager"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "liqo", Name: "liqo-controller-manager"}},
	})))

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	h.must(err)
	port := listener.Addr().(*net.TCPAddr).Port
	h.must(listener.Close())
	public, private, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	h.must(err)
	dir := t.TempDir()
	h.must(os.WriteFile(filepath.Join(dir, "tls.crt"), public, 0o600))
	h.must(os.WriteFile(filepath.Join(dir, "tls.key"), private, 0o600))
	cfg := rest.CopyConfig(admin)
	cfg.WarningHandler = rest.NoWarnings{}
	cfg.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:liqo:liqo-controller-manager", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:liqo", "system:authenticated"},
	}
	mgr, err := kubemanager.New(cfg, kubemanager.Options{Scheme: h.Scheme(), WebhookPort: port, WebhookCertDir: dir, SkipNameValidation: true})
	h.must(err)
	offloadingwebhook.Register(mgr.GetWebhookServer(), h.Scheme(), offloadingwebhook.Options{
		Cached: mgr.GetClient(), Live: mgr.GetAPIReader(), Client: mgr.GetClient(), Namespace: "liqo",
	})
	life, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(life) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Errorf("manager: %v", err)
		}
	})

	// As the chart has it, but for where the server is. Webhooks of others are nobody's here.
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		hooks := find(t, render(t), kind, "liqo").DeepCopy()
		all, _, err := unstructured.NestedSlice(hooks.Object, "webhooks")
		h.must(err)
		var kept []any
		for _, one := range all {
			one := one.(map[string]any)
			if strings.HasPrefix(one["name"].(string), "fc.") || strings.HasPrefix(one["name"].(string), "shadowpod.") {
				continue
			}
			where := one["clientConfig"].(map[string]any)
			path, _, err := unstructured.NestedString(where, "service", "path")
			h.must(err)
			one["clientConfig"] = map[string]any{"url": fmt.Sprintf("https://127.0.0.1:%d%s", port, path), "caBundle": base64.StdEncoding.EncodeToString(public)}
			kept = append(kept, one)
		}
		h.must(unstructured.SetNestedSlice(hooks.Object, kept, "webhooks"))
		h.must(h.Delete(ctx, hooks.DeepCopy()))
		h.must(h.Create(ctx, hooks))
	}
	h.until("the API server asks our webhooks", func() bool {
		err := h.Create(ctx, h.wish("kube-system", "Remote"), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "belongs to Kubernetes")
	})
	return h
}

func (h *hooked) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *hooked) until(what string, done func() bool) {
	h.Helper()
	for begin := time.Now(); time.Since(begin) < 40*time.Second; time.Sleep(10 * time.Millisecond) {
		if done() {
			return
		}
	}
	h.Fatalf("not in time: %s", what)
}

func (h *hooked) space(name string) {
	h.Helper()
	h.must(h.Create(h.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

func (h *hooked) wish(namespace string, strategy offloadingv1alpha1.PodOffloadingStrategy) *offloadingv1alpha1.NamespaceOffloading {
	return &offloadingv1alpha1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "offloading"}, Spec: offloadingv1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: strategy},
	}
}

// terms makes a pod, and returns how many terms its affinity has; -1 if it has not been placed at all.
func (h *hooked) terms(namespace, name string) int {
	h.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	h.must(h.Create(h.Context(), pod))
	for _, one := range pod.Spec.Tolerations {
		if one.Key == "virtual-node.liqo.io/not-allowed" {
			if pod.Spec.Affinity == nil {
				return 0
			}
			return len(pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms)
		}
	}
	return -1
}

// TestOffloadingRace: whoever makes a pod after a NamespaceOffloading, as one `kubectl apply` does, has it placed by that, however
// soon; and by what the NamespaceOffloading says now, not by what it said before.
func TestOffloadingRace(t *testing.T) {
	h := newHooked(t)
	const rounds = 40
	var slipped atomic.Int32
	for i := range rounds { // an API server that has not heard of a namespace asks; one that knows it does not
		h.space(fmt.Sprint("bare-", i))
		h.space(fmt.Sprint("race-", i))
	}
	var bare sync.WaitGroup
	for i := range rounds {
		// Without the wait for the API server, pods may slip through; how often depends on the machine.
		bare.Go(func() {
			name := fmt.Sprint("bare-", i)
			err := h.Patch(h.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
				client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"liqo.io/scheduling-enabled":"true"}}}`)))
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "pod"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
			if err == nil {
				err = h.Create(h.Context(), pod)
			}
			if err == nil {
				slipped.Add(1)
			} else if !strings.Contains(err.Error(), "has no NamespaceOffloading") {
				t.Error(err)
			}
		})
	}
	bare.Wait()
	t.Logf("with the label alone, %d of %d pods slipped through", slipped.Load(), rounds)

	for i := range rounds {
		name := fmt.Sprint("race-", i)
		if i%2 == 1 {
			name = fmt.Sprint("new-", i)
			h.space(name)
		}
		wish := h.wish(name, offloadingv1alpha1.PodsRemote)
		h.must(h.Create(h.Context(), wish))
		if got := h.terms(name, "first"); got != 1 {
			t.Fatalf("round %d: a pod made at once has %d terms", i, got)
		}
		term := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: "Exists"}}}
		for n := 2; n < 5; n++ {
			for len(wish.Spec.ClusterSelector.NodeSelectorTerms) < n {
				wish.Spec.ClusterSelector.NodeSelectorTerms = append(wish.Spec.ClusterSelector.NodeSelectorTerms, term)
			}
			h.must(h.Update(h.Context(), wish))
			if got := h.terms(name, fmt.Sprint("pod-", n)); got != n {
				t.Fatalf("round %d: a pod made after the change to %d terms has %d", i, n, got)
			}
		}
		// From here on pods stay; then they may go again.
		wish.Spec.PodOffloadingStrategy = offloadingv1alpha1.PodsLocal
		h.must(h.Update(h.Context(), wish))
		if got := h.terms(name, "stays"); got != -1 {
			t.Fatalf("round %d: a pod that is to stay has %d terms", i, got)
		}
		h.must(h.Patch(h.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"liqo.io/scheduling-enabled":null}}}`))))
		wish.Spec.PodOffloadingStrategy, wish.Spec.ClusterSelector.NodeSelectorTerms = offloadingv1alpha1.PodsRemote, nil
		h.must(h.Update(h.Context(), wish))
		if got := h.terms(name, "goes"); got != 1 {
			t.Fatalf("round %d: a pod made after the change to Remote has %d terms", i, got)
		}
	}
}

// TestOffloadingAdmission: what can never work is refused where the user looks, and what is only tried leaves nothing.
func TestOffloadingAdmission(t *testing.T) {
	h := newHooked(t)
	h.space("shop")
	marked := func() bool {
		var shop corev1.Namespace
		h.must(h.Get(h.Context(), client.ObjectKey{Name: "shop"}, &shop))
		return shop.Labels["liqo.io/scheduling-enabled"] == "true"
	}
	h.must(h.Create(h.Context(), h.wish("shop", "Remote"), client.DryRunAll))
	if marked() {
		t.Error("a dry run marked the namespace")
	}
	local := h.wish("shop", "Local")
	h.must(h.Create(h.Context(), local))
	if marked() {
		t.Error("a namespace whose pods stay is marked")
	}
	if got := h.terms("shop", "here"); got != -1 {
		t.Errorf("a pod that stays has %d terms", got)
	}
	local.Spec.PodOffloadingStrategy = offloadingv1alpha1.PodsLocalAndRemote
	h.must(h.Update(h.Context(), local))
	if !marked() || h.terms("shop", "anywhere") != 0 {
		t.Errorf("marked: %t", marked())
	}
	local.Spec.PodOffloadingStrategy = offloadingv1alpha1.PodsRemote
	h.must(h.Update(h.Context(), local))
	if text := h.warned.text(); !strings.Contains(text, "more restrictive") {
		t.Errorf("warnings: %s", text)
	}
	refused := func(what string, err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	other := local.DeepCopy()
	other.Spec.NamespaceMappingStrategy = offloadingv1alpha1.EnforceSameName
	refused("another mapping", h.Update(h.Context(), other), "cannot be changed")
	empty := local.DeepCopy()
	empty.Spec.ClusterSelector.NodeSelectorTerms = []corev1.NodeSelectorTerm{{}}
	refused("an empty term", h.Update(h.Context(), empty), "says nothing")
	perhaps := local.DeepCopy()
	perhaps.Annotations = map[string]string{"liqo.io/apiserver-support": "maybe"}
	refused("an invalid annotation", h.Update(h.Context(), perhaps), `has the invalid value "maybe"; set it to "true" or "false"`)
	perhaps.Annotations["liqo.io/apiserver-support"] = "false"
	h.must(h.Update(h.Context(), perhaps, client.DryRunAll))
	nonsense := local.DeepCopy()
	nonsense.Spec.ClusterSelector.NodeSelectorTerms = []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: "Like"}}}}
	refused("nonsense", h.Update(h.Context(), nonsense), "Like")
	named := h.wish("shop", "Remote")
	named.Name = "second"
	refused("a second one", h.Create(h.Context(), named), "offloading")
	refused("Liqo's namespace", h.Create(h.Context(), h.wish("liqo", "Remote")), "belongs to Kubernetes or to Liqo")
	refused("no namespace", h.Create(h.Context(), h.wish("nowhere", "Remote")), "not found")

	// On its way out it places nothing any more, and then pods are refused as long as the mark is there.
	local.Finalizers = []string{"example.com/held"}
	h.must(h.Update(h.Context(), local))
	h.must(h.Delete(h.Context(), local))
	if got := h.terms("shop", "late"); got != -1 {
		t.Errorf("a pod of a namespace on its way out has %d terms", got)
	}
	h.must(h.Get(h.Context(), client.ObjectKeyFromObject(local), local))
	local.Finalizers = nil
	h.must(h.Update(h.Context(), local))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "lost"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	h.until("it is gone", func() bool {
		return apierrors.IsNotFound(h.Get(h.Context(), client.ObjectKeyFromObject(local), &offloadingv1alpha1.NamespaceOffloading{}))
	})
	refused("a pod without a wish", h.Create(h.Context(), pod), "has no NamespaceOffloading")
}
