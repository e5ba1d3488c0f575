// SPDX-License-Identifier: Apache-2.0

package peerobjects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/offloading/ledger"
)

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secretKind = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

// peerOf is the peer of the remote namespaces of a test, and tenantOf its tenant namespace.
func peerOf(namespace string) string {
	return namespace[strings.LastIndex(namespace, "-")+1:]
}

func tenantOf(peer string) string { return "liqo-tenant-" + peer }

// stored is an API server: the sizes of objects by path and name.
type stored map[string]map[string]int

func (s stored) list(_ context.Context, path, _ string) ([]byte, error) {
	var items []json.RawMessage
	for name, size := range s[path] {
		object := fmt.Sprintf(`{"metadata":{"name":%q},"data":%q}`, name, "")
		items = append(items, json.RawMessage(strings.Replace(object, `""`, `"`+strings.Repeat("x", size-len(object))+`"`, 1)))
	}
	return json.Marshal(map[string]any{"metadata": map[string]string{}, "items": items})
}

// peersOf returns a ledger of peers that have namespaces web-PEER and shop-PEER in an API server.
func peersOf(t *testing.T, limits ledger.Limits, api stored, custom ...schema.GroupResource) *Ledger {
	t.Helper()
	p := newLedger(Options{
		Limits: limits, Custom: custom, Known: peerOf, Namespaces: func(peer string) []string { return []string{"web-" + peer, "shop-" + peer} },
	}, api.list)
	p.tenant, p.filled, p.early = peerOf, true, ledger.New(ledger.Limits{}) // TestAttackNH4Restart has bounds before the first list
	t.Cleanup(p.queue.ShutDown)
	return p
}

// later has the time pass after which a list proves that an object was not stored.
func (p *Ledger) later() {
	before := p.now
	p.now = func() time.Time { return before().Add(ledger.Storing) }
}

// listDue lists, later, the objects of all peers for which that is due.
func (p *Ledger) listDue(t *testing.T) {
	t.Helper()
	p.later()
	for p.queue.Len() > 0 {
		peer, _ := p.queue.Get()
		p.queue.Done(peer)
		if err := p.relist(t.Context(), peer); err != nil {
			t.Fatal(err)
		}
	}
}

// written is a request of a peer, with so many bytes of JSON.
func written(operation admissionv1.Operation, kind schema.GroupVersionResource, namespace, name string, size int) admission.Request {
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: operation, Resource: metav1.GroupVersionResource(kind), Namespace: namespace, Name: name,
	}}
	request.UserInfo.Username = "system:serviceaccount:" + tenantOf(peerOf(namespace)) + ":liqo-peer"
	text := fmt.Sprintf(`{"metadata":{"name":%q},"data":"`, name)
	request.Object.Raw = []byte(text + strings.Repeat("x", max(0, size-len(text)-2)) + `"}`)
	return request
}

// TestAttackNH5 plays the attacks on etcd: who writes one object again and again, also its status in a tenant namespace, has to wait, while another peer
// goes on. Claims have bytes, also those that Kubernetes makes for the pods of a peer, and so have objects whose names the API server makes up.
func TestAttackNH5(t *testing.T) {
	const mebi = 1 << 20
	limits := ledger.Limits{Use: ledger.Use{ledger.Bytes: 16 * mebi}, Rate: mebi, Burst: 64 * mebi}
	limits.Use[ledger.Storage] = 100 << 30
	networks := networkConfigs.WithVersion("v1alpha1")
	t.Run("rewriting", func(t *testing.T) {
		p, now := peersOf(t, limits, stored{}), time.Now()
		p.now = func() time.Time { return now }
		var last admission.Response
		admitted := 0
		for ; admitted < 200; admitted++ {
			request := written(admissionv1.Update, configMaps, []string{"web-rome", "shop-rome"}[admitted%2], "a", mebi)
			if admitted%4 == 3 {
				request = written(admissionv1.Update, networks, tenantOf("rome"), "a", mebi)
				request.SubResource = "status"
			}
			if last = p.Review(request); !last.Allowed {
				break
			}
		}
		if admitted != 64 {
			t.Errorf("a peer writes %d MiB within a moment, want 64", admitted)
		}
		if last.Result == nil || last.Result.Code != http.StatusTooManyRequests ||
			last.Result.Details.RetryAfterSeconds < 1 || !strings.Contains(last.Result.Message, "tries again on its own") {
			t.Errorf("the answer is %+v", last.Result)
		}
		if answer := p.Review(written(admissionv1.Update, configMaps, "web-milan", "a", mebi)); !answer.Allowed {
			t.Errorf("another peer: %+v", answer.Result)
		}
		same := written(admissionv1.Update, configMaps, "web-rome", "a", mebi)
		same.OldObject.Raw = same.Object.Raw
		if answer := p.Review(same); !answer.Allowed {
			t.Errorf("an update that changes nothing: %+v", answer.Result)
		}
		now = now.Add(2 * time.Second)
		if answer := p.Review(written(admissionv1.Update, configMaps, "web-rome", "a", mebi)); !answer.Allowed {
			t.Errorf("after two seconds: %+v", answer.Result)
		}
	})
	for name, change := range map[string]func(*admission.Request){
		"claims": func(*admission.Request) {},
		"claims of ephemeral volumes": func(r *admission.Request) {
			r.UserInfo.Username = "system:serviceaccount:kube-system:ephemeral-volume-controller"
		},
		"objects whose names are made up": func(r *admission.Request) { r.Resource, r.Name = metav1.GroupVersionResource(configMaps), "" },
	} {
		t.Run(name, func(t *testing.T) {
			p, admitted := peersOf(t, limits, stored{}), 0
			for ; admitted < 100; admitted++ {
				request := written(admissionv1.Create, ledger.Claims.WithVersion("v1"), "web-rome", fmt.Sprint("x-", admitted), 256<<10)
				change(&request)
				if !p.Review(request).Allowed {
					break
				}
			}
			if admitted != 64 {
				t.Errorf("%d of 256 KiB are admitted, want 64 with 16 MiB", admitted)
			}
		})
	}
}

