// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	"liqo.io/liqo/deployments/liqo/charttest"
	"liqo.io/liqo/internal/kube/kubetest"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/offloading/hosts"
	"liqo.io/liqo/internal/offloading/peers"
	offloadingwebhook "liqo.io/liqo/internal/offloading/webhook"
	"liqo.io/liqo/internal/storage/home"
)

// webhookEnv is an API server with the objects of the chart, and the webhooks of offloading with the rights of the controller manager. No
// controller runs.
type webhookEnv struct {
	*testing.T
	client.Client
	admin    *rest.Config
	warnings *warnings
	// urls are the addresses of the webhooks, by name.
	urls map[string]string
}

// warnings records the warnings of an API server.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

func (w *warnings) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.texts, "\n")
}

func newWebhookEnv(t *testing.T, set ...string) *webhookEnv {
	t.Helper()
	t.Parallel()
	admin := kubetest.Cluster(t)
	h := &webhookEnv{T: t, admin: admin, warnings: &warnings{}, urls: map[string]string{}}
	admin.WarningHandler = h.warnings
	h.Client = connect(t, admin)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	h.must(offloadingv1alpha1.AddToScheme(h.Scheme()))
	h.must(eventsv1.AddToScheme(h.Scheme()))
	h.must(appsv1.AddToScheme(h.Scheme()))
	h.must(networkingv1.AddToScheme(h.Scheme()))
	install(ctx, t, h.Client, set...)
	h.must(client.IgnoreAlreadyExists(h.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "liqo-controller-manager"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-controller-manager"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "liqo", Name: "liqo-controller-manager"}},
	})))

	public, private, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	h.must(err)
	dir := t.TempDir()
	h.must(os.WriteFile(filepath.Join(dir, "tls.crt"), public, 0o600))
	h.must(os.WriteFile(filepath.Join(dir, "tls.key"), private, 0o600))
	objects := charttest.Render(t, set...)
	segment, err := base64.StdEncoding.DecodeString(fmt.Sprint(charttest.Field(t, charttest.Find(t, objects, "Secret", "liqo-webhook-certs"), "data", "path")))
	h.must(err)
	h.must(os.WriteFile(filepath.Join(dir, "path"), segment, 0o600))
	cfg := asAccount(admin, "liqo", "liqo-controller-manager")
	cfg.WarningHandler = rest.NoWarnings{}
	// The server takes the port at all addresses, and right after this: what takes long comes before, because another process may take it meanwhile.
	listener, err := net.Listen("tcp", ":0")
	h.must(err)
	port := listener.Addr().(*net.TCPAddr).Port
	h.must(listener.Close())
	mgr, err := kubemanager.New(cfg, kubemanager.Options{Scheme: h.Scheme(), WebhookPort: port, WebhookCertDir: dir, SkipNameValidation: true})
	h.must(err)
	offloadingwebhook.Register(mgr.GetWebhookServer(), h.Scheme(), offloadingwebhook.Options{
		Cached: mgr.GetClient(), Live: mgr.GetAPIReader(), Namespace: "liqo",
		Claims: home.Reader{Cached: mgr.GetClient(), Live: mgr.GetAPIReader()}.Keeps,
	})
	remoteNamespaces, err := peers.Watch(mgr)
	h.must(err)
	h.must(hosts.Setup(ctx, mgr, remoteNamespaces))
	kubetest.Start(t, "manager", mgr.Start)

	// The configuration of the chart with the address of this server, without the webhooks that it does not serve.
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		hooks := charttest.Find(t, objects, kind, "liqo").DeepCopy()
		all, _, err := unstructured.NestedSlice(hooks.Object, "webhooks")
		h.must(err)
		var kept []any
		for _, one := range all {
			one := one.(map[string]any)
			if slices.Contains([]string{"fc", "shadowpod", "peerbytes"}, strings.Split(one["name"].(string), ".")[0]) {
				continue
			}
			where := one["clientConfig"].(map[string]any)
			path, _, err := unstructured.NestedString(where, "service", "path")
			h.must(err)
			h.urls[one["name"].(string)] = fmt.Sprintf("https://127.0.0.1:%d%s", port, path)
			one["clientConfig"] = map[string]any{"url": h.urls[one["name"].(string)], "caBundle": base64.StdEncoding.EncodeToString(public)}
			kept = append(kept, one)
		}
		h.must(unstructured.SetNestedSlice(hooks.Object, kept, "webhooks"))
		h.must(h.Delete(ctx, hooks.DeepCopy()))
		h.must(h.Create(ctx, hooks))
	}
	h.until("the API server calls our webhooks", func() bool {
		err := h.Create(ctx, h.offloading("kube-system", "Remote"), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "belongs to Kubernetes")
	})
	h.namespace("probe")
	h.must(h.Create(ctx, h.offloading("probe", "Remote")))
	h.until("the API server calls the webhook for pods", func() bool { // it observes each configuration on its own
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "probe", Name: "probe"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		h.must(h.Create(ctx, pod, client.DryRunAll))
		return pod.Spec.Affinity != nil
	})
	return h
}