// TestPeerLedger: what a peer has counts in all its namespaces, also after a restart, and what it deletes does not.
func TestPeerLedger(t *testing.T) {
	const path = "/api/v1/namespaces/web-rome/secrets"
	api := stored{}
	limits := ledger.Limits{Use: ledger.Use{ledger.Bytes: 1000}}
	try := func(p *Ledger, namespace, name string, size int, want bool) {
		t.Helper()
		if answer := p.Review(written(admissionv1.Create, secretKind, namespace, name, size)); answer.Allowed != want {
			t.Errorf("%s/%s of %d bytes: %+v, want admitted: %t", namespace, name, size, answer.Result, want)
		}
	}
	p := peersOf(t, limits, api)
	try(p, "web-rome", "a", 600, true)
	if p.queue.Len() != 1 { // what it had before this process started
		t.Errorf("%d lists are due", p.queue.Len())
	}
	try(p, "shop-rome", "b", 500, false)
	try(p, "web-milan", "a", 900, true)
	api[path] = map[string]int{"b": 300} // a was deleted, or never stored
	p.listDue(t)
	try(p, "web-rome", "c", 700, true)
	try(p, "web-rome", "d", 50, false)
	p.namespaces = func(string) []string { return nil }
	p.dropGone()
	if _, use := p.ledger.Has("rome", secretKind.GroupResource()); use != (ledger.Use{}) || len(p.ended) > 0 {
		t.Errorf("a peer without namespaces has %v", use)
	}

	p = peersOf(t, limits, stored{path: {"a": 500, "b": 490}})
	try(p, "web-rome", "b", 490, true)
	p.listDue(t)
	try(p, "shop-rome", "c", 60, false)
	try(p, "web-rome", "a", 400, true)
	p.filled = false
	if answer := p.Review(written(admissionv1.Create, secretKind, "web-rome", "x", 60)); answer.Allowed || answer.Result.Code != http.StatusServiceUnavailable {
		t.Errorf("before the first list: %+v", answer.Result)
	}
	if _, err := p.admit(ledger.Change{}); !errors.Is(err, errUncounted) {
		t.Error(err)
	}
}

// TestTenantObjects: those of the peer in its tenant namespace count, ours do not, and one that is being deleted leaves its place.
func TestTenantObjects(t *testing.T) {
	p := peersOf(t, ledger.Limits{Objects: map[schema.GroupResource]int64{NamespaceMaps: 1}}, stored{})
	of := func(name, replicated string, deleted bool) *vkv1alpha1.NamespaceMap {
		namespaceMap := &vkv1alpha1.NamespaceMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: tenantOf("rome"), Name: name, Labels: map[string]string{labels.Replicated: replicated}},
		}
		if deleted {
			namespaceMap.DeletionTimestamp = new(metav1.Now())
		}
		return namespaceMap
	}
	full := func(peer string, want bool) {
		t.Helper()
		for operation, full := range map[admissionv1.Operation]bool{admissionv1.Create: want, admissionv1.Update: false} {
			request := written(operation, NamespaceMaps.WithVersion("v1alpha1"), tenantOf(peer), "another", 100)
			if answer := p.Review(request); answer.Allowed == full {
				t.Errorf("%s for %s: %+v, want full: %t", operation, peer, answer.Result, full)
			}
		}
	}
	p.set(NamespaceMaps, of("ours", "false", false))
	full("rome", false)
	p.set(NamespaceMaps, of("theirs", "true", false))
	p.set(NamespaceMaps, of("theirs", "true", false))
	full("rome", true)
	full("milan", false)
	p.set(NamespaceMaps, of("theirs", "true", true)) // its successor may have another name
	full("rome", false)
}

// TestPeerCustomResources: a peer has a number of each custom resource, whatever its name, and those that it deletes do not count. A kind that is not served
// hinders no list.
func TestPeerCustomResources(t *testing.T) {
	widgets, maps := schema.GroupResource{Group: "example.com", Resource: "widgets"}, schema.GroupResource{Group: "example.com", Resource: NamespaceMaps.Resource}
	api := stored{}
	p := peersOf(t, ledger.Limits{Objects: map[schema.GroupResource]int64{widgets: 2, maps: 2}, Use: ledger.Use{ledger.Bytes: 1000}}, api, widgets, maps)
	p.served = func(groupResource schema.GroupResource) (schema.GroupVersionResource, error) {
		if groupResource == widgets {
			return groupResource.WithVersion("v1"), nil
		}
		return schema.GroupVersionResource{}, &meta.NoResourceMatchError{PartialResource: groupResource.WithVersion("")}
	}
	try := func(kind schema.GroupResource, name string, size int, want bool) {
		t.Helper()
		if answer := p.Review(written(admissionv1.Create, kind.WithVersion("v1"), "web-rome", name, size)); answer.Allowed != want {
			t.Errorf("%s: %+v, want admitted: %t", name, answer.Result, want)
		}
	}
	try(widgets, "a", 100, true)
	try(widgets, "b", 100, true)
	try(widgets, "c", 100, false)
	try(widgets, "b", 100, true)
	api["/apis/example.com/v1/namespaces/web-rome/widgets"] = map[string]int{"b": 100}
	p.listDue(t)
	try(widgets, "c", 100, true)
	try(widgets, "d", 100, false)
	try(maps, "x", 900, false) // it counts, although it has the name of one of ours
}

// remoteNamespace is of one peer, in a real API server.
const remoteNamespace = "web-rome-a1b2c3"

// newEnv is a real API server, and a ledger that counts in it.
func newEnv(t *testing.T, limits ledger.Limits) (*kubetest.Env, *Ledger) {
	t.Helper()
	t.Parallel()
	b, admin, scheme := &kubetest.Env{T: t}, kubetest.Cluster(t), runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, sharingv1alpha1.AddToScheme, vkv1alpha1.AddToScheme} {
		b.Must(add(scheme))
	}
	crds := "../../../deployments/liqo/crds/"
	_, err := envtest.InstallCRDs(admin, envtest.CRDInstallOptions{ErrorIfPathMissing: true, Paths: []string{
		crds + "sharing.liqo.io_resourceslices.yaml", crds + "virtualkubelet.liqo.io_shadowpods.yaml",
		crds + "virtualkubelet.liqo.io_namespacemaps.yaml", crds + "virtualkubelet.liqo.io_shadowendpointslices.yaml",
	}})
	b.Must(err)
	b.Client, err = client.New(admin, client.Options{Scheme: scheme})
	b.Must(err)
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: remoteNamespace}})
	mgr, err := kubemanager.New(admin, kubemanager.Options{Scheme: scheme, SkipNameValidation: true, Cache: cache.Options{
		ByObject: map[client.Object]cache.ByObject{&corev1.Namespace{}: {}},
	}})
	b.Must(err)
	p, err := Setup(mgr, Options{
		Limits: limits, Known: func(string) string { return "rome-id" }, Namespaces: func(string) []string { return []string{remoteNamespace} },
	})
	b.Must(err)
	kubetest.Start(t, "manager", mgr.Start)
	b.Until("the objects are counted", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.filled
	})
	return b, p
}

// TestAttackH5Bytes: few large objects fill etcd as well. They are refused at the bound, also claims, and those that are deleted do not count.
func TestAttackH5Bytes(t *testing.T) {
	const size, most = 100 << 10, 1 << 20
	b, p := newEnv(t, ledger.Limits{Use: ledger.Use{ledger.Bytes: most}})
	admitted := func(name string) bool {
		request := written(admissionv1.Create, configMaps, remoteNamespace, name, size)
		request.DryRun = new(true)
		return p.Review(request).Allowed
	}
	filler := func(i int) client.Object {
		at := metav1.ObjectMeta{Namespace: remoteNamespace, Name: fmt.Sprint("filler-", i)}
		if i%2 == 0 {
			return &corev1.ConfigMap{ObjectMeta: at, Data: map[string]string{"x": strings.Repeat("x", size)}}
		}
		at.Annotations = map[string]string{"x": strings.Repeat("x", size)}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: at}
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}
		return claim
	}
	for i := range 14 { // without the claims, they stay within the bound
		b.Make(filler(i))
	}
	b.Until("what is stored counts", func() bool { return !admitted("more") })
	for i := range 14 {
		object := filler(i)
		b.Must(b.Delete(t.Context(), object))
		if i%2 == 1 { // no controller releases it
			b.Edit(object, func() { object.SetFinalizers(nil) })
		}
	}
	b.Until("what is deleted does not count", func() bool { return admitted("more") })
}