func (h *webhookEnv) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *webhookEnv) until(what string, holds func() bool) {
	h.Helper()
	(&kubetest.Env{Client: h.Client, T: h.T}).Until(what, holds)
}

func (h *webhookEnv) namespace(name string) {
	h.Helper()
	h.must(h.Create(h.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

func (h *webhookEnv) offloading(namespace string, strategy offloadingv1alpha1.PodOffloadingStrategy) *offloadingv1alpha1.NamespaceOffloading {
	return &offloadingv1alpha1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "offloading"}, Spec: offloadingv1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: strategy},
	}
}

// terms creates a pod, and returns how many terms its affinity has; -1 if the webhook did not change it.
func (h *webhookEnv) terms(namespace, name string) int {
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

// TestOffloadingRace: a pod that is created right after a NamespaceOffloading, as one `kubectl apply` does, follows the current
// NamespaceOffloading, not an earlier version of it.
func TestOffloadingRace(t *testing.T) {
	h := newWebhookEnv(t)
	const rounds = 40
	for i := range rounds { // an API server reads a namespace that it has not observed yet; for a known one it uses its cache
		h.namespace(fmt.Sprint("race-", i))
	}
	for i := range rounds {
		name := fmt.Sprint("race-", i)
		if i%2 == 1 {
			name = fmt.Sprint("new-", i)
			h.namespace(name)
		}
		offloading := h.offloading(name, offloadingv1alpha1.PodsRemote)
		h.must(h.Create(h.Context(), offloading))
		if got := h.terms(name, "first"); got != 1 {
			t.Fatalf("round %d: the first pod has %d terms", i, got)
		}
		term := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: "Exists"}}}
		for n := 2; n < 5; n++ {
			for len(offloading.Spec.ClusterSelector.NodeSelectorTerms) < n {
				offloading.Spec.ClusterSelector.NodeSelectorTerms = append(offloading.Spec.ClusterSelector.NodeSelectorTerms, term)
			}
			h.must(h.Update(h.Context(), offloading))
			if got := h.terms(name, fmt.Sprint("pod-", n)); got != n {
				t.Fatalf("round %d: a pod created after the change to %d terms has %d", i, n, got)
			}
		}
		// From here on pods stay local; then they are offloaded again.
		offloading.Spec.PodOffloadingStrategy = offloadingv1alpha1.PodsLocal
		h.must(h.Update(h.Context(), offloading))
		if got := h.terms(name, "stays"); got != -1 {
			t.Fatalf("round %d: a pod that stays local has %d terms", i, got)
		}
		h.must(h.Patch(h.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"liqo.io/scheduling-enabled":null}}}`))))
		offloading.Spec.PodOffloadingStrategy, offloading.Spec.ClusterSelector.NodeSelectorTerms = offloadingv1alpha1.PodsRemote, nil
		h.must(h.Update(h.Context(), offloading))
		if got := h.terms(name, "goes"); got != 1 {
			t.Fatalf("round %d: a pod created after the change to Remote has %d terms", i, got)
		}
	}
}

// TestOffloadingControllers: until the API server calls the webhook for all pods of a namespace, pods of controllers are refused; the controllers
// try again. Once it does, their pods are placed.
func TestOffloadingControllers(t *testing.T) {
	h := newWebhookEnv(t)
	h.namespace("shop")
	pod := func(name string) *corev1.Pod {
		owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web", Controller: new(true)}
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, OwnerReferences: []metav1.OwnerReference{owner}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
	}
	h.must(h.Create(h.Context(), pod("before")))
	offloading := h.offloading("shop", "Remote")
	h.must(h.Create(h.Context(), offloading))
	inForce(t, "liqo-offloaded-pods", func() error { return h.Create(h.Context(), pod("held"), client.DryRunAll) })
	label := func(value string) {
		h.must(h.Patch(h.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"liqo.io/scheduling-enabled":`+value+`}}}`))))
	}
	label(`"true"`) // as the controller does
	placed := pod("placed")
	h.until("the pod is admitted", func() bool { return h.Create(h.Context(), placed) == nil })
	if placed.Spec.Affinity == nil || len(placed.Spec.Tolerations) == 0 {
		t.Errorf("a pod was admitted without being placed: %+v", placed.Spec)
	}
	offloading.Spec.PodOffloadingStrategy = offloadingv1alpha1.PodsLocal
	h.must(h.Update(h.Context(), offloading))
	label("null")
	h.until("pods stay local", func() bool { return h.Create(h.Context(), pod("local")) == nil })
}

// post sends a forged review to a webhook, as every pod of the cluster can if it knows the path.
func (h *webhookEnv) post(webhook, review string) (status int, answer string) {
	h.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // the attacker does not mind
	response, err := client.Post(h.urls[webhook], "application/json", strings.NewReader(review))
	h.must(err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	h.must(err)
	return response.StatusCode, string(text)
}

// TestAttackH4: forged reviews label no namespace, even if the attacker knows the path, and a namespace with a wrong label admits pods.
func TestAttackH4(t *testing.T) {
	h := newWebhookEnv(t)
	h.namespace("victim")
	object := `{"apiVersion":"offloading.liqo.io/v1alpha1","kind":"NamespaceOffloading","metadata":{"name":"offloading","namespace":"victim",` +
		`"uid":"forged","generation":1},"spec":{"podOffloadingStrategy":"Remote"}}`
	review := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"forged","operation":"CREATE",` +
		`"namespace":"victim","name":"offloading","object":` + object + `}}`
	if status, answer := h.post("nsoff.validate.liqo.io", review); status != http.StatusOK || !strings.Contains(answer, `"allowed":true`) {
		t.Fatalf("the review was not read, so this test proves nothing: %d %s", status, answer)
	}
	var victim corev1.Namespace
	h.must(h.Get(h.Context(), client.ObjectKey{Name: "victim"}, &victim))
	if victim.Labels["liqo.io/scheduling-enabled"] != "" {
		t.Error("a forged review labelled the namespace")
	}
	victim.Labels["liqo.io/scheduling-enabled"] = "true"
	h.must(h.Update(h.Context(), &victim))
	for i := range 20 { // with the label observed or not
		if got := h.terms("victim", fmt.Sprint("pod-", i)); got != -1 {
			t.Fatalf("a pod of a namespace that is not offloaded has %d terms", got)
		}
	}
	// Every webhook has the secret segment, and none has a side effect.
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		for _, one := range charttest.Field(t, charttest.Find(t, charttest.Render(t), kind, "liqo"), "webhooks").([]any) {
			one := one.(map[string]any)
			path, _, err := unstructured.NestedString(one, "clientConfig", "service", "path")
			h.must(err)
			if parts := strings.Split(path, "/"); len(parts) != 4 || len(parts[1]) < 40 {
				t.Errorf("%s: the path %s can be guessed", one["name"], path)
			}
			if one["sideEffects"] != "None" {
				t.Errorf("%s has side effects %v", one["name"], one["sideEffects"])
			}
		}
	}
}

// TestOffloadingAdmission: the webhook refuses invalid objects and has no effects.
func TestOffloadingAdmission(t *testing.T) {
	h := newWebhookEnv(t)
	h.namespace("shop")
	unlabelled := func() {
		t.Helper()
		var shop corev1.Namespace
		h.must(h.Get(h.Context(), client.ObjectKey{Name: "shop"}, &shop))
		if _, labelled := shop.Labels["liqo.io/scheduling-enabled"]; labelled {
			t.Error("the webhook labelled the namespace; only the controller may")
		}
	}
	h.must(h.Create(h.Context(), h.offloading("shop", "Remote"), client.DryRunAll))
	unlabelled()
	local := h.offloading("shop", "Local")
	h.must(h.Create(h.Context(), local))
	unlabelled()
	if got := h.terms("shop", "here"); got != -1 {
		t.Errorf("a local pod has %d terms", got)
	}
	local.Spec.PodOffloadingStrategy = offloadingv1alpha1.PodsLocalAndRemote
	h.must(h.Update(h.Context(), local))
	if got := h.terms("shop", "anywhere"); got != 0 {
		t.Errorf("a pod that may run anywhere has %d terms", got)
	}
	unlabelled()
	local.Spec.PodOffloadingStrategy = offloadingv1alpha1.PodsRemote
	h.must(h.Update(h.Context(), local))
	if text := h.warnings.text(); !strings.Contains(text, "more restrictive") {
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
	refused("an empty term", h.Update(h.Context(), empty), "is empty")
	perhaps := local.DeepCopy()
	perhaps.Annotations = map[string]string{"liqo.io/apiserver-support": "maybe"}
	refused("an invalid annotation", h.Update(h.Context(), perhaps), `has the invalid value "maybe"; set it to "true" or "false"`)
	perhaps.Annotations["liqo.io/apiserver-support"] = "false"
	h.must(h.Update(h.Context(), perhaps, client.DryRunAll))
	nonsense := local.DeepCopy()
	nonsense.Spec.ClusterSelector.NodeSelectorTerms = []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: "Like"}}}}
	refused("nonsense", h.Update(h.Context(), nonsense), "Like")
	named := h.offloading("shop", "Remote")
	named.Name = "second"
	refused("a second one", h.Create(h.Context(), named), "offloading")
	refused("Liqo's namespace", h.Create(h.Context(), h.offloading("liqo", "Remote")), "belongs to Kubernetes or to Liqo")
	refused("no namespace", h.Create(h.Context(), h.offloading("nowhere", "Remote")), "not found")

	// While it is being deleted, and after that, pods are not changed, whether the namespace has the label or not.
	local.Finalizers = []string{"example.com/held"}
	h.must(h.Update(h.Context(), local))
	h.must(h.Delete(h.Context(), local))
	pods := 0
	h.until("pods have no terms while the NamespaceOffloading is being deleted", func() bool { // as soon as the cache has the deletion
		pods++
		return h.terms("shop", fmt.Sprint("late", pods)) == -1
	})
	h.must(h.Get(h.Context(), client.ObjectKeyFromObject(local), local))
	local.Finalizers = nil
	h.must(h.Update(h.Context(), local))
	h.until("the NamespaceOffloading is deleted", func() bool {
		return apierrors.IsNotFound(h.Get(h.Context(), client.ObjectKeyFromObject(local), &offloadingv1alpha1.NamespaceOffloading{}))
	})
	if got := h.terms("shop", "after"); got != -1 {
		t.Errorf("a pod created after the end of the offloading has %d terms", got)
	}
}
